"""The best plans among the tables of a search: the best of all, different ones, and the best with given values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardplan.errors import UnknownNameError
from shardplan.planner.evaluation import Table
from shardplan.planner.points import Family
from shardplan.planner.space import POINT

POLICIES = {"sharding": ("shardings", 0), "sharding_degree": ("shardings", 1)} | {
    "recompute": ("recomputations", 0),
    "recompute_num_layers": ("recomputations", 1),
}
"""Where a family keeps the values of a field, and which of the pair it is."""
DEGREES = ("tp", "tp_rows", "cp", "pp", "ep", "etp")
DIFFERENCES = (DEGREES, (*DEGREES, "micro_batch_size"), (*DEGREES, "micro_batch_size", *POLICIES))
"""What makes plans different: first their degrees; where too few differ in these, more."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A plan of a table, but for its chunks per rank."""

    family: Family
    position: tuple[int, int, int]
    """Sharding, recomputation, point."""
    value: float


def best_cell(tables: Sequence[Table], **wanted: Any) -> Cell | None:
    """The best plan with the given values of its fields; None where there is none. Raises ``UnknownNameError``."""
    best: Cell | None = None
    for table in tables:
        found = _best_of(table, wanted)
        if found is not None and (best is None or found.value < best.value):
            best = found
    return best


def different_cells(tables: Sequence[Table], most: int) -> list[Cell]:
    """The best plans, best first, no two with the same degrees; if there are fewer, plans that differ in less."""
    chosen: dict[tuple[int, int, int, int], Cell] = {}
    for fields in DIFFERENCES:
        for key, cell in _best_of_each(tables, fields, most):
            if len(chosen) < most:
                chosen.setdefault(key, cell)
        if len(chosen) >= most:
            break
    return sorted(chosen.values(), key=lambda cell: cell.value)


def _best_of(table: Table, wanted: dict[str, Any]) -> Cell | None:
    family = table.family
    masks = [np.ones(length, dtype=bool) for length in table.best.shape]
    for field, value in wanted.items():
        axis, matches = _matches(family, field, value)
        masks[axis] &= matches
    if not all(mask.any() for mask in masks):
        return None
    kept = [np.flatnonzero(mask) for mask in masks]
    part = table.best[np.ix_(*kept)]
    index = np.unravel_index(int(part.argmin()), part.shape)
    value = float(part[index])
    sharding, recomputation, point = (int(axis[i]) for axis, i in zip(kept, index, strict=True))
    return Cell(family, (sharding, recomputation, point), value) if np.isfinite(value) else None


def _matches(family: Family, field: str, value: Any) -> tuple[int, Any]:
    """Axis of a field, and where on it the field has this value."""
    if field in POINT:
        return 2, family.points[field] == value
    if field in POLICIES:
        name, index = POLICIES[field]
        pairs = getattr(family, name)
        return int(name == "recomputations"), np.asarray([pair[index] == value for pair in pairs])
    if field != "pp" and field not in family.switches:
        known = ("pp", *POINT, *POLICIES, *family.switches)
        raise UnknownNameError("field of the search", field, known, hint=f"one of {', '.join(known)}")
    actual = family.pp if field == "pp" else family.switches[field]
    return 2, np.full(family.num_points, actual == value)


def _best_of_each(
    tables: Sequence[Table], fields: tuple[str, ...], most: int
) -> Iterator[tuple[tuple[int, int, int, int], Cell]]:
    """The best cell for every combination of values of ``fields``, best first, ``most`` of them."""
    values, keys, places = [], [], []
    for number, table in enumerate(tables):
        index = _candidates(table, fields)
        values.append(table.best[index])
        keys.append(_keys(table.family, fields, index))
        places.append(np.stack([np.full(len(index[0]), number), *index], axis=1))
    if not values:
        return
    value, key, place = np.concatenate(values), np.concatenate(keys), np.concatenate(places)
    order = np.argsort(value, kind="stable")
    _, first = np.unique(key[order], axis=0, return_index=True)
    for position in order[np.sort(first)[:most]]:
        number, sharding, recomputation, point = (int(n) for n in place[position])
        cell = Cell(tables[number].family, (sharding, recomputation, point), float(value[position]))
        yield (number, sharding, recomputation, point), cell


def _candidates(table: Table, fields: tuple[str, ...]) -> tuple[NDArray[np.intp], ...]:
    """Cells with a plan: all, or the best of every point where sharding and recomputation make no difference."""
    if not set(fields) & set(POLICIES):
        flat = table.best.reshape(-1, table.family.num_points)
        best = flat.argmin(axis=0)
        points = np.flatnonzero(np.isfinite(flat[best, np.arange(len(best))]))
        sharding, recomputation = np.unravel_index(best[points], table.best.shape[:2])
        return sharding, recomputation, points
    return np.nonzero(np.isfinite(table.best))


def _keys(family: Family, fields: tuple[str, ...], index: tuple[NDArray[np.intp], ...]) -> NDArray[np.int64]:
    """Values of the fields as numbers, a row for each cell."""
    sharding, recomputation, point = index
    columns = [family.points[field][point] for field in fields if field in POINT]
    columns.append(np.full(len(point), family.pp))
    if set(fields) & set(POLICIES):
        columns += [sharding, recomputation]
    return np.stack(columns, axis=1).astype(np.int64)

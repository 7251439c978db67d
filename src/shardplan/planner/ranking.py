"""The best plans among the tables of a search: the best of all, different ones, and the best with given values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardplan.base.arrays import coded
from shardplan.base.errors import UnknownNameError
from shardplan.base.fields import dataclass
from shardplan.planner.evaluation import Table
from shardplan.planner.family import Family
from shardplan.planner.pricing.tables import Tables
from shardplan.planner.space import GRID, SHARDED

POLICIES = ("sharding", "sharding_degree", "recompute", "recompute_num_layers")
"""Fields that differ among the plans of one point."""
DEGREES = ("tp", "tp_rows", "cp", "pp", "ep", "etp")
DIFFERENCES = (DEGREES, (*DEGREES, "micro_batch_size"), (*DEGREES, "micro_batch_size", *POLICIES))
"""What makes plans different: first their degrees; where too few differ in these, more."""


@dataclass(frozen=True)
class Cell:
    """A plan of a table, but for its chunks per rank."""

    tables: Tables
    position: tuple[int, int, int]
    """Sharding, slot of recomputation, point."""
    value: float

    @property
    def family(self) -> Family:
        """Plans that it is one of."""
        return self.tables.family

    def place_in(self, tables: Tables) -> tuple[int, int, int] | None:
        """Its position in other tables of the same software, which may hold more points; None where it is not there."""
        if tables is self.tables:
            return self.position
        if tables.root is not self.tables.root or tables.family.switches != self.family.switches:
            return None
        sharding, slot, point = self.position
        found = np.flatnonzero(tables.points_of_root == self.tables.points_of_root[point])
        return (sharding, slot, int(found[0])) if len(found) else None


def best_cell(tables: Sequence[Table], **wanted: Any) -> Cell | None:
    """The best plan with the given values of its fields; None where there is none. Raises ``UnknownNameError``."""
    best: Cell | None = None
    for table in tables:
        found = _known_best_of(table, wanted)
        if found is not None and (best is None or found.value < best.value):
            best = found
    return best


def different_cells(
    tables: Sequence[Table], most: int, differences: Sequence[tuple[str, ...]] = DIFFERENCES
) -> list[Cell]:
    """The best plans, best first, no two with the same degrees; if there are fewer, plans that differ in less."""
    chosen: dict[tuple[int, int, int, int], Cell] = {}
    for fields in differences:
        for key, cell in _best_of_each(tables, fields, most):
            if len(chosen) < most:
                chosen.setdefault(key, cell)
        if len(chosen) >= most:
            break
    return sorted(chosen.values(), key=lambda cell: cell.value)


class _Wanted(NamedTuple):
    """Where plans of a family have given values of their fields; all four together say which plans."""

    shardings: NDArray[np.bool_]
    slots: NDArray[np.bool_]
    """By slot of recomputation and depth."""
    points: NDArray[np.bool_]
    both: NDArray[np.bool_]
    """By sharding and point."""

    @classmethod
    def of(cls, family: Family, wanted: Mapping[str, Any]) -> _Wanted:
        """Raises ``UnknownNameError``."""
        shardings, points = np.ones(len(family.shardings), dtype=bool), np.ones(family.num_points, dtype=bool)
        slots = np.ones((len(family.policies), len(family.depths)), dtype=bool)
        both = np.ones((len(family.shardings), family.num_points), dtype=bool)
        for field, value in wanted.items():
            matches = _matches(family, field, value)
            if field == "sharding":
                shardings &= matches
            elif field == "sharding_degree":
                both &= matches
            elif field in POLICIES:
                slots &= matches
            else:
                points &= matches
        return cls(shardings & both.any(axis=1), slots, points & both.any(axis=0), both)


def cells_with(family: Family, wanted: Mapping[str, Any]) -> NDArray[np.bool_]:
    """Where plans with these values of their fields can be, by slot and point. Raises ``UnknownNameError``."""
    has = _Wanted.of(family, wanted)
    valid = (family.shards & has.both)[has.shardings].any(axis=0)
    cells: NDArray[np.bool_] = family.recomputes & has.slots[:, family.points["depth"]] & (has.points & valid)
    return cells


def _known_best_of(table: Table, wanted: Mapping[str, Any]) -> Cell | None:
    """As ``_best_of``, found once."""
    key = tuple(wanted.items())
    if key not in table.known:
        table.known[key] = _best_of(table, wanted)
    return table.known[key]


def _best_of(table: Table, wanted: Mapping[str, Any]) -> Cell | None:
    """The best cell of a table; of equal ones the shallowest pipeline, then the first."""
    family = table.family
    shardings, slots, points, both = _Wanted.of(family, wanted)
    points = points & np.isfinite(table.least)
    kept = np.flatnonzero(shardings), np.flatnonzero(slots.any(axis=1)), np.flatnonzero(points)
    if not all(map(len, kept)):
        return None
    part = table.best if all(map(np.all, (shardings, slots, points))) else table.best[np.ix_(*kept)]
    allowed = slots[np.ix_(kept[1], family.points["depth"][kept[2]])]
    part = part if allowed.all() else np.where(allowed, part, np.inf)
    at = both[np.ix_(kept[0], kept[2])]
    part = part if at.all() else np.where(at[:, None, :], part, np.inf)
    value = float(part.min())
    if not np.isfinite(value):
        return None
    least = np.unravel_index(int(part.argmin()), part.shape)  # points come in the order of placement, then depth
    sharding, slot, point = (int(axis[i]) for axis, i in zip(kept, least, strict=True))
    return Cell(table.tables, (sharding, slot, point), value)


def _matches(family: Family, field: str, value: Any) -> Any:
    """Where a field has a value: by point, sharding, both of these, or by slot of recomputation and depth."""
    if field in GRID:
        return family.points[field] == value
    if field in SHARDED:
        kinds = np.asarray([kind == value for kind, _ in family.shardings])
        return kinds if field == "sharding" else family.sharding_degrees == (value or 0)
    if field == "recompute":
        return np.asarray([policy == value for policy in family.policies])[:, None]
    if field == "recompute_num_layers":
        return np.asarray([[number == value for number in layers] for layers in family.layers]).T
    if field == "placement":
        return np.asarray([name == value for name in family.placements])[family.points["placement"]]
    if field not in family.switches:
        known = (*GRID, *POLICIES, "placement", *family.switches)
        raise UnknownNameError("field of the search", field, known, hint=f"one of {', '.join(known)}")
    return np.full(family.num_points, family.switches[field] == value)


def _best_of_each(
    tables: Sequence[Table], fields: tuple[str, ...], most: int
) -> Iterator[tuple[tuple[int, int, int, int], Cell]]:
    """The best cell for every combination of values of ``fields``, best first, ``most`` of them."""
    candidates = [_Candidates.of(table, fields) for table in tables]
    if not candidates:
        return
    value = np.concatenate([each.values for each in candidates])
    number = np.repeat(np.arange(len(tables)), [len(each.values) for each in candidates])
    first = np.cumsum([0, *(len(each.values) for each in candidates)])
    code, _ = coded(*np.concatenate([each.keys for each in candidates], axis=1))
    order = np.argsort(value, kind="stable")
    _, best = np.unique(code[order], return_index=True)
    for position in order[np.sort(best)[:most]].tolist():
        table = int(number[position])
        place = candidates[table].place(position - int(first[table]))
        yield (table, *place), Cell(tables[table].tables, place, float(value[position]))


def least_of_different(tables: Sequence[Table], most: int) -> list[float]:
    """Values of the best plans, no two with the same degrees, best first."""
    return [cell.value for _, cell in _best_of_each(tables, DEGREES, most)]


@dataclass(frozen=True, kw_only=True)
class _Candidates:
    """Cells of a table that can be the best of some combination of fields."""

    table: Table
    values: NDArray[np.float64]
    keys: NDArray[np.int64]
    """Values of the fields as numbers, a row for each field."""
    index: tuple[NDArray[np.intp], ...]
    """Sharding, slot and point; the point alone where the others make no difference."""

    @classmethod
    def of(cls, table: Table, fields: tuple[str, ...]) -> _Candidates:
        """Cells with a plan: all, or the best of every point where sharding and recomputation make no difference."""
        index: tuple[NDArray[np.intp], ...]
        by_plan = bool(set(fields) & set(POLICIES))
        if by_plan:
            index = np.nonzero(np.isfinite(table.best))
            values = table.best[index]
        else:
            index = (np.flatnonzero(np.isfinite(table.least)),)
            values = table.least[index]
        columns = [table.family.points[field][index[-1]] for field in fields if field in GRID]
        keys = np.stack([*columns, *(index[:2] if by_plan else ())]).astype(np.int64)
        return cls(table=table, values=values, keys=keys, index=index)

    def place(self, position: int) -> tuple[int, int, int]:
        """Sharding, slot and point of one of them."""
        *policy, point = (int(each[position]) for each in self.index)
        if not policy:
            of_point = self.table.best[:, :, point]
            policy = [int(each) for each in np.unravel_index(int(of_point.argmin()), of_point.shape)]
        return policy[0], policy[1], point

"""Every configuration that the search considers, for several numbers of accelerators at once.

A candidate is a point (degrees, micro-batch size, blocks) in a place (ranks of each degree inside a scale-up domain),
and the places of a point depend on its degrees only. Points and places are tables; a candidate is a pair of their rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from shardplan.base.arrays import Numbers, divisors
from shardplan.base.errors import InputError
from shardplan.base.fields import dataclass
from shardplan.methods.subramanian2024.inputs import Transformer
from shardplan.methods.subramanian2024.iteration import Configuration
from shardplan.methods.subramanian2024.strategies import Strategy

Ints = NDArray[np.int64]
Table = dict[str, Ints]

MAX_CANDIDATES = 20_000_000
"""Largest number of candidates; more would fill the memory of the machine that searches."""
SMALLEST_BLOCK = 512
"""Fewest channels in a block of SUMMA."""


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """The search space of a strategy on scale-up domains of one size."""

    strategy: Strategy
    model: Transformer
    global_batch_size: int
    sizes: tuple[int, ...]
    """Numbers of accelerators."""
    points: Table
    """``tp1``, ``tp2``, ``pp``, ``dp``, ``mbs``, ``nb``, ``doubling`` (nb is doubled so often), ``num_places``."""
    places: Table
    """``tp1``, ``tp2``, ``pp``, ``dp`` and their members in a scale-up domain ``t1``, ``t2``, ``t_pp``, ``t_dp``."""
    point_bounds: Ints
    """Index of the first point of each size, and the number of all points."""
    first_place: Ints
    """Index of the first place of each point."""

    @cached_property
    def bounds(self) -> Ints:
        """Index of the first candidate of each size, and the number of all candidates."""
        before = np.concatenate(([0], np.cumsum(self.points["num_places"])))
        bounds: Ints = before[self.point_bounds]
        return bounds

    @property
    def num_candidates(self) -> int:
        """Candidates of all sizes."""
        return int(self.bounds[-1])

    @cached_property
    def point(self) -> Ints:
        """Row of ``points`` of every candidate."""
        return np.repeat(np.arange(len(self.first_place)), self.points["num_places"])

    @cached_property
    def place(self) -> Ints:
        """Row of ``places`` of every candidate."""
        counts = self.points["num_places"]
        starts = np.cumsum(counts) - counts
        return np.arange(self.num_candidates) + np.repeat(self.first_place - starts, counts)

    @cached_property
    def grid(self) -> Grid:
        """The distinct divisions of a layer among the candidates."""
        return Grid.of(self)

    def configuration(self, index: int) -> Configuration:
        """The candidate at ``index``."""
        point = {name: int(column[self.point[index]]) for name, column in self.points.items()}
        place = {name: int(column[self.place[index]]) for name, column in self.places.items()}
        degrees = {name: point[name] for name in ("tp1", "tp2", "pp", "dp", "mbs", "nb")}
        inside = {f"nv_{name}": place[key] for name, key in _INSIDE.items()}
        return Configuration(**degrees, **inside)


_INSIDE = {"tp1": "t1", "tp2": "t2", "dp": "t_dp", "pp": "t_pp"}


@dataclass(frozen=True, kw_only=True)
class Grid:
    """What the cost of a layer depends on, each on its own axis: shape, blocks, members of tp1, of tp2.

    It holds some combinations that no candidate has; computing them costs less than finding the others.
    """

    m1: Ints
    m2: Ints
    b: NDArray[np.float64]
    blocks: Ints
    t1: Ints
    t2: Ints
    shape_of_point: Ints
    """Row of the first axis for every point."""
    shape_of_place: Ints
    """A row of the first axis with the tensor degrees of every place."""
    cell: Ints
    """Row of the flattened grid for every candidate."""

    @classmethod
    def of(cls, space: Candidates) -> Grid:
        """Distinct values of each axis, and where every candidate lies."""
        points, places = space.points, space.places
        shapes, shape = _distinct(points["tp1"], points["tp2"], points["mbs"])
        t1, t1_row = np.unique(places["t1"], return_inverse=True)
        t2, t2_row = np.unique(places["t2"], return_inverse=True)
        num_doublings = int(points["doubling"].max(initial=0)) + 1
        m1, m2, b = (column.reshape(-1, 1, 1, 1) for column in shapes)
        doublings = np.arange(num_doublings).reshape(1, -1, 1, 1)
        point_part = (shape * num_doublings + points["doubling"]) * (len(t1) * len(t2))
        place_part = t1_row * len(t2) + t2_row
        width = int(shapes[1].max(initial=0)) + 1  # shapes are sorted by their degrees
        return cls(
            m1=m1,
            m2=m2,
            b=b.astype(np.float64),
            blocks=np.maximum(m1, m2) << doublings,
            t1=t1.reshape(1, 1, -1, 1),
            t2=t2.reshape(1, 1, 1, -1),
            shape_of_point=shape,
            shape_of_place=np.searchsorted(shapes[0] * width + shapes[1], places["tp1"] * width + places["tp2"]),
            cell=point_part[space.point] + place_part[space.place],
        )

    @property
    def size(self) -> tuple[int, int, int, int]:
        """Lengths of the axes."""
        return len(self.m1), self.blocks.shape[1], self.t1.size, self.t2.size

    def by_shape(self, values: Numbers) -> NDArray[np.float64]:
        """Values that vary over the first axis only, as a flat array."""
        return np.broadcast_to(values, (len(self.m1), 1, 1, 1)).ravel()

    def by_cell(self, values: Numbers) -> NDArray[np.float64]:
        """Values that may vary over all axes, as a flat array."""
        return np.broadcast_to(values, self.size).ravel()


def candidates_of(
    strategy: Strategy, model: Transformer, *, sizes: Sequence[int], nvlink_size: int, global_batch_size: int
) -> Candidates:
    """All candidates for each of ``sizes`` accelerators in scale-up domains of ``nvlink_size``."""
    points, places, first_place, offset = list[Table](), list[Table](), list[Ints](), 0
    num_candidates = 0
    for size in sizes:
        degrees = _degrees(strategy, model, size, global_batch_size)
        point, row = _points(strategy, model, degrees, global_batch_size)
        used, of_degrees = np.unique(row, return_inverse=True)  # some degrees admit no micro-batch
        degrees = {name: column[used] for name, column in degrees.items()}
        place, num_places = _places(degrees, size, nvlink_size, has_second=strategy.has_second_degree)
        points.append({**point, "num_places": num_places[of_degrees]})
        first_place.append((offset + np.cumsum(num_places) - num_places)[of_degrees])
        places.append(place)
        offset += len(place["dp"])
        num_candidates += int(points[-1]["num_places"].sum())
        _check_number(num_candidates)
    ends = np.cumsum([0, *(len(rows) for rows in first_place)])
    return Candidates(
        strategy=strategy,
        model=model,
        global_batch_size=global_batch_size,
        sizes=tuple(sizes),
        points=_joined(points),
        places=_joined(places),
        point_bounds=ends,
        first_place=np.concatenate(first_place),
    )


def places_of(chosen: Configuration, nvlink_size: int) -> list[Configuration]:
    """The configuration in every place: scale-up domains filled exactly, or everything inside one."""
    degrees = (chosen.tp1, chosen.tp2, chosen.dp, chosen.pp)
    ways = [degrees] if chosen.num_gpus <= nvlink_size else _factorisations(nvlink_size, has_second=True).tolist()
    names = ("nv_tp1", "nv_tp2", "nv_dp", "nv_pp")
    return [
        replace(chosen, **dict(zip(names, way, strict=True)))
        for way in ways
        if all(degree % members == 0 for degree, members in zip(degrees, way, strict=True))
    ]


def _degrees(strategy: Strategy, model: Transformer, size: int, global_batch_size: int) -> Table:
    """Tensor, pipeline and data-parallel degrees that fill ``size`` accelerators.

    The depth divides both the layers and what is left of the accelerators, or all layers if these are fewer.
    """
    each = np.asarray(divisors(size))
    m1, m2 = each[:, None], (each if strategy.has_second_degree else each[:1])[None, :]
    rows = np.nonzero((size % (m1 * m2) == 0) & strategy.divides(model, m1, m2))
    tp1, tp2, depths = each[rows[0]], each[rows[1]], np.asarray(divisors(model.depth))
    _check_number(len(tp1) * len(depths))
    left, pp = (size // (tp1 * tp2))[:, None], depths[None, :]
    stages = (np.minimum(left, model.depth) % pp == 0) & (left % pp == 0)
    dp = np.maximum(left // pp, 1)
    row, depth = np.nonzero(stages & (global_batch_size % dp == 0))
    return {"tp1": tp1[row], "tp2": tp2[row], "pp": depths[depth], "dp": dp[row, depth]}


def _points(strategy: Strategy, model: Transformer, degrees: Table, global_batch_size: int) -> tuple[Table, Ints]:
    """Degrees with each micro-batch size and number of blocks, and the row of degrees that each has."""
    m1, m2 = degrees["tp1"][:, None], degrees["tp2"][:, None]
    mbs = np.asarray(divisors(global_batch_size))[None, :]
    per_replica = global_batch_size // degrees["dp"][:, None]
    _check_number(len(per_replica) * mbs.size)
    whole = (mbs * model.l) % strategy.sequence_divisor(m1, m2) == 0
    row, size = np.nonzero((per_replica % mbs == 0) & whole)
    allowed = _doublings(strategy, model, np.maximum(m1, m2))
    _check_number(len(row) * allowed.shape[1])
    pair, doubling = np.nonzero(allowed[row])
    row, size = row[pair], size[pair]
    chosen = {name: column[row] for name, column in degrees.items()}
    least = np.maximum(chosen["tp1"], chosen["tp2"]) if strategy.has_blocks else np.ones_like(row)
    return {**chosen, "mbs": mbs[0, size], "nb": least << doubling, "doubling": doubling}, row


def _doublings(strategy: Strategy, model: Transformer, least: Ints) -> NDArray[np.bool_]:
    """How often the least number of blocks may be doubled: whole blocks of the embedding, none too small.

    One column for every doubling; a width too small for two blocks of that size is divided into the least number only.
    """
    if not strategy.has_blocks:
        return np.ones((len(least), 1), dtype=np.bool_)
    e = model.e
    doubling = np.arange(max(e.bit_length(), 1))[None, :]
    blocks = least << doubling
    counted = doubling < np.ceil(np.log2(np.maximum(e // least, 1)))
    is_whole = (e % blocks == 0) & (e // blocks >= SMALLEST_BLOCK)
    allowed = np.where(e / least < SMALLEST_BLOCK, doubling == 0, counted & is_whole)
    return allowed[:, : int(np.flatnonzero(allowed.any(axis=0)).max(initial=0)) + 1]


def _places(degrees: Table, size: int, nvlink_size: int, *, has_second: bool) -> tuple[Table, Ints]:
    """Members of every degree inside a scale-up domain, which they fill, and the number of places by degrees."""
    names = ("tp1", "tp2", "dp", "pp")
    columns = np.stack([degrees[name] for name in names], axis=1)
    if size <= nvlink_size:
        inside, row = columns, np.arange(len(columns))
    else:
        ways = _factorisations(nvlink_size, has_second=has_second)
        _check_number(len(columns) * len(ways))
        divide = np.ones((len(columns), len(ways)), dtype=np.bool_)
        for degree, members in zip(columns.T, ways.T, strict=True):
            divide &= degree[:, None] % members[None, :] == 0
        row, way = np.nonzero(divide)
        inside = ways[way]
    members = dict(zip(("t1", "t2", "t_dp", "t_pp"), inside.T, strict=True))
    chosen = {name: degrees[name][row] for name in names}
    return {**chosen, **members}, np.bincount(row, minlength=len(columns))


def _factorisations(number: int, *, has_second: bool) -> Ints:
    """All ordered ways to write ``number`` as a product of four factors (of three, if there is one tensor degree)."""
    each = np.asarray(divisors(number))
    _check_number(len(each) ** 2 * (len(each) if has_second else 1))
    first, second, third = np.meshgrid(each, each if has_second else each[:1], each, indexing="ij")
    product = (first * second * third).ravel()
    fits = number % product == 0
    factors = np.stack([first.ravel(), second.ravel(), third.ravel(), number // product], axis=1)
    return factors[fits]


def _check_number(count: int) -> None:
    if count > MAX_CANDIDATES:
        raise InputError(
            f"{count:,} combinations of degrees, micro-batches and places to consider",
            rule=f"a search considers at most {MAX_CANDIDATES:,}",
            hint="ask for fewer accelerators, a smaller batch, or numbers with fewer divisors",
        )


def _distinct(*columns: Ints) -> tuple[tuple[Ints, ...], Ints]:
    """Distinct rows of the columns, and for every row its index among these."""
    key = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        key = key * (int(column.max(initial=0)) + 1) + column
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    return tuple(column[first] for column in columns), inverse


def _joined(tables: Sequence[Table]) -> Table:
    return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}

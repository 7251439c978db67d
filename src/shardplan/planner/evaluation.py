"""All plans of a family evaluated, and plans that have been picked out: the estimate's own formulas, run over columns.

A step has a part that sharding does not change (its work) and one that recomputation hardly changes (its states). Each
is looked up for the plans that differ in it (``planner.pricing.tables``); both meet in the step of every plan, piece by
piece (``planner.pricing.pieces``). Plans that have been picked out are priced as columns of one length.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardplan.base.arrays import Numbers, coded, different, distinct, first_of, gather, mapped
from shardplan.base.fields import dataclass, replace
from shardplan.estimation.layout import whole_model
from shardplan.estimation.load import Around, BlockLoad, Loads, StateLoad
from shardplan.estimation.pricing import num_logits, output_bytes, price_blocks, price_handover, price_states
from shardplan.estimation.question import Question
from shardplan.estimation.step import Step, step_of_loads, whole_step
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.physics.workload.stage import Stage
from shardplan.planner.family import Family
from shardplan.planner.pricing.cutting import CELLS, pieces_of
from shardplan.planner.pricing.pairs import Pairs, kinds_together
from shardplan.planner.pricing.pieces import FASTEST, Objective, PointGroup, TablePiece
from shardplan.planner.pricing.tables import Tables
from shardplan.planner.stopping import Stop, check


@dataclass(frozen=True, kw_only=True)
class Table:
    """Best value of the objective over the chunks per rank: by sharding, recomputation and point."""

    tables: Tables
    best: NDArray[np.float64]
    num_evaluated: int
    """Plans that were priced."""
    num_feasible: int
    """Those of them that fit."""
    known: dict[Hashable, Any] = field(default_factory=dict, repr=False, compare=False)
    """What has been found in it."""

    @cached_property
    def least(self) -> NDArray[np.float64]:
        """The best value of every point."""
        return self.best.min(axis=(0, 1))

    @property
    def num_pruned(self) -> int:
        """Valid plans that were left out, because a bound shows that they are too slow to be asked for."""
        return self.family.whole.num_plans() - self.num_evaluated if self.family.counts else 0

    @property
    def family(self) -> Family:
        """The plans that were evaluated."""
        return self.tables.family


def evaluated(tables: Tables, objective: Objective, stop: Stop | None = None, *, most_bytes: float = np.inf) -> Table:
    """Evaluates every valid plan of a family; what it is made of may be priced already.

    Plans whose states alone take more than ``most_bytes``, or than there is where plans have to fit, may be left out.
    Raises ``SearchStopped`` where ``stop`` says so.
    """
    question, family = tables.question, tables.family
    best = np.full((len(family.shardings), len(family.policies), family.num_points), np.inf)
    num_feasible = 0
    for at, pieces in pieces_of(tables, min(most_bytes, objective.most_bytes(question))):
        num_feasible += _fill(at, pieces, objective, best, stop)
    return Table(
        tables=tables,
        best=objective.finished(question, best),
        num_evaluated=family.num_plans(),
        num_feasible=num_feasible,
    )


def _fill(
    at: PointGroup, pieces: Iterator[TablePiece], objective: Objective, best: NDArray[np.float64], stop: Stop | None
) -> int:
    """Writes the best values of some points over the chunks per rank. Returns how many of their plans fit."""
    num_feasible = 0
    least: dict[int, Numbers] = {}
    for piece in pieces:
        check(stop)
        num_feasible += piece.num_feasible
        for outcome in piece.outcomes():
            value, known = outcome.valued(objective), least.get(outcome.sharding)
            least[outcome.sharding] = value if known is None else np.minimum(known, value)
    for sharding, values in least.items():
        _lower(best[sharding], at, values)
    return num_feasible


def _lower(best: NDArray[np.float64], at: PointGroup, values: Numbers) -> None:
    """Puts the smaller of what is in ``best``, by slot and point of the family, and the values of some points there."""
    whole = np.broadcast_to(values, (len(at.slots), len(at.points)))
    if len(at.starts) < len(at.points):
        whole = np.minimum.reduceat(whole, at.starts, axis=1)
    points = at.points[at.starts]
    for slot, found in zip(at.slots.tolist(), whole, strict=True):  # in half the time of all slots at once
        row = best[slot]
        row[points] = np.minimum(row.take(points), found)


Index = NDArray[np.intp]


@dataclass(frozen=True, kw_only=True)
class Listed:
    """Positions of plans in a family: columns of one length."""

    shardings: NDArray[np.intp]
    slots: NDArray[np.intp]
    layouts: NDArray[np.intp]
    points: NDArray[np.intp]

    def __len__(self) -> int:
        return len(self.points)

    def plan(self, tables: Tables, index: int) -> Plan:
        """The plan at a position of the list."""
        return tables.plan(self.shardings[index], self.slots[index], self.layouts[index], self.points[index])

    def at(self, index: NDArray[np.intp]) -> Listed:
        """Those at these positions of the list."""
        return Listed(
            shardings=self.shardings[index],
            slots=self.slots[index],
            layouts=self.layouts[index],
            points=self.points[index],
        )


def listed_of(table: Table, cells: NDArray[np.bool_]) -> Listed:
    """The plans of some cells of a table, over the chunks per rank."""
    plans, _ = with_chunks(table.tables, *np.nonzero(cells))
    return plans


def best_plans(
    tables: Tables, cells: Sequence[tuple[int, int, int]], objective: Objective = FASTEST
) -> list[tuple[Plan, float]]:
    """The best plan over the chunks per rank at each sharding, slot of recomputation and point. With its value."""
    plans, cell = with_chunks(tables, *np.asarray(cells, dtype=np.intp).T)
    found = outcomes(tables.question, tables, plans)
    values = objective.finished(tables.question, np.broadcast_to(objective.value(found), (len(plans),)))
    best = [min(np.flatnonzero(cell == number).tolist(), key=values.__getitem__) for number in range(len(cells))]
    return [(plans.plan(tables, index), float(values[index])) for index in best]


def with_chunks(
    tables: Tables, shardings: NDArray[np.intp], slots: NDArray[np.intp], points: NDArray[np.intp]
) -> tuple[Listed, NDArray[np.intp]]:
    """The plans of listed cells over the chunks per rank, and the cell of each."""
    family = tables.family
    counts = family.num_chunks()[points]
    cell = np.repeat(np.arange(len(points)), counts)
    chunk = np.arange(len(cell)) - np.repeat(np.cumsum(counts) - counts, counts)
    layouts = family.first_layouts()[points[cell]] + chunk
    if family.together is not None:
        kept = family.together[slots[cell], layouts]
        cell, layouts = cell[kept], layouts[kept]
    return Listed(shardings=shardings[cell], slots=slots[cell], layouts=layouts, points=points[cell]), cell


def pairs_in(tables: Tables, cells: NDArray[np.bool_]) -> Pairs:
    """All plans of some cells but for their sharding, on the first of the systems; by slot of recomputation and point.

    Cells are of plans that are valid.
    """
    slots, points = np.nonzero(cells)
    plans, _ = with_chunks(tables, np.zeros_like(slots), slots, points)
    return Pairs(plans.shardings, plans.slots, plans.layouts, plans.points)


@dataclass(frozen=True, kw_only=True)
class Outcomes:
    """Of listed plans, in their order."""

    question: Question
    busiest: NDArray[np.float64]
    """What the slowest stage takes, but for what all plans have in common. [s]"""
    peak_memory_bytes: NDArray[np.float64]
    fits: NDArray[np.bool_]

    @property
    def step_time(self) -> NDArray[np.float64]:
        """One optimizer step. [s]"""
        return np.asarray(whole_step(self.question, self.busiest))


def outcomes(question: Question, tables: Tables, plans: Listed) -> Outcomes:
    """Outcome of listed plans in their order, under the constants of ``question``: arrays of these have axes before."""
    question = question.running(tables.family.switches)
    parts = [*_priced(question, tables, plans)]
    return Outcomes(
        question=question,
        busiest=_together([(index, step.busiest) for index, step in parts], len(plans)),
        peak_memory_bytes=_together([(index, step.peak_memory_bytes) for index, step in parts], len(plans)),
        fits=_together([(index, step.fits) for index, step in parts], len(plans)),
    )


def times_of(question: Question, tables: Tables, plans: Listed, systems: Index) -> NDArray[np.float64]:
    """Step times of listed plans in their order, each on one of the systems of ``question``, fitting or not. [s]"""
    question = question.running(tables.family.switches)
    parts = [(index, step.busiest) for index, step in _priced(question, tables, plans, systems)]
    return np.asarray(whole_step(question, _together(parts, len(plans))))


def _priced(
    question: Question, tables: Tables, plans: Listed, systems: Index | None = None
) -> Iterator[tuple[Index, Step]]:
    """Outcome of listed plans in pieces, and their positions."""
    for start in range(0, len(plans), CELLS // 4):
        index = np.arange(start, min(start + CELLS // 4, len(plans)))
        on_systems = None if systems is None else systems[index]
        for chosen, step in _of_piece(question, tables, plans.at(index), on_systems):
            yield index[chosen], step


def _of_piece(question: Question, tables: Tables, here: Listed, systems: Index | None) -> Iterator[tuple[Index, Step]]:
    """Outcome of plans: those with as many kinds of stage together, or with some more."""
    columns = _columns(question, tables, here, systems)
    num_kinds = kinds_together(tables.layouts.num_kinds[here.layouts])
    for number in different(num_kinds):
        chosen = np.flatnonzero(num_kinds == number)
        some = columns if len(chosen) == len(here) else gather(columns, chosen)
        yield chosen, _step(_on_systems(question, systems, chosen), tables, here.at(chosen), some)


Columns = tuple[PlanNumbers, Loads, Around]
"""Plans in numbers, and what their prices put on a rank."""


def _columns(question: Question, tables: Tables, plans: Listed, systems: Index | None) -> Columns:
    """Prices of plans, those that differ in chunks per rank alone priced once."""
    own = () if systems is None else (systems,)
    _, cell = distinct(*coded(plans.points, plans.slots, plans.shardings, *own))
    first = first_of(cell, int(cell.max()) + 1)
    loads, around = _prices(_on_systems(question, systems, first), tables, plans.at(first))
    return _numbers(tables, plans), gather(loads, cell), gather(around, cell)


def _on_systems(question: Question, systems: Index | None, index: Index) -> Question:
    """The question with the rates of the system of each plan at some positions."""
    if systems is None:
        return question
    own, network = systems[index], question.network
    rates, machine = mapped((network.rates, question.given_rates), lambda array: array.ravel()[own])
    return replace(question, given_network=replace(network, rates=rates), given_rates=machine)


def _prices(question: Question, tables: Tables, plans: Listed) -> tuple[Loads, Around]:
    """Prices of plans, on the groups of their degrees and placements."""
    key, numbers = tables.layout_keys[1][plans.points], _numbers(tables, plans)

    def under_own(array: NDArray[Any]) -> NDArray[Any]:
        kinds = plans.shardings if array.ndim > 1 and len(array) > 1 else 0
        return array[..., key] if array.ndim < 2 else array[kinds, key if array.shape[1] > 1 else 0]

    groups, sharding = gather(tables.groups, key), mapped(tables.sharding_groups, under_own)
    around = Around(
        handover_time=price_handover(question, numbers, groups).time,
        output_bytes=output_bytes(question, numbers),
        logits=num_logits(question, numbers),
    )
    blocks = price_blocks(question, numbers, groups).map(BlockLoad.of)
    states = price_states(question, numbers, groups["pp"], sharding).map(StateLoad.of)
    return Loads(blocks=blocks, states=states), around


def _step(question: Question, tables: Tables, plans: Listed, columns: Columns) -> Step:
    """Outcome of plans; those with fewer kinds of stage than others have the last of them again."""
    layouts, (numbers, loads, around) = tables.layouts, columns
    last = layouts.num_kinds[plans.layouts] - 1
    kinds = [_stage(tables, plans, np.minimum(kind, last)) for kind in range(int(last.max()) + 1)]
    rounds = [[layouts.chunk(chunks) for chunks in group] for group in layouts.groups(plans.layouts)]
    return step_of_loads(question, numbers, loads, kinds, whole_model(question.model), around=around, rounds=rounds)


def _stage(tables: Tables, plans: Listed, kind: Index) -> Stage:
    stage = tables.layouts.stage(plans.layouts, kind)
    composed = tables.layouts.composed(tables.layouts.composition[plans.layouts, kind])
    return replace(stage, counts=composed.counts)


def _numbers(tables: Tables, plans: Listed) -> PlanNumbers:
    """Listed plans in numbers: every field a column."""
    family = tables.family
    slots = np.arange(len(family.policies))
    numbers = tables.numbers.with_chunks(tables.numbers.at(plans.points, slots), tables.layouts.vp[plans.layouts])
    kinds = np.asarray([kind for kind, _ in family.shardings])[plans.shardings]
    degrees = family.sharding_degrees[plans.shardings, plans.points]
    policies = mapped(tables.numbers.policies, lambda flags: flags[plans.slots])
    layers = _of_slots(numbers.recompute_num_layers, plans)
    return tables.numbers.sharded(replace(numbers, **policies, recompute_num_layers=layers), kinds, degrees)


def _of_slots(values: Numbers, plans: Listed) -> Numbers:
    """Values by slot and point, or one for all, of listed plans."""
    if not isinstance(values, np.ndarray):
        return values
    shape = len(values), len(plans)
    return np.broadcast_to(values, shape)[plans.slots, np.arange(len(plans))]


def _together(parts: list[tuple[NDArray[np.intp], Numbers]], length: int) -> Any:
    """Values of parts of a list in its order."""
    values = [(index, np.asarray(value)) for index, value in parts]
    front = np.broadcast_shapes(*(value.shape[:-1] for _, value in values))
    whole = np.empty((*front, length), dtype=values[0][1].dtype)
    for index, value in values:
        whole[..., index] = value
    return whole


TRIES = 6
"""Positions that are drawn for each plan that is wanted: many are not valid together."""


@dataclass(frozen=True, kw_only=True)
class PlanSample:
    """Valid plans drawn at random, each as likely as another of its family's points, and numbers of each."""

    parts: tuple[tuple[Tables, Listed], ...]
    step_time: NDArray[np.float64]
    """[s]"""
    peak_memory_bytes: NDArray[np.float64]
    fits: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.step_time)

    @cached_property
    def ends(self) -> NDArray[np.intp]:
        """Where every family's plans end."""
        return np.cumsum([len(plans) for _, plans in self.parts])

    def plan(self, index: int) -> Plan:
        """The plan at ``index``."""
        number = int(np.searchsorted(self.ends, index, side="right"))
        tables, plans = self.parts[number]
        return plans.plan(tables, index - (int(self.ends[number - 1]) if number else 0))


def sample_of(question: Question, tables: Sequence[Table], most: int, seed: int = 0) -> PlanSample:
    """About ``most`` plans of ``tables``, the same ones for the same seed."""
    random = np.random.default_rng(seed)
    sizes = [table.family.num_plans() for table in tables]
    shares = [most * size / max(sum(sizes), 1) for size in sizes]
    drawn = [(table.tables, _drawn(table, share, random)) for table, share in zip(tables, shares, strict=True)]
    parts = [(held, plans) for held, plans in drawn if len(plans)]
    found = [outcomes(question, held, plans) for held, plans in parts]
    return PlanSample(
        parts=tuple(parts),
        step_time=_joined([np.broadcast_to(each.step_time, each.fits.shape) for each in found]),
        peak_memory_bytes=_joined([np.broadcast_to(each.peak_memory_bytes, each.fits.shape) for each in found]),
        fits=_joined([each.fits.astype(float) for each in found]).astype(bool),
    )


def _joined(columns: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    return np.concatenate(columns) if columns else np.empty(0)


def _drawn(table: Table, most: float, random: np.random.Generator) -> Listed:
    """About ``most`` valid plans of a table, none twice."""
    family, number = table.family, int(np.ceil(most))
    counts, first = family.num_chunks(), family.first_layouts()
    tries = TRIES * number
    points = random.integers(family.num_points, size=tries)
    shardings = random.integers(len(family.shardings), size=tries)
    slots = random.integers(len(family.policies), size=tries)
    chunks = (random.random(tries) * counts[points]).astype(np.intp)
    layouts = first[points] + chunks
    valid = family.shards[shardings, points] & family.recomputes[slots, points] & (counts[points] > 0)
    if family.together is not None:
        valid &= family.together[slots, np.where(valid, layouts, 0)]
    rows = np.stack([shardings, slots, layouts, points])[:, valid]
    different = rows[:, np.sort(np.unique(rows, axis=1, return_index=True)[1])][:, :number]
    return Listed(shardings=different[0], slots=different[1], layouts=different[2], points=different[3])

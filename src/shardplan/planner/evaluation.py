"""All plans of a family priced at once: the estimate's own formulas, run over columns.

Four things are priced once each, on the plans that differ in what they name: blocks (degrees, micro-batch, place of the
groups) by recomputation; states (degrees, depth, placement) by sharding; what a stage holds of both (its composition);
and last the step of every plan: its layout (point and chunks per rank) by recomputation and sharding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardplan.arrays import Numbers, all_hold, coded, concatenated, distinct, gather, mapped, without_zeros
from shardplan.costs.collectives import Group, groups_of, joined_groups
from shardplan.estimation.layout import whole_model
from shardplan.estimation.load import BlockLoad, StageStates, StageWork, StateLoad
from shardplan.estimation.pricing import num_logits, output_bytes, price_blocks, price_handover, price_states
from shardplan.estimation.question import Question
from shardplan.estimation.step import (
    ActivationMemory,
    Around,
    StateCharge,
    Step,
    WorkTimes,
    activation_memory,
    host_holds,
    pace_of,
    paced,
    peak_of,
    pipeline_sum,
    state_charge,
    state_times,
    whole_step,
    work_times,
)
from shardplan.inputs.batch import Batch
from shardplan.inputs.plan import OP_SAC, RECOMPUTE_MODULES, Plan, recompute_modules
from shardplan.planner.layouts import KnownPipelines, Layouts
from shardplan.planner.points import Family
from shardplan.planner.space import GRID
from shardplan.planner.stopping import Stop, check
from shardplan.workload.parts import Parts
from shardplan.workload.stage import Stage

CELLS = 32_768
"""Plans of one sharding per piece of work: arrays of this length stay in the second-level cache."""
GROUPS = ("tp", "tp_rows", "cp", "ep", "etp")
"""Groups on which the price of a block depends."""

Objective = Callable[[Step], Any]


def fastest(step: Step) -> Any:
    """Step time of the plans that fit. [s]"""
    return step.step_time if np.all(step.fits) else np.where(step.fits, step.step_time, np.inf)


def smallest(step: Step) -> Any:
    """Peak memory, whether it fits or not. [bytes]"""
    return step.peak_memory_bytes


@dataclass(frozen=True, kw_only=True)
class Table:
    """Best value of the objective over the chunks per rank: by sharding, recomputation and point."""

    tables: Tables
    best: NDArray[np.float64]
    num_evaluated: int
    num_feasible: int

    @property
    def family(self) -> Family:
        """The plans that were evaluated."""
        return self.tables.family


@dataclass(frozen=True, kw_only=True, slots=True)
class _Piece:
    """Plans that are worked on together."""

    points: NDArray[np.intp]
    layouts: NDArray[np.intp]
    num_kinds: int
    shardings: NDArray[np.intp]
    slots: NDArray[np.intp]


@dataclass(frozen=True, kw_only=True)
class Tables:
    """What the plans of a family are made of, priced once."""

    question: Question
    family: Family
    known: KnownPipelines

    @cached_property
    def layouts(self) -> Layouts:
        """Pipelines of every depth and number of chunks."""
        return Layouts.of(self.question, self.family, self.known)

    @cached_property
    def dp(self) -> NDArray[np.float64]:
        """Data-parallel degree of every point."""
        points = self.family.points
        return np.asarray(self.question.num_accelerators // (points["tp"] * points["cp"] * points["pp"]), dtype=float)

    @cached_property
    def num_microbatches(self) -> NDArray[np.float64]:
        """Micro-batches of a replica at every point."""
        return self.question.job.global_batch_size // (self.dp * self.family.points["micro_batch_size"])

    @cached_property
    def _layout_keys(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Points, one for each set of degrees and placement; and for every point which of these it has."""
        codes = self.family.points["layout"]
        values, key = distinct(codes, int(codes.max()) + 1)
        return _first_of(key, len(values)), key

    @cached_property
    def _groups(self) -> dict[str, Group]:
        """Groups of every set of degrees and placement."""
        batches = [*self._by_placement(self._layout_keys[0])]
        groups = [groups_of(batch, self.question.network) for batch, _ in batches]
        lengths = [len(points) for _, points in batches]
        return {name: joined_groups([each[name] for each in groups], lengths) for name in groups[0]}

    @cached_property
    def _block_keys(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Points, one for each block that is priced; and for every point which of these it has."""
        first, key = self._layout_keys
        points = self.family.points
        columns: list[Any] = [points[name][first] for name in GROUPS]
        for group in (self._groups[name] for name in GROUPS):
            columns += [*group.members[:-1], *group.largest[:-1], *group.domains[:-1]]
        code, limit = coded(*(np.broadcast_to(column, first.shape) for column in columns))
        values, code = distinct(code, limit)
        sizes = int(points["position"].max()) + 1
        codes = code[key] * sizes + points["position"]
        blocks, block = distinct(codes, len(values) * sizes)
        return _first_of(block, len(blocks)), block

    @cached_property
    def _blocks(self) -> Parts[BlockLoad]:
        first, _ = self._block_keys
        groups = gather({name: self._groups[name] for name in GROUPS}, self._layout_keys[1][first])
        batch = self._batch(first, np.arange(len(self.family.policies)))
        return price_blocks(self.question, batch, groups).map(BlockLoad.of)

    @cached_property
    def around(self) -> Around:
        """What the stages of a plan have in common, for every point."""
        first, block = self._block_keys
        batch = self._batch(first, None)
        handover = []
        for part, points in self._by_placement(np.arange(self.family.num_points)):
            groups = gather({name: self._groups[name] for name in ("pp", "tp")}, self._layout_keys[1][points])
            handover.append(np.broadcast_to(price_handover(self.question, part, groups).time, points.shape))
        return Around(
            handover_time=np.concatenate(handover),
            output_bytes=gather(_row(output_bytes(self.question, batch), first), block),
            logits=gather(_row(num_logits(self.question, batch), first), block),
        )

    @cached_property
    def _work(self) -> tuple[StageWork, NDArray[np.intp]]:
        """Work of every composition on every block where a plan has both; where it lies, by composition and block."""
        first, block = self._block_keys
        layouts = self.layouts
        by_layout = [set(row[:n]) for row, n in zip(layouts.composition, layouts.num_kinds, strict=True)]
        rows, position = self._pairs(by_layout, layouts.compositions.shape[1], block, len(first))
        length = max(CELLS // len(self.family.policies), 1)
        pieces = [rows[start : start + length] for start in range(0, len(rows), length)]
        works = [
            StageWork.of(layouts.composed(part // len(first)), gather(self._blocks, part % len(first)))
            for part in pieces
        ]
        return concatenated(works, [len(part) for part in pieces]), position

    @cached_property
    def whole(self) -> tuple[Stage, StageWork]:
        """All stages together, on every block."""
        stage = whole_model(self.question.model)
        return stage, StageWork.of(stage, self._blocks)

    @cached_property
    def charges(self) -> tuple[StateCharge, ...]:
        """What states cost, for every sharding, by composition and set of degrees where a plan has both."""
        return tuple(self._charge(sharding) for sharding in range(len(self.family.shardings)))

    @cached_property
    def _chunk_times(self) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
        """Seconds of every chunk on every block where a plan has both; where they lie, by chunk and block."""
        first, block = self._block_keys
        layouts = self.layouts
        by_layout = [{0, *row.ravel()} for row in layouts.rounds]
        rows, position = self._pairs(by_layout, layouts.chunks.shape[1], block, len(first))
        both = self._blocks.map(lambda part: _row(part.forward + part.backward, first))
        times = both.total(layouts.chunk(rows // len(first)), lambda time: gather(time, rows % len(first)))
        return _row(times, rows), position

    @cached_property
    def _state_rows(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        first, key = self._layout_keys
        layouts = self.layouts
        by_layout = [set(row[:n]) for row, n in zip(layouts.composition, layouts.num_kinds, strict=True)]
        return self._pairs(by_layout, layouts.compositions.shape[1], key, len(first))

    def _charge(self, sharding: int) -> StateCharge:
        first, _ = self._layout_keys
        rows, _ = self._state_rows
        parts, lengths = [], []
        for batch, points in self._by_placement(first, sharding):
            pipeline = gather(self._groups["pp"], self._layout_keys[1][points])
            parts.append(price_states(self.question, batch, pipeline).map(StateLoad.of))
            lengths.append(len(points))
        states = concatenated(parts, lengths)
        batch = self._batch(first[rows % len(first)], None, sharding)
        stage = self.layouts.composed(rows // len(first))
        held = StageStates.of(stage, gather(states, rows % len(first)))
        return without_zeros(state_charge(self.question, batch, stage, held))

    def _pairs(
        self, by_layout: list[set[Any]], num_compositions: int, key: NDArray[np.intp], num_keys: int
    ) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Compositions and keys that a plan has together, as numbers composition x keys + key; where each lies."""
        present = np.zeros((num_compositions, num_keys), dtype=bool)
        ends = [*self.layouts.first[1:], len(self.layouts.vp)]
        for depth, (start, end) in enumerate(zip(self.layouts.first, ends, strict=True)):
            used = np.asarray(sorted(set().union(*by_layout[start:end])), dtype=np.intp)
            keys, _ = distinct(key[self.family.points["depth"] == depth], num_keys)
            present[np.ix_(used, keys)] = True
        rows = np.flatnonzero(present)
        position = np.zeros(present.size, dtype=np.intp)
        position[rows] = np.arange(len(rows))
        return rows, position

    def _by_placement(
        self, points: NDArray[np.intp], sharding: int | None = None
    ) -> Iterator[tuple[Batch, NDArray[np.intp]]]:
        """Listed points (sorted by placement) in numbers, one batch for each placement."""
        placements = self.family.points["placement"][points]
        for number, placement in enumerate(self.family.placements):
            part = points[placements == number]
            if len(part):
                yield replace(self._batch(part, None, sharding), placement=placement), part

    def _batch(
        self,
        points: NDArray[np.intp],
        slots: NDArray[np.intp] | None,
        sharding: int | None = None,
        layouts: NDArray[np.intp] | None = None,
    ) -> Batch:
        """Listed points in numbers; recomputation by slot, on an axis of its own."""
        columns = {name: self.family.points[name][points].astype(np.float64) for name in GRID}
        fields: dict[str, Any] = dict(columns)
        fields["dp"] = self.dp[points]
        fields["edp"] = self.question.num_accelerators // (columns["pp"] * columns["ep"] * columns["etp"])
        fields["num_microbatches"] = self.num_microbatches[points]
        fields["microbatch_group_size"] = self._one.microbatch_group_size if self._has_group else columns["pp"]
        if sharding is not None:
            fields |= _sharding_fields(self.family.shardings[sharding], fields["dp"] * columns["cp"])
        if slots is not None:
            fields |= self._recompute_fields(points, slots)
        if layouts is not None:
            fields["vp"] = vp = self.layouts.vp[layouts]
            if self.family.switches.get("overlap_pp") is None:
                several = vp > 1
                fields["overlap_pp"] = bool(several[0]) if np.all(several == several[0]) else several
        return replace(self._one, **fields)

    @cached_property
    def _one(self) -> Batch:
        """Any plan of the family in numbers, for the switches, which are the same in all."""
        plan = self.family.plan(0, 0, self.family.vps[int(self.family.points["depth"][0])][0], 0)
        plan = replace(plan, recompute="none", recompute_num_layers=None)
        return Batch.of(plan, self.question.num_accelerators, self.question.job)

    @property
    def _has_group(self) -> bool:
        return self.family.switches.get("microbatch_group_size") is not None

    def _recompute_fields(self, points: NDArray[np.intp], slots: NDArray[np.intp]) -> dict[str, Any]:
        policies = [self.family.policies[slot] for slot in slots]
        modules = [recompute_modules(policy) for policy in policies]
        return {
            "recompute": {
                name: np.asarray([name in listed for listed in modules])[:, None]
                for name in (*RECOMPUTE_MODULES, OP_SAC)
            },
            "recompute_full": np.asarray([policy == "full" for policy in policies])[:, None],
            "recompute_num_layers": self._num_layers[:, slots].T[:, self.family.points["depth"][points]],
        }

    @cached_property
    def _num_layers(self) -> NDArray[np.float64]:
        """Layers to which recomputation applies, by depth and slot."""
        return np.asarray([[np.inf if n is None else n for n in layers] for layers in self.family.layers])

    def work_at(self, compositions: NDArray[np.intp], points: NDArray[np.intp], slots: NDArray[np.intp]) -> StageWork:
        """Work of stages of these compositions at these points."""
        first, block = self._block_keys
        work, position = self._work
        return _slotted(gather(work, position[compositions * len(first) + block[points]]), slots, self.family)

    def whole_at(self, points: NDArray[np.intp], slots: NDArray[np.intp]) -> StageWork:
        """Work of all stages together at these points."""
        return _slotted(gather(self.whole[1], self._block_keys[1][points]), slots, self.family)

    def rounds_at(self, piece: _Piece) -> list[list[NDArray[np.float64]]]:
        """Seconds of model chunks in groups of which the slowest counts."""
        groups = self.layouts.groups(piece.layouts)
        if not groups:
            return []
        (times, position), (first, block) = self._chunk_times, self._block_keys
        places = block[piece.points]
        return [[times[position[chunks * len(first) + places]] for chunks in group] for group in groups]

    def charge_at(self, sharding: int, compositions: NDArray[np.intp], points: NDArray[np.intp]) -> StateCharge:
        """What the states of stages of these compositions cost at these points."""
        first, key = self._layout_keys
        return gather(self.charges[sharding], self._state_rows[1][compositions * len(first) + key[points]])

    def batch_at(self, points: NDArray[np.intp], layouts: NDArray[np.intp], slots: NDArray[np.intp]) -> Batch:
        """Plans of these points and layouts in numbers."""
        return self._batch(points, slots, None, layouts)


KEPT_BYTES = 30 * 2**20


def _keep_freed_memory() -> None:
    """Makes the allocator of glibc reuse what arrays of a piece leave behind rather than hand it back to the kernel.

    Freeing a large block once raises the size up to which it does so (``mallopt(3)``, dynamic ``M_MMAP_THRESHOLD``);
    each piece would cost hundreds of page faults otherwise. The block itself is never touched. No effect elsewhere.
    """
    np.empty(KEPT_BYTES, dtype=np.uint8)


def evaluate(
    question: Question,
    family: Family,
    objective: Objective = fastest,
    *,
    stop: Stop | None = None,
    known: KnownPipelines | None = None,
) -> Table:
    """Evaluates every valid plan of ``family``. Raises ``SearchStopped`` where ``stop`` says so."""
    _keep_freed_memory()
    tables = Tables(question=question, family=family, known=known or KnownPipelines())
    best = np.full((len(family.shardings), len(family.policies), family.num_points), np.inf)
    feasible = 0
    for piece in _pieces(tables):
        check(stop)
        feasible += _fill(tables, piece, objective, best)
    slots = family.recomputes.sum(axis=0)[family.points["depth"]]
    evaluated = int((family.num_chunks() * family.shards.sum(axis=0) * slots).sum())
    return Table(tables=tables, best=best, num_evaluated=evaluated, num_feasible=feasible)


def best_plan(tables: Tables, cell: tuple[int, int, int], objective: Objective = fastest) -> tuple[Plan, float]:
    """The best plan at a sharding, a slot of recomputation and a point: over the chunks per rank. With its value."""
    sharding, slot, point = cell
    family, layouts = tables.family, tables.layouts
    first = int(layouts.first[family.points["depth"][point]] + family.first_chunks()[point])
    candidates = np.arange(first, first + int(family.num_chunks()[point]))
    kinds = layouts.num_kinds[candidates]
    found: list[tuple[float, int]] = []
    for num_kinds in np.unique(kinds):
        alike = candidates[kinds == num_kinds]
        piece = _Piece(
            points=np.full_like(alike, point),
            layouts=alike,
            num_kinds=int(num_kinds),
            shardings=np.asarray([sharding]),
            slots=np.asarray([slot]),
        )
        ((_, step),) = _steps(tables, piece)
        values = np.broadcast_to(objective(step), (1, len(alike))).ravel()
        found.append((float(values.min()), int(alike[values.argmin()])))
    value, layout = min(found)
    return family.plan(sharding, slot, int(layouts.vp[layout]), point), value


def _fill(tables: Tables, piece: _Piece, objective: Objective, best: NDArray[np.float64]) -> int:
    """Writes the best values of a piece over the chunks per rank, and counts its plans that fit."""
    family, feasible = tables.family, 0
    starts = np.flatnonzero(np.diff(piece.points, prepend=-1))
    points = piece.points[starts]
    known = family.recomputes[np.ix_(piece.slots, family.points["depth"][piece.points])]
    for sharding, step in _steps(tables, piece):
        valid = known & family.shards[sharding, piece.points]
        value = np.broadcast_to(objective(step), valid.shape)
        fits = np.broadcast_to(step.fits, valid.shape)
        if not valid.all():
            value, fits = np.where(valid, value, np.inf), fits & valid
        feasible += int(np.count_nonzero(fits))
        least = np.minimum.reduceat(value, starts, axis=1) if len(starts) < len(piece.points) else value
        place = np.ix_(np.asarray([sharding]), piece.slots, points)
        best[place] = np.minimum(best[place], least)
    return feasible


def _steps(tables: Tables, piece: _Piece) -> Iterator[tuple[int, Step]]:
    """Outcome of the plans of a piece, one sharding after the other."""
    question, layouts = tables.question, tables.layouts
    batch = tables.batch_at(piece.points, piece.layouts, piece.slots)
    around = gather(tables.around, piece.points)
    whole = tables.whole_at(piece.points, piece.slots)
    everyone = pipeline_sum(question, batch, around, tables.whole[0], whole)
    works = []
    for kind in range(piece.num_kinds):
        compositions, stage = layouts.composition[piece.layouts, kind], layouts.stage(piece.layouts, kind)
        work = tables.work_at(compositions, piece.points, piece.slots)
        times = work_times(question, batch, around, stage, work)
        works.append((compositions, times, activation_memory(question, batch, around, stage, work)))
    pace = pace_of(tables.rounds_at(piece), [times for _, times, _ in works])
    halves = [(compositions, times, paced(batch, times, everyone, pace), kept) for compositions, times, kept in works]
    for sharding in piece.shardings:
        charges = [tables.charge_at(int(sharding), half[0], piece.points) for half in halves]
        yield int(sharding), _joined_step(question, halves, charges)


def _joined_step(
    question: Question,
    halves: list[tuple[Any, WorkTimes, Numbers, ActivationMemory]],
    charges: list[StateCharge],
) -> Step:
    """Work and states of all kinds of stage together."""
    busiest: Any = None
    fullest: Any = None
    host = []
    for (_, times, passes, kept), charge in zip(halves, charges, strict=True):
        busy = passes + state_times(question, times, charge).total
        peak = peak_of(question, charge, kept)
        busiest = busy if busiest is None else np.maximum(busiest, busy)
        fullest = peak if fullest is None else np.maximum(fullest, peak)
        host.append(charge.host_bytes + kept.on_host)
    held = host_holds(question, host)
    fits = fullest <= question.usable_memory
    return Step(
        step_time=whole_step(question, busiest),
        peak_memory_bytes=fullest,
        fits=fits if held is True else all_hold([fits, held]),
    )


def _pieces(tables: Tables) -> Iterator[_Piece]:
    """The plans of a family, cut into pieces of about ``CELLS``, those with the same kinds of stage together."""
    family, layouts = tables.family, tables.layouts
    counts = family.num_chunks()
    points = np.repeat(np.arange(family.num_points), counts)
    chunk = np.arange(len(points)) - np.repeat(np.cumsum(counts) - counts, counts)
    layout = (layouts.first[family.points["depth"]] + family.first_chunks())[points] + chunk
    pattern = (family.shards * (1 << np.arange(len(family.shardings)))[:, None]).sum(axis=0)
    order = np.lexsort((pattern[points], layouts.num_kinds[layout]))
    points, layout = points[order], layout[order]
    kinds = layouts.num_kinds[layout]
    ends = np.flatnonzero(kinds[1:] != kinds[:-1]) + 1
    length = max(CELLS // len(family.policies), 1)
    for first, last in zip([0, *ends], [*ends, len(points)], strict=True):
        for start in range(first, last, length):
            part = slice(start, min(start + length, last))
            depths = np.unique(family.points["depth"][points[part]])
            yield _Piece(
                points=points[part],
                layouts=layout[part],
                num_kinds=int(kinds[start]),
                shardings=np.flatnonzero(family.shards[:, points[part]].any(axis=1)),
                slots=np.flatnonzero(family.recomputes[:, depths].any(axis=1)),
            )


def _sharding_fields(sharding: tuple[str, int | None], replicas: Numbers) -> dict[str, Any]:
    kind, degree = sharding
    return {
        "shards_optimizer": kind != "ddp",
        "shards_gradients": kind in ("zero2", "zero3", "hsdp"),
        "shards_weights": kind in ("zero3", "hsdp"),
        "sharding_degree": replicas if degree is None else float(degree),
    }


def _first_of(key: NDArray[np.intp], num_keys: int) -> NDArray[np.intp]:
    """The first position of every key."""
    first = np.empty(num_keys, dtype=np.intp)
    first[key[::-1]] = np.arange(len(key) - 1, -1, -1)
    return first


def _row(values: Numbers, like: NDArray[Any]) -> NDArray[np.float64]:
    return np.broadcast_to(np.asarray(values, dtype=np.float64), like.shape)


def _slotted(work: StageWork, slots: NDArray[np.intp], family: Family) -> StageWork:
    """``work`` of some slots of recomputation."""
    if len(slots) == len(family.policies):
        return work
    return mapped(work, lambda array: array[slots] if array.ndim > 1 and len(array) == len(family.policies) else array)

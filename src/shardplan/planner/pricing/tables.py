"""What the plans of a family are made of, priced once.

Three things are priced once each, on the plans that differ in what they name: blocks (degrees, micro-batch, place of
the groups) by recomputation; states (degrees, depth, placement) by sharding; and what a stage holds of both (its
composition). A plan picks its own out of these tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import field, replace
from functools import cached_property, partial
from operator import attrgetter
from typing import Any, Literal, NamedTuple, SupportsIndex, SupportsInt, TypeVar

import numpy as np
from numpy.typing import NDArray

from shardplan.base.arrays import (
    Numbers,
    coded,
    concatenated,
    different,
    distinct,
    first_of,
    gather,
    keep_freed_memory,
    mapped,
    without_zeros,
)
from shardplan.base.fields import dataclass
from shardplan.estimation.charge import StateCharge, least_peak_of, state_charge
from shardplan.estimation.layout import whole_model
from shardplan.estimation.load import Around, BlockLoad, Computing, StageStates, StageWork, StateLoad
from shardplan.estimation.parts.pipelines import least_passes, longest_time
from shardplan.estimation.pricing import num_logits, output_bytes, price_blocks, price_handover, price_states
from shardplan.estimation.question import Question
from shardplan.estimation.step import sharding_time
from shardplan.inputs.plan import Offload, Plan
from shardplan.physics.costs.collectives import Group, groups_of, joined_groups, sharding_groups
from shardplan.physics.workload.stage import Parts, Stage
from shardplan.planner.family import Family, KnownPipelines, Layouts
from shardplan.planner.pricing.numbers import PointNumbers, Rows, as_row, of_sharding, of_slots

ROWS = 32_768
"""Rows of a table that are priced together."""
GROUPS = ("tp", "tp_rows", "cp", "ep", "etp")
"""Groups on which the price of a block depends."""
Depths = tuple[int, ...]
"""Pipeline depths of plans that are worked on one after the other, as positions among those of the family."""
Places = tuple[NDArray[np.intp], NDArray[np.intp]]
"""Compositions (one for each point, or one for all) and points."""
Reads = Literal["times", "memory", "both"]
"""What is read of plans; what nobody reads is not looked up."""
Made = TypeVar("Made")


def of_whole(made: Callable[[Any], Made]) -> cached_property[Made]:
    """A property that the plans of a part of a family take from those of all of it."""

    def found(tables: Tables) -> Made:
        shared: Made = getattr(tables.part_of.tables, made.__name__) if tables.part_of else made(tables)
        return shared

    return cached_property(found)


def of_software(made: Callable[[Any], Made]) -> cached_property[Made]:
    """As ``of_whole``, unless the part runs by other software than the whole."""

    def found(tables: Tables) -> Made:
        part = tables.part_of
        shared: Made = made(tables) if part is None or part.changes == "blocks" else getattr(part.tables, made.__name__)
        return shared

    return cached_property(found)


@dataclass(frozen=True, kw_only=True)
class Tables:
    """What the plans of a family are made of, priced once."""

    question: Question
    family: Family
    known: KnownPipelines
    part_of: PartOf | None = None
    """The tables of a family of which these plans are some: what they have in common is priced already."""
    _kept: dict[str, tuple[Depths, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Arrays of one piece are made of the memory that those of the last left behind."""
        object.__setattr__(self, "question", self.question.running(self.family.switches))
        keep_freed_memory()

    @of_whole
    def layouts(self) -> Layouts:
        """Pipelines of every depth and number of chunks."""
        return Layouts.of(self.question, self.family, self.known)

    @property
    def whole_family(self) -> Tables:
        """The plans whatever software of those that change no memory runs them."""
        return self if self.part_of is None or self.family.part is None else self.part_of.tables.whole_family

    @property
    def root(self) -> Tables:
        """The tables that these are a part of in the end; themselves where they are no part."""
        return self if self.part_of is None else self.part_of.tables.root

    @cached_property
    def points_of_root(self) -> NDArray[np.intp]:
        """The position of every point among those of the root."""
        points = np.arange(self.family.num_points)
        return points if self.part_of is None else self.part_of.tables.points_of_root[self.part_of.points]

    def within(self, points: NDArray[np.intp], recomputes: NDArray[np.bool_]) -> Tables:
        """Of some of the points, ascending, and of some recomputation there, by slot and point."""
        family, part = self.family.within(points, recomputes), PartOf(self, points)
        if self.part_of is not None and self.part_of.changes == "blocks" and "blocks" not in self.__dict__:
            part = PartOf(self.part_of.tables, self.part_of.points[points], "blocks")  # its own blocks are not priced
        return Tables(question=self.question, family=family, known=self.known, part_of=part)

    def plan(self, sharding: SupportsInt, slot: SupportsInt, layout: SupportsIndex, point: SupportsInt) -> Plan:
        """The plan at these positions."""
        return self.family.plan(int(sharding), int(slot), int(self.layouts.vp[layout]), int(point))

    def running(self, family: Family) -> Tables:
        """Of the plans of a part of the family, run by software that changes the prices of blocks alone."""
        changes: Changed = "" if family.switches == self.family.switches else "blocks"
        part = PartOf(self, np.arange(family.num_points), changes)
        return Tables(question=self.question, family=family, known=self.known, part_of=part)

    def offloading(self, place: Offload) -> Tables:
        """Of the same plans that keep something else in host memory: charges alone are others."""
        family = replace(self.family, switches={**self.family.switches, "offload": place})
        whole = PartOf(self, np.arange(family.num_points), "charges")
        return Tables(question=self.question, family=family, known=self.known, part_of=whole)

    @cached_property
    def numbers(self) -> PointNumbers:
        """Points in numbers, as the formulas read them."""
        return PointNumbers(question=self.question, family=self.family)

    @cached_property
    def layout_keys(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Points, one for each set of degrees and placement; and for every point which of these it has.

        Of a part of a family the sets of all of it.
        """
        if self.part_of is not None:
            whole, here, _ = self.part_of
            return whole.layout_keys[0], whole.layout_keys[1][here]
        codes = self.family.points["layout"]
        values, key = distinct(codes, int(codes.max()) + 1)
        return first_of(key, len(values)), key

    @of_whole
    def groups(self) -> dict[str, Group]:
        """Groups of every set of degrees and placement."""
        numbered = [*self.numbers.by_placement(self.layout_keys[0])]
        groups = [groups_of(numbers, self.question.network) for numbers, _ in numbered]
        return joined_groups(groups, [len(points) for _, points in numbered])

    @cached_property
    def block_keys(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Points, one for each block that is priced; and for every point which of these it has.

        Of a part of a family the blocks of all of it, unless it has others.
        """
        if self.part_of is not None:
            whole, here, changes = self.part_of
            blocks, block = whole.block_keys[0], whole.block_of_point[here]
            if changes != "blocks":
                return blocks, block
            own, block = distinct(block, len(blocks))
            return first_of(block, len(own)), block
        first, key = self.layout_keys
        points = self.family.points
        columns: list[Any] = [points[name][first] for name in GROUPS]
        for group in (self.groups[name] for name in GROUPS):
            columns += [*group.members[:-1], *group.largest[:-1], *group.domains[:-1]]
        code, limit = coded(*(np.broadcast_to(column, first.shape) for column in columns))
        values, code = distinct(code, limit)
        sizes = int(points["position"].max()) + 1
        codes = code[key] * sizes + points["position"]
        blocks, block = distinct(codes, len(values) * sizes)
        return first_of(block, len(blocks)), block

    @property
    def block_of_point(self) -> NDArray[np.intp]:
        """Which block every point has."""
        return self.block_keys[1]

    @of_software
    def blocks(self) -> Parts[BlockLoad]:
        """Work and activations of every part on every block."""
        return self._priced[0]

    @of_software
    def _priced(self) -> tuple[Parts[BlockLoad], Parts[Computing]]:
        first, _ = self.block_keys
        groups = gather({name: self.groups[name] for name in GROUPS}, self.layout_keys[1][first])
        numbers = self.numbers.of(first, np.arange(len(self.family.policies)))
        blocks = price_blocks(self.question, numbers, groups)
        return blocks.map(BlockLoad.of), blocks.map(Computing.of)

    @cached_property
    def around(self) -> Around:
        """What the stages of a plan have in common, for every point."""
        if self.part_of is not None:
            whole, points, _ = self.part_of
            return gather(whole.around, points)
        first, block = self.block_keys
        numbers, every = self.numbers.of(first, None), np.arange(self.family.num_points)
        groups = gather({name: self.groups[name] for name in ("pp", "tp")}, self.layout_keys[1])
        handover = price_handover(self.question, self.numbers.of(every, None), groups)
        return Around(
            handover_time=as_row(handover.time, every),
            output_bytes=gather(as_row(output_bytes(self.question, numbers), first), block),
            logits=gather(as_row(num_logits(self.question, numbers), first), block),
        )

    def _work(self, depths: Depths, *, times: bool = True) -> StageWork:
        """Work of every composition on every block that plans of these depths have."""
        rows = self._latest("work rows", depths, self._rows_of_work)
        pieces = [*rows.pieces(max(ROWS // len(self.family.policies), 1))]
        stages = [self.layouts.composed(rows.compositions[part]) for part in pieces]
        blocks = self.blocks if times else self.blocks.map(attrgetter("memory"))
        works = [
            StageWork.of(stage, blocks.at(rows.keys[part], stage)) for stage, part in zip(stages, pieces, strict=True)
        ]
        return concatenated(works, [part.stop - part.start for part in pieces])

    def _rows_of_work(self, depths: Depths) -> Rows:
        return self._rows(depths, self._work_compositions, self.block_keys[1])

    @of_software
    def whole(self) -> tuple[Stage, StageWork]:
        """All stages together, on every block."""
        stage = whole_model(self.question.model)
        return stage, StageWork.of(stage, self.blocks)

    def _charges(self, depths: Depths) -> tuple[StateCharge, Rows]:
        """What states cost, by composition and set of degrees that plans of these depths have.

        Under every sharding, on an axis of its own.
        """
        rows = self._rows(depths, self._stage_compositions, self.layout_keys[1])
        pieces = [*rows.pieces(max(ROWS // len(self.family.shardings), 1))]
        parts = [self.charge(rows.compositions[part], rows.keys[part]) for part in pieces]
        return without_zeros(concatenated(parts, [part.stop - part.start for part in pieces])), rows

    def _charges_alone(self, depths: Depths) -> list[StateCharge]:
        """The same for each sharding alone, what is zero left out, for who reads times."""
        charge = self.charge_table(depths)[0].times
        return [without_zeros(of_sharding(charge, number)) for number in range(len(self.family.shardings))]

    def charge(self, compositions: NDArray[np.intp], keys: NDArray[np.intp]) -> StateCharge:
        """What states cost under every sharding, of some compositions on some sets of degrees."""
        if self.part_of is not None and self.part_of.changes != "charges":
            return self.part_of.tables.charge(compositions, keys)
        points = self.layout_keys[0][keys]
        numbers = self.numbers.under_every_sharding(self.numbers.of(points, None), points)
        stage = self.layouts.composed(compositions)
        held = StageStates.of(stage, self.states.at(keys, stage))
        return state_charge(self.question, numbers, stage, held)

    @of_whole
    def sharding_groups(self) -> dict[str, Group]:
        """Groups over which states are sharded, under every sharding, of every set of degrees and placement."""
        numbered = [*self.numbers.by_placement(self.layout_keys[0])]
        placed = [self.numbers.under_every_sharding(*each) for each in numbered]
        groups = [sharding_groups(numbers, self.question.network) for numbers in placed]
        return joined_groups(groups, [len(points) for _, points in numbered])

    @of_whole
    def states(self) -> Parts[StateLoad]:
        """States of every part under every sharding, on every set of degrees."""
        first = self.layout_keys[0]
        every = self.numbers.under_every_sharding(self.numbers.of(first, None), first)
        return price_states(self.question, every, self.groups["pp"], self.sharding_groups).map(StateLoad.of)

    @of_whole
    def sharding_times(self) -> tuple[Numbers, ...]:
        """Exchange of sharded states in every micro-batch, in all stages together: for every sharding, by degrees."""
        total = self.sharding_time
        return tuple(without_zeros(of_sharding(total, number)) for number in range(len(self.family.shardings)))

    @of_whole
    def sharding_time(self) -> Numbers:
        """The same under every sharding, on an axis of its own."""
        return without_zeros(sharding_time(self.states, self.whole[0]))

    @of_software
    def both_passes(self) -> Parts[NDArray[np.float64]]:
        """Seconds of a micro-batch forward and backward through every part, on every block."""
        first, _ = self.block_keys
        return self.blocks.map(lambda part: as_row(part.forward + part.backward, first))

    @cached_property
    def _stage_compositions(self) -> list[set[int]]:
        """Compositions of the stages of every layout."""
        layouts = self.layouts
        return [set(row[:n].tolist()) for row, n in zip(layouts.composition, layouts.num_kinds, strict=True)]

    @cached_property
    def _work_compositions(self) -> list[set[int]]:
        """The same, and those of all stages behind a stage."""
        layouts = self.layouts
        behind = (set(row[:n].tolist()) for row, n in zip(layouts.behind, layouts.num_kinds, strict=True))
        return [held | after for held, after in zip(self._stage_compositions, behind, strict=True)]

    def _rows(self, depths: Depths, by_layout: list[set[int]], key: NDArray[np.intp]) -> Rows:
        """Compositions (of every layout) and keys (of every point) that plans of these depths have together."""
        first, ends = self.layouts.first, [*self.layouts.first[1:], len(self.layouts.vp)]
        held = [np.asarray(sorted(set().union(*by_layout[first[d] : ends[d]])), dtype=np.intp) for d in depths]
        return Rows.of(depths, held, [different(key[self.family.points["depth"] == depth]) for depth in depths])

    def _latest(self, name: str, depths: Depths, made: Callable[[Depths], Made]) -> Made:
        """A table for some depths. Only the latest of each name is kept, so that memory stays bounded."""
        if name not in self._kept or self._kept[name][0] != depths:
            self._kept[name] = depths, made(depths)
        table: Made = self._kept[name][1]
        return table

    @property
    def are_at_hand(self) -> bool:
        """Whether the latest tables of work and charges are those of all depths."""
        return all(name in self._kept and self._kept[name][0] == self.depths for name in ("work", "charges"))

    @cached_property
    def depths(self) -> Depths:
        """All depths that plans have."""
        return tuple(different(self.family.points["depth"]).tolist())

    def work_rows(self, depths: Depths, at: Places) -> NDArray[np.intp]:
        """Where the work of stages at some places is, all at one of ``depths``."""
        rows = self._latest("work rows", depths, self._rows_of_work)
        return rows.at(*self._found(depths, at, self.block_keys[1]))

    def work_table(self, depths: Depths, reads: Reads) -> StageWork:
        """Work of every composition on every block that plans of these depths have.

        For memory without times, but where these are of all depths: then they are asked for next.
        """
        if reads == "memory" and depths != self.depths:
            return self._latest("memory", depths, partial(self._work, times=False))
        return self.read(self._latest("work", depths, self._work), reads)

    def work_at(self, depths: Depths, rows: NDArray[np.intp], slots: NDArray[np.intp], reads: Reads) -> StageWork:
        """Work of stages at these rows."""
        return self._gathered(self.work_table(depths, reads), rows, slots)

    def whole_times_at(self, points: NDArray[np.intp], slots: NDArray[np.intp]) -> StageWork:
        """Work of all stages together at these points, for who reads times."""
        return self._gathered(self.read(self.whole[1], "times"), self.block_keys[1][points], slots)

    def read(self, work: StageWork, reads: Reads) -> StageWork:
        """What is read of some work; for times bytes too where they go to the host."""
        if reads == "memory":
            return work.memory
        return work if reads == "both" or self.family.switches.get("offload") == "activations" else work.times

    def _gathered(self, work: StageWork, rows: NDArray[np.intp], slots: NDArray[np.intp]) -> StageWork:
        """Rows of a table, of some slots of recomputation: what leaves less comes first."""

        def found(array: NDArray[Any]) -> Numbers:
            if len(slots) * array.shape[-1] < len(self.family.policies) * len(rows):
                return gather(of_slots(array, slots, self.family), rows)
            return of_slots(gather(array, rows), slots, self.family)

        return mapped(work, found)

    def least_passes_at(self, points: NDArray[np.intp], slots: NDArray[np.intp]) -> Numbers:
        """What the slowest stage of plans of these points takes at least. [s]"""
        work = self.whole[1].sum
        again = of_slots(work.recomputed, slots, self.family)
        return self._least_passes(points, slots, work.forward + work.backward, again)

    def _least_passes(
        self, points: NDArray[np.intp], slots: NDArray[np.intp], both: Numbers, again: Numbers
    ) -> Numbers:
        numbers = self.numbers.with_most_chunks(points, slots)
        both, again = gather((both, again), self.block_keys[1][points])
        return least_passes(numbers, self.whole[0], both, again)

    def least_computing(self, tp: float, ep: float) -> Numbers:
        """What the slowest stage of plans takes at least where these shares of exchanges show, by slot and point.

        In seconds, but for the host and what dispatchers decide.
        """
        points, slots = np.arange(self.family.num_points), np.arange(len(self.family.policies))
        parts, stage = self._priced[1], self.whole[0]
        both = parts.total(stage, lambda each: each.alone + tp * each.tp + ep * each.ep)
        again = parts.total(stage, lambda each: each.alone_again + tp * each.tp_again + ep * each.ep_again)
        return self._least_passes(points, slots, both, of_slots(again, slots, self.family))

    def longest_time(self, layouts: NDArray[np.intp], taken: Callable[[NDArray[np.float64]], Numbers]) -> Numbers:
        """Seconds on the longest ways through uneven chunks, on blocks whose times are ``taken``; zero without any."""
        groups = self.layouts.groups(layouts)
        return longest_time(
            [[self.both_passes.total(self.layouts.chunk(way), taken) for way in group] for group in groups]
        )

    def charge_table(self, depths: Depths) -> tuple[StateCharge, Rows]:
        """What states cost, by sharding, composition and set of degrees that plans of these depths have."""
        return self._latest("charges", depths, self._charges)

    def charge_rows(self, depths: Depths, at: Places) -> NDArray[np.intp]:
        """Where the charges of stages at some places are, under every sharding alike."""
        return self.charge_table(depths)[1].at(*self._found(depths, at, self.layout_keys[1]))

    def charge_times_at(self, sharding: int, depths: Depths, rows: NDArray[np.intp]) -> StateCharge:
        """What the states of stages cost at these rows, for who reads times."""
        return gather(self._latest("charges alone", depths, self._charges_alone)[sharding], rows)

    def bytes_at(self, shardings: NDArray[np.intp], depths: Depths, rows: NDArray[np.intp]) -> StateCharge:
        """What the states of stages take at these rows: by sharding, slot of recomputation and row."""
        charge, _ = self.charge_table(depths)

        def found(array: NDArray[Any]) -> NDArray[Any]:
            under = array if array.ndim < 2 or len(array) in {1, len(shardings)} else array[shardings]
            return under.take(rows, axis=-1)[..., None, :]

        return mapped(charge.memory, found)

    def least_peaks(self, depths: Depths) -> NDArray[np.float64]:
        """What the memory of a stage is at least, whatever activations it keeps: by sharding and row. [bytes]"""
        charge, rows = self.charge_table(depths)
        shape = len(self.family.shardings), len(rows.keys)
        return np.broadcast_to(least_peak_of(self.question, charge), shape)

    def sharding_time_at(self, sharding: int, points: NDArray[np.intp]) -> Numbers:
        """Exchange of sharded states in every micro-batch, in all stages together, at these points. [s]"""
        return gather(self.sharding_times[sharding], self.layout_keys[1][points])

    def _found(
        self, depths: Depths, at: Places, key: NDArray[np.intp]
    ) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
        """Depths, compositions and keys at some places, all at one of ``depths``."""
        compositions, points = at
        here = np.asarray(depths) if len(depths) == 1 else self.family.points["depth"][points]
        return here, compositions, key[points]


def tables_of(question: Question, families: Iterable[Family], known: KnownPipelines) -> list[Tables]:
    """The plans of families, to be priced; what the same plans have under any software is priced once."""
    wholes: dict[int, Tables] = {}
    found = []
    for family in families:
        if id(family.whole) not in wholes:
            wholes[id(family.whole)] = Tables(question=question, family=family.whole, known=known)
        whole = wholes[id(family.whole)]
        found.append(whole if family.part is None else whole.running(family))
    return found


def offloading(every: Iterable[Tables], place: Offload) -> list[Tables]:
    """The same plans that keep something else in host memory."""
    wholes: dict[int, Tables] = {}
    found = []
    for each in every:
        whole = wholes.setdefault(id(each.whole_family), each.whole_family.offloading(place))
        switches = {**each.family.switches, "offload": place}
        found.append(whole if each.family.part is None else whole.running(replace(each.family, switches=switches)))
    return found


Changed = Literal["", "blocks", "charges"]
"""What is priced anew for a part of a family: nothing, blocks (by other software), or what states cost (offloaded)."""


class PartOf(NamedTuple):
    """Tables of a whole family, the points of a part of it, and what is different there."""

    tables: Tables
    points: NDArray[np.intp]
    changes: Changed = ""

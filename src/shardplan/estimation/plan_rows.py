"""Stages and model chunks of many plans in columns: a row for each stage, or each chunk, of each plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from shardplan.base.arrays import Flags, Numbers, gather
from shardplan.base.fields import dataclass
from shardplan.estimation.layout import Rounds, pipelines_of
from shardplan.estimation.load import BlockLoad
from shardplan.estimation.parts.pipelines import chunk_time
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.plan import Plan
from shardplan.physics.workload.stage import Parts, Stage, stacked

Index: TypeAlias = NDArray[np.intp]
Record = TypeVar("Record")
Value = TypeVar("Value")


@dataclass(frozen=True, kw_only=True)
class StageRows:
    """Rows of plans, those of one plan next to each other."""

    stages: Stage
    """What every row holds."""
    plan: Index
    """Plan of every row."""
    first: Index
    """First row of every plan."""

    @classmethod
    def of(cls, layouts: Sequence[Sequence[Stage]], which: Index) -> StageRows:
        """Rows of plans that have these of the ``layouts``."""
        sizes = np.asarray([len(held) for held in layouts])
        lengths = sizes[which]
        first = np.cumsum(lengths) - lengths
        plan = np.repeat(np.arange(len(which)), lengths)
        place = (np.cumsum(sizes) - sizes)[which][plan] + np.arange(len(plan)) - first[plan]
        return cls(stages=gather(stacked([stage for held in layouts for stage in held]), place), plan=plan, first=first)

    def spread(self, of_plans: Record) -> Record:
        """What is known of every plan, for each of its rows."""
        return of_plans if len(self.first) == 1 else gather(of_plans, self.plan)

    def held(self, parts: Parts[Value]) -> Parts[Value]:
        """What is known of every part and plan, for each row of the plan; nobody reads parts that no row holds."""
        return parts if len(self.first) == 1 else parts.at(self.plan, self.stages)

    def each(self, values: Numbers) -> NDArray[np.float64]:
        """One number for every row."""
        return np.broadcast_to(np.asarray(values, dtype=np.float64), self.plan.shape)

    def largest(self, values: Numbers) -> NDArray[np.float64]:
        """The largest number of every plan."""
        most: NDArray[np.float64] = np.maximum.reduceat(self.each(values), self.first)
        return most

    def all_hold(self, flags: Flags) -> NDArray[np.bool_]:
        """Whether all hold of every plan."""
        held: NDArray[np.bool_] = np.logical_and.reduceat(np.broadcast_to(flags, self.plan.shape), self.first)
        return held

    def at_largest(self, values: Numbers) -> Index:
        """The first row of every plan with its largest number."""
        found = np.flatnonzero(~(self.each(values) < self.largest(values)[self.plan]))
        return found[np.searchsorted(self.plan[found], np.arange(len(self.first)))]


@dataclass(frozen=True, kw_only=True)
class PlanRows:
    """Stages of plans, and the longest ways through their chunks."""

    stages_of: tuple[tuple[Stage, ...], ...]
    """Stages of every plan."""
    rounds_of: tuple[Rounds, ...]
    """Longest ways through the chunks of every plan."""
    stages: StageRows
    chunks: StageRows | None
    """What a micro-batch passes on the longest ways; None where no plan has any."""
    group_first: Index
    """First way of every group."""
    group_plan: Index
    """Plan of every group."""

    def longest_time(self, blocks: Parts[BlockLoad]) -> Numbers:
        """Seconds of a micro-batch on the longest ways of every plan, of each group the slowest; zero without any."""
        if self.chunks is None:
            return 0.0
        times = self.chunks.each(chunk_time(self.chunks.stages, self.chunks.held(blocks)))
        slowest = np.maximum.reduceat(times, self.group_first)
        return np.bincount(self.group_plan, slowest, minlength=len(self.stages_of))

    @classmethod
    def of(cls, model: ModelConfig, plans: Sequence[Plan]) -> PlanRows:
        """Rows of ``plans``; those with as many stages and chunks are laid out once."""
        keys = [(plan.pp, plan.vp, plan.stage_layers, plan.schedule) for plan in plans]
        distinct = list(dict.fromkeys(keys))
        laid = pipelines_of(model, distinct)
        place = {key: number for number, key in enumerate(distinct)}
        which = np.asarray([place[key] for key in keys], dtype=np.intp)
        rounds_of = tuple(laid[number][1] for number in which)
        groups = [len(group) for rounds in rounds_of for group in rounds]
        held = [[chunk.as_stage() for group in rounds for chunk in group] for _, rounds in laid]
        return cls(
            stages_of=tuple(laid[number][0] for number in which),
            rounds_of=rounds_of,
            stages=StageRows.of([stages for stages, _ in laid], which),
            chunks=StageRows.of(held, which) if groups else None,
            group_first=np.cumsum([0, *groups[:-1]]),
            group_plan=np.repeat(np.arange(len(plans)), [len(rounds) for rounds in rounds_of]),
        )

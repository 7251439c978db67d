"""Degrees, micro-batch and placement of the valid plans of a space.

Rules run on an open grid, one axis for each field, so that a rule costs as much as the fields that it names.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardplan.base.fields import dataclass, replace
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import Degrees, Setting, data_parallel_degree
from shardplan.physics.frameworks.runnable import FrameworkRule
from shardplan.physics.schedules.base import SUITS
from shardplan.physics.schedules.registry import INTERLEAVED
from shardplan.physics.validity import RULES, Rule
from shardplan.planner.family import Points
from shardplan.planner.pruning.computing import NearPlans
from shardplan.planner.space import GRID, Space

NEEDS = {
    "cp_comm": ("cp",),
    "sequence_parallel": ("tp",),
    "overlap_tp": ("tp",),
    "overlap_ep": ("ep",),
    "moe_dispatcher": ("ep", "etp"),
    "tp_kind": ("tp",),
}
"""Fields whose alternatives are the same plan where these degrees are one."""
DUPLICATE = "the same plan in other words"
ANOTHER_DP = "dp is one of those asked for"


def _rule(name: str) -> Rule:
    return next(rule for rule in RULES if rule.name == name)


LAYERS = _rule("every stage has layers")
MODULES = _rule("recomputed modules exist in the model")
SCHEDULED = (_rule(INTERLEAVED.rule), _rule(SUITS))
"""Rules of schedules: whether one chunk per rank is valid, and whether several are, however many."""
SHARDING = _rule("sharding groups divide the replicas")
PLACED = _rule("placement keeps pipeline stages together")
POINT_RULES = tuple(rule for rule in RULES if rule not in (LAYERS, MODULES, *SCHEDULED, SHARDING))


def alternatives(switches: dict[str, Any], space: Space) -> tuple[str, ...]:
    """Switches with another value than the first of the space, which need not make another plan."""
    return tuple(name for name in NEEDS if name in switches and switches[name] != space.axes[name][0])


@dataclass(frozen=True, kw_only=True)
class PointGrid:
    """Combinations of degrees under some switches that are still to be checked."""

    setting: Setting
    space: Space
    switches: dict[str, Any]
    rejected: Counter[str]
    """Filled with the number of plans that break a rule."""
    rules: Sequence[FrameworkRule]
    """Of the framework that plans are for, those that degrees and placement decide."""
    near: NearPlans
    """Which plans may be fast enough."""

    def points(self, depths: Sequence[int], sizes: Sequence[int], most_chunks: Sequence[int]) -> Points:
        """Points that keep all rules; each rule sees those that kept the rules before it.

        ``sizes``: plans of a point at every depth, by which those are counted that break a rule.
        """
        every = {name: np.asarray(self.space.axes[name], dtype=np.int64) for name in GRID}
        every["pp"] = np.asarray(depths)
        kept, near = self._near(every, np.asarray(most_chunks))
        axes = _at(every, kept)
        size = np.asarray(sizes)[kept[0]]
        found = [
            np.nonzero(self._valid(axes, size, placement, near))
            for placement in range(len(self.space.axes["placement"]))
        ]
        index = [own[np.concatenate(columns)] for own, columns in zip(kept, zip(*found, strict=True), strict=True)]
        points = _at(every, index)
        placement = np.repeat(np.arange(len(found)), [len(columns[0]) for columns in found])
        shape = [len(values) for values in every.values()][:-1]
        degrees = np.ravel_multi_index(index[:-1], shape)
        return points | {
            "depth": index[0],
            "placement": placement,
            "degrees": degrees,
            "layout": placement * math.prod(shape) + degrees,
            "position": index[-1],
        }

    def _near(self, axes: Points, most_chunks: NDArray[np.int64]) -> tuple[list[NDArray[np.intp]], NDArray[np.bool_]]:
        """Positions of the candidates of every axis with which a plan may be fast enough, and where on their grid."""
        kept = [np.arange(len(values)) for values in axes.values()]
        if self.near.is_everywhere:
            return kept, np.ones(tuple(map(len, kept)), dtype=bool)
        of_each = [self._of_one_axis(axes, placement) for placement in range(len(self.space.axes["placement"]))]
        kept = [np.flatnonzero(np.logical_or.reduce(left)) for left in zip(*of_each, strict=True)]
        near = self.near.cells(_at(axes, kept), most_chunks[kept[0]])
        places = [np.flatnonzero(near.any(axis=others)) for others in _others(near.ndim)]
        return [own[place] for own, place in zip(kept, places, strict=True)], near[np.ix_(*places)]

    def _of_one_axis(self, axes: Points, placement: int) -> list[NDArray[np.bool_]]:
        """Candidates of every axis that rules leave which read no other, under a placement."""
        left = [np.ones(len(values), dtype=bool) for values in axes.values()]
        for _, holds in self._checks(axes, placement):
            shape = np.shape(holds)
            if np.size(holds) == max(shape, default=1) > 1:
                left[shape.index(max(shape))] &= np.ravel(holds)
        return left

    def _valid(
        self, axes: Points, size: NDArray[np.int64], placement: int, near: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """Which points of the grid keep every rule under a placement, of those that may be fast enough."""
        alive = near.copy()
        size = size.reshape([-1 if name == "pp" else 1 for name in axes])
        counts = self._counts(alive, size)
        for name, holds in self._checks(axes, placement):
            if np.all(holds):
                continue
            alive &= holds
            left = self._counts(alive, size)
            if left < counts:
                self.rejected[name] += counts - left
            counts = left
        return alive

    def _checks(self, axes: Points, placement: int) -> Iterator[tuple[str, Any]]:
        """What points of a grid have to keep under a placement, and where they do."""
        degrees = self._degrees(axes, self.space.axes["placement"][placement])
        if self.space.dp is not None:
            yield ANOTHER_DP, np.isin(data_parallel_degree(self.setting, degrees), self.space.dp)
        rules: list[Rule | FrameworkRule] = [*POINT_RULES, *self.rules]
        yield from ((rule.name, rule.holds(self.setting, degrees)) for rule in rules)
        yield DUPLICATE, self._distinct(degrees, placement)

    def _counts(self, alive: NDArray[np.bool_], size: NDArray[np.int64]) -> int:
        """Plans at the points that are left."""
        per_depth = np.count_nonzero(alive, axis=tuple(range(1, alive.ndim)))
        return int((per_depth * size.ravel()).sum())

    def _degrees(self, columns: Points, placement: str) -> Degrees:
        """Degrees along axes of their own where ``columns`` are candidates, or of points."""
        plan = Plan(placement=placement, **{name: value for name, value in self.switches.items() if name != "schedule"})
        grid: dict[str, Any] = dict(zip(GRID, np.ix_(*(columns[name] for name in GRID)), strict=True))
        return replace(Degrees.of(plan), **grid)

    def _distinct(self, degrees: Degrees, placement: int) -> Any:
        """Whether a plan is not the same as one with an earlier alternative of a switch."""
        distinct: Any = True
        for name in alternatives(self.switches, self.space):
            needed: Any = math.prod(np.asarray(getattr(degrees, dimension)) for dimension in NEEDS[name])
            distinct = distinct & (needed > 1)
        orders = self.space.axes["placement"]
        alone = self.setting.num_accelerators == degrees.tp * degrees.cp * degrees.pp
        if self.setting.num_experts:  # whose replicas lie where those of the dense layers would
            alone = alone & (self.setting.num_accelerators == degrees.ep * degrees.etp * degrees.pp)
        for earlier in orders[:placement]:
            repeated = alone & _same_without("dp", orders[placement], earlier)
            alike = (np.asarray(degrees.pp) == 1) & _same_without("pp", orders[placement], earlier)
            there = PLACED.holds(self.setting, replace(degrees, plan=replace(degrees.plan, placement=earlier)))
            distinct = distinct & ~((repeated | alike) & there)
        return distinct


def _at(points: Points, index: Sequence[NDArray[np.intp]]) -> Points:
    """Some of the values of every field."""
    return {name: values[own] for (name, values), own in zip(points.items(), index, strict=True)}


def _others(ndim: int) -> Iterator[tuple[int, ...]]:
    """For every axis all others."""
    return (tuple(each for each in range(ndim) if each != axis) for axis in range(ndim))


def _same_without(dimension: str, one: str, other: str) -> bool:
    orders = [[part for part in placement.split("-") if part != dimension] for placement in (one, other)]
    return orders[0] == orders[1]

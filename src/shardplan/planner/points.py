"""The valid plans of a space as columns, all depths and placements together; and why the others are not valid."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property, partial, reduce
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from shardplan.base.arrays import all_hold
from shardplan.base.fields import dataclass, replace
from shardplan.estimation.question import Question
from shardplan.inputs.plan import Plan, Sharding
from shardplan.inputs.plan_numbers import Degrees, Setting, degrees_with
from shardplan.inputs.sharding import kinds_that
from shardplan.physics.schedules.registry import INTERLEAVED, load_schedule
from shardplan.planner.family import Family, Points, ShardingPair, SoftwarePart, degrees_at
from shardplan.planner.grid import LAYERS, MODULES, NEEDS, SCHEDULED, SHARDING, PointGrid, alternatives
from shardplan.planner.masks import EVERYWHERE, Masks, SortedRules, degrees_of_chunks
from shardplan.planner.pruning.computing import EVERY, FastEnough, NearPlans
from shardplan.planner.software import has_same_plans, joined_parts, keeps_as_much, without_worse
from shardplan.planner.space import GRID, Space

Recomputation = tuple[str, int | None]

BY_SOFTWARE = "some software of the framework runs the plan"


def families(question: Question, space: Space, rejected: Counter[str], fast: FastEnough = EVERY) -> Iterator[Family]:
    """All valid plans of ``space``; ``rejected`` is filled with the number of others by the rule they break.

    ``fast``: plans that compute for longer may be left out, and are not counted.
    """
    chosen = space.chosen()
    decided = {name for software in chosen for name in software} if len(chosen) > 1 else set()
    rules = SortedRules.of([rule for rule in space.rules if decided.isdisjoint(rule.reads)])
    own = [rule for rule in space.rules if not decided.isdisjoint(rule.reads)]
    for switches in space.switches():
        draft = _Draft(
            setting=question.setting,
            space=space,
            switches=switches,
            rejected=rejected,
            rules=rules,
            near=NearPlans(question, [switches | software for software in chosen], fast),
        )
        family = draft.family()
        if family is not None and len(chosen) == 1:
            yield replace(family, switches=switches | chosen[0])
        elif family is not None:
            yield from _by_software(question, family, replace(draft, rules=SortedRules.of(own)), chosen)


def _by_software(
    question: Question, family: Family, draft: _Draft, chosen: Sequence[dict[str, Any]]
) -> Iterator[Family]:
    """The plans of a family under each choice of software that may run some of them fastest."""
    known: dict[Any, NDArray[np.bool_]] = {}
    drafts = [replace(draft, switches=draft.switches | software) for software in chosen]
    found = without_worse(question, [each.part(family, known) for each in drafts])
    whole = joined_parts(family, found or [family])
    draft.rejected[BY_SOFTWARE] += family.num_plans() - (whole.num_plans() if found else 0)
    for number, part in enumerate(found):
        if number == 0 and has_same_plans(part, whole):
            whole = part
            yield part
            continue
        same = keeps_as_much(part, whole)
        yield replace(part, part=SoftwarePart(whole, same_memory=same, counts=number == 0))


@dataclass(frozen=True, kw_only=True)
class _Depth:
    """What a pipeline depth admits whatever the other degrees."""

    pp: int
    vps: tuple[int, ...]
    recomputations: tuple[Recomputation, ...]

    @property
    def size(self) -> int:
        """Plans for each point and kind of sharding."""
        return len(self.vps) * len(self.recomputations)


@dataclass(frozen=True, kw_only=True)
class _Draft:
    """A family whose points are still to be checked."""

    setting: Setting
    space: Space
    switches: dict[str, Any]
    rejected: Counter[str]
    rules: SortedRules
    """Of the framework that plans are for."""
    near: NearPlans
    """Which plans may be fast enough."""

    def part(self, family: Family, known: dict[Any, NDArray[np.bool_]]) -> Family:
        """The plans of a family that keep these rules, under these switches."""
        found = replace(family, switches=self.switches)
        rules, masks = self.rules, self._masks(found, known)
        chunks = [(masks.single(rule), masks.interleaves(rule)) for rule in (*rules.of_depths, *rules.of_chunks)]
        places = [self._counts_as_another(found.points, known), *(masks.places(rule) for rule in rules.of_points)]
        slots = (masks.recomputes(rule) for rule in rules.of_recomputation)
        every = partial(_all, known)
        return replace(
            found,
            single=every(found.single, *(one for one, _ in chunks)),
            interleaves=every(found.interleaves, *(more for _, more in chunks)),
            shards=every(found.shards, *(masks.shards(rule, found.shardings) for rule in rules.of_shardings)),
            recomputes=every(found.recomputes, *places, *slots),
            together=every(found.together, *(masks.together(rule) for rule in rules.of_both)),
        )

    def _counts_as_another(self, points: Points, known: dict[Any, NDArray[np.bool_]]) -> NDArray[np.bool_]:
        """Where a plan is not the same as one with an earlier alternative of these switches."""
        others = alternatives(self.switches, self.space)
        if not others:
            return EVERYWHERE
        if others not in known:
            degrees = [math.prod(np.asarray(points[each]) for each in NEEDS[name]) for name in others]
            known[others] = np.logical_and.reduce([np.greater(each, 1) for each in degrees])
        return known[others]

    def family(self) -> Family | None:
        """The valid points, with what else is valid at each; None where there are none."""
        shardings = self.space.shardings()
        depths = [depth for depth in map(self._depth, self.space.axes["pp"]) if depth.size]
        if not depths or not shardings:
            return None
        points = self._grid.points(
            [depth.pp for depth in depths],
            [depth.size * len(shardings) for depth in depths],
            [max(depth.vps) for depth in depths],
        )
        if not len(points["depth"]):
            return None
        everywhere = np.ones(len(points["depth"]), dtype=bool)
        policies, layers, recomputes = _slots(depths)
        found = Family(
            switches=self.switches,
            depths=tuple(depth.pp for depth in depths),
            placements=self.space.axes["placement"],
            points=points,
            vps=tuple(tuple(sorted(depth.vps)) for depth in depths),
            shardings=shardings,
            shards=np.ones((len(shardings), len(everywhere)), dtype=bool),
            policies=policies,
            layers=layers,
            recomputes=recomputes[:, points["depth"]],
            single=everywhere,
            interleaves=everywhere,
        )
        return self._with_plans(found)

    @property
    def _grid(self) -> PointGrid:
        return PointGrid(
            setting=self.setting,
            space=self.space,
            switches=self.switches,
            rejected=self.rejected,
            rules=self.rules.of_points,
            near=self.near,
        )

    def _with_plans(self, found: Family) -> Family | None:
        """The points that have a plan; the others' plans are counted by the rule that they break."""
        points, pairs, schedule = found.points, found.shardings, self.switches.get("schedule")
        rules, masks, degrees = self.rules, self._masks(found), self._at(found.points)
        runs = INTERLEAVED.rule if schedule is None else load_schedule(schedule).rule
        found = self._left(found, runs, single=self._can_run(points, 1), interleaves=self._can_run(points, 2))
        for rule in rules.of_chunks:
            found = self._left(found, rule.name, single=masks.single(rule), interleaves=masks.interleaves(rule))
        divides = np.stack([self._divides(degrees, points, pair) for pair in pairs])
        found = self._left(found, SHARDING.name, shards=divides)
        for rule in rules.of_shardings:
            found = self._left(found, rule.name, shards=masks.shards(rule, pairs))
        found = self._left(found, SHARDING.name, shards=self._simplest(points, pairs, found.shards))
        for rule in rules.of_recomputation:
            found = self._left(found, rule.name, recomputes=masks.recomputes(rule))
        for rule in rules.of_both:
            found = self._left(found, rule.name, together=masks.together(rule))
        kept = np.flatnonzero(found.shards.any(axis=0) & (found.num_inner() > 0))
        return found.within(kept) if len(kept) else None

    def _left(self, found: Family, rule: str, **holds: NDArray[np.bool_]) -> Family:
        """The plans of a family for which a rule holds: where its fields of these names do; the others are counted."""
        if all(each.all() for each in holds.values()):
            return found
        left = replace(found, **{name: _both(getattr(found, name), each) for name, each in holds.items()})
        self.rejected[rule] += found.num_plans() - left.num_plans()
        return left

    def _masks(self, found: Family, known: dict[Any, NDArray[np.bool_]] | None = None) -> Masks:
        """The framework's rules at the points of a family."""
        return Masks(
            setting=self.setting,
            switches=self.switches,
            points=found.points,
            placements=found.placements,
            depths=found.depths,
            vps=found.vps,
            policies=found.policies,
            layers=found.layers,
            known={} if known is None else known,
        )

    def _depth(self, pp: int) -> _Depth:
        """What a pipeline depth admits; what it does not is counted."""
        space, switches = self.space, self.switches
        layers = switches.get("stage_layers")
        chunks, policies = space.virtual_stages(pp, switches.get("schedule"), layers), space.recomputations(pp)
        points = len(space.axes["placement"]) * math.prod(len(space.axes[n]) for n in GRID if n != "pp")
        vps = self._chunks(pp, chunks, len(policies) * len(space.shardings()) * points)
        recomputations = tuple(pair for pair in policies if pair[0] in self._policies)
        points *= len(space.shardings())
        self.rejected[MODULES.name] += len(vps) * (len(policies) - len(recomputations)) * points
        return _Depth(pp=pp, vps=vps, recomputations=recomputations)

    @cached_property
    def _policies(self) -> tuple[str, ...]:
        """Policies whose modules the model has."""
        asked = ((each, degrees_with({"recompute": each})) for each in self.space.axes["recompute"])
        return tuple(each for each, degrees in asked if np.all(MODULES.holds(self.setting, degrees)))

    def _chunks(self, pp: int, chunks: tuple[int, ...], others: int) -> tuple[int, ...]:
        """Chunks per rank with which all stages have layers and which the framework runs at this depth."""
        vps = tuple(vp for vp, fits in zip(chunks, self._hold_layers(pp, chunks), strict=True) if fits)
        self.rejected[LAYERS.name] += (len(chunks) - len(vps)) * others
        if not vps or not self.rules.of_depths:
            return vps
        degrees, alive = degrees_of_chunks(vps, pp=pp, **self.switches), np.ones(len(vps), dtype=bool)
        for rule in self.rules.of_depths:
            left = alive & rule.holds(self.setting, degrees)
            self.rejected[rule.name] += int(np.count_nonzero(alive) - np.count_nonzero(left)) * others
            alive = left
        return tuple(vp for vp, kept in zip(vps, alive.tolist(), strict=True) if kept)

    def _hold_layers(self, pp: int, chunks: tuple[int, ...]) -> list[bool]:
        """For every number of chunks per rank whether all stages have layers."""
        if self.switches.get("stage_layers") is None:
            degrees = replace(Degrees.of(Plan(pp=pp, **self.switches)), vp=np.asarray(chunks))
            return np.broadcast_to(LAYERS.holds(self.setting, degrees), (len(chunks),)).tolist()
        plans = (Plan(pp=pp, vp=vp, **self.switches) for vp in chunks)
        return [bool(np.all(LAYERS.holds(self.setting, Degrees.of(plan)))) for plan in plans]

    def _can_run(self, points: Points, vp: int) -> NDArray[np.bool_]:
        """For every point whether the schedule runs it with this number of chunks per rank, two standing for more."""
        schedule = self.switches.get("schedule") or ("interleaved" if vp > 1 else "1f1b")
        plan = Plan(schedule=self.switches.get("schedule"))
        degrees = replace(self._at(points), vp=vp, interleaved=schedule == "interleaved", plan=plan)
        holds = all_hold(rule.holds(self.setting, degrees) for rule in SCHEDULED)
        return np.broadcast_to(np.asarray(holds), points["tp"].shape)

    def _simplest(
        self, points: Points, shardings: tuple[ShardingPair, ...], valid: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """The valid kinds of sharding; without replicas all are one plan, for which the simplest stands."""
        n = self.setting.num_accelerators
        alone = n == points["tp"] * points["pp"]
        if self.setting.num_experts:
            alone &= n == points["pp"] * points["ep"] * points["etp"]
        kinds = get_args(Sharding)
        order = np.asarray([kinds.index(kind) for kind, _ in shardings])[:, None]
        first = np.where(valid, order, len(kinds)).argmin(axis=0) == np.arange(len(shardings))[:, None]
        return valid & (~alone | first)

    def _divides(self, degrees: Degrees, points: Points, sharding: ShardingPair) -> NDArray[np.bool_]:
        """Where a kind of sharding is valid."""
        kind, ranks = sharding[0], degrees_at(sharding[1], points)
        hybrid = kind in kinds_that("in_groups")
        holds = SHARDING.holds(self.setting, replace(degrees, sharding_degree=ranks, hybrid=hybrid))
        excluded = self.space.excluded.get("sharding_degree", ())
        return np.broadcast_to(np.asarray(holds), ranks.shape) & ~np.isin(ranks, [n for n in excluded if n])

    def _at(self, points: Points) -> Degrees:
        """Degrees of listed points."""
        plan = Plan(**{name: value for name, value in self.switches.items() if name != "schedule"})
        columns: dict[str, Any] = {name: points[name] for name in GRID}
        return replace(Degrees.of(plan), **columns)


def _slots(
    depths: list[_Depth],
) -> tuple[tuple[str, ...], tuple[tuple[int | None, ...], ...], NDArray[np.bool_]]:
    """Recomputations of all depths in slots: the n-th number of layers of a policy is the same slot at every depth."""
    most: dict[str, int] = {}
    for depth in depths:
        counts = Counter(policy for policy, _ in depth.recomputations)
        most = {policy: max(most.get(policy, 0), counts[policy]) for policy in {**most, **counts}}
    policies = tuple(policy for policy, count in most.items() for _ in range(count))
    layers: list[tuple[int | None, ...]] = []
    valid = np.zeros((len(policies), len(depths)), dtype=bool)
    for column, depth in enumerate(depths):
        row: list[int | None] = []
        for policy, count in most.items():
            numbers = [number for each, number in depth.recomputations if each == policy]
            valid[len(row) : len(row) + len(numbers), column] = True
            row += [*numbers, *[None] * (count - len(numbers))]
        layers.append(tuple(row))
    return policies, tuple(layers), valid


def _all(known: dict[Any, Any], first: Any, *others: Any) -> Any:
    """Where all hold; what holds everywhere changes nothing. Found once for the same masks, and kept in ``known``."""
    masks = (first, *(each for each in others if each is not EVERYWHERE))
    key = tuple(map(id, masks))
    if key not in known:
        known[key] = masks, reduce(_both, masks)  # masks are kept, so that no other has their number
    return known[key][1]


def _both(one: NDArray[np.bool_] | None, other: NDArray[np.bool_]) -> NDArray[np.bool_]:
    return other if one is None else one & other

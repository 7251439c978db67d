"""The valid plans of a space, one pipeline depth at a time, as arrays; and why the others are not valid."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardplan.estimation.question import Question
from shardplan.inputs.degrees import Degrees, Setting
from shardplan.inputs.plan import Plan
from shardplan.planner.space import POINT, Space
from shardplan.validity.rules import RULES, Rule

Points = dict[str, NDArray[np.int64]]
Sharding = tuple[str, int | None]
Recomputation = tuple[str, int | None]

NEEDS = {"cp_comm": "cp", "sequence_parallel": "tp", "overlap_tp": "tp", "overlap_ep": "ep", "tp_kind": "tp"}
"""Fields whose alternatives are the same plan where this degree is one."""
DUPLICATE = "the same plan in other words"
ANOTHER_DP = "dp is one of those asked for"


@dataclass(frozen=True, kw_only=True)
class Family:
    """Plans of one pipeline depth and one setting of the switches: the product of its axes, where the masks allow."""

    pp: int
    switches: dict[str, Any]
    vps: tuple[int, ...]
    recomputations: tuple[Recomputation, ...]
    shardings: tuple[Sharding, ...]
    points: Points
    """Valid combinations of the degrees that shape a layer: an array for each field of ``POINT``."""
    interleaves: NDArray[np.bool_]
    """For every point whether it may have more than one chunk per rank."""
    shards: NDArray[np.bool_]
    """For every kind of sharding and every point whether it is valid (and not another in other words)."""

    @property
    def num_points(self) -> int:
        """Points of the innermost axis."""
        return len(self.interleaves)

    def plan(self, sharding: int, recomputation: int, vp: int, point: int) -> Plan:
        """The plan with ``vp`` chunks per rank at these positions of the other axes."""
        kind, degree = self.shardings[sharding]
        policy, layers = self.recomputations[recomputation]
        fields: dict[str, Any] = {
            **self.switches,
            **{name: int(values[point]) for name, values in self.points.items()},
            "sharding": kind,
        }
        return Plan(pp=self.pp, vp=vp, sharding_degree=degree, recompute=policy, recompute_num_layers=layers, **fields)


def families(question: Question, space: Space, rejected: Counter[str]) -> Iterator[Family]:
    """All valid plans of ``space``; ``rejected`` is filled with the number of others by the rule they break."""
    setting = Setting.of(question.model, question.cluster, question.num_accelerators, question.job)
    for pp, switches in itertools.product(space.axes["pp"], space.switches()):
        draft = _Draft.of(setting, space, pp, switches, rejected)
        if draft.size:
            family = draft.family(rejected)
            if family.num_points:
                yield family


def _rule(name: str) -> Rule:
    return next(rule for rule in RULES if rule.name == name)


LAYERS = _rule("every stage has layers")
MODULES = _rule("recomputed modules exist in the model")
INTERLEAVING = _rule("interleaving has whole groups of micro-batches")
SHARDING = _rule("sharding groups divide the replicas")
PIPELINED = _rule("gradients are sharded without a pipeline")
POINT_RULES = tuple(rule for rule in RULES if rule not in (LAYERS, MODULES, INTERLEAVING, SHARDING, PIPELINED))


@dataclass(frozen=True, kw_only=True)
class _Draft:
    """A family whose points are still to be checked."""

    setting: Setting
    space: Space
    pp: int
    switches: dict[str, Any]
    vps: tuple[int, ...]
    recomputations: tuple[Recomputation, ...]
    shardings: tuple[Sharding, ...]

    @classmethod
    def of(cls, setting: Setting, space: Space, pp: int, switches: dict[str, Any], rejected: Counter[str]) -> _Draft:
        """The axes of this pipeline depth."""

        def holds(rule: Rule, **fields: Any) -> bool:
            return bool(np.all(rule.holds(setting, Degrees.of(Plan(pp=pp, **fields)))))

        chunks, policies = space.virtual_stages(pp, switches.get("schedule")), space.recomputations(pp)
        vps = tuple(vp for vp in chunks if holds(LAYERS, vp=vp, **switches))
        recomputations = tuple(pair for pair in policies if holds(MODULES, recompute=pair[0]))
        kinds = space.shardings()
        shardings = tuple(pair for pair in kinds if holds(PIPELINED, sharding=pair[0]))
        others = len(kinds) * math.prod(len(space.axes[name]) for name in POINT)
        rejected[LAYERS.name] += (len(chunks) - len(vps)) * len(policies) * others
        rejected[MODULES.name] += len(vps) * (len(policies) - len(recomputations)) * others
        unshared = (len(kinds) - len(shardings)) * others // len(kinds)
        rejected[PIPELINED.name] += len(vps) * len(recomputations) * unshared
        return cls(
            setting=setting,
            space=space,
            pp=pp,
            switches=switches,
            vps=vps,
            recomputations=recomputations,
            shardings=shardings,
        )

    @property
    def size(self) -> int:
        """Plans for each point."""
        return len(self.vps) * len(self.recomputations) * len(self.shardings)

    def family(self, rejected: Counter[str]) -> Family:
        """The valid points, with what else is valid at each: interleaving, and every kind of sharding."""
        points = self._points(rejected)
        degrees = self._degrees(points)
        shape = points["tp"].shape
        chunked = INTERLEAVING.holds(self.setting, replace(degrees, vp=2, interleaved=True))
        interleaves = np.broadcast_to(np.asarray(chunked), shape) & (self.pp > 1)
        shards = np.stack([self._shards(degrees, sharding) for sharding in self.shardings])
        chunks = np.where(interleaves, len(self.vps), self.vps.count(1))
        rejected[INTERLEAVING.name] += int((len(self.vps) - chunks).sum()) * self.size // len(self.vps)
        rejected[SHARDING.name] += int((~shards * chunks).sum()) * len(self.recomputations)
        kept = shards.any(axis=0) & (chunks > 0)
        return Family(
            pp=self.pp,
            switches=self.switches,
            vps=self.vps,
            recomputations=self.recomputations,
            shardings=self.shardings,
            points={name: values[kept] for name, values in points.items()},
            interleaves=interleaves[kept],
            shards=shards[:, kept],
        )

    def _points(self, rejected: Counter[str]) -> Points:
        """Points that keep all rules; each rule sees those that kept the rules before it."""
        points = self._declared(rejected)
        checks = [(rule.name, rule.holds) for rule in POINT_RULES]
        for reason, holds in [*checks, (DUPLICATE, lambda _setting, degrees: self._distinct(degrees))]:
            kept = np.broadcast_to(np.asarray(holds(self.setting, self._degrees(points))), points["tp"].shape)
            broken = kept.size - int(np.count_nonzero(kept))
            if broken:
                rejected[reason] += broken * self.size
                points = {name: values[kept] for name, values in points.items()}
        return points

    def _declared(self, rejected: Counter[str]) -> Points:
        """The product of the candidates of every field of ``POINT``, less what the user's dp leaves out."""
        axes = [np.asarray(self.space.axes[name], dtype=np.int64) for name in POINT]
        grid = np.meshgrid(*axes, indexing="ij")
        points = {name: values.ravel() for name, values in zip(POINT, grid, strict=True)}
        if self.space.dp is None:
            return points
        allowed = np.isin(self.setting.num_accelerators // (points["tp"] * points["cp"] * self.pp), self.space.dp)
        rejected[ANOTHER_DP] += int(np.count_nonzero(~allowed)) * self.size
        return {name: values[allowed] for name, values in points.items()}

    def _degrees(self, points: Points) -> Degrees:
        plan = Plan(pp=self.pp, **{name: value for name, value in self.switches.items() if name != "schedule"})
        numbers: dict[str, Any] = dict(points)
        return replace(Degrees.of(plan), **numbers)

    def _distinct(self, degrees: Degrees) -> Any:
        """Whether a plan is not the same as one with an earlier alternative of a switch."""
        distinct: Any = True
        for name, dimension in NEEDS.items():
            if name in self.switches and self.switches[name] != self.space.axes[name][0]:
                distinct = distinct & (np.asarray(getattr(degrees, dimension)) > 1)
        orders, order = self.space.axes["placement"], self.switches["placement"]
        dp = self.setting.num_accelerators // (np.asarray(degrees.tp) * np.asarray(degrees.cp) * self.pp)
        for earlier in orders[: orders.index(order)]:
            repeated = (dp == 1) & _same_without("dp", order, earlier)
            distinct = distinct & ~(repeated | (self.pp == 1 and _same_without("pp", order, earlier)))
        return distinct

    def _shards(self, degrees: Degrees, sharding: Sharding) -> NDArray[np.bool_]:
        """Where a kind of sharding is valid; without replicas all are the same, and the first stands for them."""
        kind, degree = sharding
        valid = SHARDING.holds(self.setting, replace(degrees, sharding_degree=degree or 0, hybrid=kind == "hsdp"))
        n, tp = self.setting.num_accelerators, np.asarray(degrees.tp)
        alone = n == tp * self.pp
        if self.setting.num_experts:
            alone &= n == self.pp * np.asarray(degrees.ep) * np.asarray(degrees.etp)
        return np.broadcast_to(np.asarray(valid) & (~alone | (sharding == self.shardings[0])), tp.shape)


def _same_without(dimension: str, one: str, other: str) -> bool:
    return _order_without(dimension, one) == _order_without(dimension, other)


def _order_without(dimension: str, placement: str) -> list[str]:
    return [part for part in placement.split("-") if part != dimension]

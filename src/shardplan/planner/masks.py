"""Rules of a framework on the points of a family, each applied where what it reads is decided.

Rules that read sharding, recomputation or chunks per rank are asked for each of their values at every point. A rule
that reads two of these holds for one where it holds with every candidate of the other, so that no plan is kept that
the framework refuses; rules of recomputation and chunks that read nothing else but the depth are exact
(``Family.together``).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import cache, wraps
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from shardplan.base.arrays import Flags, all_hold
from shardplan.base.fields import dataclass, replace
from shardplan.inputs.plan_numbers import Degrees, Setting, degrees_with
from shardplan.physics.frameworks.runnable import FrameworkRule
from shardplan.planner.family import ShardingPair, degrees_at
from shardplan.planner.space import GRID, RECOMPUTED, SHARDED

CHUNKS = ("vp",)
PLACES = (*(name for name in GRID if name != "pp"), "placement")
"""Fields that differ among the points of one depth."""

Fields = dict[str, Any]
Layers = tuple[tuple[int | None, ...], ...]


def _reads(rule: FrameworkRule, names: Sequence[str]) -> bool:
    return not {*names}.isdisjoint(rule.reads)


@dataclass(frozen=True, kw_only=True)
class SortedRules:
    """Rules of a framework by what decides them."""

    of_points: tuple[FrameworkRule, ...]
    """By degrees, placement and switches alone."""
    of_depths: tuple[FrameworkRule, ...]
    """By depth and chunks per rank."""
    of_chunks: tuple[FrameworkRule, ...]
    """By chunks per rank and other degrees."""
    of_shardings: tuple[FrameworkRule, ...]
    of_recomputation: tuple[FrameworkRule, ...]
    of_both: tuple[FrameworkRule, ...]
    """By recomputation, chunks per rank and depth."""

    @classmethod
    def of(cls, rules: Sequence[FrameworkRule]) -> SortedRules:
        """Every rule once, in the order in which they are named."""
        places = [_place(rule) for rule in rules]
        names = ("of_points", "of_depths", "of_chunks", "of_shardings", "of_recomputation", "of_both")
        return cls(
            **{name: tuple(r for r, place in zip(rules, places, strict=True) if place == name) for name in names}
        )


def _place(rule: FrameworkRule) -> str:
    sharding, recompute, chunks = (_reads(rule, names) for names in (SHARDED, RECOMPUTED, CHUNKS))
    if sharding:
        return "of_shardings"
    if recompute:
        return "of_both" if chunks and not _reads(rule, PLACES) else "of_recomputation"
    if chunks:
        return "of_chunks" if _reads(rule, PLACES) else "of_depths"
    return "of_points"


def degrees_of_chunks(vps: Sequence[int] | NDArray[np.int64], **fields: Any) -> Degrees:
    """The plan of ``fields`` with each of several numbers of chunks per rank."""
    chunks = np.asarray(vps)
    return replace(degrees_with(fields), vp=chunks, interleaved=_interleaved(chunks, fields.get("schedule")))


def _interleaved(chunks: NDArray[np.int64], schedule: str | None) -> NDArray[np.bool_]:
    return chunks > 1 if schedule is None else np.full(chunks.shape, schedule == "interleaved")


EVERYWHERE: Final = np.ones((), dtype=bool)
"""Stands for a mask that holds everywhere, of whatever shape."""


def _once(made: Callable[..., NDArray[np.bool_]]) -> Callable[..., NDArray[np.bool_]]:
    """What is found for a rule is kept for other switches that it does not read."""

    @wraps(made)
    def found(masks: Masks, rule: FrameworkRule, *others: Any) -> NDArray[np.bool_]:
        key = made.__name__, id(rule), *(masks.switches.get(name) for name in rule.reads)
        if key not in masks.known:
            found = made(masks, rule, *others)
            masks.known[key] = EVERYWHERE if found.all() else found
        return masks.known[key]

    return found


@dataclass(frozen=True, kw_only=True)
class Masks:
    """What a framework can run at listed points."""

    setting: Setting
    switches: Fields
    points: dict[str, NDArray[np.int64]]
    placements: tuple[str, ...]
    depths: tuple[int, ...]
    vps: tuple[tuple[int, ...], ...]
    """Chunks per rank at every depth."""
    policies: tuple[str, ...]
    layers: Layers
    """For every depth the layers to which each slot of recomputation applies."""
    known: dict[Any, NDArray[np.bool_]]
    """What has been found at these points."""

    @_once
    def places(self, rule: FrameworkRule) -> NDArray[np.bool_]:
        """Where a rule of degrees and placement holds."""
        return self._holds(rule, {})

    @_once
    def shards(self, rule: FrameworkRule, pairs: Sequence[ShardingPair]) -> NDArray[np.bool_]:
        """Where each kind of sharding is allowed: kinds by points."""
        pairs_as_fields = [
            {"sharding": kind, "sharding_degree": degrees_at(degree, self.points)} for kind, degree in pairs
        ]
        return np.stack([self._holds_with_all(rule, fields) for fields in pairs_as_fields])

    @_once
    def recomputes(self, rule: FrameworkRule) -> NDArray[np.bool_]:
        """Where each slot of recomputation is allowed: slots by points."""
        if "recompute_num_layers" in rule.reads:
            return np.stack([self._slot(rule, slot) for slot in range(len(self.policies))])
        of_policy = {policy: self._slot(rule, self.policies.index(policy)) for policy in {*self.policies}}
        return np.stack([of_policy[policy] for policy in self.policies])

    @_once
    def single(self, rule: FrameworkRule) -> NDArray[np.bool_]:
        """Where one chunk per rank is allowed."""
        return self._holds(rule, {"vp": 1})

    @_once
    def interleaves(self, rule: FrameworkRule) -> NDArray[np.bool_]:
        """Where every larger number of chunks that the depth has is allowed."""
        several = np.asarray(sorted({vp for vps in self.vps for vp in vps if vp > 1}), dtype=np.int64)
        if not len(several):
            return np.ones(len(self._depth), dtype=bool)
        has = np.asarray([np.isin(several, vps) for vps in self.vps])[self._depth].T
        held: NDArray[np.bool_] = (self._holds(rule, {"vp": several[:, None]}) | ~has).all(axis=0)
        return held

    @_once
    def together(self, rule: FrameworkRule) -> NDArray[np.bool_]:
        """Which slots of recomputation go with which chunks per rank: slots by layouts."""
        sizes = [len(vps) for vps in self.vps]
        pp, vp = np.repeat(self.depths, sizes), np.concatenate(self.vps)

        @cache
        def held(policy: str, number: int | None) -> NDArray[np.bool_]:
            fields = {**self.switches, "recompute": policy, "recompute_num_layers": number}
            degrees = replace(degrees_of_chunks(vp, **fields), pp=pp)
            return np.broadcast_to(np.asarray(rule.holds(self.setting, degrees), dtype=bool), vp.shape)

        depths = np.repeat(np.arange(len(sizes)), sizes)
        rows = []
        for slot, policy in enumerate(self.policies):
            numbers = [each[slot] for each in self.layers]
            found = np.stack([held(policy, number) for number in dict.fromkeys(numbers)])
            which = np.asarray([list(dict.fromkeys(numbers)).index(number) for number in numbers])
            rows.append(found[which[depths], np.arange(len(vp))])
        return np.stack(rows)

    @property
    def _depth(self) -> NDArray[np.int64]:
        return self.points["depth"]

    def _slot(self, rule: FrameworkRule, slot: int) -> NDArray[np.bool_]:
        numbers = [layers[slot] for layers in self.layers]
        held = np.ones(len(self._depth), dtype=bool)
        for number in dict.fromkeys(numbers if "recompute_num_layers" in rule.reads else [None]):
            fields = {"recompute": self.policies[slot], "recompute_num_layers": number}
            found = self._holds_with_all(rule, fields)
            alike = np.asarray([each == number for each in numbers])[self._depth]
            held &= found | ~alike if "recompute_num_layers" in rule.reads else found
        return held

    def _holds_with_all(self, rule: FrameworkRule, fields: Fields) -> NDArray[np.bool_]:
        """Where a rule holds whatever the recomputation and the chunks per rank that ``fields`` leave open."""
        held = [self._holds(rule, {**others, **fields}) for others in self._left_open(rule, fields)]
        return np.asarray(all_hold(held), dtype=bool)

    def _left_open(self, rule: FrameworkRule, fields: Fields) -> Iterator[Fields]:
        """Every combination of the fields that a rule reads besides."""
        chunks = sorted({vp for vps in self.vps for vp in vps}) if _reads(rule, CHUNKS) else [1]
        slots: list[tuple[str, int | None]] = [("none", None)]
        if _reads(rule, RECOMPUTED) and "recompute" not in fields:
            slots = list(dict.fromkeys(pair for row in self.layers for pair in zip(self.policies, row, strict=True)))
        for vp, (policy, number) in itertools.product(chunks, slots):
            yield {"vp": vp, "recompute": policy, "recompute_num_layers": number}

    def _holds(self, rule: FrameworkRule, fields: Fields) -> NDArray[np.bool_]:
        """Where a rule holds with these values of the fields that do not differ among points."""
        if "placement" not in rule.reads:
            return self._broadcast(rule.holds(self.setting, self._degrees(fields)))
        found = [
            self._broadcast(rule.holds(self.setting, self._degrees({**fields, "placement": placement})))
            for placement in self.placements
        ]
        return np.stack(found)[self.points["placement"], ..., np.arange(len(self._depth))].T

    def _degrees(self, fields: Fields) -> Degrees:
        columns: dict[str, Any] = {name: self.points[name] for name in GRID}
        columns |= {name: value for name, value in fields.items() if isinstance(value, np.ndarray)}
        single = {name: value for name, value in fields.items() if name not in columns}
        if "vp" in columns:
            columns["interleaved"] = _interleaved(columns["vp"], self.switches.get("schedule"))
        return replace(degrees_with({**self.switches, **single}), **columns)

    def _broadcast(self, flags: Flags) -> NDArray[np.bool_]:
        found = np.asarray(flags, dtype=bool)
        return np.broadcast_to(found, (*found.shape[:-1], *self._depth.shape))

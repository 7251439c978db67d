"""Which rank sits on which accelerator, node and domain, and with whom it forms the groups of a plan.

Ranks are numbered in mixed radix along the placement, as by Megatron's ``RankGenerator`` (megatron/core/
parallel_state.py): among n ranks of a dimension that lie s apart, rank r has the place (r // s) mod n. Frameworks start
ranks node by node, so that they fill the domains of the network in order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardplan.base.fields import dataclass
from shardplan.inputs.plan_numbers import Digit, PlanNumbers, digits
from shardplan.physics.costs.network import ranks_per_domain

if TYPE_CHECKING:
    from shardplan.estimation.estimate import Estimate
    from shardplan.estimation.question import Question

Ranks = NDArray[np.int64]
TITLES: Final = {
    "tp": "share every matrix",
    "cp": "share every sequence",
    "ep": "share the experts of a layer",
    "etp": "share every expert",
    "dp": "hold the same weights, read other sequences",
    "dp-cp": "hold the same weights",
    "edp": "hold the same experts",
    "pp": "hold the stages of one pipeline",
}
"""What the ranks of a group do, by its kind, in the order in which they are shown."""


class Level(NamedTuple):
    """Domains of accelerators, such as nodes and racks."""

    name: str
    size: int
    """Accelerators of a domain."""
    ranks: int
    """Ranks that lie in one; in the last there may be fewer."""


class Strided(NamedTuple):
    """Ranks of a dimension that lie equally far apart."""

    size: int
    stride: int


@dataclass(frozen=True, kw_only=True)
class GroupKind:
    """The groups of one parallel dimension."""

    name: str
    runs: tuple[Strided, ...]
    """Its ranks, innermost first."""
    sent: Mapping[str, float]
    """Bytes that a rank of the slowest stage sends to its group in a step, by network tier; none where they are counted
    with another kind."""

    @property
    def title(self) -> str:
        """What its ranks do."""
        return TITLES[self.name]

    @property
    def size(self) -> int:
        """Ranks of a group."""
        return math.prod(run.size for run in self.runs)

    def places(self, ranks: Ranks) -> Ranks:
        """Place of every rank in its group."""
        found, inner = np.zeros_like(ranks), 1
        for run in self.runs:
            found += ranks // run.stride % run.size * inner
            inner *= run.size
        return found

    def groups(self, num_ranks: int) -> Ranks:
        """All groups, one in every row, each in the order of its places."""
        ranks = np.arange(num_ranks)
        others = ranks[self.places(ranks) == 0]
        steps = np.zeros(1, dtype=np.int64)
        for run in self.runs:
            steps = (np.arange(run.size)[:, None] * run.stride + steps).ravel()
        return others[:, None] + steps


@dataclass(frozen=True, kw_only=True)
class RankLayout:
    """Where every rank of a plan lies, and its groups."""

    num_ranks: int
    order: str
    """The dimensions from the inside out, as in ``Plan.placement``."""
    levels: tuple[Level, ...]
    """Inner to outer; nodes are among them."""
    kinds: tuple[GroupKind, ...]
    """Of two ranks and more."""
    tiers: tuple[str, ...]
    """Network tiers, inner to outer."""

    @property
    def node(self) -> Level:
        """The node, which has a host."""
        return next(level for level in self.levels if level.name == "node")

    def places(self, ranks: Ranks) -> dict[str, Ranks]:
        """For all ``ranks`` the number of their domain on every level, from 0, and that of the accelerator in its node.

        Numbers go on from one domain to the next.
        """
        found: dict[str, Ranks] = {}
        within, first = ranks, np.zeros_like(ranks)
        for level, inner in pairwise((*reversed(self.levels), Level("", 1, 1))):
            found[level.name] = first + within // level.ranks
            within = within % level.ranks
            first = found[level.name] * math.ceil(level.ranks / inner.ranks)
            if level.name == "node":
                found["accelerator"] = within
        return found

    def spread(self, kind: GroupKind, level: Level) -> int:
        """Domains of a level in which the groups of a kind lie, of the group that lies in most."""
        numbers = np.sort(self.places(kind.groups(self.num_ranks))[level.name], axis=1)
        return int((np.diff(numbers, axis=1) > 0).sum(axis=1).max(initial=0)) + 1


def layout_of(question: Question, estimate: Estimate) -> RankLayout:
    """The layout of an estimate's plan, with the bytes that its groups send."""
    plan, used = estimate.plan, question.num_accelerators
    laid = digits(PlanNumbers.of(plan, used, question.job))
    together = laid | ({"dp-cp": laid["cp"] + laid["dp"]} if plan.cp > 1 else {})
    sent = dict(estimate.communication)
    if plan.cp > 1 and "dp" in sent:  # states are exchanged by all ranks that hold the same weights
        sent["dp-cp"] = sent.pop("dp")
    kinds = [
        GroupKind(name=name, runs=_runs(together[name]), sent=sent.get(name, {})) for name in TITLES if name in together
    ]
    if not question.model.is_moe:
        kinds = [kind for kind in kinds if kind.name not in ("ep", "etp", "edp")]
    return RankLayout(
        num_ranks=used,
        order=plan.placement,
        levels=_levels(question),
        kinds=tuple(kind for kind in kinds if kind.size > 1),
        tiers=tuple(tier.name for tier in question.network.tiers),
    )


def _runs(laid: tuple[Digit, ...]) -> tuple[Strided, ...]:
    """In whole numbers, without those of one rank."""
    runs = (Strided(int(digit.size), int(digit.stride)) for digit in laid)
    return tuple(run for run in runs if run.size > 1)


def _levels(question: Question) -> tuple[Level, ...]:
    """Nodes and the domains of all bounded tiers, inner to outer."""
    tiers = [(tier.size, tier.name) for tier in question.network.tiers if tier.size is not None]
    node = (question.cluster.accelerators_per_node, "node")
    sizes = sorted([node, *(each for each in tiers if node[0] != each[0])])
    used, given = question.num_accelerators, question.num_given
    return tuple(Level(name, size, ranks_per_domain(size, used, given)) for size, name in sizes)

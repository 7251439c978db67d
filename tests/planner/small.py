"""Small random spaces, some of whose candidates break rules, and every plan of a family one by one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from tests.strategies import clusters, jobs, models

from shardplan.estimation.question import Question
from shardplan.inputs.plan import Plan
from shardplan.planner.evaluation import Table, evaluated
from shardplan.planner.family import Family, KnownPipelines, Layouts
from shardplan.planner.points import families
from shardplan.planner.pricing.pieces import FASTEST, Objective
from shardplan.planner.pricing.tables import Tables
from shardplan.planner.restrictions import Restrictions
from shardplan.planner.space import Space, declare

CANDIDATES: dict[str, tuple[Any, ...]] = {
    "tp": (1, 2, 4, 8, 3),
    "cp": (1, 2, 3),
    "pp": (1, 2, 4, 3, 5),
    "ep": (1, 2, 4),
    "etp": (1, 2),
    "micro_batch_size": (1, 2, 3),
    "sharding": ("zero1", "ddp", "zero2", "zero3", "hsdp", "hpz"),
    "recompute": ("none", "full", "selective", "mlp", "moe"),
    "placement": ("tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp", "dp-tp-cp-ep-pp"),
}
"""Candidates of fields that are always given, the first of them valid for most questions."""
RARE: dict[str, tuple[Any, ...]] = {
    "vp": (1, 2, 3),
    "sharding_degree": (None, 2, 4),
    "recompute_num_layers": (None, 1, 2),
    "sequence_parallel": (True, False),
    "cp_comm": ("p2p", "allgather", "a2a"),
    "overlap_tp": (False, True),
    "overlap_ep": (True, False),
    "overlap_pp": (None, True),
    "offload": ("none", "optimizer", "activations"),
    "schedule": ("1f1b", "gpipe", "interleaved"),
    "microbatch_group_size": (None, 4),
    "dp": (1, 2, 4),
}
"""Candidates of fields that are mostly left alone."""


FACTORS = (1.0, 0.03, 0.3, 4.0, 30.0)
"""Of bandwidths and latencies."""
FULL = (1.0, 0.4, 0.1, 0.03, 0.01)
"""Shares of the memory beyond context and communicators."""


@st.composite
def questions(draw: st.DrawFn) -> Question:
    """Small models on up to 24 accelerators."""
    model, n = draw(models()), draw(st.sampled_from((16, 8, 24, 4, 1)))
    job = draw(jobs(n * draw(st.sampled_from((1, 2, 6)))))
    return Question(model=model, cluster=draw(clusters()), num_accelerators=n, job=job)


def evaluate(question: Question, family: Family, objective: Objective = FASTEST) -> Table:
    """Every valid plan of a family."""
    return evaluated(Tables(question=question, family=family, known=KnownPipelines()), objective)


@st.composite
def alike(draw: st.DrawFn) -> list[Question]:
    """A question with other capacities, networks and rates of the accelerator, in any order."""
    asked = draw(questions())
    tiers = draw(st.lists(st.lists(st.sampled_from(FACTORS), min_size=6, max_size=6), min_size=1, max_size=3))
    shares = draw(st.lists(st.sampled_from(FULL), min_size=1, max_size=4, unique=True))
    return draw(st.permutations([_changed(asked, factors, share) for factors in tiers for share in shares]))


def _changed(asked: Question, factors: list[float], share: float) -> Question:
    """``factors``: of bandwidth and latency of the innermost tier, and of those around it; of memory and peaks."""
    cluster, context = asked.cluster, float(asked.profile.context_bytes)
    tiers = tuple(
        replace(tier, bandwidth=tier.bandwidth * factors[2 * (n > 0)], latency=tier.latency * factors[2 * (n > 0) + 1])
        for n, tier in enumerate(cluster.tiers)
    )
    memory = context + share * (cluster.accelerator.memory_bytes - context)
    part = replace(
        cluster.accelerator,
        memory_bytes=memory,
        memory_bandwidth=cluster.accelerator.memory_bandwidth * factors[4],
        peak_flops={name: peak * factors[5] for name, peak in cluster.accelerator.peak_flops.items()},
    )
    return replace(asked, cluster=replace(cluster, accelerator=part, tiers=tiers))


@st.composite
def limits(draw: st.DrawFn) -> dict[str, list[Any]]:
    """The first candidate of most fields and often another, in any order; of few fields any two."""
    rare = draw(st.lists(st.sampled_from(sorted(RARE)), max_size=3, unique=True))
    if "schedule" in rare and "vp" in rare:
        rare.remove("vp")
    found = {}
    for name, values in CANDIDATES.items():
        size = draw(st.sampled_from((1, 1, 0))) + (name == "pp")
        others = draw(st.lists(st.sampled_from(values[1:]), min_size=size, max_size=size, unique=True))
        found[name] = draw(st.permutations([values[0], *others]))
    return found | {
        name: draw(st.lists(st.sampled_from(RARE[name]), min_size=1, max_size=2, unique=True)) for name in rare
    }


@st.composite
def spaces(draw: st.DrawFn, *, most: int) -> tuple[Question, Space]:
    """A question with a space of up to ``most`` combinations."""
    question = draw(questions())
    found = draw(
        limits().map(lambda limit: declare(question, Restrictions(limit=limit))).filter(lambda s: size_of(s) <= most)
    )
    return question, found


def size_of(space: Space) -> int:
    """At most so many combinations."""
    return math.prod(len(values) for values in space.declared().values())


def families_of(question: Question, space: Space) -> list[Family]:
    """Families with plans."""
    return list(families(question, space, Counter()))


def positions(family: Family) -> Iterator[tuple[int, int, int, int]]:
    """Sharding, slot of recomputation, chunks per rank and point of every valid plan."""
    for point in range(family.num_points):
        depth = int(family.points["depth"][point])
        for vp in family.vps[depth]:
            for slot in range(len(family.policies)):
                for sharding in range(len(family.shardings)):
                    known = family.recomputes[slot, point] and family.shards[sharding, point]
                    if known and _goes_with(family, slot, vp, point):
                        yield sharding, slot, vp, point


def _goes_with(family: Family, slot: int, vp: int, point: int) -> bool:
    """Whether a point may have so many chunks per rank, together with this recomputation."""
    depth = int(family.points["depth"][point])
    layout = sum(map(len, family.vps[:depth])) + family.vps[depth].index(vp)
    together = family.together is None or bool(family.together[slot, layout])
    return together and bool((family.single if vp == 1 else family.interleaves)[point])


def plans_of(family: Family) -> list[Plan]:
    """Every valid plan."""
    return [family.plan(*position) for position in positions(family)]


def layout_of(layouts: Layouts, family: Family, vp: int, point: int) -> int:
    """Which of the layouts a plan has."""
    depth = int(family.points["depth"][point])
    return int(layouts.first[depth]) + family.vps[depth].index(vp)


TIME_OF_ALL = Objective(value=lambda step: step.busiest, finished=FASTEST.finished)
"""Step time, also of plans that do not fit. [s]"""

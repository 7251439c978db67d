"""The search against every plan of small spaces, one by one, for every kind of model, schedule and switch."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from tests.examples import GB, accelerator, cluster, llama
from tests.few import few
from tests.planner.brute_force import best_of_each, priced, valid_plans, without_software
from tests.strategies import clusters, jobs, models

from shardplan.estimation.priced import PricedPlan
from shardplan.estimation.question import Question
from shardplan.inputs.job import Job
from shardplan.inputs.layers import MixtureOfExperts
from shardplan.inputs.model import ModelConfig
from shardplan.planner.result import SearchResult
from shardplan.planner.search import search_question

TOP = 4
SWITCHES: dict[str, list[list[Any]]] = {
    "schedule": [[None], [None], ["1f1b", "interleaved"], ["gpipe", "1f1b"]],
    "offload": [["none"], ["none"], ["none", "optimizer"], ["activations", "none"]],
    "placement": [["tp-cp-ep-dp-pp"], ["tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"]],
    "overlap_dp": [[True], [False, True]],
    "overlap_tp": [[False], [False, True]],
    "cp_comm": [["p2p"], ["p2p", "allgather"]],
    "sequence_parallel": [[True], [True, False]],
}
"""Candidates of fields that select formulas."""


@dataclass(frozen=True)
class Space:
    """A question and the candidates of its plans."""

    question: Question
    limit: dict[str, list[Any]]


@st.composite
def limits(draw: st.DrawFn, model: ModelConfig) -> dict[str, list[Any]]:
    """Candidates of every field: few, in any order."""

    def some(values: list[Any], most: int = 2) -> list[Any]:
        return draw(st.lists(st.sampled_from(values), min_size=1, max_size=most, unique=True))

    switched = draw(st.lists(st.sampled_from(sorted(SWITCHES)), max_size=2, unique=True))
    shards: list[Any] = draw(st.sampled_from(([None], [None], [2])))
    kinds = ["ddp", "zero1", "zero2", "zero3"] if shards == [None] else ["ddp", "zero1", "zero2", "hsdp", "hpz"]
    limit: dict[str, list[Any]] = {
        "tp": some([1, 2, 4], 3), "cp": some([1, 2]), "pp": some([1, 2, 3, 4], 3), "vp": some([1, 2, 3]),
        "micro_batch_size": some([1, 2, 3]), "sharding": some(kinds, 3), "sharding_degree": shards,
        "recompute": some(["none", "core_attn,layernorm", "full"]), "recompute_num_layers": some([None, 1]),
        "placement": ["tp-cp-ep-dp-pp"],
    }  # fmt: skip
    if any(isinstance(kind.mlp, MixtureOfExperts) for kind in model.layer_kinds):
        limit |= {"ep": some([1, 2, 4]), "etp": some([1, 2])}
    chosen: dict[str, list[Any]] = {name: draw(st.sampled_from(SWITCHES[name])) for name in switched}
    return limit | chosen


@st.composite
def spaces(draw: st.DrawFn) -> Space:
    """Small spaces of every family of models."""
    n = draw(st.sampled_from((1, 4, 6, 8, 12)))
    model = replace(draw(models()), norm_weight=draw(st.booleans()))
    asked = Question(
        model=model, cluster=draw(clusters()), num_accelerators=n, job=draw(jobs(n * draw(st.sampled_from((2, 6))))),
    )  # fmt: skip
    return Space(asked, draw(limits(model)))


def tight(asked: Question, answers: list[PricedPlan]) -> Question:
    """The same on accelerators that hold about half of the plans."""
    needed = float(np.median([answer.peak_memory_bytes for answer in answers]))
    part = asked.cluster.accelerator
    per_byte = part.memory_bytes - float(asked.profile.context_bytes)
    memory = float(asked.profile.context_bytes) + per_byte * needed / float(asked.usable_memory)
    return replace(asked, cluster=replace(asked.cluster, accelerator=replace(part, memory_bytes=memory * (1 + 1e-9))))


@few(8, suppress_health_check=[HealthCheck.too_slow])
@given(spaces())
def test_counts_and_the_best_plans_are_those_of_all_plans_one_by_one(space: Space) -> None:
    answers = priced(space.question, space.limit)
    asked = tight(space.question, answers) if answers else space.question
    fitting = [answer for answer in answers if answer.peak_memory_bytes <= float(asked.usable_memory)]
    result = search_question(asked, limit=space.limit, top=TOP, use_all=True)
    assert result.num_plans_evaluated == len({without_software(asked, each.plan) for each in answers})
    assert result.num_plans_feasible == len({without_software(asked, each.plan) for each in fitting})
    check_list(result, fitting)


def check_list(result: SearchResult, fitting: list[PricedPlan]) -> None:
    """The best plans, different in their degrees; others where these are too few."""
    found = [answer.step_time for answer in result.estimates]
    best = best_of_each(fitting)
    assert len(found) >= min(TOP, len(best))
    assert found[:1] == pytest.approx(best[:1], rel=1e-12)
    if len(best) >= TOP:
        assert found == pytest.approx(best[:TOP], rel=1e-12)
    for answer in result.estimates:
        (same,) = (each for each in fitting if each.plan == answer.plan)
        assert same.step_time == pytest.approx(answer.step_time, rel=1e-12)


@few(5)
@given(spaces(), st.integers(0, 1000))
def test_the_order_of_candidates_never_matters(space: Space, seed: int) -> None:
    """Of all fields but sharding, of which the next test is."""
    shuffled = {name: random.Random(seed).sample(values, len(values)) for name, values in space.limit.items()}  # noqa: S311  # an order, no secret
    shuffled["sharding"] = space.limit["sharding"]
    given_, other = (search_question(space.question, limit=limit, top=TOP) for limit in (space.limit, shuffled))
    check_same(given_, other)


def check_same(one: SearchResult, other: SearchResult) -> None:
    """Counts and times of two answers."""
    assert one.num_plans_evaluated == other.num_plans_evaluated
    assert one.num_plans_feasible == other.num_plans_feasible
    times, others = ([answer.step_time for answer in result.estimates] for result in (one, other))
    assert times == pytest.approx(others, rel=1e-12)
    assert (one.ties is None) == (other.ties is None)
    if one.ties is not None and other.ties is not None:
        assert one.ties.num_plans == other.ties.num_plans


def test_the_order_of_shardings_never_matters() -> None:
    """Alone a rank that shards by zero3 keeps buffers for gathered weights that ddp does without."""
    model = llama(4096, 8, 32, 8, 14336, vocab_size=128256)
    asked = Question(
        model=model, cluster=cluster(part=accelerator(memory_bytes=80 * GB)), num_accelerators=8,
        job=Job(sequence_length=2048, global_batch_size=8),
    )  # fmt: skip
    limit: dict[str, list[Any]] = {"tp": [8], "pp": [1], "cp": [1], "recompute": ["full"], "micro_batch_size": [1]}
    orders = (["ddp", "zero3"], ["zero3", "ddp"])
    one, other = (valid_plans(asked, {**limit, "sharding": kinds}) for kinds in orders)
    assert one
    assert one == other
    check_same(*(search_question(asked, limit={**limit, "sharding": kinds}, top=TOP) for kinds in orders))

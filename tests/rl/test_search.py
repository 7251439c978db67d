"""The search of an RL step against all splits and layouts, one by one, and what it refuses."""

from typing import Any

import numpy as np
import pytest
from tests.rl.steps import FEW, asked

from shardplan.base.errors import InputError
from shardplan.base.fields import replace
from shardplan.planner.priced_plans import has_headroom
from shardplan.rl.search import LEAST_GAIN, PlacementSearch, search_rl
from shardplan.rl.sizes import Trainers
from shardplan.rl.task import PLACEMENTS

CRITICS: tuple[dict[str, Any], ...] = ({}, {"algorithm": "ppo"})
NO_PASS: dict[str, Any] = dict.fromkeys(("reference", "old_pass"), "no")


QUESTIONS: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
    ({}, {}),
    ({"num_accelerators": 96}, {"prompts": 96, "updates": 2}),
    ({"model": "qwen3-30b-a3b", "num_accelerators": 48, "limit": {**FEW["limit"], "micro_batch_size": ["1"]}}, {}),
)
"""Dense and mixture, few nodes and many."""


@pytest.mark.parametrize(("question", "step"), QUESTIONS)
def test_no_split_is_faster_by_enough(question: dict[str, Any], step: dict[str, Any]) -> None:
    """Against all splits, each with a search of its trainer over all software."""
    one = asked(question, **step)
    result = search_rl(one.task, one.searches)
    found = {plan.placement: plan for plan in result.plans}
    total = one.task.question.num_accelerators
    every = PlacementSearch(one.task, one.searches, have_room=True)
    for placement, facts in PLACEMENTS.items():
        splits = [(n, total - n) for n in range(8, total, 8)] if facts.two_pools else [(total, total)]
        plans = [plan for split in splits if (plan := every.at(placement, split)[0])]
        best = min(plan.step_time for plan in plans)
        assert best * 0.999 <= found[placement].step_time <= best * (1 + 1.01 * LEAST_GAIN)
        assert (found[placement].num_train, found[placement].num_rollout) in splits
    times = [plan.step_time for plan in result.plans]
    assert times == sorted(times)
    assert not result.refused


@pytest.mark.parametrize(("question", "step"), QUESTIONS)
def test_trainers_take_no_less_than_their_bound(question: dict[str, Any], step: dict[str, Any]) -> None:
    one = asked(question, **step)
    trainers = Trainers(one.task, one.searches, 0.0)
    sizes = range(8, one.task.question.num_accelerators, 8)
    bounds = {n: trainers.least(n) for n in sizes}
    exact = {n: trained for n in sizes if not isinstance(trained := trainers.on(n, alone=True), str)}
    assert len(exact) >= 2
    for n, trained in exact.items():
        assert 0.3 * trainers.time(trained) < bounds[n] <= trainers.time(trained) * (1 + LEAST_GAIN)


ROOMY: dict[str, Any] = {"pp": ["1"], "cp": ["1"], "tp": ["1"], "ep": ["8", "16"], "micro_batch_size": ["1"]}


@pytest.mark.parametrize(("sharding", "has_room"), [(["zero1", "zero2"], True), (["zero1"], False)])
def test_trainers_have_headroom_where_a_plan_has_it(sharding: list[str], *, has_room: bool) -> None:
    """Of a plan that fits at the upper end of its memory band and a faster one that may not fit, the safe one."""
    question = {"model": "qwen3-30b-a3b", "limit": {**FEW["limit"], **ROOMY, "sharding": sharding}}
    step = {"prompts": 64, "samples": 32, "response_tokens": "mean=2k,max=4k"}
    one = asked(question, **step, placement="async")
    trained = search_rl(one.task, one.searches).plans[0].trained
    assert has_headroom(trained.priced.question, np.array([trained.priced.peak_memory_bytes])).all() == has_room
    assert trained.fits


def test_idle_shares_and_phases_add_up() -> None:
    one = asked()
    for plan in search_rl(one.task, one.searches).plans:
        cycle = plan.cycle
        assert 0 <= cycle.idle("trainer") < 1
        assert max(phase.time for phase in cycle.phases) <= plan.step_time <= sum(p.time for p in cycle.phases) + 1e-9
        if cycle.shares_pool:
            assert plan.step_time == pytest.approx(sum(phase.time for phase in cycle.phases))
            assert cycle.idle("rollout") == pytest.approx(0, abs=1e-9)
        assert plan.trainer_memory <= plan.usable_memory
        assert plan.pool.room >= 1


def test_adapters_alone_reach_an_engine_that_runs_them() -> None:
    def transfer(train: str, engine: str) -> float:
        one = asked({"train": train, "fix": {"train.tp": ["1"]}}, placement="colocated", engine=engine)
        (plan,) = search_rl(one.task, one.searches).plans
        said = [text for text in one.assumptions if text.startswith(engine)]
        assert len(said) == (train == "lora")
        return plan.cycle.time_of("transfer")

    assert transfer("lora", "vllm") < transfer("lora", "sglang") == transfer("full", "sglang")


def test_fixed_layouts_stay() -> None:
    one = asked({"fix": {"train.tp": ["2"], "rollout.tp": ["4"]}}, placement="colocated")
    (plan,) = search_rl(one.task, one.searches).plans
    assert plan.trained.priced.plan.tp == 2
    assert plan.pool.engine.replica.tp == 4


def test_given_pools_stay() -> None:
    one = asked({"num_accelerators": "8+3x8"})
    result = search_rl(one.task, one.searches)
    assert {(plan.num_train, plan.num_rollout) for plan in result.plans} == {(8, 24)}
    assert set(result.refused) == {"colocated", "partial"}


def test_pools_on_two_clusters() -> None:
    one = asked({"num_accelerators": "8+16"}, rollout_cluster="hgx-h20")
    result = search_rl(one.task, one.searches)
    assert result.best is not None
    assert result.best.pool.engine.cluster.name == "hgx-h20"


def test_a_critic_and_more_passes_take_longer() -> None:
    plain, ppo = (asked(placement="colocated", **how) for how in CRITICS)
    times = [search_rl(one.task, one.searches).plans[0] for one in (plain, ppo)]
    assert times[1].cycle.time_of("critic") > times[0].cycle.time_of("critic") == 0
    without = asked(None, placement="colocated", **NO_PASS)
    assert search_rl(without.task, without.searches).plans[0].cycle.time_of("log_probs") == 0


def test_older_answers_hide_the_longest() -> None:
    def step(staleness: int) -> float:
        one = asked({"num_accelerators": "16+16"}, placement="async", staleness=staleness)
        return search_rl(one.task, one.searches).plans[0].step_time

    times = [step(staleness) for staleness in (1, 2, 8)]
    assert times == sorted(times, reverse=True)


@pytest.mark.parametrize(
    ("question", "step", "named"),
    [
        ({}, {"prompts": None}, "--prompts"),
        ({}, {"updates": 5}, "divisor"),
        ({}, {"response_tokens": "mean=1k,max=200k"}, "window"),
        ({}, {"pack_tokens": 1000}, "longest answer"),
        ({}, {"placement": "sideways"}, "placement"),
        ({}, {"placement": "async", "staleness": 0}, "step old"),
        ({"num_accelerators": "8+8"}, {"placement": "colocated"}, "one pool"),
        ({"num_accelerators": "8+8+8"}, {}, "trainer+generation"),
        ({"num_accelerators": "many"}, {}, "trainer+generation"),
        ({}, {"critic": "llama-3.2-1b"}, "ppo"),
        ({}, {"algorithm": "sarsa"}, "algorithm"),
        ({}, {"reference": "perhaps"}, "yes or no"),
        ({}, {"speculative": "medusa"}, "mtp"),
        ({}, {"transfer": "pigeon"}, "transfer"),
        ({}, {"engine": "abacus"}, "engine"),
        ({}, {"rollout_precision": "int3"}, "rollout_precision"),
        ({"fix": {"tp": ["2"]}}, {}, "names its pool"),
        ({"fix": {"rollout.tp": ["two"]}}, {}, "whole number"),
        ({"global_batch_size": 64}, {}, "follows from the answers"),
    ],
)
def test_wrong_steps_are_refused(question: dict[str, Any], step: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError) as refused:
        asked(question, **step)
    assert named in f"{refused.value} {refused.value.rule} {refused.value.hint}"


def test_no_room_for_a_sequence_is_no_layout() -> None:
    one = asked()
    tight = replace(one.task.question.cluster.accelerator, memory_bytes=7e9)
    cluster = replace(one.task.question.cluster, accelerator=tight)
    search = PlacementSearch(replace(one.task, rollout_cluster=cluster), one.searches)
    assert [pool.engine.replica.tp for pool, _ in search.pools(32, shares=False)] == [2, 4, 8]

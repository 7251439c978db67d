"""The search of an RL step against all splits and layouts, one by one, and what it refuses."""

from typing import Any

import pytest
from tests.rl.steps import asked

from shardplan.base.errors import InputError
from shardplan.base.fields import replace
from shardplan.rl.search import FEW_SPLITS, PlacementSearch, RlPlan, search_rl
from shardplan.rl.task import PLACEMENTS

CRITICS: tuple[dict[str, Any], ...] = ({}, {"algorithm": "ppo"})
NO_PASS: dict[str, Any] = dict.fromkeys(("reference", "old_pass"), "no")


@pytest.fixture(scope="module")
def brute() -> dict[str, RlPlan]:
    """The best of all splits, by placement."""
    one = asked()
    found: dict[str, RlPlan] = {}
    for placement, facts in PLACEMENTS.items():
        splits = [(n, 32 - n) for n in (8, 16, 24)] if facts.two_pools else [(32, 32)]
        search = PlacementSearch(one.task, one.searches)
        plans = [search._fastest(placement, *split)[0] for split in splits]
        found[placement] = min((plan for plan in plans if plan), key=lambda plan: plan.step_time)
    return found


def test_the_best_of_every_placement_is_found(brute: dict[str, RlPlan]) -> None:
    one = asked()
    result = search_rl(one.task, one.searches)
    assert len((8, 16, 24)) > FEW_SPLITS  # so that not all splits are searched
    assert {plan.placement: plan.step_time for plan in result.plans} == pytest.approx(
        {name: plan.step_time for name, plan in brute.items()}
    )
    times = [plan.step_time for plan in result.plans]
    assert times == sorted(times)
    assert not result.refused


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
        ({}, {"speculative": "eagle"}, "mtp"),
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

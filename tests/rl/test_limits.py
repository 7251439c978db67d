"""What an RL step is where the answer is known without data, and in which direction it must change."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardplan.ask.questions import ask
from shardplan.base.fields import replace
from shardplan.estimation.question import Question
from shardplan.inputs.plan import Plan
from shardplan.rl.engine import Engine, Replica
from shardplan.rl.generation import Responses, RolloutPool
from shardplan.rl.lengths import Lengths
from shardplan.rl.steps import PhaseTimes, cycle_of
from shardplan.rl.trainer import Packing, Trained

TIMES = PhaseTimes(
    generation=50.0, steady=40.0, reward=0.0, log_probs=10.0, critic=0.0, update=20.0, transfer=0.0, switch=0.0
)
FEW = settings(max_examples=12, deadline=None)


@cache
def question(cluster: str = "dgx-h100") -> Question:
    record = {"model": "llama-3.1-8b", "cluster": cluster, "num_accelerators": 8}
    return ask({**record, "sequence_length": 4096, "global_batch_size": 8, "stack": "megatron-bridge"}).question


def pool(
    lengths: Lengths, *, prompts: int = 4, samples: int = 4, replicas: int = 1, cluster: str = "dgx-h100"
) -> RolloutPool:
    asked = question(cluster)
    engine = Engine(model=asked.model, cluster=asked.cluster, replica=Replica())
    answers = Responses(prompts=prompts, samples=samples, prompt_tokens=128, lengths=lengths)
    return RolloutPool(engine=engine, num_replicas=replicas, answers=answers, memory=60e9)


def test_one_replica_and_equal_lengths_give_the_closed_form() -> None:
    """All 16 answers run from the first token to the last: tokens times the iteration of 16 in the middle."""
    found = pool(Lengths(mean=1000, cap=1000, spread=0.0, endless=0.0))
    closed = 1000 * float(found.engine.iteration_time(16, 128 + 500))
    assert found.generated.decoding == pytest.approx(closed, rel=0.01)
    assert found.generated.at_once == 16


@pytest.mark.parametrize(
    ("placement", "step"),
    [("colocated", 80.0), ("partial", 70.0), ("in-turns", 80.0), ("one-step-off", 50.0), ("async", 40.0)],
)
def test_without_network_and_rewards_a_step_is_the_sum_or_the_longer_pool(placement: str, step: float) -> None:
    assert cycle_of(placement, TIMES).step_time == pytest.approx(step)


def test_without_answer_tokens_the_step_is_the_trainers() -> None:
    found = pool(Lengths(mean=0, cap=1, endless=0.0))
    assert found.generated.decoding == pytest.approx(0.0, abs=0.05)
    times = replace(TIMES, generation=0.0, steady=0.0)
    for placement in ("colocated", "one-step-off", "async"):
        assert cycle_of(placement, times).step_time == pytest.approx(30.0)


def test_more_memory_bandwidth_is_never_slower() -> None:
    lengths = Lengths(mean=1000, cap=4000)
    slower, faster = (pool(lengths, cluster=name).generated.total for name in ("dgx-h100", "hgx-h200"))
    assert faster < slower


@given(replicas=st.integers(1, 15))
@FEW
def test_more_replicas_are_never_slower(replicas: int) -> None:
    lengths = Lengths(mean=1000, cap=4000)
    fewer, more = (pool(lengths, prompts=64, replicas=number).generated.total for number in (replicas, replicas + 1))
    assert more <= fewer * 1.001


@given(mean=st.integers(100, 1900))
@FEW
def test_longer_answers_take_longer(mean: int) -> None:
    shorter, longer = (pool(Lengths(mean=tokens, cap=4000)).generated.total for tokens in (mean, mean + 100))
    assert longer >= shorter


@given(factor=st.integers(2, 6))
@FEW
def test_times_scale_with_all_phases(factor: int) -> None:
    scaled = PhaseTimes(**{name: factor * getattr(TIMES, name) for name in PhaseTimes.__dataclass_fields__})
    for placement in ("colocated", "partial", "in-turns", "one-step-off", "async"):
        assert cycle_of(placement, scaled).step_time == pytest.approx(factor * cycle_of(placement, TIMES).step_time)


def test_the_trainer_takes_as_long_for_twice_the_answers_of_half_the_length() -> None:
    def trained(prompts: int, mean: int) -> Trained:
        answers = Responses(prompts=prompts, samples=16, prompt_tokens=0, lengths=Lengths(mean=mean, cap=4096))
        packing = Packing(answers=answers, pack_tokens=4096, updates=1)
        return Trained.of(question(), Plan(), packing)

    long, short = trained(16, 2048), trained(32, 1024)
    assert short.update_time == pytest.approx(long.update_time, rel=0.05)


def test_packs_hold_their_answers() -> None:
    """Answers of 60 % of a pack do not share one; those of 10 % fill it."""
    for tokens, filled in ((600, 0.6), (100, 1.0)):
        lengths = Lengths(mean=tokens, cap=1000, spread=0.0, endless=0.0)
        answers = Responses(prompts=40, samples=1, prompt_tokens=0, lengths=lengths)
        assert Packing(answers=answers, pack_tokens=1000, updates=1).filled == pytest.approx(filled, abs=0.01)

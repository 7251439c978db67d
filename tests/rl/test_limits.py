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
from shardplan.rl.engine import Adapters, Engine, Replica, rates_of
from shardplan.rl.generation import Responses, RolloutPool
from shardplan.rl.lengths import Lengths
from shardplan.rl.steps import PhaseTimes, cycle_of
from shardplan.rl.trainer import Packing, Trained
from shardplan.rl.transfer import engine_facts, sent_adapters, transfer_methods, transfer_time

TIMES = PhaseTimes(generation=50.0, steady=40.0, reward=0.0, log_probs=10.0, critic=0.0, update=20.0, transfer=0.0)
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


METHODS = transfer_methods()


def adapters(rank: int = 16, targets: str = "q,v", model: str = "llama-3.1-8b") -> Adapters:
    """Those that a job sends."""
    record = {"model": model, "cluster": "dgx-h100", "num_accelerators": 8, "train": "lora", "lora_rank": rank}
    found = sent_adapters(ask({**record, "lora_targets": targets}).question, engine_facts("vllm"))
    assert found is not None
    return found


def sent(method: str, what: Adapters | None, **replica: int) -> float:
    asked, laid_out = question(), Replica(**replica)
    return transfer_time(method, Engine(model=asked.model, cluster=asked.cluster, replica=laid_out, adapters=what))


def test_adapters_are_counted_in_bytes_and_tensors() -> None:
    """Llama-3.1-8B: q is 4,096 x 4,096 and v 4,096 x 1,024, each with two factors of the rank, in 32 layers."""
    parameters = 32 * 16 * ((4096 + 4096) + (4096 + 1024))
    assert adapters() == Adapters(2 * parameters, 32 * 2 * 2)
    assert adapters(rank=32).bytes == 2 * adapters().bytes
    assert adapters(targets="all").num_tensors == 32 * 7 * 2
    assert adapters(targets="q,gate", model="qwen3-30b-a3b").num_tensors == 48 * 2 * (1 + 128)


@pytest.mark.parametrize("method", METHODS)
def test_no_adapters_take_the_fixed_time_and_more_of_them_longer(method: str) -> None:
    nothing, some, more = (sent(method, Adapters(size, 0)) for size in (0.0, 1e9, 2e9))
    assert nothing == pytest.approx(rates_of(method)["fixed"])
    assert more - some == pytest.approx(some - nothing)
    assert sent(method, adapters()) < sent(method, None)
    assert sent(method, adapters(), tp=8) == sent(method, adapters())  # all of them on every accelerator


@pytest.mark.parametrize(("engine", "train"), [("vllm", "lora"), ("sglang", "lora"), ("vllm", "full")])
def test_an_engine_without_adapters_and_full_training_get_all_weights(engine: str, train: str) -> None:
    asked = ask({"model": "llama-3.1-8b", "cluster": "dgx-h100", "num_accelerators": 8, "train": train}).question
    facts = engine_facts(engine)
    assert (sent_adapters(asked, facts) is not None) == ((engine, train) == ("vllm", "lora"))
    assert "verl" in facts.adapters_source

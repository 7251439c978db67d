"""A decode iteration: bytes and operations counted by hand, and what must grow with what."""

import numpy as np
import pytest

from shardplan.ask.names import cluster_of, model_of
from shardplan.rl.engine import Engine, Replica, constant


def engine(model: str = "llama-3.1-8b", cluster: str = "dgx-h100", **how: int) -> Engine:
    return Engine(model=model_of(model), cluster=cluster_of(cluster, None, None), replica=Replica(**how))


def test_weights_are_those_of_the_model() -> None:
    one = engine()
    assert one.weights == pytest.approx(2 * one.model.num_parameters, rel=0.001)
    assert engine(tp=8).weights == pytest.approx(one.weights / 8, rel=0.01)
    assert engine(tp=2, pp=2).weights == pytest.approx(one.weights / 4, rel=0.01)


@pytest.mark.parametrize(
    ("model", "tp", "each"),
    [
        ("llama-3.1-8b", 1, 32 * 2 * 8 * 128 * 2),
        ("llama-3.1-8b", 8, 32 * 2 * 1 * 128 * 2),
        ("llama-3.1-8b", 16, 32 * 2 * 1 * 128 * 2),  # key-value heads are repeated
        ("deepseek-v3", 8, 61 * (512 + 64) * 2),  # every rank keeps the latent
    ],
)
def test_the_cache_of_a_token(model: str, tp: int, each: int) -> None:
    assert float(engine(model, tp=tp).cache_of(1000)) == pytest.approx(1000 * each)


def test_a_window_bounds_the_cache() -> None:
    found = engine("mistral-7b")
    windows = {entry.window for _, entry in found.caches}
    assert min(windows) < 32768
    assert float(found.cache_of(1e6)) < 1e6 * float(found.cache_of(1))


def test_an_iteration_of_one_sequence_reads_all_weights() -> None:
    one = engine()
    table = one.model.num_embedding_parameters
    rate = one.question.machine.memory_rate * constant("decode_bandwidth")
    read = (one.weights - 2 * table) / rate
    found = float(one.iteration_time(1, 0)) - constant("iteration_time")
    assert read < found < read + 0.002


def test_the_cache_is_read_in_every_iteration() -> None:
    one = engine()
    rate = one.question.machine.memory_rate * constant("decode_bandwidth")
    longer = float(one.iteration_time(64, 4000) - one.iteration_time(64, 2000))
    assert longer == pytest.approx(64 * float(one.cache_of(2000)) / rate, rel=1e-6)


def test_more_sequences_take_longer_and_less_each() -> None:
    batches = np.array([1, 8, 64, 512])
    for model in ("llama-3.1-8b", "qwen3-30b-a3b"):
        times = np.asarray(engine(model, tp=2).iteration_time(batches, 1000))
        assert (np.diff(times) > 0).all()
        assert (np.diff(times / batches) < 0).all()


def test_few_tokens_of_a_mixture_read_few_experts() -> None:
    mixture = engine("qwen3-30b-a3b")
    one, many = (float(mixture.iteration_time(batch, 0)) for batch in (1, 256))
    weights = mixture.weights / mixture.question.machine.memory_rate
    assert one < weights < many


def test_replicas_over_several_nodes_wait_for_one_another() -> None:
    inside, across = engine(tp=8), engine(tp=16)
    assert across.spans_nodes
    assert not inside.spans_nodes
    assert float(across.iteration_time(1, 0)) > float(inside.iteration_time(1, 0))


def test_prompts_cost_what_a_forward_pass_costs() -> None:
    one = engine()
    flops = 2 * one.model.num_parameters * 64 * 512
    assert one.prompt_time(64, 512) > flops / one.cluster.accelerator.peak("bf16")
    assert one.prompt_time(64, 512) == pytest.approx(2 * one.prompt_time(32, 512), rel=0.1)
    assert one.prompt_time(0, 512) == 0

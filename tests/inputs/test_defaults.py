"""Batches that nobody asked for: those of makers against what they published, others by how they grow."""

from __future__ import annotations

from dataclasses import replace
from math import gcd
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import shardplan
from shardplan import load_cluster, load_model
from shardplan.inputs.defaults import (
    MOST_ABOVE_USUAL,
    MOST_OFF,
    default_job,
    default_sequence_length,
    num_sequences,
    usual_batch,
    usual_tokens,
)
from shardplan.inputs.job import Job
from shardplan.inputs.readers.names import makers_batches, model_sources

PUBLISHED = {
    "deepseek-v2": (4096, 9216),  # arXiv 2405.04434, section 3.1.2
    "deepseek-v3": (4096, 15_360),  # arXiv 2412.19437, section 4.2
    "llama-3.1-405b": (8192, 2048),  # arXiv 2407.21783, table 4
    "megatron-530b": (2048, 1920),  # arXiv 2201.11990, section 2.5
    "nemotron-h-56b": (8192, 768),  # arXiv 2504.03624
}
"""Sequence length and sequences of a step."""
PUBLISHED_TOKENS = {
    "gpt3-175b": 3.2e6,  # arXiv 2005.14165, table 2.1
    "kimi-k2": 67e6,  # arXiv 2507.20534, section 2.5
    "llama-2-70b": 4e6,  # arXiv 2307.09288, table 1
    "deepseek-v3": 63e6,
    "llama-3.1-405b": 16e6,
}
COUNTS = st.integers(1, 200_000)
LENGTHS = st.sampled_from([512, 2048, 4096, 8192, 32_768, 131_072, 6000, 1536])


def job(sequence_length: int, **fields: Any) -> Job:
    return Job(sequence_length=sequence_length, global_batch_size=1, **fields)


@pytest.mark.parametrize(("name", "published"), PUBLISHED.items())
def test_sequences_are_those_that_the_maker_published(name: str, published: tuple[int, int]) -> None:
    length, number = published
    found = usual_batch(load_model(name), job(length), 2048)
    assert found.num_sequences == number
    assert "that of the model's maker, arXiv" in found.assumption


@pytest.mark.parametrize(("name", "tokens"), PUBLISHED_TOKENS.items())
@pytest.mark.parametrize("length", [2048, 4096, 8192])
def test_tokens_are_those_that_the_maker_published_at_any_length(name: str, tokens: float, length: int) -> None:
    """To a twentieth: papers round, and a batch of round numbers is near the rounded one."""
    assert usual_batch(load_model(name), job(length), 64).tokens == pytest.approx(tokens, rel=0.05)


def test_every_makers_batch_is_of_a_built_in_model_and_has_a_source() -> None:
    for name, made in makers_batches().items():
        assert name in model_sources()
        assert made.source
        model = load_model(name)
        found = usual_batch(model, job(default_sequence_length(model)), 64)
        assert found.tokens == pytest.approx(made.tokens, rel=0.2)
        assert made.source in found.assumption


@pytest.mark.parametrize(
    "fields", [{"train": "lora"}, {"freeze": "embedding"}, {"tokens": 1e9}], ids=["adapters", "frozen", "few tokens"]
)
def test_what_is_no_pre_training_does_not_take_the_makers_batch(fields: dict[str, Any]) -> None:
    model = load_model("deepseek-v3")
    found = usual_batch(model, job(4096, **fields), 64)
    assert found.num_sequences == 1024
    assert "the usual one of 64 accelerators" in found.assumption
    assert usual_batch(model, job(4096, tokens=14.8e12), 64).num_sequences == 15_360


def test_another_model_under_the_name_of_a_built_in_one_has_no_maker() -> None:
    model = load_model("llama-3.1-405b")
    smaller = replace(model, layers=model.layers[:-1])
    assert usual_batch(smaller, job(8192), 64).num_sequences == 512


def test_the_batch_of_a_job_is_stated_with_its_source() -> None:
    model, cluster = load_model("kimi-k2"), load_cluster("dgx-h100")
    posed, assumed = default_job(model, cluster, 256, sequence_length=4096)
    assert posed.global_batch_size == 16_384
    assert any(
        "16,384 sequences (67.1 M tokens): that of the model's maker, arXiv 2507.20534" in each for each in assumed
    )
    given, stated = default_job(model, cluster, 256, sequence_length=4096, global_batch_size=64)
    assert given.global_batch_size == 64
    assert not any("global batch" in each for each in stated)


@given(COUNTS, COUNTS)
def test_tokens_never_fall_with_the_count_and_grow_no_faster(first: int, second: int) -> None:
    few, many = sorted((first, second))
    assert usual_tokens(few) <= usual_tokens(many) <= usual_tokens(few) * many / few


@given(COUNTS, COUNTS, LENGTHS)
def test_the_batch_grows_as_the_tokens_do_but_for_divisors(first: int, second: int, length: int) -> None:
    few, many = sorted((first, second))
    jump = num_sequences(usual_tokens(many), length, many) / num_sequences(usual_tokens(few), length, few)
    most = MOST_ABOVE_USUAL * MOST_OFF
    assert 1 / most <= jump <= most * many / few


@given(st.integers(1, 20_000), LENGTHS)
def test_twice_the_accelerators_never_have_a_smaller_batch(number: int, length: int) -> None:
    few, many = (num_sequences(usual_tokens(each), length, each) for each in (number, 2 * number))
    assert few <= many <= 2 * few * MOST_OFF


@given(COUNTS, LENGTHS)
def test_the_batch_is_near_the_usual_one_and_has_the_odd_part_of_the_count(number: int, length: int) -> None:
    odd, usual = number // (number & -number), max(usual_tokens(number) / length, 1)
    batch = num_sequences(usual_tokens(number), length, number)
    if odd <= usual:
        assert batch % odd == 0
        assert 1 / MOST_OFF <= batch / usual <= MOST_OFF
    assert 1 / MOST_ABOVE_USUAL <= batch / usual <= MOST_ABOVE_USUAL


def test_between_a_thousand_and_four_thousand_accelerators_nodes_add_as_many_sequences() -> None:
    batches = [num_sequences(usual_tokens(number), 8192, number) for number in range(1024, 4097, 8)]
    assert batches == [number // 2 for number in range(1024, 4097, 8)]


def test_round_counts_have_the_four_and_sixteen_million_tokens_of_llama() -> None:
    for number in (8, 64, 512, 1024):
        assert num_sequences(usual_tokens(number), 8192, number) == 512
    for number in (4096, 8192, 16_384):
        assert num_sequences(usual_tokens(number), 8192, number) == 2048


@given(st.integers(1, 4096), st.integers(1, 64))
def test_a_makers_batch_leaves_data_parallelism_choices(number: int, millions: int) -> None:
    """Replicas that share it have 32 accelerators at most, unless there are few sequences."""
    batch = num_sequences(millions * 10**6, 4096, number)
    odd = number // (number & -number)
    if odd <= batch:
        assert number / gcd(batch, number) <= max(32, 2 * number / batch)


@pytest.mark.parametrize("number", [20_000, 65_536])
def test_more_replicas_than_sequences_still_leave_plans(number: int) -> None:
    """Tensor and pipeline parallelism take what data parallelism cannot share."""
    found = shardplan.search("gpt3-175b", "dgx-h100", number, top=1)
    assert found.estimates
    assert found.question.job.global_batch_size < number

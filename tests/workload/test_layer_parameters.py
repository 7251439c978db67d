"""Parameters that one rank holds of a layer, trained, frozen or kept in few bits: counted by hand."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from tests.examples import llama

from shardplan.errors import InputError
from shardplan.inputs.job import Job
from shardplan.inputs.layers import MLP, Attention, Layer, MixtureOfExperts
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.inputs.recurrent import ShortConvolution
from shardplan.workload.layer import (
    Parameters,
    check_adapters,
    held_parameters,
    layer_block,
    layer_parameters,
    mtp_parameters,
)
from shardplan.workload.ops import Block, StreamPass
from shardplan.workload.shard import Shard

H = 64
HEADS = Attention(num_heads=4, num_kv_heads=2, head_dim=16)
CONV = ShortConvolution(num_channels=H, conv_kernel=3)
EXPERTS = MixtureOfExperts(
    num_experts=8, top_k=2, intermediate_size=32, gated=True, shared_intermediate_size=48, latent_size=16
)
ATTENTION = 2 * H * 64 + 2 * H * 32
"""Queries and output of 64 channels, keys and values of 32."""
ROUTER, LATENT, SHARED, ROUTED = H * 8, 2 * H * 16, 3 * H * 48, 8 * 3 * 16 * 32
LORA: dict[str, Any] = {"train": "lora", "lora_rank": 4}
MODEL = llama(H, 1, 4, 2, 96, vocab_size=128)


def numbers(job: Job, num_ranks: int = 1, **plan: Any) -> PlanNumbers:
    return PlanNumbers.of(Plan(**plan), num_ranks, job)


def job(**fields: Any) -> Job:
    return Job(sequence_length=128, global_batch_size=8, **fields)


def with_layer(layer: Layer) -> ModelConfig:
    return replace(MODEL, layers=(layer,))


def held(layer: Layer, of: Job, num_ranks: int = 1, **plan: Any) -> Parameters:
    return held_parameters(with_layer(layer), layer, of, numbers(of, num_ranks, **plan))


EVERY = Parameters(100, 200, 30, 40, 5, 6, 7, 8)
"""A different number of each kind."""


def test_nothing_is_held_of_nothing() -> None:
    assert [getattr(Parameters(), each.name) for each in fields(Parameters)] == [0.0] * 8


def test_sums_are_kind_by_kind() -> None:
    assert Parameters(1, 2, 3, 4, 5, 6, 7, 8) + EVERY == Parameters(101, 202, 33, 44, 10, 12, 14, 16)


def test_trained_frozen_and_unpacked_ones_are_what_is_left() -> None:
    assert EVERY.trained == Parameters(70, 160, by_adam=5)
    assert EVERY.frozen == Parameters(30, 40)
    assert EVERY.unpacked == Parameters(93, 192)
    assert EVERY.as_frozen() == Parameters(100, 200, 100, 200)
    assert Parameters(100, 200, 0, 40, by_adam=5).trained == Parameters(100, 160, by_adam=5)
    assert Parameters(100, 200, 30, 0).trained == Parameters(70, 200)
    assert Parameters(100, 200, by_adam=5).trained == Parameters(100, 200, by_adam=5)


def test_weights_of_few_bits_count_as_those_of_16_that_they_fill() -> None:
    """4.5 of 16 bits: 23 of 32 are away."""
    packed = job(**LORA, base_weights="nf4")
    few = Parameters(6400, 3200, 6400, 3200, 5, 6, 3200, 320)
    assert few.as_kept(packed) == Parameters(6400 - 2300, 3200 - 230, 6400 - 2300, 3200 - 230, 5, 6, 3200, 320)
    assert few.as_kept(packed).trained == few.trained
    assert few.as_kept(job(**LORA)) == few


def test_norms_keep_adam_where_the_optimizer_is_muon() -> None:
    """Two norms and two scales of 64 channels each."""
    layer = Layer(mixer=HEADS, mlp=MLP(intermediate_size=96, gated=True), num_norms=2, layer_scale=True)
    whole = ATTENTION + 3 * H * 96 + 4 * H
    assert held(layer, job()) == Parameters(whole)
    assert held(layer, job(optimizer="muon")) == Parameters(whole, by_adam=4 * H)
    assert EVERY.with_adam(9, job(optimizer="muon")) == replace(EVERY, by_adam=9)
    assert EVERY.with_adam(9, job()) == EVERY


def test_experts_are_over_their_own_ranks_and_routers_on_each() -> None:
    """Of four tensor-parallel ranks (experts: two by two) in eight: attention, shared experts and experts in parts."""
    layer = Layer(mixer=HEADS, mlp=EXPERTS, num_norms=3)
    plan: dict[str, Any] = {"tp": 2, "ep": 4, "etp": 2}
    dense = ATTENTION / 2 + SHARED / 2 + ROUTER + LATENT + 3 * H
    assert layer_parameters(with_layer(layer), layer, numbers(job(), 8, **plan)) == Parameters(dense, ROUTED / 8)


def test_both_mixers_of_a_layer_are_held() -> None:
    layer = Layer(mixer=HEADS, parallel_mixer=CONV, mlp=None, num_norms=1)
    convolution = H * 3 * H + H * 3 + H * H
    assert layer_parameters(with_layer(layer), layer, numbers(job())) == Parameters(ATTENTION + convolution + H)


@pytest.mark.parametrize("gradients", ["input", "none"])
def test_a_frozen_layer_has_weights_alone(gradients: Any) -> None:
    layer = Layer(mixer=HEADS, mlp=EXPERTS, num_norms=2, gradients=gradients)
    whole = ATTENTION + SHARED + ROUTER + LATENT + 2 * H
    assert held(layer, job()) == Parameters(whole, ROUTED, whole, ROUTED)


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_adapters_stand_next_to_frozen_layers_in_few_bits(optimizer: Any) -> None:
    """Of rank 4: q 64 x 64, o 64 x 64; down of every expert 32 x 16 and of the shared one 48 x 64; two ranks share."""
    layer = Layer(mixer=HEADS, mlp=EXPERTS, num_norms=2)
    of = job(**LORA, lora_targets="q,o,down", base_weights="nf4", optimizer=optimizer)
    dense = ATTENTION / 2 + SHARED / 2 + ROUTER + LATENT + 2 * H
    adapters, of_experts = (2 * 4 * (64 + 64) + 4 * (48 + 64)) / 2, 4 * 4 * (32 + 16)
    expected = Parameters(
        dense + adapters, ROUTED / 2 + of_experts, dense, ROUTED / 2,
        by_adam=adapters if optimizer == "muon" else 0,
        packed_dense=dense - 2 * H, packed_experts=ROUTED / 2,
    )  # fmt: skip
    assert held(layer, of, 2, tp=2, ep=2) == expected


@pytest.mark.parametrize("scale", [False, True])
def test_norms_and_scales_are_kept_in_16_bits(*, scale: bool) -> None:
    layer = Layer(mixer=HEADS, mlp=None, num_norms=1, layer_scale=scale)
    found = held(layer, job(**LORA, lora_targets="q", base_weights="nf4"))
    assert (found.packed_dense, found.packed_experts) == (ATTENTION, 0)
    assert found.frozen_dense == ATTENTION + (2 if scale else 1) * H


def test_a_prediction_block_joins_two_states_in_a_frozen_matrix_next_to_adapters() -> None:
    model = replace(MODEL, num_mtp_layers=1)
    joined = 2 * H * H + 3 * H
    for of, frozen in (job(), 0), (job(**LORA, lora_targets="q"), joined):
        at = numbers(of)
        layer = held_parameters(model, model.mtp_layer, of, at)
        assert mtp_parameters(model, of, at) == layer + Parameters(joined, frozen_dense=frozen)


def test_ranks_of_adapters_reach_that_of_the_smallest_matrix() -> None:
    """Keys and values of a layer have 32 columns, so that a rank of 32 is the largest."""
    check_adapters(MODEL, job(**LORA | {"lora_rank": 32}, lora_targets="all"))
    check_adapters(MODEL, job(**LORA | {"lora_rank": 64}, lora_targets="q"))
    check_adapters(MODEL, job(lora_rank=4000))
    with pytest.raises(InputError, match="33; the smallest matrix with an adapter has rank 32"):
        check_adapters(MODEL, job(**LORA | {"lora_rank": 33}, lora_targets="all"))


def test_targets_that_a_model_lacks_are_refused_by_name() -> None:
    layer = Layer(mixer=CONV, mlp=MLP(intermediate_size=96, gated=False), num_norms=2)
    model = with_layer(layer)
    check_adapters(model, job(**LORA, lora_targets="all"))
    with pytest.raises(InputError, match="has no q, gate"):
        check_adapters(model, job(**LORA, lora_targets="q,gate,up"))


def block(layer: Layer, **plan: Any) -> Block:
    return layer_block(layer, Shard.of(H, job(), numbers(job(), **plan)))


def names(layer: Layer) -> list[str]:
    return [each.name for each in block(layer).operators if isinstance(each, StreamPass)]


def test_a_layer_has_its_norms_wherever_it_has_them() -> None:
    """Before mixer and MLP, and what is more behind them; scales behind each block."""
    dense = MLP(intermediate_size=96, gated=True)
    assert names(Layer(mixer=CONV, mlp=dense, num_norms=2)).count("norm") == 2
    assert names(Layer(mixer=CONV, mlp=dense, num_norms=4)).count("norm") == 4
    assert names(Layer(mixer=None, mlp=dense, num_norms=3)).count("norm") == 3
    assert names(Layer(mixer=CONV, mlp=None, num_norms=3)).count("norm") == 3
    assert names(Layer(mixer=CONV, mlp=dense, num_norms=2, layer_scale=True)).count("layer_scale") == 2


def test_the_first_norm_alone_reads_the_input_of_the_layer() -> None:
    dense = MLP(intermediate_size=96, gated=True)
    for layer in (
        Layer(mixer=CONV, mlp=dense, num_norms=4),
        Layer(mixer=None, mlp=dense, num_norms=2),
        Layer(mixer=CONV, mlp=None, num_norms=2),
    ):
        inputs = [each.layer_input for each in block(layer).saved if each.name == "norm_input"]
        assert inputs == [True] + [False] * (layer.num_norms - 1)
    assert not any(each.layer_input for each in block(layer).saved if each.name != "norm_input")

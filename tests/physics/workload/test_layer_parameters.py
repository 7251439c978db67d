"""Parameters of layers, tables and heads on a rank, and the work of Muon on them."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from tests.examples import LLAMA_70B, cluster, deepseek_v3, gpt, ideal_profile, llama, mixtral

from shardplan import estimate
from shardplan.base.errors import InputError
from shardplan.estimation.estimate import Estimate
from shardplan.inputs.job import Job
from shardplan.inputs.layers import MLP, Attention, Layer, MixtureOfExperts
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.inputs.readers.catalog import load_model
from shardplan.inputs.recurrent import ShortConvolution
from shardplan.inputs.software import Software
from shardplan.physics.workload.communication import Shard
from shardplan.physics.workload.embedding import embedding, head, logits, mtp_projection
from shardplan.physics.workload.layer import (
    Parameters,
    check_adapters,
    embedding_parameters,
    head_parameters,
    held_parameters,
    layer_block,
    layer_parameters,
    mtp_parameters,
    newton_schulz_flops,
    orthogonalised,
)
from shardplan.physics.workload.ops import OUTSIDE, Block, Matmul, StreamPass
from shardplan.physics.workload.passes import TRAFFIC

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
    assert [getattr(Parameters(), each.name) for each in fields(Parameters)] == [0.0] * 10


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


LENGTH = 4096


def embedding_numbers(**fields: Any) -> PlanNumbers:
    plan = Plan(**fields)
    job = Job(sequence_length=LENGTH, global_batch_size=plan.micro_batch_size)
    return PlanNumbers.of(plan, plan.model_parallel_degree, job)


def shard(model: ModelConfig, **fields: Any) -> Shard:
    return Shard.of(model.hidden_size, Job(sequence_length=LENGTH, global_batch_size=1), embedding_numbers(**fields))


def flops(block: Block) -> float:
    return float(sum(float(op.flops) for op in block.operators))


def test_a_lookup_takes_no_flop() -> None:
    assert flops(embedding(LLAMA_70B, shard(LLAMA_70B))) == 0


@pytest.mark.parametrize("tp", [1, 8])
@pytest.mark.parametrize("cp", [1, 2])
def test_the_head_takes_two_flop_per_weight_and_token(tp: int, cp: int) -> None:
    """2 b s h V forward (arXiv 2104.04473, appendix)."""
    assert flops(head(LLAMA_70B, shard(LLAMA_70B, tp=tp, cp=cp))) * tp * cp == 2 * LENGTH * 8192 * 128256


def test_logits_are_shared_by_tensor_and_context_ranks() -> None:
    assert logits(LLAMA_70B, shard(LLAMA_70B, tp=8, cp=2, micro_batch_size=2)) == 2 * LENGTH * 128256 / 16


def test_a_tied_table_is_stored_again_where_the_first_stage_is_elsewhere() -> None:
    """Megatron-LM keeps a copy on the last stage and reduces its gradient with the first's."""
    tied = gpt(1024, 4, 16)
    table = 51200 * 1024
    with_table = head_parameters(tied, embedding_numbers(), holds_table=True).dense
    without = head_parameters(tied, embedding_numbers(), holds_table=False).dense
    assert without - with_table == table
    untied = gpt(1024, 4, 16, tied=False)
    for holds_table in (True, False):
        assert head_parameters(untied, embedding_numbers(), holds_table=holds_table).dense == table + 2 * 1024


def test_multi_token_prediction_embeds_tokens_on_the_last_stage() -> None:
    """DeepSeek-V3: 129,280 x 7,168 weights once more over tensor ranks; one table however many modules read it."""
    table = 129280 * 7168
    for num_modules, again in (0, 0), (1, table), (2, table):
        model = deepseek_v3(num_mtp_layers=num_modules)
        last, whole = (
            head_parameters(model, embedding_numbers(tp=2), holds_table=held).dense for held in (False, True)
        )
        assert last - whole == again / 2
    tied = replace(deepseek_v3(num_mtp_layers=1), tie_word_embeddings=True)
    assert head_parameters(tied, embedding_numbers(), holds_table=False).dense == table + 7168


def test_tables_are_shared_by_tensor_ranks() -> None:
    model = gpt(1024, 4, 16)
    assert embedding_parameters(model, embedding_numbers(tp=8)).dense == 51200 * 1024 / 8


def test_prediction_blocks_join_two_hidden_states() -> None:
    """A projection of 2 h to h (DeepSeek-V3, arXiv 2412.19437, section 2.2)."""
    model = deepseek_v3(num_mtp_layers=1)
    assert flops(mtp_projection(shard(model))) == 2 * LENGTH * 2 * 7168**2


@pytest.mark.parametrize(("name", "size", "width"), [("vit-b-16", 16, 768), ("vit-h-14", 14, 1280)])
@pytest.mark.parametrize("tp", [1, 2])
def test_patches_are_a_product_of_pixels_and_channels(name: str, size: int, width: int, tp: int) -> None:
    """A patch has three colours of size x size pixels (arXiv 2010.11929, equation 1): 2 T 3 p^2 h FLOP."""
    model = load_model(name)
    assert flops(embedding(model, shard(model, tp=tp))) == 2 * LENGTH * 3 * size**2 * width / tp


def test_a_classifier_sees_one_token_of_each_image() -> None:
    """The class token of every image, whatever its patches (arXiv 2010.11929, equation 4)."""
    model = load_model("vit-b-16")
    assert model.num_labels
    assert flops(head(model, shard(model, micro_batch_size=4))) == 2 * 4 * 768 * model.num_labels


@pytest.mark.parametrize("tp", [1, 8])
def test_a_masked_language_model_transforms_before_its_head(tp: int) -> None:
    """BERT (arXiv 1810.04805) predicts masked words behind one more dense layer: 2 T h (h + V) FLOP."""
    model = replace(gpt(1024, 4, 16), has_head_transform=True)
    assert tp * flops(head(model, shard(model, tp=tp))) == 2 * LENGTH * 1024 * (1024 + 51200)


def test_the_final_norm_stands_before_the_head() -> None:
    """It keeps its input and its output, 4 s b h bytes (arXiv 2205.05198, section 4.3); without it nothing is kept."""
    for present, kept in (True, 4 * LENGTH * 1024), (False, 0):
        model = replace(gpt(1024, 4, 16), has_final_norm=present)
        assert sum(float(tensor.bytes) for tensor in head(model, shard(model)).saved) == kept


def test_gathered_logits_are_whole_on_every_tensor_rank() -> None:
    """Every rank sends its part of 16-bit logits to all others, and computes the loss of the whole vocabulary."""
    at = embedding_numbers(tp=8)
    job = Job(sequence_length=LENGTH, global_batch_size=1, software=Software(loss_kernel="gathered"))
    gathers = Shard.of(LLAMA_70B.hidden_size, job, at)
    whole = LENGTH * 128256
    assert logits(LLAMA_70B, gathers) == whole == 8 * logits(LLAMA_70B, shard(LLAMA_70B, tp=8))
    (gather,) = [item for item in head(LLAMA_70B, gathers).collectives if item.name == "logits"]
    assert (gather.kind, gather.dimension, gather.bytes) == ("all_gather", "tp", 2 * whole)
    assert flops(head(LLAMA_70B, gathers)) == flops(head(LLAMA_70B, shard(LLAMA_70B, tp=8)))
    pieces = replace(gathers, job=replace(job, software=replace(job.software, fused_loss=True)))
    assert logits(LLAMA_70B, pieces) == whole / 8


def test_a_rank_s_share_of_the_ends_by_hand() -> None:
    """BERT's transform and head on two tensor- and two context-parallel ranks with dropout: one mask, at the table.

    Nothing of the head is in eight bits, its input and its gradients are gathered in 16.
    """
    model = replace(gpt(1024, 4, 16), has_head_transform=True)
    software = Software(gathered_inputs=True)
    job = Job(sequence_length=LENGTH, global_batch_size=1, precision="fp8", dropout=True, software=software)
    at = Shard.of(1024, job, PlanNumbers.of(Plan(tp=2, cp=2), 4, job))
    tokens = LENGTH // 2
    first, last = embedding(model, at), head(model, at)
    assert [(each.name, each.bytes) for each in first.saved] == [("dropout_mask", tokens // 2 * 1024)]
    products = [(op.name, op.m, op.k, op.n, op.low_precision) for op in last.operators if isinstance(op, Matmul)]
    assert products == [
        ("head_transform", tokens, 1024, 512, False), ("head", tokens, 1024, 51200 / 2, False),
    ]  # fmt: skip
    assert [op.name for op in last.operators] == ["norm", "head_transform", "head", "loss"]
    assert {each.name: each.bytes for each in last.saved} == {
        "norm_input": 2 * tokens / 2 * 1024, "norm_output": 2 * tokens / 2 * 1024,
        "gathered_input": 2 * tokens / 2 * 1024,
    }  # fmt: skip
    assert {each.bytes for each in last.collectives} == {2 * tokens * 1024}
    assert {each.modules for each in (*first.operators, *last.operators, *last.collectives, *last.saved)} == {OUTSIDE}


def test_patches_and_classifiers_run_in_wide_numbers() -> None:
    model = load_model("vit-b-16")
    products = [
        op
        for block in (embedding(model, shard(model, tp=2)), head(model, shard(model, tp=2, micro_batch_size=4)))
        for op in block.operators
        if isinstance(op, Matmul)
    ]
    assert [(op.name, op.m, op.k, op.n, op.low_precision) for op in products] == [
        ("patches", LENGTH, 3 * 16 * 16, 384, False), ("classifier", 4, 768, 1000, False),
    ]  # fmt: skip
    assert not head(model, shard(model, tp=2)).collectives


@pytest.mark.parametrize("tp", [1, 4])
@pytest.mark.parametrize(
    ("fields", "alone", "shared"),
    [
        ({"loss_kernel": "in_place"}, "loss", "loss"),
        ({"loss_kernel": "single"}, "loss in one kernel", "loss in one kernel"),
        ({"loss_kernel": "in_place", "fused_loss": True}, "loss in one kernel", "loss in one kernel"),
        ({"loss_kernel": "compiled"}, "loss in one kernel", "loss"),
        ({"loss_kernel": "compiled", "kernels": "eager"}, "loss", "loss"),
    ],
)
def test_kernels_of_the_loss(fields: dict[str, Any], alone: str, shared: str, tp: int) -> None:
    """A compiled loss is one kernel where a rank has the whole vocabulary."""
    job = Job(sequence_length=LENGTH, global_batch_size=1, software=Software(**fields))
    at = Shard.of(8192, job, embedding_numbers(tp=tp))
    (found,) = (op for op in head(LLAMA_70B, at).operators if isinstance(op, StreamPass) and op.name == "loss")
    expected = TRAFFIC[shared if tp > 1 else alone].at("loss", (), LENGTH * 128256 / tp, 2)
    assert (found.forward_bytes, found.backward_bytes) == (expected.forward_bytes, expected.backward_bytes)


def test_states_are_joined_in_wide_numbers_behind_two_norms() -> None:
    """By each tensor rank for its own tokens."""
    model = deepseek_v3(num_mtp_layers=1)
    block = mtp_projection(shard(model, tp=4))
    assert [op.name for op in block.operators] == ["norm", "norm", "mtp_projection"]
    (joined,) = (op for op in block.operators if isinstance(op, Matmul))
    assert (joined.m, joined.k, joined.n, joined.low_precision) == (LENGTH / 4, 2 * 7168, 7168, False)


JOB = Job(sequence_length=2048, global_batch_size=64, optimizer="muon")


def answer(job: Job = JOB, plan: Plan | None = None, n: int = 8, **model: Any) -> Estimate:
    asked = llama(1024, 4, 8, 8, 4096, vocab_size=1024, **model)
    return estimate(asked, cluster(), n, plan or Plan(), job=job, profile=ideal_profile(), stack=None)


def test_five_iterations_of_three_products() -> None:
    """X X^T and B X take 2 m m n each, A^2 takes 2 m m m; the smaller side is m, whichever it is."""
    assert newton_schulz_flops(2, 3) == 5 * (2 * 2 * 2 * 3 + 2 * 2 * 2 * 2 + 2 * 2 * 2 * 3)
    assert newton_schulz_flops(8192, 28672) == newton_schulz_flops(28672, 8192)
    assert newton_schulz_flops(4096, 4096) == 30 * 4096**3


def test_matrices_of_a_layer() -> None:
    """Llama 70B: q and o of 8,192 x 8,192, k and v of 8,192 x 1,024, three of 8,192 x 28,672; tp shares them."""
    numbers = PlanNumbers.of(Plan(tp=8), 64, JOB)
    found = orthogonalised(LLAMA_70B, LLAMA_70B.layers[0], JOB, numbers)
    large, square, flat = ((8192, 28672), (8192, 8192), (8192, 1024))
    whole = 3 * newton_schulz_flops(*large) + 2 * newton_schulz_flops(*square) + 2 * newton_schulz_flops(*flat)
    assert float(found.dense) == pytest.approx(whole / 8)
    assert float(found.largest) == pytest.approx(newton_schulz_flops(*large) / 8)


def test_experts_are_matrices_of_their_own() -> None:
    numbers = PlanNumbers.of(Plan(ep=4), 64, JOB)
    found = orthogonalised(mixtral(), mixtral().layers[0], JOB, numbers)
    assert float(found.experts) == pytest.approx(2 * 3 * newton_schulz_flops(4096, 14336))
    assert float(found.largest) == pytest.approx(newton_schulz_flops(4096, 14336))


def test_one_moment_of_matrices_and_two_of_tables() -> None:
    """4 bytes of master copy and 4 of the moment; tables, head and norms 4 more."""
    job = Job(sequence_length=2048, global_batch_size=64, optimizer="muon")
    found, adam = answer(job, n=1), answer(Job(sequence_length=2048, global_batch_size=64), n=1)
    tables, norms = 2 * 1024 * 1024, (2 * 4 + 1) * 1024
    whole = adam.memory[0]["optimizer"] / 12
    assert found.memory[0]["optimizer"] == pytest.approx(8 * whole + 4 * (tables + norms))


def test_replicas_share_the_matrices_down_to_the_largest() -> None:
    """8 replicas take an eighth each under zero1, all under ddp; 64 wait for one of 1,024 x 4,096."""
    plain = Job(sequence_length=2048, global_batch_size=64, optimizer="sgd")

    def extra(n: int, sharding: Any) -> float:
        plan = Plan(sharding=sharding)
        return answer(JOB, plan, n).breakdown["optimizer"] - answer(plain, plan, n).breakdown["optimizer"]

    large, square = newton_schulz_flops(1024, 4096), newton_schulz_flops(1024, 1024)
    whole = 4 * (3 * large + 4 * square)
    assert extra(8, "zero1") == pytest.approx(extra(8, "ddp") / 8)
    assert extra(64, "zero1") / extra(8, "ddp") == pytest.approx(large / whole)


def test_other_optimizers_and_adapters_have_no_such_products() -> None:
    numbers = PlanNumbers.of(Plan(), 8, JOB)
    for given in ({"optimizer": "adam"}, {"optimizer": "muon", "train": "lora"}):
        job = Job(sequence_length=2048, global_batch_size=64, **given)  # type: ignore[arg-type]
        assert orthogonalised(LLAMA_70B, LLAMA_70B.layers[0], job, numbers).dense == 0

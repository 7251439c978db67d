"""Multi-layer perceptrons, dense and of experts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.examples import deepseek_v3, mixtral

from shardplan.inputs.job import Job, Precision
from shardplan.inputs.layers import MLP, MixtureOfExperts
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.inputs.software import CudaGraphs, Software
from shardplan.physics.workload.communication import Shard
from shardplan.physics.workload.mlp import channel_scale, mixture_of_experts, mlp, norm
from shardplan.physics.workload.ops import Block, Matmul, StreamPass
from shardplan.physics.workload.passes import TRAFFIC

LENGTH, HIDDEN, MICRO = 2048, 1024, 2
SBH = LENGTH * MICRO * HIDDEN


def shard(*, precision: Any = "bf16", dropout: bool = False, **fields: Any) -> Shard:
    plan = Plan(micro_batch_size=MICRO, **fields)
    job = Job(sequence_length=LENGTH, global_batch_size=MICRO, precision=precision, dropout=dropout)
    return Shard.of(HIDDEN, job, PlanNumbers.of(plan, plan.model_parallel_degree, job))


def products(block: Block) -> list[Matmul]:
    return [op for op in block.operators if isinstance(op, Matmul)]


@pytest.mark.parametrize("tp", [1, 4])
@pytest.mark.parametrize("sequence_parallel", [True, False])
def test_a_plain_mlp_takes_sixteen_s_b_h_squared(tp: int, *, sequence_parallel: bool) -> None:
    """arXiv 2104.04473, appendix: 16 b s h^2 for two products of four times the width."""
    block = mlp(MLP(intermediate_size=4 * HIDDEN, gated=False), shard(tp=tp, sequence_parallel=sequence_parallel))
    assert tp * sum(float(op.flops) for op in products(block)) == 16 * SBH * HIDDEN


def test_a_gate_is_a_third_matrix() -> None:
    block = mlp(MLP(intermediate_size=3 * HIDDEN, gated=True), shard())
    assert [(op.m, op.k, op.n) for op in products(block)] == [
        (LENGTH * MICRO, HIDDEN, 6 * HIDDEN),
        (LENGTH * MICRO, 3 * HIDDEN, HIDDEN),
    ]


def test_a_grid_splits_tokens_over_rows_and_widths_over_columns() -> None:
    block = mlp(MLP(intermediate_size=4 * HIDDEN, gated=False), shard(tp=8, tp_kind="summa", tp_rows=2))
    assert [(op.m, op.n) for op in products(block)] == [(LENGTH * MICRO / 2, HIDDEN), (LENGTH * MICRO / 2, HIDDEN)]
    assert 8 * sum(float(op.flops) for op in products(block)) == 16 * SBH * HIDDEN


def test_norms_are_split_by_sequence_parallelism_only() -> None:
    """4 s b h for two norms, shared by tensor ranks under sequence parallelism (arXiv 2205.05198, section 4.2.2)."""
    for tp, sequence_parallel, ranks in (4, True, 4), (4, False, 1), (1, True, 1):
        saved = norm(shard(tp=tp, sequence_parallel=sequence_parallel)).saved
        assert sum(float(tensor.bytes) for tensor in saved) == 4 * SBH / ranks


def test_fp8_keeps_inputs_of_products_in_one_byte() -> None:
    bytes_by_name = {tensor.name: tensor.bytes for tensor in norm(shard(precision="fp8")).saved}
    assert bytes_by_name == {"norm_input": 2 * SBH, "norm_output": SBH}


def test_passes_move_whole_tensors() -> None:
    """Elements moved forward and backward, of two bytes."""
    (norms,) = norm(shard()).operators
    assert isinstance(norms, StreamPass)
    assert (norms.forward_bytes, norms.backward_bytes) == (5 * 2 * SBH, 7 * 2 * SBH)
    for gated, forward, backward in (False, 2, 3), (True, 3, 5):
        block = mlp(MLP(intermediate_size=HIDDEN, gated=gated), shard())
        (function,) = (op for op in block.operators if isinstance(op, StreamPass))
        assert (function.forward_bytes, function.backward_bytes) == (forward * 2 * SBH, backward * 2 * SBH)


@pytest.mark.parametrize(("gated", "inner"), [(False, 1), (True, 2)])
def test_an_mlp_keeps_the_output_of_its_first_product_and_the_input_of_its_second(*, gated: bool, inner: int) -> None:
    """19 s b h of a plain one of four times the width is 1 for the mask, 2 for the input and these 16 (2205.05198)."""
    kept = {each.name: each.bytes for each in mlp(MLP(intermediate_size=4 * HIDDEN, gated=gated), shard(tp=2)).saved}
    assert kept == {"mlp_fc1_output": inner * 8 * SBH / 2, "mlp_fc2_input": 8 * SBH / 2}


def test_inputs_of_activation_functions_may_be_kept_in_eight_bits() -> None:
    """Half the bytes of the first product's output, and nothing else less (DeepSeek-V3, arXiv 2412.19437, 3.3.3)."""
    config = MLP(intermediate_size=4 * HIDDEN, gated=True)
    usual, low = (
        {each.name: each.bytes for each in mlp(config, replace(shard(), job=replace(shard().job, software=kept))).saved}
        for kept in (Software(), Software(gate_input_format="fp8"))
    )
    assert low["mlp_fc1_output"] == usual["mlp_fc1_output"] / 2 == 8 * SBH
    assert low["mlp_fc2_input"] == usual["mlp_fc2_input"]


def test_eager_kernels_keep_the_activated_gate_as_well() -> None:
    """One more tensor of the inner width, where gate and product are kernels of their own; none without a gate."""
    job = Job(sequence_length=LENGTH, global_batch_size=MICRO, software=Software(kernels="eager"))
    plan = Plan(micro_batch_size=MICRO, tp=2)
    eager = Shard.of(HIDDEN, job, PlanNumbers.of(plan, 2, job))
    for gated, more in (False, 0), (True, 8 * SBH / 2):
        config = MLP(intermediate_size=4 * HIDDEN, gated=gated)
        fused, apart = (sum(float(t.bytes) for t in mlp(config, each).saved) for each in (shard(tp=2), eager))
        assert apart - fused == more


def test_columns_of_a_grid_add_up_the_mean_and_the_square_of_every_token() -> None:
    """Two numbers of 16 bits for each token of a row, both ways; ranks that hold whole tokens send nothing."""
    assert norm(shard(tp=8)).collectives == ()
    there, back = norm(shard(tp=8, tp_kind="summa", tp_rows=2)).collectives
    assert (there.direction, back.direction) == ("forward", "backward")
    for item in there, back:
        assert (item.kind, item.dimension, item.bytes) == ("all_reduce", "tp", 2 * 2 * LENGTH * MICRO / 2)


@pytest.mark.parametrize("sequence_parallel", [True, False])
def test_a_norm_of_several_kernels_keeps_an_fp32_copy_and_the_scaled_input(*, sequence_parallel: bool) -> None:
    """Six bytes per channel more: 4 of x in fp32, 2 of x / rms(x) in 16 bits, as in Llama's reference RMSNorm."""
    job = Job(sequence_length=LENGTH, global_batch_size=MICRO, software=Software(norm_kernel="eager"))
    plan = Plan(micro_batch_size=MICRO, tp=4, sequence_parallel=sequence_parallel)
    eager = Shard.of(HIDDEN, job, PlanNumbers.of(plan, 4, job))
    fused = shard(tp=4, sequence_parallel=sequence_parallel)
    more = sum(float(t.bytes) for t in norm(eager).saved) - sum(float(t.bytes) for t in norm(fused).saved)
    assert more == 6 * SBH / (4 if sequence_parallel else 1)
    assert float(norm(eager).operators[0].forward_bytes) > float(norm(fused).operators[0].forward_bytes)  # type: ignore[union-attr]  # passes


@pytest.mark.parametrize("gathered", [False, True])
def test_a_rank_s_share_of_norm_and_mlp_by_hand(*, gathered: bool) -> None:
    """Two tensor- and two context-parallel ranks in eight bits with dropout; eager kernels keep the gate."""
    software = Software(kernels="eager", norm_kernel="fused", gathered_inputs=gathered)
    job = Job(sequence_length=LENGTH, global_batch_size=MICRO, precision="fp8", dropout=True, software=software)
    at = Shard.of(HIDDEN, job, PlanNumbers.of(Plan(micro_batch_size=MICRO, tp=2, cp=2), 4, job))
    tokens, width = LENGTH * MICRO // 2, 3 * HIDDEN // 2
    block = mlp(MLP(intermediate_size=3 * HIDDEN, gated=True), at)
    first, second = products(block)
    assert (first.m, first.k, first.n, first.count, first.parts) == (tokens, HIDDEN, 2 * width, 1, (1, 1))
    assert (second.m, second.k, second.n, second.count, second.parts) == (tokens, width, HIDDEN, 1, (1,))
    for each in first, second:
        assert (each.grouped, each.in_one, each.casts_input, each.casts_gradient) == (False, False, True, True)
    assert block.operators[1] == TRAFFIC["gated activation"].at(
        "mlp_activation", ("activation", "mlp"), tokens * width, 2
    )
    assert {each.name: each.bytes for each in block.saved} == {
        "mlp_fc1_output": 2 * tokens * 2 * width, "mlp_fc2_input": tokens * width, "mlp_gate": 2 * tokens * width,
    }  # fmt: skip
    split = tokens // 2 * HIDDEN
    for fields, output, mask in (
        ({}, split * (2 if gathered else 1), split),
        ({"linear_input": False}, 2 * split, split),
        ({"residual": False}, split * (2 if gathered else 1), 0),
    ):
        found = norm(at, **fields)
        kept = {"norm_input": 2 * split, "norm_output": output} | ({"dropout_mask": mask} if mask else {})
        assert {each.name: each.bytes for each in found.saved} == kept
        assert found.operators == (TRAFFIC["norm"].at("norm", ("layernorm",), split, 2),)


def test_a_scale_per_channel_keeps_what_it_multiplies() -> None:
    """LayerScale on split tokens: its input in 16 bits, one pass."""
    block = channel_scale(shard(tp=4))
    assert block.operators == (TRAFFIC["scale"].at("layer_scale", (), SBH / 4, 2),)
    assert [(each.name, each.bytes) for each in block.saved] == [("scaled", 2 * SBH / 4)]


MOE_LENGTH = 4096


def even(**fields: Any) -> Job:
    """A job whose tokens are shared evenly among the experts."""
    return Job(sequence_length=MOE_LENGTH, routing="balanced", **fields)


def block(model: ModelConfig, num_accelerators: int = 64, **fields: Any) -> Block:
    plan = Plan(**fields)
    job = even(global_batch_size=num_accelerators)
    config = model.layers[-1].mlp
    assert isinstance(config, MixtureOfExperts)
    return mixture_of_experts(config, Shard.of(model.hidden_size, job, PlanNumbers.of(plan, num_accelerators, job)))


def matmuls(of: Block) -> dict[str, Matmul]:
    return {op.name: op for op in of.operators if isinstance(op, Matmul)}


def test_flop_are_those_of_the_active_weights() -> None:
    """DeepSeek-V3: router, eight of 256 experts and the shared one (arXiv 2412.19437, section 4.2)."""
    model = deepseek_v3()
    config = model.layers[-1].mlp
    assert isinstance(config, MixtureOfExperts)
    flops = sum(float(op.flops) for op in matmuls(block(model)).values())
    assert flops == 2 * MOE_LENGTH * config.num_active_parameters(7168)


def test_tokens_are_spread_evenly_over_the_experts_of_a_rank() -> None:
    """With ep ranks sending T k copies to E experts, each expert has T k ep / E rows."""
    fc1 = matmuls(block(deepseek_v3(), ep=32))["expert_fc1"]
    assert fc1.count == 256 / 32
    assert fc1.m == MOE_LENGTH * 8 * 32 / 256
    assert (fc1.k, fc1.n) == (7168, 2 * 2048)
    assert fc1.grouped


@pytest.mark.parametrize("etp", [2, 4])
def test_expert_tensor_ranks_cut_the_width_and_share_the_rows(etp: int) -> None:
    fc1, fc2 = (matmuls(block(mixtral(), ep=4, etp=etp))[name] for name in ("expert_fc1", "expert_fc2"))
    assert (fc1.n, fc2.k) == (2 * 14336 / etp, 14336 / etp)
    assert fc1.m * fc1.count == MOE_LENGTH * 2 * etp


def test_router_runs_in_wide_numbers_on_split_tokens() -> None:
    router = matmuls(block(mixtral(), tp=4))["router"]
    assert not router.low_precision
    assert (router.m, router.n) == (MOE_LENGTH / 4, 8)


def test_shared_experts_are_a_dense_mlp_over_tensor_ranks() -> None:
    alone, split = (matmuls(block(deepseek_v3(), tp=tp)) for tp in (1, 8))
    assert alone["shared_fc1"].n == 2 * 2048
    assert alone["shared_fc1"].flops == 8 * split["shared_fc1"].flops


def test_latent_experts_work_on_latent_channels() -> None:
    config = MixtureOfExperts(num_experts=8, top_k=2, intermediate_size=512, gated=False, latent_size=256)
    job = even(global_batch_size=1)
    products = matmuls(mixture_of_experts(config, Shard.of(1024, job, PlanNumbers.of(Plan(), 1, job))))
    assert products["expert_fc1"].k == products["expert_fc2"].n == 256
    flops = sum(float(op.flops) for op in products.values())
    assert flops == 2 * MOE_LENGTH * config.num_active_parameters(1024)


def exchanged(**software: Any) -> dict[str, float]:
    job = even(global_batch_size=64, precision="fp8", software=Software(**software))
    config = deepseek_v3().layers[-1].mlp
    assert isinstance(config, MixtureOfExperts)
    of = mixture_of_experts(config, Shard.of(7168, job, PlanNumbers.of(Plan(ep=8), 64, job)))
    return {item.name: float(item.bytes) for item in of.collectives if item.dimension == "ep"}


def test_dispatch_in_eight_bits_and_combination_in_sixteen() -> None:
    """DeepSeek-V3 quantises what goes to the experts, both ways, in tiles of 128 channels; arXiv 2412.19437, 3.3.3."""
    wide, narrow = exchanged(), exchanged(moe_dispatch_format="fp8")
    channels = MOE_LENGTH * 8 * 7168
    assert wide == dict.fromkeys(("dispatch", "combine", "combine_back", "dispatch_back"), 2 * channels)
    assert narrow["dispatch"] == narrow["combine_back"] == channels + 4 * channels / 128
    assert narrow["combine"] == narrow["dispatch_back"] == 2 * channels


def permuted(precision: Precision = "bf16", *, ep: int = 8, etp: int = 1, **software: Any) -> float:
    """Elements that permutations read and write for each token of Mixtral."""
    job = even(global_batch_size=64, precision=precision, software=Software(**software))
    config = mixtral().layers[-1].mlp
    assert isinstance(config, MixtureOfExperts)
    of = mixture_of_experts(config, Shard.of(4096, job, PlanNumbers.of(Plan(ep=ep, etp=etp), 64, job)))
    (found,) = (op for op in of.operators if op.name == "permute" and isinstance(op, StreamPass))
    assert found.forward_bytes == found.backward_bytes
    return float(found.forward_bytes / (2 * 4096 * MOE_LENGTH))


def test_all_to_all_permutes_before_and_sorts_behind_the_exchange() -> None:
    """Two copies of a token, counted by hand, there and back.

    One read and two written before the exchange; each read and written behind it where a rank has several experts; in
    low precision once more, to fill them up.
    """
    assert permuted(moe_dispatcher="alltoall", ep=8) == 2 * (1 + 2)
    assert permuted(moe_dispatcher="alltoall", ep=4) == 2 * (1 + 2 + 2 + 2)
    assert permuted(moe_dispatcher="alltoall", ep=1) == 2 * (1 + 2)
    assert permuted(moe_dispatcher="alltoall", ep=4, etp=2) == 2 * (1 + 2 + 2 * (2 + 2))
    assert permuted("fp8", moe_dispatcher="alltoall", ep=4) == 2 * (1 + 2 + 2 + 2 + 2 + 2)


def test_a_row_for_each_rank_is_permuted_where_it_arrives() -> None:
    """Of two copies among n ranks 2 - 1/n ranks get a row, which they read and write for each of their experts."""
    for ep in (2, 4, 8):
        assert permuted(moe_dispatcher="hybridep", ep=ep) == pytest.approx(2 * (2 - 1 / ep + 2))
        assert permuted("mxfp8", moe_dispatcher="hybridep", ep=ep) == permuted(moe_dispatcher="hybridep", ep=ep)
    assert permuted("mxfp8", moe_dispatcher="deepep", ep=8) == pytest.approx(2 * (2 - 1 / 8 + 2 + 2 + 2))


def in_graph(precision: Precision = "mxfp8", **software: Any) -> Block:
    fields = {"cuda_graphs": "full", "moe_dispatcher": "hybridep"} | software
    job = even(global_batch_size=64, precision=precision, software=Software(**fields))
    config = mixtral().layers[-1].mlp
    assert isinstance(config, MixtureOfExperts)
    return mixture_of_experts(config, Shard.of(4096, job, PlanNumbers.of(Plan(ep=4), 64, job)))


def names(of: Block) -> set[str]:
    return {op.name for op in of.operators}


def test_one_graph_of_the_iteration_runs_all_experts_at_once() -> None:
    """The host knows no sizes, unless they are fixed; block-scaled formats activate and quantise in the epilogue."""
    fused, plain = matmuls(in_graph()), matmuls(in_graph(cuda_graphs="partial"))
    assert [fused[name].starts for name in ("expert_fc1", "expert_fc2", "router")] == [1, 1, 1]
    assert [plain[name].starts for name in ("expert_fc1", "expert_fc2", "router")] == [2, 2, 1]
    assert (fused["expert_fc1"].casts_input, fused["expert_fc1"].casts_gradient) == (True, False)
    assert (fused["expert_fc2"].casts_input, fused["expert_fc2"].casts_gradient) == (False, True)
    assert "expert_activation" not in names(in_graph())
    assert matmuls(in_graph("bf16"))["expert_fc1"].starts == 1
    for other in (in_graph("bf16"), in_graph(cuda_graphs="partial"), in_graph(moe_capacity=True)):
        assert "expert_activation" in names(other)
    assert matmuls(in_graph(moe_capacity=True))["expert_fc1"].starts == 2
    assert sum(float(op.flops) for op in fused.values()) == sum(float(op.flops) for op in plain.values())


def test_what_experts_keep_is_copied_to_pages_and_back() -> None:
    """Inputs of both products and the output of the first, each read and written on either way."""
    of = in_graph()
    (stash,) = (op for op in of.operators if op.name == "stash" and isinstance(op, StreamPass))
    kept = sum(float(each.bytes) for each in of.saved if each.name != "routing")
    assert stash.forward_bytes == stash.backward_bytes == 2 * kept
    assert "stash" not in names(in_graph(cuda_graphs="partial")) | names(in_graph(moe_dispatcher="alltoall"))


def test_biases_of_experts_are_added_by_kernels_of_their_own() -> None:
    """One element for each of a rank's token copies and channels; none where one kernel runs all experts."""
    cases: tuple[tuple[CudaGraphs, int], ...] = ("none", 1), ("full", 0)
    for graphs, number in cases:
        job = even(global_batch_size=64, software=Software(cuda_graphs=graphs))
        config = MixtureOfExperts(num_experts=8, top_k=2, intermediate_size=512, gated=True, bias=True)
        of = mixture_of_experts(config, Shard.of(1024, job, PlanNumbers.of(Plan(ep=4), 64, job)))
        found = [op for op in of.operators if op.name == "expert_bias" and isinstance(op, StreamPass)]
        assert [op.forward_bytes for op in found] == [28 * MOE_LENGTH * 2 * 1024] * number
    assert "expert_bias" not in names(in_graph(cuda_graphs="none"))


def test_scores_that_are_applied_operation_by_operation_keep_an_fp32_copy() -> None:
    """As prime-rl's ``MoE._run_routed_experts`` does where adapters on experts break the compiled graph.

    Outputs in fp32 are kept for the gradient of the scores; their own gradient arrives in 16 bits, and its copy in
    fp32 and its products with scores and outputs live at once.
    """
    software = Software(expert_scores="eager", moe_dispatcher="alltoall")
    job = even(global_batch_size=64, software=software)
    config = MixtureOfExperts(num_experts=8, top_k=2, intermediate_size=512, gated=True)
    of, fused = (
        mixture_of_experts(config, Shard.of(1024, each, PlanNumbers.of(Plan(), 1, each)))
        for each in (job, replace(job, software=replace(software, expert_scores="fused")))
    )
    (copy,) = (each for each in of.saved if each not in fused.saved)
    elements = MOE_LENGTH * 2 * 1024
    assert copy.bytes == 4 * elements
    assert copy.bytes * copy.gradients == elements * (2 + 4 + 4 + 4)
    (scores,) = (op for op in of.operators if op not in fused.operators)
    assert isinstance(scores, StreamPass)
    assert scores.forward_bytes == 20 * elements


def uneven(ratio: float, *, ep: int = 8, etp: int = 1, capacity: bool = False) -> Block:
    software = Software(moe_capacity=capacity)
    job = Job(sequence_length=MOE_LENGTH, global_batch_size=64, routing=f"{ratio:g}", software=software)
    config = mixtral().layers[-1].mlp
    assert isinstance(config, MixtureOfExperts)
    return mixture_of_experts(config, Shard.of(4096, job, PlanNumbers.of(Plan(ep=ep, etp=etp), 64, job)))


def test_the_most_loaded_rank_sets_rows_exchange_and_memory() -> None:
    even, hot = uneven(1.0), uneven(1.5)
    for name in ("expert_fc1", "expert_fc2"):
        assert matmuls(hot)[name].m == 1.5 * matmuls(even)[name].m
        assert matmuls(hot)[name].flops == pytest.approx(matmuls(even)[name].flops)
    assert [item.bytes for item in hot.collectives] == [1.5 * item.bytes for item in even.collectives]
    kept = {tensor.name: (tensor.bytes, before.bytes) for tensor, before in zip(hot.saved, even.saved, strict=True)}
    assert kept["routing"][0] == kept["routing"][1]
    for name in ("dispatched", "expert_fc1_output", "expert_fc2_input"):
        assert kept[name][0] == 1.5 * kept[name][1]
    assert matmuls(hot)["router"] == matmuls(even)["router"]


def test_a_rank_gets_no_more_copies_than_there_are() -> None:
    """Mixtral, two of eight experts: at ep 2 one rank may hold both of every token, at ep 8 one of them."""
    for ep, most in (1, 1), (2, 2), (4, 4), (8, 4):
        assert matmuls(uneven(100.0, ep=ep))["expert_fc1"].m == most * matmuls(uneven(1.0, ep=ep))["expert_fc1"].m
        twice = min(most, 2) * matmuls(uneven(1.0, ep=ep))["expert_fc1"].m
        assert matmuls(uneven(2.0, ep=ep))["expert_fc1"].m == twice


def test_one_rank_for_all_experts_or_a_fixed_number_of_tokens_knows_no_imbalance() -> None:
    assert uneven(2.0, ep=1) == uneven(1.0, ep=1)
    assert uneven(2.0, ep=1, etp=4) == uneven(1.0, ep=1, etp=4)
    assert uneven(2.0, capacity=True) == uneven(1.0, capacity=True)


@pytest.mark.parametrize(("ep", "etp"), [(1, 1), (4, 1), (4, 2), (2, 4)])
def test_expert_tensor_ranks_keep_what_each_of_them_received(ep: int, etp: int) -> None:
    """Token copies of all etp ranks reach each: T k etp rows of the hidden size in 16 bits, and of its share inside."""
    kept = {tensor.name: tensor.bytes for tensor in block(mixtral(), ep=ep, etp=etp).saved}
    rows = MOE_LENGTH * 2 * etp
    assert kept["dispatched"] == 2 * rows * 4096
    assert kept["expert_fc1_output"] == 2 * rows * 2 * 14336 / etp
    assert kept["expert_fc2_input"] == 2 * rows * 14336 / etp
    assert kept["routing"] == 4 * MOE_LENGTH * 8


def test_router_and_dispatch_are_of_split_tokens() -> None:
    """Under sequence parallelism tensor ranks route and keep a quarter each; shared experts gather all tokens."""
    alone, split = ({tensor.name: tensor.bytes for tensor in block(deepseek_v3(), tp=tp).saved} for tp in (1, 4))
    assert alone["dispatched"] == 4 * split["dispatched"] == 2 * MOE_LENGTH * 8 * 7168
    assert alone["routing"] == 4 * split["routing"]


def test_shared_experts_exchange_as_a_dense_mlp_does() -> None:
    """A gather and a scatter of b s h elements each way, one gather again (arXiv 2205.05198); routed ones dispatch."""
    for model, exchanges in (deepseek_v3(), 5), (mixtral(), 0):
        over_tensor_ranks = [item for item in block(model, tp=8).collectives if item.dimension == "tp"]
        assert sum(float(item.bytes * item.count) for item in over_tensor_ranks) == exchanges * 2 * MOE_LENGTH * 7168


@pytest.mark.parametrize(
    ("dispatcher", "model", "copies"),
    [
        ("alltoall", deepseek_v3(), (1, 1, 1)),
        ("deepep", deepseek_v3(), (8, 8, 4)),
        ("deepep", mixtral(), (2, 1, 1)),
    ],
)
def test_copies_of_a_token_go_one_by_one_unless_the_dispatcher_knows_them(
    dispatcher: Any, model: ModelConfig, copies: tuple[int, int, int]
) -> None:
    """DeepSeek-V3: eight experts in at most four of eight groups (arXiv 2412.19437, section 2.1.2); Mixtral: two."""
    job = even(global_batch_size=64, software=Software(moe_dispatcher=dispatcher))
    config = model.layers[-1].mlp
    assert isinstance(config, MixtureOfExperts)
    of = mixture_of_experts(config, Shard.of(model.hidden_size, job, PlanNumbers.of(Plan(ep=8), 64, job)))
    found = {
        (item.copies.count, item.copies.num_groups, item.copies.groups_reached)
        for item in of.collectives
        if item.dimension == "ep"
    }
    assert found == {copies}


def test_a_rank_s_share_of_a_mixture_by_hand() -> None:
    """Two tensor-, two context- and four expert-parallel ranks, two to an expert, in eight bits; 1.5 times the mean.

    Experts of 512 latent channels and 256 inner ones, 8 of them and 3 to a token; shared ones of 384.
    """
    config = MixtureOfExperts(
        num_experts=8, top_k=3, intermediate_size=256, gated=True, shared_intermediate_size=384, latent_size=512
    )
    software = Software(moe_dispatcher="alltoall", moe_dispatch_format="fp8", cuda_graphs="none")
    job = Job(sequence_length=MOE_LENGTH, global_batch_size=8, precision="fp8", routing="1.5", software=software)
    of = mixture_of_experts(config, Shard.of(1024, job, PlanNumbers.of(Plan(tp=2, cp=2, ep=4, etp=2), 8, job)))
    tokens, split = MOE_LENGTH // 2, MOE_LENGTH // 4
    sent = split * 3 * 1.5
    rows = sent * 2
    assert {name: (op.m, op.k, op.n, op.count, op.load) for name, op in matmuls(of).items()} == {
        "router": (split, 1024, 8, 1, 1), "latent_down": (split, 1024, 512, 1, 1),
        "latent_up": (split, 512, 1024, 1, 1), "expert_fc1": (rows / 2, 512, 2 * 128, 2, 1.5),
        "expert_fc2": (rows / 2, 128, 512, 2, 1.5), "shared_fc1": (tokens, 1024, 2 * 192, 1, 1),
        "shared_fc2": (tokens, 192, 1024, 1, 1),
    }  # fmt: skip
    assert {name for name, op in matmuls(of).items() if not op.low_precision} == {"router"}
    assert {name for name, op in matmuls(of).items() if op.grouped} == {"expert_fc1", "expert_fc2"}
    assert {each.name: each.bytes for each in of.saved} == {
        "routing": 4 * split * 8, "dispatched": rows * 512, "expert_fc1_output": 2 * rows * 2 * 128,
        "expert_fc2_input": rows * 128, "shared_fc1_output": 2 * tokens * 2 * 192, "shared_fc2_input": tokens * 192,
    }  # fmt: skip
    passes = {op.name: op for op in of.operators if isinstance(op, StreamPass)}
    moved = sent * (2 * (1 + 1 / 3) + (4 + 4) * 2)
    assert passes == {
        "routing": TRAFFIC["routing"].at("routing", ("moe",), split * 8, 2),
        "permute": TRAFFIC["permute"].at("permute", ("moe",), moved * 512, 2),
        "expert_activation": TRAFFIC["gated activation"].at(
            "expert_activation", ("activation", "moe"), rows * 128, 2
        ),
        "shared_activation": TRAFFIC["gated activation"].at(
            "shared_activation", ("activation", "shared_experts"), tokens * 192, 2
        ),
    }  # fmt: skip
    low, wide = sent * 512 * (1 + 4 / 128), sent * 512 * 2
    assert [(each.name, each.kind, each.bytes) for each in of.collectives if each.dimension in ("ep", "etp")] == [
        ("dispatch", "all_to_all", low), ("combine", "all_to_all", wide), ("combine_back", "all_to_all", low),
        ("dispatch_back", "all_to_all", wide), ("expert_gather", "all_gather", 2 * low),
        ("expert_scatter", "reduce_scatter", 2 * wide), ("expert_scatter_back", "all_gather", 2 * low),
        ("expert_gather_back", "reduce_scatter", 2 * wide),
    ]  # fmt: skip


def test_one_expert_of_a_rank_needs_no_sorting() -> None:
    """Nor does a single rank sort what it has itself permuted."""
    assert permuted(moe_dispatcher="alltoall", ep=8) == 2 * (1 + 2)
    assert permuted("fp8", moe_dispatcher="alltoall", ep=8) == 2 * (1 + 2 + 2 + 2)
    assert permuted("fp8", moe_dispatcher="alltoall", ep=1) == 2 * (1 + 2 + 2 + 2)

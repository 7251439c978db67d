from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from shardplan.inputs.job import Job
from shardplan.inputs.layers import MLP
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.inputs.software import Software
from shardplan.workload.mlp import channel_scale, mlp, norm
from shardplan.workload.ops import Block, Matmul, StreamPass
from shardplan.workload.passes import TRAFFIC
from shardplan.workload.shard import Shard

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

"""Times of operators with every constant of the profile at work, from the equations in numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.examples import accelerator, ideal_profile

from shardplan.inputs.job import PACKED, recipe_of
from shardplan.inputs.software import Software
from shardplan.physics.costs.roofline import Machine, MachineRates, operator_times, pass_bytes, product_bytes
from shardplan.physics.workload.ops import AttentionCore, Matmul, StreamPass

SUSTAINED, EFFICIENT, WIDE, NARROW = 0.9, 0.75, 0.5, 0.4
"""Clocks, memory, and products in 16 and 8 bits, relative to their peaks."""
RATE, SLOW = SUSTAINED * NARROW * 2000e12, SUSTAINED * WIDE * 1000e12
PROFILE = ideal_profile(
    accelerator_rate={"part": SUSTAINED}, memory_efficiency=EFFICIENT,
    matmul_efficiency={"fp32": 0.3, "bf16": WIDE, "fp8": NARROW}, matmul_half_depth=70.0, matmul_wave_weight=0.5,
    matmul_launch_time=3e-6, grouped_matmul_efficiency=0.8, accumulation_passes=1.7, unfused_accumulation_factor=1.3,
    cast_bytes=2.5, memory_pass_latency=5e-6, tp_panel_loss=0.6, attention_efficiency=0.7,
    attention_half_sequence=300.0, attention_head_dim_exponent=0.5, attention_backward_ratio=0.85,
    unfused_attention_efficiency=0.65, misaligned_matmul_efficiency=0.35,
    attention_generation={"current": 1.0, "flash2": 0.55, "flash1": 0.2},
    memory_pass_factor={"fused": 1.4, "eager": 2.2}, state_space_scan_bytes=11.0,
)  # fmt: skip
M, K, N, COUNT = 300, 1000, 500, 6
EXPERTS = Matmul(name="experts", modules=(), m=M, k=K, n=N, count=COUNT, grouped=True)


def machine(precision: str = "fp8", *, bandwidth: float = 1e30, cores: int = 132, **software: Any) -> Machine:
    """Bandwidth without end, unless it is given, so that arithmetic decides."""
    return Machine(
        accelerator=accelerator(memory_bandwidth=bandwidth / EFFICIENT, num_cores=cores), profile=PROFILE,
        recipe=recipe_of(precision), software=Software(**({"fused_accumulation": True} | software)), gradient_bytes=4.0,
    )  # fmt: skip


def arithmetic(k: float, outputs: float, padded: float) -> float:
    """Of 2 m n k FLOP of six products whose outputs are padded to so many elements, in 8 bits."""
    padding = 1 + 0.5 * (padded / (outputs * COUNT) - 1)
    faster = RATE / SLOW
    return 2.0 * M * N * K * COUNT * padding / (RATE * 0.8 * k / (k + faster * 70))


def test_products_of_experts_in_eight_bits() -> None:
    """Tiles of 128 x 128 in one wave of 132 forward (72 tiles of 300 x 500) and two back (144 of 300 x 1000).

    For the input's gradient tiles of 128 x 256 are no better; of the weight's, 1000 x 500, six products have 192 and
    96 of them: two waves of small ones are as large as one of the others.
    """
    tile = 128 * 128
    times = operator_times(EXPERTS, machine())
    launches = COUNT * 3e-6
    assert times.forward == pytest.approx(arithmetic(K, M * N, 132 * tile) + 2 * launches, rel=1e-12)
    assert times.input_gradient == pytest.approx(arithmetic(N, M * K, 2 * 132 * tile) + 2 * launches, rel=1e-12)
    assert times.weight_gradient == pytest.approx(arithmetic(M, K * N, 2 * 132 * tile) + launches, rel=1e-12)
    assert times.backward == times.input_gradient + times.weight_gradient
    frozen = operator_times(replace(EXPERTS, wgrad=False), machine())
    assert (frozen.forward, frozen.backward) == (times.forward, times.input_gradient)
    assert frozen.weight_gradient == 0


def test_products_of_little_arithmetic_take_their_bytes() -> None:
    """Inputs, weights and outputs in 16 bits; quantised inputs; sums in fp32. One byte a second."""
    slow = machine(bandwidth=1.0)
    both = (M * K + K * N) * COUNT * 2
    forward, back = M * K * COUNT * 2.5, M * N * COUNT * 2.5
    times = operator_times(EXPERTS, slow)
    assert times.forward == pytest.approx(both + 2 * M * N * COUNT + forward)
    assert times.input_gradient == pytest.approx(2 * (M * N + N * K + M * K) * COUNT + back)
    assert times.weight_gradient == pytest.approx(2 * (K * M + M * N) * COUNT + 1.7 * 4 * K * N * COUNT)
    unfused = operator_times(EXPERTS, machine(bandwidth=1.0, fused_accumulation=False))
    added = 2 * K * N * COUNT + 1.3 * (2 + 2 * 4) * K * N * COUNT
    assert unfused.weight_gradient == pytest.approx(2 * (K * M + M * N) * COUNT + added)
    shards = operator_times(
        EXPERTS, machine(bandwidth=1.0, fused_accumulation=False, sharded_accumulation="parameters")
    )
    assert shards.weight_gradient == pytest.approx(2 * (K * M + M * N + K * N) * COUNT + (2 + 4) * K * N * COUNT)
    assert product_bytes(EXPERTS, slow, m=M, k=K, n=N) == both + 2 * M * N * COUNT
    assert product_bytes(EXPERTS, slow, m=M, k=K, n=N, writes=False) == both


@pytest.mark.parametrize(("name", "kernels"), [("nf4", 1), ("nf4-dq", 3)])
def test_weights_of_few_bits_are_written_out_both_ways(name: str, kernels: int) -> None:
    """Read in few bits and written in 16, by kernels of their own, for the output and for the input's gradient."""
    plain = replace(EXPERTS, wgrad=False)
    packed = replace(plain, packed=PACKED[name])
    for at, there in (1.0, 1.0), (1e30, 0.0):
        before, after = (operator_times(each, machine("bf16", bandwidth=at)) for each in (plain, packed))
        more = there * (PACKED[name].bytes + 2) * K * N * COUNT + kernels * COUNT * 5e-6
        assert after.forward - before.forward == pytest.approx(more)
        assert after.input_gradient - before.input_gradient == pytest.approx(more)


@pytest.mark.parametrize("fields", [{"casts_input": False}, {"casts_gradient": False}, {"low_precision": False}])
def test_quantisation_goes_where_another_kernel_makes_it(fields: dict[str, Any]) -> None:
    """Wide products run in 16 bits and quantise nothing."""
    dense = replace(EXPERTS, grouped=False)
    times = operator_times(replace(dense, **fields), machine(bandwidth=1.0))
    moved = 2 * (M * K + K * N + M * N) * COUNT
    there = 0 if fields.keys() & {"casts_input", "low_precision"} else M * K * COUNT * 2.5
    back = 0 if fields.keys() & {"casts_gradient", "low_precision"} else M * N * COUNT * 2.5
    assert (times.forward, times.input_gradient) == pytest.approx((moved + there, moved + back))


def test_panels_lose_a_share_of_what_they_take_longer() -> None:
    """Four panels of 75 rows start and pad on their own, forward and for the input's gradient; weights are whole."""
    dense = replace(EXPERTS, low_precision=False, grouped=False)
    whole, quarter = (operator_times(replace(dense, m=rows), machine()) for rows in (M, M / 4))
    cut = operator_times(replace(dense, panels=4), machine())
    for name in ("forward", "input_gradient"):
        once, each = getattr(whole, name), getattr(quarter, name)
        assert 4 * each > once
        assert getattr(cut, name) == pytest.approx(once + 0.6 * (4 * each - once), rel=1e-12)
    assert cut.weight_gradient == whole.weight_gradient


CORE = AttentionCore(
    name="core", modules=(), tokens=4096, num_heads=32, qk_head_dim=64, v_head_dim=96, keys=2048, scored_keys=4096,
    rate_length=700, steps=3, merged_elements=1e6, load=1.25,
)  # fmt: skip


@pytest.mark.parametrize(("generation", "factor"), [("current", 1.0), ("flash2", 0.55), ("flash1", 0.2)])
@pytest.mark.parametrize(("head_dim", "by_dim"), [(64, 0.5**0.5), (128, 1.0), (256, 1.0)])
def test_fused_attention(generation: Any, factor: float, head_dim: int, by_dim: float) -> None:
    """By the width of heads, the length of documents, the kernel's generation and the rank that attends most."""
    core = replace(CORE, qk_head_dim=head_dim)
    flops = 1.25 * 2.0 * 4096 * 32 * 2048 * (head_dim + 96)
    once = flops / (SUSTAINED * 1000e12 * factor * 0.7 * by_dim * 700 / (700 + 300))
    times = operator_times(core, machine(attention_generation=generation))
    assert times.forward == pytest.approx(once + 3 * 5e-6, rel=1e-12)
    assert times.backward == pytest.approx(2.5 * once / 0.85 + 3 * 5e-6, rel=1e-12)
    slow = operator_times(core, machine(bandwidth=1.0, attention_generation=generation))
    assert slow.forward - times.forward == pytest.approx(10 * 1e6 * 1.4)
    assert slow.backward - times.backward == pytest.approx(12 * 1e6 * 1.4)


@pytest.mark.parametrize(("head_dim", "aligned"), [(64, 1.0), (72, 1.0), (68, 0.35), (65, 0.35)])
def test_unfused_attention(head_dim: int, aligned: float) -> None:
    """Whole squares of scores at the rate of products of this depth; heads that are no multiple of 8 are slow."""
    flops = 2.0 * 4096 * 32 * 4096 * (head_dim + 96)
    once = flops / (SLOW * 0.65 * aligned * head_dim / (head_dim + 70))
    times = operator_times(replace(CORE, fused=False, qk_head_dim=head_dim), machine())
    assert times.forward == pytest.approx(once + 2 * 3 * 5e-6, rel=1e-12)
    assert times.backward == pytest.approx(2 * once + 4 * 3 * 5e-6, rel=1e-12)


@pytest.mark.parametrize(
    ("fields", "kernels", "factor"),
    [({}, "fused", 1.4), ({}, "eager", 2.2), ({"scan": True}, "fused", 11.0), ({"counted": True}, "eager", 1.0)],
)
def test_passes_move_their_bytes_as_often_as_their_kernels_do(
    fields: dict[str, Any], kernels: Any, factor: float
) -> None:
    stream = StreamPass(name="pass", modules=(), forward_bytes=1000.0, backward_bytes=3000.0, **fields)
    on = machine(bandwidth=1e8, kernels=kernels)
    times = operator_times(stream, on)
    assert pass_bytes(stream, on) == pytest.approx(1000 * factor)
    assert (times.forward, times.backward) == pytest.approx((1e-5 * factor + 5e-6, 3e-5 * factor + 5e-6))
    assert times.weight_gradient == 0


@pytest.mark.parametrize("operator", [EXPERTS, CORE, replace(CORE, fused=False)])
def test_accelerators_side_by_side_take_what_each_takes(operator: Any) -> None:
    """Twice the bandwidth, and twice the peaks; in front of axes over plans."""
    parts = [
        accelerator(),
        accelerator(memory_bandwidth=6700e9),
        accelerator(peak_flops={"fp32": 100e12, "bf16": 2000e12, "fp8": 4000e12}),
    ]
    one = replace(machine(), accelerator=parts[0])
    rates = MachineRates.side_by_side(parts, one.recipe, num_axes=1)
    together = operator_times(operator, replace(one, rates=rates))
    for index, part in enumerate(parts):
        alone = operator_times(operator, replace(one, accelerator=part))
        for name in ("forward", "backward"):
            assert np.shape(getattr(together, name)) == (3, 1)
            assert getattr(together, name)[index, 0] == pytest.approx(getattr(alone, name), rel=1e-12)
    same = MachineRates.side_by_side(parts[:1] * 2, one.recipe, num_axes=1)
    assert same.memory_bandwidth == 3350e9

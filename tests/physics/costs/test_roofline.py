"""Time of an operator: its arithmetic, its memory traffic, and the share of the peak that its shape reaches."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import accelerator, ideal_profile

from shardplan.base.arrays import Numbers
from shardplan.base.errors import InputError
from shardplan.inputs.job import recipe_of
from shardplan.inputs.profile import ProfileGeneration, load_profile
from shardplan.inputs.readers.catalog import load_accelerator
from shardplan.inputs.software import Software
from shardplan.physics.costs.roofline import (
    Machine,
    attention_efficiency,
    depth_efficiency,
    operator_times,
    tile_padding,
)
from shardplan.physics.workload.ops import AttentionCore, Matmul, Operator, StreamPass

PEAK, BANDWIDTH = 1000e12, 3350e9


def machine(precision: str = "bf16", part: Any = None, **constants: Any) -> Machine:
    return Machine(accelerator=part or accelerator(), profile=ideal_profile(**constants), recipe=recipe_of(precision))


def matmul(m: float, k: float, n: float, **fields: Any) -> Matmul:
    return Matmul(name="product", modules=(), m=m, k=k, n=n, **fields)


def core(*, fused: bool = True, causal: bool = True) -> AttentionCore:
    return AttentionCore(
        name="core", modules=(), tokens=4096, num_heads=32, qk_head_dim=128, v_head_dim=128,
        keys=2048 if causal else 4096, scored_keys=4096, rate_length=4096, fused=fused,
    )  # fmt: skip


def test_a_large_product_takes_its_arithmetic() -> None:
    times = operator_times(matmul(8192, 8192, 8192), machine())
    forward, backward = times.forward, times.backward
    assert forward == pytest.approx(2 * 8192**3 / PEAK)
    assert backward == pytest.approx(2 * 2 * 8192**3 / PEAK)


def test_a_thin_product_takes_its_memory_traffic() -> None:
    """Below the ridge of the roofline (Williams et al., CACM 52(4), 2009) bytes over bandwidth decide.

    Without fused accumulation and with nothing to add to, all three products are alike.
    """
    alone = replace(machine(unfused_accumulation_factor=0), software=Software(fused_accumulation=False))
    times = operator_times(matmul(1, 8192, 8192), alone)
    forward, backward = times.forward, times.backward
    moved = 2 * (8192 + 8192**2 + 8192)
    assert forward == pytest.approx(moved / BANDWIDTH)
    assert backward == pytest.approx(2 * moved / BANDWIDTH)


def test_the_ridge_lies_at_the_machine_balance() -> None:
    """An (m, k) by (k, n) product with large k and n in 16 bits has an intensity of m FLOP per byte."""
    balance = PEAK / BANDWIDTH
    thin, thick = (operator_times(matmul(m, 1e6, 1e6), machine()).forward for m in (balance / 2, 2 * balance))
    assert thin == pytest.approx(2e12 / BANDWIDTH, rel=1e-3)
    assert thick == pytest.approx(2 * 2 * balance * 1e12 / PEAK, rel=1e-12)


def test_gradients_are_accumulated_in_memory() -> None:
    """The sum of the gradients is read and written after the product, which has no other output; in its own bytes."""
    product, moved = matmul(64, 8192, 8192), 2 * (64 * 8192 * 2 + 8192**2)
    arithmetic, elements = 2 * 64 * 8192**2 / PEAK, 8192**2
    twice = machine(accumulation_passes=2)
    for bytes_each in (2.0, 4.0):
        backward = operator_times(product, replace(twice, gradient_bytes=bytes_each)).backward
        assert backward == pytest.approx((moved + 2 * bytes_each * elements) / BANDWIDTH + arithmetic)


@pytest.mark.parametrize("gradient_bytes", [2.0, 4.0])
def test_a_pass_of_its_own_reads_the_gradient_and_reads_and_writes_the_sum(gradient_bytes: float) -> None:
    """DeepSpeed's bf16 optimizer makes twice that: reads 2, writes 4 of the cast; reads 4 and 4, writes 4; clears 2."""
    product, elements = matmul(8192, 8192, 8192), 8192**2
    unfused = replace(machine(), software=Software(fused_accumulation=False), gradient_bytes=gradient_bytes)

    def added(factor: float) -> Numbers:
        slow = replace(unfused, profile=replace(unfused.profile, unfused_accumulation_factor=factor))
        return operator_times(product, slow).backward - operator_times(product, unfused).backward

    assert added(1) == pytest.approx((2 + 2 * gradient_bytes) * elements / BANDWIDTH)
    if gradient_bytes == 4:
        assert added(2) == pytest.approx((2 + 4 + 4 + 4 + 4 + 2) * elements / BANDWIDTH)


@pytest.mark.parametrize(
    ("kind", "gradient_bytes", "moved"),
    [("parameters", 2.0, 2 + 2), ("parameters", 4.0, 2 + 4), ("flat", 2.0, 2 + 2), ("flat", 4.0, 2 + 2 + 2 + 4)],
)
def test_gradients_that_shards_add_up_are_copied(kind: Any, gradient_bytes: float, moved: float) -> None:
    """Into the buffer of the reduction, or the flat gradient that is cast then; whatever a pass over all would take."""
    alone, shards = (
        replace(
            machine(unfused_accumulation_factor=factor),
            software=Software(fused_accumulation=False, sharded_accumulation=kind if factor else "none"),
            gradient_bytes=gradient_bytes,
        )
        for factor in (0.0, 3.0)
    )
    product = matmul(8192, 8192, 8192)
    copied = operator_times(product, shards).backward - operator_times(product, alone).backward
    assert copied == pytest.approx(moved * 8192**2 / BANDWIDTH)


def test_a_large_product_adds_its_gradient_after_its_arithmetic() -> None:
    """The epilogue of a tile comes after its products: neither hides the other."""
    product = matmul(8192, 8192, 8192)
    alone, added = (operator_times(product, machine(accumulation_passes=n)).backward for n in (0, 2))
    assert added - alone == pytest.approx(8 * 8192**2 / BANDWIDTH)


def test_low_precision_doubles_the_rate_and_pays_for_casts() -> None:
    product = matmul(8192, 8192, 8192)
    fast = operator_times(product, machine("fp8")).forward
    assert fast == pytest.approx(2 * 8192**3 / (2 * PEAK))
    cast = operator_times(product, machine("fp8", cast_bytes=4)).forward
    assert cast - fast == pytest.approx(4 * 8192**2 / BANDWIDTH)
    wide = operator_times(matmul(8192, 8192, 8192, low_precision=False), machine("fp8", cast_bytes=4)).forward
    assert wide == pytest.approx(2 * 8192**3 / PEAK)


def by_row(precision: str = "fp8", **constants: Any) -> Machine:
    return replace(machine(precision, **constants), software=Software(fp8_scaling="row"))


def test_scales_of_rows_are_paid_in_both_orientations() -> None:
    """Three bytes of every factor where its rows are scaled; columns by passes before the gradients' products."""
    columns = {"input": 20.0, "gradient": 8.0, "weight": 6.0}
    product, n = matmul(4096, 8192, 16384), (4096, 8192, 16384)
    bare, cast = operator_times(product, machine("fp8")), operator_times(product, by_row(column_cast_bytes=columns))
    inputs, gradients, weights = n[0] * n[1], n[0] * n[2], n[1] * n[2]
    assert cast.forward - bare.forward == pytest.approx(3 * (inputs + weights) / BANDWIDTH)
    assert cast.input_gradient - bare.input_gradient == pytest.approx((3 * gradients + 6 * weights) / BANDWIDTH)
    assert cast.weight_gradient - bare.weight_gradient == pytest.approx((20 * inputs + 8 * gradients) / BANDWIDTH)


def test_rows_have_scales_in_eight_bits_alone() -> None:
    for precision in ("bf16", "fp16"):
        product = matmul(4096, 8192, 16384)
        assert operator_times(product, by_row(precision)) == operator_times(product, machine(precision))
    router = matmul(4096, 8192, 256, low_precision=False)
    assert operator_times(router, by_row()) == operator_times(router, machine("fp8"))


PUBLISHED_SPEEDUPS = (
    (8192, 4096, 4096, 1.00), (8192, 8192, 32768, 1.41), (8192, 16384, 2048, 0.82), (16384, 2048, 8192, 1.05),
    (16384, 8192, 8192, 1.33), (16384, 32768, 4096, 1.16), (32768, 1024, 32768, 0.94), (32768, 8192, 1024, 0.63),
    (32768, 8192, 16384, 1.50), (32768, 16384, 32768, 1.73), (32768, 32768, 2048, 0.93),
)  # fmt: skip
"""Of a linear layer that is scaled by row over one in bf16, of M, K and N, with LayerNorm before and a sigmoid behind,
both passes on an H100 limited to 500 W (torchao, docs/static/fp8-rowwise-perf.png at fdddb2cf)."""


@pytest.mark.parametrize(("m", "k", "n", "published"), PUBLISHED_SPEEDUPS)
def test_layers_that_are_scaled_by_row_gain_what_torchao_publishes(m: int, k: int, n: int, published: float) -> None:
    """Within 15 % of the ratio, of which the table's own neighbours differ by up to 12 %."""
    part, profile = load_accelerator("h100-sxm-96gb-500w"), load_profile("hopper")
    around = StreamPass(name="around", modules=(), forward_bytes=4.0 * m * (k + n), backward_bytes=6.0 * m * (k + n))
    around = replace(around, counted=True)
    wide, narrow = (
        Machine(accelerator=part, profile=profile, recipe=recipe_of(precision), software=Software(fp8_scaling="row"))
        for precision in ("bf16", "fp8")
    )
    product = matmul(m, k, n)
    times = [sum(operator_times(op, at).forward + operator_times(op, at).backward for op in (product, around))
             - _added(product, at) for at in (wide, narrow)]  # fmt: skip
    assert times[0] / times[1] == pytest.approx(published, rel=0.15)


def _added(product: Matmul, at: Machine) -> float:
    """Time of adding up weight gradients, of which the table has none."""
    passes = at.profile.accumulation_passes * 4.0 * product.k * product.n
    return float(passes / at.memory_rate)


def test_operations_of_eager_rings_move_fp32() -> None:
    """By hand, for each element of all queries and each of seven steps: 40.5 bytes forward and 58.5 back."""
    elements, steps = 4096 * 32 * 128, 7
    ring = replace(core(), steps=8, merged_elements=0.75 * steps * elements)
    eager, alone = replace(machine(), software=Software(ring_kernels="eager")), replace(ring, merged_elements=0.0)
    added = [getattr(operator_times(ring, eager), each) - getattr(operator_times(alone, eager), each)
             for each in ("forward", "backward")]  # fmt: skip
    merged = (6 + 3 * 4 + 2 * 4 + 3 * 4) * (1 + 0.5) / 2 + 8 / 2
    back = 8 + 16 + (2 * 10 + 2 * (5 + 8)) / 2 + (10 + 5 + 8) / 2
    assert added == pytest.approx([steps * elements * each / BANDWIDTH for each in (8 + merged, back)])
    assert added[0] > operator_times(ring, machine()).forward - operator_times(alone, machine()).forward


def test_inputs_of_experts_are_quantised_one_by_one() -> None:
    """Each by a kernel of its own: ten starts more, as the products of ten experts take; both ways."""
    experts = matmul(1000, 4096, 1024, count=10, grouped=True)
    still, started = (operator_times(experts, machine("fp8", matmul_launch_time=t)) for t in (0.0, 3e-6))
    assert started.forward - still.forward == pytest.approx(2 * 10 * 3e-6)
    assert started.backward - still.backward == pytest.approx(3 * 10 * 3e-6)
    wide = [operator_times(experts, machine(matmul_launch_time=t)).forward for t in (0.0, 3e-6)]
    assert wide[1] - wide[0] == pytest.approx(10 * 3e-6)


def test_one_kernel_for_all_experts_starts_once() -> None:
    """And once for their inputs, and for the gradients of their outputs, where their products do not quantise these."""
    experts = matmul(1000, 4096, 1024, count=10, grouped=True, in_one=True)
    still, started = (operator_times(experts, machine("fp8", matmul_launch_time=t)) for t in (0.0, 3e-6))
    assert started.forward - still.forward == pytest.approx(2 * 3e-6)
    assert started.backward - still.backward == pytest.approx(3 * 3e-6)
    fused = replace(experts, casts_input=False, casts_gradient=False)
    bare, cast = (
        operator_times(each, machine("fp8", cast_bytes=4, matmul_launch_time=3e-6)) for each in (fused, experts)
    )
    assert cast.forward - bare.forward == pytest.approx(4 * 10 * 1000 * 4096 / BANDWIDTH + 3e-6)
    assert cast.backward - bare.backward == pytest.approx(4 * 10 * 1000 * 1024 / BANDWIDTH + 3e-6)


def test_shallow_products_gain_less_from_low_precision() -> None:
    """Ends of a tile take as long as in 16 bits: k0 more steps of 16 bits each, twice as many of 8."""
    for k in (1000, 10_000, 100_000):
        wide, narrow = (
            operator_times(matmul(1e5, k, 1e5), machine(precision, matmul_half_depth=100)).forward
            for precision in ("bf16", "fp8")
        )
        assert wide / narrow == pytest.approx(2 * (k + 100) / (k + 200))


def test_launches_are_paid_once_per_product() -> None:
    times = operator_times(matmul(8192, 8192, 8192), machine(matmul_launch_time=1.0))
    forward, backward = times.forward, times.backward
    assert forward == pytest.approx(1, rel=0.01)
    assert backward == pytest.approx(2, rel=0.01)


def test_grouped_products_run_at_their_own_rate() -> None:
    dense = operator_times(matmul(8192, 8192, 8192, count=8), machine(grouped_matmul_efficiency=0.5)).forward
    alone = (matmul(8192, 8192, 8192, grouped=grouped) for grouped in (False, True))  # one expert is no group
    assert len({float(operator_times(one, machine(grouped_matmul_efficiency=0.5)).forward) for one in alone}) == 1
    grouped = operator_times(
        matmul(8192, 8192, 8192, count=8, grouped=True), machine(grouped_matmul_efficiency=0.5)
    ).forward
    assert grouped == pytest.approx(2 * dense)


def test_every_grouped_product_has_a_start_of_its_own() -> None:
    def starts(**fields: Any) -> float:
        slow, fast = (machine(matmul_launch_time=time) for time in (1.0, 0.0))
        product = matmul(512, 512, 512, count=8, **fields)
        return float(operator_times(product, slow)[0] - operator_times(product, fast)[0])

    assert starts() == pytest.approx(1)
    assert starts(grouped=True) == pytest.approx(8)


def test_fused_attention_backward_makes_five_products_for_two() -> None:
    """FlashAttention-2 (arXiv 2307.08691, section 3.1.2)."""
    times = operator_times(core(), machine())
    forward, backward = times.forward, times.backward
    assert forward == pytest.approx(4 * 4096 * 32 * 128 * 2048 / PEAK)
    assert backward == pytest.approx(2.5 * forward)


def test_every_step_of_a_ring_starts_a_kernel() -> None:
    slow, fast = (machine(memory_pass_latency=time) for time in (1.0, 0.0))
    ring = replace(core(), steps=4)
    with_start, without = operator_times(ring, slow), operator_times(ring, fast)
    assert with_start.forward - without.forward == pytest.approx(4)
    assert with_start.backward - without.backward == pytest.approx(4)
    assert with_start.weight_gradient == without.weight_gradient == 0


def test_unfused_attention_computes_the_whole_square() -> None:
    """Megatron-LM's batched products know no mask: twice the causal work, and twice that backward."""
    times = operator_times(core(fused=False), machine())
    forward, backward = times.forward, times.backward
    assert forward == pytest.approx(2 * operator_times(core(), machine())[0])
    assert backward == pytest.approx(2 * forward)


def test_passes_take_bytes_over_bandwidth() -> None:
    norm = StreamPass(name="norm", modules=(), forward_bytes=5e9, backward_bytes=7e9)
    times = operator_times(norm, machine())
    forward, backward = times.forward, times.backward
    assert forward == pytest.approx(5e9 / BANDWIDTH)
    assert backward == pytest.approx(7e9 / BANDWIDTH)
    twice = machine(memory_pass_factor={"fused": 2}, memory_efficiency=0.5, memory_pass_latency=1)
    assert operator_times(norm, twice)[0] == pytest.approx(4 * 5e9 / BANDWIDTH + 1)


def test_a_format_that_the_part_lacks_is_refused() -> None:
    with pytest.raises(InputError, match="nvfp4"):
        operator_times(matmul(8, 8, 8), machine("nvfp4"))


shapes = st.floats(1, 1e5)
operators: st.SearchStrategy[Operator] = st.one_of(
    st.builds(matmul, shapes, shapes, shapes, low_precision=st.booleans(), grouped=st.booleans()),
    st.builds(core, fused=st.booleans(), causal=st.booleans()),
    st.builds(StreamPass, name=st.just("pass"), modules=st.just(()), forward_bytes=shapes, backward_bytes=shapes),
)


@given(operators, st.sampled_from(("bf16", "fp8")), st.floats(1, 100))
def test_better_machines_are_never_slower(operator: Operator, precision: str, factor: float) -> None:
    profile, recipe = load_profile("hopper"), recipe_of(precision)

    def times(**changes: Any) -> tuple[float, float]:
        part = Machine(accelerator=accelerator(**changes), profile=profile, recipe=recipe)
        times = operator_times(operator, part)
        forward, backward = times.forward, times.backward
        return float(forward), float(backward)

    base = times()
    faster = {"bf16": factor * PEAK, "fp8": 2 * factor * PEAK}
    for better in times(memory_bandwidth=factor * BANDWIDTH), times(peak_flops=faster):
        assert better[0] <= base[0]
        assert better[1] <= base[1]


@pytest.mark.parametrize("weight", [0.0, 0.5, 1.0])
def test_a_wave_of_few_tiles_takes_its_share_of_a_whole_one(weight: float) -> None:
    """One row too many for 132 tiles makes two waves: twice the time, or less where the next kernel fills the rest."""
    part = accelerator(memory_bandwidth=1e30)
    full, more = (
        operator_times(matmul(rows, 4096, 128), machine(part=part, matmul_wave_weight=weight)).forward
        for rows in (128 * 132, 128 * 132 + 1)
    )
    assert full == pytest.approx(2 * 128 * 132 * 4096 * 128 / PEAK)
    assert more / full == pytest.approx(1 + weight, rel=1e-3)


def test_partial_outputs_of_a_ring_are_added_up_in_fp32() -> None:
    """Forward a 16-bit output read, its fp32 sum read and written: 10 bytes; backward fp32 gradients, three times 4."""
    alone, ring = (operator_times(replace(core(), merged_elements=merged), machine()) for merged in (0.0, 1e9))
    assert ring.forward - alone.forward == pytest.approx((2 + 4 + 4) * 1e9 / BANDWIDTH)
    assert ring.backward - alone.backward == pytest.approx((4 + 4 + 4) * 1e9 / BANDWIDTH)


def test_additions_of_eager_kernels_pass_more_often() -> None:
    ring = replace(core(), merged_elements=1e12)
    fused, eager = (operator_times(ring, machine(memory_pass_factor={"fused": factor})) for factor in (1.0, 3.0))
    assert eager.forward - fused.forward == pytest.approx(2 * 10 * 1e12 / BANDWIDTH)


def test_unfused_attention_starts_two_products_forward_and_four_backward() -> None:
    """Scores and their sum of values; backward two gradients of each."""
    slow, fast = (operator_times(core(fused=False), machine(memory_pass_latency=time)) for time in (1.0, 0.0))
    assert slow.forward - fast.forward == pytest.approx(2)
    assert slow.backward - fast.backward == pytest.approx(4)


dims = st.integers(1, 100_000)


@given(dims, dims, st.integers(1, 64), st.sampled_from((None, 1, 80, 132, 148)))
def test_padding_is_never_below_the_work(m: int, n: int, count: int, num_cores: int | None) -> None:
    assert tile_padding(m, n, count, num_cores) >= 1 - 1e-12


@given(st.integers(1, 100))
def test_whole_waves_have_no_padding(waves: int) -> None:
    assert tile_padding(128 * 132, 128 * waves, 1, 132) == 1


def test_one_row_too_many_starts_a_wave_of_its_own() -> None:
    """arXiv 2401.14489, section 3: the last wave runs with a few tiles."""
    assert tile_padding(128 * 132 + 1, 128, 1, 132) == pytest.approx(2, rel=1e-3)


def test_a_single_core_sees_tiles_only() -> None:
    assert tile_padding(129, 128, 1, 1) == pytest.approx(256 / 129)


def test_waves_by_hand() -> None:
    """Three products of 2 x 3 tiles on 5 cores are 18 tiles in four waves; unknown parts have 132 cores."""
    assert tile_padding(129, 260, 3, 5) == pytest.approx(4 * 5 * 128**2 / (129 * 260 * 3))
    assert tile_padding(128 * 132, 128, 1, None) == 1
    assert tile_padding(128 * 131, 128, 1, None) == pytest.approx(132 / 131)


def test_large_products_approach_no_padding() -> None:
    assert tile_padding(100_001, 100_001, 1, 132) < 1.01


@given(dims, dims)
def test_padding_of_arrays(m: int, n: int) -> None:
    together = np.asarray(tile_padding(np.array([m, n]), np.array([n, m]), 1, 132))
    assert together.tolist() == [tile_padding(m, n, 1, 132), tile_padding(n, m, 1, 132)]


def test_half_depth_gives_half_the_rate() -> None:
    profile = ideal_profile(matmul_half_depth=80)
    assert depth_efficiency(80, profile) == 0.5
    assert depth_efficiency(160, profile, faster=2) == 0.5
    assert depth_efficiency(1e12, profile) == pytest.approx(1)


@given(dims, dims)
def test_deeper_products_are_never_less_efficient(k: int, more: int) -> None:
    profile = ideal_profile(matmul_half_depth=80)
    assert depth_efficiency(k, profile) <= depth_efficiency(k + more, profile)


def test_attention_efficiency_at_its_reference_points() -> None:
    profile = ideal_profile(attention_efficiency=0.6, attention_half_sequence=500, attention_head_dim_exponent=0.25)
    assert attention_efficiency(128, 500, profile) == pytest.approx(0.3)
    assert attention_efficiency(128, 1e12, profile) == pytest.approx(0.6)
    assert attention_efficiency(8, 1e12, profile) == pytest.approx(0.3)
    assert attention_efficiency(np.array([64, 256]), 1e12, profile) == pytest.approx([0.6 * 0.5**0.25, 0.6])


@pytest.mark.parametrize(
    ("generation", "narrow", "wide"),
    [("ampere", 171, 189), ("hopper", 473, 616), ("hopper", 388, 539), ("blackwell", 759, 1200)],
)
def test_heads_of_64_lose_what_kernels_lose(generation: ProfileGeneration, narrow: float, wide: float) -> None:
    """TFLOP/s at head dimensions 64 and 128, causal, 16K: FlashAttention-2, FlashAttention-3, cuDNN, TensorRT-LLM."""
    profile = load_profile(generation)
    lost = attention_efficiency(64, 16384, profile) / attention_efficiency(128, 16384, profile)
    assert lost == pytest.approx(narrow / wide, rel=0.04)

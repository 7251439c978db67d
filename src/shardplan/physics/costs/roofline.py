"""Time of one operator: the slower of its arithmetic and its memory traffic, plus its launch.

A matrix product or an attention kernel reaches a fraction of its peak by its shape.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import NamedTuple

import numpy as np

from shardplan.base.arrays import Numbers, first_axis, is_number, is_zero, scaled
from shardplan.base.fields import dataclass
from shardplan.inputs.cluster import Accelerator
from shardplan.inputs.job import Recipe
from shardplan.inputs.profile import Profile
from shardplan.inputs.software import Software
from shardplan.physics.workload.ops import AttentionCore, Matmul, Operator, StreamPass

TILE = 128
"""Side of an output tile. The fast kernels have wider ones too (cuBLAS on Hopper and Blackwell: 128 x 256), which fill
no wave better: they are twice as large and at least half as many."""
DEFAULT_NUM_CORES = 132


def tile_padding(m: Numbers, n: Numbers, count: Numbers, num_cores: int | None) -> Numbers:
    r"""Work done relative to work asked for, when outputs are cut into tiles and tiles run in waves of ``num_cores``.

    .. math:: \frac{W\,C\,t^2}{m n}, \quad W = \lceil tiles / C \rceil

    A. Dao et al., "The case for co-designing model architectures with hardware", arXiv 2401.14489, section 3.
    """
    cores = num_cores or DEFAULT_NUM_CORES
    tiles = np.ceil(m / TILE) * np.ceil(n / TILE) * count
    waves: Numbers = np.ceil(tiles / cores)
    return waves * (cores * TILE * TILE) / (m * n * count)


def depth_efficiency(k: Numbers, profile: Profile, *, faster: Numbers = 1.0) -> Numbers:
    r"""Share of the rate left at inner dimension k, :math:`k / (k + r k_0)`.

    ``faster``: how many times as fast as in 16 bits the steps through the inner dimension are, r. Filling the pipeline
    and writing a tile's result take as long in any number format, and so as long as r times as many steps.
    """
    return k / (k + faster * profile.matmul_half_depth)


def attention_efficiency(head_dim: Numbers, length: Numbers, profile: Profile) -> Numbers:
    r"""Fraction of the dense peak of a fused kernel, forward.

    .. math:: e \left(\tfrac{\min(d, 128)}{128}\right)^{x} \frac{s}{s + s_0}

    Wider heads are not faster on average: at 256, kernels reach 0.94 to 1.15 of what they do at 128.
    """
    by_dim = (np.minimum(head_dim, 128) / 128) ** profile.attention_head_dim_exponent
    return profile.attention_efficiency * by_dim * length / (length + profile.attention_half_sequence)


FLASH_BACKWARD_FLOPS = 2.5
"""A fused backward kernel makes five products where the forward one makes two (FlashAttention-2, arXiv 2307.08691)."""
MERGE_FORWARD, MERGE_BACKWARD = 10.0, 12.0
"""Bytes for each element of a ring's partial output: read in 16 bits, its fp32 sum read and written. Backward: fp32."""
EAGER_FORWARD, EAGER_BACKWARD = 54.0, 78.0
"""The same of PyTorch's operations (2.6, ``torch/distributed/tensor/experimental/_attention.py``), per step and element
of all queries 40.5 and 58.5, over the three quarters with which a step attends on average.

Half of the steps attend with all queries, the others with half of them and copy the sum. Forward: keys and values
joined to be sent 8, partial outputs cast 6 and merged by three operations in fp32 32, or half of these and the copy 8.
Backward: keys and values joined 8, their fp32 gradients 16; gradients of keys and values added 20 (to half of them 10,
and copied 16), those of queries 10 (5, and copied 8)."""


@dataclass(frozen=True, kw_only=True)
class MachineRates:
    """What accelerators that differ in nothing else can do, side by side."""

    memory_bandwidth: Numbers
    """[bytes/s]"""
    peak_flops: Mapping[str, Numbers]
    """Dense peak of each number format that the job computes in. [FLOP/s]"""

    @classmethod
    def side_by_side(cls, accelerators: Sequence[Accelerator], recipe: Recipe, *, num_axes: int) -> MachineRates:
        """Rates along a first axis, with ``num_axes`` more behind it; one that all have in common stays a number."""
        return cls(
            memory_bandwidth=first_axis([each.memory_bandwidth for each in accelerators], num_axes),
            peak_flops={
                name: first_axis([each.peak(name) for each in accelerators], num_axes)
                for name in (recipe.matmul, recipe.dense_math)
            },
        )


@dataclass(frozen=True, kw_only=True)
class Machine:
    """An accelerator as its calibration profile sees it."""

    accelerator: Accelerator
    profile: Profile
    recipe: Recipe
    software: Software = field(default_factory=Software)
    gradient_bytes: float = 4.0
    """Of an element of the gradient to which weight-gradient products add."""
    rates: MachineRates | None = None
    """Rates of several accelerators side by side, in place of those of the one."""

    @property
    def memory_rate(self) -> Numbers:
        """Achieved memory bandwidth. [bytes/s]"""
        nominal = self.accelerator.memory_bandwidth if self.rates is None else self.rates.memory_bandwidth
        return nominal * self.profile.memory_efficiency

    def matmul_rate(self, number_format: str) -> Numbers:
        """Rate of large dense products. [FLOP/s] Raises InputError where the part has no such format."""
        return self.peak(number_format) * self.profile.matmul_efficiency[number_format]

    def peak(self, number_format: str) -> Numbers:
        """Dense peak at sustained power and clocks. [FLOP/s] Raises InputError where the part has no such format."""
        sustained = self.profile.accelerator_rate.get(self.accelerator.name, 1.0)
        peak = self.accelerator.peak(number_format) if self.rates is None else self.rates.peak_flops[number_format]
        return peak * sustained


class OperatorTimes(NamedTuple):
    """Seconds of an operator."""

    forward: Numbers
    input_gradient: Numbers
    """The part of the backward pass that what comes before waits for."""
    weight_gradient: Numbers = 0.0
    """The part that only the optimizer waits for."""

    @property
    def backward(self) -> Numbers:
        """Both gradients."""
        return self.input_gradient if is_zero(self.weight_gradient) else self.input_gradient + self.weight_gradient


def operator_times(operator: Operator, machine: Machine) -> OperatorTimes:
    """Forward pass and gradients of an operator. [s]"""
    match operator:
        case Matmul():
            return _matmul_times(operator, machine)
        case AttentionCore():
            return _attention_times(operator, machine)
        case StreamPass():
            return _pass_times(operator, machine)


def _matmul_times(op: Matmul, machine: Machine) -> OperatorTimes:
    recipe = machine.recipe
    number_format = recipe.matmul if op.low_precision else recipe.dense_math
    forward = _in_panels(op, machine, number_format, k=op.k, n=op.n)
    for_input = _in_panels(op, machine, number_format, k=op.n, n=op.k)
    if not op.wgrad:
        unpacked = _unpacking_time(op, machine)
        return OperatorTimes(*_with_casts(op, machine, forward + unpacked, for_input + unpacked))
    in_place = machine.software.fused_accumulation
    columns = _column_casts(op, machine)
    for_weight = _product_time(op, machine, number_format, m=op.k, k=op.m, n=op.n, writes=not in_place)
    forward, for_input = _with_casts(op, machine, forward, for_input)
    return OperatorTimes(forward, for_input, for_weight + columns + _accumulation_time(op, machine))


def _accumulation_time(op: Matmul, machine: Machine) -> Numbers:
    r"""Adding a micro-batch's weight gradient to the sum of those before. [s]

    .. math:: \frac{k n e}{B} \cdot \{c g \text{ in place},\; f (a + 2 g) \text{ by a pass},\; a + g \text{ as shards}\}

    with e products, a bytes of an activation and g of a gradient. In place, the product reads and writes the sum in its
    epilogue, each tile after its own arithmetic and partly behind that of others: c (``accumulation_passes``) is less
    than the two passes that are made. Else a pass over all gradients reads the new one, and reads and writes the sum, f
    times: in DeepSpeed's bf16 optimizer (``update_hp_grads``) a cast, an addition and a clearing are kernels of their
    own. Where shards are added up, gradients are copied into the buffer of their reduction (``foreach_reduce`` of
    PyTorch's FSDP2), or joined to that of a flat parameter (the backward pass of ``torch.split``, whose outputs the
    weights are: torch/distributed/fsdp/_flat_param.py), 2 a, and cast where they are summed up in a wider format,
    a + g; the shards hardly count.
    """
    profile, software = machine.profile, machine.software
    new, total = machine.recipe.activation_bytes, machine.gradient_bytes
    if software.fused_accumulation:
        moved = profile.accumulation_passes * total
    elif software.sharded_accumulation == "parameters":
        moved = new + total
    elif software.sharded_accumulation == "flat":
        moved = 2 * new + (new + total if total > new else 0.0)
    else:
        moved = profile.unfused_accumulation_factor * (new + 2 * total)
    return moved * op.k * op.n * op.count / machine.memory_rate


def _with_casts(op: Matmul, machine: Machine, forward: Numbers, for_input: Numbers) -> tuple[Numbers, Numbers]:
    """Inputs are quantised before forward, output gradients before backward; weights, once per step, hardly count.

    By row, weights are quantised in every micro-batch, by column for the input's gradient (torchao).

    Those of grouped products expert by expert, each by a kernel of its own (``split_quantize`` of Transformer Engine),
    unless one kernel runs all products.
    """
    recipe = machine.recipe
    if not op.low_precision or recipe.matmul == recipe.dense_math:
        return forward, for_input
    by_row = _scales_rows(machine)
    time = (ROW_CAST if by_row else machine.profile.cast_bytes) / machine.memory_rate
    launches = op.starts * machine.profile.matmul_launch_time if op.grouped else 0.0
    there = op.m * op.k * op.count * time + launches if op.casts_input else 0.0
    back = op.m * op.n * op.count * time + launches if op.casts_gradient else 0.0
    if by_row:
        there = there + op.k * op.n * op.count * time
        back = back + op.k * op.n * op.count * machine.profile.column_cast_bytes["weight"] / machine.memory_rate
    return forward + there, for_input + back


ROW_CAST = 3.0
"""Bytes of an element that is scaled by row: read in 16 bits, its row's maximum found on the way, written in 8."""


def _scales_rows(machine: Machine) -> bool:
    return machine.recipe.matmul == "fp8" and machine.software.fp8_scaling == "row"


def _column_casts(op: Matmul, machine: Machine) -> Numbers:
    r"""Scaling the inputs and output gradients of a weight's gradient by column. [s]

    .. math:: \frac{(b_x m k + b_g m n) c}{B}

    Scales of rows do not transpose: a product that contracts rows reads what was scaled along them, which passes of
    their own find the maxima of, quantise and turn round (``torchao/testing/training/roofline_utils.py`` counts 5 bytes
    for each element; kernels take more).
    """
    if not (_scales_rows(machine) and op.low_precision):
        return 0.0
    moved = machine.profile.column_cast_bytes
    elements = moved["input"] * op.m * op.k + moved["gradient"] * op.m * op.n
    return elements * op.count / machine.memory_rate


def _unpacking_time(op: Matmul, machine: Machine) -> Numbers:
    r"""Writing a weight of few bits in the format of the activations, before every product that reads it. [s]

    .. math:: \frac{k n c (b + a)}{B} + l\,t_0

    with b bytes that are kept of a weight, a of an activation, and l kernels (``dequantize_4bit`` of bitsandbytes,
    ``MatMul4Bit``: forward and for the input's gradient).
    """
    if op.packed is None:
        return 0.0
    moved = (op.packed.bytes + machine.recipe.activation_bytes) * op.k * op.n * op.count
    return moved / machine.memory_rate + op.packed.kernels * op.starts * machine.profile.memory_pass_latency


def _in_panels(op: Matmul, machine: Machine, number_format: str, *, k: Numbers, n: Numbers) -> Numbers:
    r"""Time of all rows by (k, n), of which :math:`s (p\,t_{m / p} - t_m)` is the loss to p panels.

    Each panel starts, and fills its last wave of tiles, on its own (user buffers of Transformer Engine multiply what
    every rank sent as it arrives, transformer_engine/common/comm_gemm_overlap). The share s of that shows.
    """
    whole = _product_time(op, machine, number_format, m=op.m, k=k, n=n)
    if is_number(op.panels, 1):
        return whole
    cut = op.panels * _product_time(op, machine, number_format, m=op.m / op.panels, k=k, n=n)
    return whole + machine.profile.tp_panel_loss * np.maximum(cut - whole, 0.0)


def _product_time(
    op: Matmul, machine: Machine, number_format: str, *, m: Numbers, k: Numbers, n: Numbers, writes: bool = True
) -> Numbers:
    r"""Time of an (m, k) by (k, n) product.

    .. math:: \max\left(\frac{2 m n k c}{R} \cdot \frac{k + k_0}{k} (1 + w (P - 1)), \frac{bytes}{B}\right) + t_0

    with rate R, padding P, wave weight w, achieved bandwidth B; :math:`k_0` is that of 16 bits times how much faster
    the number format is. Grouped products start one by one (GroupedLinear of Transformer Engine calls cuBLAS for every
    expert), :math:`t_0` each, unless one kernel runs all; a single expert's is no group. ``writes``: whether its output
    is new, rather than added to what is there (:func:`_accumulation_time`).
    """
    profile = machine.profile
    padding = 1 + profile.matmul_wave_weight * (tile_padding(m, n, op.count, machine.accelerator.num_cores) - 1)
    rate = machine.matmul_rate(number_format)
    depth = depth_efficiency(k, profile, faster=rate / machine.matmul_rate(machine.recipe.dense_math))
    grouped = np.where(np.greater(op.count, 1), profile.grouped_matmul_efficiency, 1.0) if op.grouped else 1.0
    arithmetic = 2.0 * m * n * k * op.count * padding / (rate * grouped * depth)
    moved = product_bytes(op, machine, m=m, k=k, n=n, writes=writes)
    return np.maximum(arithmetic, moved / machine.memory_rate) + op.starts * profile.matmul_launch_time


def product_bytes(op: Matmul, machine: Machine, *, m: Numbers, k: Numbers, n: Numbers, writes: bool = True) -> Numbers:
    r"""What an (m, k) by (k, n) product reads and writes once, :math:`(m k + k n + m n) c`. [bytes]

    Without the m n elements of its output where it ``writes`` none of its own.
    """
    return (m * k + k * n + (m * n if writes else 0.0)) * op.count * machine.recipe.activation_bytes


def _attention_times(op: AttentionCore, machine: Machine) -> OperatorTimes:
    profile = machine.profile
    rate = machine.matmul_rate(machine.recipe.dense_math)
    launch = profile.memory_pass_latency * op.steps
    if not op.fused:
        flops = 2.0 * op.tokens * op.num_heads * op.scored_keys * (op.qk_head_dim + op.v_head_dim)
        aligned = op.qk_head_dim % 8 == 0
        relative = profile.unfused_attention_efficiency * (1.0 if aligned else profile.misaligned_matmul_efficiency)
        depth = depth_efficiency(op.qk_head_dim, profile)
        forward = flops / (rate * relative * depth)
        return OperatorTimes(forward + 2 * launch, 2 * forward + 4 * launch)
    peak = machine.peak(machine.recipe.dense_math)
    generation = profile.attention_generation[machine.software.attention_generation]
    efficiency = generation * attention_efficiency(op.qk_head_dim, op.rate_length, profile)
    forward = scaled(op.load, op.flops) / (peak * efficiency)
    backward = FLASH_BACKWARD_FLOPS * forward / profile.attention_backward_ratio
    there, back = _merging_bytes(machine)
    merged = op.merged_elements / machine.memory_rate
    return OperatorTimes(forward + there * merged + launch, backward + back * merged + launch)


def _merging_bytes(machine: Machine) -> tuple[Numbers, Numbers]:
    """What a step of a ring moves for each element of its partial output, forward and backward. [bytes]"""
    if machine.software.ring_kernels == "eager":
        return EAGER_FORWARD, EAGER_BACKWARD
    passes = machine.profile.memory_pass_factor[machine.software.kernels]
    return MERGE_FORWARD * passes, MERGE_BACKWARD * passes


def _pass_factor(op: StreamPass, machine: Machine) -> Numbers:
    """Bytes that move for each byte (scan: each element) of the operator."""
    if op.counted:
        return 1.0
    profile = machine.profile
    return profile.state_space_scan_bytes if op.scan else profile.memory_pass_factor[machine.software.kernels]


def pass_bytes(op: StreamPass, machine: Machine) -> Numbers:
    """What the kernels of a memory-bound pass read and write, forward. [bytes]"""
    return op.forward_bytes * _pass_factor(op, machine)


def _pass_times(op: StreamPass, machine: Machine) -> OperatorTimes:
    profile = machine.profile
    rate = machine.memory_rate / _pass_factor(op, machine)
    return OperatorTimes(
        op.forward_bytes / rate + profile.memory_pass_latency,
        op.backward_bytes / rate + profile.memory_pass_latency,
    )

"""How a training run grows with its compute, and the time of its step in every configuration.

The notebook's layers in a pipeline on two networks. Arrays run along three axes: tensor degree, tokens of a
micro-batch, and (stages, micro-batches) together.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Annotated, Any, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from shardplan.base.arrays import Numbers
from shardplan.base.fields import dataclass
from shardplan.methods.data_movement.layer import (
    Device,
    LayerTime,
    LinearLayer,
    all_reduce_words,
    busy_times,
    messages,
    passes,
)
from shardplan.methods.fields import Positive, StrictFields

YEAR = 365.25 * 86400.0


@dataclass(frozen=True, kw_only=True)
class Run:
    """A training run with a given compute. Numbers, or arrays over runs."""

    training_flop: Numbers
    num_parameters: Numbers
    tokens: Numbers
    """Tokens of the whole training."""
    batch_tokens: Numbers
    """Tokens of one step."""
    num_blocks: Numbers
    """Blocks in a row; real numbers here and below."""
    hidden_size: Numbers

    @property
    def num_steps(self) -> Numbers:
        """Optimizer steps."""
        return self.tokens / self.batch_tokens


UpToOne = Annotated[float, Field(ge=0, le=1)]


class Assumptions(StrictFields):
    """Assumptions of the limits curve; each can be replaced."""

    training_time_s: Positive = YEAR / 4
    """Three months, as in arXiv 2411.01137. [s]"""
    tokens_per_parameter: Positive = 20.0
    """Compute-optimal training of dense models (Hoffmann et al., arXiv 2203.15556)."""
    batch_tokens: Positive = 3.2e6
    """Batch of GPT-3 (arXiv 2005.14165, table 2.1), from which batches grow. [tokens]"""
    batch_flop: Positive = 3.14e23
    """Training compute of GPT-3 (arXiv 2005.14165, table D.1). [FLOP]"""
    batch_exponent: UpToOne = 1 / 6
    """Batches grow as this power of training compute: here as the cube root of the tokens, more slowly than the fits of
    Kaplan et al. (0.24, arXiv 2001.08361) and of DeepSeek LLM (0.327, arXiv 2401.02954)."""
    expansion: Positive = 5.0
    """A block is a layer from the hidden size to this multiple of it, and one back (the notebook's 16384 to 81920)."""
    aspect_ratio: Positive = 128.0
    """Hidden size over blocks at ``shape_parameters`` (GPT-3: 12288 over 96)."""
    shape_parameters: Positive = 175e9
    """Parameters at which the shape has that aspect ratio."""
    depth_exponent: UpToOne = 1 / 3
    """Blocks grow as this power of parameters; with a third the aspect ratio stays."""
    bytewidth: Positive = 2.0
    """Bytes per number (bf16)."""
    fast_domain: Annotated[float, Field(ge=1, le=1e15)] = 8.0
    """Devices that the device's own link joins (HGX H100); between such domains runs the outer network."""
    outer_bandwidth: Positive = 100e9
    """Outer network of one device, both directions together: InfiniBand NDR, 400 Gb/s each. [bytes/s]"""
    link_latency_s: UpToOne = 0.936e-6
    """One hop inside a domain; an all-reduce takes two. NVLink: astra-sim's validated HGX-H100 network. [s]"""
    outer_latency_s: UpToOne = 5e-6
    """One hop between domains. InfiniBand: low-latency tree of NCCL 2.30.7, ``src/graph/tuning.cc``. [s]"""
    kernel_latency_s: UpToOne = 4e-6
    """Fixed time of a matrix product (intercept of measured timings: 3 to 4 us on H100). [s]"""

    def run(self, training_flop: Numbers) -> Run:
        r"""The run of that compute.

        With :math:`k` tokens per parameter: :math:`C = 6 N D`, :math:`D = k N`; batch :math:`b_0 (C / C_0)^\beta`, the
        whole training at most; :math:`N = 2 r L h^2` with expansion r and :math:`L = L_0 (N / N_0)^\delta` blocks.
        """
        parameters = np.sqrt(training_flop / (6 * self.tokens_per_parameter))
        tokens = self.tokens_per_parameter * parameters
        grown = self.batch_tokens * (training_flop / self.batch_flop) ** self.batch_exponent
        blocks_then = (self.shape_parameters / (2 * self.expansion * self.aspect_ratio**2)) ** (1 / 3)
        blocks = np.maximum(blocks_then * (parameters / self.shape_parameters) ** self.depth_exponent, 1)
        return Run(
            training_flop=training_flop,
            num_parameters=parameters,
            tokens=tokens,
            batch_tokens=np.minimum(grown, tokens),
            num_blocks=blocks,
            hidden_size=np.sqrt(parameters / (2 * self.expansion * blocks)),
        )


Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

TENSOR_DEGREES: Final = 2.0 ** np.arange(34)
"""Products of tp_in and tp_out."""
SHARES: Final = np.unique(np.concatenate([2.0 ** np.arange(60), 3.0 * 2.0 ** np.arange(60)]))
"""Numbers of parts into which replicas and micro-batches together divide a batch."""
MOST_TOKENS: Final = 2.0**16
"""Largest number of tokens of one micro-batch and replica; larger ones gain nothing."""
STAGES_AND_MICROBATCHES: Final = np.array([(2.0**p, 2.0**m) for p in range(11) for m in range(15) if p <= m or p == 0])
"""A pipeline that interleaves its stages needs as many micro-batches."""
BEYOND: Final = 1e30
"""A time longer than any training; infinity would not multiply. [s]"""


@dataclass(frozen=True, kw_only=True)
class LayerSpace:
    """Configurations of one run."""

    tokens: Floats
    """Of one micro-batch and replica, along the second axis."""
    dp: Floats
    """Along the second and third axis."""
    pp: Floats
    """Along the third axis."""
    num_microbatches: Floats
    """Of one replica and step, along the third axis."""
    possible: Flags
    """Along the second and third axis: whole replicas, no more stages than blocks."""

    @property
    def num_devices(self) -> Floats:
        """All devices, along the three axes."""
        return TENSOR_DEGREES[:, None, None] * self.pp * self.dp


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Tensor degrees of a block, and how many ranks of each share a scale-up domain."""

    tp_in: Floats
    tp_out: Floats
    fast_in: Floats
    fast_out: Floats

    def at(self, index: tuple[Any, ...]) -> Placement:
        """The placements at ``index``."""
        return Placement(**{name: value[index] for name, value in vars(self).items()})


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """One block forward and backward, each tensor degree in its best placement; along the first and second axis."""

    time: Floats
    """``BEYOND`` any training if a device would have no input or no output. [s]"""
    latency: Floats
    """Additional latency of one micro-batch. [s]"""
    placement: Placement


def configurations(run: Run) -> LayerSpace:
    """Every way to divide the batch of ``run``."""
    pp, num_microbatches = STAGES_AND_MICROBATCHES.T
    tokens = float(run.batch_tokens) / SHARES
    kept = (tokens >= 1) & (tokens <= MOST_TOKENS)
    dp = SHARES[kept, None] / num_microbatches
    return LayerSpace(
        tokens=tokens[kept],
        dp=dp,
        pp=pp,
        num_microbatches=num_microbatches,
        possible=(dp >= 1) & (dp % 1 == 0) & (pp <= run.num_blocks),
    )


def price_blocks(device: Device, assumptions: Assumptions, run: Run, tokens: Floats) -> Blocks:
    """Times of a block for every tensor degree and micro-batch, on its best placement."""
    tried = _placements(assumptions.fast_domain)
    wide = assumptions.expansion * run.hidden_size
    of_one_token = block_times(device, assumptions, run, 1.0, tried)
    of_weights = block_times(device, assumptions, run, 0.0, tried)
    time = sum(_linear(one, fixed, tokens) for one, fixed in zip(of_one_token, of_weights, strict=True))
    time = np.where((tried.tp_in <= run.hidden_size) & (tried.tp_out <= wide), time, BEYOND)
    hops = _hops(assumptions, tried.tp_in, tried.fast_in) + _hops(assumptions, tried.tp_out, tried.fast_out)
    # Two layers, each with one product and one all-reduce forward and as many backward on the way.
    latency = np.broadcast_to(2 * 2 * hops + 4 * assumptions.kernel_latency_s, time.shape)
    best = np.argmin(time + latency, axis=1)
    rows = np.arange(len(TENSOR_DEGREES))[:, None]
    columns = np.arange(len(tokens))
    return Blocks(
        time=time[rows, best, columns],
        latency=latency[rows, best, columns],
        placement=tried.at((rows, best, 0)),
    )


def _linear(one: LayerTime, fixed: LayerTime, tokens: Floats) -> Floats:
    """Time of a layer for many numbers of tokens, from its times for one and for none: each resource is linear."""
    compute = np.maximum(one.flop, one.network) * tokens
    return np.maximum(compute, fixed.memory + (one.memory - fixed.memory) * tokens)


@cache
def _placements(fast_domain: float) -> Placement:
    """Power-of-two splits of every tensor degree, and of a scale-up domain among the two: an axis of their own."""
    domain = 2.0 ** math.floor(math.log2(min(fast_domain, float(TENSOR_DEGREES[-1]))))
    shares = 2.0 ** np.arange(math.log2(domain) + 1) if domain < TENSOR_DEGREES[-1] else np.array([domain])
    tp_in, fast_in = (grid.ravel() for grid in np.meshgrid(2.0 ** np.arange(20), shares))
    tp_in = np.minimum(tp_in, TENSOR_DEGREES[:, None])
    tp_out = TENSOR_DEGREES[:, None] / tp_in
    fast_in = np.minimum(fast_in, tp_in)
    fast_out = np.minimum(domain / fast_in, tp_out)
    found = Placement(tp_in=tp_in, tp_out=tp_out, fast_in=fast_in, fast_out=fast_out)
    return found.at((..., None))


def block_times(
    device: Device, assumptions: Assumptions, run: Run, tokens: Numbers, placed: Placement
) -> tuple[LayerTime, LayerTime]:
    """A block: a layer from the hidden size up, and one back that reads what the first split over tp_out."""
    wide, narrow, size = assumptions.expansion * run.hidden_size, run.hidden_size, assumptions.bytewidth
    up = LinearLayer(d_in=narrow, d_out=wide, tp_in=placed.tp_in, tp_out=placed.tp_out, bytewidth=size)
    down = LinearLayer(d_in=wide, d_out=narrow, tp_in=placed.tp_out, tp_out=placed.tp_in, bytewidth=size)
    return (
        _layer_time(device, assumptions, up, tokens, (placed.fast_in, placed.fast_out)),
        _layer_time(device, assumptions, down, tokens, (placed.fast_out, placed.fast_in)),
    )


def _layer_time(
    device: Device, assumptions: Assumptions, layer: LinearLayer, tokens: Numbers, fast: tuple[Numbers, Numbers]
) -> LayerTime:
    """The notebook's layer, with all-reduces across the borders of scale-up domains."""
    inside: Numbers = 0.0
    outside: Numbers = 0.0
    for (words, ranks), near in zip(messages(layer, tokens), fast, strict=True):
        in_domain, between = _two_tier_words(words, ranks, near)
        inside, outside = inside + in_domain, outside + between
    network = _link_words(device, assumptions, inside, outside)
    return passes(device, layer, tokens, network=network, reduced=inside + outside)


def _two_tier_words(words: Numbers, ranks: Numbers, near: Numbers) -> tuple[Numbers, Numbers]:
    """All-reduce inside domains of ``near`` ranks, then between them on the part that each rank has reduced."""
    return all_reduce_words(words, near), all_reduce_words(words / near, ranks / near)


def _link_words(device: Device, assumptions: Assumptions, inside: Numbers, outside: Numbers) -> Numbers:
    """Words that would occupy the device's own link for as long as the busier of the two networks."""
    return np.maximum(inside, outside * (device.network_bandwidth / assumptions.outer_bandwidth))


def _hops(assumptions: Assumptions, ranks: Floats, near: Floats) -> Floats:
    """Latency of a hop inside a domain, where ``near`` ranks share it, and of one between domains. [s]"""
    return assumptions.link_latency_s * (near > 1) + assumptions.outer_latency_s * (ranks > near)


def gradient_time(device: Device, assumptions: Assumptions, run: Run, space: LayerSpace) -> Floats:
    """Exposed all-reduce of the gradients of a device's blocks at the end of the batch. [s]

    Replicas share a scale-up domain as far as tensor parallelism leaves room.
    """
    left, which = np.unique(np.maximum(assumptions.fast_domain / TENSOR_DEGREES, 1.0), return_inverse=True)
    near = np.minimum(left[:, None, None], space.dp)
    inside, outside = _two_tier_words(run.num_parameters / space.pp, space.dp, near)
    network = _link_words(device, assumptions, inside, outside)
    times = busy_times(device, assumptions.bytewidth, flop=0.0, memory=inside + outside, network=network)
    hops = _hops(assumptions, space.dp, near)
    return np.asarray(times.total)[which] / TENSOR_DEGREES[:, None, None] + 2 * hops[which]


def step_time(run: Run, space: LayerSpace, blocks: Blocks, gradients: Floats) -> tuple[Floats, Flags]:
    r"""Time of a step, and whether latency sets it.

    With m micro-batches through p stages of :math:`L/p` blocks each, interleaved block by block,

    .. math:: \max\left(\frac{m L}{p} t + (p - 1) (t + l), L (t + l)\right) + g

    where t and l are time and latency of a block, and g the gradients': stages wait only while the pipeline fills and
    drains, and no micro-batch passes the blocks faster than one after the other.
    """
    t, with_latency = blocks.time[..., None], (blocks.time + blocks.latency)[..., None]
    through = space.num_microbatches * run.num_blocks / space.pp * t + (space.pp - 1) * with_latency
    alone = run.num_blocks * with_latency
    return np.maximum(through, alone) + gradients, alone > through

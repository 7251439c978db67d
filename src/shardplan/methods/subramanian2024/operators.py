r"""The operators of a layer and their collectives, per micro-batch: work, memory traffic, weights and saved tensors.

Products of length k count k multiplications and k - 1 additions. :math:`W` is the size of an fp16 element, :math:`K`
that of a mask element. All sizes are those of one rank; ``rows`` is micro-batch times local sequence. A collective has
two networks, fast inside a domain and slow between domains: a group of :math:`g` ranks has :math:`t` members inside
each scale-up domain. Latency is that of a ring for every kind.
"""

from __future__ import annotations

from typing import Final, Literal

import numpy as np

from shardplan.base.arrays import Numbers
from shardplan.base.fields import dataclass
from shardplan.methods.subramanian2024.inputs import Corrections, System

CollectiveKind = Literal["all_gather", "reduce_scatter", "all_reduce", "broadcast", "reduce"]


@dataclass(frozen=True)
class PaperCollective:
    """One collective of an operator."""

    kind: CollectiveKind
    volume: Numbers
    """The whole tensor, before it is scattered or after it is gathered. [bytes]"""
    size: Numbers
    """Ranks of the group."""
    inside: Numbers
    """Ranks of the group inside one scale-up domain."""
    group: str
    """Tensor degree of the group."""


def collective_time(call: PaperCollective, system: System, corrected: Corrections, *, blocks: Numbers = 1) -> Numbers:
    r"""Time of one of ``blocks`` equal parts of a collective. [s]

    With :math:`c = (g - 1)/g` (1 for broadcast and reduce), efficient bandwidths :math:`b_s` and :math:`b_f`, latencies
    :math:`\ell_s` and :math:`\ell_f`, :math:`\nu` adapters per accelerator and :math:`x` = 2 for an all-reduce, else 1:

    .. math:: \ell_s (g/t - 1) + \ell_f (g - g/t) + x c V \max(1 / (\nu t b_s), 1 / b_f)

    with only the first rate and x = 1 where :math:`t = 1`, and only the second and x = 1 where :math:`t = g`.

    As published only the last case knows the factor x (Q3). Nothing to send, or nobody to send to, takes no time.
    """
    g, t = call.size, call.inside
    nodes = np.floor_divide(g, t)
    latency = system.ib_latency * (nodes - 1) + system.nvlink_latency * (g - nodes)
    factor = 2 if call.kind == "all_reduce" else 1
    uniform = factor if "Q3" in corrected else 1
    across = factor * np.maximum(1 / (system.nic_factor * t * system.slow_bandwidth), 1 / system.fast_bandwidth)
    inside = np.where(nodes == 1, uniform / system.fast_bandwidth, across)
    time_per_byte = np.where(np.equal(t, 1), uniform / system.slow_bandwidth, inside)
    if call.kind not in ("broadcast", "reduce"):
        time_per_byte = time_per_byte * (g - 1) / g
    is_alone = np.equal(g, 1)
    latency, time_per_byte = np.where(is_alone, 0, latency), np.where(is_alone, 0, time_per_byte)
    return np.where(np.equal(call.volume, 0), 0, latency + call.volume / blocks * time_per_byte)


def transfer_times(volume: Numbers, system: System) -> tuple[Numbers, Numbers]:
    """Time to send ``volume`` [bytes] to one other rank, between domains and inside one. [s]"""
    is_nothing = np.equal(volume, 0)
    slow = np.where(is_nothing, 0, system.ib_latency + volume / system.slow_bandwidth)
    fast = np.where(is_nothing, 0, system.nvlink_latency + volume / system.fast_bandwidth)
    return slow, fast


W: Final = 2.0
K: Final = 1.0

Calls = tuple[PaperCollective, ...]


@dataclass(frozen=True)
class VectorPass:
    """One direction of an operator."""

    flops: Numbers
    """Operations; vector work inside a matrix operator counts at the ratio of the two rates. [FLOP]"""
    traffic: Numbers
    """Device memory read and written. [bytes]"""
    calls: Calls = ()
    """Collectives, one after the other."""


@dataclass(frozen=True, kw_only=True)
class Operator:
    """One operator, forward and backward."""

    name: str
    engine: Literal["matrix", "vector"]
    """Which units it runs on."""
    forward: VectorPass
    backward: VectorPass
    weight_bytes: Numbers = 0.0
    kept_bytes: Numbers = 0.0
    """Saved for the backward pass. [bytes]"""
    blocks: Numbers | None = None
    """Rounds into which SUMMA divides product and collectives; None if the collectives follow the product."""


def linear(
    name: str,
    *,
    rows: Numbers,
    k: Numbers,
    n: Numbers,
    forward: Calls = (),
    backward: Calls = (),
    kept_bytes: Numbers | None = None,
) -> Operator:
    """Product of (rows, k) and (k, n); the backward pass has two: for the input and for the weight."""
    x, y, w = rows * k * W, rows * n * W, k * n * W
    return Operator(
        name=name,
        engine="matrix",
        forward=VectorPass(rows * n * (2 * k - 1), x + y + w, forward),
        backward=VectorPass(rows * k * (2 * n - 1) + k * n * (2 * rows - 1), 2 * w + 2 * x + 2 * y, backward),
        weight_bytes=w,
        kept_bytes=x if kept_bytes is None else kept_bytes,
    )


def summa_linear(
    name: str,
    *,
    rows: Numbers,
    k: int,
    n: Numbers,
    kept_columns: Numbers,
    weight_rows: Numbers,
    blocks: Numbers,
    along: tuple[tuple[Numbers, Numbers], tuple[Numbers, Numbers]],
) -> Operator:
    """Product on a grid of ranks in ``blocks`` rounds; ``along``: size and members inside a domain of both degrees."""
    x, w, y = rows * k * W, k * n * W, rows * n * W
    (m1, t1), (m2, t2) = along
    x_out, w_out = PaperCollective("broadcast", x, m1, t1, "tp1"), PaperCollective("broadcast", w, m2, t2, "tp2")
    x_in, w_in = PaperCollective("reduce", x, m1, t1, "tp1"), PaperCollective("reduce", w, m2, t2, "tp2")
    traffic = x + w + blocks * y
    return Operator(
        name=name,
        engine="matrix",
        forward=VectorPass(2 * rows * n * k, traffic, (x_out, w_out)),
        backward=VectorPass(rows * k * (2 * n - 1) + k * n * (2 * rows - 1), 2 * traffic, (w_out, x_in, x_out, w_in)),
        weight_bytes=weight_rows * n * W,
        kept_bytes=rows * kept_columns * W,
        blocks=blocks,
    )


def bias(name: str, *, rows: Numbers, n: Numbers) -> Operator:
    """Sum of every row and a vector; the activation is counted once, read or written (Q6)."""
    work = VectorPass(rows * n, (rows * n + n) * W)
    return Operator(name=name, engine="vector", forward=work, backward=work, weight_bytes=n * W)


def activation(name: str, *, elements: Numbers) -> Operator:
    """GELU: 8 operations an element forward, 13 backward."""
    m = elements
    forward, backward = VectorPass(8 * m, 2 * m * W), VectorPass(13 * m, 3 * m * W)
    return Operator(name=name, engine="vector", forward=forward, backward=backward, kept_bytes=m * W)


def dropout(name: str, *, elements: Numbers) -> Operator:
    """Product with a mask, which is saved."""
    work = VectorPass(elements, 2 * elements * W + elements * K)
    return Operator(name=name, engine="vector", forward=work, backward=work, kept_bytes=elements * K)


def layer_norm(name: str, *, rows: Numbers, n: Numbers, forward: Calls = (), backward: Calls = ()) -> Operator:
    """Mean, variance, scale and shift of rows of ``n`` channels."""
    elements = rows * n
    return Operator(
        name=name,
        engine="vector",
        forward=VectorPass(9 * elements, (2 * elements + 2 * rows + 2 * n) * W, forward),
        backward=VectorPass(8 * elements + 4 * rows * (n - 1), (5 * elements + 2 * n) * W, backward),
        weight_bytes=2 * n * W,
        kept_bytes=elements * W,
    )


def fused_attention(
    name: str,
    *,
    heads: Numbers,
    queries: Numbers,
    keys: int,
    q: int,
    rate_ratio: float,
    forward: Calls,
    backward: Calls,
) -> Operator:
    r"""Scores, softmax, dropout and weighted values in one kernel; the backward pass recomputes the scores.

    ``heads`` are those of the micro-batch, :math:`z`; ``rate_ratio`` is the matrix rate over the vector rate,
    :math:`r`, so that division by the matrix rate gives the time of vector work. No masks: every query meets all keys.
    """
    z, r, s = heads, rate_ratio, heads * queries * keys
    softmax = z * queries * (keys - 1)
    scores = s * (2 * q - 1) + r * (2 * s + softmax)
    values_gradient = z * keys * q * (2 * queries - 1)
    queries_gradient = z * queries * q * (2 * keys - 1)
    kept = (4 * z * queries * q + 2 * z * queries) * W
    return Operator(
        name=name,
        engine="matrix",
        forward=VectorPass(
            scores + r * s + queries_gradient, (2 * z * queries * q + 2 * z * keys * q + z * queries) * W, forward
        ),
        backward=VectorPass(
            (queries_gradient + values_gradient)
            + r * (3 * s + softmax)
            + r * s
            + (s * (2 * q - 1) + values_gradient)
            + (scores + r * s),
            (2 * z * keys * q + 2 * z * queries * q) * W + kept,
            backward,
        ),
        kept_bytes=kept,
    )

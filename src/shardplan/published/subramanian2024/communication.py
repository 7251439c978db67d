r"""Time of a collective on two networks: fast inside a domain, slow between domains.

A group of :math:`g` ranks has :math:`t` members inside each scale-up domain. Latency is that of a ring for every kind.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from shardplan.arrays import Numbers
from shardplan.fields import dataclass
from shardplan.published.subramanian2024.corrections import Corrections
from shardplan.published.subramanian2024.inputs import System

CollectiveKind = Literal["all_gather", "reduce_scatter", "all_reduce", "broadcast", "reduce"]


@dataclass(frozen=True)
class PaperCollective:
    """One collective of an operator."""

    kind: CollectiveKind
    volume: Numbers
    """The whole tensor, gathered or not yet scattered. [bytes]"""
    size: Numbers
    """Ranks of the group."""
    inside: Numbers
    """Ranks of the group inside one scale-up domain."""
    group: str
    """Tensor degree along which it runs."""


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

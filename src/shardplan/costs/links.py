"""Which share of an accelerator's links a collective can use: all of a switch, some of a mesh or a torus.

The links of a torus of d axes with bandwidth B per accelerator and direction carry b = B / (2 d) each: two links on
every axis. Accelerators are numbered along its axes, the longest first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from shardplan.arrays import Numbers
from shardplan.inputs.cluster import NetworkTier
from shardplan.inputs.plan_numbers import Digit


def usable_share(tier: NetworkTier, used: int, fan_out: Numbers) -> Numbers:
    """Share of an accelerator's links that a ring of this many neighbours can use, in a job that has ``used``."""
    if tier.topology == "mesh" and tier.size:
        return np.clip((np.asarray(fan_out) - 1) / (tier.size - 1), 1 / (tier.size - 1), 1)
    if tier.topology == "torus":
        sides = slice_sides(tier, used)
        filled = [math.prod(sides[: count + 1]) for count in range(len(sides) - 1)]
        return (1.0 + sum(np.asarray(fan_out) > number for number in filled)) / len(tier.torus_shape)
    return 1.0


def exchange_share(tier: NetworkTier, load: Numbers, num_ranks: Numbers) -> Numbers:
    r"""The same of an all-to-all among ``num_ranks`` of a torus, whose bytes pass through other accelerators.

    .. math:: \frac{1 - 1/m}{2 d L}

    of m ranks, with the ``load`` L of :func:`exchange_load`: a rank sends :math:`1 - 1/m` of its bytes S to others,
    and the busiest link is done after :math:`S L / b`. One for a single rank.
    """
    sent = 1 - 1 / np.asarray(num_ranks)
    carried = np.maximum(2 * len(tier.torus_shape) * load, sent)
    return np.where(sent > 0, sent, 1.0) / np.where(sent > 0, carried, 1.0)


def exchange_load(tier: NetworkTier, used: int, parts: Sequence[Digit]) -> Numbers:
    r"""Bytes on the busiest link of a torus in an all-to-all, for each byte that a rank holds for all ranks.

    .. math:: L = \max_i \frac{s_i k_i}{8} \;\text{on axes that the ranks go round,}\; \frac{s_i k_i}{4} \;\text{else}

    with :math:`k_i` ranks on axis i, :math:`s_i` accelerators apart: half of a ring of k sends half of its bytes to the
    other half, k / 4 ranks' bytes over two links; a line has one, and the s groups that lie between each other share
    them. A k that is odd counts as k - 1/k. It is the bisection bound, which routing along one axis after the other
    reaches (Dally and Towles, Principles and Practices of Interconnection Networks, 2004, chapter 5).

    Assumptions: every rank sends equally much to every other; a slice of a torus goes round as the torus does.
    """
    busiest: Numbers = 0.0
    inner = 1
    for side in slice_sides(tier, used):
        load = sum((_axis_load(digit, inner, inner * side) for digit in parts), start=np.float64(0.0))
        busiest = np.maximum(busiest, load)
        inner *= side
    return busiest


def _axis_load(digit: Digit, inner: int, outer: int) -> Numbers:
    """Of one run of ranks on the axis whose neighbours are ``inner`` apart and that ends at ``outer``."""
    stride = np.asarray(digit.stride)
    first, last = np.clip(stride, inner, outer), np.clip(stride * digit.size, inner, outer)
    ranks, apart = last / first, first / inner
    crossing = apart * (ranks - (ranks % 2 == 1) / ranks)
    return crossing / np.where(last == outer, 8, 4)


def slice_sides(tier: NetworkTier, used: int) -> tuple[int, ...]:
    """Sides of the part of a torus that a job gets, longest first.

    Powers of two, as equal as can be, of the least that hold it.
    """
    if used >= math.prod(tier.torus_shape):
        return tuple(sorted(tier.torus_shape, reverse=True))
    doublings, axes = math.ceil(math.log2(used)) if used > 1 else 0, len(tier.torus_shape)
    return tuple(2 ** (doublings // axes + (axis < doublings % axes)) for axis in range(axes))

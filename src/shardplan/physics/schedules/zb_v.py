"""ZB-V: two chunks per rank in the shape of a V (Qi et al., arXiv 2405.15362; arXiv 2401.10241, section 6)."""

from __future__ import annotations

import numpy as np

from shardplan.base.arrays import Numbers, largest
from shardplan.physics.schedules.base import Folded, Pass, Passes, Pipeline, PipelineSchedule, numbered

WAYS = (
    ((2, 0), (0, 0), (-2, -1)),
    ((2, -1), (0, 1), (-2, 0)),
    ((2, 0), (-1, 0), (-1, 0)),
    ((1, -1), (-1, 1), (0, 0)),
    ((0, 0), (2, 0), (-2, 0)),
    ((-1, 0), (0, 1), (1, -1)),
    ((-1, 0), (1, 0), (0, 0)),
    ((-1, 1), (0, 0), (1, -1)),
)
"""Longest ways through the passes: of F, B and W of a chunk, how many for each other rank, and how many besides."""


class ZeroBubbleV(Folded, PipelineSchedule):
    r"""Rank r holds chunks r and 2p - 1 - r: no bubble for F = B = W, in the memory of 1F1B.

    Otherwise the longest of eight ways through the fixed order of passes, the chunks' F, B and W being half the rank's:

    .. math:: \frac12 \max\left(0, \max_k [(p - 1) a_k + b_k] \cdot (F, B, W)\right)

    which is :math:`(p - 1)(B - W)` for long input gradients, :math:`(p - 1)(F - \frac{B + W}{2})` for long forward
    passes. Schedules that the authors search for given times do better there. The last rank turns the micro-batches
    round, and the first holds both ends of the model.
    """

    name = "zb-v"
    title = "Zero bubble, ZB-V"
    source = "arXiv 2405.15362; arXiv 2401.10241, section 6"

    def least_microbatches(self, pp: Numbers) -> Numbers:
        """The first rank starts with as many forward passes."""
        return 2 * pp - 1

    def idle_time(self, at: Pipeline, own: Passes, everyone: Passes, pace: Numbers = 1.0) -> Numbers:  # noqa: ARG002
        """The longest of all ways: the mean other rank's passes lengthen it, this rank's own fill it. [s]"""
        others = np.asarray(at.pp) - 1
        mean = (everyone - own) / np.maximum(others, 1)
        ways = (
            sum(
                np.maximum(each * others + more, 0) * out + np.minimum(each * others + more, 0) * held
                for (each, more), out, held in zip(way, mean.parts, own.parts, strict=True)
            )
            for way in WAYS
        )
        return np.where(others > 0, np.maximum(largest(ways), 0.0) / 2, 0.0)

    def microbatches_in_flight(self, at: Pipeline, rank: Numbers) -> Numbers:  # noqa: ARG002
        """2 p chunk passes, of half a stage each, on every rank."""
        kept: Numbers = np.minimum(at.num_microbatches, at.pp)
        return kept

    def events(self, pp: int, vp: int, num_microbatches: int, group_size: int) -> tuple[tuple[Pass, ...], ...]:  # noqa: ARG002
        """Warm-up, a steady state of F B W on both chunks in turn, and weight gradients at the end."""
        return tuple(_order(pp, rank, num_microbatches) for rank in range(pp))


def _order(pp: int, rank: int, num_microbatches: int) -> tuple[Pass, ...]:
    """Passes of a rank: counts of each phase follow from how far it is from the turning point."""
    left = pp - rank
    return numbered(
        "F0 " * (2 * left - 1)
        + "F1 F0 " * rank
        + "F1 B1 W1 " * left
        + "F0 B0 W0 F1 B1 W1 " * (num_microbatches - pp - left + 1)
        + "B0 W0 F1 B1 W1 " * (left - 1)
        + "B0 B1 " * rank
        + "B0 W0 " * left
        + "W1 " * rank
        + "W0 " * rank
    )

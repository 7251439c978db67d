"""Schedules of one stage on every rank: GPipe, 1F1B and eager 1F1B.

GPipe runs all forward passes, then all backward passes (Huang et al., arXiv 1811.06965). 1F1B runs one forward, one
backward (PipeDream-Flush; Narayanan et al., arXiv 2006.09503 and 2104.04473, section 2.2); eager 1F1B more forward
passes ahead, to hide transfers (Zhuang et al., arXiv 2211.05322).
"""

from __future__ import annotations

import numpy as np

from shardplan.base.arrays import Numbers, is_zero, where
from shardplan.physics.schedules.base import (
    ChunkTimes,
    Orders,
    Pass,
    Passes,
    Pipeline,
    PipelineSchedule,
    RankPasses,
    Schedule,
)

INTERLEAVING = "interleaving has whole groups of micro-batches"
"""Rule of the schedules that follow from ``vp``: one chunk runs as 1F1B, several are interleaved."""


class OneForwardOneBackward(PipelineSchedule):
    r"""Every rank alternates once filled; :math:`\min(M, p - r)` micro-batches are in flight.

    A rank that runs its M micro-batches without a gap waits for the first one to come through the ranks in front of it
    and for the last one to return there. Behind it a micro-batch spends :math:`T_r = \sum_{i > r} t_i`, in which the
    rank runs :math:`n_r = \min(p - r, M) - 1` more forward passes at the start, and as many backward passes at the end.
    What these do not fill are the gaps of the longest path over rank r:

    .. math:: \max_r \left[\sum_{i < r} t_i + M t_r + \max(0, T_r - n_r F_r) + \max(0, T_r - n_r B_r)\right]

    with both gradients in B and :math:`t = F + B`. Of the two gaps the rank has the larger one only where all its
    forward passes come first, :math:`M \le p - r`. No step is shorter; where stages differ by some per cent it is the
    step, and with equal stages the bubble is :math:`(p - 1)(F + B)`, whatever M. Paths that turn at several ranks are
    left out: they are longer where stages differ by more and a stage far from the slowest one has relatively long
    forward or backward passes.
    """

    name = "1f1b"
    title = "1F1B (PipeDream-Flush)"
    source = "arXiv 2006.09503; arXiv 2104.04473, section 2.2.1"
    rule = INTERLEAVING
    reads_place = True

    def idle_time(self, at: Pipeline, own: Passes, everyone: Passes, pace: Numbers = 1.0) -> Numbers:  # noqa: ARG002
        """One micro-batch's way through the ranks in front, and what those behind leave as gaps. [s]

        Of a rank whose place is not known, the way through every other stage: as if its work could fill no gap.
        """
        others = everyone.total - own.total
        if not isinstance(own, RankPasses) or is_zero(own.num_behind):
            return others
        return (others - own.behind.total) + gaps(at, own)

    def least_bubble(self, at: Pipeline) -> Numbers:
        r"""Half the bubble of equal stages at least, nearly all of it where there are few micro-batches.

        With the sum over stages :math:`S \ge p \bar t` and the slowest stage :math:`t_r \ge \bar t`, whatever
        :math:`T_r` is: both gaps are at least :math:`2 T_r - n_r t_r` and none is negative, so that the step takes
        :math:`S + (M - 1 - n_r / 2) t_r`; one gap is at least :math:`T_r - n_r t_r / 2`, so that it takes
        :math:`S + (M - 1) t_r / 2` where all forward passes come first.
        """
        m, pp = np.asarray(at.num_microbatches), np.asarray(at.pp)
        return np.where(m > pp, (pp - 1) / 2, pp - (m + 1) / 2)

    def microbatches_in_flight(self, at: Pipeline, rank: Numbers) -> Numbers:
        """Rank r warms up with p - r - 1 forward passes and then keeps one more."""
        kept: Numbers = np.minimum(at.num_microbatches, at.pp - np.asarray(rank))
        return kept

    def events(self, pp: int, vp: int, num_microbatches: int, group_size: int) -> tuple[tuple[Pass, ...], ...]:  # noqa: ARG002
        """Warm-up, then one forward and one backward, then the rest."""
        forward = [Pass("F", 0, microbatch) for microbatch in range(num_microbatches)]
        backward = [Pass("BW", 0, microbatch) for microbatch in range(num_microbatches)]
        return tuple(alternate(forward, backward, pp - rank - 1) for rank in range(pp))


def gaps(at: Pipeline, own: RankPasses) -> Numbers:
    """What a rank waits for the first micro-batch and for the last one to come back from the ranks behind it. [s]"""
    ahead = np.minimum(own.num_behind, np.maximum(at.num_microbatches, 1) - 1)
    behind = own.behind.total
    first = np.maximum(behind - ahead * own.forward, 0.0)
    last = np.maximum(behind - ahead * own.backward, 0.0)
    alternates = np.greater(at.num_microbatches, np.asarray(own.num_behind) + 1)
    if np.all(alternates):
        return first + last
    return where(alternates, first + last, np.maximum(first, last))


def alternate(forward: list[Pass], backward: list[Pass], warm_up: int) -> tuple[Pass, ...]:
    """``warm_up`` forward passes, then one forward and one backward pass in turn, then the backward passes left."""
    first = min(warm_up, len(forward))
    last = len(forward) - first
    pairs = [*forward[first:], *backward[:last]]
    pairs[::2], pairs[1::2] = forward[first:], backward[:last]  # slices, which are faster than a loop
    return (*forward[:first], *pairs, *backward[last:])


class GPipe(PipelineSchedule):
    r"""The bubble of 1F1B, :math:`\sum_{i \ne r} t_i`, with every micro-batch in flight."""

    name = "gpipe"
    title = "GPipe"
    source = "arXiv 1811.06965, section 2.3"
    rule = INTERLEAVING

    def idle_time(self, at: Pipeline, own: Passes, everyone: Passes, pace: Numbers = 1.0) -> Numbers:  # noqa: ARG002
        """One micro-batch's way through every other stage: each kind of pass fills the pipeline once. [s]"""
        return everyone.total - own.total

    def least_bubble(self, at: Pipeline) -> Numbers:
        """The bubble of equal stages: the slowest rank has more work, and waits for the mean of all."""
        return np.asarray(at.pp) - 1.0

    def microbatches_in_flight(self, at: Pipeline, rank: Numbers) -> Numbers:  # noqa: ARG002
        """All of them."""
        return at.num_microbatches

    def events(self, pp: int, vp: int, num_microbatches: int, group_size: int) -> tuple[tuple[Pass, ...], ...]:  # noqa: ARG002
        """Backward passes in the order of the forward passes."""
        forward = tuple(Pass("F", 0, microbatch) for microbatch in range(num_microbatches))
        backward = tuple(Pass("BW", 0, microbatch) for microbatch in range(num_microbatches))
        return ((*forward, *backward),) * pp


class EagerOneForwardOneBackward(Schedule):
    r"""1F1B with twice the forward passes ahead: rank r keeps :math:`\min(M, 2 (p - r) - 1)` micro-batches.

    A transfer then has a whole pass of time to arrive before the next rank needs it. With equal stages and free
    transfers the bubble is that of 1F1B.
    """

    name = "eager-1f1b"
    title = "Eager 1F1B"
    source = "arXiv 2211.05322, section 4"
    priced_as = "1f1b"

    def order(self, at: Pipeline, times: ChunkTimes) -> Orders:  # noqa: ARG002  # the order is fixed
        """As 1F1B, with twice the warm-up."""
        pp, num_microbatches = int(at.pp), int(at.num_microbatches)
        forward = [Pass("F", 0, microbatch) for microbatch in range(num_microbatches)]
        backward = [Pass("BW", 0, microbatch) for microbatch in range(num_microbatches)]
        return tuple(alternate(forward, backward, 2 * (pp - rank - 1)) for rank in range(pp))

"""One forward, one backward (PipeDream-Flush; Narayanan et al., arXiv 2006.09503 and 2104.04473, section 2.2)."""

from __future__ import annotations

import numpy as np

from shardplan.arrays import Numbers
from shardplan.schedules.base import Pass, Passes, Pipeline, PipelineSchedule

INTERLEAVING = "interleaving has whole groups of micro-batches"
"""Rule of the schedules that follow from ``vp``: one chunk runs as 1F1B, several are interleaved."""


class OneForwardOneBackward(PipelineSchedule):
    r"""Every rank alternates once filled: bubble :math:`\sum_{i \ne r} t_i`, :math:`\min(M, p - r)` in flight.

    With equal stages the bubble is :math:`(p - 1)(F + B + W)`, whatever M.
    """

    name = "1f1b"
    title = "1F1B (PipeDream-Flush)"
    source = "arXiv 2006.09503; arXiv 2104.04473, section 2.2.1"
    rule = INTERLEAVING

    def idle_time(self, at: Pipeline, own: Passes, everyone: Passes, pace: Numbers = 1.0) -> Numbers:  # noqa: ARG002
        """One micro-batch's way through every other stage: the first there, the last back. [s]"""
        return everyone.total - own.total

    def microbatches_in_flight(self, at: Pipeline, rank: Numbers) -> Numbers:
        """Rank r warms up with p - r - 1 forward passes and then keeps one more."""
        kept: Numbers = np.minimum(at.num_microbatches, at.pp - np.asarray(rank))
        return kept

    def events(self, pp: int, vp: int, num_microbatches: int, group_size: int) -> tuple[tuple[Pass, ...], ...]:  # noqa: ARG002
        """Warm-up, then one forward and one backward, then the rest."""
        forward = [Pass("F", 0, microbatch) for microbatch in range(num_microbatches)]
        backward = [Pass("BW", 0, microbatch) for microbatch in range(num_microbatches)]
        return tuple(alternate(forward, backward, pp - rank - 1) for rank in range(pp))


def alternate(forward: list[Pass], backward: list[Pass], warm_up: int) -> tuple[Pass, ...]:
    """``warm_up`` forward passes, then one forward and one backward pass in turn, then the backward passes left."""
    first = min(warm_up, len(forward))
    last = len(forward) - first
    pairs = [*forward[first:], *backward[:last]]
    pairs[::2], pairs[1::2] = forward[first:], backward[:last]  # slices, which are faster than a loop
    return (*forward[:first], *pairs, *backward[last:])

"""Eager 1F1B: more forward passes ahead, to hide transfers (Zhuang et al., arXiv 2211.05322)."""

from __future__ import annotations

from shardplan.schedules.base import ChunkTimes, Orders, Pass, Pipeline, Schedule
from shardplan.schedules.one_f_one_b import alternate


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

"""DualPipe-V: DualPipe cut in half, without the second copy of the model (README of deepseek-ai/DualPipe)."""

from __future__ import annotations

import numpy as np

from shardplan.arrays import Numbers
from shardplan.schedules.base import Pass, Passes, Pipeline, PipelineSchedule, Place
from shardplan.schedules.dualpipe import bidirectional, folded_idle_time
from shardplan.schedules.zb_v import folded


class DualPipeV(PipelineSchedule):
    r"""Rank r holds chunks r and 2p - 1 - r, and runs the passes that a rank of DualPipe on 2p ranks runs.

    Bubble, with F, B and W of a whole rank and blocks that take as long as their passes:

    .. math:: \frac{p - 1}{2} \left(F + \max(F, B) + \max(B - W, 0)\right)

    which is the published :math:`(P/2 - 1)(F\&B + B' - 3 W)` for P = 2p chunks. Every rank keeps P + 1 chunk passes:
    :math:`p + 1/2` micro-batches.
    """

    name = "dualpipe-v"
    title = "DualPipe-V"
    source = "arXiv 2412.19437; README of deepseek-ai/DualPipe"
    splits_backward = True
    least_pp = 2
    ends_meet = True
    least_vp = 2
    most_vp = 2
    reads_place = True

    def least_microbatches(self, pp: Numbers) -> Numbers:
        """As many as there are chunks."""
        return 2 * pp

    def idle_time(self, at: Pipeline, own: Passes, everyone: Passes, pace: Numbers = 1.0) -> Numbers:  # noqa: ARG002
        """The bubble of p ranks whose chunks take half of a rank's time. [s]"""
        return folded_idle_time(at.pp, own, everyone) / 2

    def microbatches_in_flight(self, at: Pipeline, rank: Numbers) -> Numbers:  # noqa: ARG002
        """2 p + 1 chunk passes, of half a stage each."""
        kept: Numbers = np.minimum(at.num_microbatches, np.asarray(at.pp) + 0.5)
        return kept

    def path(self, pp: int, vp: int, num_microbatches: int, microbatch: int) -> tuple[Place, ...]:  # noqa: ARG002
        """Down the ranks and back up."""
        return folded(pp)

    def events(self, pp: int, vp: int, num_microbatches: int, group_size: int) -> tuple[tuple[Pass, ...], ...]:  # noqa: ARG002
        """Every micro-batch through both chunks of a rank."""
        return tuple(bidirectional(pp, rank, num_microbatches) for rank in range(pp))

"""All forward passes, then all backward passes (Huang et al., arXiv 1811.06965)."""

from __future__ import annotations

import numpy as np

from shardplan.arrays import Numbers
from shardplan.schedules.base import Pass, Passes, Pipeline, PipelineSchedule
from shardplan.schedules.one_f_one_b import INTERLEAVING


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

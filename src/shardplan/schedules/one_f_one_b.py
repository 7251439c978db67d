"""One forward, one backward (PipeDream-Flush; Narayanan et al., arXiv 2006.09503 and 2104.04473, section 2.2)."""

from __future__ import annotations

import numpy as np

from shardplan.arrays import Numbers
from shardplan.schedules.base import PipelineSchedule

__all__ = ["OneForwardOneBackward"]


class OneForwardOneBackward(PipelineSchedule):
    r"""After filling the pipeline every rank alternates: bubble :math:`\sum_{i \ne r} t_i`, :math:`\min(M, p - r)` in flight."""

    name = "1f1b"

    def idle_time(self, stage_time: Numbers, all_stages_time: Numbers, vp: Numbers) -> Numbers:
        """One micro-batch's way through all other stages; :math:`(p - 1) t` where stages are equal."""
        return all_stages_time - stage_time

    def microbatches_in_flight(
        self, rank: Numbers, pp: int, vp: Numbers, num_microbatches: Numbers, group_size: Numbers
    ) -> Numbers:
        """Rank r warms up with p - r - 1 forward passes and then keeps one more."""
        return np.minimum(num_microbatches, pp - np.asarray(rank))

"""One forward, one backward (PipeDream-Flush; Narayanan et al., arXiv 2006.09503 and 2104.04473, section 2.2)."""

from __future__ import annotations

import numpy as np

from shardplan.arrays import Numbers
from shardplan.schedules.base import PipelineRank, PipelineSchedule


class OneForwardOneBackward(PipelineSchedule):
    r"""Every rank alternates once filled: bubble :math:`\sum_{i \ne r} t_i`, :math:`\min(M, p - r)` in flight."""

    name = "1f1b"

    def microbatches_in_flight(self, at: PipelineRank) -> Numbers:
        """Rank r warms up with p - r - 1 forward passes and then keeps one more."""
        kept: Numbers = np.minimum(at.num_microbatches, at.pp - np.asarray(at.rank))
        return kept

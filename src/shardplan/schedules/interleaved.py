"""Interleaved 1F1B: each rank holds several chunks of the model (Narayanan et al., arXiv 2104.04473, section 2.2)."""

from __future__ import annotations

import numpy as np

from shardplan.arrays import Numbers
from shardplan.schedules.base import PipelineRank, PipelineSchedule

__all__ = ["Interleaved"]


class Interleaved(PipelineSchedule):
    r"""The pipeline fills in chunks of :math:`1/v` of a stage: bubble :math:`\sum_{i \ne r} t_i / v`."""

    name = "interleaved"

    def microbatches_in_flight(self, at: PipelineRank) -> Numbers:
        r"""Rank r warms up with :math:`2 (p - r - 1) + (v - 1) g` chunk passes and keeps one more.

        Each is :math:`1/v` of a stage. With the usual group :math:`g = p` the first rank keeps
        :math:`p (1 + \frac{p - 1}{p v})` (arXiv 2205.05198, section 4.2.3).
        """
        chunks = 2 * (at.pp - np.asarray(at.rank) - 1) + (at.vp - 1) * at.group_size + 1
        return np.minimum(at.num_microbatches, chunks / at.vp)

"""Interleaved 1F1B: each rank holds several chunks of the model (Narayanan et al., arXiv 2104.04473, section 2.2)."""

from __future__ import annotations

import numpy as np

from shardplan.arrays import Numbers
from shardplan.schedules.base import PipelineSchedule

__all__ = ["Interleaved"]


class Interleaved(PipelineSchedule):
    r"""The pipeline fills in chunks of :math:`1/v` of a stage: bubble :math:`\sum_{i \ne r} t_i / v`."""

    name = "interleaved"

    def idle_time(self, stage_time: Numbers, all_stages_time: Numbers, vp: Numbers) -> Numbers:
        """The bubble of 1F1B divided by the chunks per rank."""
        return (all_stages_time - stage_time) / vp

    def microbatches_in_flight(
        self, rank: Numbers, pp: int, vp: Numbers, num_microbatches: Numbers, group_size: Numbers
    ) -> Numbers:
        r"""Rank r warms up with :math:`2 (p - r - 1) + (v - 1) g` chunk passes and keeps one more, each :math:`1/v` of a stage.

        With the usual group :math:`g = p` the first rank keeps :math:`p (1 + \frac{p - 1}{p v})` (arXiv 2205.05198, section 4.2.3).
        """
        chunks = 2 * (pp - np.asarray(rank) - 1) + (vp - 1) * group_size + 1
        return np.minimum(num_microbatches, chunks / vp)

"""Interleaved 1F1B: each rank holds several chunks of the model (Narayanan et al., arXiv 2104.04473, section 2.2)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shardplan.arrays import Numbers
from shardplan.schedules.base import PipelineRank, PipelineSchedule

NUM_SHIFTS = 2.0
"""Chunk passes that ranks make up for while the pace passes from one rank to another."""


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


def unevenness(work: NDArray[np.float64]) -> float:
    r"""Share by which unlike chunks slow the pipeline beyond its slowest rank; 0 without interleaving.

    Ranks hand work on chunk by chunk, so that each round k of chunks runs at the pace of its slowest, but for what
    ranks make up for from round to round:

    .. math:: \max\left(0, \frac{\sum_k \max_r w_{kr}}{\max_r \sum_k w_{kr}} - 1 - \frac{s}{p v}\right)

    ``work``: of every chunk, chunks per rank v x ranks p, in any unit. The number of shifts s = 2 fits simulations of
    the schedule, pass by pass.
    """
    slowest_rank, slowest_of_rounds = work.sum(axis=0).max(), work.max(axis=1).sum()
    return max(0.0, float(slowest_of_rounds / slowest_rank) - 1 - NUM_SHIFTS / work.size)

"""ZB-1p: the order that the authors' heuristic finds in the memory of 1F1B (Qi et al., arXiv 2401.10241)."""

from __future__ import annotations

from typing import ClassVar

from shardplan.schedules.base import ChunkTimes, Orders, Pipeline, Schedule
from shardplan.schedules.simulated.zero_bubble_search import searched


class ZeroBubble1P(Schedule):
    r"""Searched for the given times, where a rank keeps the activations of p micro-batches at most.

    Its bubble is that of ZB-H1 where stages are equal and :math:`W \le F` (table 5). What a B leaves for its W counts
    less than a whole micro-batch, as table 1 has it.
    """

    name = "zb-1p"
    title = "Zero bubble, ZB-1p"
    source = "arXiv 2401.10241, section 3.1, table 5"
    splits_backward = True
    priced_as = "zb-h1"
    memory: ClassVar[int] = 1
    """Micro-batches that a rank may keep, by the number of ranks."""

    def order(self, at: Pipeline, times: ChunkTimes) -> Orders:
        """The best that the heuristic finds, within ``memory`` or the limit that is given."""
        limit = self.memory * int(at.pp) if times.max_in_flight is None else times.max_in_flight
        return searched(times, int(at.num_microbatches), limit)

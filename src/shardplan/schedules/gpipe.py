"""All forward passes, then all backward passes (Huang et al., arXiv 1811.06965)."""

from __future__ import annotations

from shardplan.arrays import Numbers
from shardplan.schedules.base import PipelineRank, PipelineSchedule


class GPipe(PipelineSchedule):
    """The bubble of 1F1B, with every micro-batch in flight."""

    name = "gpipe"

    def microbatches_in_flight(self, at: PipelineRank) -> Numbers:
        """All of them."""
        return at.num_microbatches

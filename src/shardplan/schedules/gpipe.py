"""All forward passes, then all backward passes (Huang et al., arXiv 1811.06965)."""

from __future__ import annotations

from shardplan.arrays import Numbers
from shardplan.schedules.one_f_one_b import OneForwardOneBackward

__all__ = ["GPipe"]


class GPipe(OneForwardOneBackward):
    """The bubble of 1F1B, with every micro-batch in flight."""

    name = "gpipe"

    def microbatches_in_flight(
        self, rank: Numbers, pp: int, vp: Numbers, num_microbatches: Numbers, group_size: Numbers
    ) -> Numbers:
        """All of them."""
        return num_microbatches

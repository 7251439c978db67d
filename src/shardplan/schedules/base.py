"""What every pipeline schedule answers: how long a step's passes take and how many micro-batches a rank keeps."""

from __future__ import annotations

from abc import ABC, abstractmethod

from shardplan.arrays import Numbers

__all__ = ["PipelineSchedule"]


class PipelineSchedule(ABC):
    """A schedule of ``num_microbatches`` through ``pp`` stages."""

    name: str

    @abstractmethod
    def idle_time(self, stage_time: Numbers, all_stages_time: Numbers, vp: Numbers) -> Numbers:
        """Idle time of a rank in one step. [s]

        ``stage_time``: forward and backward of one micro-batch on this rank; ``all_stages_time``: the sum over all ranks.
        """

    @abstractmethod
    def microbatches_in_flight(
        self, rank: Numbers, pp: int, vp: Numbers, num_microbatches: Numbers, group_size: Numbers
    ) -> Numbers:
        """Micro-batches whose activations a rank keeps at its peak, in units of its whole stage."""

"""What every pipeline schedule answers: how long a rank idles and how many micro-batches it keeps."""

from __future__ import annotations

from abc import ABC, abstractmethod

from shardplan.arrays import Numbers
from shardplan.fields import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelineRank:
    """One rank of a pipeline, and the micro-batches that pass through it."""

    rank: Numbers
    """Position, from 0."""
    pp: int
    vp: Numbers
    num_microbatches: Numbers
    group_size: Numbers
    """Micro-batches that one virtual stage runs before the next takes over."""


class PipelineSchedule(ABC):
    """A schedule of micro-batches through the stages of a pipeline."""

    name: str

    def idle_time(self, stage_time: Numbers, all_stages_time: Numbers, vp: Numbers) -> Numbers:
        r"""Idle time of a rank in one step: one micro-batch's way through a chunk of each other stage. [s]

        .. math:: \sum_{i \ne r} t_i / v

        which is :math:`(p - 1) t / v` where stages are equal (arXiv 2104.04473, section 2.2). ``stage_time``: forward
        and backward of one micro-batch on this rank; ``all_stages_time``: the sum over all ranks; ``vp``: chunks v.
        """
        return (all_stages_time - stage_time) / vp

    @abstractmethod
    def microbatches_in_flight(self, at: PipelineRank) -> Numbers:
        """Micro-batches whose activations a rank keeps at its peak, in units of its whole stage."""

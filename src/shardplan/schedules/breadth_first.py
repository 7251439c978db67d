"""Breadth-first pipelines: chunks in a loop, all micro-batches through each (Lamy-Poirier, arXiv 2211.05953)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shardplan.arrays import Numbers
from shardplan.schedules.base import Pass, Passes, Pipeline, PipelineSchedule
from shardplan.schedules.longest_ways import Counts, Work, breadth_first_way


class BreadthFirst(PipelineSchedule):
    r"""Interleaving without alternation: the bubble shrinks by v, and every micro-batch is in flight.

    With equal stages and :math:`M \ge p` the bubble is :math:`(p - 1)(F + B + W)/v`; with fewer micro-batches each of
    the v - 1 turns to the next chunk waits for :math:`(p - M)(F + B + W)/v` more. Weights are gathered and gradients
    reduced once per chunk and step, which is why it goes with full sharding (section 4). Uneven chunks: all
    micro-batches pass the chunks, p or more apart in the model, that take longest together.
    """

    name = "breadth-first"
    title = "Breadth-first pipeline"
    source = "arXiv 2211.05953, section 4"
    least_pp = 2
    least_vp = 2
    most_vp = None

    def idle_time(self, at: Pipeline, own: Passes, everyone: Passes, pace: Numbers = 1.0) -> Numbers:
        """One micro-batch's way through a chunk of every other stage, and what uneven chunks lose. [s]"""
        turns = (at.vp - 1) * np.maximum(0.0, everyone.total - at.num_microbatches * own.total)
        uneven = at.num_microbatches * own.total * np.maximum(np.asarray(pace) - 1, 0.0)
        return (everyone.total - own.total + turns) / at.vp + uneven

    def longest_ways(self, works: Sequence[Work]) -> list[Counts]:
        """Of each, the chunks, p or more apart, that take longest together."""
        return [breadth_first_way(work) for work in works]

    def microbatches_in_flight(self, at: Pipeline, rank: Numbers) -> Numbers:  # noqa: ARG002
        """All of them."""
        return at.num_microbatches

    def events(self, pp: int, vp: int, num_microbatches: int, group_size: int) -> tuple[tuple[Pass, ...], ...]:  # noqa: ARG002
        """Every micro-batch through a chunk before the next chunk; backward from the last chunk."""
        forward = tuple(Pass("F", chunk, one) for chunk in range(vp) for one in range(num_microbatches))
        backward = tuple(Pass("BW", chunk, one) for chunk in reversed(range(vp)) for one in range(num_microbatches))
        return ((*forward, *backward),) * pp

"""Schedules of several chunks on every rank, in a loop over the ranks: interleaved 1F1B and breadth-first pipelines.

Interleaved: Narayanan et al., arXiv 2104.04473, section 2.2. Breadth-first pipelines run all micro-batches through each
chunk (Lamy-Poirier, arXiv 2211.05953).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from shardplan.base.arrays import Flags, Numbers, any_holds, is_number, plus
from shardplan.physics.schedules.base import Pass, Passes, Pipeline, PipelineSchedule
from shardplan.physics.schedules.longest_ways import Counts, Work, breadth_first_way, interleaved_ways
from shardplan.physics.schedules.one_f_one_b import INTERLEAVING, alternate

WITHOUT: Final = "set vp to 1 and the schedule to 1f1b"


class Interleaved(PipelineSchedule):
    r"""The pipeline fills in chunks of :math:`1/v` of a stage: bubble :math:`\sum_{i \ne r} t_i / v`.

    With equal stages the bubble is :math:`(p - 1)(F + B + W) / v` (section 2.2.2), for every group size g that the rule
    admits: :math:`p \le g \le M`, and M mod g is 0 or at least p.
    """

    name = "interleaved"
    title = "Interleaved 1F1B"
    source = "arXiv 2104.04473, section 2.2.2"
    needs = "a number of micro-batches that is a multiple of the number of ranks"
    least_vp = 2
    most_vp = None
    least_pp = 2
    rule = INTERLEAVING

    def holds(self, at: Pipeline) -> Flags:
        """Megatron's rule: groups of g micro-batches, pp <= g <= M, and M mod g is 0 or at least pp."""
        pp, m, g = np.asarray(at.pp), np.asarray(at.num_microbatches), np.maximum(at.group_size, 1)
        left = np.mod(m, g)
        return (pp >= self.least_pp) & (pp <= g) & (g <= m) & ((left == 0) | (left >= pp))

    def message(self, at: Pipeline) -> str:
        """The counts that make groups."""
        return (
            f"{at.num_microbatches} micro-batches per replica with pp {at.pp}, vp {at.vp} "
            f"and micro-batch groups of {at.group_size}"
        )

    def hint(self, at: Pipeline, sequences: int) -> str:
        """A global batch of whole groups, near this one."""
        if at.vp == 1:
            return "interleaving needs vp of 2 or more: raise vp, or set the schedule to 1f1b"
        if at.pp == 1:
            return f"interleaving needs pp of 2 or more: raise pp, or {WITHOUT}"
        if at.group_size < at.pp:
            return f"set the micro-batch group size to pp {at.pp} or more, or {WITHOUT}"
        return (
            f"micro-batches per replica must be a multiple of the group size {at.group_size} (or leave a rest of at "
            f"least pp): set the global batch size to {self.nearest_microbatches(at) * sequences}, or {WITHOUT}"
        )

    def flags(self, at: Pipeline, sequences: int) -> list[str]:
        """Also groups of as many micro-batches as there are ranks, where stated ones are smaller."""
        near = self.nearest(at)
        groups = at.group_size not in (at.pp, near.group_size)
        return [*super().flags(at, sequences), *(["--microbatch-group-size", str(near.group_size)] if groups else [])]

    def nearest_microbatches(self, at: Pipeline) -> int:
        """Whole groups."""
        return max(round(float(at.num_microbatches / at.group_size)), 1) * int(at.group_size)

    def idle_time(self, at: Pipeline, own: Passes, everyone: Passes, pace: Numbers = 1.0) -> Numbers:
        """One micro-batch's way through a chunk of every other stage, and what uneven chunks lose. [s]"""
        return plus((everyone.total - own.total) / at.vp, pace_loss(at, own, pace))

    def longest_ways(self, works: Sequence[Work]) -> list[Counts]:
        """The longest way through the turns of each."""
        return interleaved_ways(works)

    def least_bubble(self, at: Pipeline) -> Numbers:
        """The bubble of equal stages: the slowest rank has more work, and waits for the mean of all."""
        return (np.asarray(at.pp) - 1) / at.vp

    def microbatches_in_flight(self, at: Pipeline, rank: Numbers) -> Numbers:
        r"""Rank r warms up with :math:`2 (p - r - 1) + (v - 1) g` chunk passes and keeps one more.

        Each is :math:`1/v` of a stage. With the usual group :math:`g = p` the first rank keeps
        :math:`p (1 + \frac{p - 1}{p v})` (arXiv 2205.05198, section 4.2.3).
        """
        chunks = 2 * (at.pp - np.asarray(rank) - 1) + (at.vp - 1) * at.group_size + 1
        return np.minimum(at.num_microbatches, chunks / at.vp)

    def ends_in_flight(self, at: Pipeline) -> Numbers:  # noqa: ARG002
        """One: the last rank warms up with its other chunks, and every pass through its last one goes back at once."""
        return 1.0

    def events(self, pp: int, vp: int, num_microbatches: int, group_size: int) -> tuple[tuple[Pass, ...], ...]:
        """Chunk by chunk within each group of micro-batches; ranks alternate after their warm-up."""
        turns = [
            (chunk, microbatch)
            for start in range(0, num_microbatches, group_size)
            for chunk in range(vp)
            for microbatch in range(start, min(start + group_size, num_microbatches))
        ]
        forward = [Pass("F", chunk, microbatch) for chunk, microbatch in turns]
        backward = [Pass("BW", vp - 1 - chunk, microbatch) for chunk, microbatch in turns]
        warm_up = (vp - 1) * group_size
        return tuple(alternate(forward, backward, 2 * (pp - rank - 1) + warm_up) for rank in range(pp))


def pace_loss(at: Pipeline, own: Passes, pace: Numbers) -> Numbers:
    r"""Time that ranks of uneven chunks wait beyond what the slowest rank works. [s]

    .. math:: \left(M - \frac{p}{2}\right) t (c - 1)

    with pace c. Half a group of micro-batches fills the pipeline and leaves it, in which ranks do not wait for one
    another in every round.
    """
    if is_number(pace, 1.0) or is_number(at.vp, 1.0):
        return 0.0
    lost = np.maximum(np.asarray(pace) - 1, 0.0)
    if not any_holds(lost):
        return 0.0
    several = np.maximum(at.num_microbatches - np.asarray(at.pp) / 2, 0.0)
    return own.total * (several * np.where(np.asarray(at.vp) > 1, lost, 0.0))


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

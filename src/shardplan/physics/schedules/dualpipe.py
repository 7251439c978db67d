"""DualPipe, and DualPipe-V without its second copy of the model (DeepSeek-V3, arXiv 2412.19437; their repository)."""

from __future__ import annotations

import numpy as np

from shardplan.base.arrays import Flags, Numbers
from shardplan.physics.schedules.base import (
    NO_PASSES,
    Folded,
    Pass,
    Passes,
    Pipeline,
    PipelineSchedule,
    Place,
    RankPasses,
    numbered,
)


class DualPipe(PipelineSchedule):
    r"""Rank r holds stages r and p - 1 - r; half of the micro-batches enter at either end.

    A forward and a backward pass of different micro-batches run as one block, in which each hides the other's
    communication. Bubble, with blocks that take as long as their passes:

    .. math:: \left(\frac p2 - 1\right) \left(F + \max(F, B) + \max(B - W, 0)\right)

    which is the published :math:`(p/2 - 1)(F\&B + B' - 3 W)` with :math:`B' = B + W` and :math:`F\&B = F + B'` where
    :math:`B \ge F` and :math:`B \ge W`. Rank pairs hold the model twice, and every rank keeps p + 1 micro-batches
    (table 2). ``folded_idle_time`` has the formula for stages that differ. The published code runs the first block of
    the middle ranks in two pieces, which saves at most one forward pass.
    """

    name = "dualpipe"
    title = "DualPipe"
    source = "arXiv 2412.19437, section 3.2.1, table 2; README of deepseek-ai/DualPipe"
    needs = "an even number of ranks and of micro-batches"
    splits_backward = True
    ends_meet = True
    parameter_copies = 2
    least_pp = 2
    reads_place = True

    def least_microbatches(self, pp: Numbers) -> Numbers:
        """As many from either end as there are ranks."""
        return 2 * pp

    def holds(self, at: Pipeline) -> Flags:
        """Ranks and micro-batches come in pairs."""
        even = np.equal(np.mod(at.pp, 2), 0) & np.equal(np.mod(at.num_microbatches, 2), 0)
        return np.logical_and(super().holds(at), even)

    def hint(self, at: Pipeline, sequences: int) -> str:
        """An even number of ranks or micro-batches."""
        if not self.takes_chunks(at.vp):
            return "set vp to 1: with schedule dualpipe each rank holds one stage for either direction"
        if at.pp % 2:
            return f"schedule {self.name} needs an even pp: set pp to {at.pp + 1} or another even number"
        if at.num_microbatches % 2 and at.num_microbatches >= 2 * at.pp:
            near = self.nearest_microbatches(at) * sequences
            return f"schedule {self.name} needs an even number of micro-batches: set the global batch size to {near}"
        return super().hint(at, sequences)

    def nearest_ranks(self, pp: int) -> int:
        """An even number."""
        return super().nearest_ranks(pp + pp % 2)

    def nearest_microbatches(self, at: Pipeline) -> int:
        """An even number."""
        enough = super().nearest_microbatches(at)
        return enough + enough % 2

    def idle_time(self, at: Pipeline, own: Passes, everyone: Passes, pace: Numbers = 1.0) -> Numbers:  # noqa: ARG002
        """The bubble of p / 2 ranks that fold the pipeline in the middle. [s]"""
        return folded_idle_time(np.asarray(at.pp) / 2, own, everyone / self.parameter_copies)

    def microbatches_in_flight(self, at: Pipeline, rank: Numbers) -> Numbers:  # noqa: ARG002
        """P + 1, each on one of the rank's two stages."""
        kept: Numbers = np.minimum(at.num_microbatches, np.asarray(at.pp) + 1)
        return kept

    def path(self, pp: int, vp: int, num_microbatches: int, microbatch: int) -> tuple[Place, ...]:  # noqa: ARG002
        """The first half of the micro-batches goes down the ranks, the second half up."""
        if microbatch < num_microbatches // 2:
            return tuple(Place(rank, 0) for rank in range(pp))
        return tuple(Place(rank, 1) for rank in reversed(range(pp)))

    def events(self, pp: int, vp: int, num_microbatches: int, group_size: int) -> tuple[tuple[Pass, ...], ...]:  # noqa: ARG002
        """Ranks of the second half mirror those of the first."""
        half = num_microbatches // 2
        first = [bidirectional(pp // 2, rank, half) for rank in range(pp // 2)]
        down = [tuple(one._replace(microbatch=one.microbatch + one.chunk * half) for one in order) for order in first]
        up = [tuple(_mirrored(one, half) for one in order) for order in reversed(first)]
        return (*down, *up)


def _mirrored(one: Pass, half: int) -> Pass:
    """The same pass of the other direction."""
    return one._replace(chunk=1 - one.chunk, microbatch=one.microbatch + (1 - one.chunk) * half)


def folded_idle_time(depth: Numbers, own: Passes, everyone: Passes) -> Numbers:
    r"""Idle time of one of ``depth`` ranks with a chunk of either direction, whose passes take ``own``. [s]

    Of k ranks in front, whose passes take :math:`F_f, B_f, W_f` together, and n behind with :math:`F_b, B_b, W_b`, a
    rank that takes F, B and W waits for

    .. math::
        g = 2 (F_b - n F)^+ + (F_b + 2 B_b + W_b - n (F + B + W))^+ + (F_f + B_f - 2 k F)^+

    before the last forward pass, and then for
    :math:`e = (F_f + 2 B_f + W_f - k (2 B + W))^+ + (2 B_b - n (B + W))^+`: what micro-batches take to come back, less
    what the rank has to do meanwhile. The step begins :math:`F_f` before its first pass and ends :math:`B_f - k W`
    after its last one, or else at the first rank, which gets the last forward pass and has its own gradients left:

    .. math::
        g + \max\left[F_f + \max\left(e + B_f - k W,\; F_f + B_f + W_f + \left(k + n + 2\right) \frac{B_f + W_f}{k}
        - (2 k + n + 2) (B + W)\right),\; e\right]

    Exact for equal stages (the last of which has the longest way). ``everyone``: of all these ranks. A rank whose place
    is not known counts as the last.
    """
    behind, n = (own.behind, own.num_behind) if isinstance(own, RankPasses) else (NO_PASSES, 0)
    k = np.maximum(np.asarray(depth) - 1 - n, 0)
    front = everyone - own - behind
    (f, b, w), both = own.parts, own.backward
    before = 2 * _positive(behind.forward - n * f) + _positive(behind.total + behind.input_gradient - n * own.total)
    before = before + _positive(front.forward + front.input_gradient - 2 * k * f)
    after = _positive(front.total + front.input_gradient - k * (2 * b + w))
    after = after + _positive(2 * behind.input_gradient - n * both)
    mean = front.backward / np.maximum(k, 1)
    at_first = front.total + (k + n + 2) * mean - (2 * k + n + 2) * both
    ends = np.maximum(after + front.input_gradient - k * w, at_first)
    return before + np.maximum(front.forward + ends, after)


def _positive(time: Numbers) -> Numbers:
    return np.maximum(time, 0.0)


def bidirectional(depth: int, rank: int, num_microbatches: int) -> tuple[Pass, ...]:
    """Passes of one of ``depth`` ranks with two chunks, ``num_microbatches`` through each (README, figure).

    The eight phases of the published schedule, from which counts follow: forward passes of chunk 0, of both chunks,
    gradients of chunk 1 in two pieces, blocks of both directions, and the way out, where weight gradients wait.
    """
    left = depth - rank - 1
    last = " ".join(f"{'BW' if turn <= rank else 'B'}{1 - turn % 2}" for turn in range(2 * rank + 2))
    return numbered(
        "F0 " * (2 * left)
        + "F0 F1 " * (rank + 1)
        + "B1 W F1 " * left
        + "F0+BW1 F1+BW0 " * (num_microbatches - 2 * depth + rank + 1)
        + "BW1 F1+BW0 " * left
        + last
        + " W B0" * left
        + " W" * (rank + 1)
    )


class DualPipeV(Folded, PipelineSchedule):
    r"""Rank r holds chunks r and 2p - 1 - r, and runs the passes that a rank of DualPipe on 2p ranks runs.

    Bubble, with F, B and W of a whole rank and blocks that take as long as their passes:

    .. math:: \frac{p - 1}{2} \left(F + \max(F, B) + \max(B - W, 0)\right)

    which is the published :math:`(P/2 - 1)(F\&B + B' - 3 W)` for P = 2p chunks. Every rank keeps P + 1 chunk passes:
    :math:`p + 1/2` micro-batches.
    """

    name = "dualpipe-v"
    title = "DualPipe-V"
    source = "arXiv 2412.19437; README of deepseek-ai/DualPipe"
    reads_place = True

    def least_microbatches(self, pp: Numbers) -> Numbers:
        """As many as there are chunks."""
        return 2 * pp

    def idle_time(self, at: Pipeline, own: Passes, everyone: Passes, pace: Numbers = 1.0) -> Numbers:  # noqa: ARG002
        """The bubble of p ranks whose chunks take half of a rank's time. [s]"""
        return folded_idle_time(at.pp, own, everyone) / 2

    def microbatches_in_flight(self, at: Pipeline, rank: Numbers) -> Numbers:  # noqa: ARG002
        """2 p + 1 chunk passes, of half a stage each."""
        kept: Numbers = np.minimum(at.num_microbatches, np.asarray(at.pp) + 0.5)
        return kept

    def events(self, pp: int, vp: int, num_microbatches: int, group_size: int) -> tuple[tuple[Pass, ...], ...]:  # noqa: ARG002
        """Every micro-batch through both chunks of a rank."""
        return tuple(bidirectional(pp, rank, num_microbatches) for rank in range(pp))

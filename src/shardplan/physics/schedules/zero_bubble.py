"""Zero bubble schedules H1 and H2: weight gradients fill the bubble (Qi et al., arXiv 2401.10241, section 2)."""

from __future__ import annotations

import numpy as np

from shardplan.base.arrays import Numbers
from shardplan.physics.schedules.base import Pass, Passes, Pipeline, PipelineSchedule


class ZeroBubbleH1(PipelineSchedule):
    r"""1F1B whose rank r delays r weight gradients: bubble :math:`(p - 1)(F + B - \min(F, W))`.

    The paper's :math:`(p - 1)(F + B - W)` (table 2) where :math:`W \le F`; a longer W gains no more, since the first
    input gradient reaches the first rank no sooner. With M < p micro-batches M - 1 of them hide something, not p - 1.
    What is kept for a weight gradient counts as much as what is kept for both gradients, so that every rank keeps
    :math:`\min(M, p)` micro-batches, as the first rank of 1F1B does.
    """

    name = "zb-h1"
    title = "Zero bubble, ZB-H1"
    source = "arXiv 2401.10241, section 2, table 2"
    splits_backward = True

    def idle_time(self, at: Pipeline, own: Passes, everyone: Passes, pace: Numbers = 1.0) -> Numbers:  # noqa: ARG002
        """Way through every other stage and back, less the weight gradients that the last rank delays. [s]"""
        others = everyone - own
        hidden = np.minimum(at.pp, at.num_microbatches) - 1
        waits = others.forward + others.input_gradient - hidden * np.minimum(own.forward, own.weight_gradient)
        return np.maximum(waits, 0.0)

    def microbatches_in_flight(self, at: Pipeline, rank: Numbers) -> Numbers:  # noqa: ARG002
        """P - r forward passes ahead on rank r, and r micro-batches that wait for their weight gradient."""
        kept: Numbers = np.minimum(at.num_microbatches, at.pp)
        return kept

    def events(self, pp: int, vp: int, num_microbatches: int, group_size: int) -> tuple[tuple[Pass, ...], ...]:  # noqa: ARG002
        """As 1F1B, with a weight gradient after every input gradient once r of them wait."""
        return tuple(delayed(num_microbatches, warm_up=pp - rank - 1, delay=rank) for rank in range(pp))


def delayed(num_microbatches: int, *, warm_up: int, delay: int) -> tuple[Pass, ...]:
    """Passes of a rank that starts with ``warm_up`` forward passes and lets ``delay`` weight gradients wait."""
    ahead = min(warm_up, num_microbatches)
    passes = [Pass("F", 0, microbatch) for microbatch in range(ahead)]
    for microbatch in range(num_microbatches):
        if ahead + microbatch < num_microbatches:
            passes.append(Pass("F", 0, ahead + microbatch))
        passes.append(Pass("B", 0, microbatch))
        if microbatch >= delay:
            passes.append(Pass("W", 0, microbatch - delay))
    left = range(max(num_microbatches - delay, 0), num_microbatches)
    return (*passes, *(Pass("W", 0, microbatch) for microbatch in left))


class ZeroBubbleH2(PipelineSchedule):
    r"""Twice the forward passes ahead and twice the delay: bubble :math:`(p - 1)(F + B - 2 \min(F, W))`, at least 0.

    The paper's :math:`(p - 1)(F + B - 2 W)` (table 2) where :math:`W \le F`; none for F = B = W. Every rank keeps
    :math:`2 p - 1` micro-batches. Ranks do not wait for one another before the optimizer step (section 4): each begins
    the next step when it is done, so that the idle time is that within the span of a rank.
    """

    name = "zb-h2"
    title = "Zero bubble, ZB-H2"
    source = "arXiv 2401.10241, section 2, table 2"
    splits_backward = True

    def least_microbatches(self, pp: Numbers) -> Numbers:
        """The first rank starts with as many forward passes."""
        return 2 * pp - 1

    def idle_time(self, at: Pipeline, own: Passes, everyone: Passes, pace: Numbers = 1.0) -> Numbers:  # noqa: ARG002
        """Way through every other stage and back, less the weight gradients that the last rank delays. [s]"""
        others = everyone - own
        hidden = 2 * (np.asarray(at.pp) - 1) * np.minimum(own.forward, own.weight_gradient)
        return np.maximum(others.forward + others.input_gradient - hidden, 0.0)

    def microbatches_in_flight(self, at: Pipeline, rank: Numbers) -> Numbers:  # noqa: ARG002
        """2 (p - r) - 1 forward passes ahead on rank r, and 2 r micro-batches that wait for their weight gradient."""
        kept: Numbers = np.minimum(at.num_microbatches, 2 * np.asarray(at.pp) - 1)
        return kept

    def events(self, pp: int, vp: int, num_microbatches: int, group_size: int) -> tuple[tuple[Pass, ...], ...]:  # noqa: ARG002
        """As ZB-H1, with twice the warm-up and twice the delay."""
        return tuple(delayed(num_microbatches, warm_up=2 * (pp - rank - 1), delay=2 * rank) for rank in range(pp))

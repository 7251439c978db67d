"""How much of a communication shows in the step time: the rule of each kind."""

from __future__ import annotations

import numpy as np

from shardplan.arrays import Flags, Numbers
from shardplan.inputs.profile import Profile

__all__ = ["beside", "beyond_chunks", "beyond_window", "exposed", "hidden_share", "pipelined_products", "slowed"]

SUMMA_PANELS = 8
"""Panels into which two-dimensional products are cut; the first broadcast cannot hide."""


def exposed(time: Numbers, hidden_share: Numbers, profile: Profile) -> Numbers:
    r"""Exposed part of communication of which a share h runs beside computation: :math:`t (1 - h) + c\,t\,h`.

    Hidden communication still costs c of its time: it takes cores and memory bandwidth from the computation.
    """
    return time * (1 - hidden_share * (1 - profile.hidden_slowdown))


def hidden_share(overlapped: Flags, with_overlap: Numbers, without: Numbers) -> Numbers:
    """Share of a communication that is hidden, by whether the plan overlaps it."""
    return np.where(overlapped, with_overlap, without)


def beyond_window(time: Numbers, window: Numbers, overlapped: Flags) -> Numbers:
    """What is left of a communication when ``window`` seconds of computation hide it."""
    return np.maximum(time - np.where(overlapped, window, 0.0), 0.0)


def beyond_chunks(time: Numbers, window: Numbers, chunks: Numbers, group: Numbers, overlapped: Flags) -> Numbers:
    r"""What is left of the reduction (or gathering) of all chunks of a pipeline rank, once per step.

    .. math:: \max\left(\frac{t}{v} - \frac{w}{v},\; t - \frac{w}{v} (1 + g (v - 1))\right)

    ``window`` w: computation of one micro-batch in all v chunks. The last of g micro-batches that a chunk runs in turn
    completes its gradients; they travel while the g run in the next chunk. The last chunk has its own last pass alone
    (Megatron Core, pipeline_parallel/schedules.py: gradients of a chunk are synchronised after its last micro-batch).
    """
    own = np.where(overlapped, window / chunks, 0.0)
    return np.maximum(np.maximum(time / chunks - own, time - own * (1 + group * (chunks - 1))), 0.0)


def slowed(time: Numbers, shown: Numbers, profile: Profile) -> Numbers:
    """What is left of a communication, ``shown``, and what the hidden rest costs the computation."""
    return shown + profile.hidden_slowdown * (time - shown)


def beside(time: Numbers, window: Numbers, profile: Profile) -> Numbers:
    """Exposed part of communication that runs beside ``window`` seconds of computation and slows it down."""
    hidden = np.minimum(time, window)
    return time - hidden * (1 - profile.hidden_slowdown)


def pipelined_products(time: Numbers, products: Numbers) -> Numbers:
    r"""Exposed broadcasts of two-dimensional products cut into P panels: the first, and what the products cannot hide.

    .. math:: t/P + \max(t (1 - 1/P) - t_{products}, 0)
    """
    return time / SUMMA_PANELS + np.maximum(time * (1 - 1 / SUMMA_PANELS) - products, 0.0)

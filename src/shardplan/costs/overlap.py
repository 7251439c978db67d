"""How much of a communication shows in the step time: the rule of each kind."""

from __future__ import annotations

import numpy as np

from shardplan.arrays import Flags, Numbers
from shardplan.inputs.profile import Profile


def exposed(time: Numbers, hidden_share: Numbers, profile: Profile) -> Numbers:
    r"""Exposed part of communication of which a share h runs beside computation: :math:`t (1 - h) + c\,t\,h`.

    Hidden communication still costs c of its time: it takes cores and memory bandwidth from the computation.
    """
    return time * (1 - hidden_share * (1 - profile.hidden_slowdown))


def hidden_share(overlapped: Flags, with_overlap: Numbers, without: Numbers) -> Numbers:
    """Share of a communication that is hidden, by whether the plan overlaps it."""
    return np.where(overlapped, with_overlap, without)


def beside(time: Numbers, window: Numbers, profile: Profile) -> Numbers:
    r"""What a communication costs when ``window`` seconds of computation can hide it: :math:`\max(t - w, c\,t)`.

    At least the share c of its time: hidden communication takes cores and memory bandwidth from the computation.
    """
    return np.maximum(time - window, profile.hidden_slowdown * time)


def beside_chunks(time: Numbers, own: Numbers, chunks: Numbers, group: Numbers, profile: Profile) -> Numbers:
    r"""The same for the reduction (or gathering) of all v chunks of a pipeline rank, once per step.

    .. math:: \max\left(\frac{t}{v} - w,\; t - w (1 + g (v - 1)),\; c\,t\right)

    ``own``: the window w of one micro-batch in one chunk. The last of g micro-batches that a chunk runs in turn
    completes its gradients; they travel while the g run in the next chunk. The last chunk has its own last pass alone
    (Megatron Core, pipeline_parallel/schedules.py: gradients of a chunk are synchronised after its last micro-batch).
    """
    if np.all(np.asarray(chunks) == 1):
        return beside(time, own, profile)
    shown = np.maximum(time / chunks, time - own * (group * (chunks - 1)))
    return np.maximum(shown - own, profile.hidden_slowdown * time)


def pipelined_products(time: Numbers, products: Numbers, profile: Profile) -> Numbers:
    r"""Exposed broadcasts of two-dimensional products cut into P panels: the first, and what the products cannot hide.

    .. math:: t/P + \max(t (1 - 1/P) - t_{products}, 0)
    """
    first = time / profile.summa_panels
    return first + np.maximum(time - first - products, 0.0)

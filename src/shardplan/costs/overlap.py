"""How much of a communication shows in the step time: what the work that runs at the same time cannot hide.

Every dimension has a window: a share of the work that can run at the same time. Work is spent once: what hides the
exchange of one dimension hides that of no other, so all dimensions together hide at most the work that there is.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from shardplan.arrays import Numbers
from shardplan.inputs.profile import Profile


def exposed(time: Numbers, window: Numbers, profile: Profile) -> Numbers:
    r"""What a communication costs when ``window`` seconds of computation can hide it: :math:`\max(t - w, c\,t)`.

    At least the share c of its time: hidden communication takes cores and memory bandwidth from the computation. So it
    costs never less than what is longer than the window, and never more than all of its time.
    """
    return np.maximum(time - window, profile.hidden_slowdown * time)


def exposed_with_chunks(
    time: Numbers, own: Numbers, all_chunks: Callable[[], Numbers], chunks: Numbers, profile: Profile
) -> Numbers:
    r"""The same for the reduction (or gathering) of all v chunks of a pipeline rank, once per step.

    .. math:: \max\left(\frac{t}{v} - w,\; t - w (1 + g (v - 1)),\; c\,t\right)

    ``own``: the window w of one micro-batch in one chunk; ``all_chunks``: that of the whole step (``all_windows``). The
    last of g micro-batches that a chunk runs in turn completes its gradients; they travel while the g run in the next
    chunk. The last chunk has its own last pass alone (Megatron Core, pipeline_parallel/schedules.py: gradients of a
    chunk are synchronised after its last micro-batch).
    """
    if np.all(np.asarray(chunks) == 1):
        return exposed(time, own, profile)
    longest = np.maximum(time / chunks - own, time - all_chunks())
    return np.maximum(longest, profile.hidden_slowdown * time)


def all_windows(own: Numbers, chunks: Numbers, group: Numbers) -> Numbers:
    r"""Window of all chunks in one step, :math:`w (1 + g (v - 1))`."""
    return own * (1 + group * (chunks - 1))


def exposed_with_products(time: Numbers, products: Numbers, profile: Profile) -> Numbers:
    r"""Exposed exchanges of tensor-parallel ranks that run in panels overlapped with matrix products.

    .. math:: f\,t + \max\left((1 - f)\,t - w\,t_{products},\; c\,(1 - f)\,t\right)

    The share f, one panel, comes before the first product or after the last (user buffers of Transformer Engine cut
    products into four). The window is the share w of the products.
    """
    panel = profile.tp_fill * time
    return panel + exposed(time - panel, profile.tp_window * products, profile)


def exposed_with_ring(time: Numbers, attention: Numbers, ranks: Numbers, profile: Profile) -> Numbers:
    r"""Exposed transfers of a ring of n ranks, each behind the attention of its own step.

    .. math:: \sum_{i=1}^{n-1} \max(t_i - w\,a_i,\; c\,t_i) = \max\left(t - w\,a\,\frac{n-1}{n},\; c\,t\right)

    All n steps attend alike (a balanced causal mask gives each of them half of its products) and all n - 1 transfers
    are alike. The last step's attention has no transfer to hide. The window is the share w of a step.
    """
    return exposed(time, profile.cp_window * attention * (1 - 1 / ranks), profile)


def pipelined_products(time: Numbers, products: Numbers, profile: Profile) -> Numbers:
    r"""Exposed broadcasts of two-dimensional products cut into P panels: the first, and what the products cannot hide.

    .. math:: t/P + \max(t (1 - 1/P) - t_{products}, 0)
    """
    first = time / profile.summa_panels
    return first + np.maximum(time - first - products, 0.0)

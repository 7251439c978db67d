"""ZB-2p: the order that the authors' heuristic finds in twice the memory of 1F1B (Qi et al., arXiv 2401.10241)."""

from __future__ import annotations

from shardplan.schedules.simulated.zb_1p import ZeroBubble1P


class ZeroBubble2P(ZeroBubble1P):
    """As ZB-1p, in the activations of 2p micro-batches: almost no bubble where there are enough micro-batches."""

    name = "zb-2p"
    title = "Zero bubble, ZB-2p"
    priced_as = "zb-h2"
    memory = 2

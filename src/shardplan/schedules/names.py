"""The schedules that ship with shardplan: what a plan calls them, and where they are."""

from __future__ import annotations

from typing import Final

BUILT_IN: Final = {
    "1f1b": "one_f_one_b:OneForwardOneBackward",
    "interleaved": "interleaved:Interleaved",
    "gpipe": "gpipe:GPipe",
    "breadth-first": "breadth_first:BreadthFirst",
    "zb-h1": "zb_h1:ZeroBubbleH1",
    "zb-h2": "zb_h2:ZeroBubbleH2",
    "zb-v": "zb_v:ZeroBubbleV",
    "dualpipe": "dualpipe:DualPipe",
    "dualpipe-v": "dualpipe_v:DualPipeV",
}
"""Module and class by name, in the order in which they are shown. Help texts read names here without loading NumPy."""

SIMULATED: Final = {
    "eager-1f1b": "simulated.eager_1f1b:EagerOneForwardOneBackward",
    "zb-1p": "simulated.zb_1p:ZeroBubble1P",
    "zb-2p": "simulated.zb_2p:ZeroBubble2P",
    "zbv-greedy": "simulated.zbv_greedy:ZeroBubbleVGreedy",
    "v-half": "simulated.v_half:VHalf",
    "v-min": "simulated.v_min:VMin",
}
"""Schedules that have no closed form of their own: the simulation runs them, and searches leave them out."""

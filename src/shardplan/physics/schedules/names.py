"""The schedules that ship with shardplan: what a plan calls them, and where they are."""

from __future__ import annotations

from typing import Final

BUILT_IN: Final = {
    "1f1b": "one_f_one_b:OneForwardOneBackward",
    "interleaved": "interleaved:Interleaved",
    "gpipe": "one_f_one_b:GPipe",
    "breadth-first": "interleaved:BreadthFirst",
    "zb-h1": "zero_bubble:ZeroBubbleH1",
    "zb-h2": "zero_bubble:ZeroBubbleH2",
    "zb-v": "zb_v:ZeroBubbleV",
    "dualpipe": "dualpipe:DualPipe",
    "dualpipe-v": "dualpipe:DualPipeV",
}
"""Module and class by name, in the order in which they are shown. Help texts read names here without loading NumPy."""

SIMULATED: Final = {
    "eager-1f1b": "one_f_one_b:EagerOneForwardOneBackward",
    "zb-1p": "zero_bubble_search:ZeroBubble1P",
    "zb-2p": "zero_bubble_search:ZeroBubble2P",
    "zbv-greedy": "zero_bubble_search:ZeroBubbleVGreedy",
    "v-half": "v_pattern:VHalf",
    "v-min": "v_pattern:VMin",
}
"""Schedules that have no closed form of their own: the simulation runs them, and searches leave them out."""

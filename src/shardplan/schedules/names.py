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

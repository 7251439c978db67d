"""The schedules that ship with shardplan: what a plan calls them, and where they are."""

from __future__ import annotations

from typing import Final

BUILT_IN: Final = {
    "1f1b": "one_f_one_b:OneForwardOneBackward",
    "interleaved": "interleaved:Interleaved",
    "gpipe": "gpipe:GPipe",
    "breadth-first": "breadth_first:BreadthFirst",
}
"""Module and class by name, in the order in which they are shown. Help texts read names here without loading NumPy."""

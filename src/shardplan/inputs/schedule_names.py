"""The built-in schedules: their names in plans and launch files, and their classes.

The classes are in ``shardplan.physics.schedules``. Help texts and readers take the names from here, without loading
a class.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class BuiltIn(NamedTuple):
    """A schedule that plans can name."""

    place: str
    """Module and class."""
    words: str
    """Its title."""
    has_one_chunk: bool = False
    """Whether a rank always holds one chunk of the model."""


BUILT_IN: Final = {
    "1f1b": BuiltIn(
        "one_f_one_b:OneForwardOneBackward",
        "1f1b pipedream-flush non-interleaved non-interleaved-1f1b 1f1b-non-interleaved",
        has_one_chunk=True,
    ),
    "interleaved": BuiltIn(
        "interleaved:Interleaved", "interleaved interleaved-1f1b 1f1b-interleaved vpp interleaved-vpp"
    ),
    "gpipe": BuiltIn("one_f_one_b:GPipe", "gpipe", has_one_chunk=True),
    "breadth-first": BuiltIn("interleaved:BreadthFirst", "breadth-first looped-bfs"),
    "zb-h1": BuiltIn("zero_bubble:ZeroBubbleH1", "zb-h1 zb-1p", has_one_chunk=True),
    "zb-h2": BuiltIn("zero_bubble:ZeroBubbleH2", "zb-h2 zb-2p", has_one_chunk=True),
    "zb-v": BuiltIn("zb_v:ZeroBubbleV", "zb-v zbv zbv-zero-bubble"),
    "dualpipe": BuiltIn("dualpipe:DualPipe", "dualpipe", has_one_chunk=True),
    "dualpipe-v": BuiltIn("dualpipe:DualPipeV", "dualpipe-v"),
}
"""Schedules by name, in the order in which they are shown. ZB-1p and ZB-2p are what the authors' scheduler finds within
the memory of ZB-H1 and ZB-H2 (arXiv 2401.10241, section 3).
"""

SIMULATED: Final = {
    "eager-1f1b": "one_f_one_b:EagerOneForwardOneBackward",
    "zb-1p": "zero_bubble_search:ZeroBubble1P",
    "zb-2p": "zero_bubble_search:ZeroBubble2P",
    "zbv-greedy": "zero_bubble_search:ZeroBubbleVGreedy",
    "v-half": "v_pattern:VHalf",
    "v-min": "v_pattern:VMin",
}
"""Schedules without a closed form of their own: only the simulation runs them, and searches leave them out."""

"""How answers are laid out on a terminal: what commands take of :mod:`shardplan.render.page`."""

from shardplan.render.page import HARD_SPACE, INDENT, Page
from shardplan.render.page import TextColumn as Column

__all__ = ("HARD_SPACE", "INDENT", "Column", "Page")

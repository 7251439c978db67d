"""The layout of answers on a terminal: headings, aligned columns that narrow with the terminal, bars."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

from rich.console import Console
from rich.text import Text

from shardplan.base.errors import visible
from shardplan.base.fields import dataclass

INDENT = 2
GAP = 2
LABEL = 9
"""Width of a label before a paragraph, including the gap."""
LEAST_TEXT = 24
"""Least width to which the last column of a table wraps."""
NARROWEST = 16
ELLIPSIS = " ..."
HARD_SPACE = "\ue000"
"""Stands for a non-breaking space while lines are broken (rich breaks at any white space)."""
UNIT = re.compile(r"(?<=\d) (?=[%A-Za-z])|(?<=\b[tcpved]p) (?=\d)|(?<=batch) (?=\d)")
"""Spaces at which no line breaks: 4.88 s, 12 %, tp 4."""
WIDEST = 120
"""Largest width of an answer on wider terminals."""


@dataclass(frozen=True, kw_only=True)
class TextColumn:
    """A column of a table."""

    title: str
    cells: Sequence[str]
    is_text: bool = False
    """Texts are left-aligned, numbers right-aligned."""
    rank: int = 0
    """If there is too little room, columns of the highest rank are dropped first; those of rank 0 stay."""

    @cached_property
    def width(self) -> int:
        """Width of its widest cell."""
        return max(len(line) for cell in (self.title, *self.cells) for line in cell.split("\n"))


MICRO = "µ"


def has_character(encoding: str, character: str) -> bool:
    """Whether a character can be encoded."""
    try:
        character.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


class _Console(Console):
    """A console that prints no control characters, and leaves a closed pipe to the command line."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Like rich's, with question marks for control characters in names and cells, and ``us`` if there is no µ."""
        for each in objects:
            if isinstance(each, Text):
                each.plain = visible(each.plain) if self._has_micro else visible(each.plain).replace(MICRO, "u")
        super().print(*objects, **options)

    @cached_property
    def _has_micro(self) -> bool:
        """Whether the terminal's encoding has the prefix of microseconds."""
        return has_character(self.encoding, MICRO)

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


class Page:
    """Standard output, as wide as the terminal (80 columns without one)."""

    def __init__(self) -> None:
        self.console = _Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
        self.width = min(self.console.width, WIDEST)
        self.is_coloured = self.console.color_system is not None and not self.console.no_color

    def glyph(self, character: str, instead: str) -> str:
        """``character`` if the terminal's encoding has it, else ``instead``."""
        return character if has_character(self.console.encoding, character) else instead

    def heading(self, title: str, note: str = "") -> None:
        """A title with a blank line before it and a note next to it."""
        self.console.print()
        self.hanging(Text(title, style="bold"), Text(note, style="dim"), indent=0)

    def line(self, text: str | Text, *, style: str = "", indent: int = INDENT) -> None:
        """A paragraph, wrapped."""
        self.hanging(Text(" " * indent), text if isinstance(text, Text) else Text(text, style=style), indent=0, gap=0)

    def labelled(self, label: str, text: str | Text, *, style: str = "bold") -> None:
        """A paragraph under one label, continued under its text."""
        self.hanging(
            Text(label.ljust(LABEL), style=style), text if isinstance(text, Text) else Text(text), indent=0, gap=0
        )

    def whole_words(self, words: Iterable[str]) -> list[str]:
        """Lines of words or phrases under a label, as typed: lines break between two of them if possible."""
        room = max(self.width - LABEL, NARROWEST)
        kept = [each.replace(" ", HARD_SPACE) if len(each) <= room else each for each in words]
        lines = textwrap.wrap(" ".join(kept), room, break_long_words=False, break_on_hyphens=False)
        return [line.replace(HARD_SPACE, " ") for line in lines]

    def under_label(self, lines: Iterable[str]) -> None:
        """Lines under the text of a labelled paragraph, never broken."""
        for line in lines:
            self.console.print(Text(" " * LABEL + line), soft_wrap=True)

    def num_lines(self, text: str) -> int:
        """Lines of a paragraph with a dash."""
        return len(self._wrapped(Text(text), self.width - INDENT - 2))

    def bullets(self, texts: Iterable[str], *, style: str = "", most_lines: int | None = None) -> None:
        """Paragraphs with a dash, continued under their text; cut off after ``most_lines``."""
        for text in texts:
            lines = self._wrapped(Text(text), self.width - INDENT - 2)
            if most_lines is not None and len(lines) > most_lines:
                end = sum(len(line) + 1 for line in lines[:most_lines]) - len(ELLIPSIS) - 1
                shown = text[:end].rsplit(" ", 1)[0] + ELLIPSIS
            else:
                shown = text
            self.hanging(Text("-", style=style), Text(shown, style=style), gap=1)

    def hanging(self, lead: Text, text: Text, *, indent: int = INDENT, gap: int = GAP) -> None:
        """A paragraph whose next lines are aligned under its text, after ``lead``."""
        start = Text(" " * indent) + lead + Text(" " * gap)
        for number, part in enumerate(self._wrapped(text, self.width - len(start))):
            line = (start if number == 0 else Text(" " * len(start))) + part
            line.rstrip()
            self.console.print(line, soft_wrap=True)

    def _wrapped(self, text: Text, room: int) -> list[Text]:
        """Lines of a paragraph; a number is never separated from its unit."""
        text = text.copy()
        text.plain = UNIT.sub(HARD_SPACE, text.plain)
        lines = list(text.wrap(self.console, max(room, NARROWEST))) or [Text()]
        for line in lines:
            line.plain = line.plain.replace(HARD_SPACE, " ")
        return lines

    def verbatim(self, text: str) -> None:
        """A command: never broken into lines, so that it can be copied."""
        self.console.print(Text(" " * INDENT + text, style="cyan"), soft_wrap=True)

    def table(self, columns: Sequence[TextColumn], *, styles: Sequence[str] = ()) -> list[str]:
        """Aligned columns; if columns were dropped and room is still short, the last text column wraps.

        ``styles`` are those of the rows. Returns the titles of the columns that fit.
        """
        shown = self._fitting(columns)
        last = shown[-1]
        room = self.width - INDENT - sum(column.width + GAP for column in shown[:-1])
        self._row(shown, [column.title for column in shown], room, "dim")
        for index in range(len(last.cells)):
            style = styles[index] if index < len(styles) else ""
            self._row(shown, [column.cells[index] for column in shown], room, style)
        return [column.title for column in shown]

    def has_room(self, columns: Sequence[TextColumn]) -> bool:
        """Whether a table of all ``columns`` fits without wrapping."""
        return INDENT + sum(column.width + GAP for column in columns) - GAP <= self.width

    def can_wrap(self, columns: Sequence[TextColumn]) -> bool:
        """Whether a table of all ``columns`` fits when its last one wraps, if that is a text."""
        last = columns[-1]
        needed = min(last.width, LEAST_TEXT) if last.is_text else last.width
        return INDENT + sum(column.width + GAP for column in columns[:-1]) + needed <= self.width

    def _fitting(self, columns: Sequence[TextColumn]) -> list[TextColumn]:
        """The columns that fit."""
        shown = list(columns)
        while True:
            rank = max(column.rank for column in shown)
            if self.can_wrap(shown) or rank == 0:
                return shown
            shown.remove(next(column for column in reversed(shown) if column.rank == rank))

    def _row(self, columns: Sequence[TextColumn], cells: Sequence[str], room: int, style: str) -> None:
        start = "".join(
            (cell.ljust(column.width) if column.is_text else cell.rjust(column.width)) + " " * GAP
            for column, cell in zip(columns[:-1], cells[:-1], strict=True)
        )
        last = cells[-1] if columns[-1].is_text else cells[-1].rjust(columns[-1].width)
        lines = self._wrapped(Text(last), room)
        for number, part in enumerate(lines):
            lead = start if number == 0 else " " * len(start)
            self.console.print(Text((" " * INDENT + lead + part.plain).rstrip(), style=style), soft_wrap=True)

    def bar(self, share: float, room: int, style: str) -> Text:
        """A bar of ``share`` of the ``room``, in eighths of a character if the terminal has them."""
        eighths = max(round(share * room * 8), 1)
        if self.glyph("\u258f", ""):
            text = "\u2588" * (eighths // 8) + (" \u258f\u258e\u258d\u258c\u258b\u258a\u2589"[eighths % 8]).strip()
        else:
            text = "#" * max(round(share * room), 1)
        return Text(text, style=style)

"""An answer as data: what was asked, the verdict, parts with tables and bars, and the figure.

A terminal, a page, a notebook, JSON and CSV are renderings of one :class:`AnswerDocument` (:mod:`shardplan.render`), so
that nothing is formatted twice. A new answer is a file under ``answers`` with the columns of its table and a function
that returns its document. :mod:`shardplan.answers.decisions.scale` shows how; a new column is an entry of ``COLUMNS``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from shardplan.base.fields import dataclass

if TYPE_CHECKING:
    from shardplan.plotting.chart import Chart
    from shardplan.reports.breakdown import Share

Tone = Literal["", "strong", "good", "bad", "wrong", "warning", "doubt", "quiet", "useful"]
"""What a text is, for its colour: ``good`` and ``bad`` are verdicts, ``wrong`` is what fails, ``warning`` and ``doubt``
are what a reader should know (a label, a sentence), ``strong`` is what matters, ``quiet`` what can be skipped, and
``useful`` what is gained: work, a new line of a diff."""
NONE: Final = "-"
"""In place of a value that there is not."""


class Span(NamedTuple):
    """A piece of a sentence in a tone of its own."""

    text: str
    tone: Tone = ""


Words: TypeAlias = str | tuple[Span, ...]
"""A sentence; an interpunct between spaces is a comma where the terminal has none."""


class Line(NamedTuple):
    """A paragraph."""

    words: Words
    label: str | None = None
    """One or two words before it (``Pays``); empty: under the text of the label before; None: no label."""
    tone: Tone = ""
    """Of the label; of the words where there is no label."""
    indent: int | None = None
    """Characters before it on a terminal; None: 2 in a part, and none in head and verdict."""
    only: Literal["", "terminal", "pages"] = ""
    """Where it stands if not everywhere: what names flags is for the ``terminal``; ``pages`` are notebooks too."""


class Hanging(NamedTuple):
    """A paragraph behind a word or two, continued under its own text."""

    lead: Span
    words: Span
    is_flush: bool = False
    """Whether it starts at the left edge where the other lines of its part are indented."""


class Bullets(NamedTuple):
    """Paragraphs with dashes."""

    texts: Sequence[str]
    tone: Tone = ""
    most_lines: int | None = None
    """Of each, on a terminal; None: all."""
    most_in_all: int | None = None
    """Lines that they take together on a terminal, unless the first alone takes more; None: all."""


class Numbered(NamedTuple):
    """Paragraphs with numbers from 1, which the rows of a table refer to."""

    texts: Sequence[str]
    tone: Tone = ""


class Item(NamedTuple):
    """A paragraph behind a figure, continued under its text."""

    mark: str
    text: str


class CommandLine(NamedTuple):
    """Something to type, never broken into lines."""

    text: str


class Phrases(NamedTuple):
    """Words as they are typed, under the text of a label: a line of a terminal ends between two of them."""

    groups: Sequence[Sequence[str]]
    """Each begins a new line."""


class Bar(NamedTuple):
    """How a column of shares is drawn: a bar from the left, or from the middle for what is below or above zero."""

    room: int
    """Characters of the longest bar; of either side of a bar from the middle."""
    is_centred: bool = False


def itself(row: Any) -> Any:
    """The row: for columns that are made of all of it."""
    return row


class Column(NamedTuple):
    """One quantity of the rows of a table.

    ``Column("step_time_s", "step", lambda row: row.step_time, format_time)`` is ``step_time_s`` in records and CSV, and
    ``step`` on a terminal and on pages.
    """

    key: str
    """In records and CSV, where its unit is part of it; empty: not in them."""
    title: str | None
    """On terminals and pages; None: not shown there."""
    value: Callable[[Any], Any] = itself
    """Of a row, in SI units unless ``key`` names another (``energy_kwh``); None where there is none."""
    text: Callable[[Any], str] = str
    """The value as text; one that there is not is ``NONE``."""
    is_text: bool = False
    """Texts stand on the left, numbers on the right."""
    rank: int = 0
    """Where a terminal is too narrow, columns of the highest rank are left out first; those of rank 0 stay."""
    bar: Bar | None = None
    """Draws the value, a share of one, in place of its text."""
    is_wide: bool = False
    """Whether it is for pages alone, which have more room than a terminal."""
    leads: bool = False
    """Whether pages lead from it to the address of the row."""
    short: str = ""
    """Its title where a row is stacked."""
    record: Callable[[Any], Mapping[str, Any]] | None = None
    """Entries of a record in place of the one under ``key``, from the value."""
    frame: Callable[[Any], Mapping[str, Any]] | None = None
    """Cells of CSV and data frames in place of the one under ``key``, from the value."""

    def cell(self, row: Any) -> str:
        """The text of a row's value."""
        value = self.value(row)
        return NONE if value is None else self.text(value)


def plain_tone(_row: Any) -> Tone:
    """The tone of a row like any other."""
    return ""


class RowTable(NamedTuple):
    """Rows with columns. Their order is that of ``columns``, in records too."""

    rows: Sequence[Any]
    columns: Sequence[Column]
    tone: Callable[[Any], Tone] = plain_tone
    """Of each row."""
    notes: Sequence[tuple[str, str]] = ()
    """What marks and titles mean, below: each with the title of the column that it explains, or none."""
    stacked_below: int = 0
    """Width of a terminal below which each row is the first column's name with the others one below the other."""
    turned_up_to: int = 0
    """Up to so many rows, pages show the rows as columns: many quantities of a few things."""
    narrow: Callable[[Any], tuple[str, str, str]] | None = None
    """A row in two lines, for a terminal that is too narrow for the table: name and value, and below them the rest."""


class SideBySide(NamedTuple):
    """A table that compares: the first column names the quantities, each other one is a side.

    On a narrow terminal the sides are shown ``briefly``, and those for which there is no room go below.
    """

    full: RowTable
    brief: RowTable
    """The same rows with shorter texts."""


class Dot(NamedTuple):
    """A point of a plot."""

    x: float
    y: float
    mark: str
    """``*``, ``o`` or ``.``: of points at one place, the first of these is drawn."""
    text: str = ""
    """Next to it, where there is room."""


class VectorFigure(NamedTuple):
    """A figure as a vector drawing (SVG), for pages alone."""

    name: str
    title: str
    svg: Callable[[str], str]
    """Of a theme: ``light``, ``dark``, or ``auto`` for that of the reader."""


class Plot(NamedTuple):
    """Points in a plane, drawn with characters: a terminal's part of what the chart shows."""

    dots: Sequence[Dot]
    x_ends: tuple[str, str]
    """The least and the largest value as text."""
    y_ends: tuple[str, str]


class ShareBars(NamedTuple):
    """Parts of a time: for each its label, its time, its share and a bar."""

    shares: Sequence[Share]
    label: Callable[[str], str]
    """Of a name."""
    tone: Callable[[str], Tone]
    """Of the bar of a name."""
    room: int = 0
    """Characters of a share at least."""
    margin: int = 0
    """Columns behind the longest bar that stay free."""


class PartsBar(NamedTuple):
    """Parts of a whole as one bar with a legend: what fills a memory."""

    shares: Sequence[Share]
    text: Callable[[float], str]
    """Of a value."""
    is_whole: bool = False
    """Whether the legend names every part; otherwise those for which a line has room, and the sum of the rest."""


class BarRow(NamedTuple):
    """Cells with a bar behind them."""

    cells: Sequence[str]
    share: float
    """Of the longest bar; 0: none."""
    colour: str


class BarTable(NamedTuple):
    """Amounts as bars, each behind its name and its numbers."""

    rows: Sequence[BarRow]
    room: int
    """Characters of the longest bar where the terminal is wide enough."""
    least_widths: Sequence[int] = ()
    """Of the cells."""
    titles: Sequence[str] = ()
    texts: Sequence[int] = (0,)
    """Places of cells that are texts, which stand on the left."""
    fewer: Sequence[Sequence[int]] = ()
    """Places of the cells that stay where there is too little room for bars behind all, one choice after the other."""
    least_room: int = 0
    """Characters of the longest bar below which cells give way."""
    margin: int = 0
    """Characters that stay free behind the longest bar."""


Block: TypeAlias = (
    Line
    | Hanging
    | Bullets
    | Item
    | Numbered
    | Phrases
    | CommandLine
    | RowTable
    | SideBySide
    | VectorFigure
    | Plot
    | PartsBar
    | ShareBars
    | BarTable
)


class Part(NamedTuple):
    """Blocks under a heading. Without a title, a blank line parts them from what is above."""

    title: str
    blocks: Sequence[Block]
    note: str = ""
    """Next to the title: what the marks and short titles beneath mean."""
    is_under: bool = False
    """Whether it belongs to the part before, on pages of documentation."""


def assumptions_part(texts: Sequence[str], note: str = "") -> Part:
    """What was taken for granted, where an answer lists it."""
    return Part("Assumptions", [Bullets(texts, "quiet")], note)


@dataclass(frozen=True, kw_only=True)
class AnswerDocument:
    """An answer."""

    name: str
    """Of the answer, as in ``schema`` of its record: ``shardplan/NAME/1``."""
    head: Sequence[Line] = ()
    """What was asked."""
    verdict: Sequence[Block]
    """What to do; its first line is the answer in a sentence."""
    parts: Sequence[Part] = ()
    assumptions: Sequence[str] = ()
    """What was assumed, all in one list; pages show it beneath, and a terminal where it is asked for."""
    table: RowTable | None = None
    """The rows of CSV and data frames."""
    record: Callable[[], Mapping[str, Any]]
    """Entries of its record; a :class:`RowTable` among the values is a list of its rows."""
    chart: Callable[[], Chart] | None = None
    """The figure."""
    is_yes: bool = True
    """Whether there is what was sought; otherwise the command exits with 1."""


def plain_text(words: Words) -> str:
    """A sentence without its tones."""
    return words if isinstance(words, str) else "".join(span.text for span in words)


def lead(document: AnswerDocument) -> Line:
    """The line of the verdict that is the answer: the first with a label."""
    lines = [block for block in document.verdict if isinstance(block, Line)]
    return next((line for line in lines if line.label), lines[0])


def summary(document: AnswerDocument) -> str:
    """The verdict in a line: ``Pays: Up to 64 accelerators. ...``"""
    line = lead(document)
    return ": ".join(filter(None, (line.label, plain_text(line.words))))

"""A document on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from rich.text import Text

from shardplan.answers import document as doc
from shardplan.answers.document import (
    AnswerDocument,
    BarTable,
    Bullets,
    CommandLine,
    Hanging,
    Item,
    Line,
    Numbered,
    Part,
    PartsBar,
    Phrases,
    Plot,
    RowTable,
    ShareBars,
    SideBySide,
    Tone,
    Words,
)
from shardplan.base.units import format_time
from shardplan.render.drawings import bar, scatter, show_bars, show_parts
from shardplan.render.page import INDENT, Page, TextColumn
from shardplan.reports.texts.answer import percent

LONGEST_BAR: Final = 40
STYLES: Final[dict[Tone, str]] = {
    "": "",
    "strong": "bold",
    "good": "bold green",
    "bad": "bold red",
    "wrong": "red",
    "warning": "bold yellow",
    "doubt": "yellow",
    "quiet": "dim",
    "useful": "green",
}


def show(page: Page, document: AnswerDocument, written: Sequence[str] = ()) -> None:
    """The whole answer, and which files were ``written``."""
    show_blocks(page, document.head)
    if document.head and document.verdict:
        page.console.print()
    show_blocks(page, document.verdict)
    for part in document.parts:
        show_part(page, part)
    if written:
        page.console.print()
        page.labelled("Written", ", ".join(written), style="dim")


def show_part(page: Page, part: Part) -> None:
    """A heading and what is under it."""
    if part.title:
        page.heading(part.title, part.note)
    else:
        page.console.print()
    show_blocks(page, part.blocks, INDENT)


def show_blocks(page: Page, blocks: Sequence[doc.Block], indent: int = 0) -> None:
    """Blocks one below the other. ``indent``: of lines without a label."""
    for block in blocks:
        if isinstance(block, Line):
            if block.only != "pages":
                _show_line(page, block, indent)
        else:
            FORMS[type(block)](page, block)


def _show_hanging(page: Page, block: Hanging) -> None:
    lead, words = (Text(span.text, style=STYLES[span.tone]) for span in (block.lead, block.words))
    page.hanging(lead, words, indent=0 if block.is_flush else INDENT)


def _show_bullets(page: Page, bullets: Bullets) -> None:
    texts = bullets.texts if bullets.most_in_all is None else _first(page, bullets.texts, bullets.most_in_all)
    page.bullets(texts, style=STYLES[bullets.tone], most_lines=bullets.most_lines)


def _show_numbered(page: Page, numbered: Numbered) -> None:
    for number, text in enumerate(numbered.texts, start=1):
        page.hanging(Text(str(number).rjust(2)), Text(text, style=STYLES[numbered.tone]), gap=1)


def _show_phrases(page: Page, phrases: Phrases) -> None:
    page.under_label(line for group in phrases.groups for line in page.whole_words(group))


def _show_plot(page: Page, plot: Plot) -> None:
    for line in scatter(plot.dots, page.width - INDENT, plot.x_ends, plot.y_ends):
        page.line(line)


def _show_shares(page: Page, bars: ShareBars) -> None:
    """A line for each part of a time."""
    shares = bars.shares
    cells = [(bars.label(each.name), format_time(each.value), percent(each.share)) for each in shares]
    widths = [max(len(text) for text in texts) for texts in zip(*cells, strict=True)]
    widths[2] = max(widths[2], bars.room)
    room = max(min(page.width - sum(widths) - 8 - bars.margin, LONGEST_BAR), 1)
    longest = max(share.share for share in shares)
    for share, (label, time, text) in zip(shares, cells, strict=True):
        line = Text(f"  {label.ljust(widths[0])}  {time.rjust(widths[1])}  {text.rjust(widths[2])}  ")
        line.append_text(page.bar(share.share / longest, room, STYLES[bars.tone(share.name)]))
        page.console.print(line, soft_wrap=True)


def _first(page: Page, texts: Sequence[str], most: int) -> Sequence[str]:
    """The first texts that take at most so many lines together; one at least."""
    lengths = [page.num_lines(text) for text in texts]
    return texts[: max([1, *(n for n in range(2, len(texts) + 1) if sum(lengths[:n]) <= most)])]


def show_table(page: Page, table: RowTable) -> None:
    """Rows with the columns for which there is room, and what those mean; or each row with its cells stacked."""
    columns = _columns(page, table)
    if page.width < table.stacked_below or (table.stacked_below and not page.can_wrap(columns)):
        _show_stacked(page, table)
        return
    if table.narrow is not None and not page.has_room(columns):
        for name, value, rest in map(table.narrow, table.rows):
            page.hanging(Text(name), Text(value, style="bold"))
            page.line(rest, indent=6, style="dim")
        return
    titles = page.table(columns, styles=[STYLES[table.tone(row)] for row in table.rows])
    if notes := [note for title, note in table.notes if not title or title in titles]:
        page.line("; ".join(notes), style=STYLES["quiet"])


def _show_stacked(page: Page, table: RowTable) -> None:
    """Each row as its name with a line for every other column beside it."""
    first, *others = table.columns
    widest, room = max(len(first.cell(row)) for row in table.rows), max(len(column.short) for column in others)
    for row in table.rows:
        for column in others:
            lead = first.cell(row) if column is others[0] else ""
            page.hanging(Text(lead.ljust(widest)), Text(f"{column.short.ljust(room)} {column.cell(row)}"))


def _show_sides(page: Page, sides: SideBySide) -> None:
    """As many sides as there is room for, the others below."""
    styles = [STYLES[sides.full.tone(row)] for row in sides.full.rows]
    columns = _columns(page, sides.full)
    names, *columns = columns if page.has_room(columns) else _columns(page, sides.brief)
    while columns:
        count = next((n for n in range(len(columns), 1, -1) if page.has_room([names, *columns[:n]])), 1)
        page.table([names, *columns[:count]], styles=styles)
        columns = columns[count:]
        if columns:
            page.console.print()


def _columns(page: Page, table: RowTable) -> list[TextColumn]:
    """What a terminal shows of a table."""
    return [
        TextColumn(
            title=column.title,
            cells=[_cell(page, column, row) for row in table.rows],
            is_text=column.is_text or column.bar is not None,
            rank=column.rank,
        )
        for column in table.columns
        if column.title is not None and not column.is_wide
    ]


def _cell(page: Page, column: doc.Column, row: object) -> str:
    return column.cell(row) if column.bar is None else bar(page, column.value(row), column.bar)


def _show_line(page: Page, line: Line, indent: int) -> None:
    if line.label is None:
        page.line(_text(page, line.words, line.tone), indent=indent if line.indent is None else line.indent)
    else:
        page.labelled(line.label, _text(page, line.words, "" if line.label else line.tone), style=STYLES[line.tone])


def _text(page: Page, words: Words, tone: Tone) -> Text:
    """Words in their colours."""
    spans = (doc.Span(words, tone),) if isinstance(words, str) else words
    text, dot = Text(), page.glyph(" · ", ", ")
    for span in spans:
        text.append(span.text.replace(" · ", dot), style=STYLES[span.tone])
    return text


FORMS: Final[Mapping[type[Any], Callable[[Page, Any], None]]] = {
    Hanging: _show_hanging,
    Item: lambda page, item: page.hanging(Text(item.mark), Text(item.text), gap=1),
    Bullets: _show_bullets,
    Numbered: _show_numbered,
    Phrases: _show_phrases,
    CommandLine: lambda page, command: page.verbatim(command.text),
    RowTable: show_table,
    SideBySide: _show_sides,
    Plot: _show_plot,
    PartsBar: show_parts,
    ShareBars: _show_shares,
    BarTable: show_bars,
}
"""How each block is shown that is no line."""

"""A document on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from rich.text import Text

from shardplan.answers import document as doc
from shardplan.answers.document import (
    AnswerDocument,
    Bullets,
    CommandLine,
    Item,
    Line,
    Numbered,
    Part,
    PartsBar,
    Plot,
    RowTable,
    Tone,
    Words,
)
from shardplan.render.drawings import bar, scatter, show_parts
from shardplan.render.page import INDENT, Page, TextColumn

STYLES: Final[dict[Tone, str]] = {
    "": "",
    "strong": "bold",
    "good": "bold green",
    "bad": "bold red",
    "wrong": "red",
    "warning": "bold yellow",
    "doubt": "yellow",
    "quiet": "dim",
}


def show(
    page: Page, document: AnswerDocument, written: Sequence[str] = (), between: Callable[[Page], None] | None = None
) -> None:
    """The whole answer, and which files were ``written``. ``between``: prints what follows the verdict."""
    show_blocks(page, document.head)
    if document.head and document.verdict:
        page.console.print()
    show_blocks(page, document.verdict)
    if between is not None:
        between(page)
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
        match block:
            case Line() if block.only != "pages":
                _show_line(page, block, indent)
            case Bullets():
                page.bullets(block.texts, style=STYLES[block.tone], most_lines=block.most_lines)
            case Numbered():
                for number, text in enumerate(block.texts, start=1):
                    page.hanging(Text(str(number).rjust(2)), Text(text, style=STYLES[block.tone]), gap=1)
            case Item():
                page.hanging(Text(block.mark), Text(block.text), gap=1)
            case CommandLine():
                page.verbatim(block.text)
            case RowTable():
                show_table(page, block)
            case Plot():
                for line in scatter(block.dots, page.width - INDENT, block.x_ends, block.y_ends):
                    page.line(line)
            case PartsBar():
                show_parts(page, block)


def show_table(page: Page, table: RowTable) -> list[str]:
    """Rows with the columns for which there is room; returns their titles."""
    columns = [
        TextColumn(
            title=column.title,
            cells=[_cell(page, column, row) for row in table.rows],
            is_text=column.is_text or column.bar is not None,
            rank=column.rank,
        )
        for column in table.columns
        if column.title is not None and not column.is_wide
    ]
    if table.narrow is not None and not page.has_room(columns):
        for name, value, rest in map(table.narrow, table.rows):
            page.hanging(Text(name), Text(value, style="bold"))
            page.line(rest, indent=6, style="dim")
        return []
    return page.table(columns, styles=[STYLES[table.tone(row)] for row in table.rows])


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

"""A document as HTML: for notebooks, and block by block for the pages of the web app.

Colours follow the reader's setting; nothing is loaded from elsewhere, and every text is escaped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Any, Final, TypeAlias

from shardplan.answers.document import (
    AnswerDocument,
    Block,
    Bullets,
    Column,
    CommandLine,
    Item,
    Line,
    Numbered,
    Part,
    PartsBar,
    RowTable,
    Span,
    Words,
)

Address: TypeAlias = Callable[[Any], str]
"""Where a row of a table with a wide column leads; empty where it leads nowhere."""
STYLE: Final = (
    "<style>.shardplan.answer{font:13px/1.5 system-ui,sans-serif;max-width:72em}.shardplan.answer table{font:inherit;"
    "border-collapse:collapse;margin:4px 0}.shardplan.answer td,.shardplan.answer th{padding:1px 12px 1px 0;border:0;"
    "text-align:left;white-space:nowrap}.shardplan.answer .n{text-align:right}.shardplan.answer p{margin:0}"
    ".shardplan.answer h3{font-size:1em;margin:8px 0 0}.shardplan.answer .quiet{opacity:.75}"
    ".shardplan.answer .strong,.shardplan.answer .good,.shardplan.answer .bad{font-weight:600}</style>"
)
BAR: Final = (100, 9)
"""Width and height of a bar. [pixels]"""


def notebook_html(document: AnswerDocument) -> str:
    """The answer as one piece: what was asked, verdict, parts."""
    parts = [blocks_html(document.head), blocks_html(document.verdict), *map(part_html, document.parts)]
    return f'{STYLE}<div class="shardplan answer">{"".join(f"<div>{part}</div>" for part in parts if part)}</div>'


def part_html(part: Part) -> str:
    """A heading with its note, and what is under it."""
    note = f' <small class="quiet">{escape(part.note)}</small>' if part.note else ""
    heading = f"<h3>{escape(part.title)}{note}</h3>" if part.title else ""
    return heading + blocks_html(part.blocks)


def blocks_html(blocks: Sequence[Block], address: Address | None = None) -> str:
    """Blocks one below the other. ``address``: of the rows of tables. What a chart shows is not drawn again."""
    return "".join(_block(block, address) for block in blocks)


def _block(block: Block, address: Address | None) -> str:
    if isinstance(block, Item):
        block = Line(block.text, block.mark.strip())
    match block:
        case Line() if block.only != "terminal":
            label = f"<b>{escape(block.label)}</b> " if block.label else ""
            tone = "" if block.label else block.tone
            return f"<p>{label}{_words(block.words, tone)}</p>"
        case Bullets() | Numbered():
            tag = "ol" if isinstance(block, Numbered) else "ul"
            texts = "".join(f"<li>{escape(text)}</li>" for text in block.texts)
            return f'<{tag} class="reasons">{texts}</{tag}>' if texts else ""
        case CommandLine():
            return f"<pre>{escape(block.text)}</pre>"
        case RowTable():
            return table_html(block, address)
        case PartsBar():
            return _parts(block)
    return ""


def _words(words: Words, tone: str) -> str:
    spans = (Span(words),) if isinstance(words, str) else words
    texts = [(escape(span.text), span.tone or tone) for span in spans]
    return "".join(f'<span class="{tone}">{text}</span>' if tone else text for text, tone in texts)


def table_html(table: RowTable, address: Address | None = None) -> str:
    """All columns that are shown, those for pages alone too; the last of these leads to the row's address."""
    columns = [column for column in table.columns if column.title is not None]
    head = "".join(f'<th scope="col"{_side(column)}>{escape(column.title or "")}</th>' for column in columns)
    rows = "".join(_row(columns, table, row, address) for row in table.rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _row(columns: Sequence[Column], table: RowTable, row: Any, address: Address | None) -> str:
    where = address(row) if address is not None and any(column.is_wide for column in columns) else ""
    cells = "".join(f"<td{_side(column)}>{_cell(column, row, where)}</td>" for column in columns)
    tone = table.tone(row)
    return f'<tr class="{tone}">{cells}</tr>' if tone else f"<tr>{cells}</tr>"


def _side(column: Column) -> str:
    """The class of numbers, which stand on the right."""
    if column.is_wide:
        return ' class="wrap"'
    return "" if column.is_text or column.bar is not None else ' class="n"'


def _cell(column: Column, row: Any, where: str) -> str:
    if column.bar is not None:
        return _bar(column.value(row) or 0.0, is_centred=column.bar.is_centred)
    text = escape(column.cell(row))
    return f'<a href="{escape(where)}" data-apply>{text}</a>' if where and column.is_wide else text


def _bar(share: float, *, is_centred: bool) -> str:
    """A bar of a share of one, from the left or from the middle."""
    width, height = BAR
    room = width / 2 if is_centred else width
    length = room * min(abs(share), 1.0)
    start = 0.0 if not is_centred else room - length if share < 0 else room
    rect = f'<rect x="{start:.1f}" width="{length:.1f}" height="{height}" fill="currentColor" opacity=".6"/>'
    return f'<svg width="{width}" height="{height}" aria-hidden="true">{rect}</svg>'


def _parts(parts: PartsBar) -> str:
    """What each part takes, largest first."""
    ordered = sorted(parts.shares, key=lambda part: -part.value)
    columns = (
        Column("", "part", lambda part: part.name, is_text=True),
        Column("", "", lambda part: part.value, parts.text),
        Column("", "", lambda part: part.share, "{:.1%}".format),
    )
    return table_html(RowTable(ordered, columns))

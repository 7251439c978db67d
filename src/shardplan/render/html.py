"""A document as HTML: for notebooks, and block by block for the pages of the web app.

Colours follow the reader's setting; nothing is loaded from elsewhere, and every text is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from html import escape
from itertools import accumulate
from operator import itemgetter
from typing import Any, Final, TypeAlias

from shardplan.answers.document import (
    AnswerDocument,
    Bar,
    BarTable,
    Block,
    Bullets,
    Column,
    CommandLine,
    Hanging,
    Item,
    Line,
    Numbered,
    Part,
    PartsBar,
    Phrases,
    RowTable,
    ShareBars,
    SideBySide,
    Span,
    VectorFigure,
    Words,
)
from shardplan.base.units import format_time
from shardplan.estimation.parts.terms import MEMORY
from shardplan.reports.texts.answer import percent


class Html(str):
    """HTML whose every text is escaped: templates show it as it is."""

    __slots__ = ()

    def __html__(self) -> str:
        return str(self)


Address: TypeAlias = Callable[[Any], str]
"""Returns the link of a row's cell, or an empty text."""
STYLE: Final = (
    "<style>.shardplan.answer{font:13px/1.5 system-ui,sans-serif;max-width:72em}.shardplan.answer table{font:inherit;"
    "border-collapse:collapse;margin:4px 0}.shardplan.answer td,.shardplan.answer th{padding:1px 12px 1px 0;border:0;"
    "text-align:left;white-space:nowrap}.shardplan.answer .n{text-align:right}.shardplan.answer p{margin:0}"
    ".shardplan.answer h3{font-size:1em;margin:8px 0 0}.shardplan.answer .quiet{opacity:.75}"
    ".shardplan.answer .strong,.shardplan.answer .good,.shardplan.answer .bad{font-weight:600}"
    ".shardplan.answer .whole{display:block;background:rgba(128,128,128,.2);margin:3px 0}"
    ".shardplan.answer .dot{margin-right:4px}.shardplan.answer .legend span{margin-right:16px}</style>"
)
COLOURS: Final = {
    "bright_blue": "#4477aa",
    "bright_cyan": "#66ccee",
    "bright_magenta": "#aa3377",
    "bright_yellow": "#ccbb44",
    "bright_green": "#228833",
    "bright_red": "#ee6677",
    "white": "#999999",
}
"""Colours of the parts of memory, by their colour on terminals; distinct for the colour-blind (Paul Tol, bright)."""
BAR: Final = (100, 9)
"""Width and height of a bar. [pixels]"""


def notebook_html(document: AnswerDocument) -> str:
    """The answer as one piece: question, verdict, parts, what was assumed."""
    above, assumed = map(blocks_html, (document.head, document.verdict)), assumed_html(document.assumptions)
    parts = [*above, *map(part_html, document.parts), assumed]
    return f'{STYLE}<div class="shardplan answer">{"".join(f"<div>{part}</div>" for part in parts if part)}</div>'


PAGE_STYLE: Final = (
    ":root{color-scheme:light dark}"
    "body{font:15px/1.5 system-ui,sans-serif;max-width:72em;margin:2em auto;padding:0 1em}"
    "table{border-collapse:collapse;margin:1em 0;font-size:14px}"
    "td,th{padding:.25em .7em;text-align:left;border-bottom:1px solid #8884;vertical-align:top}"
    ".n{text-align:right}svg{max-width:40em;display:block}"
)


def parts_page(title: str, parts: Sequence[Part]) -> str:
    """Parts as one HTML file that loads nothing."""
    body = "\n".join(map(part_html, parts))
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="generator" content="shardplan">'
        f"<title>{escape(title)}</title>"
        f'<meta name="viewport" content="width=device-width"><style>{PAGE_STYLE}</style></head>\n'
        f"<body><h1>{escape(title)}</h1>\n{body}\n</body></html>\n"
    )


def assumed_html(texts: Sequence[str]) -> Html:
    """What was assumed, folded; nothing where there is none."""
    listed = _bullets(Bullets(texts))
    return Html(listed and f"<details><summary>Assumed ({len(texts):,})</summary>{listed}</details>")


def part_html(part: Part) -> str:
    """A heading with its note, and its blocks."""
    note = f' <small class="quiet">{escape(part.note)}</small>' if part.note else ""
    heading = f"<h3>{escape(part.title)}{note}</h3>" if part.title else ""
    return heading + blocks_html(part.blocks)


def blocks_html(blocks: Sequence[Block], address: Address | None = None) -> Html:
    """Blocks one below the other, with links of table rows by ``address``. Blocks that a chart shows are left out."""
    return Html("".join(_block(block, address) for block in blocks))


def _block(block: Block, address: Address | None) -> str:
    if isinstance(block, RowTable | SideBySide):
        return table_html(block if isinstance(block, RowTable) else block.full, address)
    form = FORMS.get(type(block))
    return "" if form is None else form(block)


def _line(line: Line) -> str:
    if line.only == "terminal":
        return ""
    label = f"<b>{escape(line.label)}</b> " if line.label else ""
    return f"<p>{label}{_words(line.words, '' if line.label else line.tone)}</p>"


def _bullets(bullets: Bullets | Numbered) -> str:
    tag = "ol" if isinstance(bullets, Numbered) else "ul"
    texts = "".join(f"<li>{escape(text)}</li>" for text in bullets.texts)
    return f'<{tag} class="reasons">{texts}</{tag}>' if texts else ""


def _phrases(phrases: Phrases) -> str:
    return "".join(f"<p><code>{escape(' '.join(group))}</code></p>" for group in phrases.groups if group)


def _words(words: Words, tone: str) -> str:
    spans = (Span(words),) if isinstance(words, str) else words
    texts = [(_linked(span.text), span.tone or tone) for span in spans]
    return "".join(f'<span class="{tone}">{text}</span>' if tone else text for text, tone in texts)


LINK: Final = re.compile(r"https?://[^\s;,)]+")


def _linked(text: str) -> str:
    """A text with its URLs as links."""
    address = r'<a href="\g<0>" rel="noreferrer noopener">\g<0></a>'
    return LINK.sub(address, escape(text))


def table_html(table: RowTable, address: Address | None = None) -> str:
    """All displayed columns, including those for pages only."""
    columns = [column for column in table.columns if column.title is not None]
    if len(table.rows) <= table.turned_up_to:
        return _turned(columns, table, address)
    head = "".join(map(_title, columns))
    rows = "".join(_row(columns, table, row, address) for row in table.rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _turned(columns: Sequence[Column], table: RowTable, address: Address | None) -> str:
    """Rows as columns, headed by the text of the first column; each of the others is a line."""
    first, *others = columns
    head = "".join(f'<th scope="col" class="n">{escape(first.cell(row))}</th>' for row in table.rows)
    lines = []
    for column in others:
        kind = "wrap" if column.is_text else "n"
        cells = (f'<td class="{kind}">{_cell(column, row, address)}</td>' for row in table.rows)
        lines.append(f'<tr><th scope="row">{escape(column.title or "")}</th>{"".join(cells)}</tr>')
    return f'<table class="turned"><thead><tr><td></td>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table>'


def _title(column: Column) -> str:
    """A heading; a bar's column has none, so that screen readers skip it."""
    return f'<th scope="col"{_side(column)}>{escape(column.title)}</th>' if column.title else "<td></td>"


def _row(columns: Sequence[Column], table: RowTable, row: Any, address: Address | None) -> str:
    cells = "".join(f"<td{_side(each)}>{_cell(each, row, address)}</td>" for each in columns)
    tone = table.tone(row)
    return f'<tr class="{tone}">{cells}</tr>' if tone else f"<tr>{cells}</tr>"


def _side(column: Column) -> str:
    """The CSS class of numbers, which are right-aligned."""
    if column.is_wide and column.is_text:
        return ' class="wrap"'
    return "" if column.is_text or column.bar is not None else ' class="n"'


def _cell(column: Column, row: Any, address: Address | None) -> str:
    if column.bar is not None:
        return _bar(column.value(row) or 0.0, is_centred=column.bar.is_centred)
    text = escape(column.cell(row))
    where = address(row) if address is not None and column.leads else ""
    return f'<a href="{escape(where)}" data-apply>{text}</a>' if where else text


def _bar(share: float, *, is_centred: bool) -> str:
    """A bar of a share of one, from the left or from the middle."""
    width, height = BAR
    room = width / 2 if is_centred else width
    length = room * min(abs(share), 1.0)
    start = 0.0 if not is_centred else room - length if share < 0 else room
    rect = f'<rect x="{start:.1f}" width="{length:.1f}" height="{height}" fill="currentColor" opacity=".6"/>'
    return f'<svg width="{width}" height="{height}" aria-hidden="true">{rect}</svg>'


def _parts(parts: PartsBar) -> str:
    """A bar of its parts, scaled down if they exceed the whole, and the size of each.

    Drawn without inline styles, which the pages of the server refuse; there the class gives the colour.
    """
    whole = max(1.0, sum(part.share for part in parts.shares))
    starts = accumulate((part.share for part in parts.shares), initial=0.0)
    cells, legend = [], []
    for part, start in zip(parts.shares, starts, strict=False):
        name, known = escape(part.name), MEMORY[part.name]
        fill = f'class="{known.tone}" fill="{COLOURS[known.colour]}"'
        place = f'x="{100 * start / whole:.2f}%" width="{100 * part.share / whole:.2f}%"'
        cells.append(f'<rect {place} height="100%" {fill}><title>{name}</title></rect>')
        dot = f'<svg class="dot" width="9" height="9" aria-hidden="true"><rect width="9" height="9" {fill}/></svg>'
        legend.append(f"<span>{dot}{name} {escape(parts.text(part.value))}</span>")
    bar = f'<svg class="whole" width="100%" height="14" role="img" aria-label="Parts">{"".join(cells)}</svg>'
    return f'{bar}<small class="legend">{" ".join(legend)}</small>'


def _shares(bars: ShareBars) -> str:
    """The size of each part of a time."""
    longest = max(share.share for share in bars.shares)
    columns = (
        Column("", "", lambda share: bars.label(share.name), is_text=True),
        Column("", "", lambda share: share.value, format_time),
        Column("", "", lambda share: share.share, percent),
        Column("", "", lambda share: share.share / longest, bar=Bar(BAR[0])),
    )
    return table_html(RowTable(bars.shares, columns))


def _bars(bars: BarTable) -> str:
    """Every cell, and the bar after them."""
    titles = bars.titles or [""] * len(bars.rows[0].cells)
    cells = [
        Column("", title, lambda row: row.cells, itemgetter(place), is_text=place in bars.texts)
        for place, title in enumerate(titles)
    ]
    return table_html(RowTable(bars.rows, (*cells, Column("", "", lambda row: row.share, bar=Bar(bars.room)))))


FORMS: Final[Mapping[type[Any], Callable[[Any], str]]] = {
    Line: _line,
    Hanging: lambda block: f"<p>{_words((block.lead, Span(' '), block.words), '')}</p>",
    Item: lambda item: _line(Line(item.text, item.mark.strip())),
    VectorFigure: lambda drawing: drawing.svg("auto"),
    Bullets: _bullets,
    Numbered: _bullets,
    Phrases: _phrases,
    CommandLine: lambda command: f"<pre>{escape(command.text)}</pre>",
    PartsBar: _parts,
    ShareBars: _shares,
    BarTable: _bars,
}
"""Blocks that look the same everywhere."""

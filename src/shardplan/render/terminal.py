"""A document on a terminal: its blocks, and scatter plots, bars and legends drawn with characters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from rich.text import Text

from shardplan.answers import document as doc
from shardplan.answers.document import (
    AnswerDocument,
    Bar,
    BarTable,
    Bullets,
    CommandLine,
    Dot,
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
from shardplan.estimation.parts.terms import MEMORY
from shardplan.render.page import HARD_SPACE, INDENT, Page, TextColumn
from shardplan.reports.breakdown import Share
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
    """Prints the whole answer, and which files were ``written``."""
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
    """Prints a heading and its blocks."""
    if part.title:
        page.heading(part.title, part.note)
    else:
        page.console.print()
    show_blocks(page, part.blocks, INDENT)


def show_blocks(page: Page, blocks: Sequence[doc.Block], indent: int = 0) -> None:
    """Prints blocks one below the other. ``indent`` is that of lines without a label."""
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


def _show_plot(page: Page, plot: Plot) -> None:
    for line in scatter(plot.dots, page.width - INDENT, plot.x_ends, plot.y_ends):
        page.line(line)


def _show_shares(page: Page, bars: ShareBars) -> None:
    """Prints a line for each part of a time."""
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
    """The first texts that together take at most so many lines; at least one."""
    lengths = [page.num_lines(text) for text in texts]
    return texts[: max([1, *(n for n in range(2, len(texts) + 1) if sum(lengths[:n]) <= most)])]


def show_table(page: Page, table: RowTable) -> None:
    """Prints rows with the columns that fit, and their meaning; or each row with its cells stacked."""
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
    """Prints each row as its name with a line for every other column."""
    first, *others = table.columns
    widest, room = max(len(first.cell(row)) for row in table.rows), max(len(column.short) for column in others)
    for row in table.rows:
        for column in others:
            lead = first.cell(row) if column is others[0] else ""
            page.hanging(Text(lead.ljust(widest)), Text(f"{column.short.ljust(room)} {column.cell(row)}"))


def _show_sides(page: Page, sides: SideBySide) -> None:
    """Prints as many sides next to each other as fit, the others below."""
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
    """The columns of a table that a terminal shows."""
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


ROWS: Final = 9
LABEL: Final = 9
MARKS: Final = "*o."
"""Marks of points; of several at one place, the first of these is drawn."""

USUAL_WIDTH: Final = 80
"""Columns of a terminal for which the first screen is designed."""


def scatter(dots: Sequence[Dot], width: int, x_ends: tuple[str, str], y_ends: tuple[str, str]) -> list[str]:
    """Lines of at most ``width`` characters; ``x_ends`` and ``y_ends`` name the smallest and the largest value."""
    room = width - LABEL - 2
    columns, rows = _places([dot.x for dot in dots], room), _places([dot.y for dot in dots], ROWS)
    grid = [[" "] * room for _ in range(ROWS)]
    for dot, column, row in zip(dots, columns, rows, strict=True):
        if grid[row][column] == " " or MARKS.index(dot.mark) < MARKS.index(grid[row][column]):
            grid[row][column] = dot.mark
    for dot, column, row in zip(dots, columns, rows, strict=True):
        _write(grid[row], column, dot.text)
    labels = {0: y_ends[0], ROWS - 1: y_ends[1]}
    lines = [f"{labels.get(row, ''):>{LABEL}} |{''.join(grid[row])}" for row in reversed(range(ROWS))]
    axis = x_ends[0] + x_ends[1].rjust(room - len(x_ends[0]))
    return [*(line.rstrip() for line in lines), " " * LABEL + " +" + "-" * room, " " * (LABEL + 2) + axis]


def _write(line: list[str], column: int, text: str) -> None:
    """Writes a text to the right of a point, or to its left, unless the place is taken."""
    if not text:
        return
    for start in (column + 2, column - 1 - len(text)):
        cells = line[max(start - 1, 0) : start + len(text) + 1]
        taken = [cell for place, cell in enumerate(cells, max(start - 1, 0)) if cell != " " and place != column]
        if start >= 0 and start + len(text) <= len(line) and not taken:
            line[start : start + len(text)] = text
            return


def _places(values: Sequence[float], count: int) -> list[int]:
    """Places of values among ``count``, the smallest first."""
    low, high = min(values), max(values)
    return [0 if high <= low else round((value - low) / (high - low) * (count - 1)) for value in values]


def bar(page: Page, share: float | None, drawn: Bar) -> str:
    """A bar of a share of one, in characters; if centred, from the middle, to the left for negative shares."""
    if not drawn.is_centred:
        return "" if share is None else str(page.bar(min(max(share, 0.0), 1.0), drawn.room, ""))
    value, room = share or 0.0, drawn.room
    length, full = min(round(abs(value) * room), room), page.glyph("\u2588", "#")
    middle = page.glyph("\u2502", "|")
    return " " * (room - length) + full * length + middle if value < 0 else " " * room + middle + full * length


def show_bars(page: Page, bars: BarTable) -> None:
    """Prints rows of cells with their bars; cells are dropped if there is too little room for the bars."""
    every = range(len(bars.rows[0].cells))
    heads = [bars.titles, *(row.cells for row in bars.rows)] if bars.titles else [row.cells for row in bars.rows]
    least = bars.least_widths or [0] * len(every)
    widths = [max(least[place], *(len(cells[place]) for cells in heads)) for place in every]
    rooms = [
        (places, page.width - INDENT - bars.margin - sum(widths[place] + 2 for place in places))
        for places in (every, *bars.fewer)
    ]
    shown, room = next((each for each in rooms if each[1] >= bars.least_room), rooms[-1])

    def cells_of(cells: Sequence[str]) -> str:
        sides = {True: str.ljust, False: str.rjust}
        return "  ".join(sides[place in bars.texts](cells[place], widths[place]) for place in shown)

    if bars.titles:
        page.line(Text(cells_of(bars.titles).rstrip(), style="dim"))
    for row in bars.rows:
        line = Text(" " * INDENT + cells_of(row.cells) + "  ")
        if row.share:
            line.append_text(page.bar(row.share, min(room, bars.room), row.colour))
        line.rstrip()
        page.console.print(line, soft_wrap=True)


def show_parts(page: Page, parts: PartsBar) -> None:
    """Prints parts of a whole as a bar, with the size of each; the smallest together unless ``is_whole``."""
    page.console.print(Text("  ") + _parts_bar(page, parts.shares, page.width - 6), soft_wrap=True)
    page.line(_legend(page, parts))


def _parts_bar(page: Page, shares: Sequence[Share], room: int) -> Text:
    """Each part by its share of the whole; if the parts exceed it, ``|`` marks its end."""
    everything = max(sum(part.share for part in shares), 1.0)
    text, reached = Text(), 0.0
    for part in shares:
        reached += part.share
        term = MEMORY[part.name]
        length = max(round(reached / everything * room) - len(text), 0)
        text.append(_mark(page, term.letter) * length, style=term.colour if page.is_coloured else "")
    text.append("." * (room - len(text)), style="dim")
    if everything > 1.0:
        end = round(room / everything)
        text = text[:end] + Text("|", style="bold red") + text[end + 1 :]
    return Text("[") + text + Text("]")


def _legend(page: Page, parts: PartsBar) -> Text:
    """The size of every part, largest first; on a usual terminal, parts that do not fit on one line are summed up."""
    ordered = sorted(parts.shares, key=lambda part: -part.value)
    legends = [_legend_of(page, ordered, count, parts.text) for count in range(len(ordered), 0, -1)]
    if parts.is_whole or page.width < USUAL_WIDTH:
        return legends[0]
    return next((each for each in legends if len(each) <= page.width - INDENT), legends[-1])


def _legend_of(page: Page, shares: Sequence[Share], num_named: int, text: Callable[[float], str]) -> Text:
    """The first parts one by one, then the sum of the rest."""
    entries = [_legend_entry(page, (part,), text) for part in shares[:num_named]]
    rest = [_legend_entry(page, shares[num_named:], text)] if num_named < len(shares) else []
    return Text("  ").join([*entries, *rest])


def _legend_entry(page: Page, shares: Sequence[Share], text: Callable[[float], str]) -> Text:
    """A part by its name, or several by their marks, with their size together."""
    entry = Text()
    for part in shares:
        term = MEMORY[part.name]
        mark = part.name.capitalize() if len(shares) == 1 else _mark(page, term.letter)
        entry.append(f"{mark}{HARD_SPACE}", style=term.colour if page.is_coloured else "")
    words = "rest " if len(shares) > 1 else ""
    entry.append(f"{words}{text(sum(part.value for part in shares))}".replace(" ", HARD_SPACE))
    return entry


def _mark(page: Page, letter: str) -> str:
    """How the bar shows a part: by its colour if there is one."""
    return "\u2588" if page.is_coloured else letter


FORMS: Final[Mapping[type[Any], Callable[[Page, Any], None]]] = {
    Hanging: _show_hanging,
    Item: lambda page, item: page.hanging(Text(item.mark), Text(item.text), gap=1),
    Bullets: _show_bullets,
    Numbered: _show_numbered,
    Phrases: lambda page, block: page.under_label(line for group in block.groups for line in page.whole_words(group)),
    CommandLine: lambda page, command: page.verbatim(command.text),
    RowTable: show_table,
    SideBySide: _show_sides,
    Plot: _show_plot,
    PartsBar: show_parts,
    ShareBars: _show_shares,
    BarTable: show_bars,
}
"""How each block other than a line is printed."""

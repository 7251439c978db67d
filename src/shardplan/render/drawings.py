"""What a terminal draws with characters: points in a plane, bars, and parts of a whole with their legend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from rich.text import Text

from shardplan.answers.document import Bar, Dot, PartsBar
from shardplan.estimation.parts.terms import MEMORY
from shardplan.render.page import HARD_SPACE, INDENT, Page
from shardplan.reports.breakdown import Share

ROWS: Final = 9
LABEL: Final = 9
MARKS: Final = "*o."
"""Of points at one place, the first of these is drawn."""

USUAL_WIDTH: Final = 80
"""Columns of a terminal for which a first screen is made."""


def scatter(dots: Sequence[Dot], width: int, x_ends: tuple[str, str], y_ends: tuple[str, str]) -> list[str]:
    """Lines of at most ``width`` characters; ``x_ends`` and ``y_ends`` name the least and the largest value."""
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
    """Writes a text to the right of a point, or to its left; not where another is in its place."""
    if not text:
        return
    for start in (column + 2, column - 1 - len(text)):
        cells = line[max(start - 1, 0) : start + len(text) + 1]
        taken = [cell for place, cell in enumerate(cells, max(start - 1, 0)) if cell != " " and place != column]
        if start >= 0 and start + len(text) <= len(line) and not taken:
            line[start : start + len(text)] = text
            return


def _places(values: Sequence[float], count: int) -> list[int]:
    """Places of values among ``count``, the least first."""
    low, high = min(values), max(values)
    return [0 if high <= low else round((value - low) / (high - low) * (count - 1)) for value in values]


def bar(page: Page, share: float | None, drawn: Bar) -> str:
    """A bar of a share of one, in characters; from the middle, to the left for less than zero, if it is centred."""
    if not drawn.is_centred:
        return "" if share is None else str(page.bar(min(max(share, 0.0), 1.0), drawn.room, ""))
    value, room = share or 0.0, drawn.room
    length, full = min(round(abs(value) * room), room), page.glyph("\u2588", "#")
    middle = page.glyph("\u2502", "|")
    return " " * (room - length) + full * length + middle if value < 0 else " " * room + middle + full * length


def show_parts(page: Page, parts: PartsBar) -> None:
    """Parts of a whole as a bar, and what each takes: the smallest together unless ``is_whole``."""
    page.console.print(Text("  ") + _parts_bar(page, parts.shares, page.width - 6), soft_wrap=True)
    page.line(_legend(page, parts))


def _parts_bar(page: Page, shares: Sequence[Share], room: int) -> Text:
    """Each part by its share of the whole; where that is too little, ``|`` stands where it ends."""
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
    """What every part takes, largest first; on a usual terminal those for which one line has no room as a sum."""
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
    """A part by its name, several by their marks, and what they take together."""
    entry = Text()
    for part in shares:
        term = MEMORY[part.name]
        mark = part.name.capitalize() if len(shares) == 1 else _mark(page, term.letter)
        entry.append(f"{mark}{HARD_SPACE}", style=term.colour if page.is_coloured else "")
    words = "rest " if len(shares) > 1 else ""
    entry.append(f"{words}{text(sum(part.value for part in shares))}".replace(" ", HARD_SPACE))
    return entry


def _mark(page: Page, letter: str) -> str:
    """How the bar shows a part: by its colour where there is one."""
    return "\u2588" if page.is_coloured else letter

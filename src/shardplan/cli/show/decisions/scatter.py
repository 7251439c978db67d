"""Points in a plane, drawn with characters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

ROWS: Final = 9
LABEL: Final = 9
MARKS: Final = "*o."
"""Of points at one place, the first of these is drawn."""


class Dot(NamedTuple):
    """A point."""

    x: float
    y: float
    mark: str
    text: str = ""
    """Next to it, where there is room."""


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

"""Where things are in a picture of a step, its legend and its style sheet. All lengths are pixels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardplan.base.fields import dataclass
from shardplan.reports.timeline.bars import HUES, PAGES, Backdrop, Bars, ink_on, shades
from shardplan.simulation.pieces import Ints
from shardplan.simulation.timeline import StepTimeline

Places = NDArray[np.floating[Any]]

WIDTH: Final = 900.0
MARGIN: Final = 12.0
HEAD: Final = 34.0
"""Height of the title."""
LEGEND_LINE: Final = 20.0
ABOVE_LANES: Final = 2.5
"""Between computation and the first thin lane, where the critical path is marked."""
CHARACTER: Final = 6.6
"""Mean width of a character of the small texts."""
LONGEST_NAME: Final = 22
GUTTER: Final = 58.0
"""At the right, for a number of each rank."""
SIZES: Final = (
    (4, 30.0, 5.0, 8.0),
    (8, 24.0, 4.0, 7.0),
    (16, 16.0, 3.0, 5.0),
    (32, 11.0, 2.0, 3.0),
    (64, 8.0, 1.5, 2.0),
)
"""Most rows; heights of computation, of a thin lane, and of the space below a row."""
SMALLEST: Final = (4.0, 1.0, 1.0)


@dataclass(frozen=True, kw_only=True)
class Frame:
    """The places of rows, axis and memory."""

    left: float
    """Where time begins."""
    scale: float
    """Pixels of a second."""
    end: float
    """Of the time. [s]"""
    num_rows: int
    num_lanes: int
    """Thin ones."""
    work: float
    """Height of computation."""
    thin: float
    """Height of a thin lane."""
    space: float
    rows_top: float
    memory_height: float
    """Of all that is drawn of the memory."""
    width: float = WIDTH
    margin: float = MARGIN
    gutter: float = GUTTER

    @classmethod
    def of(cls, timeline: StepTimeline, bars: Bars, *, legend_lines: int, memory_height: float) -> Frame:
        """The places for what is shown of ``timeline``."""
        rows = len(bars.ranks)
        longest = max((len(timeline.rank_names[rank]) for rank in bars.ranks), default=0)
        left = MARGIN + CHARACTER * min(longest, LONGEST_NAME) + 10
        work, thin, space = next((size for most, *size in SIZES if rows <= most), SMALLEST)
        return cls(
            left=left,
            scale=(WIDTH - MARGIN - GUTTER - left) / bars.end if bars.end else 0.0,
            end=bars.end,
            num_rows=rows,
            num_lanes=len(bars.lanes) - 1,
            work=work,
            thin=thin,
            space=space,
            rows_top=HEAD + LEGEND_LINE * legend_lines + 10,
            memory_height=memory_height,
        )

    @property
    def right(self) -> float:
        """Where time ends."""
        return self.width - self.margin - self.gutter

    @property
    def pitch(self) -> float:
        """From one row to the next."""
        return self.work + ABOVE_LANES + self.num_lanes * (self.thin + 1) + self.space

    @property
    def bottom(self) -> float:
        """Of the rows."""
        return self.rows_top + self.num_rows * self.pitch

    @property
    def axis(self) -> float:
        """Base line of the numbers of the axis."""
        return self.bottom + 14

    @property
    def memory_top(self) -> float:
        """Where the memory begins."""
        return self.axis + 14

    @property
    def height(self) -> float:
        """Of all, but for notes."""
        return self.memory_top + self.memory_height

    def x(self, moment: float) -> float:
        """Of a moment [s]."""
        return self.left + moment * self.scale

    def row_top(self, row: int) -> float:
        """Upper edge of a row."""
        return self.rows_top + row * self.pitch

    def boxes(self, row: Ints, lane: Ints, lanes: tuple[int, ...]) -> tuple[Places, Places]:
        """Upper edge and height of events."""
        place = np.searchsorted(np.asarray(lanes), lane)
        thin = self.work + ABOVE_LANES + (place - 1) * (self.thin + 1)
        top = self.rows_top + row * self.pitch + np.where(place == 0, 0.0, thin)
        height = np.where(place > 0, self.thin, self.work)
        return top, height

    def lane_top(self, row: int, lane: int, lanes: tuple[int, ...]) -> float:
        """Upper edge of a lane of a row."""
        top, _ = self.boxes(np.array([row]), np.array([lane]), lanes)
        return float(top[0])


def shortened(text: str, most: int) -> str:
    """``text`` in at most so many characters."""
    return text if len(text) <= most else text[: max(most - 3, 1)].rstrip(" ,;:") + "..."


SWATCH: Final = 12.0
BETWEEN: Final = 18.0
MOST_SWATCHES: Final = 4
CRITICAL: Final = "critical path"
WAITING: Final = "bubble"


class Entry(NamedTuple):
    """A text and what is before it."""

    classes: tuple[str, ...]
    """Of the swatches."""
    text: str
    x: float
    line: int


def entries(bars: Bars, *, is_merged: bool) -> list[Entry]:
    """Everything that the picture shows, line by line."""
    placed: list[Entry] = []
    x, line = MARGIN, 0
    for classes, text in _wanted(bars, is_merged=is_merged):
        width = SWATCH * len(classes) + 6 + CHARACTER * len(text)
        if x + width > WIDTH - MARGIN and placed:
            x, line = MARGIN, line + 1
        placed.append(Entry(classes, text, x, line))
        x += width + BETWEEN
    return placed


def legend(placed: list[Entry], top: float) -> Iterator[str]:
    """Swatches and texts."""
    for entry in placed:
        y = top + LEGEND_LINE * entry.line
        for place, css in enumerate(entry.classes):
            x = entry.x + SWATCH * place
            if css == "k":
                yield f'<path class="k" d="M{x:g} {y + 6:g}h{SWATCH:g}"/>'
            else:
                yield f'<rect class="{css}" x="{x:g}" y="{y:g}" width="{SWATCH:g}" height="{SWATCH:g}"/>'
        yield f'<text class="s" x="{entry.x + SWATCH * len(entry.classes) + 5:g}" y="{y + 10:g}">{entry.text}</text>'


def _wanted(bars: Bars, *, is_merged: bool) -> Iterator[tuple[tuple[str, ...], str]]:
    present = np.unique(bars.hue).tolist()
    for hue in present:
        if hue > 0 and hue - 1 in present and HUES[hue].light == HUES[hue - 1].light and not HUES[hue].is_hatched:
            continue  # the entry before has the same colour and names both
        text = HUES[hue].label
        if hue + 1 in present and HUES[hue + 1].light == HUES[hue].light and not HUES[hue + 1].is_hatched:
            text = f"{text} or {HUES[hue + 1].label}"
        number = 1 if is_merged or HUES[hue].is_hatched else int(bars.shade[bars.hue == hue].max()) + 1
        shown = np.unique(np.linspace(0, number - 1, min(number, MOST_SWATCHES)).round().astype(int)).tolist()
        swatches = ("hx",) if HUES[hue].is_hatched else tuple(f"h{hue}-{chunk}" for chunk in shown)
        yield swatches, text if number == 1 else f"{text} (chunks 0 {'and' if number == 2 else 'to'} {number - 1})"
    yield ("tr",), WAITING
    if not is_merged and bool(bars.events.critical.any()):
        yield ("k",), CRITICAL


FONT = "system-ui,-apple-system,Segoe UI,Roboto,Helvetica,Arial,sans-serif"


def sheet(num_chunks: int, theme: str) -> str:
    """Rules of one theme, or of both where it is ``auto``."""
    common = (
        f"text{{font:12px {FONT}}}.t{{font-weight:600;font-size:14px}}.e{{text-anchor:end}}.m{{text-anchor:middle}}"
        "[class^=n]{font-size:10px;text-anchor:middle}.g{fill:none}.k{fill:none;stroke-width:2}"
        ".hx{fill:url(#hatch)}.ml{fill:none;stroke-width:1.2}"
    )
    if theme != "auto":
        return common + _rules(num_chunks, theme)
    return f"{common}{_rules(num_chunks, 'light')}@media(prefers-color-scheme:dark){{{_rules(num_chunks, 'dark')}}}"


def _rules(num_chunks: int, theme: str) -> str:
    page = PAGES[theme]
    rules = [_page_rules(page)]
    for number, hue in enumerate(HUES):
        colours = shades(hue, theme, num_chunks)
        if hue.is_hatched:
            rules.append(f".hp{{fill:{shades(hue, theme, 3)[-1]}}}.hl{{fill:{colours[0]}}}")
            continue
        rules.extend(
            f".h{number}-{chunk}{{fill:{colour}}}.n{number}-{chunk}{{fill:{ink_on(colour)}}}"
            for chunk, colour in enumerate(colours)
        )
    return "".join(rules)


def _page_rules(page: Backdrop) -> str:
    return (
        f".t{{fill:{page.text}}}.s{{fill:{page.faint}}}.g{{stroke:{page.line}}}.k{{stroke:{page.text}}}"
        f".tr{{fill:{page.track}}}.ma{{fill:{page.area}}}.ml{{stroke:{page.faint}}}"
        f".mp{{fill:{page.text}}}"
    )

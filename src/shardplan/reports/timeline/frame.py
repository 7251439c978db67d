"""Where things are in a picture of a step. All lengths are pixels."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from shardplan.fields import dataclass
from shardplan.reports.timeline.bars import Bars
from shardplan.simulation.pieces import Ints
from shardplan.simulation.timeline import StepTimeline

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

    def boxes(self, row: Ints, lane: Ints, lanes: tuple[int, ...]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Upper edge and height of events."""
        place = np.searchsorted(np.asarray(lanes), lane)
        thin = self.work + ABOVE_LANES + (place - 1) * (self.thin + 1)
        top: NDArray[np.float64] = self.rows_top + row * self.pitch + np.where(place == 0, 0.0, thin)
        height: NDArray[np.float64] = np.where(place > 0, self.thin, self.work)
        return top, height

    def lane_top(self, row: int, lane: int, lanes: tuple[int, ...]) -> float:
        """Upper edge of a lane of a row."""
        top, _ = self.boxes(np.array([row]), np.array([lane]), lanes)
        return float(top[0])


def shortened(text: str, most: int) -> str:
    """``text`` in at most so many characters."""
    return text if len(text) <= most else text[: max(most - 3, 1)].rstrip(" ,;:") + "..."

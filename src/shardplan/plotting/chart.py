"""A figure as plain records: panels with axes and series, drawn as a page or as a picture.

The drawing libraries are an optional extra, imported when something is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final, Literal

from shardplan.base.errors import InputError
from shardplan.base.fields import dataclass

Scale = Literal["linear", "log2", "log10", "names"]
Kind = Literal["line", "points", "bars"]
Marker = Literal["circle", "square", "triangle", "none"]
Side = Literal["top right", "top left", "bottom right", "bottom left"]

PALETTE: Final = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#F0E442", "#000000")
"""Colours that are distinct for people with any colour vision. M. Okabe and K. Ito, Color Universal Design, 2008."""
SECOND_PALETTE: Final = ("#332288", "#88CCEE", "#117733", "#DDCC77", "#AA4499")
"""More colours, for series that share a legend with the first. P. Tol, Colour Schemes, SRON/EPS/TN/09-002, 2021."""
GREY: Final = "#8a8a8a"
IDLE: Final = "#d9dde4"
"""Colour of idle time."""

FEW_NAMES: Final = 3
"""An axis with fewer names leaves room on both sides, so that bars stay narrow."""


@dataclass(frozen=True, kw_only=True)
class Axis:
    """The quantity and scale of an axis."""

    title: str
    """Quantity, with its unit in brackets."""
    scale: Scale = "linear"
    limits: tuple[float, float] | None = None
    """First and last value shown; by default from the data."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """The points of one name."""

    name: str
    """Name in the legend; series of one name are one entry there."""
    x: Sequence[float | str]
    """Numbers, or names, with a line feed between their lines."""
    y: Sequence[float]
    kind: Kind = "line"
    colour: str = PALETTE[0]
    marker: Marker = "none"
    is_dashed: bool = False
    is_on_right: bool = False
    """Whether it uses the axis on the right."""
    labels: Sequence[str] = ()
    """Text at each point."""
    label_sides: Sequence[Side] = ()
    """Side of its point for each label; by default above and to the right."""
    hover: Sequence[str] = ()
    """Text of each point under the pointer, on pages of the web app."""
    starts: Sequence[float] = ()
    """Start of each bar; by default zero, or the top of the bars below it."""


@dataclass(frozen=True, kw_only=True)
class Field:
    """A quantity over a grid, drawn as filled contours."""

    title: str
    x: Sequence[float]
    y: Sequence[float]
    z: Sequence[Sequence[float | None]]
    """A row of values along x for each y; None if there is no value."""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One pair of axes."""

    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...] = ()
    field: Field | None = None
    is_stacked: bool = False
    """Whether bars are stacked rather than next to each other."""
    right: Axis | None = None
    is_horizontal: bool = False
    """Whether bars are horizontal, with names on the left: ``x`` of their series is along the axis ``y`` of names."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names on the axis ``x``, in order; empty for an axis of numbers."""
        if self.x.scale != "names":
            return ()
        return tuple(dict.fromkeys(str(x) for each in self.series for x in each.x))


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A figure: panels in rows and columns."""

    name: str
    """Name of its files, without a suffix."""
    title: str
    panels: tuple[Panel | None, ...]
    """Row by row; None leaves a place empty."""
    num_columns: int
    note: str = ""
    """Note below it: what it shows, and the source."""
    panel_size: tuple[int, int] = (400, 300)
    """Width and height of a panel. [pixels]"""

    @property
    def num_rows(self) -> int:
        """Rows of panels."""
        return -(-len(self.panels) // self.num_columns)

    @property
    def placed(self) -> tuple[tuple[Panel, int, int], ...]:
        """The panels with row and column, from 0."""
        return tuple(
            (panel, *divmod(index, self.num_columns)) for index, panel in enumerate(self.panels) if panel is not None
        )


def subplots_of_plotly() -> Any:
    """The function of plotly that makes a figure with panels. Raises ``InputError``."""
    return _module("plotly.subplots").make_subplots


def matplotlib_parts() -> tuple[Any, Any]:
    """The figure of matplotlib, and the canvas that writes PNG. Raises ``InputError``."""
    return _module("matplotlib.figure").Figure, _module("matplotlib.backends.backend_agg").FigureCanvasAgg


def matplotlib_settings(settings: dict[str, Any]) -> Any:
    """A context in which matplotlib has other settings. Raises ``InputError``."""
    return _module("matplotlib").rc_context(settings)


def _module(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        library = name.partition(".")[0]
        raise InputError(
            f"{library} is not installed, which draws figures",
            rule="figures need the extra 'plots'",
            hint="pip install 'shardplan[plots]'",
        ) from None

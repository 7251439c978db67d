"""Clouds of points on logarithmic axes, as SVG: the figures of the accuracy report, on light pages and on dark ones."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import field
from html import escape

from shardplan.base.fields import dataclass

WIDTH, HEIGHT = 560, 400
LEFT, RIGHT, TOP, BOTTOM = 72, 28, 34, 74
_LIGHT = "--text:#263238;--faint:#607d8b;--grid:#dfe5e8;--a:#0072b2;--b:#d9730d"
_DARK = "--text:#e3e8ee;--faint:#93a3b1;--grid:#3c4252;--a:#5fb4ee;--b:#f4a261"
THEMES = {
    "light": f"svg{{{_LIGHT}}}",
    "dark": f"svg{{{_DARK}}}",
    "auto": f"svg{{{_LIGHT}}}@media(prefers-color-scheme:dark){{svg{{{_DARK}}}}}",
}
"""Colours as style sheets; ``auto`` follows the reader's setting. Those of points differ for the colour-blind too."""
_STYLE = (
    "text{font:13px system-ui,sans-serif;fill:var(--faint)}.t{font-weight:600;fill:var(--text)}"
    ".g{stroke:var(--grid);fill:none}.r{stroke:var(--faint);fill:none}.d{stroke-dasharray:4 4}"
    ".a,.b{fill:none;stroke-linecap:round;stroke-width:5;opacity:.5}.a{stroke:var(--a)}.b{stroke:var(--b)}"
)


@dataclass(frozen=True, kw_only=True)
class Cloud:
    """Points of one colour."""

    label: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, kw_only=True)
class Scatter:
    """A figure before it is drawn. Both axes are logarithmic; points beyond the limits lie on the edge."""

    title: str
    x_label: str
    y_label: str
    x_ticks: Sequence[tuple[float, str]]
    """Values and their texts; the first and the last are the limits."""
    y_ticks: Sequence[tuple[float, str]]
    clouds: Sequence[Cloud]
    lines: Sequence[tuple[Sequence[tuple[float, float]], bool]] = field(default=())
    """Guides: points, and whether the line is dashed."""


def drawn(figure: Scatter, theme: str) -> str:
    """The figure as one SVG element. ``theme``: one of ``THEMES``."""
    body = [*_grid(figure), *_guides(figure), *_clouds(figure), *_texts(figure)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(figure.title)}"><style>{THEMES[theme]}{_STYLE}</style>{"".join(body)}</svg>\n'
    )


def _x(figure: Scatter, value: float) -> float:
    return LEFT + _share(figure.x_ticks, value) * (WIDTH - LEFT - RIGHT)


def _y(figure: Scatter, value: float) -> float:
    return HEIGHT - BOTTOM - _share(figure.y_ticks, value) * (HEIGHT - TOP - BOTTOM)


def _share(ticks: Sequence[tuple[float, str]], value: float) -> float:
    """Place between the limits, from 0 to 1."""
    low, high = ticks[0][0], ticks[-1][0]
    return min(max(math.log(value / low) / math.log(high / low), 0.0), 1.0)


def _path(figure: Scatter, points: Iterable[tuple[float, float]], *, css: str, joined: bool) -> str:
    """A line through the points, or a dot on each: lines of no length with round ends."""
    places = [f"{_x(figure, x):.1f} {_y(figure, y):.1f}" for x, y in points]
    steps = "M" + "L".join(places) if joined else "".join(f"M{place}h0" for place in places)
    return f'<path class="{css}" d="{steps}"/>' if places else ""


def _grid(figure: Scatter) -> Iterable[str]:
    for value, text in figure.x_ticks:
        x = _x(figure, value)
        yield f'<path class="g" d="M{x:.1f} {TOP}V{HEIGHT - BOTTOM}"/>'
        yield f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{escape(text)}</text>'
    for value, text in figure.y_ticks:
        y = _y(figure, value)
        yield f'<path class="g" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>'
        yield f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{escape(text)}</text>'


def _guides(figure: Scatter) -> Iterable[str]:
    for points, dashed in figure.lines:
        yield _path(figure, points, css="r d" if dashed else "r", joined=True)


def _clouds(figure: Scatter) -> Iterable[str]:
    x = LEFT
    for name, cloud in zip("ab", figure.clouds, strict=False):
        yield _path(figure, cloud.points, css=name, joined=False)
        label = f"{cloud.label} ({len(cloud.points)})"
        yield f'<path class="{name}" d="M{x + 4} {HEIGHT - 12}h0"/>'
        yield f'<text x="{x + 14}" y="{HEIGHT - 8}">{escape(label)}</text>'
        x += 24 + 8 * len(label)


def _texts(figure: Scatter) -> Iterable[str]:
    middle = (LEFT + WIDTH - RIGHT) / 2
    yield f'<text class="t" x="{LEFT}" y="18">{escape(figure.title)}</text>'
    yield f'<text x="{middle:.0f}" y="{HEIGHT - 34}" text-anchor="middle">{escape(figure.x_label)}</text>'
    across = (TOP + HEIGHT - BOTTOM) / 2
    yield (
        f'<text transform="translate(14 {across:.0f})rotate(-90)" text-anchor="middle">{escape(figure.y_label)}</text>'
    )

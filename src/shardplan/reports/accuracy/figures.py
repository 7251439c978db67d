"""The figures of the accuracy report: predicted against measured, error against world size, memory; as SVG.

Clouds of points on logarithmic axes, on light pages and on dark ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from html import escape

import numpy as np

from shardplan.base.fields import dataclass
from shardplan.calibrate.errors import GROUPINGS
from shardplan.calibrate.predict import Prediction
from shardplan.calibrate.validate import Validation
from shardplan.reports.accuracy.record import Accuracy

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
    guides = (_path(figure, points, css="r d" if dashed else "r", joined=True) for points, dashed in figure.lines)
    body = [*_grid(figure), *guides, *_points(figure), *_texts(figure)]
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


def _points(figure: Scatter) -> Iterable[str]:
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


Ticks = tuple[tuple[float, str], ...]
KINDS = {"dense": "dense", "moe": "mixture of experts"}
SECONDS = ((0.05, "50 ms"), (0.5, "0.5 s"), (5.0, "5 s"), (50.0, "50 s"), (500.0, "500 s"))
WORLD = ((1.0, "1"), (8.0, "8"), (64.0, "64"), (512.0, "512"), (4096.0, "4,096"), (32768.0, "32,768"))
RATIOS = ((0.25, "1/4"), (0.5, "1/2"), (0.8, "0.8"), (1.0, "1"), (1.25, "1.25"), (2.0, "2"), (4.0, "4"))
GIGABYTES = ((5e9, "5 GB"), (10e9, "10 GB"), (20e9, "20 GB"), (40e9, "40 GB"), (80e9, "80 GB"), (160e9, "160 GB"))
FEWEST = 5
"""Runs of a class of world size for which its median is drawn."""


def accuracy_figures(accuracy: Accuracy) -> dict[str, Scatter]:
    """Figures by name: left-out predictions where there are some, else predictions as they are."""
    checked, end = (accuracy.left_out, " (team left out)") if accuracy.left_out else (accuracy.fresh, "")
    times = _clouds(checked, lambda one: (one.run.step_time, one.step_time))
    memories = _clouds(checked, lambda one: (one.run.peak_memory_bytes, one.peak_memory_bytes))
    ratios = _clouds(checked, lambda one: (one.run.num_accelerators, one.step_time / (one.run.step_time or math.nan)))
    seconds = _reaching(SECONDS, times, 10, lambda value: f"{value:g} s")
    gigabytes = _reaching(GIGABYTES, memories, 2, lambda value: f"{value / 1e9:g} GB")
    shares = _reaching(RATIOS, ratios, 2, lambda value: f"{value:g}" if value >= 1 else f"1/{1 / value:g}", axes=(1,))
    return {
        "time": Scatter(
            title=f"Step time: predicted{end} against measured",
            x_label="measured step time",
            y_label="predicted step time",
            x_ticks=seconds,
            y_ticks=seconds,
            clouds=times,
            lines=_diagonals(seconds[0][0], seconds[-1][0]),
        ),
        "scale": Scatter(
            title=f"Step time: predicted{end} / measured by world size",
            x_label="accelerators; the line is the median",
            y_label="predicted / measured",
            x_ticks=_reaching(WORLD, ratios, 8, lambda value: f"{value:,.0f}", axes=(0,)),
            y_ticks=shares,
            clouds=ratios,
            lines=((_medians(ratios), False),),
        ),
        "memory": Scatter(
            title=f"Peak memory: predicted{end} against measured",
            x_label="measured peak of one accelerator",
            y_label="predicted peak",
            x_ticks=gigabytes,
            y_ticks=gigabytes,
            clouds=memories,
            lines=_diagonals(gigabytes[0][0], gigabytes[-1][0]),
        ),
    }


def _reaching(
    ticks: Ticks, clouds: Sequence[Cloud], factor: float, label: Callable[[float], str], axes: tuple[int, ...] = (0, 1)
) -> Ticks:
    """``ticks`` and as many more, each ``factor`` further, as the points need, so that none lies off its axis."""
    values = [point[axis] for cloud in clouds for point in cloud.points for axis in axes]
    longer = list(ticks)
    while values and min(values) < longer[0][0]:
        longer.insert(0, (longer[0][0] / factor, label(longer[0][0] / factor)))
    while values and max(values) > longer[-1][0]:
        longer.append((longer[-1][0] * factor, label(longer[-1][0] * factor)))
    return tuple(longer)


def _diagonals(low: float, high: float) -> list[tuple[list[tuple[float, float]], bool]]:
    """Equality, and 20 % on either side of it (dashed)."""
    return [
        ([(low, low), (high, high)], False),
        ([(low, 1.2 * low), (high / 1.2, high)], True),
        ([(1.2 * low, low), (high, high / 1.2)], True),
    ]


def _clouds(checked: Validation, place: Callable[[Prediction], tuple[float | None, float]]) -> list[Cloud]:
    """Points of every kind of model, of runs that have both figures."""
    places = [(GROUPINGS["kind"](one), *place(one)) for one in checked.predictions]
    return [
        Cloud(label=label, points=[(x, y) for kind, x, y in places if kind == name and x and y and not math.isnan(y)])
        for name, label in KINDS.items()
    ]


def _medians(clouds: Sequence[Cloud]) -> list[tuple[float, float]]:
    """Median ratio of every power of two of the world size that has a few runs."""
    classes: dict[int, list[float]] = {}
    for size, ratio in (point for cloud in clouds for point in cloud.points):
        classes.setdefault(round(np.log2(size)), []).append(ratio)
    return [(2.0**power, float(np.median(some))) for power, some in sorted(classes.items()) if len(some) >= FEWEST]

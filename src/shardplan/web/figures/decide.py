"""The figure of a field at several values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardplan.decisions.searching import Answered
from shardplan.web.figures.panels import ROOM_FOR_LABELS


def varied_figure(name: str, answers: Sequence[tuple[str, Answered]]) -> list[dict[str, Any]]:
    """Step time with its band, and tokens per second, at every value that has a plan."""
    known = [(text, each.estimate, each.tokens_per_second) for text, each in answers if each.estimate is not None]
    texts = [text for text, _, _ in known]
    times = [estimate.step_time for _, estimate, _ in known]
    above = [estimate.step_time_p90 - estimate.step_time for _, estimate, _ in known]
    below = [estimate.step_time - estimate.step_time_p10 for _, estimate, _ in known]
    degrees = [f"{e.plan.tp} x {e.plan.cp} x {e.plan.pp}" for _, e, _ in known]
    axis = {"title": {"text": name}, "type": "category"}
    step = {
        "type": "scatter",
        "mode": "lines+markers+text",
        "name": "step time",
        "x": texts,
        "y": times,
        "text": degrees,
        "textposition": "top right",
        "marker": {"color": "var(--c1)"},
        "line": {"color": "var(--c1)"},
        "cliponaxis": False,
        "error_y": {"type": "data", "array": above, "arrayminus": below, "symmetric": False, "color": "var(--c7)"},
    }
    rate = {
        "type": "bar",
        "name": "tokens/s",
        "x": texts,
        "y": [each for _, _, each in known],
        "marker": {"color": "var(--c2)"},
    }
    return [
        {
            "title": "step time with its band, and tp x cp x pp",
            "figure": {
                "data": [step],
                "layout": {
                    "xaxis": axis,
                    "yaxis": {"title": {"text": "step time [s]"}, "rangemode": "tozero"},
                    "margin": ROOM_FOR_LABELS,
                },
            },
        },
        {
            "title": "tokens per second",
            "figure": {"data": [rate], "layout": {"xaxis": axis, "yaxis": {"title": {"text": "tokens/s"}}}},
        },
    ]

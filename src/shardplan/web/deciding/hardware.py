"""Plans that are best in some respect, and which hardware matters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from shardplan.answers.sensitivity import sensitivity_document
from shardplan.decisions import pareto as fronts
from shardplan.decisions import sensitivity as sensitivities
from shardplan.decisions.searching import Progress
from shardplan.inputs.readers.typed import number
from shardplan.planner.stopping import Stop
from shardplan.plotting.decisions.pareto import pareto_chart
from shardplan.reports.decisions.pareto import pareto_record
from shardplan.units import format_bytes, format_time
from shardplan.web.deciding.common import Values, link, plan_text, row, searches, shown
from shardplan.web.figures.panels import panel_figures
from shardplan.web.state import PageQuestion, about_field

ROWS: Final = 40
"""Of the table of a front."""


def pareto(question: PageQuestion, _values: Values, stop: Stop, _progress: Progress) -> dict[str, Any]:
    """Plans that no other is better than in every respect."""
    put = question.put_search(stop)
    front = fronts.pareto_front(put.question, searches(question, put, stop))
    record = pareto_record(front)
    figures = panel_figures(pareto_chart(record))
    for each in figures:
        each["figure"]["data"][0] |= {
            "text": [point["plan_text"] for point in record["points"]],
            "hovertemplate": "%{text}<extra></extra>",
        }
    rows = [
        row(
            [
                format_time(point.estimate.step_time),
                format_bytes(point.headroom_bytes),
                f"+{100 * (point.pessimistic_time / point.estimate.step_time - 1):.0f} %",
            ],
            plan_text(point.estimate),
            link(question, point.estimate),
        )
        for point in _spread(front.points)
    ]
    return {
        "verdict": f"{len(front.points):,} of {front.num_plans_feasible:,} plans that fit are best in some respect",
        "note": "No plan is better than one of these in step time, free memory and step time where things are worse.",
        "figures": figures,
        "titles": ["step", "free memory", "longer where things are worse"],
        "plan_title": "plan",
        "rows": rows,
        "assumptions": put.assumptions,
    }


def _spread(points: Any) -> Iterator[Any]:
    """At most ``ROWS`` of the points, evenly chosen, the fastest among them."""
    step = max(1, -(-len(points) // ROWS))
    yield from points[::step]


def sensitivity(question: PageQuestion, values: Values, stop: Stop, progress: Progress) -> dict[str, Any]:
    """How the best step time follows the hardware."""
    with about_field("factor"):
        factor = number(values["factor"], "factor", least=1.001, most=100.0)
    put = question.put_search(stop)
    found = sensitivities.sensitivity_of(put.question, searches(question, put, stop), factor=factor, progress=progress)
    return shown(sensitivity_document(replace(found, assumptions=put.assumptions)))

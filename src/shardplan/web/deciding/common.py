"""What the decisions have in common: searches, rows of tables with links, and fields with several values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from markupsafe import Markup

from shardplan.answers.document import AnswerDocument, summary
from shardplan.decisions.searching import Answered, Progress, Searches
from shardplan.errors import InputError
from shardplan.estimation.estimate import Estimate
from shardplan.estimation.question import PutQuestion
from shardplan.planner.stopping import Stop
from shardplan.render.html import blocks_html
from shardplan.reports.texts.plan import plan_words
from shardplan.units import format_count, format_time
from shardplan.web.figures.panels import panel_figure
from shardplan.web.state import PageQuestion, plan_code

Values = Mapping[str, str]
Shown = dict[str, Any]
"""What the template shows."""
Decide = Callable[[PageQuestion, Values, Stop, Progress], Shown]
MOST_VALUES: Final = 16


def searches(question: PageQuestion, put: PutQuestion, stop: Stop) -> Searches:
    """Searches of a question of the page, with its framework and locks."""
    return Searches(stack=put.stack, limit=question.restrictions(), stop=stop)


def link(question: PageQuestion, estimate: Estimate | None, **changed: Any) -> str:
    """The step of a plan as an address."""
    return "" if estimate is None else f"/step?{question.with_values(show=plan_code(estimate.plan), **changed).query()}"


def shown(document: AnswerDocument, address: Callable[[Any], str] | None = None) -> Shown:
    """What the template shows of a document. ``address``: where a row of its tables leads."""
    chart = None if document.chart is None else document.chart()
    panels = [] if chart is None else [each for each, _, _ in chart.placed if any(part.x for part in each.series)]
    return {
        "verdict": summary(document).removesuffix("."),
        "lines": Markup(blocks_html(document.verdict[1:])),  # noqa: S704  # every text in it is escaped
        "note": "" if chart is None else chart.note,
        "figures": [{"title": panel.title, "figure": panel_figure(panel)} for panel in panels],
        "parts": [
            {
                "title": each.title,
                "note": each.note,
                "html": Markup(blocks_html(each.blocks, address)),  # noqa: S704  # every text in it is escaped
            }
            for each in document.parts
        ],
        "assumptions": tuple(document.assumptions),
    }


def plan_text(estimate: Estimate | None, reason: str | None = None) -> str:
    """A plan, or why there is none."""
    return f"no plan: {reason}" if estimate is None else ", ".join(plan_words(estimate))


def row(cells: list[str], text: str = "", address: str = "") -> dict[str, Any]:
    """A row of a table: its cells, and a plan with its address."""
    return {"cells": cells, "text": text, "link": address}


def listed(text: str) -> list[str]:
    """Values between commas or spaces; a number with a comma for thousands is none. Raises InputError."""
    found = [each for each in text.replace(",", " ").replace(";", " ").split() if each]
    if not 1 <= len(found) <= MOST_VALUES:
        raise InputError(
            f"{len(found) or 'no'} values are given",
            rule=f"1 to {MOST_VALUES} values are compared",
            hint="write 64,128,256",
        )
    return found


def times(estimate: Estimate | None) -> list[str]:
    """Step time and its band."""
    if estimate is None:
        return ["-", "-"]
    return [
        format_time(estimate.step_time),
        f"{format_time(estimate.step_time_p10)} to {format_time(estimate.step_time_p90)}",
    ]


def rate(answered: Answered) -> str:
    """Tokens per second."""
    found = answered.tokens_per_second
    return "-" if found is None else format_count(round(found))


def share(value: float | None) -> str:
    """A share in per cent."""
    return "-" if value is None else f"{100 * value:.0f} %"

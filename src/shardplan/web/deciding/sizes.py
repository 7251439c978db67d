"""The question on several sizes, and with one field at several values."""

from __future__ import annotations

from typing import Any, Final

from shardplan.decisions import scale as scales
from shardplan.decisions.searching import Answered, Progress
from shardplan.inputs.readers.typed import number, whole
from shardplan.planner.stopping import Stop
from shardplan.plotting.decisions.scale import scale_chart
from shardplan.reports.decisions.scale import scale_record
from shardplan.reports.texts.answer import percent
from shardplan.web.deciding.common import (
    MOST_VALUES,
    Values,
    link,
    listed,
    plan_text,
    rate,
    row,
    searches,
    share,
    times,
)
from shardplan.web.figures.decide import varied_figure
from shardplan.web.figures.panels import panel_figures
from shardplan.web.state import MOST_ACCELERATORS, FieldError, PageQuestion, about_field

VARIED: Final = {
    "sequence_length": "Sequence length",
    "global_batch_size": "Global batch size",
    "set.inter_node_bandwidth": "Bandwidth between nodes",
    "set.intra_node_bandwidth": "Bandwidth inside a node",
    "precision": "Precision",
}


def scale(question: PageQuestion, values: Values, stop: Stop, progress: Progress) -> dict[str, Any]:
    """The job on several sizes."""
    with about_field("sizes"):
        sizes = scales.checked_sizes([whole(each, "sizes", most=MOST_ACCELERATORS) for each in listed(values["sizes"])])
    with about_field("least_gain"):
        least = number(values["least_gain"], "least gain", most=100.0) / 100
    put = question.with_values(gpus=str(sizes[-1])).put()
    found = scales.scaling(put.question, sizes, searches(question, put, stop), least_gain=least, progress=progress)
    rows = [
        row(
            [
                f"{point.num_accelerators:,}",
                *times(point.answered.estimate),
                rate(point.answered),
                share(point.efficiency),
                share(point.marginal_efficiency),
            ],
            plan_text(point.answered.estimate, point.answered.reason),
            link(question, point.answered.estimate, gpus=str(point.num_accelerators)),
        )
        for point in found.points
    ]
    return {
        "verdict": _pays(found),
        "note": f"One job at a global batch of {put.question.job.global_batch_size:,} sequences, planned anew at every "
        "size.",
        "figures": panel_figures(scale_chart(scale_record(found))) if found.pays_up_to is not None else [],
        "titles": ["accelerators", "step", "band", "tokens/s", "efficiency", "of an added one"],
        "rows": rows,
        "assumptions": put.assumptions,
    }


def _pays(found: Any) -> str:
    if found.pays_up_to is None:
        return "No size has a plan that fits"
    if found.stops:
        return f"More accelerators pay up to {found.pays_up_to:,}"
    return f"More accelerators pay at every size up to {found.pays_up_to:,}"


def vary(question: PageQuestion, values: Values, stop: Stop, progress: Progress) -> dict[str, Any]:
    """The question with one field at several values."""
    name = values["over"] if values["over"] in VARIED else "sequence_length"
    with about_field("values"):
        given = values["values"].split(",") if name.startswith("set.") else listed(values["values"])
    texts = [each.strip() for each in given if each.strip()][:MOST_VALUES]
    answers: list[tuple[str, PageQuestion, Answered]] = []
    for place, text in enumerate(texts):
        progress(place, len(texts))
        asked = _with(question, name, text)
        try:
            put = asked.put()
        except FieldError as error:
            raise FieldError(error, "values") from None
        answers.append((text, asked, searches(question, put, stop).answer(put.question)))
    rows = [
        row(
            [text, *times(each.estimate), rate(each), "-" if each.estimate is None else percent(each.estimate.mfu)],
            plan_text(each.estimate, each.reason),
            link(asked, each.estimate),
        )
        for text, asked, each in answers
    ]
    best = max((each.tokens_per_second or 0.0, text) for text, _, each in answers)
    word = VARIED[name].lower()
    return {
        "verdict": f"Most tokens per second at {word} {best[1]}" if best[0] else "Nothing fits at any of these values",
        "note": "Everything else stays as the question has it; the plan is sought anew at every value.",
        "figures": varied_figure(word, [(text, each) for text, _, each in answers]) if best[0] else [],
        "titles": [word, "step", "band", "tokens/s", "MFU"],
        "rows": rows,
        "assumptions": (),
    }


def _with(question: PageQuestion, name: str, text: str) -> PageQuestion:
    if name.startswith("set."):
        return question.with_values(sets={**question.sets, name.removeprefix("set."): text})
    return question.with_values(job={**question.job, name: text})

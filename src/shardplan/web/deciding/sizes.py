"""The question on several sizes, and with one field at several values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from shardplan.answers.scale import scale_document
from shardplan.decisions import pareto_sizes as fronts
from shardplan.decisions import scale as scales
from shardplan.decisions.pareto_sizes import SizesFront
from shardplan.decisions.searching import Answered, Progress
from shardplan.estimation.question import PutQuestion
from shardplan.inputs.readers.typed import number, whole
from shardplan.planner.stopping import Stop
from shardplan.plotting.decisions.pareto_sizes import pareto_sizes_chart
from shardplan.reports.decisions.pareto_sizes import pareto_sizes_record
from shardplan.reports.texts.answer import percent, sentence
from shardplan.reports.texts.pareto_sizes import (
    front_sentence,
    money_amount,
    money_drawn,
    price_sentence,
    size_sentence,
    size_time,
)
from shardplan.web.deciding.common import (
    MOST_VALUES,
    Values,
    link,
    listed,
    plan_text,
    rate,
    row,
    searches,
    shown,
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
    sizes, put = _on_sizes(question, values, stop)
    with about_field("least_gain"):
        least = number(values["least_gain"], "least gain", most=100.0) / 100
    found = scales.scaling(put.question, sizes, searches(question, put, stop), least_gain=least, progress=progress)

    def address(point: scales.ScalePoint) -> str:
        return link(question, point.answered.estimate, gpus=str(point.num_accelerators))

    return shown(scale_document(replace(found, assumptions=put.assumptions)), address)


def pareto_sizes(question: PageQuestion, values: Values, stop: Stop, progress: Progress) -> dict[str, Any]:
    """Sizes that no other is better than in time, accelerators and money."""
    sizes, put = _on_sizes(question, values, stop)
    with about_field("price"):
        found = fronts.sizes_front(put.question, sizes, searches(question, put, stop), progress=progress)
    title = "money / 1B tokens" if put.question.job.tokens is None else "money"
    rows = [
        row(
            [
                f"{each.num_accelerators:,}",
                "yes" if each.is_on_front else "no",
                size_time(each),
                "-" if each.time is None else f"{money_amount(money_drawn(found, each))} {found.price.currency}",
                rate(each.answered),
            ],
            plan_text(each.answered.estimate, each.reason),
            link(question, each.answered.estimate, gpus=str(each.num_accelerators)),
        )
        for each in found.sizes
    ]
    ends = [(name, size) for name, size in (("Cheapest", found.cheapest), ("Fastest", found.fastest)) if size]
    return {
        "verdict": front_sentence(found).removesuffix("."),
        "note": " ".join((*(f"{name}: {size_sentence(found, size)}" for name, size in ends), *_priced(found))),
        "figures": panel_figures(pareto_sizes_chart(pareto_sizes_record(found))) if found.front else [],
        "titles": [
            "accelerators",
            "on the front",
            "step" if put.question.job.tokens is None else "run",
            title,
            "tokens/s",
        ],
        "rows": rows,
        "notes": [f"{sentence(each)} See Failures in Budget of a whole run." for each in found.warnings],
        "assumptions": (*put.assumptions, *found.assumptions),
    }


def _priced(found: SizesFront) -> Iterator[str]:
    yield price_sentence(found, "Price on the Plan page")
    if found.question.job.tokens is None:
        yield "With Tokens on the Plan page, time and money are those of the whole run, failures included."


def _on_sizes(question: PageQuestion, values: Values, stop: Stop) -> tuple[list[int], PutQuestion]:
    """The sizes that are asked for, and the question at the largest. Raises FieldError."""
    with about_field("sizes"):
        sizes = scales.checked_sizes([whole(each, "sizes", most=MOST_ACCELERATORS) for each in listed(values["sizes"])])
    return sizes, question.with_values(gpus=str(sizes[-1])).put_search(stop)


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
            put = asked.put_search(stop)
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

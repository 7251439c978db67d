"""The answer of ``fit``: the largest or smallest that fits, its plan, and the memory around it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from shardplan.answers.document import AnswerDocument, Bar, Column, Line, Part, RowTable
from shardplan.answers.estimate import memory_part, verdict
from shardplan.answers.plans import asked_record, question_lines
from shardplan.base.units import format_bytes
from shardplan.decide.largest import LargestFit, Tried
from shardplan.estimation.estimate import Estimate
from shardplan.estimation.question import Question
from shardplan.plotting.chart import PALETTE, Axis, Chart, Marker, Panel, Series
from shardplan.reports.plan_file import estimate_record

MOST_ROWS: Final = 8
"""Values around the answer that a terminal lists."""
SOUGHT: Final = {
    "sequence_length": ("sequence length", " tokens", "sequence length [tokens]"),
    "micro_batch_size": ("micro-batch size", " sequences", "micro-batch size [sequences]"),
    "layers": ("number of layers", " layers", "layers"),
    "gpus": ("number of accelerators", "", "accelerators"),
}
"""What is sought: in words, its unit, and as the title of an axis."""


def columns(fit: LargestFit) -> list[Column]:
    """Columns of the values that were tried."""
    usable = fit.usable_memory_bytes

    def share(tried: Tried) -> float | None:
        return tried.least_memory_bytes and tried.least_memory_bytes / usable

    return [
        Column("sought", None, lambda _: fit.sought),
        Column("value", SOUGHT[fit.sought][0], lambda tried: tried.value, "{:,}".format),
        Column("fits", "fits", lambda tried: tried.fits, lambda fits: "yes" if fits else "no", is_text=True),
        Column("least_memory_bytes", "least memory", lambda tried: tried.least_memory_bytes, format_bytes),
        Column("", "", share, bar=Bar(24)),
    ]


def fit_document(fit: LargestFit, given: Sequence[str] = (), *, listed: int = MOST_ROWS) -> AnswerDocument:
    """The whole answer. ``given``: what the user set in place of usual values; ``listed``: values around the answer."""
    table = RowTable(fit.tried, columns(fit))
    question, estimate = fit.answered.question, fit.answered.estimate
    around = f"bar: least memory of all plans, of {format_bytes(fit.usable_memory_bytes)}"
    values = Part("Values around it", [table._replace(rows=tried_near(fit, listed))], around)
    label = "Largest" if fit.is_largest else "Smallest"
    found = Line(fit_sentence(fit), label, "bad" if fit.value is None else "good")
    return AnswerDocument(
        name="fit",
        head=question_lines(question, given),
        verdict=[found],
        parts=[*([] if estimate is None else _plan(question, estimate)), *([values] if fit.tried else [])],
        assumptions=fit.assumptions,
        table=table,
        record=lambda: {
            **asked_record(question, fit.assumptions),
            "sought": fit.sought,
            "is_largest": fit.is_largest,
            "value": fit.value,
            "next_value": fit.next_value,
            "bound": fit.bound,
            "reason": fit.answered.reason,
            "usable_memory_bytes": fit.usable_memory_bytes,
            "tried": table,
            "plan": None if estimate is None else estimate_record(estimate),
        },
        chart=lambda: fit_chart(fit),
        is_yes=fit.value is not None,
    )


def _plan(question: Question, estimate: Estimate) -> list[Part]:
    """The plan at that value: whether it fits and how fast it is, and what fills its memory."""
    return [Part("", verdict(question, estimate)), memory_part(estimate)]


def fit_sentence(fit: LargestFit) -> str:
    """The value that fits, and what the next one does."""
    name, unit, _ = SOUGHT[fit.sought]
    if fit.value is None:
        why = fit.answered.reason or fit.bound or "no plan is valid"
        return f"No {name} fits: {why}."
    text = f"The {'largest' if fit.is_largest else 'smallest'} {name} that fits is {fit.value:,}{unit}."
    if fit.bound is not None:
        return f"{text} The search ends there: {fit.bound}."
    return text if fit.next_value is None else f"{text} {fit.next_value:,}{unit} does not fit."


def tried_near(fit: LargestFit, most: int) -> list[Tried]:
    """Values next to the answer that were tried."""
    values = [each.value for each in fit.tried]
    place = values.index(fit.value) if fit.value in values else len(values) - 1
    start = max(min(place - most // 2, len(values) - most), 0)
    return list(fit.tried[start : start + most])


def fit_chart(fit: LargestFit) -> Chart:
    """The least memory of all plans over what is sought, and the memory that there is."""
    question = fit.answered.question
    tried = [(each, each.least_memory_bytes / 1e9) for each in fit.tried if each.least_memory_bytes is not None]
    values = [each.value for each, _ in tried]
    kinds: tuple[tuple[str, bool, str, Marker], ...] = (
        ("fits", True, PALETTE[2], "circle"),
        ("does not fit", False, PALETTE[3], "square"),
    )
    points = tuple(
        Series(
            name=name,
            x=[each.value for each, _ in tried if each.fits == fits],
            y=[memory for each, memory in tried if each.fits == fits],
            kind="points",
            colour=colour,
            marker=marker,
        )
        for name, fits, colour, marker in kinds
    )
    ends = [min(values), max(values)] if values else []
    limit = Series(name="usable memory", x=ends, y=[fit.usable_memory_bytes / 1e9 for _ in ends], is_dashed=True)
    panel = Panel(
        title="least memory of all plans",
        x=Axis(title=SOUGHT[fit.sought][2], scale="log2"),
        y=Axis(title="peak memory [GB]", scale="log2"),
        series=tuple(each for each in (*points, limit) if each.x),
    )
    what = f"{'largest' if fit.is_largest else 'smallest'} {fit.sought.replace('_', ' ')} that fits"
    value = "none" if fit.value is None else f"{fit.value:,}"
    return Chart(
        name="fit",
        title=f"{question.model.name} on {question.cluster.name}: {what}: {value}",
        panels=(panel,),
        num_columns=1,
        note="Each point is the plan that needs least memory of all valid plans at that value. Predicted by shardplan.",
        panel_size=(760, 420),
    )

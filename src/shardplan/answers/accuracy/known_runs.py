"""The published runs: a table of them, their errors by group, and one run in full with what is known of its error."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from shardplan.answers.document import AnswerDocument, Bullets, Column, Line, Part, RowTable
from shardplan.answers.estimate import memory_part, step_part
from shardplan.answers.validation import ERRORS, grouped_table
from shardplan.base.units import format_bytes, format_count, format_rate, format_time
from shardplan.inputs.readers.causes import Subject
from shardplan.reports.accuracy.known_runs import ErrorsOfGroup, KnownRun, Quantity, RunAccount
from shardplan.reports.texts.answer import near_words, percent, signed_percent
from shardplan.reports.texts.plan import plan_words

TEXTS: Final[Mapping[str, Callable[[float], str]]] = {"step_time": format_time, "peak_memory": format_bytes}
TIERS: Final = {
    "A": "all that matters is stated",
    "A-": "one minor field is inferred",
    "B": "a field that matters is missing",
}
SUBJECTS: Final[dict[Subject, str]] = {
    "step_time": "Step time",
    "peak_memory": "Peak memory",
    "fits": "Predicted not to fit",
    "false_fits": "Predicted to fit",
}


def runs_table(runs: Sequence[KnownRun], quantity: Quantity, distances: Mapping[str, float] | None = None) -> RowTable:
    """Runs with their left-out errors. ``distances``: from a question, of runs that are near to it."""
    near = Column("", "how near", lambda one: near_words((distances or {})[one.run.id]), is_text=True, is_wide=True)
    columns = (
        Column("id", "run", attrgetter("run.id"), is_text=True, is_wide=True, leads=True),
        *([near] if distances else []),
        *(_of_verdict if quantity == "fits" else _of_value(quantity)),
        Column("model", "model", lambda one: one.run.model.removeprefix("models/").removesuffix(".json"), is_text=True),
        Column("", "accelerators", lambda one: f"{one.run.num_accelerators:,} x {one.run.accelerator}", is_text=True),
    )
    return RowTable(runs, columns)


def _of_value(quantity: Quantity) -> tuple[Column, ...]:
    text = TEXTS[quantity]
    return (
        Column("error", "error", lambda one: math.expm1(one.ratio(quantity)), signed_percent),
        Column("predicted", "predicted", lambda one: one.predicted(quantity), text),
        Column("measured", "measured", lambda one: one.measured(quantity), text),
    )


_of_verdict: Final = (
    Column("", "verdict", text=lambda one: _judged(is_right=one.is_right)),
    Column("", "predicted", text=lambda one: _needs(math.exp(one.fits or 0.0))),
    Column("", "ended", text=lambda one: "ran" if one.run.ran else "ran out of memory"),
)


def groups_table(groups: Sequence[ErrorsOfGroup], quantity: Quantity, by: str) -> RowTable:
    """Errors of groups of runs, all of them last; of verdicts the share that is right."""
    if quantity != "fits":
        return grouped_table([(each.name, each.errors) for each in groups], ERRORS, by)
    columns = (
        Column("", by, attrgetter("name"), is_text=True),
        Column("", "n", attrgetter("errors.n"), "{:,}".format),
        Column("", "right", lambda each: each.num_right / each.errors.n if each.errors.n else None, percent),
    )
    return RowTable(groups, columns, lambda each: "strong" if each is groups[-1] else "")


class Compared(NamedTuple):
    """A quantity of a run, measured and predicted."""

    name: str
    measured: str
    unseen: str
    """By constants that never saw the run's team, with the error."""
    seen: str
    """By the constants in use."""


COMPARED: Final = (
    Column("quantity", "quantity", attrgetter("name"), is_text=True),
    Column("measured", "measured", attrgetter("measured")),
    Column("unseen", "predicted unseen", attrgetter("unseen")),
    Column("now", "predicted now", attrgetter("seen")),
)


def run_document(account: RunAccount) -> AnswerDocument:
    """A run in full."""
    run, asked = account.known.run, account.prediction.asked
    compared = RowTable([*_compared(account)], COMPARED)
    why = [*_reasons(account)] or ["No reason is known: everything that matters is stated"]
    facts = dict(_facts(account))
    return AnswerDocument(
        name="known-run",
        head=[Line(run.id, tone="quiet")],
        verdict=[
            Line(f"{asked.question.model.name} on {run.num_accelerators:,} x {run.accelerator}", tone="strong"),
            compared,
            *_band(account),
        ],
        parts=[
            Part("Why it differs", [Bullets([f"{text}." for text in why])]),
            Part("What ran", [Line(text, name, "strong") for name, text in facts.items()]),
            step_part(account.estimate),
            memory_part(account.estimate),
        ],
        record=lambda: {"id": run.id, "compared": compared, "reasons": why, "facts": facts},
    )


def _facts(account: RunAccount) -> Iterator[tuple[str, str]]:
    run, question = account.known.run, account.prediction.asked.question
    job, cluster = question.job, question.cluster
    sizes = [f"{tier.name} of {tier.size:,}" if tier.size else tier.name for tier in cluster.tiers]
    tiers = [f"{name} at {format_rate(tier.bandwidth)}" for name, tier in zip(sizes, cluster.tiers, strict=True)]
    yield "Origin", run.family
    yield "Software", run.framework or "not stated"
    yield "Tier", f"{run.tier}: {TIERS.get(run.tier, '')}"
    yield "Model", f"{question.model.name}, {format_count(question.model.num_parameters)} parameters"
    yield "Cluster", f"{cluster.name}: {', '.join(tiers)}"
    size = f"{job.global_batch_size:,} sequences of {job.sequence_length:,} tokens a step"
    yield "Job", f"{size}, {job.precision}, {job.optimizer}"
    yield "Plan", ", ".join(plan_words(account.estimate))
    yield "Source", run.source
    if run.notes:
        yield "Remarks", run.notes


def _reasons(account: RunAccount) -> Iterator[str]:
    asked = account.prediction.asked
    for subject, cause in account.causes:
        yield f"{SUBJECTS[subject]}: {cause.cause}. To do better, state: {cause.state}"
    if asked.assumed:
        yield f"Not stated, so assumed: {'; '.join(asked.assumed)}"
    if asked.ignored:
        yield f"Stated, and not priced: {'; '.join(asked.ignored)}"


def _compared(account: RunAccount) -> Iterator[Compared]:
    known, now = account.known, account.prediction
    values: tuple[tuple[str, Quantity, float], ...] = (
        ("step time", "step_time", now.step_time),
        ("peak memory", "peak_memory", now.peak_memory_bytes),
    )
    for name, quantity, seen in values:
        measured, unseen, text = known.measured(quantity), known.predicted(quantity), TEXTS[quantity]
        if measured is not None:
            yield Compared(name, text(measured), _off(unseen, measured, text), _off(seen, measured, text))
    need_unseen = "-" if known.fits is None else f"{_needs(math.exp(known.fits))} ({_judged(is_right=known.is_right)})"
    need = _needs(now.needed_memory_bytes / now.usable_memory_bytes)
    yield Compared("fits", _ended(known), need_unseen, f"{need} ({_judged(is_right=now.fits == known.run.ran)})")


def _off(predicted: float | None, measured: float, text: Callable[[float], str]) -> str:
    return "-" if predicted is None else f"{text(predicted)} ({signed_percent(predicted / measured - 1)})"


def _band(account: RunAccount) -> list[Line]:
    """The band of the step time, and on which side of its ends the measured time is."""
    measured, now = account.known.measured_step_time, account.prediction
    if measured is None:
        return []
    side = "inside" if now.step_time_p10 <= measured <= now.step_time_p90 else "outside"
    ends = f"{format_time(now.step_time_p10)} to {format_time(now.step_time_p90)}"
    return [Line(f"Band of the step time: {ends}; the measured time is {side}.")]


def _ended(one: KnownRun) -> str:
    return "ran" if one.run.ran else "ran out of memory"


def _needs(share: float) -> str:
    """Of the usable memory."""
    return f"needs {100 * share:.0f} %"


def _judged(*, is_right: bool) -> str:
    return "right" if is_right else "wrong"

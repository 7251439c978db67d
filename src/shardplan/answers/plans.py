"""Columns and records of plans that many answers share, and what was asked as lines and as a record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any, Final

from shardplan.answers.document import Column, Line, Span
from shardplan.base.records import keys, plain
from shardplan.base.units import format_count, format_time
from shardplan.base.version import VERSION
from shardplan.base.words import joined
from shardplan.estimation.estimate import Estimate
from shardplan.estimation.question import Question
from shardplan.inputs.plan import Plan
from shardplan.launch.dialects.reading import Taken
from shardplan.reports.texts.answer import note_sentence, question_parts, question_title
from shardplan.reports.texts.plan import field_text, plan_words, short_recompute, short_sharding

EstimateOf = Callable[[Any], Estimate | None]
"""The plan of a row."""
DEGREES: Final = ("tp", "cp", "pp", "vp", "ep", "etp")
OF_PLANS: Final = ("dp", "num_microbatches", "mfu", "peak_memory_bytes", "peak_memory_p90_bytes", "usable_memory_bytes")
"""What every table has of its plans besides their fields."""


def question_lines(question: Question, given: Sequence[str] = (), *, count: str | None = None) -> list[Line]:
    """Model, cluster and job in two lines, and what the user set in place of usual values.

    ``count``: the number of accelerators as text, where it is not one.
    """
    lines = [
        Line(question_title(question, count), tone="strong"),
        Line(" · ".join(question_parts(question)), tone="quiet"),
    ]
    lines += [Line(note, "Model", "warning") for note in question.model.notes]
    return [*lines, Line("; ".join(given), "You set", "warning")] if given else lines


def taken_lines(taken: Taken) -> list[Line]:
    """What an answer about a launch file takes for what the file leaves open."""
    lines = [
        Line((Span(f"{key.replace('_', ' ')} {field_text(value)}: ", "strong"), Span(why)), "Assumed", "doubt")
        for key, (value, why) in taken.items()
    ]
    given = " ".join(f"{TAKEN_FLAGS.get(key, f'--given {key}=')}..." for key in taken)
    return [*lines, Line(f"{given} says otherwise.", "", "doubt", only="terminal")] if lines else []


TAKEN_FLAGS: Final = {"num_accelerators": "--gpus "}


def count_text(counts: Sequence[int]) -> str | None:
    """The first and the last of several sizes; None for one size."""
    return f"{counts[0]:,} to {counts[-1]:,}" if counts[0] < counts[-1] else None


def asked_record(question: Question, assumptions: Sequence[str]) -> dict[str, Any]:
    """Version, model, cluster, size and job, and what was assumed in putting the question."""
    return {
        "shardplan_version": VERSION,
        "model": question.model.name,
        "cluster": question.cluster.name,
        "accelerator": question.cluster.accelerator.name,
        "num_accelerators": question.num_accelerators,
        "job": plain(question.job),
        "assumptions": list(assumptions),
    }


def rounded(number: float) -> str:
    """A number as a short count."""
    return format_count(round(number))


def whole_percent(share: float) -> str:
    """A share without decimals."""
    return f"{100 * share:.0f} %"


def plan_text(estimate: Estimate) -> str:
    """A plan in words."""
    return ", ".join(plan_words(estimate))


def plan_line(estimate: Estimate, label: str = "Plan") -> Line:
    """A plan in words behind a label."""
    return Line(" · ".join(plan_words(estimate)), label, "strong")


def doubt_lines(estimate: Estimate) -> list[Line]:
    """What is not measured of a plan, or little."""
    if estimate.not_measured is not None:
        return [Line((Span("Outside the measured runs: ", "warning"), Span(f"{estimate.not_measured}.")), "")]
    return [] if estimate.step_time_note is None else [Line(note_sentence(estimate.step_time_note), "", "doubt")]


def doubtful_sizes(estimates: Sequence[Estimate | None]) -> list[Line]:
    """The sizes whose plan is outside the measured runs."""
    sizes = [f"{each.num_accelerators_given:,}" for each in estimates if each is not None and each.not_measured]
    where = "at all sizes" if len(sizes) == len(estimates) else f"at {joined(sizes)} accelerators"
    text = f"Outside the measured runs {where}: the bands there are wider, or guesses."
    return [Line(text, tone="doubt")] if sizes else []


def of_plan(estimate_of: EstimateOf, name: str) -> Callable[[Any], Any]:
    """The value of a field of a row's estimate (``step_time``, ``plan.tp``); None where the row has no plan."""
    field = attrgetter(name)

    def value(row: Any) -> Any:
        estimate = estimate_of(row)
        return None if estimate is None else field(estimate)

    return value


def step_columns(estimate_of: EstimateOf) -> list[Column]:
    """Step time and its band."""
    return [
        Column("step_time_s", "step", of_plan(estimate_of, "step_time"), format_time),
        Column("step_time_p10_s", None, of_plan(estimate_of, "step_time_p10")),
        Column("step_time_p90_s", None, of_plan(estimate_of, "step_time_p90")),
        Column("", "band", estimate_of, band_text, rank=2),
    ]


def band_text(estimate: Estimate) -> str:
    """The band of the step time."""
    return f"{format_time(estimate.step_time_p10)} to {format_time(estimate.step_time_p90)}"


def plan_columns(rows: Sequence[Any], estimate_of: EstimateOf) -> list[Column]:
    """Degrees that any plan of the rows uses, replicas, micro-batch size, sharding and recomputation."""
    plans = [each.plan for row in rows if (each := estimate_of(row)) is not None]
    degrees = [name for name in DEGREES if any(getattr(plan, name) != 1 for plan in plans)]
    plan = of_plan(estimate_of, "plan")
    return [
        *(Column("", name, of_plan(estimate_of, f"plan.{name}")) for name in degrees),
        Column("", "dp", of_plan(estimate_of, "dp"), rank=1),
        Column("", "mb", of_plan(estimate_of, "plan.micro_batch_size")),
        Column("", "sharding", plan, short_sharding, is_text=True),
        Column("", "recompute", plan, short_recompute, is_text=True, rank=1),
    ]


def used_column(rows: Sequence[Any], estimate_of: EstimateOf) -> list[Column]:
    """How many accelerators each plan uses, where some leave idle ones."""
    if not any(each.num_accelerators_idle for row in rows if (each := estimate_of(row)) is not None):
        return []
    return [Column("", "used", of_plan(estimate_of, "num_accelerators_used"), "{:,}".format)]


def whole_plan(estimate_of: EstimateOf) -> Column:
    """The plan of a row: in words on pages and in records, there also in full; in CSV its fields and main numbers."""
    return Column(
        "",
        "recommended plan",
        estimate_of,
        plan_text,
        is_text=True,
        is_wide=True,
        leads=True,
        record=plan_record,
        frame=plan_cells,
    )


def plan_record(estimate: Estimate | None) -> dict[str, Any]:
    """The plan as text and in full; None where there is none."""
    if estimate is None:
        return {"plan_text": None, "plan": None}
    from shardplan.reports.plan_file import estimate_record  # takes time to import

    return {"plan_text": plan_text(estimate), "plan": estimate_record(estimate)}


def plan_cells(estimate: Estimate | None) -> dict[str, Any]:
    """The fields of a plan and its main numbers; None in all of them where there is no plan."""
    names = [each.name for each in fields(Plan)]
    if estimate is None:
        return dict.fromkeys((*names, *(keys(Estimate)[name] for name in OF_PLANS)))
    cells: dict[str, Any] = {name: _cell(getattr(estimate.plan, name)) for name in names}
    return cells | {keys(Estimate)[name]: getattr(estimate, name) for name in OF_PLANS}


def _cell(value: object) -> Any:
    """A number or a switch as it is, a list as text."""
    return field_text(value) if isinstance(value, tuple) else value

"""The answer of ``whatif``: the step after each change, and before and after term by term."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import attrgetter
from typing import Final

from shardplan.answers.document import AnswerDocument, Bar, Bullets, Column, Line, Part, RowTable
from shardplan.answers.plans import (
    EstimateOf,
    asked_record,
    band_text,
    doubt_lines,
    of_plan,
    plan_columns,
    plan_line,
    question_lines,
    whole_plan,
)
from shardplan.base.fields import replace
from shardplan.base.units import format_time
from shardplan.decide.whatif import ChangeStep, WhatIf
from shardplan.estimation.parts.terms import term_label
from shardplan.plotting.chart import GREY, PALETTE, Axis, Chart, Panel, Series
from shardplan.reports.plan_file import estimate_record
from shardplan.reports.texts.answer import SAME, longer_or_shorter, signed_percent

MOST_TERMS: Final = 8
"""Terms that the table has."""
UNCHANGED: Final = 1e-9
"""Share of a term below which a change is none."""
SMALLEST: Final = 0.002
"""Terms that change by less than this share of the step are drawn as one."""
SECONDS: Final = Axis(title="step time [s]")
NAMES: Final = Axis(title="", scale="names")


estimate: Final[EstimateOf] = attrgetter("answered.estimate")
"""The plan to take after a change."""


def columns(found: WhatIf) -> list[Column]:
    """Columns of the steps: as it was, and after each change."""
    first = found.before.estimate

    def against(step: ChangeStep) -> float | None:
        after = estimate(step)
        return None if first is None or after is None or after is first else after.step_time / first.step_time - 1

    return [
        Column("change", "change", lambda step: step.label, lambda label: label or "before", is_text=True),
        Column("", "same plan", lambda step: step, same_text),
        Column("step_time_s", "recommended", of_plan(estimate, "step_time"), format_time),
        Column("step_time_p10_s", None, of_plan(estimate, "step_time_p10")),
        Column("step_time_p90_s", None, of_plan(estimate, "step_time_p90")),
        Column("", "against before", against, signed_percent),
        Column("fastest_step_time_s", None, of_plan(lambda step: step.answered.fastest, "step_time")),
        Column("same_plan_step_time_s", None, of_plan(lambda step: step.same_plan, "step_time")),
        Column("same_plan_fits", None, lambda step: step.same_plan is not None and step.same_plan.feasible),
        Column("same_plan_reason", None, lambda step: step.same_plan_reason),
        Column("reason", None, lambda step: step.answered.reason),
        whole_plan(estimate),
    ]


def same_text(step: ChangeStep) -> str:
    """The step of the plan as it was, after a change."""
    if step.same_plan is None:
        return "not valid"
    return format_time(step.same_plan.step_time) if step.same_plan.feasible else "too big"


def term_columns(largest: float) -> list[Column]:
    """Columns of the terms. ``largest``: the largest change of one. [s]"""
    return [
        Column("name", None, lambda term: term.name),
        Column("label", "term", lambda term: term_label(term.name), is_text=True),
        Column("before_s", "before", lambda term: term.before, format_time),
        Column("after_s", "after", lambda term: term.after, format_time),
        Column("change_s", "change", lambda term: term.change, signed_time),
        Column("", "", lambda term: term.change / largest, bar=Bar(15, is_centred=True), rank=1),
    ]


def signed_time(change: float) -> str:
    """A change of a time."""
    return f"{'+' * (change > 0)}{format_time(change)}"


def whatif_document(found: WhatIf, given: Sequence[str] = ()) -> AnswerDocument:
    """The whole answer. ``given``: what the user set in place of usual values."""
    table, after = RowTable(found.steps, columns(found)), found.after.estimate
    changed = [each for each in found.terms if abs(each.change) > UNCHANGED * each.before][:MOST_TERMS]
    largest = max((abs(each.change) for each in changed), default=0.0) or 1.0
    notes = [f"{each.label}: {why}" for each in found.steps if (why := why_not(each))]
    return AnswerDocument(
        name="whatif",
        head=question_lines(found.before.question, given),
        verdict=[
            Line(verdict(found), "Too big" if after is None else "Step", "bad" if after is None else "good"),
            *([] if after is None else doubt_lines(after)),
            plan_line(found.plan),
        ],
        parts=[
            Part("After each change", [table], NOTE),
            Part(
                "Plan to take",
                [RowTable(found.steps, [table.columns[0], *plan_columns(found.steps, estimate)])],
                "mb: micro-batch size",
            ),
            *([Part(TERMS, [RowTable(changed, term_columns(largest))], TERMS_NOTE)] if changed else []),
            *([Part("Notes", [Bullets(notes, most_lines=3)])] if notes else []),
        ],
        assumptions=found.assumptions,
        table=table,
        record=lambda: {
            **asked_record(found.before.question, found.assumptions),
            "plan": estimate_record(found.plan),
            "steps": table,
            "terms": RowTable(found.terms, term_columns(largest)),
        },
        chart=lambda: whatif_chart(found),
        is_yes=after is not None,
    )


NOTE: Final = "same plan: unchanged; recommended: planned again"
TERMS: Final = "Before and after all changes"
TERMS_NOTE: Final = "bar: how much less (left) or more (right)"


def verdict(found: WhatIf) -> str:
    """The step before and after all changes."""
    before, after = found.before.estimate, found.after.estimate
    if after is None:
        return f"Nothing fits after the changes: {found.after.reason}."
    if before is None:
        return f"{format_time(after.step_time)} a step after the changes; before, nothing fits."
    share = longer_or_shorter(before.step_time, after.step_time)
    return (
        f"{format_time(before.step_time)} before, {format_time(after.step_time)} after ({band_text(after)}): {share}."
    )


def why_not(step: ChangeStep) -> str:
    """Why a plan cannot be taken after a change; empty where it can."""
    if step.answered.reason is not None:
        return step.answered.reason
    return "" if step.same_plan_reason is None else f"the same plan: {step.same_plan_reason}"


def whatif_chart(found: WhatIf) -> Chart:
    """From the step before, term by term, to the step after; and the step after each change."""
    question = found.before.question
    return Chart(
        name="whatif",
        title=f"{question.model.name} on {question.cluster.name}: {'; '.join(each.label for each in found.steps[1:])}",
        panels=(_waterfall(found), _steps(found.steps)),
        num_columns=2,
        note="Left: the step of the recommended plan before, its terms that change, and the step after all changes. "
        "Right: the step after each change against that before, with the plan of before as it stands and with the plan "
        "to take. "
        "Predicted by shardplan.",
        panel_size=(560, 420),
    )


def _waterfall(found: WhatIf) -> Panel:
    title = "before and after, term by term"
    before, after = found.steps[0].answered.estimate, found.steps[-1].answered.estimate
    if not found.terms or before is None or after is None:
        return Panel(title=title, x=NAMES, y=SECONDS, is_horizontal=True)
    first, last = before.step_time, after.step_time
    parts = [(term_label(each.name), each.change) for each in found.terms if abs(each.change) >= SMALLEST * first]
    rest = last - first - sum(change for _, change in parts)
    parts += [("other terms", rest)] if abs(rest) >= SMALLEST * first else []
    levels = [*accumulate((change for _, change in parts), initial=first)]
    moved = [
        (f"{label} {signed_time(change)}", start, change) for (label, change), start in zip(parts, levels, strict=False)
    ]
    ends = [(f"before {format_time(first)}", 0.0, first), (f"after {format_time(last)}", 0.0, last)]
    order = _bars("", [(name, 0.0, 0.0) for name in (ends[0][0], *(name for name, _, _ in moved), ends[1][0])], GREY)
    longer = _bars("takes longer", [each for each in moved if each[2] > 0], PALETTE[3])
    less = _bars("takes less", [each for each in moved if each[2] <= 0], PALETTE[2])
    series = (order, _bars("step", ends, GREY), *(each for each in (longer, less) if each.x))
    return Panel(title=title, x=NAMES, y=_axis_of([*levels, last]), series=series, is_horizontal=True)


def _axis_of(levels: Sequence[float]) -> Axis:
    """Seconds around the levels that a step passes, so that the change is seen; from zero where that shows it too."""
    low, high = min(levels), max(levels)
    room = max(high - low, SAME * high) * ROOM
    if low - room < WHOLE * high:
        return replace(SECONDS, limits=(0.0, high + room))
    return replace(SECONDS, title="step time [s], not from 0", limits=(low - room, high + room))


ROOM: Final = 0.25
"""On either side of the levels, of their range."""
WHOLE: Final = 0.4
"""Share of the longest step below which the axis begins at zero."""


def _bars(name: str, bars: Sequence[tuple[str, float, float]], colour: str) -> Series:
    """Bars by their names, starts and lengths."""
    return Series(
        name=name,
        x=[label for label, _, _ in bars],
        y=[length for _, _, length in bars],
        starts=[start for _, start, _ in bars],
        kind="bars",
        colour=colour,
    )


def _steps(steps: Sequence[ChangeStep]) -> Panel:
    """The step after each change against that before, with either plan; none is drawn where the plan does not fit."""
    first = estimate(steps[0])
    if first is None:
        return Panel(title="after each change", x=NAMES, y=SECONDS)
    same = [step.same_plan if step.same_plan is not None and step.same_plan.feasible else None for step in steps[1:]]
    taken = [estimate(step) for step in steps[1:]]
    series = [
        Series(
            name=name,
            x=[step.label for step in steps[1:]],
            y=[0.0 if each is None else 100 * (each.step_time / first.step_time - 1) for each in plans],
            kind="bars",
            colour=colour,
        )
        for name, plans, colour in (("same plan", same, PALETTE[5]), ("recommended", taken, PALETTE[0]))
    ]
    against = Axis(title="step time against before [%]")
    return Panel(title="after each change", x=NAMES, y=against, series=tuple(series))

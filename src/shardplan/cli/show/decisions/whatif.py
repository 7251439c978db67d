"""The answer of ``whatif``: the step after each change, and before and after term by term."""

from __future__ import annotations

from collections.abc import Sequence

from shardplan.cli.layout import Column, Page
from shardplan.cli.show.answer import show_given, show_plan, show_question
from shardplan.cli.show.decisions.columns import NONE, centred_bar, plan_columns, show_written
from shardplan.decisions.whatif import ChangeStep, TermChange, WhatIf
from shardplan.estimation.estimate import Estimate
from shardplan.reports.breakdown import term_label
from shardplan.units import format_time

MOST_TERMS = 8
UNCHANGED = 1e-9
"""Share of a term below which a change is none."""
ROOM = 15
"""Characters of a bar on either side."""


def show_whatif(page: Page, found: WhatIf, given: Sequence[str], written: Sequence[str]) -> None:
    """The whole answer."""
    show_question(page, found.before.question)
    show_given(page, given)
    page.console.print()
    style = "bold green" if found.after.estimate is not None else "bold red"
    page.labelled("Step" if found.after.estimate is not None else "Too big", _verdict(found), style=style)
    show_plan(page, found.plan, "Plan")
    page.heading("After each change", "same plan: as it stands; plan to take: planned anew")
    page.table(_step_columns(found))
    page.heading("Plan to take", "mb: micro-batch size")
    labels = Column(title="change", cells=[each.label or "before" for each in found.steps], is_text=True)
    page.table([labels, *plan_columns([each.answered.estimate for each in found.steps])])
    terms = [each for each in found.terms if abs(each.change) > UNCHANGED * each.before]
    if terms:
        page.heading("Before and after all changes", "bar: how much less (left) or more (right)")
        page.table(_term_columns(page, terms[:MOST_TERMS]))
    notes = [f"{each.label}: {why}" for each in found.steps if (why := _note(each))]
    if notes:
        page.heading("Notes")
        page.bullets(notes, most_lines=3)
    show_written(page, written)


def _verdict(found: WhatIf) -> str:
    before, after = found.before.estimate, found.after.estimate
    if after is None:
        return f"Nothing fits after the changes: {found.after.reason}."
    if before is None:
        return f"{format_time(after.step_time)} a step after the changes; before, nothing fits."
    band = f"{format_time(after.step_time_p10)} to {format_time(after.step_time_p90)}"
    share = _change_text(before.step_time, after.step_time)
    return f"{format_time(before.step_time)} before, {format_time(after.step_time)} after ({band}): {share}."


def _change_text(before: float, after: float) -> str:
    share = after / before - 1
    if abs(share) < 5e-4:
        return "no change"
    return f"{abs(100 * share):.1f} % {'longer' if share > 0 else 'shorter'}"


def _step_columns(found: WhatIf) -> list[Column]:
    first = found.before.estimate
    estimates = [each.answered.estimate for each in found.steps]
    return [
        Column(title="change", cells=[each.label or "before" for each in found.steps], is_text=True),
        Column(title="same plan", cells=[_same(each.same_plan) for each in found.steps]),
        Column(title="plan to take", cells=[NONE if e is None else format_time(e.step_time) for e in estimates]),
        Column(title="against before", cells=[_against(first, e) for e in estimates]),
    ]


def _same(same: Estimate | None) -> str:
    if same is None:
        return "not valid"
    return format_time(same.step_time) if same.feasible else "too big"


def _against(first: Estimate | None, estimate: Estimate | None) -> str:
    if first is None or estimate is None or first is estimate:
        return NONE
    return f"{100 * (estimate.step_time / first.step_time - 1):+.1f} %"


def _note(step: ChangeStep) -> str:
    if step.answered.reason is not None:
        return step.answered.reason
    return "" if step.same_plan_reason is None else f"the same plan: {step.same_plan_reason}"


def _term_columns(page: Page, terms: Sequence[TermChange]) -> list[Column]:
    largest = max((abs(each.change) for each in terms), default=0.0) or 1.0
    return [
        Column(title="term", cells=[term_label(each.name) for each in terms], is_text=True),
        Column(title="before", cells=[format_time(each.before) for each in terms]),
        Column(title="after", cells=[format_time(each.after) for each in terms]),
        Column(title="change", cells=[f"{'+' * (each.change > 0)}{format_time(each.change)}" for each in terms]),
        Column(
            title="", cells=[centred_bar(page, each.change / largest, ROOM) for each in terms], is_text=True, rank=1
        ),
    ]

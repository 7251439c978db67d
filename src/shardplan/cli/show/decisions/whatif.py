"""The answer of ``whatif``: the step after each change, and before and after term by term."""

from __future__ import annotations

from collections.abc import Sequence

from shardplan.cli.layout import Column, Page
from shardplan.cli.show.answer import show_doubt, show_plan, show_question
from shardplan.cli.show.decisions.columns import centred_bar, plan_columns, show_written
from shardplan.decisions.whatif import TermChange, WhatIf
from shardplan.estimation.parts.terms import term_label
from shardplan.reports.texts.decisions import changed_terms, signed_change, whatif_cells, whatif_notes, whatif_sentence
from shardplan.units import format_time

MOST_TERMS = 8
ROOM = 15
"""Characters of a bar on either side."""


def show_whatif(page: Page, found: WhatIf, given: Sequence[str], written: Sequence[str]) -> None:
    """The whole answer."""
    show_question(page, found.before.question, given)
    page.console.print()
    style = "bold green" if found.after.estimate is not None else "bold red"
    page.labelled("Step" if found.after.estimate is not None else "Too big", whatif_sentence(found), style=style)
    if found.after.estimate is not None:
        show_doubt(page, found.after.estimate)
    show_plan(page, found.plan, "Plan")
    page.heading("After each change", "same plan: as it stands; plan to take: planned again")
    page.table(_step_columns(found))
    page.heading("Plan to take", "mb: micro-batch size")
    labels = Column(title="change", cells=[each.label or "before" for each in found.steps], is_text=True)
    page.table([labels, *plan_columns([each.answered.estimate for each in found.steps])])
    terms = changed_terms(found)
    if terms:
        page.heading("Before and after all changes", "bar: how much less (left) or more (right)")
        page.table(_term_columns(page, terms[:MOST_TERMS]))
    notes = whatif_notes(found)
    if notes:
        page.heading("Notes")
        page.bullets(notes, most_lines=3)
    show_written(page, written)


def _step_columns(found: WhatIf) -> list[Column]:
    labels, same, taken, against = zip(*whatif_cells(found), strict=True)
    return [
        Column(title="change", cells=[*labels], is_text=True),
        Column(title="same plan", cells=[*same]),
        Column(title="plan to take", cells=[*taken]),
        Column(title="against before", cells=[*against]),
    ]


def _term_columns(page: Page, terms: Sequence[TermChange]) -> list[Column]:
    largest = max((abs(each.change) for each in terms), default=0.0) or 1.0
    return [
        Column(title="term", cells=[term_label(each.name) for each in terms], is_text=True),
        Column(title="before", cells=[format_time(each.before) for each in terms]),
        Column(title="after", cells=[format_time(each.after) for each in terms]),
        Column(title="change", cells=[signed_change(each.change) for each in terms]),
        Column(
            title="", cells=[centred_bar(page, each.change / largest, ROOM) for each in terms], is_text=True, rank=1
        ),
    ]

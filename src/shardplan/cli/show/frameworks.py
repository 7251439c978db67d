"""The plan to take of each framework side by side."""

from __future__ import annotations

from collections.abc import Sequence

from shardplan.cli.flags.plan import DetailFlags
from shardplan.cli.layout import Column, Page
from shardplan.cli.show.answer import show_question
from shardplan.cli.show.decisions.columns import plan_columns, used_column
from shardplan.estimation.estimate import Estimate
from shardplan.estimation.question import Question
from shardplan.planner.related.frameworks import FrameworkAnswer
from shardplan.reports.frameworks import choice_text, limits_text
from shardplan.reports.texts.answer import percent
from shardplan.units import format_bytes, format_time


def show_frameworks(
    page: Page, question: Question, answers: Sequence[FrameworkAnswer], flags: DetailFlags, given: Sequence[str]
) -> None:
    """A table of the plans to take, fastest first, then what each framework cannot do.

    ``given``: what the user set. With ``--explain`` the reason for every plan, with ``--assumptions`` what was assumed.
    """
    show_question(page, question, given)
    with_plan = [each for each in answers if each.best is not None]
    if with_plan:
        page.heading("Best plan of each framework", "the one to take; mb: micro-batch size")
        page.table(_columns(with_plan), styles=["bold green"])
    limits = [(each, text) for each in answers if (text := limits_text(each))]
    if limits:
        title = "What the others make of the first plan" if with_plan else "No framework has a plan that fits"
        page.heading(title)
        page.bullets(f"{answer.stack.label}: {text}" for answer, text in limits)
    if with_plan and flags.explains:
        page.heading("Why these plans")
        page.bullets(f"{answer.stack.label}: {choice_text(answer)}" for answer in with_plan)
    if with_plan and flags.states_assumptions:
        _show_assumptions(page, with_plan)
    if with_plan:
        page.heading("Next steps")
        if not (flags.explains and flags.states_assumptions):
            page.line("--explain says why each plan is the one to take, --assumptions what was assumed.")
        page.line("The whole answer for one of them:")
        page.verbatim(f"shardplan plan ... --stack {with_plan[0].stack.versioned_name}")


def _show_assumptions(page: Page, answers: Sequence[FrameworkAnswer]) -> None:
    """What was assumed of all, then of each framework."""
    texts = {each.stack.label: each.best.assumptions for each in answers if each.best is not None}
    shared = [text for text in next(iter(texts.values())) if all(text in own for own in texts.values())]
    page.heading("Assumptions", "of all frameworks, then of each")
    page.bullets(shared, style="dim")
    for label, own in texts.items():
        page.heading(label)
        page.bullets([text for text in own if text not in shared], style="dim")


def _columns(answers: Sequence[FrameworkAnswer]) -> list[Column]:
    best = [each.best for each in answers if each.best is not None]
    return [
        Column(title="framework", cells=[each.stack.label for each in answers], is_text=True),
        Column(title="step", cells=[format_time(each.step_time) for each in best]),
        Column(title="lost", cells=[_lost(each, best[0]) for each in best], rank=2),
        Column(title="MFU", cells=[percent(each.mfu) for each in best], rank=3),
        Column(title="memory", cells=[format_bytes(each.peak_memory_bytes) for each in best], rank=2),
        *used_column(best),
        *plan_columns(best),
    ]


def _lost(estimate: Estimate, fastest: Estimate) -> str:
    return "" if estimate is fastest else f"{100 * (estimate.step_time / fastest.step_time - 1):.0f} %"

"""The answer of ``plan``: one screen first, the rest on request."""

from __future__ import annotations

from rich.text import Text

from shardplan.cli.flags.plan import DetailFlags
from shardplan.cli.layout import Column, Page
from shardplan.cli.show import details, explanation
from shardplan.cli.show.answer import ALL_TERMS, MOST_TERMS, show_memory, show_plan, show_step, show_verdict
from shardplan.cli.show.plans import FULL, memory_text, show_plans
from shardplan.outputs.target import JsonTarget
from shardplan.planner.result import SearchResult
from shardplan.planner.robustness import Ties
from shardplan.reports.explanation import Explanation
from shardplan.reports.leverage import most_helpful
from shardplan.reports.recommendation import Recommendation, against_fastest, faster_by, recommendation
from shardplan.reports.texts.answer import idle_text, library_texts
from shardplan.units import format_time

WORTH_A_WORD = 0.005
"""Share of the step by which the fastest plan must be faster to be named in the first lines."""


def show_answer(
    page: Page, result: SearchResult, reasons: Explanation, *, flags: DetailFlags, target: JsonTarget, listed: int
) -> None:
    """The plan to take and its numbers, the best plans, what would help most; then what the flags ask for."""
    assert result.ties is not None
    found = recommendation(result.ties, result.estimates)
    show_verdict(page, result.question, found.estimate, is_whole=flags.explains)
    if idle := idle_text(result):
        page.labelled("Idle", idle)
    _show_fastest(page, found)
    _show_libraries(page, result)
    _show_simulated(page, result.ties, found)
    show_memory(page, found.estimate, is_whole=flags.explains)
    show_step(page, found.estimate, ALL_TERMS if flags.explains else MOST_TERMS)
    show_plans(page, result, found, listed)
    page.console.print()
    page.labelled("Better", most_helpful(result, reasons))
    if flags.explains:
        explanation.show_choice(page, result, found)
        explanation.show_limits(page, reasons)
        explanation.show_alternatives(page, reasons, result.estimates)
        explanation.show_account(page, result)
        details.show_evidence(page, found.estimate)
    if flags.states_assumptions:
        details.show_assumptions(page, found.estimate)
    plans = (found.estimate,) if found.is_fastest else (found.estimate, found.fastest)
    if flags.states_assumptions and not flags.explains:
        page.console.print()
    details.show_next_steps(page, target, result.question, plans, is_search=True, flags=flags)


def _show_fastest(page: Page, found: Recommendation) -> None:
    """The fastest plan where another is recommended, and what speaks against it."""
    if not found.is_fastest and found.time_lost >= WORTH_A_WORD:
        page.labelled("Fastest", f"plan 1 below: {faster_by(found)}, but {against_fastest(found)}")


def _show_libraries(page: Page, result: SearchResult) -> None:
    """What the answer becomes without the libraries that its plan needs."""
    if texts := library_texts(result):
        page.labelled("Needs", "; ".join(texts))


def _show_simulated(page: Page, ties: Ties, found: Recommendation) -> None:
    """The simulated step of the plan to take."""
    if ties.retimed is not None and found.estimate.plan in ties.retimed.step_time:
        page.labelled("Events", f"{format_time(ties.time_of(found.estimate))} a step, simulated event by event")


def show_no_answer(page: Page, result: SearchResult, flags: DetailFlags) -> None:
    """What is missing where nothing fits, and what would fit."""
    _show_nothing_fits(page, result)
    if flags.explains or not result.num_plans_evaluated:
        explanation.show_account(page, result)
    nearest = [each for each in (result.smallest, *(s.estimate for s in result.suggestions)) if each is not None]
    if flags.states_assumptions and nearest:
        details.show_assumptions(page, nearest[0])


def _show_nothing_fits(page: Page, result: SearchResult) -> None:
    """What is missing where nothing fits, and what would fit."""
    page.console.print()
    verdict = Text("Nothing fits. " if result.num_plans_evaluated else "No plan is valid. ", style="bold red")
    if result.smallest is not None:
        need = (result.smallest.reason or "").partition(": ")[0]  # what follows are flags of `estimate`
        verdict.append(f"Of the plan that needs least memory, {need}.")
    elif not result.num_plans_evaluated:
        most = next(iter(result.rejected), None)
        often = "" if most is None else f"; most often: {most}"
        verdict.append(f"Every combination of the declared space breaks a rule{often}.")
    page.line(verdict, indent=0)
    for cause in result.causes:
        page.labelled("Cause", f"{cause}.")
    if result.smallest is not None:
        show_plan(page, result.smallest, "Least")
        show_memory(page, result.smallest)
    if not result.suggestions:
        page.line("None of the changes that were tried (more accelerators, offload, fewer restrictions) fits.")
        return
    page.heading("What would fit", "the plan to take of each change")
    best = [each.estimate for each in result.suggestions]
    page.table(
        [
            Column(title="step", cells=[format_time(e.step_time) for e in best]),
            Column(title="memory", cells=[memory_text(e) for e in best]),
            Column(title="accelerators", cells=[f"{e.num_accelerators:,}" for e in result.suggestions], rank=1),
            Column(title="change", cells=[each.change for each in result.suggestions], is_text=True),
        ]
    )
    if not all(each.has_headroom for each in best):
        page.line(f"{FULL} may not fit", style="dim")

"""The answer where nothing fits."""

from __future__ import annotations

from rich.text import Text

from shardplan.cli.layout import Column, Page
from shardplan.cli.show.answer import show_memory, show_plan
from shardplan.cli.show.plans import FULL, memory_text
from shardplan.planner.result import SearchResult
from shardplan.units import format_time


def show_no_answer(page: Page, result: SearchResult) -> None:
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

"""Why the plan to take is the one: ties, what limits it, what comes of each change, what was searched."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from shardplan.cli.layout import Column, Page
from shardplan.estimation.estimate import Estimate
from shardplan.planner.result import SearchResult
from shardplan.reports.explanation import Explanation
from shardplan.reports.recommendation import Recommendation, reason, ties_sentence
from shardplan.reports.texts.explanation import account_sentences, alone_text, best_texts, limits_sentences
from shardplan.reports.texts.plan import flags_text

WIDE = 100
"""From this width on alternatives are in columns, where no text is too long for them."""


def show_choice(page: Page, result: SearchResult, found: Recommendation) -> None:
    """Why this plan and no other."""
    assert result.ties is not None
    page.heading("Why this plan")
    text = reason(found)
    page.line(f"{text[:1].upper()}{text[1:]}.")
    page.line(ties_sentence(result.ties, result.num_plans_feasible, is_least=result.num_plans_pruned > 0))
    if not found.is_fastest:
        page.line("The fastest as flags of `shardplan estimate`:")
        page.verbatim(flags_text(result.question, found.fastest))


def show_limits(page: Page, explanation: Explanation) -> None:
    """What limits the plan to take."""
    page.heading("What limits it")
    for sentence in limits_sentences(explanation):
        page.line(sentence)


def show_alternatives(page: Page, explanation: Explanation, estimates: Sequence[Estimate]) -> None:
    """What comes of each change."""
    page.heading("Alternatives", "the change alone, and the best plan with it when all else is free")
    names = [each.name for each in explanation.alternatives]
    alone = [alone_text(each) for each in explanation.alternatives]
    best = best_texts(explanation, estimates)
    columns = [
        Column(title="change", cells=names, is_text=True),
        Column(title="alone", cells=alone, is_text=True),
        Column(title="best with it", cells=best, is_text=True),
    ]
    if page.width >= WIDE and page.can_wrap(columns):
        page.table(columns)
        return
    _one_below_the_other(page, names, alone, best)


def _one_below_the_other(page: Page, names: Sequence[str], alone: Sequence[str], best: Sequence[str]) -> None:
    """Each change with two lines beside it."""
    widest = max(len(name) for name in names)
    for name, one, other in zip(names, alone, best, strict=True):
        page.hanging(Text(name.ljust(widest)), Text(f"alone {one}"))
        page.hanging(Text(" " * widest), Text(f"best  {other}"))


def show_account(page: Page, result: SearchResult) -> None:
    """How much was searched, and what the best is the best of."""
    page.heading("Searched")
    for sentence in account_sentences(result):
        page.line(sentence)

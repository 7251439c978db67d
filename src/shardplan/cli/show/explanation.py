"""Why the plan to take is the one: ties, what limits it, what comes of each change, what was searched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.text import Text

from shardplan.cli.layout import Column, Page, joined
from shardplan.estimation.estimate import Estimate
from shardplan.inputs.plan import Plan
from shardplan.planner.result import SearchResult
from shardplan.reports.answer_words import percent, signed_time
from shardplan.reports.breakdown import term_label
from shardplan.reports.explanation import Alternative, Difference, Explanation
from shardplan.reports.plan_words import flags_text, short_changes
from shardplan.reports.recommendation import Recommendation, reason, ties_sentence
from shardplan.units import format_bytes, format_time

MOST_RULES = 3
SMALLEST_CHANGE = 5e6
WIDE = 100
"""From this width on alternatives are in columns."""


def show_choice(page: Page, result: SearchResult, found: Recommendation) -> None:
    """Why this plan and no other."""
    assert result.ties is not None
    page.heading("Why this plan")
    text = reason(found)
    page.line(f"{text[:1].upper()}{text[1:]}.")
    page.line(ties_sentence(result.ties, result.num_plans_feasible))
    if not found.is_fastest:
        page.line("The fastest as flags of `shardplan estimate`:")
        page.verbatim(flags_text(result.question, found.fastest))


def show_limits(page: Page, explanation: Explanation) -> None:
    """What limits the plan to take."""
    page.heading("What limits it")
    losses = [f"{term_label(s.name)} {format_time(s.value)} ({percent(s.share)})" for s in explanation.losses]
    page.line(
        f"Matrix products and attention take {percent(explanation.compute.share)} of the step."
        + (f" The largest losses are {joined(losses)}." if losses else "")
    )
    page.line(_memory_sentence(explanation))


def show_alternatives(page: Page, explanation: Explanation, estimates: Sequence[Estimate]) -> None:
    """What comes of each change."""
    page.heading("Alternatives", "the change alone, and the best plan with it when all else is free")
    names = [each.name for each in explanation.alternatives]
    alone = [_alone_text(each) for each in explanation.alternatives]
    best = _best_texts(explanation, estimates)
    widest = max(len(name) for name in names)
    if page.width < WIDE:
        for name, one, other in zip(names, alone, best, strict=True):
            page.hanging(Text(name.ljust(widest)), Text(f"alone {one}"))
            page.hanging(Text(" " * widest), Text(f"best  {other}"))
        return
    page.table(
        [
            Column(title="change", cells=names, is_text=True),
            Column(title="alone", cells=alone, is_text=True),
            Column(title="best with it", cells=best, is_text=True),
        ]
    )


def _memory_sentence(explanation: Explanation) -> str:
    text = f"Memory is {percent(explanation.memory_share)} full."
    if not explanation.blocked:
        return text
    first = explanation.blocked[0]
    assert first.alone is not None
    return (
        f"{text} More would help: {first.name} alone would be {format_time(-first.alone.time_lost)} faster, but needs "
        f"{format_bytes(first.alone.missing_bytes)} more than there is."
    )


def _alone_text(alternative: Alternative) -> str:
    """What the change does by itself."""
    if alternative.alone is None:
        return f"breaks a rule: {(alternative.broken_rule or '').partition(':')[0]}"
    if alternative.alone.missing_bytes:
        return f"{format_bytes(alternative.alone.missing_bytes)} too much"
    return f"{signed_time(alternative.alone.time_lost)}{_because(alternative.alone)}"


def _because(difference: Difference) -> str:
    if difference.main_term is None or difference.time_lost <= 0:
        return ""
    return f": {term_label(difference.main_term)} +{format_time(difference.main_term_time)}"


def _best_texts(explanation: Explanation, estimates: Sequence[Estimate]) -> list[str]:
    """What each comes to when all else follows; a plan that was described before is referred to."""
    known = {estimate.plan: f"plan {place}" for place, estimate in enumerate(estimates, start=1)}
    texts = []
    for each in explanation.alternatives:
        texts.append(_best_text(explanation.best.plan, each, known))
        if each.best is not None:
            known.setdefault(each.best.estimate.plan, f"as {each.name}")
    return texts


def _best_text(best: Plan, alternative: Alternative, known: Mapping[Plan, str]) -> str:
    if alternative.best is None:
        if alternative.outcome == "does not fit" and not alternative.is_searched:
            return "not searched"
        return {"does not fit": "no plan fits", "breaks a rule": "no plan"}.get(alternative.outcome, "not searched")
    lost = f"{signed_time(alternative.best.time_lost)}, {_signed_bytes(alternative.best.memory_added)}"
    if alternative.best.estimate.plan in known:
        return f"{lost}: {known[alternative.best.estimate.plan]}"
    also = short_changes(alternative.best.also_changed(best, alternative.change), alternative.best.estimate.plan)
    return f"{lost}: {', '.join(also)}" if also else f"{lost}: nothing else changes"


def _signed_bytes(num_bytes: float) -> str:
    if abs(num_bytes) < SMALLEST_CHANGE:
        return "same memory"
    return ("+" if num_bytes >= 0 else "-") + format_bytes(abs(num_bytes))


def show_account(page: Page, result: SearchResult) -> None:
    """How much was searched, and what the best is the best of."""
    page.heading("Searched")
    axes = [name for name, values in result.space.items() if len(values) > 1]
    text = (
        f"{result.num_plans_evaluated:,} plans in {format_time(result.search_time)}; {result.num_plans_feasible:,} fit."
    )
    if result.estimates:
        text += f" The first is the optimum of the declared space, every combination of {joined(axes)}."
    page.line(text)
    rejected = [(rule, number) for rule, number in result.rejected.items() if number]
    if rejected:
        total = f"{sum(number for _, number in rejected):,}"
        rules = [f"{rule} ({number:,})" for rule, number in rejected[:MOST_RULES]]
        others = len(rejected) - MOST_RULES
        more = f", and {others} other rule{'s' if others > 1 else ''}" if others > 0 else ""
        page.line(f"{total} more combinations break a rule: {'; '.join(rules)}{more}.")

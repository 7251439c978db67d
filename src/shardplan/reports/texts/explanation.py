"""What limits a plan and what comes of changing it, as text: on the command line and on pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from shardplan.base.units import format_bytes, format_time
from shardplan.base.words import joined
from shardplan.estimation.estimate import Estimate
from shardplan.estimation.parts.terms import term_label
from shardplan.inputs.plan import Plan
from shardplan.planner.result import SearchResult
from shardplan.reports.explanation import Alternative, Difference, Explanation
from shardplan.reports.recommendation import num_that_fit
from shardplan.reports.texts.answer import percent, signed_time
from shardplan.reports.texts.plan import short_changes

MOST_RULES: Final = 3
SMALLEST_CHANGE: Final = 5e6
"""Bytes below which memory is the same."""


def limits_sentences(explanation: Explanation) -> tuple[str, str]:
    """How much of the step computes and what loses most of the rest; how full the memory is, and what more would do."""
    losses = [f"{term_label(s.name)} {format_time(s.value)} ({percent(s.share)})" for s in explanation.losses]
    compute = f"Matrix products and attention take {percent(explanation.compute.share)} of the step."
    lost = f" The largest losses are {joined(losses)}." if losses else ""
    return compute + lost, _memory_sentence(explanation)


def account_sentences(result: SearchResult) -> list[str]:
    """How much was searched, and what the best is the best of; which combinations break a rule."""
    axes = [name for name, values in result.space.items() if len(values) > 1]
    text = f"{result.num_plans_valid:,} plans in {format_time(result.search_time)}; {num_that_fit(result)} fit."
    if result.num_plans_pruned:
        text += f" {result.num_plans_pruned:,} were not priced: a bound shows that they are too slow for this answer."
    if result.estimates:
        text += f" The first is the optimum of the declared space, every combination of {joined(axes)}."
    rejected = [(rule, number) for rule, number in result.rejected.items() if number]
    if not rejected:
        return [text]
    total = f"{sum(number for _, number in rejected):,}"
    rules = [f"{rule} ({number:,})" for rule, number in rejected[:MOST_RULES]]
    others = len(rejected) - MOST_RULES
    more = f", and {others} other rule{'s' if others > 1 else ''}" if others > 0 else ""
    return [text, f"{total} more combinations break a rule: {'; '.join(rules)}{more}."]


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


def alone_text(alternative: Alternative) -> str:
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


def best_texts(explanation: Explanation, estimates: Sequence[Estimate]) -> list[str]:
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

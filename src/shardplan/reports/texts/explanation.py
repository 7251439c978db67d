"""What limits a plan, what comes of changing it, and what would help most, as text: on command line and pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from shardplan.base.units import format_bytes, format_time
from shardplan.base.words import joined
from shardplan.estimation.estimate import Estimate, estimate_plan
from shardplan.estimation.parts.terms import TERMS, term_label
from shardplan.estimation.question import Question
from shardplan.inputs.cluster import Cluster
from shardplan.inputs.plan import Plan
from shardplan.inputs.software import Software
from shardplan.physics.frameworks.usual_stack import stack_of_label
from shardplan.planner.result import SearchResult
from shardplan.planner.software import OtherSoftware, options_for, other_software
from shardplan.reports.breakdown import Share
from shardplan.reports.explanation import Alternative, Difference, Explanation
from shardplan.reports.recommendation import num_that_fit, offer_text
from shardplan.reports.texts.answer import percent, signed_time
from shardplan.reports.texts.plan import short_changes

TIMES: Final = 2.0
"""By how much a resource is raised to see what it would save."""
LEAST_GAIN: Final = 0.02
"""Share of the step that is worth a word."""
MOST_MEMORY: Final = 0.5
"""Share of the usable memory beyond which more memory is no advice."""


def most_helpful(result: SearchResult, explanation: Explanation) -> str:
    """What would help most, in one sentence.

    First a neighbouring count or batch that trains more tokens a second (``SearchResult.offers``), or another way of
    the framework to run this very plan, whichever gains more; then a change that only memory prevents; then a faster
    resource for the largest loss that depends on one.
    """
    software = _best_software(result.question, explanation)
    gained = 0.0 if software is None else explanation.best.step_time / software.priced.step_time - 1
    if result.offers and result.offers[0].gain >= gained:
        return f"{offer_text(result.question, result.offers[0])}."
    if software is not None:
        return _with_software(result.question, explanation, software)
    return _with_memory(explanation) or _with_resource(result, explanation) or _largest(explanation)


def _best_software(question: Question, explanation: Explanation) -> OtherSoftware | None:
    """The choice of the framework's software under which the plan takes least time; None where none is worth a word."""
    best = explanation.best
    stack = stack_of_label(best.framework)
    if stack is None or best.num_accelerators_used != question.num_accelerators:
        return None
    limit = best.step_time * (1 - LEAST_GAIN)
    others = (each for each in other_software(question, best, stack) if each.priced.fits)
    return min(
        (each for each in others if each.priced.step_time < limit),
        key=lambda each: each.priced.step_time,
        default=None,
    )


def _with_software(question: Question, explanation: Explanation, found: OtherSoftware) -> str:
    """What it is called in the framework, and what it saves."""
    best = explanation.best
    stack = stack_of_label(best.framework)
    options = () if stack is None else options_for(found, best.plan, stack, question)
    gain = best.step_time - found.priced.step_time
    name = " ".join(options) or f"{found.field.replace('_', ' ')} {found.new}"
    return (
        f"{name} would save {format_time(gain)} a step ({100 * gain / best.step_time:.1f} %) or more: plan with "
        f"{Software.SHARED_FLAG} {found.field}={found.new}."
    )


def _with_memory(explanation: Explanation) -> str:
    """The change that fits next if there were more memory, where it is worth it."""
    step = explanation.best.step_time
    for each in explanation.blocked:
        missing = 0.0 if each.alone is None else each.alone.missing_bytes
        if missing > MOST_MEMORY * explanation.best.usable_memory_bytes:
            continue
        if each.alone is not None and -each.alone.time_lost > LEAST_GAIN * step:
            gain = -each.alone.time_lost
            return (
                f"with {format_bytes(missing)} more memory, {each.name} would save {format_time(gain)} "
                f"({100 * gain / step:.1f} %)."
            )
    return ""


def _with_resource(result: SearchResult, explanation: Explanation) -> str:
    """What twice the bandwidth behind the largest loss would save."""
    best, question = explanation.best, result.question
    for loss in explanation.losses:
        found = _raised(question.cluster, explanation, loss)
        if found is None:
            continue
        words, cluster = found
        faster = estimate_plan(replace(question, cluster=cluster), best.plan)
        gain = best.step_time - faster.step_time
        if gain > LEAST_GAIN * best.step_time:
            return f"{words} would save {format_time(gain)} a step ({100 * gain / best.step_time:.1f} %)."
    return ""


def _raised(cluster: Cluster, explanation: Explanation, loss: Share) -> tuple[str, Cluster] | None:
    """The cluster with twice the bandwidth that a loss waits for; None where it waits for none."""
    if loss.name == "memory_bound":
        part = cluster.accelerator
        faster = replace(part, memory_bandwidth=TIMES * part.memory_bandwidth)
        return "twice the memory bandwidth", replace(cluster, accelerator=faster)
    sent = explanation.best.communication.get(loss.name.removesuffix("_communication"), {})
    if TERMS[loss.name].group != "communication" or not any(sent.values()):
        return None
    times = {tier.name: sent.get(tier.name, 0.0) / tier.bandwidth for tier in cluster.tiers}
    slowest = max(times, key=lambda name: times[name])
    tiers = [replace(t, bandwidth=TIMES * t.bandwidth) if t.name == slowest else t for t in cluster.tiers]
    return f"twice the bandwidth of the {slowest} network", replace(cluster, tiers=tuple(tiers))


def _largest(explanation: Explanation) -> str:
    """The largest loss by name."""
    if not explanation.losses:
        return "nothing: all of the step is matrix products and attention."
    loss = explanation.losses[0]
    return f"no single change helps much; the largest loss is {term_label(loss.name)}, {100 * loss.share:.1f} %."


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

"""The one thing that would help a search's answer most."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from shardplan.estimation.estimate import estimate_plan
from shardplan.inputs.cluster import Cluster
from shardplan.planner.result import SearchResult
from shardplan.reports.breakdown import Share, term_label
from shardplan.reports.explanation import Explanation
from shardplan.reports.recommendation import offer_text
from shardplan.units import format_bytes, format_time

TIMES: Final = 2.0
"""By how much a resource is raised to see what it would save."""
LEAST_GAIN: Final = 0.02
"""Share of the step that is worth a word."""
MOST_MEMORY: Final = 0.5
"""Share of the usable memory beyond which more memory is no advice."""
COMMUNICATION: Final = "_communication"


def most_helpful(result: SearchResult, explanation: Explanation) -> str:
    """What would help most, in one sentence.

    First a neighbouring count or batch that trains more tokens a second (``SearchResult.offers``); then a change that
    only memory prevents; then a faster resource for the largest loss that depends on one, for this very plan.
    """
    if result.offers:
        return f"{offer_text(result.question, result.offers[0])}."
    return _with_memory(explanation) or _with_resource(result, explanation) or _largest(explanation)


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
    sent = explanation.best.communication.get(loss.name.removesuffix(COMMUNICATION), {})
    if not loss.name.endswith(COMMUNICATION) or not any(sent.values()):
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

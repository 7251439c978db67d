"""The best plans of a search as a table."""

from __future__ import annotations

from collections.abc import Sequence

from shardplan.cli.layout import Column, Page
from shardplan.estimation.estimate import Estimate
from shardplan.planner.result import SearchResult
from shardplan.planner.robustness import Ties
from shardplan.reports.recommendation import (
    ListedPlans,
    Recommendation,
    listed_plans,
    lost_text,
    simulated_sentences,
    simulated_text,
)
from shardplan.reports.texts.answer import num_that_fit, percent
from shardplan.reports.texts.plan import field_text, short_recompute, short_sharding
from shardplan.units import format_bytes, format_time


def show_plans(page: Page, result: SearchResult, found: Recommendation, most: int) -> None:
    """The best ``most`` plans, best first, with the recommended one among them."""
    assert result.ties is not None
    ties, best, shown = result.ties, result.estimates[0], listed_plans(result, most)
    listed = shown.estimates
    that_fit = f"of {num_that_fit(result)} that fit"
    if len(listed) == 1:
        page.heading("Best plans", f"{that_fit}: the one above")
    else:
        page.heading("Best plans", f"{that_fit}, each with other degrees; mb: micro-batch")
        retimed = ties.retimed
        columns = [
            Column(title="", cells=[shown.places.get(e.plan, "") for e in listed]),
            Column(title="", cells=[_mark(e, ties, best) for e in listed], is_text=True),
            Column(title="step", cells=[format_time(e.step_time) for e in listed]),
            *([] if retimed is None else [Column(title=SIMULATED, cells=[simulated_text(retimed, e) for e in listed])]),
            Column(title="lost", cells=["" if e is best else lost_text(e, best, ties) for e in listed], rank=3),
            Column(title=WORST, cells=[_worst(e, ties) for e in listed], rank=5),
            Column(title="MFU", cells=[percent(e.mfu) for e in listed], rank=2),
            Column(title="memory", cells=[memory_text(e) for e in listed]),
            *_degrees(shown),
            *_switches(shown),
            Column(title="sharding", cells=[short_sharding(e.plan) for e in listed], is_text=True, rank=1),
            Column(title="recompute", cells=[short_recompute(e.plan) for e in listed], is_text=True, rank=1),
        ]
        styles = ["bold green" if e.plan == found.estimate.plan else "bold" if e is best else "" for e in listed]
        titles = page.table(columns, styles=styles)
        page.line(_legend(listed, ties, titles), style="dim")
        for sentence in simulated_sentences(ties, result.estimates):
            page.line(sentence, style="dim")


RECOMMENDED, TIE, FULL, UNTESTED = "*", "=", "!", "?"
"""Marks of the table of plans."""
SIMULATED = "simulated"
WORST = "at worst"
"""Title of the pessimistic step times."""


def _mark(estimate: Estimate, ties: Ties, fastest: Estimate) -> str:
    shown = UNTESTED if estimate.untested else ""
    if estimate.plan == ties.recommended.plan:
        return RECOMMENDED + shown
    return (TIE if estimate.plan in ties.robustness and estimate.plan != fastest.plan else "") + shown


def _worst(estimate: Estimate, ties: Ties) -> str:
    """Step time where all that is uncertain is worse; known of ties."""
    found = ties.robustness.get(estimate.plan)
    return "" if found is None else format_time(found.pessimistic_time)


def memory_text(estimate: Estimate) -> str:
    """Peak memory, marked where it might not fit."""
    return format_bytes(estimate.peak_memory_bytes) + (" " if estimate.has_headroom else FULL)


def _legend(listed: Sequence[Estimate], ties: Ties, titles: Sequence[str]) -> str:
    """What the marks of the table mean."""
    texts = [f"{RECOMMENDED} take this one"]
    if any(TIE in _mark(each, ties, listed[0]) for each in listed):
        texts.append(f"{TIE} within {100 * (ties.factor - 1):.0f} %, too close to call")
    if not all(each.has_headroom for each in listed):
        texts.append(f"{FULL} may not fit")
    if any(each.untested for each in listed):
        texts.append(f"{UNTESTED} untested")
    if WORST in titles:
        texts.append(
            f"{WORST}: if network, overlap and host are all worse than assumed, and unmeasured plans take longer"
        )
    return "; ".join(texts)


def _degrees(shown: ListedPlans) -> list[Column]:
    """Degrees that any plan uses, replicas, and micro-batch size."""
    plans = [each.plan for each in shown.estimates]
    return [
        *(
            Column(title=name.removeprefix("tp_"), cells=[str(getattr(p, name)) for p in plans])
            for name in shown.degrees
        ),
        Column(title="dp", cells=[str(each.dp) for each in shown.estimates]),
        Column(title="mb", cells=[str(plan.micro_batch_size) for plan in plans]),
    ]


def _switches(shown: ListedPlans) -> list[Column]:
    """Other fields in which the plans differ."""
    return [
        Column(
            title=name.replace("_", " "),
            cells=[field_text(getattr(each.plan, name)) for each in shown.estimates],
            is_text=True,
            rank=4,
        )
        for name in shown.switches
    ]

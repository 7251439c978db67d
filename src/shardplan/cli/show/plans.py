"""The best plans of a search as a table."""

from __future__ import annotations

from collections.abc import Sequence

from shardplan.cli.layout import Column, Page
from shardplan.estimation.estimate import Estimate
from shardplan.planner.result import SearchResult
from shardplan.planner.robustness import Ties
from shardplan.reports.recommendation import Recommendation, simulated_sentences, simulated_text
from shardplan.reports.texts.answer import num_that_fit, percent, signed_time
from shardplan.reports.texts.plan import field_text, short_recompute, short_sharding
from shardplan.units import format_bytes, format_time

SWITCHES = ("tp_kind", "cp_comm", "schedule", "offload", "sequence_parallel", "overlap_tp", "overlap_dp", "overlap_ep")
"""Fields that are in the table only where plans differ in them."""
SAME_TIME = 1e-9


def show_plans(page: Page, result: SearchResult, found: Recommendation, most: int) -> None:
    """The best ``most`` plans, best first, with the recommended one among them."""
    assert result.ties is not None
    ties, best = result.ties, result.estimates[0]
    listed = list(result.estimates[:most])
    if found.place is None or found.place > most:
        listed = sorted([*listed, found.estimate], key=lambda e: max(ties.time_of(e), ties.time_of(best)))
    that_fit = f"of {num_that_fit(result)} that fit"
    if len(listed) == 1:
        page.heading("Best plans", f"{that_fit}: the one above")
    else:
        page.heading("Best plans", f"{that_fit}, each with other degrees; mb: micro-batch")
        lost = ["" if e is best else _lost(ties.time_of(e), ties.time_of(best)) for e in listed]
        retimed = ties.retimed
        places = {e.plan: str(number) for number, e in enumerate(result.estimates, start=1)}
        columns = [
            Column(title="", cells=[places.get(e.plan, "") for e in listed]),
            Column(title="", cells=[_mark(e, ties, best) for e in listed], is_text=True),
            Column(title="step", cells=[format_time(e.step_time) for e in listed]),
            *([] if retimed is None else [Column(title=SIMULATED, cells=[simulated_text(retimed, e) for e in listed])]),
            Column(title="lost", cells=lost, rank=3),
            Column(title=WORST, cells=[_worst(e, ties) for e in listed], rank=5),
            Column(title="MFU", cells=[percent(e.mfu) for e in listed], rank=2),
            Column(title="memory", cells=[memory_text(e) for e in listed]),
            *_degrees(listed),
            *_switches(listed),
            Column(title="sharding", cells=[short_sharding(e.plan) for e in listed], is_text=True, rank=1),
            Column(title="recompute", cells=[short_recompute(e.plan) for e in listed], is_text=True, rank=1),
        ]
        styles = ["bold green" if e.plan == found.estimate.plan else "bold" if e is best else "" for e in listed]
        titles = page.table(columns, styles=styles)
        page.line(_legend(listed, ties, titles), style="dim")
        for sentence in simulated_sentences(ties, result.estimates):
            page.line(sentence, style="dim")


RECOMMENDED, TIE, FULL = "*", "=", "!"
"""Marks of the table of plans."""
SIMULATED = "simulated"
WORST = "at worst"
"""Title of the pessimistic step times."""


def _lost(time: float, least: float) -> str:
    difference = time - least
    return signed_time(difference) if difference > SAME_TIME * least else "same"


def _mark(estimate: Estimate, ties: Ties, fastest: Estimate) -> str:
    if estimate.plan == ties.recommended.plan:
        return RECOMMENDED
    return TIE if estimate.plan in ties.robustness and estimate.plan != fastest.plan else ""


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
    if any(_mark(each, ties, listed[0]) == TIE for each in listed):
        texts.append(f"{TIE} within {100 * (ties.factor - 1):.0f} %, too close to call")
    if not all(each.has_headroom for each in listed):
        texts.append(f"{FULL} may not fit")
    if WORST in titles:
        texts.append(
            f"{WORST}: if network, overlap and host are all worse than assumed, and unmeasured plans take longer"
        )
    return "; ".join(texts)


def _degrees(estimates: Sequence[Estimate]) -> list[Column]:
    """The degrees; those that are one in every plan are left out."""
    names = {"tp": "tp", "rows": "tp_rows", "cp": "cp", "pp": "pp", "vp": "vp", "ep": "ep", "etp": "etp"}
    values = {title: [getattr(e.plan, name) for e in estimates] for title, name in names.items()}
    shown = {name: degrees for name, degrees in values.items() if any(degree != 1 for degree in degrees)}
    columns = [Column(title=name, cells=[str(degree) for degree in degrees]) for name, degrees in shown.items()]
    columns.append(Column(title="dp", cells=[str(e.dp) for e in estimates]))
    columns.append(Column(title="mb", cells=[str(e.plan.micro_batch_size) for e in estimates]))
    return columns


def _switches(estimates: Sequence[Estimate]) -> list[Column]:
    """Other fields in which the plans differ."""
    values = {name: [field_text(getattr(e.plan, name)) for e in estimates] for name in SWITCHES}
    return [
        Column(title=name.replace("_", " "), cells=cells, is_text=True, rank=4)
        for name, cells in values.items()
        if len(set(cells)) > 1
    ]

"""The rest of the answer of ``plan``: the best plans, what limits the first, what others lose, what was searched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.text import Text

from shardplan.cli.layout import Column, Page, joined
from shardplan.cli.show.answer import percent, show_memory, show_plan
from shardplan.estimation.estimate import Estimate
from shardplan.inputs.plan import Plan
from shardplan.planner.result import SearchResult
from shardplan.planner.robustness import Ties, has_headroom
from shardplan.reports.breakdown import term_label
from shardplan.reports.explanation import Alternative, Difference, Explanation
from shardplan.reports.plan_words import field_text, plan_words, short_changes, short_recompute, short_sharding
from shardplan.reports.recommendation import Recommendation, offer_text, reason, ties_sentence
from shardplan.units import format_bytes, format_time

MOST_RULES = 3
SWITCHES = ("tp_kind", "cp_comm", "schedule", "offload", "sequence_parallel", "overlap_tp", "overlap_dp", "overlap_ep")
"""Fields that stand in the table of plans only where plans differ in them."""
SMALLEST_CHANGE = 5e6
SAME_TIME = 1e-9
WIDE = 100
"""From this width on alternatives stand in columns."""


def show_recommended(page: Page, found: Recommendation) -> None:
    """The recommended plan where it is not the fastest, and why."""
    if found.is_fastest:
        return
    words = page.glyph(" \u00b7 ", ", ").join(plan_words(found.estimate))
    page.hanging(Text("Recommended", style="bold green"), Text(f"{words}: {reason(found)}"), indent=0)


def show_offers(page: Page, result: SearchResult) -> None:
    """Neighbouring counts and batches that train more tokens a second, with the flags that ask for them."""
    for offer in result.offers:
        page.hanging(Text("Better", style="bold yellow"), Text(offer_text(result.question, offer)), indent=0)


def show_plans(page: Page, result: SearchResult, found: Recommendation) -> None:
    """The best plans, best first, with the recommended one among them; which of them tie, and what that means."""
    assert result.ties is not None
    ties, best = result.ties, result.estimates[0]
    listed = list(result.estimates)
    if found.place is None:
        listed = sorted([*listed, found.estimate], key=lambda e: max(e.step_time, best.step_time))
    page.heading("Best plans", "each with other degrees; mb: micro-batch size")
    if len(listed) > 1:
        places = {id(e): str(place) for place, e in enumerate(result.estimates, start=1)}
        lost = ["" if e is best else _lost(e, best) for e in listed]
        columns = [
            Column(title="", cells=[places.get(id(e), "") for e in listed]),
            Column(title="", cells=[_mark(e, ties, best) for e in listed], is_text=True),
            Column(title="step", cells=[format_time(e.step_time) for e in listed]),
            Column(title="lost", cells=lost, rank=3),
            Column(title=WORST, cells=[_worst(e, ties) for e in listed], rank=5),
            Column(title="MFU", cells=[percent(e.mfu) for e in listed], rank=2),
            Column(title="memory", cells=[_memory(e) for e in listed]),
            *_degrees(listed),
            *_switches(listed),
            Column(title="sharding", cells=[short_sharding(e.plan) for e in listed], is_text=True, rank=1),
            Column(title="recompute", cells=[short_recompute(e.plan) for e in listed], is_text=True, rank=1),
        ]
        styles = ["bold green" if e.plan == found.estimate.plan else "bold" if e is best else "" for e in listed]
        titles = page.table(columns, styles=styles)
        page.line(_legend(listed, ties, titles), style="dim")
    page.line(f"{ties_sentence(ties, result.num_plans_feasible)}{_verdict(found, ties)}")


RECOMMENDED, TIE, FULL = "*", "=", "!"
"""Marks of the table of plans."""
WORST = "at worst"
"""Title of the pessimistic step times."""


def _lost(estimate: Estimate, fastest: Estimate) -> str:
    difference = estimate.step_time - fastest.step_time
    return _signed_time(difference) if difference > SAME_TIME * fastest.step_time else "same"


def _mark(estimate: Estimate, ties: Ties, fastest: Estimate) -> str:
    if estimate.plan == ties.recommended.plan:
        return RECOMMENDED
    return TIE if estimate.plan in ties.robustness and estimate.plan != fastest.plan else ""


def _worst(estimate: Estimate, ties: Ties) -> str:
    """Step time where all that is uncertain is worse; known of ties."""
    found = ties.robustness.get(estimate.plan)
    return "" if found is None else format_time(found.pessimistic_time)


def _memory(estimate: Estimate) -> str:
    """Peak memory, marked where it might not fit."""
    return format_bytes(estimate.peak_memory_bytes) + (" " if has_headroom(estimate) else FULL)


def _legend(listed: Sequence[Estimate], ties: Ties, titles: Sequence[str]) -> str:
    """What the marks mean that stand in the table."""
    texts = [f"{RECOMMENDED} recommended"]
    if any(_mark(each, ties, listed[0]) == TIE for each in listed):
        texts.append(f"{TIE} ties with the fastest")
    if not all(has_headroom(each) for each in listed):
        texts.append(f"{FULL} does not fit at the upper end of its memory band")
    if WORST in titles:
        texts.append(
            f"{WORST}: if network, overlap and host are all worse than assumed, and unmeasured plans take longer"
        )
    return "; ".join(texts)


def _verdict(found: Recommendation, ties: Ties) -> str:
    """Which of the ties is recommended, where that is soon said."""
    if not found.is_fastest:
        return ""
    return " The fastest is recommended." if ties.num_plans == 1 else " The fastest is the most robust of them too."


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


def show_explanation(page: Page, explanation: Explanation, estimates: Sequence[Estimate]) -> None:
    """What limits the best plan, and what comes of each alternative."""
    page.heading("What limits it")
    losses = [f"{term_label(s.name)} {format_time(s.value)} ({percent(s.share)})" for s in explanation.losses]
    page.line(
        f"Matrix products and attention take {percent(explanation.compute.share)} of the step."
        + (f" The largest losses are {joined(losses)}." if losses else "")
    )
    page.line(_memory_sentence(explanation))
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
        return f"not valid: {(alternative.broken_rule or '').partition(':')[0]}"
    if alternative.alone.missing_bytes:
        return f"{format_bytes(alternative.alone.missing_bytes)} too much"
    return f"{_signed_time(alternative.alone.time_lost)}{_because(alternative.alone)}"


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
    lost = f"{_signed_time(alternative.best.time_lost)}, {_signed_bytes(alternative.best.memory_added)}"
    if alternative.best.estimate.plan in known:
        return f"{lost}: {known[alternative.best.estimate.plan]}"
    also = short_changes(alternative.best.also_changed(best, alternative.change), alternative.best.estimate.plan)
    return f"{lost}: {', '.join(also)}" if also else f"{lost}: nothing else changes"


def _signed_time(time: float) -> str:
    return ("+" if time >= 0 else "-") + format_time(abs(time))


def _signed_bytes(num_bytes: float) -> str:
    if abs(num_bytes) < SMALLEST_CHANGE:
        return "same memory"
    return ("+" if num_bytes >= 0 else "-") + format_bytes(abs(num_bytes))


def show_account(page: Page, result: SearchResult) -> None:
    """How much was searched, and what the best is the best of."""
    page.heading("Searched")
    axes = {name: values for name, values in result.space.items() if len(values) > 1}
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


def show_no_answer(page: Page, result: SearchResult) -> None:
    """What is missing where nothing fits, and what would fit."""
    page.console.print()
    verdict = Text("Nothing fits. " if result.num_plans_evaluated else "No plan is valid. ", style="bold red")
    if result.smallest is not None:
        verdict.append(f"Of the plan that needs least memory, {result.smallest.reason}.")
    elif not result.num_plans_evaluated:
        verdict.append("Every combination of the declared space breaks a rule.")
    page.line(verdict, indent=0)
    if result.smallest is not None:
        show_plan(page, result.smallest)
        show_memory(page, result.smallest)
    if not result.suggestions:
        page.line("None of the changes that were tried (more accelerators, offload, fewer restrictions) fits.")
        return
    page.heading("What would fit", "each checked by the estimate")
    best = [each.estimate for each in result.suggestions]
    page.table(
        [
            Column(title="step", cells=[format_time(e.step_time) for e in best]),
            Column(title="memory", cells=[format_bytes(e.peak_memory_bytes) for e in best]),
            Column(title="accelerators", cells=[f"{e.num_accelerators:,}" for e in result.suggestions], rank=1),
            Column(title="change", cells=[each.change for each in result.suggestions], is_text=True),
        ]
    )

"""Answers of decisions as sentences and cells, alike on the command line and on pages."""

from __future__ import annotations

from typing import Final

from shardplan.decisions.budget import BudgetOption
from shardplan.decisions.largest import LargestFit, Tried
from shardplan.decisions.whatif import ChangeStep, TermChange, WhatIf
from shardplan.estimation.estimate import Estimate
from shardplan.units import format_count, format_time

NONE: Final = "-"
SOUGHT: Final = {
    "sequence_length": "sequence length",
    "micro_batch_size": "micro-batch size",
    "layers": "number of layers",
    "gpus": "number of accelerators",
}
"""What ``fit`` seeks."""
SOUGHT_UNITS: Final = {
    "sequence_length": " tokens", "micro_batch_size": " sequences", "layers": " layers", "gpus": "",
}  # fmt: skip
WHOLE_TONNES: Final = 100
"""Carbon from here on is shown without decimals. [t]"""
UNCHANGED: Final = 1e-9
"""Share of a term below which a change is none."""


def whatif_sentence(found: WhatIf) -> str:
    """The step before and after all changes."""
    before, after = found.before.estimate, found.after.estimate
    if after is None:
        return f"Nothing fits after the changes: {found.after.reason}."
    if before is None:
        return f"{format_time(after.step_time)} a step after the changes; before, nothing fits."
    band = f"{format_time(after.step_time_p10)} to {format_time(after.step_time_p90)}"
    share = change_text(before.step_time, after.step_time)
    return f"{format_time(before.step_time)} before, {format_time(after.step_time)} after ({band}): {share}."


def change_text(before: float, after: float) -> str:
    """How much longer or shorter."""
    share = after / before - 1
    if abs(share) < 5e-4:
        return "no change"
    return f"{abs(100 * share):.1f} % {'longer' if share > 0 else 'shorter'}"


def whatif_cells(found: WhatIf) -> list[tuple[str, str, str, str]]:
    """Of the question as it was and after each change: label, the same plan, the plan to take, against before."""
    first = found.before.estimate
    return [
        (
            each.label or "before",
            _same(each.same_plan),
            NONE if each.answered.estimate is None else format_time(each.answered.estimate.step_time),
            _against(first, each.answered.estimate),
        )
        for each in found.steps
    ]


def _same(same: Estimate | None) -> str:
    if same is None:
        return "not valid"
    return format_time(same.step_time) if same.feasible else "too big"


def _against(first: Estimate | None, estimate: Estimate | None) -> str:
    if first is None or estimate is None or first is estimate:
        return NONE
    return f"{100 * (estimate.step_time / first.step_time - 1):+.1f} %"


def whatif_notes(found: WhatIf) -> list[str]:
    """Why a plan cannot be taken after a change."""
    return [f"{each.label}: {why}" for each in found.steps if (why := _note(each))]


def _note(step: ChangeStep) -> str:
    if step.answered.reason is not None:
        return step.answered.reason
    return "" if step.same_plan_reason is None else f"the same plan: {step.same_plan_reason}"


def changed_terms(found: WhatIf) -> list[TermChange]:
    """Terms of the step that change, the largest change first."""
    return [each for each in found.terms if abs(each.change) > UNCHANGED * each.before]


def signed_change(change: float) -> str:
    """A change of a time."""
    return f"{'+' * (change > 0)}{format_time(change)}"


def fit_sentence(fit: LargestFit) -> str:
    """The value that fits, and what the next one does."""
    name, unit = SOUGHT[fit.sought], SOUGHT_UNITS[fit.sought]
    if fit.value is None:
        why = fit.answered.reason or fit.bound or "no plan is valid"
        return f"No {name} fits: {why}."
    text = f"The {'largest' if fit.is_largest else 'smallest'} {name} that fits is {fit.value:,}{unit}."
    if fit.bound is not None:
        return f"{text} The search ends there: {fit.bound}."
    return text if fit.next_value is None else f"{text} {fit.next_value:,}{unit} does not fit."


def tried_near(fit: LargestFit, most: int) -> list[Tried]:
    """Values next to the answer that were tried."""
    values = [each.value for each in fit.tried]
    place = values.index(fit.value) if fit.value in values else len(values) - 1
    start = max(min(place - most // 2, len(values) - most), 0)
    return list(fit.tried[start : start + most])


def budget_takes(option: BudgetOption) -> tuple[str, str]:
    """Time and place of a run, and the band of its time."""
    low, high = (format_time(time) for time in (option.duration.wall_time_p10, option.duration.wall_time_p90))
    where = f"{option.num_accelerators:,} x {option.question.cluster.accelerator.full_name}, {_domains(option)}"
    return f"{format_time(option.wall_time)} on {where}", f"{low} to {high} by the band of the step time"


def _domains(option: BudgetOption) -> str:
    """The cluster, with the nodes or racks that the accelerators fill where they fill one or more."""
    innermost, name = option.question.cluster.tiers[0], option.question.cluster.name
    num_domains = option.num_accelerators / innermost.size if innermost.size else 0.0
    if num_domains < 1:
        return name
    count = f"{num_domains:,.0f}" if num_domains.is_integer() else f"{num_domains:,.1f}"
    return f"{count} {innermost.name}{'s' * (num_domains != 1)} of {name}"


def budget_notes(option: BudgetOption) -> list[str]:
    """What is not measured about a run, and the price that is missing, as sentences."""
    unmeasured, part = option.estimate.not_measured, option.question.cluster.accelerator.name
    notes = [] if unmeasured is None else [f"Outside the measured runs: {unmeasured}."]
    return notes if option.price is not None else [*notes, f"No price of {part} is known: give one (--price)."]


def money_text(option: BudgetOption) -> str:
    """What a run costs."""
    if option.money is None or option.price is None:
        return "no price"
    return f"{format_count(round(option.money))} {option.price.currency}"


def energy_text(option: BudgetOption) -> str:
    """Energy of the data centre."""
    return NONE if option.energy is None else f"{option.energy.total / 1e6:.3g} GWh"


def carbon_text(option: BudgetOption) -> str:
    """Carbon dioxide, in tonnes."""
    if option.carbon is None:
        return NONE
    return f"{option.carbon:,.0f} t" if option.carbon >= WHOLE_TONNES else f"{option.carbon:.3g} t"

"""Answers of decisions as sentences and cells, alike on the command line and on pages."""

from __future__ import annotations

from typing import Final

from shardplan.decisions.budget import BudgetOption
from shardplan.decisions.largest import LargestFit, Tried
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

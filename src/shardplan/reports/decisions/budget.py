"""The runs of a budget side by side, as a record, as rows and as text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from shardplan.decisions.budget import BudgetOption, ClusterBudget
from shardplan.decisions.goodput import DAY
from shardplan.records import Record
from shardplan.reports.plan_file import estimate_record
from shardplan.units import format_count, format_time
from shardplan.version import VERSION

SCHEMA: Final = "shardplan/budget/1"
ACCOUNTS: Final = ("productive", "recomputed", "checkpoint", "detection", "restart", "start_up")
LEFT_OUT: Final = ("accounts_s", "plan", "stages", "assumptions", "shortfalls")
"""Keys of an option whose values are no single number or text."""


def budget_record(budgets: Sequence[ClusterBudget]) -> Record:
    """``options``: the run on each cluster; ``without_plan``: clusters on which there is none, and why."""
    options = [each.option for each in budgets if each.option is not None]
    model = next((each.question.model.name for each in options), None)
    return {
        "schema": SCHEMA,
        "shardplan_version": VERSION,
        "model": model,
        "tokens": next((each.question.job.tokens for each in options), None),
        "options": [_option_record(each.option, each.num_sizes) for each in budgets if each.option is not None],
        "without_plan": [
            {"cluster": each.cluster.name, "reason": each.reason} for each in budgets if each.option is None
        ],
    }


def _option_record(option: BudgetOption, num_searches: int) -> Record:
    duration, recovery = option.duration, option.duration.recovery
    return {
        "cluster": option.question.cluster.name,
        "meets_limits": not option.shortfalls,
        "shortfalls": [*option.shortfalls],
        "num_accelerators": option.num_accelerators,
        "days": option.days,
        "days_p10": duration.wall_time_p10 / DAY,
        "days_p90": duration.wall_time_p90 / DAY,
        "goodput": duration.accounts.goodput,
        "accounts_s": {name: getattr(duration.accounts, name) for name in ACCOUNTS},
        "accelerator_hours": option.accelerator_hours,
        "money": option.money,
        "currency": None if option.price is None else option.price.currency,
        "price_per_accelerator_hour": None if option.price is None else option.price.per_hour,
        "energy_kwh": None if option.energy is None else option.energy.total,
        "accelerator_energy_kwh": None if option.energy is None else option.energy.accelerators,
        "carbon_t": option.carbon,
        "mfu": option.estimate.mfu,
        "step_time_s": option.estimate.step_time,
        "num_steps": option.num_steps,
        "num_failures": duration.num_failures,
        "time_between_failures_s": _or_none(1 / recovery.failures_per_second if recovery.failures_per_second else None),
        "checkpoint_bytes": duration.checkpoint_bytes,
        "checkpoint_write_time_s": recovery.write_time,
        "checkpoint_interval_s": _or_none(recovery.interval),
        "restart_time_s": recovery.restart_time,
        "spares": option.spares,
        "spares_needed": option.spares_needed,
        "global_batch_size": option.question.job.global_batch_size,
        "sequence_length": option.question.job.sequence_length,
        "num_searches": num_searches,
        "plan": estimate_record(option.estimate),
        "stages": [
            {
                "num_steps": stage.num_steps,
                "global_batch_size": stage.question.job.global_batch_size,
                "sequence_length": stage.question.job.sequence_length,
                "step_time_s": stage.estimate.step_time,
            }
            for stage in option.stages
        ],
        "assumptions": [*option.assumptions],
    }


def _or_none(value: float | None) -> float | None:
    """A time; None where it is endless."""
    return value if value is not None and math.isfinite(value) else None


def budget_rows(budgets: Sequence[ClusterBudget]) -> list[dict[str, Any]]:
    """A row for each run: its numbers, its accounts in seconds and the degrees of its plan."""
    rows = []
    for record in budget_record(budgets)["options"]:
        row = {name: value for name, value in record.items() if name not in LEFT_OUT}
        row |= {f"{name}_s": time for name, time in record["accounts_s"].items()}
        rows.append(row | {name: record["plan"]["plan"][name] for name in ("tp", "cp", "pp", "vp", "ep")})
    return rows


def budget_line(budget: ClusterBudget) -> str:
    """A cluster's answer in a line."""
    option = budget.option
    if option is None:
        return f"{budget.cluster.name}: {budget.reason}"
    hours = format_count(round(option.accelerator_hours))
    size = f"{option.num_accelerators:,} x {budget.cluster.name}"
    text = f"{size}: {format_time(option.wall_time)}, {hours} accelerator-hours"
    return f"{text}, misses {'; '.join(option.shortfalls)}" if option.shortfalls else text

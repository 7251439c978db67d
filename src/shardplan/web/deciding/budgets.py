"""Budgets of a whole run, on one cluster or on several side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from shardplan.decisions import budget as budgets
from shardplan.decisions.operations import Operations
from shardplan.decisions.searching import Progress, Searches
from shardplan.inputs.readers.typed import number, values_of, whole
from shardplan.planner.stopping import Stop
from shardplan.plotting.budget import budget_chart
from shardplan.reports.decisions.budget import budget_record
from shardplan.reports.texts.answer import percent
from shardplan.reports.texts.decisions import budget_notes, budget_takes, carbon_text, energy_text, money_text
from shardplan.units import format_bytes, format_count, format_time
from shardplan.web.deciding.common import Shown, Values, link, listed, plan_text, row, share
from shardplan.web.figures.panels import panel_figures
from shardplan.web.state import MOST_ACCELERATORS, PageQuestion, about_field, named

OPERATIONS: Final = {
    "failure_rate": "Failures per 1,000 accelerators and day",
    "checkpoint_bandwidth": "Bandwidth of checkpoints",
    "spares": "Spare nodes",
    "pue": "Power usage effectiveness",
}
TITLES: Final = ["cluster", "accelerators", "time", "hours", "money", "energy", "CO2", "MFU", "goodput"]


def budget(question: PageQuestion, values: Values, stop: Stop, progress: Progress) -> Shown:
    """Accelerators, days, money, energy and failures of a whole run."""
    job = {**question.job, "tokens": values["budget_tokens"]}
    changed = question.with_values(job=job, price=values["budget_price"])
    with about_field("ops"):
        given = {key.removeprefix("ops."): value for key, value in values.items() if key.startswith("ops.")}
        operations = Operations(**values_of(Operations, given))
    limits = _limits(question, values)
    each = [(one, _of(one, limits, operations, stop, progress)) for one in _on_clusters(changed, values)]
    return _one(*each[0]) if len(each) == 1 else _several(each)


def _on_clusters(question: PageQuestion, values: Values) -> list[PageQuestion]:
    """The question on every cluster that is named. Raises FieldError."""
    if not values["budget_clusters"]:
        return [question]
    with about_field("budget_clusters"):
        names = [named("cluster", name) for name in listed(values["budget_clusters"])]
    own = question.cluster
    return [
        question if name == own else question.with_values(cluster=name, accelerator="") for name in dict.fromkeys(names)
    ]


def _of(
    question: PageQuestion, limits: budgets.Limits, operations: Operations, stop: Stop, progress: Progress
) -> budgets.ClusterBudget:
    put = question.put_search(stop)
    searches = Searches(stack=put.stack, limit=question.restrictions(), stop=stop)
    asked = budgets.RunQuestion(put.question, searches, put.assumptions, "global_batch_size" in question.job)
    return budgets.budget_of(asked, limits, operations, progress=progress)


def _several(each: list[tuple[PageQuestion, budgets.ClusterBudget]]) -> Shown:
    """The runs side by side, the one that is done soonest as the verdict."""
    found = [(question, budget, budget.option) for question, budget in each if budget.option is not None]
    without = [f"No plan on {budget.cluster.name}: {budget.reason}." for _, budget in each if budget.option is None]
    if not found:
        return _no_plan(" ".join(without))
    record = budget_record([budget for _, budget in each])
    _, _, option = min(found, key=lambda one: (bool(one[2].shortfalls), one[2].wall_time))
    takes, band = budget_takes(option)
    return {
        "verdict": f"{'Misses' if option.shortfalls else 'Takes'} {takes}",
        "note": " ".join(
            (f"Done soonest of {len(each)} clusters; {band}.", *budget_notes(option), *_missed(found), *without)
        ),
        "figures": panel_figures(budget_chart(record)),
        "titles": TITLES,
        "rows": [
            row(
                [
                    budget.cluster.name,
                    f"{option.num_accelerators:,}",
                    format_time(option.wall_time),
                    format_count(round(option.accelerator_hours)),
                    money_text(option),
                    energy_text(option),
                    carbon_text(option),
                    percent(option.estimate.mfu),
                    percent(option.duration.accounts.goodput),
                ],
                plan_text(option.estimate),
                link(question, option.estimate, gpus=str(option.num_accelerators)),
            )
            for question, budget, option in found
        ],
        "assumptions": dict.fromkeys(text for _, _, option in found for text in option.assumptions),
    }


def _missed(found: list[tuple[PageQuestion, budgets.ClusterBudget, budgets.BudgetOption]]) -> Iterator[str]:
    for _, budget, option in found:
        if option.shortfalls:
            yield f"{budget.cluster.name}: {'; '.join(option.shortfalls)}."


def _one(question: PageQuestion, found: budgets.ClusterBudget) -> Shown:
    """The run on one cluster in full."""
    if found.option is None:
        return _no_plan(found.reason or "")
    record = budget_record((found,))
    option = record["options"][0]
    takes, band = budget_takes(found.option)
    trains = f"{band}; {share(option['goodput'])} of the time trains."
    return {
        "verdict": f"{'Misses' if found.option.shortfalls else 'Takes'} {takes}",
        "note": " ".join(("; ".join(option["shortfalls"]) or trains, *budget_notes(found.option))),
        "figures": panel_figures(budget_chart(record)),
        "titles": ["quantity", "value"],
        "rows": [row([name, text]) for name, text in _account(option)],
        "plan": row(
            [],
            plan_text(found.option.estimate),
            link(question, found.option.estimate, gpus=str(found.option.num_accelerators)),
        ),
        "assumptions": option["assumptions"],
    }


def _no_plan(reason: str) -> Shown:
    return {"verdict": "No plan", "note": reason, "figures": [], "titles": [], "rows": [], "assumptions": ()}


def _limits(question: PageQuestion, values: Values) -> budgets.Limits:
    """What limits the run: the accelerators of the question, or days, money or energy."""
    kind, text = values["budget_limit"], values["budget_value"]
    if kind == "gpus":
        with about_field("gpus"):
            return budgets.Limits(num_accelerators=whole(question.gpus, "gpus", most=MOST_ACCELERATORS))
    with about_field("budget_value"):
        value = number(text, kind)
    limits: dict[str, Any] = {kind: value}
    return budgets.Limits(**limits)


def _account(option: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "steps", f"{option['num_steps']:,}"
    yield "step", format_time(option["step_time_s"])
    yield "MFU", percent(option["mfu"])
    yield "accelerator-hours", format_count(round(option["accelerator_hours"]))
    if option["money"] is not None:
        yield "money", f"{option['money']:,.0f} {option['currency']}"
    if option["energy_kwh"] is not None:
        yield "energy", f"{option['energy_kwh'] / 1e6:,.3g} GWh"
    if option["carbon_t"] is not None:
        yield "carbon", f"{option['carbon_t']:,.0f} t"
    yield "failures", f"{option['num_failures']:,.0f}"
    if option["time_between_failures_s"] is not None:
        yield "time between failures", format_time(option["time_between_failures_s"])
    yield (
        "checkpoint",
        f"{format_bytes(option['checkpoint_bytes'])}, written in {format_time(option['checkpoint_write_time_s'])}",
    )
    if option["checkpoint_interval_s"] is not None:
        yield "time between checkpoints", format_time(option["checkpoint_interval_s"])
    yield "time of a restart", format_time(option["restart_time_s"])
    yield "spare accelerators needed", f"{option['spares_needed']:,}" if option["spares_needed"] is not None else "-"

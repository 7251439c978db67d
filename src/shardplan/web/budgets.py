"""The budget of a whole run as a decision of the page, and its cost against time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from shardplan.answers.decisions.budget import budget_document
from shardplan.base.errors import ShardplanError, UnknownNameError
from shardplan.decide import budget as budgets
from shardplan.decide.budget import BudgetOption
from shardplan.decide.operations import Operations
from shardplan.decide.searching import Progress
from shardplan.inputs.readers.typed import number, values_of
from shardplan.planner.stopping import Stop
from shardplan.plotting.chart import PALETTE, Axis, Panel, Series
from shardplan.web.decisions import Shown, Values, link, listed, searches, shown
from shardplan.web.panels import figures_of
from shardplan.web.state import PageQuestion, about_field, named

OPERATIONS: Final = {
    "failure_rate": "Failures per 1,000 accelerators and day",
    "checkpoint_bandwidth": "Bandwidth of checkpoints",
    "spares": "Spare nodes",
    "pue": "Power usage effectiveness",
}


def budget(question: PageQuestion, values: Values, stop: Stop, progress: Progress) -> Shown:
    """Accelerators, days, money, energy and failures of a whole run."""
    job = {**question.job, "tokens": values["budget_tokens"]}
    changed = question.with_values(job=job, price=values["budget_price"])
    with about_field("ops"):
        given = {key.removeprefix("ops."): value for key, value in values.items() if key.startswith("ops.")}
        operations = Operations(**values_of(Operations, given))
    limits = _limits(question, values)
    each = [(one, _budget_of(one, limits, operations, stop, progress)) for one in _on_clusters(changed, values)]

    def address(found: budgets.ClusterBudget) -> str:
        asked = next(one for one, other in each if other is found)
        run = found.option
        return "" if run is None else link(asked, run.estimate, gpus=str(run.num_accelerators))

    document = shown(budget_document([found for _, found in each]), address)
    around = SIZES_AROUND if limits.num_accelerators else (1,)
    runs = [*_at_other_sizes(each, around, operations, stop)]
    against = cost_against_time(runs)
    if against is not None:
        single = SINGLE_BARS if len(each) > 1 else ONE_RUN
        document["figures"] = [one for one in document["figures"] if one["title"] not in single] + [against]
        document["note"] *= len(each) > 1
    return document


SIZES_AROUND: Final = (0.5, 1, 2)
"""Sizes of the same run next to the one that is asked for."""


def _at_other_sizes(
    asked: Sequence[tuple[PageQuestion, budgets.ClusterBudget]],
    factors: Sequence[float],
    operations: Operations,
    stop: Stop,
) -> Iterator[BudgetOption]:
    """The runs at these multiples of their accelerators, where a plan fits."""
    for question, own in asked:
        for factor in factors:
            found: budgets.ClusterBudget | None = own
            if factor != 1:
                size = round(factor * question.posed().question.num_given)
                found = _budget_or_none(question.with_values(gpus=str(size)), size, operations, stop)
            if found is not None and found.option is not None:
                yield found.option


def _budget_or_none(
    question: PageQuestion, size: int, operations: Operations, stop: Stop
) -> budgets.ClusterBudget | None:
    try:
        return _budget_of(question, budgets.Limits(num_accelerators=size), operations, stop, lambda _done, _of: None)
    except ShardplanError:
        return None


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


def _budget_of(
    question: PageQuestion, limits: budgets.Limits, operations: Operations, stop: Stop, progress: Progress
) -> budgets.ClusterBudget:
    posed = question.posed_search(stop)
    search = searches(question, posed, stop)
    asked = budgets.RunQuestion(posed.question, search, posed.assumptions, "global_batch_size" in question.job)
    return budgets.budget_of(asked, limits, operations, progress=progress)


def _limits(question: PageQuestion, values: Values) -> budgets.Limits:
    """What limits the run: the accelerators of the question, or days, money or energy."""
    kind, text = values["budget_limit"], values["budget_value"]
    if kind == "gpus":
        return budgets.Limits(num_accelerators=question.posed().question.num_given)
    with about_field("budget_limit"):
        if kind not in LIMITED:
            raise UnknownNameError("limit of a run", kind, LIMITED, hint=f"one of {', '.join(LIMITED)}")
    with about_field("budget_value"):
        value = number(text, kind)
    limits: dict[str, Any] = {kind: value}
    return budgets.Limits(**limits)


LIMITED: Final = ("gpus", "days", "money", "energy")
SINGLE_BARS: Final = ("money", "energy")
"""Panels that one figure of cost against time takes the place of."""
ONE_RUN: Final = (*SINGLE_BARS, "time")
"""Without others to compare: the table has what its time is spent on."""


def cost_against_time(runs: Sequence[BudgetOption]) -> Shown | None:
    """Money over days, or energy where no price is known; each point a size. None where neither is known."""
    kind = "money" if all(run.money is not None for run in runs) else "energy"
    clusters = dict.fromkeys(run.question.cluster.name for run in runs)
    costs = {id(run): run.money if kind == "money" else run.energy and run.energy.total for run in runs}
    if not runs or any(cost is None for cost in costs.values()):
        return None
    currency = next((run.price.currency for run in runs if run.price), "")
    series = tuple(
        Series(
            name=name if len(clusters) > 1 else "",
            x=[run.days for run in of_it],
            y=[(costs[id(run)] or 0.0) / 1e6 for run in of_it],
            marker="circle",
            colour=PALETTE[place % len(PALETTE)],
            labels=[f"{run.num_accelerators:,}" for run in of_it],
        )
        for place, name in enumerate(clusters)
        for of_it in [sorted((run for run in runs if run.question.cluster.name == name), key=lambda run: run.days)]
    )
    unit = f"million {currency}" if kind == "money" else "GWh"
    panel = Panel(
        title=f"{kind.capitalize()} against time, with accelerators",
        x=Axis(title="time [days]"),
        y=Axis(title=f"{kind} [{unit}]"),
        series=series,
    )
    return figures_of([panel])[0]

"""Budgets of a whole run, on one cluster or on several side by side."""

from __future__ import annotations

from typing import Any, Final

from shardplan.answers.budget import budget_document
from shardplan.decisions import budget as budgets
from shardplan.decisions.operations import Operations
from shardplan.decisions.searching import Progress, Searches
from shardplan.inputs.readers.typed import number, values_of, whole
from shardplan.planner.stopping import Stop
from shardplan.web.deciding.common import Shown, Values, link, listed, shown
from shardplan.web.state import MOST_ACCELERATORS, PageQuestion, about_field, named

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
    each = [(one, _of(one, limits, operations, stop, progress)) for one in _on_clusters(changed, values)]

    def address(found: budgets.ClusterBudget) -> str:
        asked = next(one for one, other in each if other is found)
        run = found.option
        return "" if run is None else link(asked, run.estimate, gpus=str(run.num_accelerators))

    return shown(budget_document([found for _, found in each]), address)


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

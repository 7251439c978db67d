"""What if the cluster or the job changes: the plan to take is sought anew after every change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from shardplan.answers.whatif import whatif_document
from shardplan.decisions.searching import Answered, Progress, Searches
from shardplan.decisions.whatif import CLUSTER, change_of, check_named_once, what_if
from shardplan.errors import InputError, UnknownNameError
from shardplan.estimation.question import PutQuestion
from shardplan.estimation.written import filled
from shardplan.inputs.plan import Plan
from shardplan.inputs.readers.catalog import load_cluster
from shardplan.planner.stopping import Stop
from shardplan.web.deciding.common import Shown, Values, searches, shown
from shardplan.web.state import PageQuestion, about_field, named, plan_in

CHANGES: Final = {
    "inter_node_bandwidth": "Bandwidth between nodes",
    "intra_node_bandwidth": "Bandwidth inside a node",
    "inter_node_latency": "Latency between nodes",
    "intra_node_latency": "Latency inside a node",
    "node_size": "Accelerators in a node",
    "memory": "Memory of an accelerator",
    "memory_bandwidth": "Memory bandwidth",
    "peak_flops.bf16": "Peak of bf16",
    "peak_flops.fp8": "Peak of fp8",
    "cluster": "Cluster",
    "gpus": "Accelerators",
    "sequence_length": "Sequence length",
    "global_batch_size": "Global batch size",
    "precision": "Precision",
    "optimizer": "Optimizer",
}
"""What can be changed, as on the command line."""
MOST_CHANGES: Final = 3


def whatif(question: PageQuestion, values: Values, stop: Stop, progress: Progress) -> Shown:
    """The plan to take, or the one that is looked at, where the cluster or the job changes."""
    changes, put = _changes(values), question.put_search(stop)
    anew = searches(question, put, stop)
    before = anew.answer(put.question)
    plan = _plan_of(question, put, before, anew)
    found = what_if(put.question, plan, changes, anew, before=before, progress=progress)
    return shown(whatif_document(replace(found, assumptions=put.assumptions)))


def _plan_of(question: PageQuestion, put: PutQuestion, before: Answered, anew: Searches) -> Plan:
    """The plan that is looked at, or the one to take. Raises InputError."""
    if question.show:
        with about_field("show"):
            plan, given = plan_in(question.show)
        return filled(put.question, plan, put.stack, given)[0]
    if before.estimate is None:
        anew.result(put.question)  # raises, where what is asked for contradicts itself
        raise InputError(
            f"there is no plan to change: {before.reason}",
            rule="a plan is changed",
            hint="see on Plan what would fit",
        )
    return before.estimate.plan


def _changes(values: Values) -> dict[str, Any]:
    """The changes of the form by name. Raises FieldError."""
    given = [(number, values[f"change.{number}"], values[f"to.{number}"]) for number in range(1, MOST_CHANGES + 1)]
    made = [(number, name, text) for number, name, text in given if name and text]
    if not made:
        with about_field("to.1"):
            raise InputError(
                "no change is given", rule="at least one change is given", hint="choose what changes, and its value"
            )
    for number, name, _ in made:
        if name not in CHANGES:
            with about_field(f"change.{number}"):
                raise UnknownNameError("change", f"{name:.40}", CHANGES, hint="choose one of the list")
    with about_field(f"change.{made[-1][0]}"):
        check_named_once([name for _, name, _ in made])
    return dict(_read(number, name, text) for number, name, text in made)


def _read(number: int, name: str, text: str) -> tuple[str, Any]:
    """A change and its value; a cluster is one that is built in."""
    with about_field(f"to.{number}"):
        return (name, load_cluster(named("cluster", text))) if name == CLUSTER else change_of(name, text)

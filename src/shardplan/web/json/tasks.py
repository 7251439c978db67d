"""What can be asked: each question with its body, answer and example. Routes and their document derive from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from shardplan.base.records import Record
from shardplan.web.work.workplace import Cancelled

if TYPE_CHECKING:
    from shardplan.answers.document import AnswerDocument
    from shardplan.web.json.fields import Body

Work = Callable[[Any, Cancelled], Record]
QUESTION: Final = {"model": "llama-3.1-8b", "cluster": "dgx-h100", "num_accelerators": 64}
SCRIPT: Final = "torchrun --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size 4 --num-layers 32\n"
PLAN_FILE: Final = "plan-file/2"


class Task(NamedTuple):
    """A question of the JSON API."""

    name: str
    """The last part of its path."""
    kind: str
    """Class of its body in ``bodies``."""
    schema: str
    """Schema of its answer, without ``shardplan/``."""
    summary: str
    example: Mapping[str, Any] | None = None
    """A body; None where it needs the answer of another question."""

    @property
    def body(self) -> type[Body]:
        """What a request for it holds."""
        found: type[Body] = getattr(import_module("shardplan.web.json.bodies"), self.kind)
        return found

    @property
    def work(self) -> Work:
        """The function that answers; what it needs is imported when it is first asked for."""
        found: Work = getattr(import_module("shardplan.web.json.asking"), f"{self.name}_answer")
        return found


TASKS: Final = (
    Task(
        "plan",
        "SearchBody",
        PLAN_FILE,
        "Find the fastest plan that fits, and say why.",
        QUESTION | {"job": {"global_batch_size": 512}, "fix": {"tp": 2}, "top": 3},
    ),
    Task(
        "estimate",
        "EstimateBody",
        PLAN_FILE,
        "Predict time, memory and traffic of one plan.",
        QUESTION | {"job": {"global_batch_size": 512}, "plan": {"tp": 2, "sharding": "zero1"}},
    ),
    Task("compare", "CompareBody", "comparison/1", "Put two or more plans side by side, term by term."),
    Task(
        "audit",
        "AuditBody",
        "audit/1",
        "Say what a launch script runs, which rules it breaks, and what would be better.",
        {"text": SCRIPT, "cluster": "dgx-h100", "model": "llama-3.1-8b"},
    ),
    Task("export", "ExportBody", "export/1", "Write a plan as launch files of a training framework."),
    Task("simulate", "SimulateBody", "simulation/1", "Simulate the step of a plan event by event."),
    Task(
        "rl",
        "RlBody",
        "rl/1",
        "Plan a step of reinforcement learning: how many accelerators train, how many generate, and which wait.",
        QUESTION
        | {"prompts": 64, "samples": 8, "response_tokens": "mean=512,max=2k", "placement": "colocated,in-turns"},
    ),
    Task(
        "budget",
        "BudgetBody",
        "budget/1",
        "Say how many accelerators, days and how much money and energy a training run takes.",
        {"model": "llama-3.1-8b", "clusters": ["dgx-h100"], "job": {"tokens": "1T"}, "num_accelerators": 256},
    ),
)


class Catalogue(NamedTuple):
    """A list of what is built in, and every value of one."""

    name: str
    one: str
    summary: str

    def list(self) -> Record:
        """The answer of ``--json``."""
        return _list(self.name)

    def details(self, name: str) -> Record:
        """The answer of ``NAME --json``. Raises InputError."""
        return _details(self.name, name)


CATALOGUES: Final = (
    Catalogue("models", "model", "built-in models"),
    Catalogue("clusters", "cluster", "built-in clusters"),
    Catalogue("accelerators", "accelerator", "built-in accelerators"),
    Catalogue("stacks", "stack", "training frameworks whose defaults are known"),
)


@cache
def _list(kind: str) -> Record:
    from shardplan.answers import catalogue
    from shardplan.answers.stacks import stacks_document
    from shardplan.physics.frameworks.stack import list_stacks, load_stack
    from shardplan.render.record import document_record

    documents: dict[str, Callable[[], AnswerDocument]] = {
        "models": catalogue.models_document,
        "clusters": catalogue.clusters_document,
        "accelerators": catalogue.accelerators_document,
        "stacks": lambda: stacks_document(load_stack(each) for each in list_stacks()),
    }
    return document_record(documents[kind]())


def _details(kind: str, name: str) -> Record:
    from shardplan.answers import catalogue
    from shardplan.answers.stacks import stack_document
    from shardplan.ask.names import cluster_of
    from shardplan.inputs.readers.catalog import load_accelerator, shipped_name
    from shardplan.physics.frameworks.stack import shipped_stack
    from shardplan.render.record import document_record

    if kind == "models":
        return document_record(catalogue.model_document(shipped_name("model", name)))
    if kind == "clusters":
        return document_record(catalogue.cluster_document(cluster_of(name, reads_files=False)))
    if kind == "accelerators":
        accelerator = load_accelerator(shipped_name("accelerator", name))
        return document_record(catalogue.accelerator_document(accelerator))
    return document_record(stack_document(shipped_stack(name)))

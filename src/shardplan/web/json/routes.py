"""The JSON API: each question with its body, answer and example, and the routes that read, answer and send.

A body is guarded like a file, and every value of it is read by its type.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import cache
from hashlib import blake2b
from importlib import import_module
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from shardplan.base.errors import InputError
from shardplan.base.files import parse_document
from shardplan.base.outputs import ENCODER
from shardplan.base.records import Record, RecordFormat
from shardplan.base.version import VERSION
from shardplan.web.workplace import Cancelled, answer

if TYPE_CHECKING:
    from shardplan.answers.document import AnswerDocument
    from shardplan.web.json.bodies import Body

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
    also: tuple[str, ...] = ()
    """Schemas of its other answers."""

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
    Task("compare", "CompareBody", "comparison/1", "Compare two or more plans, term by term."),
    Task(
        "audit",
        "AuditBody",
        "audit/1",
        "Say what a launch script runs, which rules it breaks, and what would be better.",
        {"text": SCRIPT, "cluster": "dgx-h100", "model": "llama-3.1-8b"},
        also=("rl-launch/1",),
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

    def record(self, name: str) -> Record:
        """The answer of ``--json``, or of ``NAME --json`` where there is a name. Raises InputError."""
        return _details(self.name, name) if name else _list(self.name)


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


if TYPE_CHECKING:
    from shardplan.web.json.bodies import Body

    Read = TypeVar("Read", bound=Body)
BODY: Final = RecordFormat("a request has the fields of its schema", fields_in="/api/openapi.json")
JSON_TYPES: Final = ("application/json", "application/problem+json", "text/json")


class WrongContent(Exception):  # noqa: N818  # what it is, not a fault
    """The body is not said to be JSON."""


async def read_body(request: Request, kind: type[Read]) -> Read:
    """The body of a request. Raises InputError, and WrongContent for one that is not said to be JSON.

    A page of another site can send a form or a text without being asked for leave; JSON it cannot.
    """
    said = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if said not in JSON_TYPES:
        raise WrongContent
    raw = await request.body()
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise InputError("the body is not UTF-8", rule="the body is JSON in UTF-8", hint="send JSON") from None
    return BODY.read(kind, without_constants(parse_document(text, label="the body", is_json=True)))


def without_constants(document: dict[str, Any]) -> dict[str, Any]:
    """The document, if it has none of the numbers that Python reads and JSON does not have. Raises InputError."""
    level: list[Any] = [document]
    while level:
        if any(isinstance(each, float) and not isfinite(each) for each in level):
            raise InputError(
                "the body holds NaN or an infinite number", rule="numbers are finite", hint="leave the field out"
            )
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
    return document


Handler = Callable[..., Awaitable[Response]]


def json_routes() -> Iterator[Route]:
    """All of them."""
    yield Route("/healthz", _healthz)
    yield Route("/api/openapi.json", _openapi)
    for task in TASKS:
        yield Route(f"/api/{task.name}", _answering(task), methods=["POST"])
    for catalogue in CATALOGUES:
        yield Route(f"/api/{catalogue.name}", _showing(catalogue))
        yield Route(f"/api/{catalogue.name}/{{name}}", _showing(catalogue))


async def _healthz(_request: Request) -> Response:
    return _json({"status": "ok", "version": VERSION})


async def _openapi(request: Request) -> Response:
    from shardplan.web.json.document import document_of

    return _json(document_of(request.app.state.settings.root_path))


def _answering(task: Task) -> Handler:
    async def handler(request: Request) -> Response:
        body = await read_body(request, task.body)
        key = task.name, _digest(body.model_dump())
        return _sent(await answer(request, lambda cancelled: _encoded(task.work(body, cancelled)), key=key))

    return handler


def _showing(catalogue: Catalogue) -> Handler:
    """The whole list, or what a path names."""

    async def handler(request: Request) -> Response:
        name = request.path_params.get("name", "")
        key = catalogue.name, name
        return _sent(await answer(request, lambda _: _encoded(catalogue.record(name)), key=key))

    return handler


def _digest(value: Any) -> bytes:
    """The same for the same question, whatever the order of its fields."""
    return blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=16).digest()


def _encoded(record: Record) -> bytes:
    return ENCODER.encode(record).encode()


def _sent(content: bytes) -> Response:
    return Response(content, media_type="application/json")


def _json(record: Record) -> Response:
    return _sent(_encoded(record))

"""The routes of the JSON API: they read a request, have it answered, and send the record.

A body is guarded like a file, and every value of it is read by its type.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from hashlib import blake2b
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from shardplan.base.errors import InputError
from shardplan.base.files import parse_document
from shardplan.base.outputs import ENCODER
from shardplan.base.records import Record, RecordFormat
from shardplan.base.version import VERSION
from shardplan.web.json.tasks import CATALOGUES, TASKS, Catalogue, Task
from shardplan.web.work.workplace import Cancelled, answer

if TYPE_CHECKING:
    from shardplan.web.json.fields import Body

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
        yield Route(f"/api/{catalogue.name}", _listing(catalogue))
        yield Route(f"/api/{catalogue.name}/{{name}}", _showing(catalogue))


async def _healthz(_request: Request) -> Response:
    return _json({"status": "ok", "version": VERSION})


async def _openapi(request: Request) -> Response:
    from shardplan.web.json.document import document_of

    return _json(document_of(request.app.state.settings.root_path))


def _answering(task: Task) -> Handler:
    async def handler(request: Request) -> Response:
        body = await read_body(request, task.body)

        def work(cancelled: Cancelled) -> bytes:
            return _encoded(task.work(body, cancelled))

        return _sent(await answer(request, work, key=(task.name, _digest(body.model_dump()))))

    return handler


def _listing(catalogue: Catalogue) -> Handler:
    async def handler(request: Request) -> Response:
        return _sent(await answer(request, lambda _: _encoded(catalogue.list()), key=(catalogue.name, "")))

    return handler


def _showing(catalogue: Catalogue) -> Handler:
    async def handler(request: Request) -> Response:
        name = request.path_params["name"]
        return _sent(await answer(request, lambda _: _encoded(catalogue.details(name)), key=(catalogue.name, name)))

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

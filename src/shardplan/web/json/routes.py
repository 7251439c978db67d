"""The routes of the JSON API. They take a request apart, have it answered, and send the record."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from hashlib import blake2b
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from shardplan.outputs.json_text import ENCODER
from shardplan.records import Record
from shardplan.version import VERSION
from shardplan.web.json.reading import read_body
from shardplan.web.json.tasks import CATALOGUES, TASKS, Catalogue, Task
from shardplan.web.work.workplace import Cancelled, answer

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

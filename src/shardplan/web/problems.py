"""What went wrong, as a response: a record for programs, a panel for people, who may also get a page around it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from shardplan.base.errors import ShardplanError, in_python
from shardplan.base.records import Record
from shardplan.web.json.routes import WrongContent
from shardplan.web.workplace import Busy, Gone, TookTooLong

API: Final = "/api/"
UNPROCESSABLE, UNAVAILABLE, TIMED_OUT, CLIENT_GONE, NOT_JSON, MISSING = 422, 503, 504, 499, 415, 404


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, ShardplanError)
    return problem(request, error, UNPROCESSABLE)


async def _busy(request: Request, error: Exception) -> Response:
    assert isinstance(error, Busy)
    said = ShardplanError(str(error), rule="the server has room for the question", hint="ask again later")
    return problem(request, said, UNAVAILABLE, {"Retry-After": str(error.retry_after)})


async def _late(request: Request, error: Exception) -> Response:
    hint = "narrow the search with fix and limit, or raise the limit: `shardplan serve --time-limit S`"
    return problem(request, ShardplanError(str(error), rule="an answer takes limited time", hint=hint), TIMED_OUT)


async def _not_json(request: Request, _error: Exception) -> Response:
    said = ShardplanError(
        "the content type is not application/json",
        rule="a body is JSON, and said to be",
        hint="send the header Content-Type: application/json",
    )
    return problem(request, said, NOT_JSON)


async def _http(request: Request, error: Exception) -> Response:
    """There is no such address, or it does not take the method."""
    assert isinstance(error, HTTPException)
    path = request.url.path[:100]
    is_missing = error.status_code == MISSING
    said = ShardplanError(
        f"{path} is not an address of this server" if is_missing else f"{path} does not take {request.method}",
        rule="the path exists and takes the method",
        hint="see /api/openapi.json" if path.startswith(API) else "open one of the pages",
    )
    return problem(request, said, error.status_code, dict(error.headers or {}))


async def _gone(_request: Request, _error: Exception) -> Response:
    return Response(status_code=CLIENT_GONE)  # nobody reads it


HANDLERS: Final = {
    ShardplanError: _refused,
    Busy: _busy,
    TookTooLong: _late,
    Gone: _gone,
    WrongContent: _not_json,
    HTTPException: _http,
}


def problem(request: Request, error: ShardplanError, status: int, headers: Mapping[str, str] | None = None) -> Response:
    """The error in the form that the client expects."""
    if request.app.state.settings.api_only or request.url.path.startswith(API):
        return JSONResponse(record_of(error), status_code=status, headers=headers)
    from shardplan.web.pages.rendering import problem_panel

    response = problem_panel(request, error, status)
    response.headers.update(headers or {})
    return response


def record_of(error: ShardplanError) -> Record:
    """The error object of ``--json``, with arguments in place of flags."""
    return {"error": {name: in_python(text) for name, text in error.to_record()["error"].items()}}

"""What went wrong, as a response: a record for programs, a panel for people."""

from __future__ import annotations

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

from shardplan.errors import ShardplanError
from shardplan.web.work.busy import Busy, Gone, TookTooLong

API = "/api/"
UNPROCESSABLE, UNAVAILABLE, TIMED_OUT, CLIENT_GONE = 422, 503, 504, 499


def add_problems(app: FastAPI) -> None:
    """Turns exceptions into responses."""
    app.add_exception_handler(ShardplanError, _refused)
    app.add_exception_handler(Busy, _busy)
    app.add_exception_handler(TookTooLong, _late)
    app.add_exception_handler(Gone, _gone)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, ShardplanError)
    return _said(request, error, UNPROCESSABLE)


async def _busy(request: Request, error: Exception) -> Response:
    assert isinstance(error, Busy)
    said = ShardplanError(str(error), rule="the server has room for the question", hint="ask again later")
    response = _said(request, said, UNAVAILABLE)
    response.headers["Retry-After"] = str(error.retry_after)
    return response


async def _late(request: Request, error: Exception) -> Response:
    hint = "narrow the search with fix and limit, or allow more with --time-limit"
    return _said(request, ShardplanError(str(error), rule="an answer takes limited time", hint=hint), TIMED_OUT)


async def _gone(_request: Request, _error: Exception) -> Response:
    return Response(status_code=CLIENT_GONE)  # nobody reads it


def _said(request: Request, error: ShardplanError, status: int) -> Response:
    """The error in the form that the client expects."""
    if request.url.path.startswith(API) or request.app.state.settings.api_only:
        return JSONResponse(error.to_record(), status_code=status)
    from shardplan.web.pages.rendering import fragment

    return fragment(request, "error.html", status=status, error=error)

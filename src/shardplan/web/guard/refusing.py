"""Requests that are turned away before the app sees them."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from shardplan.errors import ShardplanError
from shardplan.web.problems import problem


class RequestRefusedError(ShardplanError):
    """A request that is turned away, and the status of the response."""

    def __init__(
        self, message: str, *, rule: str, hint: str = "", status: int = 400, headers: Mapping[str, str] | None = None
    ) -> None:
        """``headers``: of the response."""
        super().__init__(message, rule=rule, hint=hint)
        self.status = status
        self.headers = {"Connection": "close", **(headers or {})}

    async def send(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers the request, and ends the connection: what is left of its body is not read."""
        response = problem(Request(scope), self, self.status, self.headers)
        await response(scope, receive, send)


def one(headers: Headers, name: str) -> str:
    """The value of a header; empty where it is missing. Raises RequestRefusedError where it is given twice."""
    values = headers.getlist(name)
    if len(values) > 1:
        raise RequestRefusedError(f"the request has {len(values)} headers {name}", rule=f"a request has one {name}")
    return values[0] if values else ""

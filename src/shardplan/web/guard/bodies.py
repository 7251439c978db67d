"""Bodies: limits of their bytes, and of the time that they take to arrive."""

from __future__ import annotations

import asyncio
import time

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shardplan.web.guard.refusing import RequestRefusedError
from shardplan.web.settings import ServerSettings


class BoundedBodies:
    """Reads the whole body of a request before the app sees it: an app never waits for a slow one."""

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        """``settings``: size and time."""
        self.app, self.settings = app, settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request with its body on, or refuses it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            body = await self._read(Headers(scope=scope), receive)
        except RequestRefusedError as refusal:
            await refusal.send(scope, receive, send)
            return
        if body is None:
            return
        messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replayed() -> Message:
            return messages.pop() if messages else await receive()

        await self.app(scope, replayed, send)

    async def _read(self, headers: Headers, receive: Receive) -> bytes | None:
        """The body; None where the client has gone. Raises RequestRefusedError."""
        most = self.settings.max_body_bytes
        stated = headers.get("content-length", "0")
        if not stated.isdecimal() or len(stated) > len(str(most)) + 1 or int(stated) > most:
            raise _too_large(most)
        pieces: list[bytes] = []
        size, ends = 0, time.monotonic() + self.settings.body_time
        while True:
            message = await _in_time(receive, ends - time.monotonic(), self.settings.body_time)
            if message["type"] != "http.request":
                return None
            pieces.append(message.get("body", b""))
            size += len(pieces[-1])
            if size > most:
                raise _too_large(most)
            if not message.get("more_body", False):
                return b"".join(pieces)


async def _in_time(receive: Receive, left: float, limit: float) -> Message:
    """The next message. Raises RequestRefusedError where it does not come in time."""
    try:
        return await asyncio.wait_for(receive(), max(left, 0.0))
    except TimeoutError:
        raise RequestRefusedError(
            f"the body did not arrive within {limit:g} s",
            rule="a request arrives in time",
            hint="send it at once",
            status=408,
        ) from None


def _too_large(most: int) -> RequestRefusedError:
    return RequestRefusedError(
        f"the body has more than {most:,} bytes",
        rule=f"a body has at most {most:,} bytes",
        hint="send less, or raise the limit: `shardplan serve --max-body-bytes N`",
        status=413,
    )

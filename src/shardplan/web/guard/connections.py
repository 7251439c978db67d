"""Connections: a limited number at once, and none that waits for long without a request."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

from uvicorn.protocols.http.h11_impl import H11Protocol

IDLE_TIME: Final = 10.0
"""Seconds in which a new connection has to send the head of a request."""
KEEP_ALIVE: Final = 5.0
"""Seconds that a connection stays open after an answer."""
SLOW_READER: Final = 30.0
"""Seconds that a client may take to read an answer."""


def protocol_of(most: int) -> type[GuardedProtocol]:
    """The protocol with a limit of connections at once."""
    return type("Protocol", (GuardedProtocol,), {"most": most})


class GuardedProtocol(H11Protocol):
    """HTTP/1.1 that drops connections without a request: late ones, and where there are too many, of who has most.

    Uvicorn alone times a connection only after its first answer, and answers 503 to all beyond the limit.
    """

    most = 1000
    begun = 0.0
    late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Takes a new connection, if need be in place of one that waits."""
        super().connection_made(transport)
        self.timeout_keep_alive = KEEP_ALIVE  # type: ignore[assignment]  # uvicorn takes whole seconds from its settings
        self._expect_head()
        if len(self.connections) > self.most:
            waiting = [each for each in self.connections if isinstance(each, GuardedProtocol) and each.is_waiting]
            per_client = Counter(each.address for each in waiting)
            max(waiting, key=lambda each: (per_client[each.address], -each.begun)).drop()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forgets the connection."""
        self._expect_nothing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Takes what comes. The head of a request has to be whole in time, however many pieces it comes in."""
        super().data_received(data)
        if not self.is_waiting:
            self._expect_nothing()
        elif self.late is None:
            self._expect_head()

    def on_response_complete(self) -> None:
        """Waits for the next request, or for the client to read the answer."""
        super().on_response_complete()
        self.begun = self.loop.time()
        if self.transport.is_closing() and self.transport.get_write_buffer_size():
            self.loop.call_later(SLOW_READER, self.transport.abort)

    def timeout_keep_alive_handler(self) -> None:
        """Closes an idle connection, in the end also where the client does not read."""
        super().timeout_keep_alive_handler()
        self.loop.call_later(SLOW_READER, self.transport.abort)

    @property
    def is_waiting(self) -> bool:
        """Whether no request is under way."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def address(self) -> str:
        """Who has connected."""
        return self.client[0] if self.client else ""

    def drop(self) -> None:
        """Ends the connection at once."""
        self.connections.discard(self)
        self.transport.abort()

    def _expect_head(self) -> None:
        self.begun = self.loop.time()
        self.late = self.loop.call_later(IDLE_TIME, self.drop)

    def _expect_nothing(self) -> None:
        if self.late is not None:
            self.late.cancel()
            self.late = None

    def _unsupported_upgrade_warning(self) -> None:
        """Says nothing: a flood of upgrades is no reason to fill a log."""

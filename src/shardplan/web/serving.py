"""The server: uvicorn on a socket of ours, with the limits of the settings, and without connections that only wait."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
import sys
import threading
import webbrowser
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final
from urllib.parse import quote

from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from shardplan.base.errors import InputError
from shardplan.web.app import create_app
from shardplan.web.settings import ServerSettings

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


TOKEN: Final = "SHARDPLAN_TOKEN"  # noqa: S105  # the name of a variable
HIDDEN: Final = "..."
LEAST_TOKEN: Final = 16
"""Characters of a token: fewer can be guessed."""
BACKLOG: Final = 128
MOST_HEAD_BYTES: Final = 32 * 1024
"""Of the head of a request: a question in an address has 8 kB."""
GRACE: Final = 2
"""Seconds that requests under way have when the server ends."""
FILES_LEFT: Final = 64
"""File descriptors that connections leave to the rest of the process."""


def with_token(settings: ServerSettings) -> ServerSettings:
    """The settings with the token that they need. Raises InputError."""
    token = _given_token(settings)
    if token is None and not settings.is_loopback:
        token = secrets.token_urlsafe(32)
    if token is not None and len(token) < LEAST_TOKEN:
        raise InputError(
            f"the token has {len(token)} characters; it must have {LEAST_TOKEN} or more",
            rule=f"a token has {LEAST_TOKEN} characters or more",
            hint=f"leave --token and {TOKEN} out to have one made",
        )
    return replace(settings, token=token)


def _given_token(settings: ServerSettings) -> str | None:
    return settings.token or os.environ.get(TOKEN) or None


def run(settings: ServerSettings, *, ready: Callable[[str, str], None]) -> int:
    """Serves until it is interrupted; the exit status. ``ready`` gets the address to show and the one to open.

    A token that the user gave is not shown again: what is shown may go into a log. Raises InputError.
    """
    hidden = _given_token(settings)
    settings = with_token(settings)
    listening = bound(settings)
    settings = replace(settings, port=listening.getsockname()[1], max_connections=_most_connections(settings))
    server = server_of(settings)
    address = address_of(settings)
    shown = address if hidden is None else address_of(replace(settings, token=HIDDEN))
    _when_started(server, lambda: ready(shown, address))
    with _signals_end_it(server):
        server.run(sockets=[listening])
    # Ends the process where a thread still works on a question: nobody waits for its answer
    if any(each.name.startswith("shardplan-work") and each.is_alive() for each in threading.enumerate()):
        sys.stdout.flush()
        os._exit(0)
    return 0


def server_of(settings: ServerSettings) -> Server:
    """The server of an app with these settings; logs have no addresses of requests, which may hold secrets."""
    config = Config(
        create_app(settings),
        http=protocol_of(settings.max_connections),
        ws="none",
        loop="asyncio",
        lifespan="on",
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=settings.trusted_proxies,
        h11_max_incomplete_event_size=MOST_HEAD_BYTES,
        timeout_graceful_shutdown=GRACE,
        backlog=BACKLOG,
    )
    return Server(config)


def bound(settings: ServerSettings) -> socket.socket:
    """A socket on the address and port. Raises InputError."""
    host, port = settings.host, settings.port
    try:
        family, kind, number, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, kind, number)
        try:
            if os.name == "posix":
                found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind(where)
            found.listen(BACKLOG)
        except OSError:
            found.close()
            raise
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise InputError(
            f"cannot listen on {host[:100]} port {port}: {why}",
            rule="the address is one of this machine, and the port is free",
            hint="choose another with --port (0 takes a free one), or correct --host",
        ) from None
    return found


def address_of(settings: ServerSettings) -> str:
    """What to open in a browser, with the token if there is one."""
    host = socket.gethostname() if settings.is_everywhere else settings.host
    host = f"[{host}]" if ":" in host else host
    secret = "" if settings.token is None else f"?token={quote(settings.token, safe='')}"
    return f"http://{host}:{settings.port}{settings.root_path}/{secret}"


def open_browser(address: str) -> None:
    """Opens the address in the user's browser, if there is one."""
    threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()


def _most_connections(settings: ServerSettings) -> int:
    """Connections that the limits of the process allow."""
    if sys.platform == "win32":
        return settings.max_connections
    import resource

    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = files in (resource.RLIM_INFINITY, -1)
    return (
        settings.max_connections if unlimited else max(min(settings.max_connections, files - FILES_LEFT - BACKLOG), 16)
    )


def _when_started(server: Server, call: Callable[[], None]) -> None:
    """Calls it once the server takes requests."""
    startup = server.startup

    async def started(sockets: list[socket.socket] | None = None) -> None:
        await startup(sockets)
        call()

    server.startup = started  # type: ignore[method-assign]


@contextmanager
def _signals_end_it(server: Server) -> Iterator[None]:
    """Signals end the server, and it alone: uvicorn sends itself the signal again when it has ended.

    One that comes before uvicorn has its own handlers is kept: the server ends as soon as it has started.
    """

    def ends(*_: object) -> None:
        server.should_exit = True

    kinds = (signal.SIGINT, signal.SIGTERM)
    before = {kind: signal.signal(kind, ends) for kind in kinds}
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)

"""A server with the app, for tests that need real connections; and clients of the app without one."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import pytest
from starlette.testclient import TestClient

from shardplan.web.app import create_app
from shardplan.web.settings import ServerSettings
from shardplan.web.workplace import Workplace

HOST = "http://127.0.0.1"


class Served:
    """A running server."""

    def __init__(self, settings: ServerSettings) -> None:
        from dataclasses import replace

        from shardplan.web.serving import bound, server_of

        self._listening = bound(replace(settings, port=0))
        self.port: int = self._listening.getsockname()[1]
        self._server = server_of(replace(settings, port=self.port))
        self._thread = Thread(target=self._server.run, kwargs={"sockets": [self._listening]}, daemon=True)

    def start(self) -> None:
        self._thread.start()
        while not self._server.started:
            self._thread.join(0.01)

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(20)

    @property
    def workplace(self) -> Workplace:
        found: Workplace = self._server.config.app.state.workplace  # type: ignore[union-attr]
        return found

    @property
    def num_connections(self) -> int:
        return len(self._server.server_state.connections)

    def connect(self) -> socket.socket:
        """A new connection, which gives up rather than waits for ever."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def sent(self, raw: bytes) -> bytes:
        """All that the server answers to ``raw``, until it closes."""
        with self.connect() as connection:
            connection.sendall(raw)
            return everything(connection)


def everything(connection: socket.socket) -> bytes:
    """What comes until the other end closes."""
    pieces = []
    try:
        while piece := connection.recv(65536):
            pieces.append(piece)
    except ConnectionResetError:
        pass
    return b"".join(pieces)


@contextmanager
def serving(settings: ServerSettings) -> Iterator[Served]:
    """A server with these settings."""
    served = Served(settings)
    served.start()
    try:
        yield served
    finally:
        served.stop()


@pytest.fixture(scope="module")
def api() -> Iterator[TestClient]:
    """The JSON API, without a server."""
    with TestClient(create_app(ServerSettings(api_only=True)), base_url=HOST) as client:
        yield client

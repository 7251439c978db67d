"""``shardplan serve`` as a program: it says where it is, ends cleanly, and refuses what it cannot do."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

SERVE = (sys.executable, "-m", "shardplan", "serve")


@contextmanager
def _served(*arguments: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server of its own process, and its address."""
    plain = {name: value for name, value in os.environ.items() if name != "SHARDPLAN_TOKEN"}
    with subprocess.Popen(
        [*SERVE, "--port", "0", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**plain, **environment},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://\S+", line)
        assert found, line
        try:
            yield process, found[0]
        finally:
            process.kill()


def _asked(address: str, **headers: str) -> Any:
    with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=60) as answer:
        return json.load(answer)


def _ended(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*SERVE, *arguments], capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_cleanly(kind: signal.Signals) -> None:
    with _served("--api-only") as (process, address):
        assert _asked(f"{address}healthz")["status"] == "ok"
        process.send_signal(kind)
        assert process.wait(60) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


INTERRUPTED = """
import signal, sys
from shardplan.cli.main import main
from uvicorn import Server

def interrupted(server, sockets, *, kind=getattr(signal, sys.argv.pop()), run=Server.run):
    signal.raise_signal(kind)
    run(server, sockets=sockets)

Server.run = interrupted
main()
"""


@pytest.mark.parametrize("kind", ["SIGINT", "SIGTERM"])
def test_a_signal_before_the_server_has_its_own_handlers_ends_it_too(kind: str) -> None:
    arguments = ("serve", "--port", "0", "--api-only", kind)
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, *arguments], capture_output=True, timeout=120, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_a_signal_ends_it_with_a_search_under_way() -> None:
    with _served("--api-only") as (process, address):
        port = int(address.rstrip("/").rpartition(":")[2])
        body = json.dumps({"model": "deepseek-v3", "cluster": "dgx-h100", "num_accelerators": 16384}).encode()
        head = "POST /api/plan HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0


def test_other_addresses_get_a_token_and_print_it_once() -> None:
    with _served("--api-only", "--host", "0.0.0.0") as (_, address):
        token = address.partition("?token=")[2]
        assert len(token) >= 40
        port = re.search(r":(\d+)/", address)
        assert port is not None
        models = f"http://127.0.0.1:{port[1]}/api/models"
        with pytest.raises(urllib.error.HTTPError) as refused:
            _asked(models)
        assert refused.value.code == 401
        refused.value.close()
        assert _asked(models, Authorization=f"Bearer {token}")["models"]


def test_a_token_of_the_environment_is_needed_and_not_printed() -> None:
    token = "from-the-environment"
    with _served("--api-only", SHARDPLAN_TOKEN=token) as (_, address):
        where, _, said = address.partition("?token=")
        assert said == "..."
        assert _asked(f"{where}api/models", Authorization=f"Bearer {token}")["models"]


def test_a_port_in_use_is_refused() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ended = _ended("--api-only", "--port", str(port))
    assert ended.returncode == 2
    assert f"port {port}" in ended.stderr
    assert "--port" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--host", "256.1.1.1"), "cannot listen on 256.1.1.1"),
        (("--host", "192.0.2.1"), "cannot listen on 192.0.2.1"),
        (("--port", "70000"), "--port"),
        (("--token", "short"), "16"),
        (("--workers", "0"), "--workers"),
    ],
)
def test_what_it_cannot_do_it_refuses(arguments: tuple[str, ...], said: str) -> None:
    ended = _ended("--api-only", *arguments)
    assert ended.returncode == 2
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr

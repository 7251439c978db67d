"""Clients that mean no good, against a real server: it stays up, answers others, and does no work for nobody."""

from __future__ import annotations

import json
import os
import socket
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from tests.web.conftest import Served, everything, serving

from shardplan.web import serving as connections
from shardplan.web.settings import ServerSettings

MOST = 40
CONNECTIONS, AT_ONCE = max(1000, int(os.environ.get("SHARDPLAN_FUZZ", "0")) // 10), 250
PATIENCE = 1.0
"""How long the server waits for slow clients: enough for quick ones on a busy machine. [s]"""
LARGE = {"model": "deepseek-v3", "cluster": "dgx-h100", "num_accelerators": 16384}


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    settings = ServerSettings(
        api_only=True, max_connections=MOST, body_time=PATIENCE, max_body_bytes=100_000, workers=1
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(connections, "IDLE_TIME", PATIENCE)
        patched.setattr(connections, "KEEP_ALIVE", PATIENCE)
        with serving(settings) as found:
            yield found


def _is_up(served: Served) -> bool:
    with urllib.request.urlopen(f"http://127.0.0.1:{served.port}/healthz", timeout=30) as answer:
        return bool(json.load(answer)["status"] == "ok")


def _head(method: str, path: str, *headers: str) -> bytes:
    return "\r\n".join((f"{method} {path} HTTP/1.1", "Host: localhost", *headers, "", "")).encode()


def _post(path: str, body: object, *headers: str) -> bytes:
    content = json.dumps(body).encode()
    said = ("Content-Type: application/json", f"Content-Length: {len(content)}", *headers)
    return _head("POST", path, *said) + content


def _status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def _until(served: Served, what: str, wanted: int = 0) -> None:
    while getattr(served.workplace, what) != wanted:
        time.sleep(0.005)


def test_slow_heads_are_cut_off(served: Served) -> None:
    with served.connect() as silent, served.connect() as slow:
        slow.sendall(b"GET /healthz HTTP/1.1\r\nHost: local")
        assert everything(silent) == everything(slow) == b""
    assert _is_up(served)


def test_a_second_slow_head_on_a_connection_is_cut_off_too(served: Served) -> None:
    with served.connect() as slow:
        slow.sendall(_head("GET", "/healthz") + b"GET /heal")
        assert _status(everything(slow)) == 200


def test_slow_bodies_are_cut_off(served: Served) -> None:
    head = _head("POST", "/api/plan", "Content-Type: application/json", "Content-Length: 1000")
    with served.connect() as slow:
        slow.sendall(head + b"{")
        assert _status(everything(slow)) == 408
    assert _is_up(served)


def test_huge_bodies_are_refused_before_they_are_read(served: Served) -> None:
    stated = _head("POST", "/api/plan", "Content-Type: application/json", "Content-Length: 100000000000")
    assert _status(served.sent(stated)) == 413
    chunked = _head("POST", "/api/plan", "Content-Type: application/json", "Transfer-Encoding: chunked")
    with served.connect() as endless:
        endless.sendall(chunked)
        received = b""
        try:
            for _ in range(1000):
                endless.sendall(b"8000\r\n" + b" " * 0x8000 + b"\r\n")
        except OSError:
            pass
        else:
            received = everything(endless)
        assert received == b"" or _status(received) == 413
    assert _is_up(served)


def test_huge_heads_are_refused(served: Served) -> None:
    assert _status(served.sent(b"GET /" + b"a" * 70_000)) == 400
    assert _status(served.sent(_head("GET", "/healthz", *(f"X-{n}: {'a' * 1000}" for n in range(300))))) == 400
    assert _is_up(served)


@pytest.mark.parametrize(
    "raw",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x00" * 100,
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n",
        b"POST /api/plan HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nContent-Length: 30\r\n\r\n{}",
        b"POST /api/plan HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n{}",
        b"POST /api/plan HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
def test_what_is_no_request_is_refused(served: Served, raw: bytes) -> None:
    answer = served.sent(raw)
    assert answer == b"" or _status(answer) in (400, 405, 501, 505)
    assert _is_up(served)


@pytest.mark.parametrize(
    "path",
    ["/../../etc/passwd", "/static/../../../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/api/models/../../etc/passwd",
     "/api/models/..%2f..%2fetc%2fpasswd", "//etc/passwd", "/api/clusters/%00", "/static/..%5c..%5capp.py"],
)  # fmt: skip
def test_no_path_leads_to_a_file(served: Served, path: str) -> None:
    answer = served.sent(_head("GET", path, "Connection: close"))
    assert _status(answer) in (400, 404, 422)
    assert b"root:" not in answer


def test_thousands_of_connections_leave_room_for_others(served: Served) -> None:
    for _ in range(CONNECTIONS // AT_ONCE):
        with ExitStack() as opened:
            for _ in range(AT_ONCE):
                opened.enter_context(served.connect())
        assert served.num_connections <= MOST + 1
    assert _is_up(served)


def test_connections_that_wait_give_way_to_others(served: Served) -> None:
    with ExitStack() as opened:
        for _ in range(3 * MOST):
            opened.enter_context(served.connect())
        for _ in range(3):
            assert _is_up(served)


def test_a_flood_of_upgrades_is_a_flood_of_requests(served: Served, capfd: pytest.CaptureFixture[str]) -> None:
    key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
    asked = _head(
        "GET", "/api/plan", "Connection: Upgrade, close", "Upgrade: websocket", "Sec-WebSocket-Version: 13", key
    )
    for _ in range(50):
        assert _status(served.sent(asked)) == 405
    assert _is_up(served)
    assert capfd.readouterr().err == ""


def test_a_search_ends_when_its_client_goes(served: Served) -> None:
    with served.connect() as client:
        client.sendall(_post("/api/plan", LARGE))
        _until(served, "num_running", 1)
    _until(served, "num_running", 0)
    assert not any(str(key).startswith("('plan'") for key in served.workplace.cache._kept), (
        "it did not come to an answer"
    )


def test_searches_of_clients_that_go_do_not_keep_others_waiting(served: Served) -> None:
    for number in range(20):
        with served.connect() as client:
            client.sendall(_post("/api/plan", {**LARGE, "top": number + 1}))
    body = {"model": "llama-3.2-1b", "cluster": "dgx-h100", "num_accelerators": 8, "plan": {}}
    answer = served.sent(_post("/api/estimate", body, "Connection: close"))
    assert _status(answer) == 200


def test_a_full_queue_answers_when_to_come_back() -> None:
    with serving(ServerSettings(api_only=True, workers=1, queue_length=1)) as served, ExitStack() as opened:
        asked: list[socket.socket] = []
        for number in range(3):
            asked.append(opened.enter_context(served.connect()))
            asked[-1].sendall(_post("/api/plan", {**LARGE, "top": number + 1}, "Connection: close"))
            if number < 2:
                _until(served, ("num_running", "num_waiting")[number], 1)
        answer = everything(asked[-1])
        assert _status(answer) == 503
        assert b"retry-after: " in answer.lower()
        error: dict[str, Any] = json.loads(answer.partition(b"\r\n\r\n")[2])
        assert "again" in error["error"]["hint"]


def test_an_answer_that_takes_too_long_is_given_up() -> None:
    with serving(ServerSettings(api_only=True, workers=1, time_limit=0.05)) as served:
        answer = served.sent(_post("/api/plan", LARGE, "Connection: close"))
        assert _status(answer) == 504
        _until(served, "num_running", 0)


def test_logs_have_no_secrets(capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    token = "a-token-that-nobody-sees"
    with serving(ServerSettings(api_only=True, token=token)) as served:
        for headers in ((), (f"Authorization: Bearer {token}",), (f"Cookie: shardplan_{served.port}={token}",)):
            served.sent(_head("GET", f"/api/models?token={token}", "Connection: close", *headers))
            served.sent(_head("GET", "/api/models", "Connection: close", *headers))
    out, err = capfd.readouterr()
    assert token not in out + err + caplog.text

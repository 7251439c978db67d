"""How much the web app's server carries: requests per second and latency, memory over many requests, time to start.

    python benchmarks/web_load.py [--seconds 10] [--requests 10000] [--tiny] [--runs 1] [--json FILE]

The server is a process of its own on this machine, ``shardplan serve --api-only``. Clients ask different questions, so
that no answer is one that the server has kept; ``kept`` asks the same one again and again. A client sends its next
request when it has its answer, on a connection of its own that stays open.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple

RECORD: Final = Path(__file__).parent / "records" / "web_load.json"
CLIENTS: Final = (1, 8, 32)
PLAN: Final = {"model": "llama-3.1-70b", "cluster": "dgx-h100", "num_accelerators": 2048, "top": 3}
ESTIMATE: Final = {
    "model": "llama-3.1-70b", "cluster": "dgx-h100", "num_accelerators": 2048, "plan": {"tp": 8, "pp": 4},
}  # fmt: skip
PAUSE: Final = 3.0
"""Seconds after which the server has fetched what the first questions need."""
PER_SAMPLE: Final = 1000


class Server(NamedTuple):
    """A running server."""

    process: subprocess.Popen[str]
    host: str
    port: int
    start_time: float
    """From the start of the program to the first answer. [s]"""

    @property
    def memory_bytes(self) -> int:
        """Resident memory of the process, where /proc says it; 0 elsewhere."""
        status = Path(f"/proc/{self.process.pid}/status")
        found = re.search(r"VmRSS:\s+(\d+) kB", status.read_text()) if status.exists() else None
        return int(found[1]) * 1024 if found else 0


@contextmanager
def server() -> Iterator[Server]:
    """A server on a free port, with a queue that holds all clients."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "shardplan", "serve", "--api-only", "--port", "0", "--time-limit", "600"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603  # our own program
        said = "" if process.stdout is None else process.stdout.readline()
        found = re.search(r"http://([\w.]+):(\d+)/", said)
        if found is None:
            raise RuntimeError(said)
        host, port = found[1], int(found[2])
        asked(http.client.HTTPConnection(host, port), "GET", "/healthz")
        try:
            yield Server(process, host, port, time.perf_counter() - started)
        finally:
            process.terminate()


def asked(connection: http.client.HTTPConnection, method: str, path: str, body: object = None) -> None:
    """Sends a request and reads its answer, which has to be one."""
    content = None if body is None else json.dumps(body)
    connection.request(method, path, content, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    text = answer.read()
    if answer.status != http.client.OK:
        raise RuntimeError(text.decode()[:300])


def load(at: Server, path: str, bodies: Callable[[], object], *, clients: int, seconds: float) -> dict[str, Any]:
    """Requests of a number of clients for a time. [s]"""
    ends = time.perf_counter() + seconds

    def client(_: int) -> list[float]:
        connection, taken = http.client.HTTPConnection(at.host, at.port), []
        while time.perf_counter() < ends:
            begun = time.perf_counter()
            asked(connection, "POST", path, bodies())
            taken.append(time.perf_counter() - begun)
        connection.close()
        return taken

    begun = time.perf_counter()
    with ThreadPoolExecutor(clients) as threads:
        times = sorted(each for taken in threads.map(client, range(clients)) for each in taken)
    elapsed = time.perf_counter() - begun
    return {
        "path": path,
        "clients": clients,
        "num_requests": len(times),
        "requests_per_s": len(times) / elapsed,
        "median_s": times[len(times) // 2],
        "p95_s": times[min(int(0.95 * len(times)), len(times) - 1)],
        "longest_s": times[-1],
    }


def different(body: dict[str, Any]) -> Callable[[], object]:
    """Bodies that differ in the tokens to train on, which changes no price."""
    numbers = count(1)
    return lambda: {**body, "job": {"tokens": 1e9 + next(numbers)}}


def memory(at: Server, requests: int) -> list[dict[str, int]]:
    """Memory of the server while it answers a number of estimates."""
    connection, bodies = http.client.HTTPConnection(at.host, at.port), different(ESTIMATE)
    found = []
    for number in range(requests + 1):
        if number % max(requests // 10, 1) == 0:
            found.append({"num_requests": number, "memory_bytes": at.memory_bytes})
        asked(connection, "POST", "/api/estimate", bodies())
    return found


def start_times(runs: int) -> list[float]:
    """Seconds until a new server has answered, of several."""
    found = []
    for _ in range(runs):
        with server() as at:
            found.append(at.start_time)
    return sorted(found)


def main() -> None:
    """Measures, prints and writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--tiny", action="store_true", help="one client and a few requests, to see that it works")
    parser.add_argument("--json", type=Path, default=RECORD)
    given = parser.parse_args()
    clients, seconds, requests = ((1,), 0.2, 20) if given.tiny else (CLIENTS, given.seconds, given.requests)
    record: dict[str, Any] = {"num_cores": os.cpu_count(), "load_average": os.getloadavg()[0], "loads": []}
    record["start_s"] = start_times(given.runs)
    with server() as at:
        time.sleep(0 if given.tiny else PAUSE)
        for path, bodies in (("/api/plan", different(PLAN)), ("/api/estimate", different(ESTIMATE))):
            for number in clients:
                record["loads"].append(load(at, path, bodies, clients=number, seconds=seconds))
        asked(http.client.HTTPConnection(at.host, at.port), "POST", "/api/plan", PLAN)  # once, so that it is kept
        for number in clients:
            kept = load(at, "/api/plan", lambda: PLAN, clients=number, seconds=seconds)
            record["loads"].append({**kept, "path": "/api/plan (kept)"})
        record["memory"] = memory(at, requests)
    show(record)
    given.json.write_text(json.dumps(record, indent=1) + "\n")


def show(record: dict[str, Any]) -> None:
    """Prints what was measured."""
    ready, cores = record["start_s"][len(record["start_s"]) // 2], record["num_cores"]
    print(f"ready after {ready:.2f} s, on {cores} cores that others kept at a load of {record['load_average']:.1f}")
    for each in record["loads"]:
        rate, median, p95 = each["requests_per_s"], 1e3 * each["median_s"], 1e3 * each["p95_s"]
        print(f"{each['path']:18} {each['clients']:2} clients {rate:7.1f}/s  median {median:6.0f}  p95 {p95:6.0f} ms")
    for each in record["memory"]:
        print(f"after {each['num_requests']:6,} estimates {each['memory_bytes'] / 1e6:6.0f} MB")


if __name__ == "__main__":
    main()

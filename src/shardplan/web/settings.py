"""How the server runs: where it listens, who may ask, and how much one question may take. Flags derive from it."""

from __future__ import annotations

import os
import socket
from dataclasses import field
from ipaddress import ip_address
from typing import Any, Final

from shardplan.base.fields import about, check, dataclass

LOOPBACK_NAMES: Final = ("localhost",)
"""Names of this machine that browsers never look up elsewhere."""
MOST_WORKERS: Final = 64
MOST_TEXT: Final = 500_000
"""Characters of a launch file."""


def usual_workers() -> int:
    """Questions worked on at once: one for each core, eight at most."""
    return min(8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def _setting(default: object, text: str, **known: Any) -> Any:
    return field(default=default, metadata=about(text, **known))


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """One server."""

    host: str = _setting(
        "127.0.0.1", "Address to listen on. Another than this machine's own needs a token.", metavar="ADDRESS"
    )
    port: int = _setting(8321, "Port to listen on; 0 takes a free one.", most=65535)
    token: str | None = _setting(
        None,
        "Secret that every request has to bring. Default: SHARDPLAN_TOKEN, or a new one where one is needed.",
        metavar="TOKEN",
    )
    allowed_hosts: str = _setting(
        "", "Names under which the server is reached, such as plan.example.org; several with commas.", metavar="NAMES"
    )
    root_path: str = _setting("", "Path under which a proxy serves the app: /shardplan.", metavar="PATH", is_rare=True)
    trusted_proxies: str = _setting(
        "", "Addresses of proxies whose X-Forwarded headers are believed. Default: none.", metavar="ADDRESSES",
        is_rare=True,
    )  # fmt: skip
    api_only: bool = _setting(default=False, text="Serve the JSON API alone, without pages.")
    workers: int | None = _setting(
        None, "Questions worked on at once. Default: one for each core, 8 at most.", least=1, most=MOST_WORKERS,
        is_rare=True,
    )  # fmt: skip
    queue_length: int = _setting(64, "Questions that may wait; others are sent away.", most=10_000, is_rare=True)
    time_limit: float = _setting(
        30.0, "Seconds that one question may take, waiting included.", most=3600.0, unit="seconds", is_rare=True
    )
    max_connections: int = _setting(1000, "Connections open at once.", least=1, most=100_000, is_rare=True)
    max_body_bytes: int = _setting(
        4 * 2**20, "Largest body of a request, in bytes.", least=1024, most=2**30, unit="bytes", is_rare=True
    )
    body_time: float = _setting(
        10.0, "Seconds in which a request has to arrive.", most=3600.0, unit="seconds", is_rare=True
    )
    cache_bytes: int = _setting(
        256 * 2**20, "Memory for finished answers, in bytes.", most=2**40, unit="bytes", is_rare=True
    )

    def __post_init__(self) -> None:
        check(self)

    @property
    def host_names(self) -> frozenset[str]:
        """Names under which the server answers besides its addresses, in lower case."""
        listed = (name.strip().lower().rstrip(".") for name in self.allowed_hosts.split(","))
        own = socket.gethostname() if self.is_everywhere else self.host
        return frozenset({own.lower(), *LOOPBACK_NAMES, *(name for name in listed if name)})

    @property
    def is_everywhere(self) -> bool:
        """Whether it listens on all addresses of the machine."""
        return self.host in ("", "0.0.0.0", "::")  # noqa: S104  # compared with, not listened on

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        if self.host in LOOPBACK_NAMES:
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False

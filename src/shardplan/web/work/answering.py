"""``answer``: how every route of the app has its work done."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from ipaddress import IPv6Address, ip_address, ip_network
from typing import TypeVar

from starlette.requests import Request

from shardplan.web.work.workplace import Cancelled, Workplace

T = TypeVar("T")


async def answer(
    request: Request, work: Callable[[Cancelled], T], *, key: Hashable | None = None, patience: float = 1.0
) -> T:
    """What ``work`` returns, worked out in a thread of the place of work.

    ``work`` gets a function to ask whether to stop, which searches take as ``stop``. ``key``: finished answers are
    kept under it, and questions that come together are worked on once; the answer is not to be changed then.
    ``patience``: how many times the limit of time it may take, for what is many questions in one.

    Raises as ``work`` does; and ``Busy``, ``TookTooLong`` or ``Gone``, which the app turns into responses.
    """
    place: Workplace = request.app.state.workplace
    return await place.answer(work, client=client_of(request), gone=lambda: _gone(request), key=key, patience=patience)


def client_of(request: Request) -> str:
    """Who asks, as far as fairness goes: an address, of IPv6 its network of 64 bits."""
    host = request.client.host if request.client is not None else ""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    return str(ip_network((address, 64), strict=False)) if isinstance(address, IPv6Address) else host


async def _gone(request: Request) -> None:
    """Ends when the client has closed its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass

"""Names under which the server answers, and pages whose requests it takes.

A page of another site can have a browser send requests here, and by DNS rebinding read the answers, as its own name
then leads to this address. So the Host of a request has to be a name of this server, and requests that a browser sends
for a page come from our own pages. (Fetch Metadata, W3C; OWASP Cross-Site Request Forgery Prevention.)
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from shardplan.web.guard.refusing import RequestRefusedError, one
from shardplan.web.settings import ServerSettings

SAFE: Final = ("GET", "HEAD")
OURS: Final = ("", "same-origin", "none")
"""Values of Sec-Fetch-Site: not from a browser or an old one, from our own page, typed by the user."""


class OwnSites:
    """Lets through what is for this server and not from a page of another one."""

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        """``settings``: the names of the server."""
        self.app, self.settings = app, settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, or refuses it."""
        if scope["type"] == "http":
            try:
                self._check(scope["method"], Headers(scope=scope))
            except RequestRefusedError as refusal:
                await refusal.send(scope, receive, send)
                return
        await self.app(scope, receive, send)

    def _check(self, method: str, headers: Headers) -> None:
        """Raises RequestRefusedError."""
        host = one(headers, "host")
        if not is_ours(host, self.settings):
            raise RequestRefusedError(
                f"the request is for {host[:100]!r}, which is no name of this server",
                rule="a request is for a name of this server",
                hint="use the address that it prints, or name others: `shardplan serve --allowed-hosts NAMES`",
            )
        origin, site = one(headers, "origin"), one(headers, "sec-fetch-site")
        is_own = (not origin or _authority(origin) == host.lower()) and site in OURS
        is_link = method in SAFE and one(headers, "sec-fetch-mode") == "navigate" and not origin
        if not (is_own or (is_link and one(headers, "sec-fetch-dest") == "document")):
            raise RequestRefusedError(
                "the request comes from a page of another site",
                rule="only pages of this server send requests to it",
                hint="open the page of this server, or ask from a program",
                status=403,
            )


def is_ours(host: str, settings: ServerSettings) -> bool:
    """Whether the Host of a request is a name of this server; an address in numbers cannot be rebound."""
    name = _name(host)
    if name in settings.host_names:
        return True
    try:
        address = ip_address(name)
    except ValueError:
        return False
    return address.is_loopback if settings.is_loopback else True


def _name(host: str) -> str:
    """The name in a Host without its port, in lower case; empty where it cannot be read."""
    try:
        parts = urlsplit(f"//{host}")
        is_plain = parts.netloc == host and not parts.username and (parts.port is None or parts.port > 0)
    except ValueError:
        return ""
    return (parts.hostname or "").rstrip(".") if is_plain else ""


def _authority(origin: str) -> str:
    """Host and port of an origin; of ``null`` none that a request is for."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""

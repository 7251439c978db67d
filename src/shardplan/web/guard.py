"""Guards in front of the app: who may ask, from which pages, how much at once, and what a browser may do with answers.

Pages run no script, style or frame but ours and load nothing from other hosts.

A page of another site can have a browser send requests here, and by DNS rebinding read the answers, as its own name
then leads to this address. So the Host of a request has to be a name of this server, and requests that a browser sends
for a page come from our own pages. (Fetch Metadata, W3C; OWASP Cross-Site Request Forgery Prevention.)

Every request brings the token, programs in a header, browsers in a cookie that its address with the token sets. The
cookie holds a digest of the token: what a browser keeps does not open the API by header.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from hashlib import blake2b
from hmac import compare_digest
from ipaddress import ip_address
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request, cookie_parser
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shardplan.base.errors import ShardplanError
from shardplan.web.problems import problem
from shardplan.web.settings import ServerSettings

EMPTY_STYLE: Final = "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"
"""Digest of an empty text: plotly adds a style element without text and fills it by rules."""
STRICT: Final[Mapping[str, str]] = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": f"'self' {EMPTY_STYLE}",
    "img-src": "'self' data: blob:",
    "font-src": "'self'",
    "connect-src": "'self'",
    "form-action": "'self'",
    "base-uri": "'none'",
    "frame-ancestors": "'none'",
}


def policy(**replaced: str) -> str:
    """A Content-Security-Policy: the strict one, with directives replaced (``style_src="'self' 'unsafe-inline'"``)."""
    directives = {**STRICT, **{name.replace("_", "-"): value for name, value in replaced.items()}}
    return "; ".join(f"{name} {value}" for name, value in directives.items())


HEADERS: Final = {
    "Content-Security-Policy": policy(),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
"""Of every response that does not say otherwise."""
FOR_EVER: Final = "public, max-age=31536000, immutable"
STATIC: Final = "/static/"
"""What the addresses of files begin with that change with their content."""
OK: Final = 200


class SafeHeaders:
    """Adds the headers."""

    def __init__(self, app: ASGIApp) -> None:
        """``app``: what answers."""
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on."""

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=message.get("headers", []))
                if scope["path"].startswith(STATIC) and message["status"] == OK:
                    headers.setdefault("Cache-Control", FOR_EVER)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                message["headers"] = headers.raw
            await send(message)

        await self.app(scope, receive, sending if scope["type"] == "http" else send)


class UnderPath:
    """Takes the path of the app off an address that has it. Links on pages are relative, so that they need none."""

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        """``settings``: the path."""
        self.app, self.prefix = app, settings.root_path.rstrip("/")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on."""
        if scope["type"] == "http" and self.prefix and f"{scope['path']}/".startswith(f"{self.prefix}/"):
            scope = {**scope, "path": scope["path"].removeprefix(self.prefix) or "/"}
        await self.app(scope, receive, send)


class RequestRefusedError(ShardplanError):
    """A request that is turned away, and the status of the response."""

    def __init__(
        self, message: str, *, rule: str, hint: str = "", status: int = 400, headers: Mapping[str, str] | None = None
    ) -> None:
        """``headers``: of the response."""
        super().__init__(message, rule=rule, hint=hint)
        self.status = status
        self.headers = {"Connection": "close", **(headers or {})}

    async def send(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers the request, and ends the connection: what is left of its body is not read."""
        response = problem(Request(scope), self, self.status, self.headers)
        await response(scope, receive, send)


def one(headers: Headers, name: str) -> str:
    """The value of a header; empty where it is missing. Raises RequestRefusedError where it is given twice."""
    values = headers.getlist(name)
    if len(values) > 1:
        raise RequestRefusedError(f"the request has {len(values)} headers {name}", rule=f"a request has one {name}")
    return values[0] if values else ""


class Guard:
    """Lets requests through to the app, or refuses them."""

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        """``settings``: of the server."""
        self.app, self.settings = app, settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, or answers with why it is refused."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            await self.let_through(scope, receive, send)
        except RequestRefusedError as refusal:
            await refusal.send(scope, receive, send)

    async def let_through(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on. Raises RequestRefusedError."""
        raise NotImplementedError


SAFE: Final = ("GET", "HEAD")
OURS: Final = ("", "same-origin", "none")
"""Values of Sec-Fetch-Site: not from a browser or an old one, from our own page, typed by the user."""


class OwnSites(Guard):
    """Lets through what is for this server and not from a page of another one."""

    async def let_through(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on. Raises RequestRefusedError."""
        self._check(scope["method"], Headers(scope=scope))
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


OPEN: Final = ("/healthz",)
"""Paths that need no token: whether the server is up is no secret. Nor are the files under ``STATIC``, which the page
that asks for the token needs."""
IN_ADDRESS: Final = "token"
MOST_PARAMETERS: Final = 200
MONTH: Final = 30 * 24 * 3600


class NeedsToken(Guard):
    """Lets through what has the token, where there is one."""

    @property
    def cookie(self) -> str:
        """Its name: cookies of one host are shared by all its ports."""
        return f"shardplan_{self.settings.port}"

    async def let_through(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, or sets the cookie. Raises RequestRefusedError."""
        token = self.settings.token
        if token is None or scope["path"] in OPEN or scope["path"].startswith(STATIC):
            await self.app(scope, receive, send)
        elif scope["method"] == "GET" and is_same(_in_address(scope), token):
            await self._welcome(token, scope, receive, send)
        elif self._is_known(Headers(scope=scope), token):
            await self.app(scope, receive, send)
        else:
            raise _unknown()

    def _is_known(self, headers: Headers, token: str) -> bool:
        try:
            scheme, _, given = one(headers, "authorization").partition(" ")
        except RequestRefusedError:
            return False
        if scheme.lower() == "bearer" and is_same(given.strip(), token):
            return True
        cookies = cookie_parser(headers.get("cookie", ""))
        return is_same(cookies.get(self.cookie, ""), digest_of(token))

    async def _welcome(self, token: str, scope: Scope, receive: Receive, send: Send) -> None:
        """The same address without the token, which is now in a cookie; nothing keeps it in a list of addresses."""
        rest = [(name, value) for name, value in _parameters(scope) if name != IN_ADDRESS]
        path = f"./{scope['path'].rpartition('/')[2]}"  # as seen from there: it holds under any path of a proxy
        where = path + (f"?{urlencode(rest)}" if rest else "")
        response = Response(status_code=303, headers={"Location": quote(where, safe="/?&=%+:,;@!$'()*~-._")})
        response.set_cookie(
            self.cookie,
            digest_of(token),
            max_age=MONTH,
            httponly=True,
            samesite="strict",
            secure=scope["scheme"] == "https",
        )
        await response(scope, receive, send)


def is_same(given: str, expected: str) -> bool:
    """Whether two secrets are the same, in a time that does not depend on where they differ."""
    return compare_digest(given.encode(errors="surrogatepass"), expected.encode(errors="surrogatepass"))


def digest_of(token: str) -> str:
    """What the cookie holds."""
    return blake2b(token.encode(), person=b"shardplan cookie", digest_size=32).hexdigest()


def _parameters(scope: Scope) -> list[tuple[str, str]]:
    try:
        text = scope["query_string"].decode("ascii")
        return parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_PARAMETERS)
    except ValueError:
        return []


def _in_address(scope: Scope) -> str:
    return next((value for name, value in _parameters(scope) if name == IN_ADDRESS), "")


def _unknown() -> RequestRefusedError:
    return RequestRefusedError(
        "the token is missing or wrong",
        rule="every request to this server has its token",
        hint="open the address with ?token= that `shardplan serve` printed, or send Authorization: Bearer TOKEN",
        status=401,
        headers={"WWW-Authenticate": "Bearer"},
    )


class BoundedBodies(Guard):
    """Reads the whole body of a request before the app sees it: an app never waits for a slow one."""

    async def let_through(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request with its body on. Raises RequestRefusedError."""
        body = await self._read(Headers(scope=scope), receive)
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

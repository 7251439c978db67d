"""The token: every request brings it, programs in a header, browsers in a cookie that its address with the token sets.

Cookies of one host are shared by all its ports, so the name of ours has the port. It holds a digest of the token: what
a browser keeps does not open the API by header.
"""

from __future__ import annotations

from hashlib import blake2b
from hmac import compare_digest
from typing import Final
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from shardplan.web.guard.refusing import RequestRefusedError, one
from shardplan.web.settings import ServerSettings

OPEN: Final = ("/healthz",)
"""Paths that need no token: whether the server is up is no secret."""
STATIC: Final = "/static/"
"""Nor are the files of the package, which the page that asks for the token needs."""
IN_ADDRESS: Final = "token"
MOST_PARAMETERS: Final = 200
MONTH: Final = 30 * 24 * 3600


class NeedsToken:
    """Lets through what has the token, where there is one."""

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        """``settings``: the token."""
        self.app, self.settings = app, settings
        self.cookie = f"shardplan_{settings.port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, sets the cookie, or refuses."""
        token = self.settings.token
        if scope["type"] != "http" or token is None or _is_open(scope["path"]):
            await self.app(scope, receive, send)
        elif scope["method"] == "GET" and is_same(_in_address(scope), token):
            await self._welcome(token, scope, receive, send)
        elif self._is_known(Headers(scope=scope), token):
            await self.app(scope, receive, send)
        else:
            await _unknown().send(scope, receive, send)

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
        response = Response(status_code=303, headers={"Location": _ascii(where)})
        response.set_cookie(
            self.cookie,
            digest_of(token),
            max_age=MONTH,
            httponly=True,
            samesite="strict",
            secure=scope["scheme"] == "https",
        )
        await response(scope, receive, send)


def _is_open(path: str) -> bool:
    return path in OPEN or path.startswith(STATIC)


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


def _ascii(address: str) -> str:
    from urllib.parse import quote

    return quote(address, safe="/?&=%+:,;@!$'()*~-._")


def _unknown() -> RequestRefusedError:
    return RequestRefusedError(
        "the token is missing or wrong",
        rule="every request to this server has its token",
        hint="open the address with ?token= that `shardplan serve` printed, or send Authorization: Bearer TOKEN",
        status=401,
        headers={"WWW-Authenticate": "Bearer"},
    )

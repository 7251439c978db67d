"""Headers of answers: pages run no script, style or frame but ours and load nothing from other hosts.

Also the path under which a proxy serves the app, which it may remove from the addresses that it passes on or keep.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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

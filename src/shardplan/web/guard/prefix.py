"""Under a path: a proxy may take it off, or leave it in the addresses that it passes on."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from shardplan.web.settings import ServerSettings


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

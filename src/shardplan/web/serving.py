"""The server: uvicorn with the limits of the settings."""

from __future__ import annotations

import uvicorn

from shardplan.web.app import create_app
from shardplan.web.settings import Settings


def run(settings: Settings, *, open_browser: bool = False) -> int:  # noqa: ARG001
    """Serves until it is interrupted; the exit status."""
    uvicorn.run(create_app(settings), host=settings.host, port=settings.port, log_level="warning")
    return 0

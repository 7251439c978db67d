"""The views of the web app, in the order of the navigation. A view that is not in the list has no link."""

from __future__ import annotations

from types import ModuleType
from typing import Final

from fastapi import FastAPI

from shardplan.web.pages import audit, plan, trust

PAGES: Final[tuple[ModuleType, ...]] = (plan, trust, audit)
"""Each has a ``VIEW`` and a ``router``."""


def add_pages(app: FastAPI) -> None:
    """Adds every view to ``app``."""
    app.state.views = tuple(each.VIEW for each in PAGES)
    for each in PAGES:
        app.include_router(each.router, include_in_schema=False)

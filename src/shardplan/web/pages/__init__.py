"""The views of the web app, in the order of the navigation. A view that is not in the list has no link."""

from __future__ import annotations

from importlib import resources
from types import ModuleType
from typing import Final

from fastapi import FastAPI
from fastapi.responses import FileResponse

from shardplan.web.pages import audit, decide, export, plan, published, step, trust

PAGES: Final[tuple[ModuleType, ...]] = (plan, step, decide, trust, audit, export, published)
"""Each has a ``VIEW`` and a ``router``."""


LONG: Final = "public, max-age=31536000, immutable"
"""Of a file whose address changes with its version."""


async def plotly() -> FileResponse:
    """The library of charts from its Python package: pages load it once they are drawn."""
    file = resources.files("plotly") / "package_data" / "plotly.min.js"
    return FileResponse(str(file), media_type="text/javascript", headers={"Cache-Control": LONG})


def add_pages(app: FastAPI) -> None:
    """Adds every view to ``app``."""
    app.state.views = tuple(each.VIEW for each in PAGES)
    app.add_api_route("/plotly.min.js", plotly, include_in_schema=False)
    for each in PAGES:
        app.include_router(each.router, include_in_schema=False)

"""The pages of the web app. What a page needs is imported when it is first asked for: the server starts soon."""

from __future__ import annotations

import asyncio
from functools import cache
from importlib import import_module, resources
from typing import Final

from starlette.requests import Request
from starlette.responses import FileResponse
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from shardplan.web.pages.view import PLAN, VIEWS, View

LONG: Final = "public, max-age=31536000, immutable"
"""Of a file whose address changes with its version."""


async def plotly(_request: Request) -> FileResponse:
    """The library of charts from its Python package: pages load it once they are drawn."""
    file = resources.files("plotly") / "package_data" / "plotly.min.js"
    return FileResponse(str(file), media_type="text/javascript", headers={"Cache-Control": LONG})


PLOTLY: Final = Route("/plotly.min.js", plotly)


async def pages(scope: Scope, receive: Receive, send: Send) -> None:
    """Every view, by the first part of the path; what belongs to no other is of Plan."""
    first = f"/{scope['path'].split('/')[1]}"
    view = next((each for each in VIEWS if each.path == first), PLAN)
    router = await asyncio.to_thread(routes_of, view)
    await router(scope, receive, send)


@cache
def routes_of(view: View) -> Router:
    """The routes of a view."""
    return Router(import_module(view.module).ROUTES, redirect_slashes=False)

"""The pages of the web app: what a view is, and all of them, with the files that they share.

What a page needs is imported when it is first asked for: the server starts soon.
"""

from __future__ import annotations

import asyncio
from functools import cache
from hashlib import blake2b
from importlib import import_module, resources
from pathlib import Path
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import FileResponse
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send


class View(NamedTuple):
    """A page, and its place in the navigation."""

    path: str
    """Address of the page: ``/step``. The answer alone is at ``/step/answer``."""
    title: str
    """One or two words for the navigation."""
    summary: str
    """One sentence: what the page answers."""

    @property
    def module(self) -> str:
        """Module of :mod:`shardplan.web.pages` that has its routes: imported when it is first asked for."""
        return f"shardplan.web.pages.{self.path.strip('/') or 'plan'}"

    @property
    def answer_path(self) -> str:
        """Address of the answer without the page around it."""
        return f"{self.path.rstrip('/')}/answer"


PLAN: Final = View("/", "Plan", "the recommended plan for a model on a cluster, and the plans around it")
STEP: Final = View(
    "/step", "Step", "one step of a plan: its timeline, memory, operators, traffic, and its schedules side by side"
)
DECIDE: Final = View(
    "/decide",
    "Decide",
    "how many accelerators pay, what fits, what else could be trained, which hardware matters, and what a run costs",
)
RL: Final = View(
    "/rl", "RL", "how many accelerators train and how many generate in a step of reinforcement learning, and which wait"
)
TRUST: Final = View(
    "/trust", "Trust", "predicted against measured for every published run, with the reasons for the errors"
)
AUDIT: Final = View(
    "/audit", "Audit", "what a launch script runs, which rules it breaks, what it takes, and what would be better"
)
EXPORT: Final = View("/export", "Export", "the launch files of the plan for any framework")
PUBLISHED: Final = View(
    "/published",
    "Published models",
    "what four published models say to the question, next to our own estimate, and the figures of two papers",
)
VIEWS: Final = (PLAN, STEP, DECIDE, RL, TRUST, AUDIT, EXPORT, PUBLISHED)
"""In the order of the navigation."""


FOLDERS: Final = {
    "timeline/": Path(str(resources.files("shardplan.reports.timeline"))) / "assets",
    "": Path(__file__).parent.parent / "static",
}
"""Files that pages load, by the beginning of their names."""


@cache
def static_path() -> str:
    """Path of these files, ``/static/5744c0cb3956``: a browser may keep what is under it for ever."""
    digest = blake2b(digest_size=6)
    for start, folder in FOLDERS.items():
        for path in sorted(each for each in folder.rglob("*") if each.is_file()):
            digest.update(start.encode() + path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return f"/static/{digest.hexdigest()}"


def static_url(name: str) -> str:
    """Address of one of them."""
    return f"{static_path()}/{name}"


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

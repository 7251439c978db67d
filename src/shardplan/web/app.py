"""The app: JSON routes, and pages where they are asked for, behind the guards."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles

from shardplan.web.guard import BoundedBodies, NeedsToken, OwnSites, SafeHeaders, UnderPath
from shardplan.web.json.routes import json_routes
from shardplan.web.pages import FOLDERS, static_path
from shardplan.web.problems import HANDLERS
from shardplan.web.settings import ServerSettings, usual_workers
from shardplan.web.workplace import Workplace, warm_up


def create_app(settings: ServerSettings | None = None) -> Starlette:
    """The app with these settings, ready for any ASGI server."""
    settings = settings or ServerSettings()
    guards = (OwnSites, NeedsToken, BoundedBodies)  # in the order in which they see a request
    app = Starlette(
        routes=[*_routes(settings)],
        middleware=[
            Middleware(UnderPath, settings=settings),
            Middleware(SafeHeaders),
            *(Middleware(guard, settings=settings) for guard in guards),
        ],
        exception_handlers=HANDLERS,
        lifespan=_lifespan,
    )
    app.router.redirect_slashes = False
    if not settings.api_only:
        from shardplan.web.pages import pages

        app.router.default = pages  # last: a path of the API that does not take a method says so
    app.state.settings = settings
    return app


def _routes(settings: ServerSettings) -> Iterator[BaseRoute]:
    yield from json_routes()
    if not settings.api_only:
        from shardplan.web.pages import PLOTLY

        for start, folder in FOLDERS.items():
            yield Mount(f"{static_path()}/{start}".rstrip("/"), StaticFiles(directory=folder))
        yield PLOTLY


@asynccontextmanager
async def _lifespan(app: Starlette) -> AsyncIterator[None]:
    """Makes the place of work while the server runs."""
    settings: ServerSettings = app.state.settings
    app.state.workplace = Workplace(
        workers=settings.workers or usual_workers(),
        queue_length=settings.queue_length,
        time_limit=settings.time_limit,
        cache_bytes=settings.cache_bytes,
    )
    warm_up(has_pages=not settings.api_only)
    yield
    app.state.workplace.close()

"""The app: JSON routes, and pages where they are asked for, behind the guards."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from fastapi import FastAPI
from fastapi.staticfiles import StaticFiles

from shardplan.version import VERSION
from shardplan.web.guard.bodies import BoundedBodies
from shardplan.web.guard.headers import SafeHeaders
from shardplan.web.guard.sites import OwnSites
from shardplan.web.guard.token import NeedsToken
from shardplan.web.json.routes import add_json
from shardplan.web.problems import add_problems
from shardplan.web.settings import ServerSettings, usual_workers
from shardplan.web.work.warming import warm_up
from shardplan.web.work.workplace import Workplace

STATIC: Final = Path(__file__).parent / "static"


def create_app(settings: ServerSettings | None = None) -> FastAPI:
    """The app with these settings, ready for any ASGI server."""
    settings = settings or ServerSettings()
    app = FastAPI(
        title="shardplan",
        version=VERSION,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        root_path=settings.root_path,
        lifespan=_lifespan,
    )
    app.state.settings = settings
    add_problems(app)
    for guard in (BoundedBodies, NeedsToken, OwnSites):  # the last one added is the first to see a request
        app.add_middleware(guard, settings=settings)
    app.add_middleware(SafeHeaders)
    add_json(app)
    if not settings.api_only:
        from shardplan.web.pages import add_pages

        app.mount("/static", StaticFiles(directory=STATIC), name="static")
        add_pages(app)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Makes the place of work while the server runs."""
    settings: ServerSettings = app.state.settings
    app.state.workplace = Workplace(
        workers=settings.workers or usual_workers(),
        queue_length=settings.queue_length,
        time_limit=settings.time_limit,
        cache_bytes=settings.cache_bytes,
    )
    warm_up()
    yield
    app.state.workplace.close()

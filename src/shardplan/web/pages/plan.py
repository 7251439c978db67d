"""Plan: the recommended plan for a model on a cluster, and the plans around it.

This is the first page of a visit, so that what answers is imported once the page is on its way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Final, cast

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from shardplan.web.pages import PLAN as VIEW
from shardplan.web.pages.form import form_context
from shardplan.web.pages.rendering import page
from shardplan.web.state import BOTH, question_of

Handler = Callable[[Request], Awaitable[Response]]
ANSWERS: Final = "shardplan.web.pages.plan_answers"


async def whole(request: Request) -> HTMLResponse:
    """The page."""
    question = await question_of(request)
    return await page(request, VIEW, "plan.html", later("the_answer"), question=question, **form_context(question))


def later(name: str) -> Handler:
    """The answer of that name, imported when it is first asked for."""

    async def handler(request: Request) -> Response:
        module = await asyncio.to_thread(import_module, ANSWERS)
        return await cast("Handler", getattr(module, name))(request)

    return handler


ROUTES: Final = (
    Route("/", whole),
    *(
        Route(path, later(name), methods=BOTH)
        for path, name in (
            ("/answer", "the_answer"),
            ("/why", "why"),
            ("/moves", "moves"),
            ("/space", "space"),
            ("/plans", "plans"),
            ("/compare", "compare"),
            ("/one", "one"),
            ("/plan.json", "plan_file"),
        )
    ),
    Route("/open", later("opened"), methods=["POST"]),
)

"""Plan: the plan to take, and the space around it."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from shardplan.web.pages.rendering import fragment, page
from shardplan.web.pages.view import View

VIEW = View(path="/", title="Plan", summary="The plan to take for a model on a cluster, and the plans around it.")
router = APIRouter()


@router.get("/", response_class=HTMLResponse)
async def whole(request: Request) -> HTMLResponse:
    """The page."""
    return page(request, VIEW, "plan.html")


@router.get("/answer", response_class=HTMLResponse)
async def answer(request: Request) -> HTMLResponse:
    """The answer."""
    return fragment(request, "plan_answer.html")

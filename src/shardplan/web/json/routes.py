"""The routes."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from shardplan.version import VERSION
from shardplan.web.work.answering import answer
from shardplan.web.work.workplace import Cancelled

router = APIRouter()


@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """Says that the server is up."""
    return {"status": "ok", "version": VERSION}


@router.post("/api/plan")
async def plan(request: Request) -> dict[str, Any]:
    """Finds the fastest plans that fit."""
    body = await request.json()

    def work(cancelled: Cancelled) -> dict[str, Any]:
        from shardplan.api.calls import search

        return search(**body, stop=cancelled).to_dict()

    return await answer(request, work)

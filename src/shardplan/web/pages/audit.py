"""Audit: what a launch script runs, which rules it breaks, and what would be better."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route

from shardplan.errors import InputError
from shardplan.inputs.readers.typed import whole
from shardplan.web.pages.pasted_script import EXAMPLE, PastedScript
from shardplan.web.pages.rendering import fragment, page
from shardplan.web.pages.view import AUDIT as VIEW
from shardplan.web.state import BOTH, MOST_ACCELERATORS, PageQuestion, named, names_of
from shardplan.web.work.workplace import Cancelled
from shardplan.web.work.workplace import answer as answered


async def whole_page(request: Request) -> HTMLResponse:
    """The page, with an example to begin with."""
    return await page(request, VIEW, "audit.html", answer, script=await _script(request), clusters=names_of("cluster"))


async def _script(request: Request) -> PastedScript:
    """What is sent, or the example. Raises InputError."""
    if request.method == "POST":
        return PastedScript.of((await request.body()).decode("utf-8", errors="replace"))
    from shardplan.files import example_files

    question = PageQuestion.of(request.query_params.multi_items())
    cluster = request.query_params.get("audit_cluster", question.cluster)
    return PastedScript(text=example_files()[EXAMPLE].decode(), cluster=cluster, env={}, given={})


async def answer(request: Request) -> HTMLResponse:
    """The audit."""
    script = await _script(request)
    if not script.text.strip():
        return fragment(request, "audit_empty.html")
    shown = await answered(request, lambda cancelled: _audited(script, cancelled), key=("audit", repr(script)))
    return fragment(request, "audit_answer.html", script=script, models=names_of("model"), **shown)


def _audited(script: PastedScript, cancelled: Cancelled) -> dict[str, Any]:
    """What the template shows. The script is read in an empty folder: it can name no other file. Raises InputError."""
    from shardplan.api.audits import audit
    from shardplan.web.pages.audit_texts import audit_texts

    count = script.num_accelerators
    with TemporaryDirectory(prefix="shardplan-") as folder:
        file = Path(folder) / script.name
        file.write_text(script.text, encoding="utf-8")
        try:
            found = audit(
                file,
                model=named("model", script.model) if script.model else None,
                cluster=named("cluster", script.cluster) if script.cluster else None,
                num_accelerators=whole(count, "--gpus", most=MOST_ACCELERATORS) if count else None,
                env=script.env,
                given=script.given,
                stop=cancelled,
                observed=[each.strip() for each in script.observed.split(",") if each.strip()],
            )
        except InputError as error:
            raise InputError(
                error.message.replace(f"{folder}/", ""), rule=error.rule, hint=error.hint.replace(f"{folder}/", "")
            ) from None
        return audit_texts(found, script, folder)


ROUTES: Final = (
    Route("/audit", whole_page, methods=BOTH),
    Route("/audit/answer", answer, methods=["POST"]),
)

"""Export: the launch files of a plan for any framework."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route

from shardplan.base.errors import InputError, NotRunnableError, UnknownNameError
from shardplan.base.units import format_time
from shardplan.estimation.estimate import Estimate
from shardplan.launch.export.targets import TARGETS, export_estimate
from shardplan.reports.texts.plan import plan_words
from shardplan.web.answered import PageAnswer
from shardplan.web.pages import EXPORT as VIEW
from shardplan.web.pages.form import question_context, title_of
from shardplan.web.pages.plan_answers import asked
from shardplan.web.pages.rendering import fragment, page
from shardplan.web.state import BOTH, PageQuestion, given_in, names_of, question_of
from shardplan.web.workplace import answer as answered

USUAL: Final = "megatron-lm"


async def _target(request: Request, question: PageQuestion) -> str:
    """The framework that is written for: the one that is asked for, that of the question, or the usual one."""
    named = dict(await given_in(request)).get("to", "").strip().lower()[:60]
    return named or (question.stack if question.stack in TARGETS else USUAL)


async def whole(request: Request) -> HTMLResponse:
    """The page."""
    question = await question_of(request)
    return await page(
        request, VIEW, "export.html", the_answer,
        targets=[(name, name) for name in TARGETS], to=await _target(request, question), **question_context(question),
    )  # fmt: skip


async def the_answer(request: Request) -> HTMLResponse:
    """The files, or why the framework cannot run the plan."""
    question = await question_of(request)
    to = await _target(request, question)
    if to not in TARGETS:
        raise UnknownNameError("framework to export to", to, TARGETS, hint=f"one of {', '.join(TARGETS)}")
    found = await asked(request, question)
    shown = await answered(
        request, lambda _stop: _texts(found, question, to), key=question.key("export", question.show, to)
    )
    own = urlencode({"to": to})
    planned = question.with_values(stack=to if to in names_of("stack") else question.stack, show="")
    return fragment(
        request,
        "export_answer.html",
        address=f"/export?{question.query()}&{own}",
        to=to,
        title=title_of(found),
        for_framework=f"/export?{planned.query()}&{own}" if planned != question else "",
        **shown,
    )


def _texts(found: PageAnswer, question: PageQuestion, to: str) -> dict[str, Any]:
    """What the template shows. Raises NothingFitsError where there is no plan."""
    estimate = found.shown(question.show)
    plan = {"plan": ", ".join(plan_words(estimate)), "step": format_time(estimate.step_time)}
    try:
        return {**plan, "refused": "", "hint": "", **_files(found, estimate, to)}
    except (NotRunnableError, InputError) as error:
        return {**plan, "refused": error.message, "hint": error.hint, "files": []}


def _files(found: PageAnswer, estimate: Estimate, to: str) -> dict[str, Any]:
    made = export_estimate(to, found.posed.question, estimate)
    return {
        "framework": made.framework,
        "files": [*made.files.items()],
        "not_expressed": made.not_expressed,
        "placeholders": made.placeholders,
        "relies_on": made.relies_on,
    }


ROUTES: Final = (
    Route("/export", whole),
    Route("/export/answer", the_answer, methods=BOTH),
)

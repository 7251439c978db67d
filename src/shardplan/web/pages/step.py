"""Step: one step of a plan, event by event, with memory, operators, traffic, and other schedules of the same plan."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable
from hashlib import sha256
from typing import Any, Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from shardplan.fields import dataclass
from shardplan.inputs.plan import Plan
from shardplan.planner.stopping import Stop
from shardplan.reports.texts.plan import plan_words
from shardplan.reports.timeline.page import timeline_html
from shardplan.reports.timeline.trace import trace_text
from shardplan.schedules.registry import list_all_schedules
from shardplan.units import format_time
from shardplan.web.guard.headers import policy
from shardplan.web.pages.plan_answers import asked
from shardplan.web.pages.question_form import question_context, title_of
from shardplan.web.pages.rendering import fragment, page, parts
from shardplan.web.pages.step_texts import schedule_rows, simulated_plan, step_texts
from shardplan.web.pages.view import STEP as VIEW
from shardplan.web.planning.answered import PageAnswer
from shardplan.web.state import BOTH, PageQuestion, given_in, plan_code, question_of
from shardplan.web.work.workplace import answer as answered

EXCEPT: Final = re.compile(r"<(script|style)>(.*?)</\1>", re.DOTALL)
"""The script and the style of the timeline page, which are in the page itself."""


@dataclass(frozen=True, kw_only=True)
class SeenStep:
    """A plan of a question, and the schedule under which it is looked at."""

    question: PageQuestion
    schedule: str

    @classmethod
    async def of(cls, request: Request) -> SeenStep:
        """From the address, or from the body where a model is uploaded."""
        given = dict(await given_in(request))
        return cls(question=await question_of(request), schedule=given.get("step_schedule", "")[:60])

    @property
    def query(self) -> str:
        """Of the address that shows it."""
        own = urlencode({"step_schedule": self.schedule}) if self.schedule else ""
        return "&".join(part for part in (self.question.query(), own) if part)

    def key(self, what: str) -> tuple[object, ...]:
        """What something about it is kept under."""
        return self.question.key(what, self.question.show, self.schedule)

    def plan(self, found: PageAnswer) -> Plan:
        """The plan that is shown. Raises NothingFitsError where nothing fits and none is named."""
        return found.shown(self.question.show).plan


async def worked(request: Request, seen: SeenStep, what: str, work: Callable[[PageAnswer, Plan, Stop], Any]) -> Any:
    """Something about the plan, worked out off the event loop."""
    found = await asked(request, seen.question)
    return await answered(request, lambda stop: work(found, seen.plan(found), stop), key=seen.key(what))


async def whole(request: Request) -> HTMLResponse:
    """The page. It may show the timeline in a frame, which has scripts of its own."""
    seen = await SeenStep.of(request)
    shown = await page(
        request, VIEW, "step.html", the_answer, seen=seen, schedules=_schedules(), **question_context(seen.question)
    )
    shown.headers["Content-Security-Policy"] = policy(frame_src="'self'")
    return shown


def _schedules() -> list[tuple[str, str]]:
    return [("", "the plan's own"), *((name, name) for name in list_all_schedules())]


async def the_answer(request: Request) -> HTMLResponse:
    """The plan and its step."""
    seen = await SeenStep.of(request)
    found = await asked(request, seen.question)
    texts = await worked(
        request,
        seen,
        "step",
        lambda found, plan, stop: step_texts(simulated_plan(found, plan, seen.schedule, stop), found),
    )
    listed = [
        {
            "text": f"{format_time(each.step_time)}: {', '.join(plan_words(each))}",
            "code": plan_code(each.plan),
            "address": f"/step?{seen.question.with_values(show=plan_code(each.plan)).query()}",
        }
        for each in found.result.estimates[:8]
    ]
    return fragment(
        request,
        "step_answer.html",
        address=f"/step?{seen.query}",
        seen=seen,
        title=title_of(found),
        others=listed,
        is_uploaded=bool(seen.question.config),
        parts=await parts(request, schedules=schedules),
        **texts,
    )


async def schedules(request: Request) -> HTMLResponse:
    """The plan under every schedule that can run it."""
    seen = await SeenStep.of(request)
    rows = await worked(request, seen, "schedules", schedule_rows)
    return fragment(request, "step_schedules.html", **rows)


async def timeline(request: Request) -> Response:
    """The timeline as a page of its own, which runs the one script that is in it."""
    seen = await SeenStep.of(request)

    def work(found: PageAnswer, plan: Plan, stop: Stop) -> str:
        return timeline_html(simulated_plan(found, plan, seen.schedule, stop).timeline)

    text: str = await worked(request, seen, "timeline", work)
    if "download" in request.query_params:
        return _file(text, "text/html", "timeline.html")
    digests = {kind: _digest(content) for kind, content in EXCEPT.findall(text)}
    headers = {
        "Content-Security-Policy": policy(
            script_src=digests["script"], style_src=digests["style"], connect_src="'none'", frame_ancestors="'self'"
        ),
        "X-Frame-Options": "SAMEORIGIN",
    }
    return HTMLResponse(text, headers=headers)


def _digest(content: str) -> str:
    return f"'sha256-{b64encode(sha256(content.encode()).digest()).decode()}'"


async def trace(request: Request) -> Response:
    """The events in the trace format of Chrome, which Perfetto opens."""
    seen = await SeenStep.of(request)

    def work(found: PageAnswer, plan: Plan, stop: Stop) -> str:
        return "".join(trace_text(simulated_plan(found, plan, seen.schedule, stop).timeline))

    return _file(await worked(request, seen, "trace", work), "application/json", "trace.json")


def _file(text: str, kind: str, name: str) -> Response:
    return Response(text, media_type=kind, headers={"Content-Disposition": f'attachment; filename="{name}"'})


ROUTES: Final = (
    Route("/step", whole),
    Route("/step/answer", the_answer, methods=BOTH),
    Route("/step/schedules", schedules, methods=BOTH),
    Route("/step/timeline", timeline, methods=BOTH),
    Route("/step/trace.json", trace, methods=BOTH),
)

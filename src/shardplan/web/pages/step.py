"""Step: one step of a plan as texts and figures: events, memory, operators, traffic, and other schedules."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cached_property, partial
from typing import Any, Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from shardplan.answers.document import AnswerDocument
from shardplan.answers.step import operators_table, roofline_table, schedules_document
from shardplan.answers.timeline import stages_part
from shardplan.base.fields import dataclass
from shardplan.base.units import format_time
from shardplan.estimation.estimate import Estimate, estimate_plan
from shardplan.estimation.ranks import layout_of
from shardplan.inputs.plan import Plan
from shardplan.physics.schedules.registry import list_all_schedules, load_any_schedule
from shardplan.planner.stopping import Stop, check
from shardplan.render.html import Html
from shardplan.reports.texts.answer import percent
from shardplan.reports.texts.plan import plan_words
from shardplan.reports.timeline.page import SCRIPTS, summary, timeline_body, timeline_html
from shardplan.reports.timeline.picture import timeline_svg
from shardplan.reports.timeline.trace import trace_text
from shardplan.reports.truth import truth_of
from shardplan.simulation.plan import SimulatedPlan, simulate_plan, timeline_of
from shardplan.simulation.schedules import compared_schedules
from shardplan.simulation.timeline import StepTimeline
from shardplan.web.answered import PageAnswer
from shardplan.web.decisions import shown as shown_document
from shardplan.web.figures import layout_figure, operators_figure, roofline_figure
from shardplan.web.pages import STEP as VIEW
from shardplan.web.pages.form import question_context, title_of
from shardplan.web.pages.plan_answers import asked
from shardplan.web.pages.rendering import fragment, html_of, page, parts
from shardplan.web.panels import shown_plan
from shardplan.web.state import BOTH, PageQuestion, given_in, plan_code, question_of
from shardplan.web.verdict import truth_shown
from shardplan.web.workplace import answer as answered


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """A plan, simulated, with its estimate."""

    simulated: SimulatedPlan
    estimate: Estimate

    @cached_property
    def timeline(self) -> StepTimeline:
        """From event to event."""
        return timeline_of(self.simulated)


def simulated_plan(found: PageAnswer, plan: Plan, schedule: str, stop: Stop) -> Simulated:
    """The step of a plan, under another schedule if one is named. Raises InputError."""
    question = found.posed.question
    named = load_any_schedule((schedule or plan.effective_schedule).strip().lower())
    made = simulate_plan(question, plan, named, between=lambda: check(stop))
    return Simulated(simulated=made, estimate=estimate_plan(question, made.plan))


def step_texts(shown: Simulated) -> dict[str, Any]:
    """What the template shows."""
    step, timeline, estimate = shown.simulated, shown.timeline, shown.estimate
    roofline = step.priced.roofline
    return {
        "plan": ", ".join(plan_words(estimate)),
        "schedule": step.schedule.title,
        "step": format_time(step.step_time),
        "bubble": _bubble(step, estimate),
        "truth": truth_shown(truth_of(step.priced.question, estimate, step)),
        "shown": shown_plan(estimate),
        "num_events": f"{len(timeline.events):,}",
        "subject": timeline.subject,
        "summary": summary(timeline),
        "timeline": Html(timeline_body(timeline, has_layer=False)),
        "memory": html_of(stages_part(step.step, timeline).blocks),
        "operators_figure": operators_figure(timeline.drawn_layer),
        "operators": html_of([operators_table(timeline.drawn_layer)]),
        "roofline_figure": roofline_figure(roofline),
        "roofline": html_of([roofline_table(roofline)]),
        "layout": layout_figure(layout_of(step.priced.question, estimate)),
    }


def _bubble(step: SimulatedPlan, estimate: Estimate) -> str:
    """How long the slowest stage waits: simulated, and as the split of the estimate has it."""
    if len(step.step.ranks) == 1:
        return ""
    time, predicted = step.step.bubble_time, estimate.breakdown.get("bubble", 0.0)
    told = "" if step.closed_form_time is None else f"; the estimate says {format_time(predicted)}"
    waits = f"{format_time(time)} ({percent(step.bubble_rate)})"
    return f"Pipeline bubble: stage {step.step.busiest}, the slowest, waits {waits}{told}."


def under_schedules(found: PageAnswer, plan: Plan, stop: Stop) -> AnswerDocument:
    """The plan under every schedule that can run it."""
    simulate = partial(simulate_plan, found.posed.question, between=lambda: check(stop))
    return schedules_document(compared_schedules(plan, simulate))


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
    """The page."""
    seen = await SeenStep.of(request)
    return await page(
        request,
        VIEW,
        "step.html",
        the_answer,
        seen=seen,
        schedules=[("", "the plan's own"), *((name, name) for name in list_all_schedules())],
        timeline_scripts=SCRIPTS,
        **question_context(seen.question),
    )


async def the_answer(request: Request) -> HTMLResponse:
    """The plan and its step."""
    seen = await SeenStep.of(request)
    found = await asked(request, seen.question)
    texts = await worked(
        request,
        seen,
        "step",
        lambda found, plan, stop: step_texts(simulated_plan(found, plan, seen.schedule, stop)),
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
    document = await worked(request, seen, "schedules", under_schedules)
    return fragment(request, "step_schedules.html", **shown_document(document))


def written(
    what: str, text: Callable[[StepTimeline], str], kind: str, file: str = ""
) -> Callable[[Request], Awaitable[Response]]:
    """The timeline as text of a media type, to keep as a ``file`` where that has a name."""
    headers = {"Content-Disposition": f'attachment; filename="{file}"'} if file else {}

    async def handler(request: Request) -> Response:
        seen = await SeenStep.of(request)

        def work(found: PageAnswer, plan: Plan, stop: Stop) -> str:
            return text(simulated_plan(found, plan, seen.schedule, stop).timeline)

        return Response(await worked(request, seen, what, work), media_type=kind, headers=headers)

    return handler


def _trace(timeline: StepTimeline) -> str:
    """The events in the trace format of Chrome, which Perfetto opens."""
    return "".join(trace_text(timeline))


ROUTES: Final = (
    Route("/step", whole),
    Route("/step/answer", the_answer, methods=BOTH),
    Route("/step/schedules", schedules, methods=BOTH),
    Route("/step/timeline", written("timeline", timeline_html, "text/html", "timeline.html"), methods=BOTH),
    Route("/step/timeline.svg", written("picture", timeline_svg, "image/svg+xml")),  # for browsers without scripts
    Route("/step/trace.json", written("trace", _trace, "application/json", "trace.json"), methods=BOTH),
)

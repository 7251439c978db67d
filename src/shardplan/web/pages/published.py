"""Published models: four of them on the question at hand, next to our own estimate, and the figures of a paper."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route

from shardplan.answers.document import AnswerDocument, Column, Part
from shardplan.answers.methods.catalogue import MethodEntry, entry_document
from shardplan.answers.methods.question import Beside, ask_method, degrees_text, method_document, of_ours
from shardplan.base.errors import ShardplanError, UnknownNameError
from shardplan.base.units import format_bytes, format_time
from shardplan.methods.base import Method, MethodRow
from shardplan.methods.catalogue import load_method, load_methods
from shardplan.methods.subramanian2024.figures import FIGURES, figure
from shardplan.methods.subramanian2024.strategies import STRATEGIES
from shardplan.methods.subramanian2024.study import MODELS, NVLINK_SIZES, Study, StudyEntry, study
from shardplan.planner.stopping import Stop, check
from shardplan.render.html import Html
from shardplan.reports.texts.answer import percent
from shardplan.web.answered import PageAnswer
from shardplan.web.pages import PUBLISHED as VIEW
from shardplan.web.pages.form import question_context, title_of
from shardplan.web.pages.plan_answers import asked
from shardplan.web.pages.rendering import fragment, html_of, page
from shardplan.web.panels import panel_figures, shown_plan
from shardplan.web.state import BOTH, PageQuestion, given_in, named, question_of
from shardplan.web.workplace import answer as answered

NEEDS_NO_STUDY: Final = ("F5", "F6", "F7", "F8")
"""Figures that are drawn without the whole study."""
NOTEBOOK: Final = "H100 SXM5"
"""Device of the notebook of the data-movement model."""


async def whole(request: Request) -> HTMLResponse:
    """The page."""
    question = await question_of(request)
    return await page(request, VIEW, "published.html", the_answer, **question_context(question))


async def the_answer(request: Request) -> HTMLResponse:
    """All models on the question."""
    question = await question_of(request)
    found = await asked(request, question)
    methods = await answered(request, lambda stop: _compared(found, stop), key=question.key("published"))
    name = _figure_name(await given_in(request))
    return fragment(
        request,
        "published_answer.html",
        address=f"/published?{question.query()}{f'&figure={name}' if name != 'F1' else ''}",
        title=title_of(found),
        best=None if found.best is None else shown_plan(found.best),
        columns=COLUMNS,
        methods=methods,
        figures=[(each, title) for each, (title, _) in FIGURES.items()],
        chosen=name,
        devices=await _devices(request, question),
    )


async def _devices(request: Request, question: PageQuestion) -> dict[str, str]:
    """Devices of a limits curve: that of the question, and that of the notebook."""
    part = (await asked(request, question)).posed.question.cluster.accelerator
    return {part.name: part.full_name, NOTEBOOK: f"{NOTEBOOK}, as in the notebook of the paper"}


def _figure_name(given: Iterable[tuple[str, str]]) -> str:
    """The figure that is asked for. Raises UnknownNameError."""
    name = dict(given).get("figure", "F1").upper()
    if name not in FIGURES:
        raise UnknownNameError("figure", f"{name:.40}", FIGURES, hint=f"one of {', '.join(FIGURES)}")
    return name


async def the_figure(request: Request) -> HTMLResponse:
    """A figure of the paper, computed anew."""
    name = _figure_name(await given_in(request))
    results = None
    if name not in NEEDS_NO_STUDY:
        results = await answered(request, _study, key=("study",))
    shown = await answered(request, lambda _stop: _drawn(name, results), key=("figure of the study", name))
    return fragment(request, "published_figure.html", name=name, **shown)


async def the_limits(request: Request) -> HTMLResponse:
    """The limits curve of the data-movement model for a device."""
    device = dict(await given_in(request)).get("device", NOTEBOOK)
    name = NOTEBOOK if device == NOTEBOOK else named("accelerator", device)
    shown = await answered(request, lambda _stop: _limits(name), key=("limits", name))
    return fragment(request, "published_figure.html", name="limits", **shown)


def _limits(device: str) -> dict[str, Any]:
    from shardplan.answers.methods.data_movement import limits_chart

    record = load_method("data-movement").answer({"device": device, "limits": {}})
    chart = limits_chart(record)
    panels = panel_figures(chart)
    points = [point for point in record["points"] if point["num_devices"]]
    for each in panels:
        each["figure"]["data"][0] |= {
            "text": [
                f"{point['training_flop']:.2g} FLOP: {percent(point['utilisation'])} of the peak<br>"
                f"{point['num_devices']:,} devices: {point['tp_in']} x {point['tp_out']}, dp {point['dp']}, "
                f"pp {point['pp']}"
                for point in points
            ],
            "hovertemplate": "%{text}<extra></extra>",
        }
    return {"title": chart.title, "note": chart.note, "panels": panels, "rows": [*_cliffs(record)]}


def _cliffs(record: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Where utilisation falls off: computed, and what the paper claims."""
    claims = {claim["level"]: claim["abstract_flop"] for claim in record["claims"]}
    for cliff in record["cliffs"]:
        level, flop = cliff["level"], cliff["training_flop"]
        text = f"{100 * level:.0f} % of the base utilisation" if level else "nothing ends in time beyond"
        claim = f"{claims[level]:.0e} FLOP" if level in claims else "-"
        yield text, "-" if flop is None else f"{flop:.1e} FLOP", claim


def _study(stop: Stop) -> Study:
    """The whole study, a search of it after the other."""
    entries: list[StudyEntry] = []
    for model, strategy, size in product(MODELS, STRATEGIES, NVLINK_SIZES):
        check(stop)
        entries += study(models=(model,), strategies=(strategy,), nvlink_sizes=(size,)).entries
    return Study(entries=tuple(entries))


def _drawn(name: str, results: Study | None) -> dict[str, Any]:
    from shardplan.plotting.subramanian2024 import chart_of

    chart = chart_of(figure(name, results))
    return {"title": chart.title, "note": chart.note, "panels": panel_figures(chart), "rows": []}


def _compared(found: PageAnswer, stop: Stop) -> list[dict[str, Any]]:
    """Every published model: its answer with ours, or why it has none."""
    answers = []
    for method in load_methods():
        check(stop)
        answers.append(_one(method, found))
    return answers


def _one(method: Method, found: PageAnswer) -> dict[str, Any]:
    """Its best configuration with our estimate of it, and the parts of its answer; or the error that says why not."""
    about = {"entry": MethodEntry.of(method), "known": _parts(entry_document(MethodEntry.of(method)))}
    try:
        report = ask_method(method, found.posed.question, top=3)
    except ShardplanError as error:
        return {**about, "refusal": error, "pair": None, "parts": []}
    return {**about, "refusal": None, "pair": next(iter(report.pairs), None), "parts": _parts(method_document(report))}


def _parts(document: AnswerDocument) -> list[tuple[Part, Html]]:
    """Parts of a document, but for what the page shows itself."""
    return [(each, html_of(each.blocks)) for each in document.parts if each.title not in OWN_PARTS]


OWN_PARTS: Final = ("Configurations", "Next steps")


def _our_fit(pair: tuple[MethodRow, Beside]) -> str:
    estimate = pair[1].estimate
    return f"no plan: {pair[1].broken_rule}" if estimate is None else _fits(estimate.feasible)


def _fits(fits: bool) -> str:  # noqa: FBT001  # the text of a column
    return "fits" if fits else "does\N{NO-BREAK SPACE}not\N{NO-BREAK SPACE}fit"


COLUMNS: Final = (
    Column("", "its best configuration", lambda pair: degrees_text(pair[0]), is_text=True, is_wide=True),
    Column("", "its step", lambda pair: pair[0].step_time, format_time),
    Column("", "our step of it", of_ours("step_time"), format_time),
    Column("", "its memory", lambda pair: pair[0].memory_bytes, format_bytes),
    Column("", "our memory of it", of_ours("peak_memory_bytes"), format_bytes),
    Column("", "its fit", lambda pair: pair[0].fits, _fits, is_text=True),
    Column("", "our fit", _our_fit, is_text=True, is_wide=True),
)
"""Columns of the best configuration of a model with our estimate of it."""


ROUTES: Final = (
    Route("/published", whole),
    Route("/published/answer", the_answer, methods=BOTH),
    Route("/published/figure", the_figure, methods=BOTH),
    Route("/published/limits", the_limits, methods=BOTH),
)

"""Trust: what was predicted and what was measured for every published run, and why the two differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast, get_args

from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route

from shardplan.answers.accuracy.known_runs import TIERS, groups_table, run_document, runs_table
from shardplan.base.errors import ShardplanError, UnknownNameError
from shardplan.base.fields import dataclass
from shardplan.estimation.evidence import NearRun
from shardplan.reports.accuracy.known_runs import KnownRun, Quantity
from shardplan.web.decisions import shown as shown_document
from shardplan.web.pages import TRUST as VIEW
from shardplan.web.pages.form import address, others
from shardplan.web.pages.plan_answers import asked as search_of
from shardplan.web.pages.rendering import fragment, html_of, is_in_page, page
from shardplan.web.state import BOTH, PageQuestion, given_in
from shardplan.web.workplace import Cancelled
from shardplan.web.workplace import answer as answered

QUANTITIES: Final = {"step_time": "step time", "peak_memory": "peak memory", "fits": "whether it fits"}
FACETS: Final = {
    "family": "Origin of the runs",
    "accelerator": "Accelerator",
    "kind": "Kind of model",
    "framework": "Framework",
    "tier": "Description",
}
DRAWN: Final = {"against": "predicted against measured", "ratio": "error against measured"}
CHOICES: Final[Mapping[str, tuple[str, str, Mapping[str, str]]]] = {
    "quantity": ("quantity", "step_time", QUANTITIES),
    "by": ("grouping", "family", FACETS),
    "drawn": ("drawing", "against", DRAWN),
}
"""Fields of the form that are one of some names: what they choose, the usual one, and all."""
OWN: Final = ("quantity", *(f"run_{name}" for name in FACETS), "run_text", "by", "drawn", "run", "rows", "near")
FEW: Final = 25
"""Rows of the table unless all are asked for."""
MANY: Final = 2000


@dataclass(frozen=True, kw_only=True)
class TrustQuestion:
    """What the form asks for."""

    quantity: str
    filters: dict[str, str]
    text: str
    by: str
    drawn: str
    run: str
    is_whole: bool
    given: tuple[tuple[str, str], ...]
    """All fields, those of the question at hand among them."""

    @classmethod
    async def of(cls, request: Request) -> TrustQuestion:
        """The filters of the form. Raises UnknownNameError."""
        pairs = tuple(await given_in(request))
        given = dict(pairs)
        chosen = {name: given.get(name, usual) for name, (_, usual, _) in CHOICES.items()}
        for name, (what, _, known) in CHOICES.items():
            if chosen[name] not in known:
                raise UnknownNameError(what, f"{chosen[name]:.60}", known, hint="choose one of the list")
        return cls(
            **chosen,
            filters={name: given.get(f"run_{name}", "") for name in FACETS},
            text=given.get("run_text", "")[:200],
            run=given.get("run", "")[:200],
            is_whole=given.get("rows") == "all",
            given=pairs,
        )

    @property
    def question(self) -> PageQuestion | None:
        """The question at hand, whose nearest runs are marked; None where there is none."""
        stated = [(name, value) for name, value in self.given if value]
        return PageQuestion.of(stated) if {"model", "config"} & dict(stated).keys() else None

    def address(self, **changed: str) -> str:
        """The page that asks this, with changes."""
        quantity, by, drawn = (
            "" if (value := getattr(self, name)) == usual else value for name, (_, usual, _) in CHOICES.items()
        )
        own = {
            "quantity": quantity,
            **{f"run_{name}": value for name, value in self.filters.items()},
            "run_text": self.text,
            "by": by,
            "drawn": drawn,
            "run": self.run,
            "rows": "all" if self.is_whole else "",
        }
        return address(VIEW.path, self.given, own | changed)


async def whole(request: Request) -> HTMLResponse:
    """The page."""
    options = await answered(request, _options, key="trust options")
    asked = await TrustQuestion.of(request)
    return await page(
        request, VIEW, "trust.html", answer, asked=asked, options=options, carried=others(asked.given, OWN),
        quantities=QUANTITIES, facets=FACETS, drawings=DRAWN,
    )  # fmt: skip


def _options(_cancelled: Cancelled) -> dict[str, list[tuple[str, str]]]:
    """Values of every filter with the number of runs."""
    from shardplan.reports.accuracy.known_runs import choices

    names = {tier: f"{tier}: {meaning}" for tier, meaning in TIERS.items()}
    return {
        name: [("", "all"), *((value, f"{names.get(value, value)} ({count:,})") for value, count in choices(name))]
        for name in FACETS
    }


async def answer(request: Request) -> HTMLResponse:
    """The runs that pass the filters, those nearest to the question at hand among them marked."""
    asked = await TrustQuestion.of(request)
    near, is_sought = await _near(request, asked)
    shown = await answered(request, lambda _cancelled: _shown(asked, near))
    return fragment(
        request,
        "trust_answer.html",
        address=asked.address(),
        asked=asked,
        quantities=QUANTITIES,
        facets=FACETS,
        everything=asked.address(rows="all"),
        none_of_it=address(VIEW.path, asked.given, dict.fromkeys(OWN, "")),
        is_sought=is_sought,
        **shown,
    )


async def _near(request: Request, asked: TrustQuestion) -> tuple[tuple[NearRun, ...], bool]:
    """The measured runs nearest to the plan of the question, and whether its search is still to be waited for."""
    question = asked.question
    if question is None:
        return (), False
    is_known = request.app.state.workplace.cache.get(question.key("search")) is not None
    if not (is_known or dict(asked.given).get("near") == "sought" or is_in_page(request)):
        return (), True
    try:
        found = await search_of(request, question)
        estimate = found.estimate(question.show) if question.show else found.best
    except ShardplanError:
        return (), False  # the other pages say what is wrong with it
    return (() if estimate is None else estimate.evidence), False


def _shown(asked: TrustQuestion, near: tuple[NearRun, ...]) -> dict[str, Any]:
    """What the template shows of the runs."""
    from shardplan.reports.accuracy.known_runs import chosen_runs, errors_by_facet, furthest_off, known_runs
    from shardplan.web.figures import trust_figure

    assert asked.quantity in get_args(Quantity)
    quantity = cast("Quantity", asked.quantity)
    runs = chosen_runs(quantity, asked.filters, asked.text)
    groups = errors_by_facet(runs, quantity, asked.by)
    distances = {one.id: one.distance for one in near}
    nearest = sorted((one for one in known_runs() if one.run.id in distances), key=lambda one: distances[one.run.id])
    measured = [one for one in nearest if one.ratio(quantity) is not None]
    rows = furthest_off(runs, quantity)[: MANY if asked.is_whole else FEW]

    def address(one: KnownRun) -> str:
        return asked.address(run=one.run.id)

    return {
        "num_runs": len(runs),
        "figure": trust_figure(runs, quantity, asked.run, distances, as_ratio=asked.drawn == "ratio"),
        "groups": html_of([groups_table(groups, quantity, FACETS[asked.by].lower())]),
        "whole": groups[-1],
        "num_rows": len(rows),
        "rows": html_of([runs_table(rows, quantity)], address),
        "near": html_of([runs_table(measured, quantity, distances)], address) if measured else "",
        **(_account(asked.run) if asked.run else {"account": None}),
    }


async def run(request: Request) -> HTMLResponse:
    """One run in full."""
    asked = await TrustQuestion.of(request)
    account = await answered(request, lambda _cancelled: _account(asked.run), key=("run", asked.run))
    return fragment(request, "trust_run.html", address=asked.address(), **account)


def _account(run_id: str) -> dict[str, Any]:
    """A run as a document. Raises UnknownNameError."""
    from shardplan.reports.accuracy.known_runs import account_of

    account = account_of(run_id)
    return {"account": account, "document": shown_document(run_document(account))}


ROUTES: Final = (
    Route("/trust", whole),
    Route("/trust/answer", answer, methods=BOTH),
    Route("/trust/run", run, methods=BOTH),
)

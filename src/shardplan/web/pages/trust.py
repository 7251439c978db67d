"""Trust: what was predicted and what was measured for every published run, and why the two differ."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, cast, get_args

from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route

from shardplan.base.errors import ShardplanError, UnknownNameError
from shardplan.base.fields import dataclass
from shardplan.base.units import format_bytes, format_count, format_rate, format_time
from shardplan.estimation.evidence import NearRun
from shardplan.inputs.readers.causes import Subject
from shardplan.reports.accuracy.known_runs import KnownRun, Quantity, RunAccount
from shardplan.reports.texts.answer import near_words, signed_percent
from shardplan.reports.texts.plan import plan_words
from shardplan.web.pages import TRUST as VIEW
from shardplan.web.pages.form import address, others
from shardplan.web.pages.plan_answers import asked as search_of
from shardplan.web.pages.rendering import fragment, is_in_page, page
from shardplan.web.panels import shown_plan
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
    for row in (*shown["rows"], *shown["near"]):
        row["address"] = asked.address(run=row["id"])
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
    rows = furthest_off(runs, quantity)[: MANY if asked.is_whole else FEW]
    return {
        "num_runs": len(runs),
        "figure": trust_figure(runs, quantity, asked.run, distances, as_ratio=asked.drawn == "ratio"),
        "groups": groups,
        "whole": groups[-1],
        "rows": [_row(one, quantity, distances) for one in rows],
        "near": [_row(one, quantity, distances) for one in nearest if one.ratio(quantity) is not None],
        "account": _account(asked.run) if asked.run else None,
    }


def _row(one: Any, quantity: Any, distances: Mapping[str, float]) -> dict[str, Any]:
    """A run as texts. ``distances``: from the question, of the nearest runs."""
    run, text = one.run, format_bytes if quantity == "peak_memory" else format_time
    is_verdict = quantity == "fits"
    return {
        "id": run.id,
        "distance": near_words(distances[run.id]) if run.id in distances else "",
        "model": run.model.removeprefix("models/").removesuffix(".json"),
        "where": f"{run.num_accelerators:,} x {run.accelerator}",
        "measured": _ended(one) if is_verdict else text(one.measured(quantity)),
        "predicted": _needs(math.exp(one.fits or 0.0)) if is_verdict else text(one.predicted(quantity)),
        "error": _judged(is_right=one.is_right) if is_verdict else signed_percent(math.expm1(one.ratio(quantity))),
        "is_off": not one.is_right if is_verdict else abs(one.ratio(quantity)) > math.log(1.25),
    }


async def run(request: Request) -> HTMLResponse:
    """One run in full."""
    asked = await TrustQuestion.of(request)
    account = await answered(request, lambda _cancelled: _account(asked.run), key=("run", asked.run))
    return fragment(request, "trust_run.html", address=asked.address(), account=account)


def _account(run_id: str) -> dict[str, Any]:
    """A run as texts. Raises UnknownNameError."""
    from shardplan.reports.accuracy.known_runs import account_of

    return run_texts(account_of(run_id))


ROUTES: Final = (
    Route("/trust", whole),
    Route("/trust/answer", answer, methods=BOTH),
    Route("/trust/run", run, methods=BOTH),
)

TIERS: Final = {
    "A": "all that matters is stated",
    "A-": "one minor field is inferred",
    "B": "a field that matters is missing",
}
SUBJECTS: Final[dict[Subject, str]] = {
    "step_time": "Step time",
    "peak_memory": "Peak memory",
    "fits": "Predicted not to fit",
    "false_fits": "Predicted to fit",
}
LINK: Final = re.compile(r"https?://[^\s;,)]+")


def run_texts(account: RunAccount) -> dict[str, Any]:
    """What the panel of a run shows."""
    run, asked, estimate = account.known.run, account.prediction.asked, account.estimate
    job, cluster = asked.question.job, asked.question.cluster
    size = f"{job.global_batch_size:,} sequences of {job.sequence_length:,} tokens a step"
    sizes = [f"{tier.name} of {tier.size:,}" if tier.size else tier.name for tier in cluster.tiers]
    tiers = [f"{name} at {format_rate(tier.bandwidth)}" for name, tier in zip(sizes, cluster.tiers, strict=True)]
    return {
        "id": run.id,
        "title": f"{asked.question.model.name} on {run.num_accelerators:,} x {run.accelerator}",
        "facts": [
            ("Origin", run.family),
            ("Framework", run.framework or "not stated"),
            ("Description", f"tier {run.tier}: {TIERS.get(run.tier, '')}"),
            ("Model", f"{asked.question.model.name}, {format_count(asked.question.model.num_parameters)} parameters"),
            ("Cluster", f"{cluster.name}: {', '.join(tiers)}"),
            ("Job", f"{size}, {job.precision}, {job.optimizer}"),
            ("Plan", ", ".join(plan_words(estimate))),
        ],
        "source": [(part, bool(LINK.fullmatch(part))) for part in re.split(f"({LINK.pattern})", run.source) if part],
        "remarks": run.notes,
        "compared": [*_compared(account)],
        "band": _band(account),
        "shown": shown_plan(estimate),
        "causes": [(SUBJECTS[subject], cause.cause, cause.state) for subject, cause in account.causes],
        "assumed": asked.assumed,
        "ignored": asked.ignored,
    }


def _compared(account: RunAccount) -> Iterator[dict[str, str]]:
    """Each quantity: measured, predicted without and with the run's team, errors."""
    known, now = account.known, account.prediction
    quantities: tuple[tuple[str, Quantity, float, Callable[[float], str]], ...] = (
        ("Step time", "step_time", now.step_time, format_time),
        ("Peak memory", "peak_memory", now.peak_memory_bytes, format_bytes),
    )
    for name, quantity, seen, text in quantities:
        measured, unseen = known.measured(quantity), known.predicted(quantity)
        if measured is not None:
            yield {
                "name": name,
                "measured": text(measured),
                "unseen": "-" if unseen is None else text(unseen),
                "seen": text(seen),
                "unseen_error": "" if unseen is None else signed_percent(unseen / measured - 1),
                "seen_error": signed_percent(seen / measured - 1),
            }
    yield {
        "name": "Fits",
        "measured": _ended(known),
        "unseen": "-" if known.fits is None else _needs(math.exp(known.fits)),
        "seen": _needs(now.needed_memory_bytes / now.usable_memory_bytes),
        "unseen_error": "" if known.fits is None else _judged(is_right=known.is_right),
        "seen_error": _judged(is_right=now.fits == known.run.ran),
    }


def _band(account: RunAccount) -> str:
    """The band of the step time, and on which side of its ends the measured time is; empty where there is none."""
    measured, now = account.known.measured_step_time, account.prediction
    if measured is None:
        return ""
    side = "inside" if now.step_time_p10 <= measured <= now.step_time_p90 else "outside"
    return f"{format_time(now.step_time_p10)} to {format_time(now.step_time_p90)}: the measured time is {side}"


def _ended(one: KnownRun) -> str:
    return "ran" if one.run.ran else "ran out of memory"


def _needs(share: float) -> str:
    """Of the usable memory."""
    return f"needs {100 * share:.0f} %"


def _judged(*, is_right: bool) -> str:
    return "right" if is_right else "wrong"

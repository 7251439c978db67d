"""Answers of the Plan view: the recommended plan, the plans around it, and pinned ones side by side, as columns.

A pin is a plan as :func:`~shardplan.web.state.plan_code` writes it, which follows the question, or ``?`` and the query
of a page, which stays as it is: its ``show`` is the plan.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from shardplan.answers import comparison
from shardplan.answers.comparison import (
    LETTERS,
    TITLES,
    Comparison,
    Row,
    Side,
    change_text,
    comparison_document,
    value_text,
)
from shardplan.base.errors import ShardplanError
from shardplan.estimation.estimate import Estimate
from shardplan.reports.explanation import Explanation, explain
from shardplan.reports.plan_file import PlanFile
from shardplan.reports.recommendation import reason, recommendation, ties_sentence
from shardplan.reports.texts.answer import question_parts, question_title, sentence
from shardplan.reports.texts.explanation import (
    account_sentences,
    alone_text,
    best_texts,
    limits_sentences,
    most_helpful,
)
from shardplan.reports.texts.plan import plan_words
from shardplan.reports.truth import truth_of
from shardplan.web.answered import IN_TABLE, Filtered, PageAnswer, answered, filtered, points_of, space_record
from shardplan.web.pages.rendering import fragment, html_of, parts
from shardplan.web.panels import shown_plan
from shardplan.web.session import session_in, session_record
from shardplan.web.state import PageQuestion, given_in, plan_code, question_of
from shardplan.web.verdict import (
    changed,
    defaults,
    estimate_command,
    nearest_moves,
    plan_table,
    side,
    verdict,
    why_not,
    without_flags,
)
from shardplan.web.workplace import answer

T = TypeVar("T")
MOST_CHARACTERS: Final = 300
"""Of a filter."""


async def asked(request: Request, question: PageQuestion) -> PageAnswer:
    """The search that a page shows; one that was made for a part of the page serves the others."""
    return await answer(request, lambda stop: answered(question, stop), key=question.key("search"))


async def worked_out(request: Request, question: PageQuestion, what: str, work: Callable[[PageAnswer], T]) -> T:
    """Something about the search, worked out off the event loop."""
    found = await asked(request, question)
    return await answer(request, lambda _stop: work(found), key=question.key(what, question.pins, question.show))


async def the_answer(request: Request) -> HTMLResponse:
    """The verdict and the best plans, or what would fit."""
    question = await question_of(request)
    context = await answer_context(request, question)
    pieces = (
        {"why": why, "moves": moves}
        | ({"one": one} if question.show else {})
        | ({"compare": compare} if question.pins else {})
    )
    later = await parts(request, **pieces) if context["verdict"] else {}
    return fragment(request, "plan_answer.html", address=f"/?{question.query()}", parts=later, **context)


async def answer_context(request: Request, question: PageQuestion) -> dict[str, Any]:
    """What the template of the answer needs."""
    found = await asked(request, question)
    shared = {"question": question, "found": found}
    if found.best is None:
        return {**shared, "verdict": None, **_nothing(question, found)}
    assert found.result.ties is not None
    posed, best = found.posed.question, found.best
    truth = await answer(request, lambda _stop: truth_of(posed, best), key=question.key("truth"))
    taken = recommendation(found.result.ties, found.result.estimates)
    return {
        **shared,
        "verdict": verdict(question, found, truth),
        "keep": f"?{question.with_values(pins=(), show=plan_code(found.best.plan)).query()}",
        "because": sentence(reason(taken)),
        "fastest_code": "" if taken.is_fastest else plan_code(taken.fastest.plan),
        "table": plan_table(found.result),
        "filter": None,
    }


def _nothing(question: PageQuestion, found: PageAnswer) -> dict[str, Any]:
    """What is missing where nothing fits, and what would fit, one click away."""
    result, least = found.result, found.result.smallest
    often = next(iter(result.rejected), None)
    changes = [
        {
            "change": sentence(without_flags(each.change))[:-1],
            "address": f"/?{changed(question, each.change).query()}",
            "estimate": each.estimate,
            "num_accelerators": each.num_accelerators,
        }
        for each in result.suggestions
    ]
    return {
        "title": question_title(found.posed.question),
        "subject": question_parts(found.posed.question),
        "evaluated": result.num_plans_evaluated,
        "need": "" if least is None else (least.reason or "").partition(": ")[0],
        "least": None if least is None else shown_plan(least),
        "often": often,
        "causes": [sentence(each) for each in result.causes],
        "changes": changes,
        "account": account_sentences(result),
        "defaults": defaults(found.posed.question),
    }


async def explained(request: Request, question: PageQuestion) -> Explanation | None:
    """What comes of every obvious change of the recommended plan."""
    found = await asked(request, question)
    return await answer(request, lambda _stop: explain(found.result), key=question.key("explained"))


async def moves(request: Request) -> HTMLResponse:
    """The single changes that would save most."""
    question = await question_of(request)
    reasons = await explained(request, question)
    return fragment(
        request, "plan_moves.html", question=question, moves=[] if reasons is None else nearest_moves(reasons)
    )


async def why(request: Request) -> HTMLResponse:
    """Why this plan: what limits it, what comes of every obvious change, what would help most."""
    question = await question_of(request)
    found, reasons = await asked(request, question), await explained(request, question)
    context = await answer(request, lambda stop: _reasons(question, found, reasons, stop), key=question.key("why"))
    return fragment(request, "plan_why.html", question=question, **context)


def _reasons(
    question: PageQuestion, found: PageAnswer, reasons: Explanation | None, stop: Callable[[], bool]
) -> dict[str, Any]:
    if reasons is None or found.result.ties is None:
        return {"alternatives": []}
    result = found.with_offers(stop)
    better = most_helpful(result, reasons)
    offer = changed(question, better)
    taken = recommendation(found.result.ties, result.estimates)
    texts = best_texts(reasons, result.estimates)
    return {
        "choice": [
            sentence(reason(taken)),
            ties_sentence(found.result.ties, result.num_plans_feasible, is_least=result.num_plans_pruned > 0),
        ],
        "limits": limits_sentences(reasons),
        "better": sentence(without_flags(better).rstrip(".")),
        "better_address": f"/?{offer.query()}" if offer != question else "",
        "alternatives": [
            {"name": each.name, "alone": alone_text(each), "best": text, "code": _code_of(each)}
            for each, text in zip(reasons.alternatives, texts, strict=True)
        ],
        "account": account_sentences(result),
    }


def _code_of(alternative: Any) -> str:
    """The plan that an alternative comes to: with the change alone, or else the best with it."""
    difference = alternative.best or alternative.alone
    return "" if difference is None else plan_code(difference.estimate.plan)


async def space(request: Request) -> HTMLResponse:
    """The picture of the space."""
    question = await question_of(request)

    def work(found: PageAnswer) -> dict[str, Any]:
        points = points_of(found)
        nearest = sorted((each for each in points if each.fits), key=lambda each: each.step_time)[:IN_TABLE]
        rows = [(plan_code(each.plan), each.step_time, each.peak_memory_bytes) for each in nearest]
        return {"record": space_record(found, points), "rows": rows, "number": len(points)}

    context = await worked_out(request, question, "space", work)
    found = await asked(request, question)
    return fragment(request, "plan_space.html", evaluated=f"{found.result.num_plans_valid:,}", **context)


async def compare(request: Request) -> HTMLResponse:
    """The recommended plan and pinned plans side by side."""
    question = await question_of(request)
    columns, failed = await _columns(request, question)
    shown = await answer(request, lambda _stop: compared(columns, failed))
    shown["verdict"] = html_of(shown["verdict"])
    return fragment(request, "plan_compare.html", address=f"/?{question.query()}", **shown)


async def _columns(
    request: Request, question: PageQuestion
) -> tuple[list[ComparedSide], list[tuple[str, ShardplanError]]]:
    """The recommended plan and what is pinned; pins that cannot be priced, with the reason."""
    found = await asked(request, question)
    columns = [] if found.best is None else [ComparedSide("", found, found.best)]
    failed: list[tuple[str, ShardplanError]] = []
    for each in (pinned(question, pin) for pin in question.pins):
        try:
            own = await asked(request, each.question)
            side = await answer(request, partial(_side, each, own))
        except ShardplanError as error:
            failed.append((each.pin, error))
            continue
        known = [(one.estimate.plan, one.found.posed.question) for one in columns]
        if (side.estimate.plan, side.found.posed.question) not in known:
            columns.append(side)
    return columns, failed


def _side(pin: Pinned, found: PageAnswer, _stop: Callable[[], bool]) -> ComparedSide:
    return ComparedSide(pin.pin, found, found.shown(pin.code))


async def plans(request: Request) -> HTMLResponse:
    """The plans that a filter finds, or the best ones."""
    question = await question_of(request)
    text = dict(await given_in(request)).get("filter", "").strip()[:MOST_CHARACTERS]
    found = await asked(request, question)
    made: Filtered | None = None
    if text:
        made = await answer(
            request, lambda stop: filtered(question, found, text, stop), key=question.key("filter", text)
        )
    table = plan_table(found.result, None if made is None else made.estimates)
    return fragment(request, "plan_table.html", question=question, table=table, filter=made)


async def one(request: Request) -> HTMLResponse:
    """One plan, and why it is not the one to take."""
    question = await question_of(request)

    def work(found: PageAnswer) -> dict[str, Any]:
        plan = side(found, question.show or "tp=1")
        if plan["error"] is not None:
            return {"plan": plan}
        estimate = plan["estimate"]
        command = estimate_command(question, found.posed.question, estimate)
        return {"plan": plan, "sentences": why_not(found, estimate), "command_line": command}

    context = await worked_out(request, question, "one", work)
    return fragment(request, "plan_one.html", address=f"/?{question.query()}", **context)


async def plan_file(request: Request) -> Response:
    """The answer as a plan file, which the command line and Python read too."""
    question = await question_of(request)
    found = await asked(request, question)
    record = await answer(request, lambda _stop: session_record(question, PlanFile.of(found.result)))
    text = json.dumps(record, indent=1)
    headers = {"Content-Disposition": 'attachment; filename="plan.json"', "Cache-Control": "no-store"}
    return Response(text, media_type="application/json", headers=headers)


async def opened(request: Request) -> Response:
    """The question of a file that is sent, for the page to put."""
    text = (await request.body()).decode("utf-8", errors="replace")
    question = await answer(request, lambda _stop: session_in(text))
    return JSONResponse({"query": question.query(), "config": question.config})


KEPT: Final = "?"
BARS: Final = ("time", "rates", "memory", "communication")
"""Sections whose numbers have a bar: of a step's times on one scale, of the others each row on its own."""
LOWER_IS_BETTER: Final = ("time", "memory", "communication")


class Pinned(NamedTuple):
    """A column: a plan, and the question that it answers."""

    pin: str
    question: PageQuestion
    code: str


def pinned(question: PageQuestion, pin: str) -> Pinned:
    """A pin of a page with the question that it is about."""
    if not pin.startswith(KEPT):
        return Pinned(pin, question, pin)
    own = PageQuestion.of(parse_qsl(pin[1:], keep_blank_values=True)).with_values(config=question.config)
    return Pinned(pin, own.with_values(show="", pins=()), own.show)


class ComparedSide(NamedTuple):
    """A column that can be shown."""

    pin: str
    """Empty for the recommended plan."""
    found: PageAnswer
    estimate: Estimate


def compared(sides: Sequence[ComparedSide], failed: Sequence[tuple[str, ShardplanError]]) -> dict[str, Any]:
    """What the template shows. ``failed``: pins that have no column, with the reason."""
    told = [{"pin": pin, "words": _words(pin), "error": error} for pin, error in failed]
    if len(sides) < 2:
        return {"sides": [], "sections": [], "failed": told, "verdict": ()}
    labels = LETTERS[: len(sides)]
    files = [PlanFile(question=side.found.posed.question, estimates=(side.estimate,)) for side in sides]
    found = comparison.compare(
        [Side(label=label, file=file, pick=1) for label, file in zip(labels, files, strict=True)]
    )
    whole = max(side.estimate.step_time for side in sides)
    return {
        "sides": [
            {
                "label": label,
                "pin": side.pin,
                "title": "" if found.is_one_question else question_title(side.found.posed.question),
                "words": " \u00b7 ".join(plan_words(side.estimate)),
                "is_best": side.found.best is not None and side.estimate.plan == side.found.best.plan,
                **{name: value for name, value in shown_plan(side.estimate, whole).items() if name != "words"},
            }
            for label, side in zip(labels, sides, strict=True)
        ],
        "sections": [*_sections(found)],
        "failed": told,
        "verdict": comparison_document(found).verdict,
    }


def _words(pin: str) -> str:
    return pin.removeprefix(KEPT).replace("&", ", ").replace(";", ", ").replace("=", " ")


def _sections(found: Comparison) -> Iterator[dict[str, Any]]:
    """The rows in sections, each number with its difference and its bar."""
    longest = max((value for row in found.rows if _is_of_step(row) for value in _numbers(row)), default=1.0)
    for section, (title, note) in TITLES.items():
        rows = [row for row in found.rows if row.section == section]
        if rows:
            cells = [
                {"label": row.label, "is_text": row.unit == "text", "cells": [*_cells(row, longest)]} for row in rows
            ]
            yield {"title": title, "note": note.partition(";")[0], "rows": cells}


def _is_of_step(row: Row) -> bool:
    return row.section == "time" and row.unit == "s" and row.name != "time_to_train"


def _numbers(row: Row) -> list[float]:
    return [value for value in row.values if isinstance(value, int | float)]


def _cells(row: Row, longest: float) -> Iterator[dict[str, Any]]:
    most = longest if _is_of_step(row) else max(_numbers(row), default=0.0)
    for index, value in enumerate(row.values):
        change = row.changes[index] or 0.0
        has_bar = row.section in BARS and isinstance(value, int | float) and most > 0
        yield {
            "text": value_text(row, index),
            "change": change_text(row, index),
            "is_worse": (change > 0) == (row.section in LOWER_IS_BETTER),
            "bar": value / most if has_bar else None,
        }

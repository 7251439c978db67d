"""Plans side by side, as columns: pinned plans of the question of the page, and answers that were kept, of their own.

A pin is a plan as :func:`~shardplan.web.state.plan_code` writes it, which follows the question, or ``?`` and the query
of a page, which stays as it is: its ``show`` is the plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final
from urllib.parse import parse_qsl

from shardplan.answers.comparison import (
    LETTERS,
    TITLES,
    Comparison,
    Row,
    Side,
    change_text,
    compare,
    comparison_document,
    value_text,
)
from shardplan.base.errors import ShardplanError
from shardplan.base.fields import dataclass
from shardplan.estimation.estimate import Estimate
from shardplan.reports.plan_file import PlanFile
from shardplan.reports.texts.answer import question_title
from shardplan.reports.texts.plan import plan_words
from shardplan.web.answered import PageAnswer
from shardplan.web.panels import shown_plan
from shardplan.web.state import PageQuestion

KEPT: Final = "?"
BARS: Final = ("time", "rates", "memory", "communication")
"""Sections whose numbers have a bar: of times on one scale, of the others each row on its own."""
LOWER_IS_BETTER: Final = ("time", "memory", "communication")


@dataclass(frozen=True, kw_only=True)
class Pinned:
    """A column: a plan, and the question that it answers."""

    pin: str
    question: PageQuestion
    code: str


def pinned(question: PageQuestion) -> list[Pinned]:
    """The pins of a page, each with the question that it is about."""
    return [_pinned(question, pin) for pin in question.pins]


def _pinned(question: PageQuestion, pin: str) -> Pinned:
    if not pin.startswith(KEPT):
        return Pinned(pin=pin, question=question, code=pin)
    own = PageQuestion.of(parse_qsl(pin[1:], keep_blank_values=True)).with_values(config=question.config)
    return Pinned(pin=pin, question=own.with_values(show="", pins=()), code=own.show)


@dataclass(frozen=True, kw_only=True)
class ComparedSide:
    """A column that can be shown."""

    pin: str
    """Empty for the plan to take."""
    found: PageAnswer
    estimate: Estimate


def side_of(pin: str, found: PageAnswer, code: str) -> ComparedSide:
    """A plan under a question. Raises ShardplanError where it breaks a rule."""
    return ComparedSide(pin=pin, found=found, estimate=found.shown(code))


def compared(sides: Sequence[ComparedSide], failed: Sequence[tuple[str, ShardplanError]]) -> dict[str, Any]:
    """What the template shows. ``failed``: pins that have no column, with the reason."""
    told = [{"pin": pin, "words": _words(pin), "error": error} for pin, error in failed]
    if len(sides) < 2:
        return {"sides": [], "sections": [], "failed": told, "verdict": ()}
    labels = LETTERS[: len(sides)]
    files = [PlanFile(question=side.found.put.question, estimates=(side.estimate,)) for side in sides]
    found = compare([Side(label=label, file=file, pick=1) for label, file in zip(labels, files, strict=True)])
    whole = max(side.estimate.step_time for side in sides)
    return {
        "sides": [
            {
                "label": label,
                "pin": side.pin,
                "title": "" if found.is_one_question else question_title(side.found.put.question),
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
    longest = max((value for row in found.rows if row.section == "time" for value in _numbers(row)), default=1.0)
    for section, (title, note) in TITLES.items():
        rows = [row for row in found.rows if row.section == section]
        if rows:
            cells = [
                {"label": row.label, "is_text": row.unit == "text", "cells": [*_cells(row, longest)]} for row in rows
            ]
            yield {"title": title, "note": note.partition(";")[0], "rows": cells}


def _numbers(row: Row) -> list[float]:
    return [value for value in row.values if isinstance(value, int | float)] if row.name != "time_to_train" else []


def _cells(row: Row, longest: float) -> Iterator[dict[str, Any]]:
    most = longest if row.section == "time" and row.unit == "s" else max(_numbers(row), default=0.0)
    for index, value in enumerate(row.values):
        change = row.changes[index] or 0.0
        has_bar = row.section in BARS and isinstance(value, int | float) and most > 0
        yield {
            "text": value_text(row, index),
            "change": change_text(row, index),
            "is_worse": (change > 0) == (row.section in LOWER_IS_BETTER),
            "bar": min(value / most, 1.0) if has_bar else None,
        }

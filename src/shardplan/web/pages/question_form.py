"""The question of a view that is about one: three fields of it, the rest as it is, and where to change that."""

from __future__ import annotations

from typing import Any, Final

from shardplan.reports.texts.answer import question_title
from shardplan.web.pages.form import clusters, models
from shardplan.web.planning.answered import PageAnswer
from shardplan.web.state import PageQuestion

SHOWN: Final = ("model", "cluster", "gpus", "show", "config")
"""Fields that the form of the view has itself."""


def question_context(question: PageQuestion) -> dict[str, Any]:
    """What the template of the form needs."""
    kept = [(name, value) for name, value in question.pairs() if name not in SHOWN]
    return {"question": question, "kept": kept, "models": models(), "clusters": clusters()}


def title_of(found: PageAnswer) -> str:
    """The question in one line."""
    return question_title(found.put.question)

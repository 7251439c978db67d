"""Parts of the answer about a plan, for answers that are shown piece by piece."""

from __future__ import annotations

from collections.abc import Sequence

from shardplan.answers import estimate as answers
from shardplan.answers.plans import question_lines
from shardplan.cli.layout import Page
from shardplan.estimation.estimate import Estimate
from shardplan.estimation.question import Question
from shardplan.render.terminal import show_blocks, show_part


def show_question(page: Page, question: Question, given: Sequence[str] = (), *, count: str | None = None) -> None:
    """Model, cluster and job in two lines, and what the user set in place of usual values.

    ``count``: the number of accelerators as text, where it is not one.
    """
    show_blocks(page, question_lines(question, given, count=count))


def show_verdict(page: Page, question: Question, estimate: Estimate) -> None:
    """Whether it fits and how fast it is, what is not sure about that, and which plan it is."""
    page.console.print()
    show_blocks(page, answers.verdict(question, estimate))


def show_memory(page: Page, estimate: Estimate) -> None:
    """The fullest stage as a bar of its parts, and what each takes."""
    show_part(page, answers.memory_part(estimate))

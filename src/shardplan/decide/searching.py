"""Searches of the questions of a decision, which share what they have in common."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from shardplan.base.errors import ShardplanError
from shardplan.base.fields import dataclass
from shardplan.estimation.estimate import Estimate
from shardplan.estimation.question import Question
from shardplan.planner.related.side_by_side import in_groups
from shardplan.planner.related.together import AnsweredTogether, FoundPlan, best_together, estimates_of
from shardplan.planner.result import SearchResult
from shardplan.planner.scope import Scope
from shardplan.planner.search import search_question
from shardplan.planner.stopping import SearchStopped
from shardplan.planner.survey import Survey

Progress = Callable[[int, int], None]
"""Called with the number of finished questions and the number of all."""


@dataclass(frozen=True, kw_only=True)
class Answered:
    """A question with its fastest and its recommended plan, or with the reason why there is none."""

    question: Question
    """The question."""
    estimate: Estimate | None = None
    """The plan that ``plan`` recommends."""
    fastest: Estimate | None = None
    """The fastest plan that fits."""
    reason: str | None = None
    """Why there is no plan."""

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens of a step over its time, for all accelerators. [1/s]"""
        job = self.question.job
        if self.estimate is None:
            return None
        return job.tokens_per_step / self.estimate.step_time


@dataclass(frozen=True, kw_only=True)
class Searches(Scope):
    """Searches that share a framework, restrictions and the pipelines of earlier ones."""

    def result(
        self, question: Question, *, top: int = 1, within: float = math.inf, progress: Progress | None = None
    ) -> SearchResult:
        """The answer of ``plan --use-all``, for steps up to ``within`` seconds only. Raises the same errors."""
        how: dict[str, Any] = {"suggestions": False, "prune": True, "use_all": True}
        return search_question(question, top=top, within=within, progress=progress, **how, **vars(self))

    def answer(self, question: Question) -> Answered:
        """The recommended plan, or the reason why the restrictions or the framework rule the question out."""
        return self.answers([question])[0]

    def answers(self, questions: Sequence[Question], progress: Progress | None = None) -> list[Answered]:
        """The answers to several questions; those that differ only in memory and rates share everything else."""
        found: dict[int, Answered] = {}
        for numbers in in_groups(questions, [self.stack] * len(questions)):
            if progress is not None:
                progress(len(found), len(questions))
            found |= zip(numbers, self._answers_together([questions[number] for number in numbers]), strict=True)
        return [found[number] for number in range(len(questions))]

    def _answers_together(self, questions: Sequence[Question]) -> list[Answered]:
        """Answers to questions that differ only in memory and rates."""
        try:
            found = best_together(questions, self, with_recommended=True)
        except SearchStopped:
            raise
        except ShardplanError as error:
            return [Answered(question=question, reason=error.message) for question in questions]
        fastest = self._estimates(questions, found, [each.fastest for each in found])
        recommended = self._estimates(questions, found, [each.recommended for each in found])
        return [
            Answered(question=question, estimate=taken, fastest=first, reason=None if first else why_none(each))
            for question, taken, first, each in zip(questions, recommended, fastest, found, strict=True)
        ]

    def _estimates(
        self, questions: Sequence[Question], found: Sequence[AnsweredTogether], plans: Sequence[FoundPlan | None]
    ) -> list[Estimate | None]:
        """The full estimates, with values that the search does not compute."""
        return [
            answer and replace(answer, assumptions=(*each.not_searched, *answer.assumptions))
            for answer, each in zip(estimates_of(questions, plans, self.stack), found, strict=True)
        ]

    def survey_if_any(self, question: Question) -> Survey | None:
        """The survey of a question; None if the restrictions or the framework rule it out."""
        try:
            return self.survey(question)
        except SearchStopped:
            raise
        except ShardplanError:
            return None


def why_none(found: AnsweredTogether) -> str:
    """Why no plan was found."""
    return f"none of {found.num_plans:,} valid plans fits in memory" if found.num_plans else "no plan is valid"

"""How the questions of a decision are searched: all in one way, and what they have in common worked out once."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import field, replace

from shardplan.errors import ShardplanError
from shardplan.estimation.estimate import Estimate
from shardplan.estimation.question import Question
from shardplan.fields import dataclass
from shardplan.frameworks.stack import Stack
from shardplan.planner.layouts import KnownPipelines
from shardplan.planner.restrictions import Given, Restrictions, as_lists
from shardplan.planner.result import SearchResult
from shardplan.planner.search import search_question
from shardplan.planner.space import declare
from shardplan.planner.stopping import SearchStopped, Stop
from shardplan.planner.survey import Survey, survey_of

Progress = Callable[[int, int], None]
"""Called with questions done and questions in all."""


@dataclass(frozen=True, kw_only=True)
class Answered:
    """A question with its fastest plan and the plan to take, or with the reason why there is none."""

    question: Question
    """What was asked."""
    estimate: Estimate | None = None
    """The plan to take: the most robust of those that tie with the fastest, as ``plan`` recommends it."""
    fastest: Estimate | None = None
    """The fastest plan that fits."""
    reason: str | None = None
    """Why there is no plan."""

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens of a step over its time, of all accelerators. [1/s]"""
        job = self.question.job
        if self.estimate is None:
            return None
        return job.tokens_per_step / self.estimate.step_time


@dataclass(frozen=True, kw_only=True)
class Searches:
    """Searches that share a framework, restrictions and the pipelines of earlier ones."""

    stack: Stack | None = None
    """The framework that runs the plans; None where none limits them."""
    fix: Given | None = None
    """Fields of the plan with one value."""
    limit: Given | None = None
    """Fields with these values alone."""
    exclude: Given | None = None
    """Fields without these values."""
    stop: Stop | None = None
    """Asked between pieces of work."""
    known: KnownPipelines = field(default_factory=KnownPipelines, repr=False, compare=False)

    def result(self, question: Question, *, within: float = math.inf, progress: Progress | None = None) -> SearchResult:
        """The answer of ``plan``, of steps up to ``within`` seconds alone. Raises ``ShardplanError`` as that does."""
        return search_question(
            question,
            top=1,
            fix=self.fix,
            limit=self.limit,
            exclude=self.exclude,
            stop=self.stop,
            known=self.known,
            suggestions=False,
            stack=self.stack,
            prune=True,
            within=within,
            progress=progress,
        )

    def answer(self, question: Question) -> Answered:
        """The plan to take. A question that the restrictions or the framework rule out has a reason in its place."""
        try:
            result = self.result(question)
        except SearchStopped:
            raise
        except ShardplanError as error:
            return Answered(question=question, reason=error.message)
        first = result.estimates[0] if result.estimates else None
        return Answered(
            question=question, estimate=result.recommended, fastest=first, reason=None if first else why_none(result)
        )

    def survey(self, question: Question) -> Survey:
        """Every plan with its step time and memory."""
        restrictions = Restrictions(fix=as_lists(self.fix), limit=as_lists(self.limit), exclude=as_lists(self.exclude))
        return survey_of(question, declare(question, restrictions, self.stack), stop=self.stop, known=self.known)

    def survey_if_any(self, question: Question) -> Survey | None:
        """The same; None where the restrictions or the framework rule the question out."""
        try:
            return self.survey(question)
        except SearchStopped:
            raise
        except ShardplanError:
            return None

    def limiting(self, **limit: object) -> Searches:
        """The same with more fields limited."""
        return replace(self, limit={**(self.limit or {}), **limit})

    def fixing(self, **fix: object) -> Searches:
        """The same with more fields fixed."""
        return replace(self, fix={**(self.fix or {}), **fix})


def why_none(result: SearchResult) -> str:
    """Why a search has no plan."""
    if not result.num_plans_evaluated:
        return "no plan is valid"
    return f"none of {result.num_plans_evaluated:,} valid plans fits in memory"

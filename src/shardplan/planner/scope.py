"""What the plans of a search are limited to, and what searches within the same limits have in common."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from shardplan.base.fields import dataclass
from shardplan.estimation.question import Question
from shardplan.physics.frameworks.stack import Stack
from shardplan.planner.family import KnownPipelines
from shardplan.planner.pricing.tables import Tables
from shardplan.planner.restrictions import Restrictions
from shardplan.planner.robustness import Tested, tested_by
from shardplan.planner.space import Space, declare
from shardplan.planner.stopping import Stop
from shardplan.planner.survey import Goal, Survey, survey_of, tables_of_space


@dataclass(frozen=True, kw_only=True)
class Scope(Restrictions):
    """Restrictions, and the framework that runs the plans."""

    stack: Stack | None = None
    """None where no framework limits them."""
    stop: Stop | None = field(default=None, repr=False)
    """Asked between pieces of work."""
    known: KnownPipelines = field(default_factory=KnownPipelines, repr=False, compare=False)
    """Pipelines of earlier questions."""

    def space(self, question: Question) -> Space:
        """The candidates of every field. Raises ``InputError``, and where the framework runs nothing of it."""
        return declare(question, self, self.stack)

    def tables(self, question: Question) -> list[Tables]:
        """The families of that space, to be priced. Raises as that does."""
        return tables_of_space(question, self.space(question), self.known)

    def survey(self, question: Question, *goals: Goal, space: Space | None = None, **how: Any) -> Survey:
        """Plans of that ``space``, as ``survey_of`` finds them. Raises as that and ``space`` do."""
        space = space or self.space(question)
        return survey_of(question, space, *goals, stop=self.stop, known=self.known, **how)

    def tested(self, question: Question) -> Tested | None:
        """What the record of the framework says of plans."""
        return tested_by(self.stack, question)

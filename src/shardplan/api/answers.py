"""Answers that show, save and load themselves: in a notebook, as mappings and as data frames."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import field
from html import escape
from pathlib import Path
from typing import Any

from shardplan.answers.estimate import estimate_document
from shardplan.answers.frameworks import frameworks_document
from shardplan.answers.search import search_document
from shardplan.api.saving import AsTable
from shardplan.ask.questions import known_fields
from shardplan.base.errors import InputError, check_kind
from shardplan.base.fields import dataclass, described, in_our_words, replace
from shardplan.base.records import field_values
from shardplan.base.units import format_time
from shardplan.estimation import estimate as priced
from shardplan.estimation.question import Question
from shardplan.estimation.written import estimate_written
from shardplan.inputs.plan import Plan, StatedPlan
from shardplan.physics.frameworks.usual_stack import stack_of_label
from shardplan.planner import result as searched
from shardplan.planner.related.frameworks import FrameworkAnswer
from shardplan.render.html import notebook_html
from shardplan.reports.forms import estimate_line, plan_rows, search_line
from shardplan.reports.plan_file import PlanFile, SearchAccount, plan_file_record, read_plan_file


@dataclass(frozen=True, kw_only=True)
class PlanAnswer(priced.Estimate, AsTable):
    """A plan with its step time, memory and traffic (``shardplan.estimation.estimate.Estimate``), and its question."""

    question: Question = field(repr=False, compare=False)
    """The question that the plan answers."""

    @classmethod
    def of(cls, estimate: priced.Estimate, question: Question) -> PlanAnswer:
        """``estimate`` with its question."""
        plan = StatedPlan.of(estimate.plan)
        return cls(**field_values(priced.Estimate, estimate) | {"plan": plan}, question=question)

    def to_dict(self) -> dict[str, Any]:
        """The plan file of this estimate, which :func:`shardplan.load` and the command line read, as a mapping."""
        return plan_file_record(PlanFile(question=self.question, estimates=(self,)))

    def to_rows(self) -> list[dict[str, Any]]:
        """One row, in the format of :meth:`SearchAnswer.to_rows`."""
        return plan_rows((self,))

    def __repr__(self) -> str:
        return f"<PlanAnswer: {estimate_line(self)}>"

    def _repr_html_(self) -> str:
        return notebook_html(estimate_document(self.question, self))

    def variant(self, **fields: Any) -> PlanAnswer:
        """The same question with other fields of the plan: ``answer.variant(tp=2, recompute="full")``.

        Other fields stay, as with ``shardplan estimate --from``. Raises ``InputError`` for an unknown field,
        ``PlanError`` if the plan breaks a rule.
        """
        stack, given = (
            stack_of_label(self.framework),
            in_our_words(Plan, known_fields(fields, Plan, "field of the plan")),
        )
        plan = replace(self.plan, **given)
        return PlanAnswer.of(estimate_written(self.question, plan, stack, {*described(Plan)}), self.question)


@dataclass(frozen=True, kw_only=True)
class SearchAnswer(searched.SearchResult, AsTable):
    """The best plans of a search, with their number and ties: :class:`shardplan.planner.result.SearchResult`."""

    @classmethod
    def of(cls, result: searched.SearchResult) -> SearchAnswer:
        """``result`` with estimates that know their question."""
        question, values = result.question, field_values(searched.SearchResult, result)

        def lifted(estimate: priced.Estimate | None) -> PlanAnswer | None:
            return None if estimate is None else PlanAnswer.of(estimate, question)

        found = cls(**values).with_each(lambda estimate: PlanAnswer.of(estimate, question))
        best_of_each = values["best_of_each"]
        alike: dict[str, Callable[..., Any]] = {
            "best_where": lambda **wanted: lifted(values["best_where"](**wanted)),
            "best_of_each": lambda wanted: [lifted(each) for each in best_of_each(wanted)],
        }
        return cls(**field_values(searched.SearchResult, found) | alike)

    @property
    def fastest(self) -> PlanAnswer | None:
        """The fastest plan that fits; None if nothing does."""
        first = self.estimates[0] if self.estimates else None
        return first if first is None or isinstance(first, PlanAnswer) else PlanAnswer.of(first, self.question)

    def variant(self, **fields: Any) -> PlanAnswer:
        """The recommended plan with other fields: see :meth:`PlanAnswer.variant`. Raises ``InputError`` without one."""
        taken = self.recommended or self.fastest
        if taken is None:
            raise InputError("no plan of the search fits", rule="a plan is changed", hint="see its suggestions")
        return PlanAnswer.of(taken, self.question).variant(**fields)

    def to_dict(self) -> dict[str, Any]:
        """The plan file, which :func:`shardplan.load` and the command line read, as a mapping."""
        return plan_file_record(PlanFile.of(self))

    def to_rows(self) -> list[dict[str, Any]]:
        """A row for each plan: its fields, and its numbers in SI units, with the unit in the name of the column."""
        return plan_rows(self.estimates, self.ties)

    def __repr__(self) -> str:
        return f"<SearchAnswer: {search_line(self)}>"

    def _repr_html_(self) -> str:
        return notebook_html(search_document(self, None))


class FrameworkAnswers(tuple[FrameworkAnswer, ...]):
    """The recommended plan of each framework, fastest first; frameworks without a plan come last."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<FrameworkAnswers: {', '.join(f'{each.stack.label} {_step_of(each)}' for each in self)}>"

    def _repr_html_(self) -> str:
        known = next((each.result.question for each in self if each.result is not None), None)
        return f"<p>{escape(repr(self))}</p>" if known is None else notebook_html(frameworks_document(known, self))


def _step_of(answer: FrameworkAnswer) -> str:
    return "has none" if answer.best is None else format_time(answer.best.step_time)


def load(path: str | os.PathLike[str]) -> SearchAnswer | PlanAnswer:
    """The answer in a plan file: of a search, or of one plan. Raises InputError.

    A loaded search has its plans, ties and counts; it cannot search for others (``best_where`` finds none).
    """
    check_kind("path", path, str, os.PathLike, hint='write load("plans.json")')
    file = read_plan_file(Path(path))
    if file.search is None:
        return PlanAnswer.of(file.estimates[0], file.question)
    account = field_values(SearchAccount, file.search)
    without = account.pop("without_libraries")
    account["without_libraries"] = lambda: without
    return SearchAnswer.of(searched.SearchResult(question=file.question, estimates=file.estimates, **account))

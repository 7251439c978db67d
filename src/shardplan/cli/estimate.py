"""``shardplan estimate``: one plan, written by hand or read from a plan file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from shardplan.ask.forms import PickField, PlanFields, QuestionForm
from shardplan.ask.task_forms import ObservedForm
from shardplan.base.errors import InputError
from shardplan.cli.flags.flag import flag
from shardplan.cli.flags.option_groups import DetailFlags, OutputFlags, PlanDetailFlags, with_flags
from shardplan.cli.pick import picked_from
from shardplan.inputs.plan import Plan
from shardplan.inputs.readers.typed import values_of

if TYPE_CHECKING:
    from shardplan.estimation.estimate import Estimate
    from shardplan.estimation.question import Question
    from shardplan.launch.audit.observed import GapExplanation, Observed
    from shardplan.physics.frameworks.stack import Stack
    from shardplan.reports.plan_file import PlanFile


FromFlag = Annotated[
    Path | None,
    flag(
        "Start from a plan file in place of MODEL; flags replace what it has.",
        "--from",
        panel="Plan file",
        metavar="FILE",
    ),
]


@with_flags
def estimate(
    *,
    flags: QuestionForm,
    plan: PlanFields,
    output: OutputFlags,
    file: FromFlag = None,
    pick: PickField = None,
    details: DetailFlags,
    more: PlanDetailFlags,
    measured: ObservedForm,
) -> int:
    """Predict time, memory and traffic of one plan.

    Fields of the plan that are left out take the framework's defaults; nothing is searched. With --observed, the
    causes that would explain a measured step are priced and ranked.
    """
    target = output.checked_target(*flags.reads, file)
    observed = _measured(measured.observed or ())
    from shardplan.answers.estimate import AnswerDetail, estimate_document
    from shardplan.cli.question import asked, asked_again, given_by_user, words_of
    from shardplan.cli.show.document import show_document
    from shardplan.estimation.written import estimate_written

    if file is None:
        put, base, given = asked(flags), Plan(), {*plan}
    else:
        found = _read(file, flags.model)
        before = picked_from(found, pick)
        put, base = asked_again(found, flags, before.framework), before.plan
        given = _stated(None if flags.stack is None else put.stack) | {*plan}
    answer = estimate_written(put.question, replace(base, **values_of(Plan, plan)), put.stack, given)
    answer = replace(answer, assumptions=(*put.assumptions, *answer.assumptions))
    detail = AnswerDetail(details.explains, details.states_assumptions, more.stage, more.layout)
    said, words = (*given_by_user(flags), *put.warnings), words_of(flags) if file is None else ""
    explained = _explained(put.question, answer, observed)
    document = estimate_document(
        put.question, answer, said, detail=detail, target=target, asked=words, observed=explained
    )
    return show_document(document, target)


def _measured(texts: Sequence[str]) -> list[Observed]:
    """Measurements. Raises InputError."""
    if not texts:
        return []
    from shardplan.launch.audit.observed import parse_observed

    return [parse_observed(text) for text in texts]


def _read(file: Path, model: str | None) -> PlanFile:
    """The plan file to start from."""
    from shardplan.reports.plan_file import read_plan_file

    if model is not None:
        raise InputError(
            f"both MODEL ({model[:100]}) and --from {file} are given",
            rule="a question comes from flags or from a file",
            hint="leave one of them out",
        )
    return read_plan_file(file)


def _stated(named: Stack | None) -> set[str]:
    """Fields that a plan of a file states: all but those that a framework named anew does otherwise."""
    from shardplan.physics.frameworks.defaults import SWITCHES

    others = () if named is None else named.plan_fields()
    return {field.name for field in fields(Plan)} - {name for name in SWITCHES if name in others}


def _explained(question: Question, answer: Estimate, observed: Sequence[Observed]) -> list[GapExplanation]:
    """What bridges the gaps to what was measured."""
    if not observed:
        return []
    from shardplan.launch.audit.observed import explain

    return [explain(question, answer.plan, answer, each) for each in observed]

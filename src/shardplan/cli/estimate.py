"""``shardplan estimate``: one plan, written by hand or read from a plan file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from shardplan.cli.flags.flag import flag
from shardplan.cli.flags.option_groups import with_flags
from shardplan.cli.flags.plan import DetailFlags, OutputFlags, PickFlag, PlanFlags, QuestionFlags
from shardplan.cli.pick import picked_from
from shardplan.errors import InputError
from shardplan.inputs.plan import Plan
from shardplan.outputs.target import JsonTarget

if TYPE_CHECKING:
    from shardplan.cli.question import Asked
    from shardplan.estimation.estimate import Estimate
    from shardplan.estimation.question import Question
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
    flags: QuestionFlags,
    plan: PlanFlags,
    output: OutputFlags,
    file: FromFlag = None,
    pick: PickFlag = None,
    details: DetailFlags,
) -> int:
    """Predict time, memory and traffic of one plan.

    Fields of the plan that are left out take the framework's defaults; nothing is searched.
    """
    target = output.checked_target(*flags.reads, file)
    from shardplan.cli.question import ask, ask_again, given_by_user, plan_from
    from shardplan.estimation.written import estimate_written

    if file is None:
        asked, base, given = ask(flags), None, {*plan}
    else:
        found = _read(file, flags.model)
        before = picked_from(found, pick)
        asked, base = ask_again(found, flags, before.framework), before.plan
        given = _stated(asked) | {*plan}
    question = asked.question
    answer = estimate_written(question, plan_from(plan, base), asked.stack, given)
    answer = replace(answer, assumptions=(*asked.assumptions, *answer.assumptions))
    return _answer(question, answer, target, details, (*given_by_user(flags), *asked.warnings))


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


def _stated(asked: Asked) -> set[str]:
    """Fields that a plan of a file states: all but those that a framework named anew does otherwise."""
    from shardplan.frameworks.defaults import SWITCHES

    others = asked.stack.plan_fields() if asked.is_stack_named and asked.stack is not None else ()
    return {field.name for field in fields(Plan)} - {name for name in SWITCHES if name in others}


def _answer(question: Question, answer: Estimate, target: JsonTarget, flags: DetailFlags, given: Sequence[str]) -> int:
    """Writes the file, then prints the answer; the exit code."""
    from shardplan.answers.estimate import AnswerDetail, estimate_document
    from shardplan.cli.show.document import show_document

    detail = AnswerDetail(flags.explains, flags.states_assumptions)
    return show_document(estimate_document(question, answer, given, detail=detail, target=target), target)

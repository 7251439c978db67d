"""``shardplan estimate``: one plan, written by hand or read from a plan file."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from shardplan.cli.flags.flag import flag
from shardplan.cli.flags.option_groups import with_flags
from shardplan.cli.flags.plan import DetailFlags, OutputFlags, PickFlag, PlanFlags, QuestionFlags
from shardplan.cli.pick import picked_from
from shardplan.errors import InputError
from shardplan.outputs.target import JsonTarget

if TYPE_CHECKING:
    from shardplan.estimation.estimate import Estimate
    from shardplan.estimation.question import Question
    from shardplan.frameworks.stack import Stack
    from shardplan.inputs.plan import Plan
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

    Fields of the plan that are left out take their defaults; nothing is searched.
    """
    target = output.checked_target(*flags.reads, file)
    from shardplan.cli.question import ask, ask_again, given_by_user, plan_from
    from shardplan.estimation.estimate import estimate_plan, in_framework
    from shardplan.frameworks.defaults import SWITCHES, plan_in_stack

    if file is None:
        asked, base = ask(flags), None
    else:
        found = _read(file, flags.model)
        before = picked_from(found, pick)
        asked, base = ask_again(found, flags, before.framework), before.plan
    stated = set(plan) if base is None else {field.name for field in fields(base)} - set(SWITCHES) | {*plan}
    question = asked.question
    wanted, of_stack = plan_in_stack(
        plan_from(plan, base),
        asked.stack if asked.is_stack_named else None,
        model=question.model,
        job=question.job,
        num_accelerators=question.num_accelerators,
        given=stated,
    )
    answer = in_framework(estimate_plan(question, wanted), asked.stack, question)
    taken = _taken(wanted, {*stated, *_of_stack(asked.stack, wanted)}) if file is None else ()
    answer = replace(answer, assumptions=(*asked.assumptions, *of_stack, *taken, *answer.assumptions))
    _answer(question, answer, target, details, (*given_by_user(flags), *asked.warnings))
    return 0 if answer.feasible else 1


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


def _of_stack(stack: Stack | None, plan: Plan) -> tuple[str, ...]:
    """Fields that the stack has filled."""
    return () if stack is None else (*stack.plan_fields(), *(["vp"] if plan.vp > 1 else []))


def _taken(plan: Plan, stated: Collection[str]) -> tuple[str, ...]:
    """The fields that took their defaults; those without one follow from others."""
    names = [field.name for field in fields(plan) if field.name not in stated]
    texts = [f"{name} {getattr(plan, name)}".lower() for name in names if getattr(plan, name) is not None]
    return (f"plan fields at their defaults: {', '.join(texts)}",) if texts else ()


def _answer(question: Question, answer: Estimate, target: JsonTarget, flags: DetailFlags, given: Sequence[str]) -> None:
    """Writes the file, then prints the answer."""
    if target.where is not None:
        from shardplan.reports.plan_file import PlanFile, plan_file_record

        target.write(plan_file_record(PlanFile(question=question, estimates=(answer,))))
    if target.is_stdout:
        return
    from shardplan.cli.layout import Page
    from shardplan.cli.show import answer as show_answer
    from shardplan.cli.show import details as show_details

    page = Page()
    show_answer.show_question(page, question, given)
    show_answer.show_verdict(page, question, answer, is_whole=flags.explains)
    show_answer.show_memory(page, answer, is_whole=flags.explains)
    show_answer.show_step(page, answer, show_answer.ALL_TERMS)
    show_details.show_traffic(page, answer)
    if flags.explains:
        show_details.show_evidence(page, answer)
    if flags.states_assumptions:
        show_details.show_assumptions(page, answer)
    if not flags.explains:
        page.console.print()
    show_details.show_next_steps(page, target, question, (answer,), is_search=False, flags=flags)

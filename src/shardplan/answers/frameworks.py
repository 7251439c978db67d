"""The plan to take of each framework side by side, and what the others make of the first plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Final

from shardplan.answers.document import (
    AnswerDocument,
    Bullets,
    Column,
    CommandLine,
    Line,
    Part,
    RowTable,
    Tone,
    assumptions_part,
)
from shardplan.answers.plans import EstimateOf, of_plan, plan_columns, question_lines, used_column, whole_percent
from shardplan.base.records import Record, plain
from shardplan.base.units import format_bytes, format_time
from shardplan.base.version import VERSION
from shardplan.estimation.estimate import Estimate
from shardplan.estimation.question import Question
from shardplan.planner.related.frameworks import FrameworkAnswer
from shardplan.reports.model_record import model_record
from shardplan.reports.plan_file import estimate_record
from shardplan.reports.recommendation import reason, recommendation
from shardplan.reports.texts.answer import percent

best: Final[EstimateOf] = attrgetter("best")
"""The plan to take of a framework."""


def columns(answers: Sequence[FrameworkAnswer]) -> list[Column]:
    """Columns of frameworks that have a plan, the fastest first."""
    fastest = answers[0].best

    def lost(estimate: Estimate) -> str:
        return (
            "" if estimate is fastest or fastest is None else whole_percent(estimate.step_time / fastest.step_time - 1)
        )

    return [
        Column("", "framework", lambda answer: answer.stack.label, is_text=True),
        Column("", "step", of_plan(best, "step_time"), format_time),
        Column("", "lost", best, lost, rank=2),
        Column("", "MFU", of_plan(best, "mfu"), percent, rank=3),
        Column("", "memory", of_plan(best, "peak_memory_bytes"), format_bytes, rank=2),
        *used_column(answers, best),
        *plan_columns(answers, best),
    ]


def frameworks_document(
    question: Question,
    answers: Sequence[FrameworkAnswer],
    given: Sequence[str] = (),
    *,
    asked: str = "",
    explains: bool = False,
    states_assumptions: bool = False,
) -> AnswerDocument:
    """The whole answer. ``given``: what the user set in place of usual values; ``asked``: the question in words.

    ``explains``: with the reason for every plan; ``states_assumptions``: with what was assumed. In its record
    ``plans`` are the plans to take, the fastest first, and ``frameworks`` all that were asked; ``place`` of a framework
    is its plan's among ``plans``, from 1. ``job`` differs by the framework's defaults.
    """
    taken = [each for each in answers if each.best is not None]
    limits = [f"{each.stack.label}: {text}" for each in answers if (text := limits_text(each))]
    title = "What the others make of the first plan" if taken else "No framework has a plan that fits"

    def tone(answer: FrameworkAnswer) -> Tone:
        return "good" if answer is taken[0] else ""

    def parts() -> Iterator[Part]:
        if taken:
            table = RowTable(taken, columns(taken), tone)
            yield Part("Best plan of each framework", [table], "its recommended plan; mb: micro-batch size")
        if limits:
            yield Part(title, [Bullets(limits)])
        if taken and explains:
            yield Part("Why these plans", [Bullets([f"{each.stack.label}: {choice_text(each)}" for each in taken])])
        if taken and states_assumptions:
            yield from _assumptions(taken)
        if taken and asked:
            yield _next_steps(taken[0], asked, is_all=explains and states_assumptions)

    return AnswerDocument(
        name="frameworks",
        head=question_lines(question, given),
        verdict=[],
        parts=[*parts()],
        record=lambda: {
            "shardplan_version": VERSION,
            "model": model_record(question.model),
            "cluster": plain(question.cluster),
            "num_accelerators": question.num_accelerators,
            "plans": [estimate_record(each.best) for each in answers if each.best is not None],
            "frameworks": [_framework_record(each, place) for place, each in enumerate(answers, start=1)],
        },
        is_yes=bool(taken),
    )


def _assumptions(answers: Sequence[FrameworkAnswer]) -> Iterator[Part]:
    """What was assumed of all, then of each framework."""
    texts = {each.stack.label: each.best.assumptions for each in answers if each.best is not None}
    shared = [text for text in next(iter(texts.values())) if all(text in own for own in texts.values())]
    yield assumptions_part(shared, "of all frameworks, then of each")
    for label, own in texts.items():
        yield Part(label, [Bullets([text for text in own if text not in shared], "quiet")])


def _next_steps(first: FrameworkAnswer, asked: str, *, is_all: bool) -> Part:
    more = Line("--explain says why each plan is recommended, --assumptions what was assumed.")
    whole = CommandLine(f"shardplan plan {asked} --stack {first.stack.versioned_name}")
    return Part("Next steps", [*([] if is_all else [more]), Line("The whole answer for one of them:"), whole])


def _framework_record(answer: FrameworkAnswer, place: int) -> Record:
    result = answer.result
    return {
        "stack": answer.stack.name,
        "framework": answer.stack.label,
        "place": None if answer.best is None else place,
        "refused": None if answer.refused is None else answer.refused.to_record()["error"],
        "job": None if result is None else plain(result.question.job),
        "num_plans_evaluated": 0 if result is None else result.num_plans_evaluated,
        "num_plans_feasible": 0 if result is None else result.num_plans_feasible,
        "suggestions": [] if result is None else [each.change for each in result.suggestions],
        "fastest_step_time_s": None if answer.fastest is None else answer.fastest.step_time,
        "first_plan_step_time_s": None if answer.first is None else answer.first.step_time,
        "first_plan_refusals": [plain(each) for each in answer.missing],
        "first_plan_own_software": list(answer.own_software),
    }


def limits_text(answer: FrameworkAnswer) -> str:
    """What the framework makes of the first plan, or why it has no plan; empty where it takes the same."""
    if answer.refused is not None:
        return answer.refused.rule
    if answer.best is None:
        return "nothing fits" if answer.result is not None and answer.result.num_plans_evaluated else "no valid plan"
    if answer.missing:
        return f"cannot run it: {answer.missing[0].rule}"
    if answer.first is None:
        return "a rule forbids it"
    if not answer.first.feasible:
        return "it does not fit"
    return "" if answer.first.plan == answer.best.plan else _other_text(answer, answer.first, answer.best)


SOFTWARE_WORDS: Final = {"fused_loss": "loss", "moe_dispatcher": "token dispatcher", "cuda_graphs": "CUDA graphs"}


def _other_text(answer: FrameworkAnswer, first: Estimate, best: Estimate) -> str:
    """Why a framework that runs the first plan takes another."""
    own = " and ".join(SOFTWARE_WORDS[name] for name in dict.fromkeys(answer.own_software))
    runs = f"runs it in {format_time(first.step_time)}{f' with its own {own}' if own else ''}"
    if best.step_time <= first.step_time:
        return f"{runs}, its own plan in {format_time(best.step_time)}"
    if answer.fastest is not None and answer.fastest.step_time <= first.step_time:
        return f"{runs}, which ties with its own plan, the most robust of the ties"
    return f"{runs}, with settings that its own search does not try"


def choice_text(answer: FrameworkAnswer) -> str:
    """Why the plan of a framework is the one to take; empty where it has none."""
    if answer.result is None or answer.result.ties is None:
        return ""
    found = recommendation(answer.result.ties, answer.result.estimates)
    fastest = "" if found.is_fastest else f"; the fastest takes {format_time(found.fastest.step_time)}"
    return f"{reason(found)}{fastest}"

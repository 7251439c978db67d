"""The best plans of several frameworks, as a record and as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from shardplan.estimation.estimate import Estimate
from shardplan.estimation.question import Question
from shardplan.planner.related.frameworks import FrameworkAnswer
from shardplan.records import Record, plain
from shardplan.reports.model_record import model_record
from shardplan.reports.plan_file import estimate_record
from shardplan.reports.recommendation import reason, recommendation
from shardplan.units import format_time
from shardplan.version import VERSION

SCHEMA: Final = "shardplan/frameworks/1"


def frameworks_record(question: Question, answers: Sequence[FrameworkAnswer]) -> Record:
    """``plans``: the plan to take of each framework that has one, fastest first; ``frameworks``: all that were asked.

    ``place`` of a framework is its plan's among ``plans``, from 1. ``job`` differs by the framework's defaults.
    """
    best = [each.best for each in answers if each.best is not None]
    return {
        "schema": SCHEMA,
        "shardplan_version": VERSION,
        "model": model_record(question.model),
        "cluster": plain(question.cluster),
        "num_accelerators": question.num_accelerators,
        "plans": [estimate_record(each) for each in best],
        "frameworks": [_framework_record(each, place) for place, each in enumerate(answers, start=1)],
    }


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

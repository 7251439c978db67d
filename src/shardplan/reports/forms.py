"""Answers in other forms: a plan in its framework's options, one line, rows of plans, launch files as a record."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final

from shardplan.base.records import Record, keys, plain
from shardplan.base.units import format_bytes, format_time
from shardplan.estimation.estimate import Estimate
from shardplan.estimation.question import Question
from shardplan.launch.export.written import Export
from shardplan.physics.frameworks.options import OptionsOfPlan, options_of
from shardplan.physics.frameworks.usual_stack import stack_of_label
from shardplan.reports.texts.plan import plan_words

if TYPE_CHECKING:
    from shardplan.planner.result import SearchResult
    from shardplan.planner.robustness import Ties

_BETWEEN: Final = re.compile(r" (?=--|[\w.]+(?:=|: ))")
"""Where one option ends and the next begins in a text of several."""
_PATH: Final = re.compile(r"\w+(?:\.\w+)*(?=\.\w+(?:[=: ]|$))")
"""What comes before the last name of an option with dots in it: ``trainer.strategy`` of ``trainer.strategy.fsdp``."""


def framework_options(question: Question, answer: Estimate) -> OptionsOfPlan | None:
    """The options of a plan; None where it is for no shipped framework, or for one whose record has no options."""
    stack = stack_of_label(answer.framework)
    if stack is None:
        return None
    setting = replace(question.setting, num_accelerators=answer.num_accelerators_used)
    return options_of(stack, setting, answer.plan)


def grouped_options(options: Sequence[str]) -> dict[str, list[str]]:
    """Options by the path that several of them start with, and without it; under "" those that share none, and flags.

    Flags (``--parallelism.tensor_parallel_degree 4``) stay whole: they are pasted into a command line.
    """
    single = [each for option in options for each in _BETWEEN.split(option)]
    paths = [found.group() if (found := _PATH.match(each)) else "" for each in single]
    shared = [_shortest(path, paths) for path in paths]
    groups: dict[str, list[str]] = {}
    for option, path in zip(single, shared, strict=True):
        name = path if shared.count(path) > 1 else ""
        groups.setdefault(name, []).append(option.removeprefix(f"{name}.") if name else option)
    return groups


def _shortest(path: str, paths: Sequence[str]) -> str:
    """The shortest of ``paths`` that ``path`` starts with."""
    return min((each for each in paths if each and f"{path}.".startswith(f"{each}.")), key=len, default="")


def framework_options_record(question: Question, answer: Estimate) -> Record:
    """What a plan file says of them. It is written, and worked out anew where a file is read."""
    found = framework_options(question, answer)
    if found is None:
        return {"framework_options": None, "framework_unsaid": None}
    return {"framework_options": list(found.options), "framework_unsaid": list(found.unsaid)}


def estimate_line(estimate: Estimate) -> str:
    """Plan, step time, MFU and memory, and whether it fits."""
    memory = f"{format_bytes(estimate.peak_memory_bytes)} of {format_bytes(estimate.usable_memory_bytes)}"
    fits = "fits" if estimate.feasible else "does not fit"
    numbers = f"{format_time(estimate.step_time)} a step, MFU {100 * estimate.mfu:.1f} %, {memory}, {fits}"
    return f"{', '.join(plan_words(estimate))}: {numbers}"


def search_line(result: SearchResult) -> str:
    """How many plans fit, and the one to take."""
    question = result.question
    asked = f"{question.model.name} on {question.num_given:,} x {question.cluster.accelerator.name}"
    asked += f" ({question.uses})" if question.uses else ""
    from shardplan.reports.recommendation import num_that_fit  # what an estimate does without

    counts = f"{num_that_fit(result)} of {result.num_plans_valid:,} plans fit"
    if result.recommended is None:
        return f"{asked}: {counts}"
    return f"{asked}: {counts}; take {estimate_line(result.recommended)}"


LEFT_OUT: Final = ("memory_bytes", "assumptions", "evidence", "refusals", "flops_convention")
"""Keys whose values are no single number or text."""


def plan_rows(estimates: Sequence[Estimate], ties: Ties | None = None) -> list[dict[str, Any]]:
    """A row for each plan, all with the same columns; that recommended is marked and, if it is not listed, added."""
    recommended = None if ties is None else ties.recommended
    listed = [*estimates]
    if recommended is not None and recommended.plan not in [each.plan for each in listed]:
        listed.append(recommended)
    rows = [_row(each) | _mark(each, ties) for each in listed]
    columns = dict.fromkeys(name for row in rows for name in row)
    return [{name: row.get(name, 0.0) for name in columns} for row in rows]


def _mark(estimate: Estimate, ties: Ties | None) -> dict[str, Any]:
    if ties is None:
        return {}
    from shardplan.reports.recommendation import simulated_record  # as above

    simulated = simulated_record(ties, estimate)
    simulated.pop("not_simulated", None)
    return {"recommended": estimate.plan == ties.recommended.plan} | simulated


def _row(estimate: Estimate) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for field in fields(Estimate):
        key, value = keys(Estimate)[field.name], getattr(estimate, field.name)
        if key == "plan":
            row |= {each.name: _cell(getattr(value, each.name)) for each in fields(value)}
        elif key == "breakdown_s":
            row |= {f"{name}_s": float(time) for name, time in value.items()}
        elif key == "communication_bytes":
            # Bytes that an accelerator sends, by dimension and tier
            row |= {f"{dim}_{tier}_bytes": float(sent) for dim, tiers in value.items() for tier, sent in tiers.items()}
        elif key not in LEFT_OUT:
            row[key] = _cell(value)
    return row


def _cell(value: object) -> Any:
    """A number, a text or None; lists as text."""
    value = plain(value)
    return ",".join(str(part) for part in value) if isinstance(value, list) else value


SCHEMA: Final = "shardplan/export/1"


def export_record(export: Export) -> Record:
    """``export`` as a mapping that JSON can hold."""
    return {
        "schema": SCHEMA,
        "framework": export.framework,
        "files": dict(export.files),
        "not_expressed": list(export.not_expressed),
        "placeholders": list(export.placeholders),
        "relies_on": list(export.relies_on),
    }

"""The plan of an answer in its framework's own option names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from shardplan.base.records import Record
from shardplan.estimation.estimate import Estimate
from shardplan.estimation.question import Question
from shardplan.inputs.plan_numbers import Setting
from shardplan.physics.frameworks.options import OptionsOfPlan, options_of
from shardplan.physics.frameworks.usual_stack import stack_of_label

_BETWEEN: Final = re.compile(r" (?=--|[\w.]+(?:=|: ))")
"""Where one option ends and the next begins in a text of several."""
_PATH: Final = re.compile(r"\w+(?:\.\w+)*(?=\.\w+(?:[=: ]|$))")
"""What comes before the last name of an option with dots in it: ``trainer.strategy`` of ``trainer.strategy.fsdp``."""


def framework_options(question: Question, answer: Estimate) -> OptionsOfPlan | None:
    """The options of a plan; None where it is for no shipped framework, or for one whose record has no options."""
    stack = stack_of_label(answer.framework)
    if stack is None:
        return None
    setting = Setting.of(question.model, question.cluster, answer.num_accelerators_used, question.job)
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

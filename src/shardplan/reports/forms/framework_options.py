"""The plan of an answer in its framework's own option names."""

from __future__ import annotations

from shardplan.estimation.estimate import Estimate
from shardplan.estimation.question import Question
from shardplan.frameworks.options import OptionsOfPlan, options_of
from shardplan.frameworks.usual_stack import stack_of_label
from shardplan.inputs.degrees import Setting
from shardplan.records import Record


def framework_options(question: Question, answer: Estimate) -> OptionsOfPlan | None:
    """The options of a plan; None where it is for no shipped framework, or for one whose record has no options."""
    stack = stack_of_label(answer.framework)
    if stack is None:
        return None
    setting = Setting.of(question.model, question.cluster, answer.num_accelerators_used, question.job)
    return options_of(stack, setting, answer.plan)


def framework_options_record(question: Question, answer: Estimate) -> Record:
    """What a plan file says of them. It is written, and worked out anew where a file is read."""
    found = framework_options(question, answer)
    if found is None:
        return {"framework_options": None, "framework_unsaid": None}
    return {"framework_options": list(found.options), "framework_unsaid": list(found.unsaid)}

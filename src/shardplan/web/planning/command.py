"""What a page shows as a command line that asks the same."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from shardplan.ask.forms import LISTED
from shardplan.estimation.estimate import Estimate
from shardplan.estimation.question import Question
from shardplan.frameworks.usual_stack import USUAL
from shardplan.reports.texts.plan import plan_flags
from shardplan.web.state import PageQuestion, switched


def plan_command(question: PageQuestion) -> str:
    """The search of the page; with the plan file of the page where names do not say what it is about."""
    if question.uses_file:
        return "shardplan estimate --from plan.json"
    stack = [] if question.stack == USUAL else ["--stack", question.stack]
    return shlex.join(["shardplan", "plan", *_asked(question), *stack, *_locked(question)])


def estimate_command(question: PageQuestion, put: Question, estimate: Estimate) -> str:
    """One plan as an answer to the question of the page."""
    asked = question.with_values(gpus="") if put.num_idle else question  # the plan's flags have the number that is used
    of = ["--from", "plan.json"] if question.uses_file else [*_asked(asked)]
    return " ".join([shlex.join(["shardplan", "estimate", *of]), *plan_flags(put, estimate)])


def _asked(question: PageQuestion) -> Iterator[str]:
    """The question in flags, the framework apart."""
    yield question.model
    named = {"cluster": question.cluster, "accelerator": question.accelerator, "gpus": question.gpus}
    for name, text in {**named, **question.job, **question.sets, "price": question.price}.items():
        flag = f"--{name.replace('_', '-')}"
        if name in question.job and isinstance(is_on := switched(name, text), bool):
            yield from [flag] if is_on else []
        elif text:
            yield from (flag, text)
    for pair in question.software.split(","):
        yield from ("--software", pair.strip()) if pair.strip() else ()


def _locked(question: PageQuestion) -> Iterator[str]:
    """The locks: a value is fixed, several limit the search."""
    for name, text in question.locks.items():
        is_one = name in LISTED or not ("," in text or ".." in text)
        yield from ("--fix" if is_one else "--limit", f"{name}={text}")

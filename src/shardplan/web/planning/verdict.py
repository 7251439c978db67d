"""The recommended plan in the words of the page, the command line that asks the same, and changes to click."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from shardplan.answers.document import plain_text
from shardplan.answers.plans import doubt_lines
from shardplan.ask.forms import LISTED
from shardplan.base.units import format_count, format_rate, format_time
from shardplan.estimation.estimate import Estimate
from shardplan.estimation.question import Question
from shardplan.inputs.readers.overrides import GIVEN_BY_USER
from shardplan.physics.frameworks.usual_stack import USUAL
from shardplan.reports.breakdown import memory_bar, memory_use
from shardplan.reports.forms.framework_options import framework_options
from shardplan.reports.texts.answer import (
    first_source,
    how_near,
    narrowed_text,
    percent,
    question_parts,
    question_title,
    run_text,
    step_band,
    token_rates,
)
from shardplan.reports.texts.plan import field_text, plan_flags, plan_words
from shardplan.web.figures.panels import memory_parts, step_parts
from shardplan.web.planning.answered import PageAnswer
from shardplan.web.state import JOB, LOCK, PageQuestion, plan_code, switched


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


CHIPS: Final = ("tp", "cp", "pp", "vp", "ep", "etp", "micro_batch_size", "sharding", "recompute")
"""Fields of the plan that a click locks."""


class Chip(NamedTuple):
    """A field of the plan that can be locked at its value."""

    name: str
    label: str
    value: str
    is_locked: bool


def verdict(question: PageQuestion, found: PageAnswer, estimate: Estimate) -> dict[str, Any]:
    """Everything that the first panel shows of ``estimate``."""
    asked = found.put.question
    total, each = token_rates(asked, estimate)
    options = framework_options(asked, estimate)
    return {
        "title": question_title(asked),
        "parts": question_parts(asked),
        "notes": asked.model.notes,
        "estimate": estimate,
        "step": format_time(estimate.step_time),
        "band": step_band(estimate),
        "narrowed": narrowed_text(estimate),
        "band_ends": _band_ends(estimate),
        "mfu": percent(estimate.mfu),
        "hfu": percent(estimate.hfu) if estimate.hfu > estimate.mfu * 1.0005 else "",
        "peak": f"{format_rate(estimate.peak_flops, 'FLOP')} {estimate.peak_format}",
        "tokens": total,
        "tokens_each": each,
        "training": training(asked, estimate),
        "chips": chips(question, estimate),
        "words": " \u00b7 ".join(plan_words(estimate)),
        "code": plan_code(estimate.plan),
        "memory": memory(estimate),
        "split": step_parts(estimate),
        "options": None if options is None else " ".join(options.options),
        "unsaid": () if options is None else options.unsaid,
        "commands": (plan_command(question), estimate_command(question, asked, estimate)),
        "doubt": _doubt(estimate),
        "near": how_near(estimate) if estimate.evidence else "",
        "runs": [
            (run_text(run), f"/trust?{question.query()}&{urlencode({'run': run.id})}") for run in estimate.evidence
        ],
        "assumptions": estimate.assumptions,
        "convention": estimate.flops_convention,
        "defaults": defaults(asked),
    }


def _band_ends(estimate: Estimate) -> tuple[float, float]:
    """Where the ends of the band are on a line from zero to a little above its upper end."""
    whole = 1.1 * estimate.step_time_p90
    return estimate.step_time_p10 / whole, estimate.step_time_p90 / whole


def _doubt(estimate: Estimate) -> str:
    """What is not sure about the numbers, and what nothing shows the framework to run."""
    doubts = [plain_text(line.words) for line in doubt_lines(estimate)]
    return " ".join([*doubts, *(f"Untested: {each.partition(': ')[2]}." for each in estimate.untested)])


def training(asked: Question, estimate: Estimate) -> dict[str, str] | None:
    """Days, accelerator-hours and money for the tokens of the job; None where no tokens are given."""
    time, tokens = estimate.time_to_train, asked.job.tokens
    if time is None or tokens is None:
        return None
    low, high = (time * end / estimate.step_time for end in (estimate.step_time_p10, estimate.step_time_p90))
    money, price, source = estimate.money, asked.cluster.accelerator_price, first_source(asked.cluster)
    told = "" if source == GIVEN_BY_USER else f", {source}"
    return {
        "time": format_time(time),
        "band": f"{format_time(low)} to {format_time(high)}",
        "tokens": format_count(tokens),
        "hours": format_count(round(time / 3600 * asked.num_given)),
        "money": "" if money is None else f"USD {format_count(round(money))}",
        "price": f"USD {price:,.2f} per accelerator-hour{told}" if money else "",
    }


def chips(question: PageQuestion, estimate: Estimate) -> list[Chip]:
    """The fields of the plan that people speak of; data parallelism follows from the others."""
    words = []
    for name in CHIPS:
        value = getattr(estimate.plan, name)
        if value != 1 or name in ("tp", "pp", "micro_batch_size"):
            label = {"micro_batch_size": "micro-batch", "sharding": "", "recompute": "recompute"}.get(name, name)
            text = field_text(value)
            words.append(Chip(LOCK + name, label, text, question.locks.get(name) == text))
    return words


def memory(estimate: Estimate) -> dict[str, Any]:
    """The fullest stage as a bar."""
    bar = memory_bar(estimate)
    return {
        "text": memory_use(estimate),
        "share": percent(bar.used_bytes / bar.usable_bytes),
        "parts": memory_parts(bar),
        "end": bar.usable_bytes / max(bar.used_bytes, bar.usable_bytes),
        "is_tight": estimate.feasible and not estimate.has_headroom,
        "fits": estimate.feasible,
    }


def defaults(asked: Question) -> dict[str, str]:
    """What fields that were left empty were answered with, to be shown in them."""
    job = asked.job
    return {
        "sequence_length": f"{job.sequence_length:,}",
        "global_batch_size": f"{job.global_batch_size:,}",
        "precision": job.precision,
        "tokens": "none" if job.tokens is None else format_count(job.tokens),
    }


FLAG: Final = re.compile(r"--([a-z-]+) ([^\s,;()]+)")
SPELT: Final = re.compile(r" \(--[^)]*\)|: plan with --software [\w=]+|:(?: --[a-z-]+ [^\s,]+)+")
FREED: Final = re.compile(r"leave (.+?) free")


def changed(question: PageQuestion, text: str) -> PageQuestion:
    """``question`` with the change that ``text`` says in flags of the command line: ``--gpus 1024``."""
    freed = FREED.match(text)
    names = freed[1].split(", ") if freed else []
    made = question.with_values(locks={name: value for name, value in question.locks.items() if name not in names})
    for flag, value in FLAG.findall(text):
        made = _with_flag(made, flag.replace("-", "_"), value.rstrip("."))
    return made


def without_flags(text: str) -> str:
    """What ``text`` offers without the flags that ask for it: a page has a button next to it."""
    return SPELT.sub("", text)


def _with_flag(question: PageQuestion, name: str, value: str) -> PageQuestion:
    if name == "gpus":
        return question.with_values(gpus=value)
    if name in JOB:
        return question.with_values(job={**question.job, name: value})
    if name == "software":
        given = [each.strip() for each in question.software.split(",") if each.strip()]
        kept = [each for each in given if each.partition("=")[0].strip() != value.partition("=")[0]]
        return question.with_values(software=", ".join([*kept, value]))
    if name == "fix":
        field, _, wanted = value.partition("=")
        return question.with_values(locks={**question.locks, field: wanted})
    return question

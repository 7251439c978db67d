"""The recommended plan in the words of the page, the plans around it, the commands that ask the same, and changes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from shardplan.answers.document import Column, plain_text
from shardplan.answers.estimate import assumed_texts
from shardplan.answers.plans import doubt_lines
from shardplan.answers.sections import stages_parts
from shardplan.ask.forms import LISTED
from shardplan.base.errors import InputError, ShardplanError
from shardplan.base.units import format_bytes, format_count, format_time
from shardplan.estimation.estimate import Estimate
from shardplan.estimation.parts.terms import term_label
from shardplan.estimation.question import Question
from shardplan.inputs.defaults import precisions_of
from shardplan.inputs.readers.overrides import GIVEN_BY_USER
from shardplan.physics.frameworks.usual_stack import USUAL
from shardplan.planner.result import SearchResult
from shardplan.render.html import Html, assumed_html, part_html
from shardplan.reports.explanation import Difference, Explanation
from shardplan.reports.forms import framework_options
from shardplan.reports.recommendation import DEGREES, against_text, listed_plans, num_that_fit
from shardplan.reports.texts.answer import (
    first_source,
    how_near,
    money_text,
    percent,
    price_text,
    question_parts,
    question_title,
    run_text,
    signed_time,
    token_rates,
)
from shardplan.reports.texts.plan import (
    field_text,
    other_fields,
    plan_flags,
    plan_words,
    recompute_text,
    short_recompute,
    short_sharding,
)
from shardplan.reports.truth import WORDS, TruthLine
from shardplan.web.answered import PageAnswer
from shardplan.web.panels import shown_plan
from shardplan.web.state import JOB, LOCK, PageQuestion, plan_code, switched


def plan_command(question: PageQuestion) -> str:
    """The search of the page; with the plan file of the page where names do not say what it is about."""
    if question.uses_file:
        return "shardplan estimate --from plan.json"
    stack = [] if question.stack == USUAL else ["--stack", question.stack]
    return shlex.join(["shardplan", "plan", *_asked(question), *stack, *_locked(question)])


def estimate_command(question: PageQuestion, posed: Question, estimate: Estimate) -> str:
    """One plan as an answer to the question of the page."""
    asked = question.with_values(gpus="") if posed.num_idle else question  # the plan's flags have the used number
    of = ["--from", "plan.json"] if question.uses_file else [*_asked(asked)]
    return " ".join([shlex.join(["shardplan", "estimate", *of]), *plan_flags(posed, estimate)])


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
    """That a click locks."""
    text: str
    """That is shown: with the number of layers that are recomputed."""
    is_locked: bool


def verdict(question: PageQuestion, found: PageAnswer, truth: TruthLine) -> dict[str, Any]:
    """Everything that the first panel shows of an estimate, whose line on how sure it is is ``truth``."""
    estimate = truth.estimate
    asked = found.posed.question
    total, each = token_rates(asked, estimate)
    options = framework_options(asked, estimate)
    return {
        "title": question_title(asked),
        "parts": question_parts(asked),
        "notes": asked.model.notes,
        "assumed": assumed_html(assumed_texts(estimate)),
        **shown_plan(estimate),
        "truth": truth_shown(truth),
        "stages": Html("".join(map(part_html, stages_parts(truth)))),
        "band_ends": _band_ends(estimate),
        "has_hfu": estimate.hfu > estimate.mfu * 1.0005,
        "tokens": total,
        "tokens_each": each,
        "training": training(asked, estimate),
        "chips": chips(question, estimate),
        "options": None if options is None else " ".join(options.options),
        "unsaid": () if options is None else options.unsaid,
        "commands": (plan_command(question), estimate_command(question, asked, estimate)),
        "doubt": _doubt(estimate),
        "near": how_near(estimate) if estimate.evidence else "",
        "runs": [
            (run_text(run), f"/trust?{question.query()}&{urlencode({'run': run.id})}") for run in estimate.evidence
        ],
        "defaults": defaults(asked),
    }


def truth_shown(truth: TruthLine) -> dict[str, Any]:
    """The line on how sure a step time is, and whether it is amber."""
    return {"word": WORDS[truth.sureness], "text": truth.text, "is_doubted": truth.sureness != "sure"}


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
    money, source = estimate.money, first_source(asked.cluster)
    told = "" if source == GIVEN_BY_USER else f", {source}"
    return {
        "time": format_time(time),
        "band": f"{format_time(low)} to {format_time(high)}",
        "tokens": format_count(tokens),
        "hours": format_count(round(time / 3600 * asked.num_given)),
        "money": "" if money is None else money_text(money),
        "price": f"{price_text(asked.cluster)} an accelerator-hour{told}" if money else "",
    }


def chips(question: PageQuestion, estimate: Estimate) -> list[Chip]:
    """The whole plan but for data parallelism, which follows: degrees, and every field that is not as usual."""
    words = []
    others = [name for name in other_fields(estimate.plan) if name != "recompute_num_layers"]
    for name in (*CHIPS, *others):
        value = getattr(estimate.plan, name)
        if value is True or value != 1 or name in ("tp", "pp", "micro_batch_size"):
            text = field_text(value)
            label = {"micro_batch_size": "micro-batch", "sharding": ""}.get(name, name.replace("_", " "))
            shown = recompute_text(estimate) if name == "recompute" else text
            words.append(Chip(LOCK + name, label, text, shown, question.locks.get(name) == text))
    return words


def defaults(asked: Question) -> dict[str, Any]:
    """What fields that were left empty were answered with, to be shown in them, and the precisions to choose from."""
    job = asked.job
    return {
        "sequence_length": f"{job.sequence_length:,}",
        "global_batch_size": f"{job.global_batch_size:,}",
        "precision": job.precision,
        "tokens": "none" if job.tokens is None else format_count(job.tokens),
        "precisions": precisions_of(asked.cluster.accelerator),
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


MOST_MOVES: Final = 3
ALIKE_BYTES: Final = 5e6
"""Bytes of memory that read the same."""


def nearest_moves(reasons: Explanation) -> list[dict[str, str]]:
    """The changes of single fields that would save most time, or cost least, each with the plan that it comes to."""
    found: dict[str, tuple[str, Difference]] = {}
    for each in reasons.alternatives:
        known = [one for one in (each.alone, each.best) if one is not None]
        if known:
            move = min(known, key=lambda one: (one.missing_bytes > 0, one.time_lost))
            found.setdefault(plan_code(move.estimate.plan), (each.name, move))
    ranked = sorted(found.items(), key=lambda item: (item[1][1].missing_bytes > 0, item[1][1].time_lost))
    return [
        {
            "code": code,
            "name": name,
            "time": signed_time(move.time_lost),
            "memory": _memory_of_move(move),
        }
        for code, (name, move) in ranked[:MOST_MOVES]
    ]


def _memory_of_move(move: Difference) -> str:
    if move.missing_bytes:
        return f"but needs {format_bytes(move.missing_bytes)} more than there is"
    more = move.memory_added
    size = format_bytes(abs(more))
    text = "" if abs(more) < ALIKE_BYTES else f"needs {size} more" if more > 0 else f"frees {size}"
    return text if move.estimate.has_headroom else f"{text}{' and' if text else ''} may not fit"


MOST_TERMS = 4
WORTH_A_WORD = 0.002
"""Share of the step below which a term is as long."""


def side(found: PageAnswer, code: str) -> dict[str, Any]:
    """One plan with its numbers, or the rule that it breaks."""
    try:
        estimate = found.estimate(code)
    except ShardplanError as error:
        return {"code": code, "error": error, "words": code.replace(";", ", ").replace("=", " ")}
    is_best = found.best is not None and estimate.plan == found.best.plan
    return {**shown_plan(estimate), "code": code, "error": None, "is_best": is_best}


def why_not(found: PageAnswer, estimate: Estimate) -> list[str]:
    """What speaks for and against a plan next to the one to take, a sentence each."""
    refused = [f"{estimate.framework} does not run it: {each.rule}." for each in estimate.refusals]
    best = found.best
    if best is None:
        return [*refused, *([] if estimate.reason is None else [f"It does not fit: {estimate.reason}."])]
    if estimate.plan == best.plan:
        return ["This is the recommended plan."]
    other = Difference.of(estimate, best)
    return [*refused, *_memory_sentences(other), *_time_sentences(estimate, best, other)]


def _memory_sentences(other: Difference) -> list[str]:
    if other.missing_bytes:
        return [f"It does not fit: it needs {format_bytes(other.missing_bytes)} more than an accelerator has."]
    more = other.memory_added
    if abs(more) < ALIKE_BYTES:
        return []
    return [f"It needs {format_bytes(abs(more))} {'more' if more > 0 else 'less'} memory than the recommended plan."]


def _time_sentences(estimate: Estimate, best: Estimate, other: Difference) -> list[str]:
    lost = other.time_lost
    if abs(lost) < WORTH_A_WORD * best.step_time:
        return ["Its step takes as long as that of the recommended plan, within what can be told apart."]
    terms = {name: time - best.breakdown.get(name, 0.0) for name, time in estimate.breakdown.items()}
    for name, time in best.breakdown.items():
        terms.setdefault(name, -time)
    largest = sorted(terms, key=lambda name: -abs(terms[name]))[:MOST_TERMS]
    least = WORTH_A_WORD * best.step_time
    told = [f"{term_label(name)} {signed_time(terms[name])}" for name in largest if abs(terms[name]) > least]
    word = "longer" if lost > 0 else "shorter"
    share = percent(abs(lost) / best.step_time)
    return [f"Its step takes {format_time(abs(lost))} ({share}) {word}: {', '.join(told)}."]


ABOUT: Final = {
    "step": "predicted time of one optimizer step",
    "memory": "peak of the fullest stage",
    "against": "step time against that of the recommended plan",
    "mb": "micro-batch size",
}
"""What a pointer that rests on the title of a column shows."""


def plan_table(result: SearchResult, found: Sequence[Estimate] | None = None) -> dict[str, Any]:
    """Columns and rows: the plans of a search, the recommended one among them, or those ``found``.

    Step, degrees and memory come first: a narrow screen shows no more of a row.

    Raises ``InputError`` where no plan fits.
    """
    if result.ties is None:
        raise InputError(
            "no plan fits in memory",
            rule="plans are listed where one fits",
            hint="take more accelerators, or recompute more",
        )
    ties, taken, shown = result.ties, result.ties.time_of(result.ties.recommended), listed_plans(result)
    plans = shown.estimates if found is None else found
    degrees = [name for name in DEGREES if any(getattr(each.plan, name) != 1 for each in (*shown.estimates, *plans))]
    columns = [
        Column("", "step", ties.time_of, format_time),
        *(Column("", name.replace("_", " "), attrgetter(f"plan.{name}")) for name in degrees),
        Column("", "dp", attrgetter("dp")),
        Column("", "memory", attrgetter("peak_memory_bytes"), format_bytes),
        Column("", "against", lambda each: ties.time_of(each) - taken, lambda more: against_text(more, taken)),
        Column("", "MFU", attrgetter("mfu"), percent),
        Column("", "mb", attrgetter("plan.micro_batch_size")),
        Column("", "sharding", lambda each: short_sharding(each.plan), is_text=True),
        Column("", "recompute", lambda each: short_recompute(each.plan), is_text=True),
        *(Column("", name.replace("_", " "), partial(_switch, name), is_text=True) for name in shown.switches),
    ]
    rows = [
        {
            "estimate": each,
            "place": shown.places.get(each.plan, ""),
            "code": plan_code(each.plan),
            "words": " ".join(plan_words(each)).lower(),
            "is_recommended": each.plan == ties.recommended.plan,
            "is_tie": each.plan in ties.robustness,
        }
        for each in plans
    ]
    numbers = {"feasible": num_that_fit(result), "factor": ties.factor - 1}
    return {"columns": columns, "about": ABOUT, "rows": rows, **numbers}


def _switch(name: str, estimate: Estimate) -> str:
    return field_text(getattr(estimate.plan, name))

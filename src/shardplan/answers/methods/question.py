"""A question of ours as another method answers it, and our own estimate of the same degrees next to every row."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any, Final

from shardplan.answers.document import (
    AnswerDocument,
    Block,
    Bullets,
    Column,
    CommandLine,
    Hanging,
    Line,
    Part,
    RowTable,
    Span,
    assumptions_part,
)
from shardplan.answers.methods.catalogue import MethodEntry
from shardplan.answers.plans import question_lines
from shardplan.base.errors import ShardplanError
from shardplan.base.fields import dataclass
from shardplan.base.records import plain
from shardplan.base.units import format_bytes, format_count, format_time
from shardplan.base.version import VERSION
from shardplan.estimation.estimate import Estimate, estimate_plan
from shardplan.estimation.question import Question
from shardplan.inputs.plan import Plan
from shardplan.methods.base import Method, MethodAnswer, MethodRow
from shardplan.methods.catalogue import asked_of
from shardplan.reports.model_record import model_record
from shardplan.reports.texts.answer import percent
from shardplan.reports.texts.plan import plan_flags

DEGREES: Final = ("tp", "cp", "pp")
"""Degrees that, with dp, multiply to the accelerators."""
TIMES: Final = {
    "compute_s": ("matmul", "attention", "memory_bound", "host"),
    "tp_communication_s": ("tp_communication", "cp_communication"),
    "pp_communication_s": ("pp_communication",),
    "dp_communication_s": ("dp_communication",),
    "tp_s": ("tp_communication",),
    "pp_s": ("pp_communication",),
    "dp_s": ("dp_communication",),
    "gradients_s": ("dp_communication",),
    "bubble_s": ("bubble",),
}
"""Terms of other methods and those of our step that cover the same."""
SHARES: Final = ("fraction", "utilisation", "efficiency")
"""Ends of names of terms that are shares of a whole."""
SHORT: Final = {"micro_batch_size": "mb", "tp_rows": "rows", "tp_in": "in", "tp_out": "out"}
"""Degrees, short enough for a table."""
WORDS: Final = {"micro_batch_size": "micro-batch", "tp_rows": "rows of the grid", "tp_in": "tp in", "tp_out": "tp out"}
"""The same in sentences."""
MOST_LINES: Final = 3


@dataclass(frozen=True, kw_only=True)
class Beside:
    """Our own estimate of what another method considers."""

    plan: Plan | None = None
    estimate: Estimate | None = None
    """None where a rule forbids the plan."""
    broken_rule: str = ""
    """The rule, with its values."""


@dataclass(frozen=True, kw_only=True)
class MethodReport:
    """A method's answer with ours next to it."""

    question: Question
    entry: MethodEntry
    answer: MethodAnswer
    ours: tuple[Beside, ...]
    """One for every row of the answer."""
    assumptions: tuple[str, ...]
    """What our estimates took for granted beyond the rows."""

    @property
    def pairs(self) -> list[tuple[MethodRow, Beside]]:
        """Every row of the answer with our estimate of it."""
        return list(zip(self.answer.rows, self.ours, strict=True))

    @property
    def is_yes(self) -> bool:
        """Whether something fits by the method's own rule, or it has none."""
        return bool(self.answer.rows) and self.answer.rows[0].fits is not False


def ask_method(method: Method, question: Question, *, top: int) -> MethodReport:
    """Puts a question of ours to a method. Raises ``MethodError`` where it cannot speak of it."""
    q = question
    answer = asked_of(method, lambda: method.plan(q.model, q.cluster, q.num_accelerators, q.job, top=top))
    # What our estimate takes where the method says nothing
    degrees = {name for row in answer.rows for name in row.degrees}
    open_degrees = [] if "micro_batch_size" in degrees else ["micro-batches of one sequence"]
    others = (*open_degrees, "ZeRO-1", "sequence parallelism", "no recomputation", "Megatron's placement")
    text = f"our estimates take the row's degrees with {', '.join(others)}"
    if any(row.degrees.get("tp_rows") == 1 for row in answer.rows):
        text += "; a grid of one row (tp_rows 1) as one-dimensional tensor parallelism"
    return MethodReport(
        question=question,
        entry=MethodEntry.of(method),
        answer=answer,
        ours=tuple(beside(question, row) for row in answer.rows),
        assumptions=(text,),
    )


def with_assumptions(report: MethodReport, assumptions: tuple[str, ...]) -> MethodReport:
    """``report`` with what was assumed in putting the question, first."""
    return replace(report, assumptions=(*assumptions, *report.assumptions))


def beside(question: Question, row: MethodRow) -> Beside:
    """Our estimate of the degrees of ``row``, on as many accelerators as these use."""
    try:
        plan = our_plan(row.degrees)
        used = math.prod(row.degrees.get(name, 1) for name in ("dp", *DEGREES))
        estimate = estimate_plan(replace(question, num_accelerators=used), plan)
    except ShardplanError as error:
        return Beside(broken_rule=error.message)
    return Beside(plan=plan, estimate=estimate)


def our_plan(degrees: Mapping[str, int]) -> Plan:
    """The plan with these degrees; all else has its default. Raises ``InputError``."""
    known = {field.name for field in fields(Plan)}
    taken: dict[str, Any] = {name: degree for name, degree in degrees.items() if name in known}
    if degrees.get("tp_rows", 1) > 1:
        taken["tp_kind"] = "summa"
    return Plan(**taken)


def our_part(name: str, estimate: Estimate) -> float | None:
    """Our figure for the term of another method with that name; None where we have none."""
    if name in TIMES:
        return sum(estimate.breakdown.get(term, 0.0) for term in TIMES[name])
    dimension, _, rest = name.partition("_")
    if rest == "communication_bytes":
        return sum(estimate.communication.get(dimension, {}).values())
    others = {
        "bubble_fraction": estimate.breakdown.get("bubble", 0.0) / estimate.step_time,
        "num_microbatches": float(estimate.num_microbatches),
        "utilisation": estimate.mfu,
    }
    return others.get(name)


def part_label(name: str) -> str:
    """A term of a method as text, without its unit."""
    return name.removesuffix("_s").removesuffix("_bytes").replace("_", " ")


def part_text(name: str, value: float | None) -> str:
    """A term with the unit that ends its name; ``-`` where there is none."""
    if value is None:
        return "-"
    if name.endswith("_s"):
        return format_time(value)
    if name.endswith("_bytes"):
        return format_bytes(value)
    return percent(value) if name.endswith(SHARES) else format_count(value)


def beside_record(ours: Beside) -> dict[str, Any]:
    """Our estimate as an element of ``plans`` in a plan file, or the rule that forbids it."""
    if ours.estimate is None:
        return {"broken_rule": ours.broken_rule}
    return plain(ours.estimate)


def method_document(report: MethodReport) -> AnswerDocument:
    """Verdict, configurations, how the question was put, what was ignored."""
    question, answer = report.question, report.answer
    texts = (
        ("The question in its terms", "", answer.mapped),
        ("Ignored", "what the method does not know", answer.ignored),
        ("Known errors", "that affect this answer", answer.notes),
    )
    return AnswerDocument(
        name="method-answer",
        head=question_lines(question),
        verdict=[*_verdict(report)],
        parts=[
            *_configurations(report),
            *_terms(report),
            *(Part(title, [Bullets(found, most_lines=MOST_LINES)], note) for title, note, found in texts if found),
            *([assumptions_part(report.assumptions)] if report.assumptions else []),
            Part("Next steps", [*_next_steps(report)]),
        ],
        record=lambda: {
            "shardplan_version": VERSION,
            "method": answer.method,
            "title": report.entry.title,
            "source": report.entry.source,
            "model": model_record(question.model),
            "cluster": plain(question.cluster),
            "num_accelerators": question.num_accelerators,
            "job": plain(question.job),
            **{name: list(getattr(answer, name)) for name in ("mapped", "ignored", "notes")},
            "rows": [{**plain(row), "ours": beside_record(ours)} for row, ours in report.pairs],
            "assumptions": list(report.assumptions),
        },
        is_yes=report.is_yes,
    )


def _verdict(report: MethodReport) -> Iterator[Block]:
    name = report.entry.name
    yield Hanging(Span(name, "strong"), Span(report.entry.title, "quiet"), is_flush=True)
    if not report.answer.rows:
        yield Line(f"{name} names no configuration.", tone="bad")
        return
    best, ours = report.pairs[0]
    closest = (Span("Nothing fits by its own rule. ", "bad"), Span("Closest: "))
    # A row as text
    time = [] if best.step_time is None else [f"{format_time(best.step_time)} a step"]
    memory = [] if best.memory_bytes is None else [format_bytes(best.memory_bytes)]
    said = Span(", ".join([degrees_text(best), *time, *memory]), "strong")
    yield Line((*(closest if best.fits is False else (Span("Its best: ", "good"),)), said))
    yield Line((Span("Our estimate of it: ", "strong"), Span(_ours_text(ours))))


def degrees_text(row: MethodRow) -> str:
    """The degrees of a row in words."""
    return ", ".join(f"{WORDS.get(name, name)} {degree}" for name, degree in row.degrees.items())


def _ours_text(ours: Beside) -> str:
    if ours.estimate is None:
        return f"none, as {ours.broken_rule}"
    estimate = ours.estimate
    text = f"{format_time(estimate.step_time)} a step, {format_bytes(estimate.peak_memory_bytes)}; "
    return text + ("it fits" if estimate.feasible else f"it does not fit: {estimate.reason}")


def _configurations(report: MethodReport) -> Iterator[Part]:
    """Every configuration: theirs and ours in turn."""
    pairs = report.pairs
    if not pairs:
        return
    columns = (
        *_degrees(report.answer.rows),
        Column("", "its step", lambda pair: pair[0].step_time, format_time),
        Column("", "our step", of_ours("step_time"), format_time),
        Column("", "its memory", lambda pair: pair[0].memory_bytes, format_bytes, rank=1),
        Column("", "our memory", of_ours("peak_memory_bytes"), format_bytes, rank=1),
        Column("", "its fit", lambda pair: pair[0].fits, lambda fits: "yes" if fits else "no", rank=4),
    )
    known = [each for each in columns if any(each.value(pair) is not None for pair in pairs)]
    our_fit = Column("", "our fit", lambda pair: _our_fit(pair[1]), is_text=True, rank=2)
    table = RowTable(pairs, (*known, our_fit), lambda pair: "strong" if pair is pairs[0] else "")
    broken = list(dict.fromkeys(each.broken_rule for each in report.ours if each.estimate is None))
    no_plan = [Line(f"No plan of ours: {'; '.join(broken)}.", tone="quiet")] if broken else []
    yield Part("Configurations", [table, *no_plan], "in its order, and our own estimate of the same degrees")


def _degrees(rows: Sequence[MethodRow]) -> list[Column]:
    names = list(dict.fromkeys(name for row in rows for name in row.degrees))
    return [
        Column(
            "",
            SHORT.get(name, name),
            lambda pair: pair[0].degrees,
            partial(_degree, name),
            rank=3 if name == "micro_batch_size" else 0,
        )
        for name in names
    ]


def _degree(name: str, degrees: Mapping[str, int]) -> str:
    return str(degrees.get(name, "-"))


def of_ours(name: str) -> Callable[[tuple[MethodRow, Beside]], Any]:
    """A field of our estimate; None where there is none."""
    return lambda pair: None if pair[1].estimate is None else getattr(pair[1].estimate, name)


def _our_fit(ours: Beside) -> str:
    if ours.estimate is None:
        return "no plan"
    return "yes" if ours.estimate.feasible else "no"


def _terms(report: MethodReport) -> Iterator[Part]:
    """The method's own terms of its first configuration, and ours where we have the same."""
    rows = terms(report)
    if rows:
        columns = (
            Column("", "term", lambda row: part_label(row[0]), is_text=True),
            Column("", "its", lambda row: part_text(row[0], row[1])),
            Column("", "ours", lambda row: part_text(row[0], row[2])),
        )
        has_ours = any(ours is not None for _, _, ours in rows)
        table = RowTable(rows, columns if has_ours else columns[:2])
        yield Part("Its terms", [table], "of the first configuration; ours where we count the same")


def terms(report: MethodReport) -> list[tuple[str, float, float | None]]:
    """Name and value of each term of the method's first configuration, and ours where we count the same."""
    if not report.pairs:
        return []
    best, ours = report.pairs[0]
    estimate = ours.estimate
    return [(name, value, None if estimate is None else our_part(name, estimate)) for name, value in best.parts.items()]


def _next_steps(report: MethodReport) -> Iterator[Block]:
    yield Line("Leave out --method for our own search. All that the method counts and leaves out:")
    yield CommandLine(f"shardplan published methods {report.entry.name}")
    priced = [each.estimate for each in report.ours if each.estimate is not None]
    if priced:
        yield Line("The first plan of ours above as flags of `shardplan estimate`:")
        yield CommandLine(" ".join(plan_flags(report.question, priced[0])) or "none: every field has its default")

"""Two or more plans side by side, term by term, and the answer of ``compare``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import partial
from operator import attrgetter
from typing import Any, Final, Literal

from shardplan.answers.document import (
    NONE,
    AnswerDocument,
    Column,
    Line,
    Part,
    RowTable,
    SideBySide,
    Span,
    Tone,
    plain_tone,
)
from shardplan.base.errors import InputError
from shardplan.base.fields import dataclass
from shardplan.base.units import format_bytes, format_count, format_rate, format_time
from shardplan.base.words import joined
from shardplan.estimation.estimate import Estimate
from shardplan.estimation.parts.terms import MEMORY, term_label
from shardplan.estimation.ties import tie_factor
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.software import CHOSEN, Software
from shardplan.reports.breakdown import step_split
from shardplan.reports.plan_file import Pick, PlanFile
from shardplan.reports.texts.answer import percent
from shardplan.reports.texts.plan import field_text, short_policy

Unit = Literal["text", "s", "bytes", "share", "count", "flops_per_s"]


@dataclass(frozen=True, kw_only=True)
class Side:
    """One of the compared plans: a file, and which of its plans."""

    label: str
    file: PlanFile
    pick: Pick

    @property
    def estimate(self) -> Estimate:
        """The plan that is compared."""
        return self.file.pick(self.pick)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One quantity of every side."""

    section: str
    """question, plan, time, rates, memory or communication."""
    name: str
    label: str
    unit: Unit
    values: tuple[Any, ...]
    """One for each side, None where it has no such quantity."""

    @property
    def is_same(self) -> bool:
        """Whether all sides agree."""
        return all(value == self.values[0] for value in self.values)

    @property
    def changes(self) -> tuple[float | None, ...]:
        """Difference of every side from the first; None for texts and where either has none."""
        first = self.values[0]
        if self.unit == "text" or first is None:
            return (None,) * len(self.values)
        return tuple(None if value is None else value - first for value in self.values)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Rows that sides can be distinguished by, and the fastest of those that fit."""

    sides: tuple[Side, ...]
    rows: tuple[Row, ...]
    fastest: int | None
    """The most efficient among those that fit: index of the side with most tokens per second and accelerator, or of
    different models with the highest MFU."""
    soonest: int | None
    """The one that is done soonest: index of the side with most tokens per second in all among those that fit."""
    is_one_model: bool
    """Whether all sides train the same model, so that their tokens per second can be compared."""
    is_one_question: bool
    """Whether all sides answer the same question, so that their step times can be compared."""

    @property
    def ties(self) -> tuple[int, ...]:
        """Sides that are too close to the fastest to call, where one question compares them."""
        if self.fastest is None or not self.is_one_question:
            return ()
        most = self.sides[self.fastest].estimate.step_time * tie_factor()
        estimates = [side.estimate for side in self.sides]
        return tuple(
            index for index, e in enumerate(estimates) if index != self.fastest and e.feasible and e.step_time <= most
        )


def sides_of(files: Sequence[PlanFile], names: Sequence[str], picks: Sequence[Pick] | None) -> tuple[Side, ...]:
    """Plans of files side by side, of one file several. ``picks``: one for each side; the usual ones where None.

    Raises InputError where a plan of one file is named twice.
    """
    picks = _usual_picks(files) if picks is None else picks
    if len(files) == 1:
        twice = next((pick for place, pick in enumerate(picks) if pick in picks[:place]), None)
        if twice is not None:
            raise InputError(
                f"--pick names plan {twice} of {names[0]} twice",
                rule="plans of one file are different ones",
                hint="name each once: --pick 1,2",
            )
        return tuple(Side(label=f"{names[0]}:{pick}", file=files[0], pick=pick) for pick in picks)
    return tuple(
        Side(label=name if pick == each.best_pick else f"{name}:{pick}", file=each, pick=pick)
        for name, each, pick in zip(names, files, picks, strict=True)
    )


def _usual_picks(files: Sequence[PlanFile]) -> list[Pick]:
    """One plan for each side where none is named: of one file the fastest and the recommended one, or the first two."""
    if len(files) > 1:
        return [each.best_pick for each in files]
    only = files[0]
    first = only.estimates[0].plan if only.estimates else None
    is_other = only.best_pick != 1 and only.pick(only.best_pick).plan != first
    return [1, only.best_pick if is_other else 2]


def compare(sides: Sequence[Side]) -> Comparison:
    """Compares two or more plans. Raises InputError on fewer, and where a file has no such plan."""
    if len(sides) < 2:
        raise InputError(
            f"{len(sides)} plan is given",
            rule="a comparison has two or more plans",
            hint="give a second plan file, or two plans of one file: --pick 1,2",
        )
    estimates = [side.estimate for side in sides]
    is_one_model = len({side.file.question.model for side in sides}) == 1
    rates = [(e.tokens_per_second_per_accelerator if is_one_model else e.mfu) * e.feasible for e in estimates]
    totals = [e.tokens_per_second * e.feasible for e in estimates]
    return Comparison(
        sides=tuple(sides),
        rows=tuple(row for row in _rows(sides, estimates) if row.section in ("time", "rates") or not row.is_same),
        fastest=_largest(rates),
        soonest=_largest(totals),
        is_one_model=is_one_model,
        is_one_question=not any(not row.is_same for row in _question_rows(sides)),
    )


def _largest(rates: Sequence[float]) -> int | None:
    """Index of the largest rate, the first of equal ones; None where nothing fits."""
    return max(range(len(rates)), key=lambda index: rates[index]) if any(rates) else None


def _rows(sides: Sequence[Side], estimates: Sequence[Estimate]) -> Iterator[Row]:
    yield from _question_rows(sides)
    # Every field of the plans, and what follows from them
    for field in fields(Plan):
        yield _row("plan", field.name, "text", [field_text(_in_effect(side, field.name)) for side in sides])
    yield _row("plan", "dp", "text", [str(e.dp) for e in estimates])
    yield _row("plan", "num_microbatches", "text", [str(e.num_microbatches) for e in estimates], "micro-batches")
    # Step time and its terms, largest on any side first
    yield _row("time", "step_time", "s", [e.step_time for e in estimates])
    names = {share.name for e in estimates for share in step_split(e)}
    for name in sorted(names, key=lambda n: -max(e.breakdown.get(n, 0.0) for e in estimates)):
        yield _row("time", name, "s", [e.breakdown.get(name, 0.0) for e in estimates], term_label(name))
    if any(e.time_to_train is not None for e in estimates):
        yield _row("time", "time_to_train", "s", [e.time_to_train for e in estimates])
    if any(e.money is not None for e in estimates):
        yield _row("time", "money", "count", [e.money for e in estimates], "money in USD")
    yield from _rate_rows(estimates)
    yield from _memory_rows(estimates)
    # Bytes that an accelerator sends, by dimension and tier
    found = dict.fromkeys((dim, tier) for e in estimates for dim, tiers in e.communication.items() for tier in tiers)
    for dimension, tier in found:
        sent = [e.communication.get(dimension, {}).get(tier, 0.0) for e in estimates]
        if any(sent):
            yield _row("communication", f"{dimension}.{tier}", "bytes", sent, f"{dimension} over {tier}")


def _in_effect(side: Side, name: str) -> object:
    """A field of the plan; where it leaves it to the software of the question, that one's."""
    value, software = getattr(side.estimate.plan, name), side.file.question.job.software
    return getattr(software, name) if value is None and name in CHOSEN else value


def _question_rows(sides: Sequence[Side]) -> Iterator[Row]:
    """What the sides answer."""
    questions = [side.file.question for side in sides]
    yield _row("question", "model", "text", [q.model.name for q in questions])
    yield _row("question", "cluster", "text", [q.cluster.name for q in questions])
    yield _row("question", "accelerator", "text", [q.cluster.accelerator.name for q in questions])
    yield _row("question", "num_accelerators", "count", [q.num_accelerators for q in questions], "accelerators")
    for field in fields(Job):
        if field.name != "software":
            values = [getattr(q.job, field.name) for q in questions]
            unit: Unit = "count" if field.name in ("sequence_length", "global_batch_size", "tokens") else "text"
            yield _row("question", field.name, unit, values)
    for field in fields(Software):
        settings = [field_text(getattr(q.job.software, field.name)) for q in questions]
        yield _row("question", field.name, "text", settings)
    for index in range(max(len(q.cluster.tiers) for q in questions)):
        tiers = [q.cluster.tiers[index] if index < len(q.cluster.tiers) else None for q in questions]
        links = [tier and f"{tier.kind}, {format_rate(tier.bandwidth)}" for tier in tiers]
        yield _row("question", f"tier_{index}", "text", links, f"network tier {index + 1}")


def _rate_rows(estimates: Sequence[Estimate]) -> Iterator[Row]:
    rates: tuple[tuple[str, Unit, str, Callable[[Estimate], float]], ...] = (
        ("tokens_per_second_per_accelerator", "count", "tokens/s per accelerator",
         lambda e: e.tokens_per_second_per_accelerator),
        ("mfu", "share", "MFU", lambda e: e.mfu),
        ("hfu", "share", "HFU", lambda e: e.hfu),
        ("peak_flops", "flops_per_s", "dense peak", lambda e: e.peak_flops),
    )  # fmt: skip
    totals = [e.tokens_per_second for e in estimates]
    total = _row("rates", "tokens_per_second", "count", totals, "tokens/s in all")
    if not total.is_same:
        yield total
    for name, unit, label, value in rates:
        row = _row("rates", name, unit, [value(e) for e in estimates], label)
        if name != "peak_flops" or not row.is_same:
            yield row


def _memory_rows(estimates: Sequence[Estimate]) -> Iterator[Row]:
    """Parts of the fullest stage."""
    yield _row("memory", "peak_memory_bytes", "bytes", [e.peak_memory_bytes for e in estimates], "peak memory")
    yield _row("memory", "usable_memory_bytes", "bytes", [e.usable_memory_bytes for e in estimates], "usable memory")
    fullest = [e.memory[e.fullest_stage] for e in estimates]
    for name in MEMORY:
        if any(stage.get(name) for stage in fullest):
            yield _row("memory", name, "bytes", [stage.get(name, 0.0) for stage in fullest])
    yield _row("memory", "feasible", "text", ["yes" if e.feasible else "no" for e in estimates], "fits")


def _row(section: str, name: str, unit: Unit, values: Sequence[Any], label: str = "") -> Row:
    return Row(
        section=section,
        name=name,
        label=label or name.replace("_", " "),
        unit=unit,
        values=tuple(values),
    )


TITLES: Final = {
    "question": ("Question", "where it differs"),
    "plan": ("Plan", "where it differs"),
    "time": ("Step", "on the slowest stage; in brackets the change from the first"),
    "rates": ("Rates", ""),
    "memory": ("Memory", "of the fullest stage"),
    "communication": ("Traffic", "bytes that an accelerator sends in a step, where they differ"),
}
WITH_CHANGES: Final = ("time", "rates", "memory")
LONGEST_NAME: Final = 12
"""Longer names of plans are distinguished by letters."""
LONGEST_CELL: Final = 24
SMALLEST_CHANGE: Final = 5e-4
"""Share of a value below which a change is not shown: the numbers read the same."""
LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
TEXTS: Final[Mapping[Unit, Callable[[Any], str]]] = {
    "text": lambda text: text if len(text) <= LONGEST_CELL else f"{text[: LONGEST_CELL - 3]}...",
    "s": format_time,
    "bytes": format_bytes,
    "share": percent,
    "flops_per_s": lambda value: format_rate(value, "FLOP"),
    "count": lambda value: format_count(round(value)),
}
"""Values as text, by unit."""
MAIN: Final = ("step_time", "peak_memory_bytes")


def comparison_document(comparison: Comparison) -> AnswerDocument:
    """Verdict, then every quantity that differs."""
    names = labels = [side.label for side in comparison.sides]
    if max(len(label) for label in labels) > LONGEST_NAME:
        labels = [*LETTERS[: len(names)]]
    sections = {section: [row for row in comparison.rows if row.section == section] for section in TITLES}
    return AnswerDocument(
        name="comparison",
        head=[Line((Span(a, "strong"), Span(f"  {name}"))) for a, name in zip(labels, names, strict=True) if a != name],
        verdict=_verdict(comparison, labels),
        parts=[
            Part(TITLES[section][0], [_side_by_side(labels, rows)], TITLES[section][1])
            for section, rows in sections.items()
            if rows
        ],
        record=lambda: {
            "plans": [{"label": side.label, "pick": side.pick} for side in comparison.sides],
            "fastest": comparison.fastest,
            "soonest": comparison.soonest,
            "ties": [*comparison.ties],
            "is_one_question": comparison.is_one_question,
            "rows": RowTable(comparison.rows, RECORDED),
        },
    )


RECORDED: Final = (
    *(Column(name, None, attrgetter(name)) for name in ("section", "name", "unit")),
    Column("values", None, lambda row: list(row.values)),
    Column("changes", None, lambda row: list(row.changes)),
)
"""What a record has of every row."""


def _verdict(comparison: Comparison, labels: Sequence[str]) -> list[Line]:
    """Which plan trains most per accelerator, and which is done soonest where that is another."""
    lines = _best(comparison, labels)
    if not comparison.is_one_question:
        rates = "rates" if comparison.is_one_model else "MFU"
        lines.append(Line(f"The plans answer different questions: compare {rates}, not step times.", tone="doubt"))
    return lines


def _best(comparison: Comparison, labels: Sequence[str]) -> list[Line]:
    if comparison.fastest is None or comparison.soonest is None:
        return [Line("None of these plans fits.", tone="bad")]
    best, soonest = (comparison.sides[index].estimate for index in (comparison.fastest, comparison.soonest))
    is_one = comparison.fastest == comparison.soonest or not comparison.is_one_model
    what = "the fastest of these" if is_one and comparison.is_one_model else "the most efficient"
    rate = format_count(round(best.tokens_per_second_per_accelerator))
    speed = f"{rate} tokens/s per accelerator" if comparison.is_one_model else "the highest MFU"
    text = Span(f": {speed}, {format_time(best.step_time)} a step.")
    lines = [Line((Span(f"{labels[comparison.fastest]} is {what}", "good"), text))]
    if not best.has_headroom:
        lines.append(Line("It may not fit: the upper end of its memory band is above what is usable.", tone="doubt"))
    if comparison.ties:
        near = joined([labels[index] for index in comparison.ties])
        verb = "is" if len(comparison.ties) == 1 else "are"
        share = f"{100 * (tie_factor() - 1):.0f} %"
        lines.append(Line(f"{near} {verb} within {share} of it: too close to call.", tone="doubt"))
    if not is_one:
        total = format_count(round(soonest.tokens_per_second_per_accelerator * soonest.num_accelerators_used))
        who = Span(f"{labels[comparison.soonest]} is done soonest", "good")
        lines.append(Line((who, Span(f": {total} tokens/s in all."))))
    return lines


def _side_by_side(labels: Sequence[str], rows: Sequence[Row]) -> SideBySide:
    """One line for each row; on a narrow terminal without changes."""

    def table(*, has_changes: bool) -> RowTable:
        cells = [partial(_cell, index, has_changes=has_changes) for index in range(len(labels))]
        sides = [Column("", label, cell) for label, cell in zip(labels, cells, strict=True)]
        return RowTable(rows, [Column("", "", attrgetter("label"), is_text=True), *sides], _tone)

    return SideBySide(table(has_changes=True), table(has_changes=False))


def _tone(row: Row) -> Tone:
    return "strong" if row.name in MAIN else plain_tone(row)


def _cell(index: int, row: Row, *, has_changes: bool) -> str:
    """A value, and what it is more or less than that of the first side."""
    text, change = value_text(row, index), change_text(row, index) if has_changes else ""
    return f"{text} ({change})" if change else text


def value_text(row: Row, index: int) -> str:
    """The value of a side."""
    value = row.values[index]
    if value is None:
        return NONE
    return short_policy(value) if (row.section, row.name) == ("plan", "recompute") else TEXTS[row.unit](value)


def change_text(row: Row, index: int) -> str:
    """What it is more or less than that of the first side; empty where the two read the same."""
    value, change = row.values[index], row.changes[index]
    if index == 0 or not change or row.section not in WITH_CHANGES:
        return ""
    if abs(change) < SMALLEST_CHANGE * max(abs(value), abs(row.values[0])):
        return ""
    text = f"{100 * abs(change):.1f} points" if row.unit == "share" else TEXTS[row.unit](abs(change))
    return f"{'+' if change > 0 else '-'}{text}"

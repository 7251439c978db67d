"""Training frameworks: the list, the defaults of one and what it can run, and what ``--software`` sets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

from shardplan.answers.document import AnswerDocument, Block, Bullets, Column, Line, Numbered, Part, RowTable, Span
from shardplan.base.fields import described
from shardplan.base.records import plain
from shardplan.base.words import switch_word
from shardplan.inputs.software import Software
from shardplan.physics.frameworks.capabilities import Capabilities
from shardplan.physics.frameworks.capability_rows import (
    CapabilityRow,
    capability_record,
    capability_rows,
    library_rows,
    option_rows,
    refusal_rows,
    shown_rows,
)
from shardplan.physics.frameworks.stack import Stack


def stacks_document(stacks: Iterable[Stack]) -> AnswerDocument:
    """One line for each."""
    columns = (
        Column("name", "name", lambda stack: stack.name, is_text=True),
        Column("title", "in full", lambda stack: stack.full_name, is_text=True),
    )
    table = RowTable([*stacks], columns)
    more = Line("shardplan stacks NAME shows one, with the sources of its defaults.", tone="quiet")
    return AnswerDocument(
        name="stacks", verdict=[table], parts=[Part("", [more])], table=table, record=lambda: {"stacks": table}
    )


def stack_document(stack: Stack) -> AnswerDocument:
    """Every default of a framework with its source, and what it can run."""
    values: dict[str, object] = {
        f"{part}.{name}": value for part in ("software", "job", "plan") for name, value in getattr(stack, part).items()
    }
    for name in ("layers_per_chunk", "stages_by_cost", "experts_split_as_layers"):
        if name in stack.sources:
            values[name] = getattr(stack, name)
    sources = list(dict.fromkeys(stack.sources[name] for name in values))
    columns = (
        Column("", "default", lambda row: row[0].partition(".")[2] or row[0], is_text=True),
        Column("", "of", lambda row: row[0].partition(".")[0] if "." in row[0] else "plan", is_text=True, rank=1),
        Column("", "src", lambda row: sources.index(stack.sources[row[0]]) + 1),
        Column("", "value", text=lambda row: default_text(row[1]), is_text=True),
    )
    return AnswerDocument(
        name="stack",
        verdict=[Line(f"{stack.full_name} ({stack.name})", tone="strong")],
        parts=[
            Part("", [RowTable([*values.items()], columns)]),
            Part("Sources", [Numbered(sources, "quiet")]),
            *([] if stack.can_run is None else _can_run(stack, stack.can_run)),
            *([Part("", [Bullets([stack.notes], "quiet")])] if stack.notes else []),
        ],
        record=lambda: {
            **plain(replace(stack, can_run=None, can_run_before=())),
            "can_run": None if stack.can_run is None else capability_record(stack.can_run),
            "can_run_before": [capability_record(each) for each in stack.can_run_before],
        },
    )


def releases_document(stack: Stack) -> AnswerDocument:
    """What changed in a framework from month to month, and the versions whose limits are on record."""
    changes = [(change, name, value) for change in stack.earlier for name, value in change.values.items()]
    columns = (
        Column("before", "before", lambda row: row[0].before, is_text=True),
        Column("field", "field", lambda row: row[1], is_text=True),
        Column("value", "was", lambda row: row[2], default_text, is_text=True),
        Column("source", "source", lambda row: row[0].sources[row[1]], is_text=True, is_wide=True),
    )
    table = RowTable(changes, columns)
    records = [each for each in (stack.can_run, *stack.can_run_before) if each is not None]
    first = f"first release {stack.since}" if stack.since else "no history on record, only today's behaviour"
    sources = [f"{change.before} {name}: {change.sources[name]}" for change, name, _ in changes]
    versions = [f"{stack.name}@{each.version}: {each.date}" for each in records]
    return AnswerDocument(
        name="releases",
        verdict=[Line(f"{stack.full_name} ({stack.name}): {first}", tone="strong")],
        parts=[
            *(
                [Part("What was different", [table], "before the month, back to the change before it")]
                if changes
                else []
            ),
            *([Part("Sources", [Bullets(sources, "quiet")])] if changes else []),
            *([Part("Versions", [Bullets(versions)], "whose limits are on record")] if records else []),
        ],
        table=table,
        record=lambda: {
            "name": stack.name,
            "since": stack.since or None,
            "versions": [{"version": each.version, "date": each.date} for each in records],
            "changes": table,
        },
    )


def default_text(value: object) -> str:
    """A default as text."""
    if isinstance(value, Mapping):
        return ", ".join(f"{precision}: {default_text(each)}" for precision, each in value.items())
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)


def _can_run(stack: Stack, can: Capabilities) -> Iterator[Part]:
    """What the framework can run, and where each entry was read."""
    rows, rules, options = capability_rows(can), refusal_rows(can), option_rows(can)
    libraries, evidence = library_rows(can), shown_rows(can)
    listed = [*rows, *rules, *options[:1], *libraries, *evidence]
    sources = list(dict.fromkeys(row.source for row in listed if row.source))

    def place(row: CapabilityRow) -> str:
        return f"{sources.index(row.source) + 1}{'*' * row.from_memory}"

    columns = (
        Column("", "entry", lambda row: row.title, is_text=True),
        Column("", "src", text=place),
        Column("", "value", lambda row: row.value, is_text=True),
    )
    origin = " ".join(part for part in (can.repository, can.commit) if part)
    parts = [
        Part(
            "Can run",
            [RowTable(rows, columns)],
            f"version {can.version}, {can.date}" + (f", read at {origin}" if origin else ""),
        )
    ]
    if rules:
        texts = [f"{row.title} ({place(row)}): {row.value}" for row in rules]
        parts.append(Part("Also refuses", [Bullets(texts)], "the rule, its source, and what to do instead"))
    if libraries:
        texts = [f"{row.title} if {row.value} ({place(row)})" for row in libraries]
        parts.append(Part("Needs besides", [Bullets(texts)], "libraries, and which plans need them"))
    if can.shown is None:
        parts[-1] = parts[-1]._replace(blocks=[*parts[-1].blocks, NOTHING_SHOWN])
    else:
        note = "by tests, recipes and runs; other plans of these kinds are untested"
        parts.append(Part("Shown to work", [Bullets(_shown(evidence, place))], note))
    if options:
        texts = [f"{row.title}{f' if {row.value}' if row.value else ''}" for row in options]
        note = f"with its values in braces, and when they are needed ({place(options[0])})"
        parts.append(Part("Options of a plan", [Bullets(texts)], note))
    yield from parts
    yield Part("Sources", [Numbered(sources, "quiet"), *_remarks(stack, can, listed)])


NOTHING_SHOWN = Line(
    "No test, recipe or run is named that shows a plan at work: all its plans are untested.", tone="quiet"
)


def _shown(rows: Sequence[CapabilityRow], place: Callable[[CapabilityRow], str]) -> list[str]:
    """What is shown to work, by what."""
    return [
        f"{title}: {'; '.join(f'{row.value} ({place(row)})' if row.source else row.value for row in alike)}"
        for title, alike in groupby(rows, key=lambda row: row.title)
    ]


def _remarks(stack: Stack, can: Capabilities, listed: Sequence[CapabilityRow]) -> Iterator[Block]:
    if any(row.from_memory for row in listed):
        yield Line("* from memory, not looked up", tone="quiet")
    others = [each.version for each in stack.can_run_before if each.version != can.version]
    if others:
        yield Line(f"Other versions: {', '.join(f'{stack.name}@{each}' for each in others)}", tone="quiet")


class FieldRow(NamedTuple):
    """A field of the software."""

    name: str
    values: tuple[str, ...]
    """What it can be, its default first."""
    help: str


def field_rows() -> list[FieldRow]:
    """All fields in the order in which they are declared."""
    rows = []
    for field in described(Software).values():
        default = switch_word(field.default)
        names = field.kind.choices or ("off", "on")
        values = (default, *(name for name in names if name != default))
        rows.append(FieldRow(field.name, values, f"{field.about.help.rstrip(':.')}."))
    return rows


def fields_document() -> AnswerDocument:
    """What ``--software`` sets: every field with its values, its default first, and what it means."""
    rows = field_rows()
    lines = [
        line
        for row in rows
        for line in (
            Line((Span(f"{row.name}  ", "strong"), Span(" | ".join(row.values)))),
            Line(row.help, tone="quiet", indent=4),
        )
    ]
    ends = (
        "The first value is the default where no framework is named.",
        "shardplan plan ... --software kernels=eager,cuda_graphs=none sets two of them.",
    )
    return AnswerDocument(
        name="software-fields",
        verdict=lines,
        parts=[Part("", [Line(text, indent=0) for text in ends])],
        record=lambda: {"fields": [row._asdict() | {"values": [*row.values]} for row in rows]},
    )

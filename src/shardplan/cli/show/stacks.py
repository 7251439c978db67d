"""Frameworks: a list, one of them, and what ``--software`` sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from rich.text import Text

from shardplan.answers.profiles import sources_part
from shardplan.cli.layout import Column, Page
from shardplan.frameworks.capabilities import Capabilities
from shardplan.frameworks.capability_rows import (
    CapabilityRow,
    capability_rows,
    library_rows,
    option_rows,
    refusal_rows,
    shown_rows,
)
from shardplan.frameworks.stack import Stack
from shardplan.render.terminal import show_part
from shardplan.reports.stacks import FieldRow


def show_stack_list(page: Page, stacks: Sequence[Stack]) -> None:
    """One line for each."""
    page.table(
        [
            Column(title="name", cells=[stack.name for stack in stacks], is_text=True),
            Column(title="in full", cells=[stack.full_name for stack in stacks], is_text=True),
        ]
    )
    page.console.print()
    page.line("shardplan stacks NAME shows one, with the sources of its defaults.", style="dim")


def show_stack(page: Page, stack: Stack) -> None:
    """Every default with its source."""
    page.line(f"{stack.full_name} ({stack.name})", style="bold", indent=0)
    values: dict[str, object] = {
        f"{part}.{name}": value for part in ("software", "job", "plan") for name, value in getattr(stack, part).items()
    }
    for name in ("layers_per_chunk", "stages_by_cost", "experts_split_as_layers"):
        if name in stack.sources:
            values[name] = getattr(stack, name)
    page.console.print()
    sources = list(dict.fromkeys(stack.sources[name] for name in values))
    page.table(
        [
            Column(title="default", cells=[name.partition(".")[2] or name for name in values], is_text=True),
            Column(
                title="of",
                cells=[name.partition(".")[0] if "." in name else "plan" for name in values],
                is_text=True,
                rank=1,
            ),
            Column(title="src", cells=[str(sources.index(stack.sources[name]) + 1) for name in values]),
            Column(title="value", cells=[_default(value) for value in values.values()], is_text=True),
        ]
    )
    show_part(page, sources_part(sources))
    if stack.can_run is not None:
        _can_run(page, stack, stack.can_run)
    if stack.notes:
        page.console.print()
        page.bullets([stack.notes], style="dim")


def _can_run(page: Page, stack: Stack, can: Capabilities) -> None:
    """What the framework can run, and where each entry was read."""
    rows, rules, options = capability_rows(can), refusal_rows(can), option_rows(can)
    origin = " ".join(part for part in (can.repository, can.commit) if part)
    page.heading("Can run", f"version {can.version}, {can.date}" + (f", read at {origin}" if origin else ""))
    libraries, evidence = library_rows(can), shown_rows(can)
    listed = [*rows, *rules, *options[:1], *libraries, *evidence]
    sources = list(dict.fromkeys(row.source for row in listed if row.source))
    places = {source: str(place) for place, source in enumerate(sources, start=1)}
    page.table(
        [
            Column(title="entry", cells=[row.title for row in rows], is_text=True),
            Column(title="src", cells=[places[row.source] + "*" * row.from_memory for row in rows]),
            Column(title="value", cells=[row.value for row in rows], is_text=True),
        ]
    )
    if rules:
        page.heading("Refuses besides", "the rule, its source, and what to do instead")
        page.bullets(f"{row.title} ({places[row.source]}{'*' * row.from_memory}): {row.value}" for row in rules)
    if libraries:
        page.heading("Needs besides", "libraries, and which plans need them")
        page.bullets(f"{row.title} if {row.value} ({places[row.source]}{'*' * row.from_memory})" for row in libraries)
    _shown(page, can, evidence, places)
    if options:
        source = f"{places[options[0].source]}{'*' * options[0].from_memory}"
        page.heading("Options of a plan", f"with its values in braces, and when they are needed ({source})")
        page.bullets(f"{row.title}{f' if {row.value}' if row.value else ''}" for row in options)
    show_part(page, sources_part(sources))
    if any(row.from_memory for row in listed):
        page.line("* from memory, not looked up", style="dim")
    others = [each.version for each in stack.can_run_before if each.version != can.version]
    if others:
        page.line(f"Other versions: {', '.join(f'{stack.name}@{version}' for version in others)}", style="dim")


def _shown(page: Page, can: Capabilities, rows: Sequence[CapabilityRow], places: Mapping[str, str]) -> None:
    """What is shown to work; a plan that an aspect concerns and no source covers is untested."""
    if can.shown is None:
        page.line("No test, recipe or run is named that shows a plan at work: all its plans are untested.", style="dim")
        return
    page.heading("Shown to work", "by tests, recipes and runs; other plans of these kinds are untested")
    for title, alike in groupby(rows, key=lambda row: row.title):
        each = [
            f"{row.value} ({places[row.source]}{'*' * row.from_memory})" if row.source else row.value for row in alike
        ]
        page.bullets([f"{title}: {'; '.join(each)}"])


def _default(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{precision}: {_default(each)}" for precision, each in value.items())
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)


def show_fields(page: Page, rows: Sequence[FieldRow]) -> None:
    """Every field with its values, its default first, and what it means."""
    for row in rows:
        page.line(Text(f"{row.name}  ", style="bold").append(" | ".join(row.values), style="not bold"), indent=0)
        page.line(row.help, indent=4, style="dim")
    page.console.print()
    page.line("The first value is the default where no framework is named.", indent=0)
    page.line("shardplan plan ... --software kernels=eager,cuda_graphs=none sets two of them.", indent=0)

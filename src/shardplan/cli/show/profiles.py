"""Lists of profiles and stacks, and one of them with the origin of its values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.text import Text

from shardplan.cli.layout import Column, Page
from shardplan.frameworks.capabilities import Capabilities
from shardplan.frameworks.capability_rows import capability_rows, option_rows, refusal_rows
from shardplan.frameworks.stack import Stack
from shardplan.inputs.profile import Profile
from shardplan.reports.profiles import ConstantRow, ProfileEntry

DEFAULT = "default"
INDENT = 6
"""Of what stands below a constant's name."""
EXPLANATION = (
    "sd: standard deviation of the logarithm (of the log-odds of a share), about the relative error; of a value of "
    "zero in its unit; from the fit where there is a prior (value and sd before it), else from what the source names"
)


def show_profile_list(page: Page, entries: Sequence[ProfileEntry]) -> None:
    """One line for each."""
    page.table(
        [
            Column(title="name", cells=[entry.name for entry in entries], is_text=True),
            Column(title="constants", cells=[str(entry.num_own) for entry in entries]),
            Column(title="fitted", cells=[str(entry.num_fitted) for entry in entries]),
            Column(title="accelerators", cells=[", ".join(e.accelerators) for e in entries], is_text=True, rank=1),
        ]
    )
    page.console.print()
    page.line("default holds for every accelerator; a generation's own constants replace its.", style="dim")
    page.line("shardplan profiles NAME shows one, with the sources of its values.", style="dim")


def show_profile(page: Page, profile: Profile, rows: Sequence[ConstantRow], generation: str) -> None:
    """Every constant, and below them the sources."""
    made_for = "" if profile.name == generation else f", made for {generation}"
    page.line(f"Constants of {profile.name}{made_for}", style="bold", indent=0)
    page.line(f"{EXPLANATION}.", style="dim", indent=0)
    page.console.print()
    origins = list(dict.fromkeys(_origin(row, rows) for row in rows))
    marks = {DEFAULT: "", generation: "*"}
    names_of = [row.label + marks.get(row.stated_in, "**") for row in rows]
    places = [str(origins.index(_origin(row, rows)) + 1) for row in rows]
    columns = [
        Column(title="constant", cells=names_of, is_text=True),
        Column(title="value", cells=[number(row.value) for row in rows]),
        Column(title="unit", cells=[row.unit for row in rows], is_text=True),
        Column(title="sd", cells=[number(row.sd) for row in rows]),
        Column(title="prior", cells=[_prior(row) for row in rows], is_text=True),
        Column(title="src", cells=places),
    ]
    if page.has_room(columns):
        page.table(columns)
    else:
        _two_lines(page, rows, names_of, places)
    page.console.print()
    names = [f"* of {generation} itself"] if generation != DEFAULT else []
    names += [f"** of {profile.name}"] if profile.name not in (DEFAULT, generation) else []
    if names:
        page.line("; ".join(names), style="dim")
    _sources(page, origins)
    fitted_on = list(dict.fromkeys(row.fitted_on for row in rows if row.fitted_on))
    if fitted_on:
        page.heading("Fitted on")
        page.bullets(fitted_on, style="dim")


def _two_lines(page: Page, rows: Sequence[ConstantRow], names: Sequence[str], places: Sequence[str]) -> None:
    """Name with value and unit, and below them the rest, where a table is too wide."""
    for row, name, place in zip(rows, names, places, strict=True):
        page.hanging(Text(name), Text(f"{number(row.value)} {row.unit}", style="bold"))
        prior = "" if row.prior is None else f", prior {_prior(row)}"
        page.line(f"sd {number(row.sd)}{prior}, source {place}", indent=INDENT, style="dim")


def _origin(row: ConstantRow, rows: Sequence[ConstantRow]) -> str:
    """The source of a value, and of the uncertainty of what was not fitted there."""
    same = [each for each in rows if (each.name, each.stated_in) == (row.name, row.stated_in)]
    basis = next((each.sd_basis for each in same if each.sd_basis), None)
    if basis is None:
        return row.source
    whose = "sd where not fitted" if any(each.fitted_on for each in same) else "sd"
    return f"{row.source}; {whose}: {basis}"


def number(value: float | None) -> str:
    """A number with four digits, large ones by powers of ten."""
    return "-" if value is None else f"{value:.4g}"


def _prior(row: ConstantRow) -> str:
    if row.prior is None:
        return "-"
    return number(row.prior) + ("" if row.prior_sd is None else f" (sd {number(row.prior_sd)})")


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
    _sources(page, sources)
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
    listed = [*rows, *rules, *options[:1]]
    sources = list(dict.fromkeys(row.source for row in listed))
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
    if options:
        source = f"{places[options[0].source]}{'*' * options[0].from_memory}"
        page.heading("Options of a plan", f"with its values in braces, and when they are needed ({source})")
        page.bullets(f"{row.title}{f' if {row.value}' if row.value else ''}" for row in options)
    _sources(page, sources)
    if any(row.from_memory for row in listed):
        page.line("* from memory, not looked up", style="dim")
    others = [each.version for each in stack.can_run_before if each.version != can.version]
    if others:
        page.line(f"Other versions: {', '.join(f'{stack.name}@{version}' for version in others)}", style="dim")


def _default(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{precision}: {_default(each)}" for precision, each in value.items())
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)


def _sources(page: Page, sources: Sequence[str]) -> None:
    page.heading("Sources")
    for place, source in enumerate(sources, start=1):
        page.hanging(Text(str(place).rjust(2)), Text(source, style="dim"), gap=1)

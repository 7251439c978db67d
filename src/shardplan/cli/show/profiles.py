"""Lists of profiles and stacks, and one of them with the origin of its values."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from shardplan.cli.layout import Column, Page
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
    show_sources(page, origins)
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


def show_sources(page: Page, sources: Sequence[str]) -> None:
    """Numbered sources."""
    page.heading("Sources")
    for place, source in enumerate(sources, start=1):
        page.hanging(Text(str(place).rjust(2)), Text(source, style="dim"), gap=1)

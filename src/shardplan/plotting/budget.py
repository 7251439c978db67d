"""The runs of a budget: where their time goes, and what they cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from shardplan.decisions.goodput import DAY
from shardplan.plotting.chart import GREY, PALETTE, Axis, Chart, Panel, Series

COLOURS: Final = {
    "productive": PALETTE[2],
    "recomputed": PALETTE[3],
    "checkpoint": PALETTE[0],
    "detection": PALETTE[1],
    "restart": PALETTE[4],
    "start_up": GREY,
}


def budget_chart(record: Mapping[str, Any]) -> Chart:
    """The chart of an answer of ``budget`` with at least one option. ``record``: what ``--json`` writes."""
    options = record["options"]
    names = [f"{each['cluster']}\n{each['num_accelerators']:,}" for each in options]
    costs = [*_costs(options, names)]
    tokens = record["tokens"] / 1e12
    return Chart(
        name="budget",
        title=f"{record['model']}, {tokens:.4g} T tokens",
        panels=(_time(options, names), *costs),
        num_columns=1 + len(costs),
        note="Days by what they are spent on, in the mean over failures.",
        panel_size=(420, 380),
    )


def _time(options: list[Mapping[str, Any]], names: list[str]) -> Panel:
    """Days of every run by what they are spent on."""
    series = tuple(
        Series(
            name=name.replace("_", " "),
            x=names,
            y=[each["accounts_s"][name] / DAY for each in options],
            kind="bars",
            colour=colour,
        )
        for name, colour in COLOURS.items()
    )
    return Panel(
        title="time",
        x=Axis(title="", scale="names"),
        y=Axis(title="time [days]"),
        series=series,
        is_stacked=True,
    )


def _costs(options: list[Mapping[str, Any]], names: list[str]) -> Iterator[Panel]:
    """Money and energy of every run, where they are known."""
    for key, title, unit, size in (("money", "money", "million", 1e6), ("energy_kwh", "energy", "GWh", 1e6)):
        known = [(name, each[key] / size) for name, each in zip(names, options, strict=True) if each[key] is not None]
        if not known:
            continue
        currency = f" {next(each['currency'] for each in options if each['currency'])}" if key == "money" else ""
        bars = Series(name="", x=[name for name, _ in known], y=[y for _, y in known], kind="bars", colour=PALETTE[5])
        yield Panel(
            title=title if len(known) == len(names) else f"{title}, where it is known",
            x=Axis(title="", scale="names"),
            y=Axis(title=f"{title} [{unit}{currency}]"),
            series=(bars,),
        )

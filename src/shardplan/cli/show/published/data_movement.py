"""A linear layer of the data-movement model, a search over its degrees, and the limits of training as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.text import Text

from shardplan.cli.layout import Column, Page
from shardplan.reports.texts.answer import percent
from shardplan.units import format_count, format_rate, format_time

RESOURCES: Final = {"flop_secs": "arithmetic", "hbm_secs": "device memory", "net_secs": "network"}
BOUNDS: Final = {"flop": "arithmetic", "hbm": "device memory", "network": "the network", "none": "nothing"}
LONGEST_BAR: Final = 30
MOST_ROWS: Final = 10
SHORTEST_BAR: Final = 10
POINTS_PER_DECADE: Final = 5
"""Of the curve where the case does not say; one of them is shown."""
ASSUMED: Final = {
    "training_time_s": ("a run must end within", format_time),
    "tokens_per_parameter": ("tokens per parameter", "{:g}".format),
    "batch_tokens": ("tokens of a batch at the training compute below", format_count),
    "batch_flop": ("training compute from which batches grow", "{:.3g} FLOP".format),
    "batch_exponent": ("power of training compute as which they grow", "{:.3g}".format),
    "aspect_ratio": ("hidden size over blocks", "{:g}".format),
    "expansion": ("hidden layer over hidden size", "{:g}".format),
    "fast_domain": ("devices of a scale-up domain", "{:,.0f}".format),
    "outer_bandwidth": ("network between them, both directions", format_rate),
    "link_latency_s": ("latency of a hop inside", format_time),
    "outer_latency_s": ("latency of a hop between", format_time),
    "kernel_latency_s": ("fixed time of a matrix product", format_time),
    "bytewidth": ("bytes per number", "{:g}".format),
}
"""Assumptions of the limits curve as text."""


def show(page: Page, record: Mapping[str, Any], *, written: str = "") -> None:
    """Whichever of the three was asked for, and what was ``written``."""
    if "points" in record:
        _show_limits(page, record)
        if written:
            page.heading("Written")
            page.bullets([written])
    elif "configs" in record:
        _show_search(page, record)
    else:
        _show_layer(page, record)


def _layer_words(case: Mapping[str, Any]) -> str:
    layer = case["layer"]
    device = case.get("device", "H100 SXM5")
    name = device if isinstance(device, str) else device.get("name", "a device")
    return f"data-movement: a layer of {layer['d_in']:,} x {layer['d_out']:,} on {name}"


def _show_layer(page: Page, record: Mapping[str, Any]) -> None:
    case = record["case"]
    layer, tokens = case["layer"], case.get("b")
    page.line(_layer_words(case), style="bold", indent=0)
    tp_in, tp_out, dp = (layer.get(name, 1) for name in ("tp_in", "tp_out", "dp"))
    text = f"{tp_in:,} x {tp_out:,} devices, {dp:,} replicas: {tp_in * tp_out * dp:,} devices"
    page.line(text if tokens is None else f"{text}; {tokens:,.0f} tokens a micro-batch", indent=0, style="dim")
    gradients = record if tokens is None else record["end_of_batch"]
    if tokens is not None:
        _show_pass(page, "Forward and backward", "of a micro-batch", record)
    _show_pass(page, "End of the batch", "all-reduce of gradients", gradients)


def _show_pass(page: Page, title: str, note: str, times: Mapping[str, Any]) -> None:
    """What each resource takes, and which sets the time."""
    page.heading(title, f"{format_time(times['result_secs'])}, {note}; {BOUNDS[times['bound']]} sets the time")
    for name, label in RESOURCES.items():
        line = Text(f"  {label.ljust(13)}  {format_time(times[name]).rjust(8)}  ")
        if times[name]:
            is_longest = times[name] == times["result_secs"]
            line.append_text(
                page.bar(times[name] / times["result_secs"], LONGEST_BAR, "red" if is_longest else "green")
            )
        line.rstrip()
        page.console.print(line, soft_wrap=True)


def _show_search(page: Page, record: Mapping[str, Any]) -> None:
    case, best = record["case"], record["best"]
    page.line(_layer_words(case), style="bold", indent=0)
    page.line(f"{case['num_devices']:,} devices, {case['b']:,.0f} tokens a micro-batch", indent=0, style="dim")
    verdict = f"tp_in {best['tp_in']:,}, tp_out {best['tp_out']:,}, dp {best['dp']:,}: "
    verdict += f"{format_time(best['total_secs'])} a batch, {percent(best['utilisation'])} utilisation"
    page.line(Text("Fastest: ", style="bold green").append(verdict, "bold"), indent=0)
    rows = record["configs"][:MOST_ROWS]
    page.heading("Configurations", f"fastest first; {len(rows)} of {record['n_configs']:,}")
    page.table(
        [
            *(Column(title=name, cells=[f"{row[name]:,}" for row in rows]) for name in ("tp_in", "tp_out", "dp")),
            Column(title="batch", cells=[format_time(row["total_secs"]) for row in rows]),
            Column(title="passes", cells=[format_time(row["fwd_bwd_secs"]) for row in rows], rank=2),
            Column(title="gradients", cells=[format_time(row["end_of_batch_secs"]) for row in rows], rank=3),
            Column(title="utilisation", cells=[percent(row["utilisation"]) for row in rows], rank=1),
        ],
        styles=["bold"],
    )


def _show_limits(page: Page, record: Mapping[str, Any]) -> None:
    device, cliffs = record["device"], record["cliffs"]
    page.line(f"data-movement: limits of training on {device['name']}", style="bold", indent=0)
    within = format_time(record["assumptions"]["training_time_s"])
    page.line(f"best utilisation of a run that ends within {within}", indent=0, style="dim")
    page.console.print()
    first, last = _flop(cliffs[0]), _flop(cliffs[-1])
    page.line(
        Text("The cliff: ", style="bold green").append(
            f"a tenth of the utilisation is lost from {first} FLOP on; beyond {last} FLOP nothing ends in time.", "bold"
        ),
        indent=0,
    )
    per_decade = record["case"]["limits"].get("points_per_decade", POINTS_PER_DECADE)
    _show_curve(page, record["points"][::per_decade], float(device["base_util"]))
    _show_cliffs(page, record)
    if "variants" in record:
        _show_variants(page, record["variants"])
    page.heading("Assumed", "a case of --input can replace each")
    assumptions = record["assumptions"]
    page.bullets(
        [f"{label}: {text(assumptions[name])}" for name, (label, text) in ASSUMED.items()],
        style="dim",
    )
    page.bullets([f"left out: {'; '.join(record['left_out'])}"], style="dim")


def _flop(cliff: Mapping[str, Any]) -> str:
    flop = cliff["training_flop"]
    return cliff["remark"] if flop is None else f"{flop:.1e}"


def _show_curve(page: Page, points: Sequence[Mapping[str, Any]], base: float) -> None:
    """One line a point: compute, utilisation, bar, what binds."""
    note = f"a point a decade, --json has all; {percent(base)} is what throttling leaves"
    page.heading("Limits curve", note)
    rows = [
        (
            f"{point['training_flop']:.1e}",
            percent(point["utilisation"]) if point["num_devices"] else "-",
            format_count(point["num_devices"]) if point["num_devices"] else "-",
            _degrees(point) if point["num_devices"] else "nothing ends in time",
            BOUNDS.get(point["bound"], point["bound"]) if point["num_devices"] else "",
        )
        for point in points
    ]
    widths = [max(len(title), *(len(row[column]) for row in rows)) for column, title in enumerate(TITLES)]
    rooms = {columns: page.width - 2 - sum(widths[column] + 2 for column in columns) for columns in COLUMNS}
    shown = next((columns for columns, room in rooms.items() if room >= SHORTEST_BAR), COLUMNS[-1])
    room = min(rooms[shown], LONGEST_BAR)
    page.line(Text("  ".join(_cell(TITLES, column, widths) for column in shown).rstrip(), style="dim"))
    for row, point in zip(rows, points, strict=True):
        line = Text("  " + "  ".join(_cell(row, column, widths) for column in shown) + "  ")
        if point["utilisation"]:
            line.append_text(page.bar(point["utilisation"] / base, room, COLOURS.get(point["bound"], "yellow")))
        line.rstrip()
        page.console.print(line, soft_wrap=True)


TITLES: Final = ("FLOP", "utilised", "devices", "degrees", "set by")
COLUMNS: Final = ((0, 1, 2, 3, 4), (0, 1, 2, 4), (0, 1, 2))
"""Which of them are shown, by how much room there is."""
COLOURS: Final = {"flop": "green", "network": "red", "latency": "magenta"}


def _cell(cells: Sequence[str], column: int, widths: Sequence[int]) -> str:
    return cells[column].ljust(widths[column]) if column > 2 else cells[column].rjust(widths[column])


def _degrees(point: Mapping[str, Any]) -> str:
    return f"tp {point['tp_in']:,} x {point['tp_out']:,}, dp {point['dp']:,}, pp {point['pp']:,}"


def _show_cliffs(page: Page, record: Mapping[str, Any]) -> None:
    page.heading("Where it falls off", "largest training compute that keeps a share of the base utilisation")
    cliffs = record["cliffs"]
    page.table(
        [
            Column(title="level", cells=[_level(cliff["level"]) for cliff in cliffs], is_text=True),
            Column(title="FLOP", cells=[_flop(cliff) for cliff in cliffs], is_text=True),
        ]
    )
    page.heading("Claims of arXiv 2411.01137", "for three months")
    page.bullets(_claim(claim) for claim in record["claims"])


def _claim(claim: Mapping[str, Any]) -> str:
    here = "no figure" if claim["computed_flop"] is None else f"{claim['computed_flop']:.1e}"
    paper = f"{claim['abstract_flop']:.0e} FLOP in the abstract, {claim['article_flop']:.0e} in the article"
    return f"{claim['text']}: {paper}, {here} here"


def _level(level: float) -> str:
    return f"{level:.0%} of the base" if level else "anything that ends in time"


def _show_variants(page: Page, variants: Sequence[Mapping[str, Any]]) -> None:
    page.heading("What moves the cliff", "FLOP at which a tenth is lost, and beyond which nothing ends in time")
    page.table(
        [
            Column(title="begins", cells=[_flop(each["cliffs"][0]) for each in variants]),
            Column(title="ends", cells=[_flop(each["cliffs"][-1]) for each in variants]),
            Column(title="with", cells=[each["name"] for each in variants], is_text=True),
        ]
    )

"""Answers of the data-movement model: a linear layer, a search over its degrees, and the limits of training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

from shardplan.answers.document import (
    AnswerDocument,
    BarRow,
    BarTable,
    Bullets,
    Column,
    Line,
    Part,
    RowTable,
    Span,
    assumptions_part,
)
from shardplan.answers.methods.catalogue import answer_record
from shardplan.base.units import format_count, format_rate, format_time
from shardplan.plotting.chart import GREY, PALETTE, Axis, Chart, Panel, Series
from shardplan.reports.texts.answer import percent

RESOURCES: Final = {"flop_secs": "arithmetic", "hbm_secs": "device memory", "net_secs": "network"}
BOUNDS: Final = {"flop": "arithmetic", "hbm": "device memory", "network": "the network", "none": "nothing"}
LONGEST_BAR: Final = 30
SHORTEST_BAR: Final = 10
MOST_ROWS: Final = 10
POINTS_PER_DECADE: Final = 5
"""Of the curve where the case does not say; one of them is shown."""
TITLES: Final = ("FLOP", "utilised", "devices", "degrees", "set by")
FEWER: Final = ((0, 1, 2, 4), (0, 1, 2))
"""Which of them stay where there is less room."""
COLOURS: Final = {"flop": "green", "network": "red", "latency": "magenta"}
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
MARKS: Final = {
    "flop": ("set by arithmetic", PALETTE[2]),
    "hbm": ("set by device memory", PALETTE[1]),
    "network": ("set by the network", PALETTE[3]),
    "latency": ("set by latency", PALETTE[4]),
}
"""Names and colours of points by what sets the pace."""
COMPUTE: Final = Axis(title="training compute [FLOP]", scale="log10")


def data_movement_document(case: Mapping[str, Any], answer: Mapping[str, Any], written: str = "") -> AnswerDocument:
    """Whichever of the three was asked for, and what was ``written``."""
    record = answer_record("data-movement", case, answer)
    if "points" in answer:
        return _limits(record, written)
    return _search(record) if "configs" in answer else _layer(record)


def _answer(
    record: Mapping[str, Any], verdict: Sequence[Line], parts: Sequence[Part], head: Sequence[Line] = ()
) -> AnswerDocument:
    return AnswerDocument(name="published-answer", head=head, verdict=verdict, parts=parts, record=lambda: record)


def _asked(case: Mapping[str, Any], more: str) -> list[Line]:
    """The layer and its device, and how it is divided."""
    layer, device = case["layer"], case.get("device", "H100 SXM5")
    name = device if isinstance(device, str) else device.get("name", "a device")
    text = f"data-movement: a layer of {layer['d_in']:,} x {layer['d_out']:,} on {name}"
    return [Line(text, tone="strong"), Line(more, tone="quiet")]


def _layer(record: Mapping[str, Any]) -> AnswerDocument:
    case = record["case"]
    layer, tokens = case["layer"], case.get("b")
    tp_in, tp_out, dp = (layer.get(name, 1) for name in ("tp_in", "tp_out", "dp"))
    text = f"{tp_in:,} x {tp_out:,} devices, {dp:,} replicas: {tp_in * tp_out * dp:,} devices"
    gradients = "End of the batch", "all-reduce of gradients"
    if tokens is None:
        return _answer(record, _asked(case, text), [_pass(*gradients, record)])
    passes = _pass("Forward and backward", "of a micro-batch", record)
    verdict = _asked(case, f"{text}; {tokens:,.0f} tokens a micro-batch")
    return _answer(record, verdict, [passes, _pass(*gradients, record["end_of_batch"])])


def _pass(title: str, note: str, times: Mapping[str, Any]) -> Part:
    """What each resource takes, and which sets the time."""
    longest = times["result_secs"]
    rows = [
        BarRow(
            (label, format_time(times[name])),
            times[name] and times[name] / longest,
            "red" if times[name] == longest else "green",
        )
        for name, label in RESOURCES.items()
    ]
    note = f"{format_time(longest)}, {note}; {BOUNDS[times['bound']]} sets the time"
    return Part(title, [BarTable(rows, LONGEST_BAR, least_widths=(13, 8))], note)


def _search(record: Mapping[str, Any]) -> AnswerDocument:
    case, best = record["case"], record["best"]
    degrees = ("tp_in", "tp_out", "dp")
    verdict = ", ".join(f"{name} {best[name]:,}" for name in degrees)
    verdict += f": {format_time(best['total_secs'])} a batch, {percent(best['utilisation'])} utilisation"
    rows = record["configs"][:MOST_ROWS]
    table = RowTable(
        rows,
        (
            *(Column("", name, itemgetter(name), "{:,}".format) for name in degrees),
            Column("", "batch", itemgetter("total_secs"), format_time),
            Column("", "passes", itemgetter("fwd_bwd_secs"), format_time, rank=2),
            Column("", "gradients", itemgetter("end_of_batch_secs"), format_time, rank=3),
            Column("", "utilisation", itemgetter("utilisation"), percent, rank=1),
        ),
        lambda row: "strong" if row is rows[0] else "",
    )
    asked = _asked(case, f"{case['num_devices']:,} devices, {case['b']:,.0f} tokens a micro-batch")
    fastest = Line((Span("Fastest: ", "good"), Span(verdict, "strong")))
    note = f"fastest first; {len(rows)} of {record['n_configs']:,}"
    return _answer(record, [*asked, fastest], [Part("Configurations", [table], note)])


def _limits(record: Mapping[str, Any], written: str) -> AnswerDocument:
    device, cliffs, assumptions = record["device"], record["cliffs"], record["assumptions"]
    within = format_time(assumptions["training_time_s"])
    lost = f"a tenth of the utilisation is lost from {_flop(cliffs[0])} FLOP on"
    cliff = f"{lost}; beyond {_flop(cliffs[-1])} FLOP nothing ends in time."
    per_decade = record["case"]["limits"].get("points_per_decade", POINTS_PER_DECADE)
    assumed = [f"{label}: {text(assumptions[name])}" for name, (label, text) in ASSUMED.items()]
    return _answer(
        record,
        head=[
            Line(f"data-movement: limits of training on {device['name']}", tone="strong"),
            Line(f"best utilisation of a run that ends within {within}", tone="quiet"),
        ],
        verdict=[Line((Span("The cliff: ", "good"), Span(cliff, "strong")))],
        parts=[
            _curve(record["points"][::per_decade], float(device["base_util"])),
            *_cliffs(record),
            *([_variants(record["variants"])] if "variants" in record else []),
            assumptions_part(
                [*assumed, f"left out: {'; '.join(record['left_out'])}"], "a case of --input can replace each"
            ),
            *([Part("Written", [Bullets([written])])] if written else []),
        ],
    )


def _flop(cliff: Mapping[str, Any]) -> str:
    flop = cliff["training_flop"]
    return cliff["remark"] if flop is None else f"{flop:.1e}"


def _curve(points: Sequence[Mapping[str, Any]], base: float) -> Part:
    """One line a point: compute, utilisation, bar, what binds."""
    rows = [
        BarRow(
            (f"{point['training_flop']:.1e}", *_best(point)),
            point["utilisation"] / base,
            COLOURS.get(point["bound"], "yellow"),
        )
        for point in points
    ]
    bars = BarTable(rows, LONGEST_BAR, titles=TITLES, texts=(3, 4), fewer=FEWER, least_room=SHORTEST_BAR)
    note = f"a point a decade, --json has all; {percent(base)} is what throttling leaves"
    return Part("Limits curve", [bars], note)


def _best(point: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """Utilisation, devices, degrees and bound of the best configuration."""
    if not point["num_devices"]:
        return "-", "-", "nothing ends in time", ""
    degrees = f"tp {point['tp_in']:,} x {point['tp_out']:,}, dp {point['dp']:,}, pp {point['pp']:,}"
    bound = BOUNDS.get(point["bound"], point["bound"])
    return percent(point["utilisation"]), format_count(point["num_devices"]), degrees, bound


def _cliffs(record: Mapping[str, Any]) -> Iterator[Part]:
    columns = (
        Column("", "level", itemgetter("level"), _level, is_text=True),
        Column("", "FLOP", _flop, is_text=True),
    )
    note = "largest training compute that keeps a share of the base utilisation"
    yield Part("Where it falls off", [RowTable(record["cliffs"], columns)], note)
    claims = [_claim(claim) for claim in record["claims"]]
    yield Part("Claims of arXiv 2411.01137", [Bullets(claims)], "for three months")


def _claim(claim: Mapping[str, Any]) -> str:
    here = "no figure" if claim["computed_flop"] is None else f"{claim['computed_flop']:.1e}"
    paper = f"{claim['abstract_flop']:.0e} FLOP in the abstract, {claim['article_flop']:.0e} in the article"
    return f"{claim['text']}: {paper}, {here} here"


def _level(level: float) -> str:
    return f"{level:.0%} of the base" if level else "anything that ends in time"


def _variants(variants: Sequence[Mapping[str, Any]]) -> Part:
    columns = (
        Column("", "begins", lambda each: _flop(each["cliffs"][0])),
        Column("", "ends", lambda each: _flop(each["cliffs"][-1])),
        Column("", "with", itemgetter("name"), is_text=True),
    )
    note = "FLOP at which a tenth is lost, and beyond which nothing ends in time"
    return Part("What moves the cliff", [RowTable(variants, columns)], note)


def limits_chart(record: Mapping[str, Any]) -> Chart:
    """The chart of an answer of ``data-movement`` with limits."""
    points = [point for point in record["points"] if point["num_devices"]]
    panels = [
        Panel(
            title="utilisation",
            x=COMPUTE,
            y=Axis(title="utilisation [%]", limits=(0, 105)),
            series=tuple(_series(points, record)),
        ),
        Panel(
            title="devices of the best configuration",
            x=COMPUTE,
            y=Axis(title="devices", scale="log10"),
            series=(
                Series(
                    name="",
                    x=[point["training_flop"] for point in points],
                    y=[point["num_devices"] for point in points],
                    colour=PALETTE[0],
                    marker="circle",
                ),
            ),
        ),
    ]
    days = record["assumptions"]["training_time_s"] / 86400
    return Chart(
        name="limits",
        title=f"Limits of training within {days:.0f} days on {record['device']['name']}",
        panels=tuple(panels),
        num_columns=2,
        note="Best configuration of each run, after E. Erdil and D. Schneider-Joseph, arXiv 2411.01137; dashed: what "
        "its abstract claims. Computed by shardplan with assumptions of its own.",
        panel_size=(560, 380),
    )


def _series(points: list[Mapping[str, Any]], record: Mapping[str, Any]) -> Iterator[Series]:
    """The curve, its points by what sets the pace, cliffs and claims as upright lines."""
    flop = [point["training_flop"] for point in points]
    yield Series(name="", x=flop, y=[100 * point["utilisation"] for point in points], colour=GREY)
    for bound, (name, colour) in MARKS.items():
        chosen = [point for point in points if point["bound"] == bound]
        if chosen:
            yield Series(
                name=name,
                x=[point["training_flop"] for point in chosen],
                y=[100 * point["utilisation"] for point in chosen],
                kind="points",
                colour=colour,
                marker="circle",
            )
    for cliff in record["cliffs"]:
        if cliff["training_flop"] is not None and cliff["level"] in (0.9, 0.0):
            text = "a tenth is lost" if cliff["level"] else "nothing ends in time beyond"
            colour = PALETTE[0 if cliff["level"] else 5]
            yield Series(name=text, x=[cliff["training_flop"]] * 2, y=[0.0, 100.0], colour=colour)
    for claim in record["claims"]:
        yield Series(
            name="claims of the abstract",
            x=[claim["abstract_flop"]] * 2,
            y=[0.0, 100.0],
            colour=PALETTE[7],
            is_dashed=True,
        )

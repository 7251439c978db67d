"""The limits curve of the data-movement model: utilisation against training compute, with the cliff and the claims."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from shardplan.plotting.chart import GREY, PALETTE, Axis, Chart, Panel, Series

BOUNDS: Final = {
    "flop": ("set by arithmetic", PALETTE[2]),
    "hbm": ("set by device memory", PALETTE[1]),
    "network": ("set by the network", PALETTE[3]),
    "latency": ("set by latency", PALETTE[4]),
}
COMPUTE: Final = Axis(title="training compute [FLOP]", scale="log10")


def limits_chart(record: Mapping[str, Any]) -> Chart:
    """The chart of an answer of ``data-movement`` with limits."""
    points = [point for point in record["points"] if point["num_devices"]]
    panels = [
        Panel(
            title="utilisation",
            x=COMPUTE,
            y=Axis(title="utilisation [%]", limits=(0, 105)),
            series=tuple(_curve(points, record)),
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


def _curve(points: list[Mapping[str, Any]], record: Mapping[str, Any]) -> Iterator[Series]:
    """The curve, its points by what sets the pace, cliffs and claims as upright lines."""
    flop = [point["training_flop"] for point in points]
    yield Series(name="", x=flop, y=[100 * point["utilisation"] for point in points], colour=GREY)
    for bound, (name, colour) in BOUNDS.items():
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
            yield Series(name=text, x=[cliff["training_flop"]] * 2, y=[0.0, 100.0], colour=_cliff_colour(cliff))
    for claim in record["claims"]:
        yield Series(
            name="claims of the abstract",
            x=[claim["abstract_flop"]] * 2,
            y=[0.0, 100.0],
            colour=PALETTE[7],
            is_dashed=True,
        )


def _cliff_colour(cliff: Mapping[str, Any]) -> str:
    return PALETTE[0] if cliff["level"] else PALETTE[5]

"""Time, accelerators and money of several sizes, and the front of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from shardplan.plotting.chart import GREY, PALETTE, Axis, Chart, Panel, Series

SIZES: Final = Axis(title="accelerators", scale="log2")
MILLION: Final = 1e6


def pareto_sizes_chart(record: Mapping[str, Any]) -> Chart:
    """The chart of a record of ``pareto`` for several sizes."""
    sizes = [each for each in record["sizes"] if each["money_per_billion_tokens"] is not None]
    is_run = record["job"]["tokens"] is not None
    time = Axis(title="time of the run [days]" if is_run else "step time [s]", scale="log2")
    currency = record["currency"]
    money = Axis(title=f"money [million {currency}]" if is_run else f"money [{currency} per billion tokens]")
    whole = f", {record['job']['tokens'] / 1e12:.4g} T tokens" if is_run else ""
    return Chart(
        name="pareto_sizes",
        title=f"{record['model']} on {record['cluster']}{whole}: time, accelerators and money",
        panels=(
            Panel(title="money over time, with accelerators", x=time, y=money, series=_series(sizes, _time, _money)),
            Panel(title="time over accelerators", x=SIZES, y=time, series=_series(sizes, _size, _time)),
        ),
        num_columns=2,
        note=f"Each point is the plan to take at its size, at one global batch of "
        f"{record['job']['global_batch_size']:,} sequences, for {record['price_per_hour']:g} {currency} an hour and "
        "accelerator. A size is on the front if no other is faster, smaller and cheaper. Predicted by shardplan.",
        panel_size=(560, 400),
    )


def _time(size: Mapping[str, Any]) -> float:
    return float(size["step_time_s"] if size["days"] is None else size["days"])


def _money(size: Mapping[str, Any]) -> float:
    return float(size["money_per_billion_tokens"] if size["money"] is None else size["money"] / MILLION)


def _size(size: Mapping[str, Any]) -> float:
    return float(size["num_accelerators"])


def _series(sizes: Sequence[Mapping[str, Any]], x: Any, y: Any) -> tuple[Series, ...]:
    """Sizes of the front, and the others."""
    kinds = (("front", True, PALETTE[0], "circle"), ("off the front", False, GREY, "square"))
    chosen = [(name, [e for e in sizes if e["is_on_front"] is on], colour, mark) for name, on, colour, mark in kinds]
    return tuple(
        Series(
            name=name,
            x=[x(each) for each in shown],
            y=[y(each) for each in shown],
            kind="points",
            colour=colour,
            marker=marker,  # type: ignore[arg-type]  # one of the markers
            labels=[f"{each['num_accelerators']:,}" for each in shown] if x is not _size else (),
        )
        for name, shown, colour, marker in chosen
        if shown
    )

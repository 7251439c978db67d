"""F1, F2 and F4: training days, throughput per accelerator and ratios of time against the number of accelerators."""

from __future__ import annotations

from collections.abc import Sequence

from shardplan.plotting.chart import Axis, Chart, Panel
from shardplan.plotting.subramanian2024.shared import (
    SIZES,
    SOURCE,
    STRATEGY_NAMES,
    Row,
    only,
    system_lines,
    titled,
    values_of,
)


def training_days(rows: Sequence[Row]) -> Chart:
    """F1."""
    return _by_model_and_strategy(
        rows,
        "days",
        Axis(title="training time [days]", scale="log10"),
        name="F1",
        title="F1: training days against accelerators",
        note="Dashed: perfect scaling from the first A100 (domain 4) that holds the model, 4 and 12 times as fast.",
    )


def throughput_per_gpu(rows: Sequence[Row]) -> Chart:
    """F2."""
    return _by_model_and_strategy(
        [row for row in rows if row["relative"] is not None],
        "relative",
        Axis(title="throughput per accelerator, relative", scale="log2"),
        name="F2",
        title="F2: throughput of an accelerator, relative to the first A100 (domain 4) that holds the model",
        note="Panels without A100 reference are left out: there it holds the model at no size.",
    )


def _by_model_and_strategy(
    rows: Sequence[Row], quantity: str, axis: Axis, *, name: str, title: str, note: str
) -> Chart:
    panels = [
        Panel(title=titled(model, strategy), x=SIZES, y=axis, series=tuple(system_lines(chosen, quantity)))
        for model in values_of(rows, "model")
        for strategy in STRATEGY_NAMES
        if (chosen := only(rows, model=model, strategy=strategy))
    ]
    return Chart(name=name, title=title, panels=tuple(panels), num_columns=min(3, len(panels)), note=f"{note} {SOURCE}")


def time_ratios(rows: Sequence[Row]) -> Chart:
    """F4."""
    panels = []
    for model in values_of(rows, "model"):
        for strategy in STRATEGY_NAMES:
            for over in STRATEGY_NAMES:
                chosen = only(rows, model=model, strategy=strategy, over=over)
                if chosen:
                    names = f"{STRATEGY_NAMES[strategy]} over {STRATEGY_NAMES[over]}"
                    lines = tuple(system_lines(chosen, "ratio"))
                    panels.append(
                        Panel(title=f"{model}: {names}", x=SIZES, y=Axis(title="ratio of times"), series=lines)
                    )
    return Chart(
        name="F4",
        title="F4: time with one form of tensor parallelism over time with another, where both fit",
        panels=tuple(panels),
        num_columns=min(2, len(panels)),
        note=f"Above 1: the second is faster. {SOURCE}",
    )

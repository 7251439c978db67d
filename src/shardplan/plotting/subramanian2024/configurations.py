"""F3 and F5: degrees, memory and shares of the time of the best configurations, and of those picked by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from shardplan.plotting.chart import PALETTE, SECOND_PALETTE, Axis, Chart, Panel, Series
from shardplan.plotting.subramanian2024.shared import SOURCE, STRATEGY_NAMES, Row, only, titled, values_of

DEGREES: Final = {"num_microbatches": "micro-batches", "tp": "TP", "tp1": "TP 1", "tp2": "TP 2", "dp": "DP", "pp": "PP"}
DEGREE_COLOURS: Final = {
    "num_microbatches": SECOND_PALETTE[4],
    "tp": SECOND_PALETTE[0],
    "tp1": SECOND_PALETTE[0],
    "tp2": SECOND_PALETTE[1],
    "dp": SECOND_PALETTE[2],
    "pp": SECOND_PALETTE[3],
}
SHARES: Final = {
    "comp": "compute",
    "tp_comm": "TP communication",
    "bubble": "bubble",
    "dp_comm": "DP communication",
    "mem": "device memory",
    "pp_comm": "PP transfers",
}
"""Parts of the time in the order in which the paper stacks them."""
MEMORY: Final = {
    "wts_mem": "weights",
    "wts_grad_mem": "gradients",
    "wts_optimizer_states_mem": "optimizer",
    "acts_mem": "activations",
}
SIZE: Final = Axis(title="accelerators", scale="names")


def best_configurations(rows: Sequence[Row]) -> Chart:
    """F3, of the one system that ``rows`` are of: above degrees and memory, below shares of the time."""
    panels: list[Panel | None] = []
    for model in values_of(rows, "model"):
        of_strategy = {strategy: only(rows, model=model, strategy=strategy) for strategy in STRATEGY_NAMES}
        for draw in (_degrees, _shares):
            panels += [draw(model, strategy, chosen) if chosen else None for strategy, chosen in of_strategy.items()]
    system = f"{rows[0]['system']}, domain {rows[0]['nvs']}"
    return Chart(
        name="F3",
        title=f"F3: best configuration on {system}",
        panels=tuple(panels),
        num_columns=len(STRATEGY_NAMES),
        note=f"Above: degrees (bars) and memory (line). Below: shares of the time (bars) and seconds (line). {SOURCE}",
        panel_size=(460, 310),
    )


def _degrees(model: str, strategy: str, rows: Sequence[Row]) -> Panel:
    names = (
        ("num_microbatches", "tp", "dp", "pp") if strategy == "1d" else ("num_microbatches", "tp1", "tp2", "dp", "pp")
    )
    sizes = [f"{row['num_gpus']:,}" for row in rows]
    bars = [
        Series(name=DEGREES[name], x=sizes, y=[row[name] for row in rows], kind="bars", colour=DEGREE_COLOURS[name])
        for name in names
    ]
    memory = Series(
        name="memory",
        x=sizes,
        y=[row["memory_gb"] for row in rows],
        colour=PALETTE[7],
        marker="circle",
        is_dashed=True,
        is_on_right=True,
    )
    return Panel(
        title=titled(model, strategy),
        x=SIZE,
        y=Axis(title="degree", scale="log2"),
        right=Axis(title="memory [GB]", limits=(0, 200)),
        series=(*bars, memory),
    )


def _shares(model: str, strategy: str, rows: Sequence[Row]) -> Panel:
    sizes = [f"{row['num_gpus']:,}" for row in rows]
    bars = [
        Series(
            name=label,
            x=sizes,
            y=[100 * row[f"{name}_frac"] for row in rows],
            kind="bars",
            colour=PALETTE[number],
        )
        for number, (name, label) in enumerate(SHARES.items())
    ]
    times = [row["time_s"] for row in rows]
    time = Series(name="time", x=sizes, y=times, colour=PALETTE[7], marker="square", is_on_right=True)
    return Panel(
        title=titled(model, strategy),
        x=SIZE,
        y=Axis(title="share of the time [%]", limits=(0, 100)),
        right=Axis(title="iteration [s]", scale="log2"),
        series=(*bars, time),
        is_stacked=True,
    )


def hand_picked(rows: Sequence[Row]) -> Chart:
    """F5: time above, memory below."""
    pairs = list(dict.fromkeys((row["model"], row["strategy"]) for row in rows))
    groups = [(model, strategy, only(rows, model=model, strategy=strategy)) for model, strategy in pairs]
    times = [
        _stack(*group, {f"t_{name}_s": label for name, label in SHARES.items()}, PALETTE, axis="time [s]")
        for group in groups
    ]
    memory = [
        _stack(*group, {f"{name}_gb": label for name, label in MEMORY.items()}, SECOND_PALETTE, axis="memory [GB]")
        for group in groups
    ]
    system, nvs, num_gpus = (rows[0][name] for name in ("system", "nvs", "num_gpus"))
    return Chart(
        name="F5",
        title=f"F5: configurations picked by hand, {num_gpus:,} {system}, domain {nvs}",
        panels=(*times, *memory),
        num_columns=len(groups),
        note=f"Beneath a letter TP (TP 1 x TP 2) and PP. Each in its best place; the memory limit is ignored. {SOURCE}",
        panel_size=(440, 330),
    )


def _stack(
    model: str, strategy: str, rows: Sequence[Row], parts: dict[str, str], colours: Sequence[str], *, axis: str
) -> Panel:
    names = [f"{row['configuration']}\n{_tensor(row)}\n{row['pp']}" for row in rows]
    series = tuple(
        Series(name=label, x=names, y=[row[name] for row in rows], kind="bars", colour=colours[number])
        for number, (name, label) in enumerate(parts.items())
    )
    return Panel(
        title=titled(model, strategy),
        x=Axis(title="configuration, TP, PP", scale="names"),
        y=Axis(title=axis),
        series=series,
        is_stacked=True,
    )


def _tensor(row: Row) -> str:
    return str(row["tp"]) if row["tp1"] is None else f"{row['tp1']}x{row['tp2']}"

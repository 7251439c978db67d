"""The figures of the study of arXiv 2410.00273, from their records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from shardplan.methods.subramanian2024.figures import Figure
from shardplan.plotting.chart import GREY, PALETTE, SECOND_PALETTE, Axis, Chart, Field, Marker, Panel, Series, Side

Row = Mapping[str, Any]

SOURCE: Final = "Computed by shardplan with the model of S. Subramanian et al., arXiv 2410.00273."
STRATEGY_NAMES: Final = {"1d": "1D", "2d-seqp": "2D context parallel", "2d": "2D SUMMA"}
COLOURS: Final = {"A100": "#E69F00", "H200": "#0072B2", "B200": "#009E73"}
MARKERS: Final[dict[int, Marker]] = {4: "circle", 8: "square", 64: "triangle"}
SIZES: Final = Axis(title="accelerators", scale="log2")


def only(rows: Iterable[Row], **wanted: object) -> list[Row]:
    """Rows whose fields have these values."""
    return [row for row in rows if all(row.get(name) == value for name, value in wanted.items())]


def values_of(rows: Iterable[Row], name: str) -> list[Any]:
    """Distinct values of a field, in order of appearance."""
    return list(dict.fromkeys(row[name] for row in rows))


def label_of(row: Row, text: str = "{}, domain {}") -> str:
    """A system and its scale-up domain."""
    return str(row["system"]) if row["nvs"] is None else text.format(row["system"], row["nvs"])


def titled(model: str, strategy: str) -> str:
    """Title of a panel."""
    return f"{model}, {STRATEGY_NAMES.get(strategy, strategy)}"


def system_lines(rows: Sequence[Row], quantity: str) -> Iterator[Series]:
    """One line for each system: colour by accelerator, marker by scale-up domain; guides dashed."""
    for name in dict.fromkeys(label_of(row) for row in rows):
        points = [row for row in rows if label_of(row) == name and row[quantity] is not None]
        if not points:
            continue
        first = points[0]
        is_guide = first["nvs"] is None
        yield Series(
            name=name,
            x=[row["num_gpus"] for row in points],
            y=[row[quantity] for row in points],
            colour=GREY if is_guide else COLOURS.get(first["system"], "#000000"),
            marker="none" if is_guide else MARKERS.get(first["nvs"], "circle"),
            is_dashed=is_guide,
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
    """F3, for the one system of ``rows``: degrees and memory above, shares of the time below."""
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
    sizes, memory = [f"{row['num_gpus']:,}" for row in rows], [row["memory_gb"] for row in rows]
    colour = PALETTE[7]
    line = Series(name="memory", x=sizes, y=memory, colour=colour, marker="circle", is_dashed=True, is_on_right=True)
    bars = _bars(sizes, rows, {name: DEGREES[name] for name in names}, [DEGREE_COLOURS[name] for name in names])
    return Panel(
        title=titled(model, strategy),
        x=SIZE,
        y=Axis(title="degree", scale="log2"),
        right=Axis(title="memory [GB]", limits=(0, 200)),
        series=(*bars, line),
    )


def _bars(
    x: Sequence[str], rows: Sequence[Row], parts: Mapping[str, str], colours: Sequence[str], scale: float = 1
) -> Iterator[Series]:
    """Bars of quantities of the rows, each by its key and its name."""
    for (key, name), colour in zip(parts.items(), colours, strict=False):
        yield Series(name=name, x=x, y=[scale * row[key] for row in rows], kind="bars", colour=colour)


def _shares(model: str, strategy: str, rows: Sequence[Row]) -> Panel:
    sizes = [f"{row['num_gpus']:,}" for row in rows]
    bars = _bars(sizes, rows, {f"{name}_frac": label for name, label in SHARES.items()}, PALETTE, scale=100)
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
    tensor = (row["tp"] if row["tp1"] is None else f"{row['tp1']}x{row['tp2']}" for row in rows)
    names = [f"{row['configuration']}\n{degree}\n{row['pp']}" for row, degree in zip(rows, tensor, strict=True)]
    return Panel(
        title=titled(model, strategy),
        x=Axis(title="configuration, TP, PP", scale="names"),
        y=Axis(title=axis),
        series=tuple(_bars(names, rows, parts, colours)),
        is_stacked=True,
    )


def capacity_and_bandwidth(rows: Sequence[Row]) -> Chart:
    """F6."""
    panel = _panel(rows, "hbm_gb", "hbm_gb_per_s", "memory capacity [GB]", "memory bandwidth [GB/s]")
    title = "F6: days to train over capacity and bandwidth of the device memory"
    return _chart("F6", title, panel, f"All else is B200's, in domains of 8. {SOURCE}")


def flops_and_capacity(rows: Sequence[Row]) -> Chart:
    """F7."""
    panel = _panel(rows, "matrix_tflop_per_s", "hbm_gb", "matrix rate [TFLOP/s]", "memory capacity [GB]")
    note = "Bandwidth and vector rate grow with the capacity from A100 to B200-next; the network is B200's, in domains"
    title = "F7: days to train over matrix rate and capacity of the device memory"
    return _chart("F7", title, panel, f"{note} of 8. {SOURCE}")


def _chart(name: str, title: str, panel: Panel, note: str) -> Chart:
    return Chart(name=name, title=title, panels=(panel,), num_columns=1, note=note, panel_size=(760, 480))


def _panel(rows: Sequence[Row], x: str, y: str, x_title: str, y_title: str) -> Panel:
    """Cells as a field, systems as points on it."""
    cells = [row for row in rows if row["system"] is None]
    points = [row for row in rows if row["system"] is not None]
    xs, ys = sorted(values_of(cells, x)), sorted(values_of(cells, y))
    days = {(row[x], row[y]): row["days"] for row in cells}
    systems = Series(
        name="",
        x=[row[x] for row in points],
        y=[row[y] for row in points],
        kind="points",
        colour="#D55E00",
        marker="circle",
        labels=[f"{row['system']}: {row['days']:.2f}" for row in points],
        label_sides=[_side(row[x], row[y], xs, ys) for row in points],
    )
    field = Field(title="days", x=xs, y=ys, z=[[days.get((at, height)) for at in xs] for height in ys])
    return Panel(
        title="gpt3_1T, 1D, 8,192 accelerators",
        x=Axis(title=x_title),
        y=Axis(title=y_title),
        series=(systems,),
        field=field,
    )


def _side(x: float, y: float, xs: Sequence[float], ys: Sequence[float]) -> Side:
    """The side of the label, towards the middle of the panel."""
    is_left, is_low = x < (xs[0] + xs[-1]) / 2, y < (ys[0] + ys[-1]) / 2
    if is_low:
        return "top right" if is_left else "top left"
    return "bottom right" if is_left else "bottom left"


SHAPES: Final = ((8, 4), (16, 2), (32, 1))
"""Nodes and accelerators of each that are drawn: 32 accelerators."""
VOLUME: Final = Axis(title="volume [MiB]", scale="log10")
MIB: Final = 2.0**20


def measured_collectives(rows: Sequence[Row]) -> Chart:
    """F8: times of 32 accelerators above, modelled over measured time of all measurements below."""
    kinds = {str(kind).replace("_", "-"): only(rows, collective=kind) for kind in values_of(rows, "collective")}
    time = Axis(title="time [ms]", scale="log10")
    ratio = Axis(title="model over measurement", scale="log10", limits=(0.05, 10))
    times = [
        Panel(title=f"{name}, 32 accelerators", x=VOLUME, y=time, series=tuple(_times(chosen)))
        for name, chosen in kinds.items()
    ]
    ratios = [
        Panel(title=f"{name}, 2 to 512 accelerators", x=VOLUME, y=ratio, series=tuple(_ratios(chosen)))
        for name, chosen in kinds.items()
    ]
    return Chart(
        name="F8",
        title="F8: collectives on Perlmutter (A100), model and measurement",
        panels=(*times, *ratios),
        num_columns=len(kinds),
        note=f"Measured with NCCL-tests by the paper's authors (transformer-perf-estimates, commit 54278b0). {SOURCE}",
    )


def _times(rows: Sequence[Row]) -> Iterator[Series]:
    for number, (nodes, inside) in enumerate(SHAPES):
        chosen = only(rows, num_nodes=nodes, gpus_per_node=inside)
        volumes = [row["size_bytes"] / MIB for row in chosen]
        name = f"{nodes} nodes of {inside}"
        colour = PALETTE[number]
        yield Series(name=f"{name}, model", x=volumes, y=[1e3 * row["model_s"] for row in chosen], colour=colour)
        times = [1e3 * row["measured_s"] for row in chosen]
        yield Series(name=f"{name}, measured", x=volumes, y=times, kind="points", colour=colour, marker="circle")


def _ratios(rows: Sequence[Row]) -> Iterator[Series]:
    for number, inside in enumerate((4, 2, 1)):
        chosen = only(rows, gpus_per_node=inside)
        yield Series(
            name=f"nodes of {inside}, all sizes",
            x=[row["size_bytes"] / MIB for row in chosen],
            y=[row["model_over_measured"] for row in chosen],
            kind="points",
            colour=PALETTE[number],
            marker="triangle",
        )
    volumes = [row["size_bytes"] / MIB for row in rows]
    yield Series(name="", x=[min(volumes), max(volumes)], y=[1.0, 1.0], colour=GREY, is_dashed=True)


CHARTS: Final[dict[str, Callable[[Sequence[Row]], Chart]]] = {
    "F1": training_days,
    "F2": throughput_per_gpu,
    "F3": best_configurations,
    "F4": time_ratios,
    "F5": hand_picked,
    "F6": capacity_and_bandwidth,
    "F7": flops_and_capacity,
    "F8": measured_collectives,
}


def chart_of(figure: Figure, *, system: str = "B200", nvs: int = 8) -> Chart:
    """The chart of a figure's records; ``system`` and ``nvs`` choose the configurations of F3."""
    rows = only(figure.rows, system=system, nvs=nvs) if figure.name == "F3" else figure.rows
    return CHARTS[figure.name](rows)

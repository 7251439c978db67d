"""Configurations by the model of arXiv 2410.00273, and the operators of a layer as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.text import Text

from shardplan.cli.layout import Column, Page
from shardplan.plotting.subramanian2024 import MEMORY
from shardplan.published.subramanian2024 import STRATEGIES
from shardplan.reports.texts.answer import percent
from shardplan.units import format_bytes, format_count, format_time

PARTS: Final = {
    "t_comp": ("compute", "green"),
    "t_mem": ("device memory, exposed", "yellow"),
    "t_tp_comm": ("tensor-parallel communication", "red"),
    "t_pp_comm": ("pipeline transfers", "red"),
    "t_dp_comm": ("data-parallel communication", "red"),
    "t_bubble": ("pipeline bubble", "red"),
}
"""Statistics that sum to the time of an iteration."""
LONGEST_BAR: Final = 40


def show(page: Page, record: Mapping[str, Any]) -> None:
    """The best configuration, the next ones, and where its time and its memory go."""
    _show_question(page, record)
    _show_verdict(page, record)
    _show_configurations(page, record["configurations"])
    _show_time(page, record["configurations"][0])
    _show_memory(page, record["configurations"][0])
    if "operators" in record:
        for direction in ("forward", "backward"):
            _show_operators(page, record["operators"], direction)


def _show_question(page: Page, record: Mapping[str, Any]) -> None:
    page.line(
        f"{record['model']} on {record['n_gpus']:,} x {record['gpu']}, scale-up domains of {record['nvs']}",
        style="bold",
        indent=0,
    )
    strategy = record["strategy"]
    corrected = f", corrected: {', '.join(record['corrected'])}" if record["corrected"] else ", as published"
    text = f"{strategy}, {STRATEGIES[strategy].title}; {record['global_batch_size']:,} sequences a step{corrected}"
    page.line(text, indent=0, style="dim")


def _show_verdict(page: Page, record: Mapping[str, Any]) -> None:
    page.console.print()
    best = record["configurations"][0]
    verdict = Text()
    if best["fits"]:
        verdict.append("Fits: " if "num_candidates" not in record else "Best: ", style="bold green")
    else:
        verdict.append("Nothing fits. " if "num_candidates" in record else "Does not fit. ", style="bold red")
        verdict.append("Least memory: " if "num_candidates" in record else "If it did: ", style="bold")
    verdict.append(f"{best['throughput']:.6g} samples/s, {format_time(best['t'])} an iteration", style="bold")
    verdict.append(f", {format_bytes(best['memory_GB'] * 1e9)} on each accelerator")
    page.line(verdict, indent=0)
    if "training_days" in best:
        page.line(f"{best['training_days']:.5g} days for the whole training", indent=0)
    if "num_candidates" in record:
        page.line(
            f"{record['num_fitting']:,} of {record['num_candidates']:,} candidates fit; the smallest takes "
            f"{format_bytes(record['smallest_memory_GB'] * 1e9)}",
            indent=0,
        )


def _show_configurations(page: Page, found: Sequence[Mapping[str, Any]]) -> None:
    page.heading("Configurations", "in brackets: ranks inside a scale-up domain; mbs: micro-batch size; nb: blocks")
    is_grid = found[0]["tp1"] is not None
    tensor = ("tp1", "tp2") if is_grid else ("tp",)
    columns = [
        Column(title="", cells=[str(each["rank"]) for each in found], rank=4),
        Column(title="samples/s", cells=[f"{each['throughput']:.6g}" for each in found]),
        Column(title="time", cells=[format_time(each["t"]) for each in found], rank=2),
        Column(title="memory", cells=[format_bytes(each["memory_GB"] * 1e9) for each in found], rank=1),
        *(Column(title=name, cells=[_placed(each, name) for each in found]) for name in ("dp", *tensor, "pp")),
        Column(title="mbs", cells=[str(each["mbs"]) for each in found]),
    ]
    if found[0]["nb"] is not None:
        columns.append(Column(title="nb", cells=[str(each["nb"]) for each in found]))
    if "training_days" in found[0]:
        columns.append(Column(title="days", cells=[f"{each['training_days']:.4g}" for each in found], rank=3))
    page.table(columns, styles=["bold"])


def _placed(configuration: Mapping[str, Any], name: str) -> str:
    """A degree and how much of it lies inside a scale-up domain."""
    return f"{configuration[name]:,} ({configuration[f'nv_{name}']})"


def _show_time(page: Page, best: Mapping[str, Any]) -> None:
    page.heading("Iteration", f"{format_time(best['t'])}, of the first configuration")
    parts = {label: (best[name], colour) for name, (label, colour) in PARTS.items()}
    widest = max(len(label) for label in parts)
    room = min(page.width - widest - 24, LONGEST_BAR)
    longest = max(value for value, _ in parts.values())
    for label, (value, colour) in sorted(parts.items(), key=lambda part: -part[1][0]):
        line = Text(f"  {label.ljust(widest)}  {format_time(value).rjust(8)}  {percent(value / best['t']).rjust(7)}  ")
        if value:
            line.append_text(page.bar(value / longest, room, colour))
        line.rstrip()
        page.console.print(line, soft_wrap=True)


def _show_memory(page: Page, best: Mapping[str, Any]) -> None:
    page.heading("Memory", f"{format_bytes(best['memory_GB'] * 1e9)}, of the first configuration")
    parts = [f"{label} {format_bytes(best[name] * 1e9)}" for name, label in MEMORY.items()]
    page.line(", ".join(parts))


def _show_operators(page: Page, operators: Sequence[Mapping[str, Any]], direction: str) -> None:
    """Work and time of every operator of a layer for one micro-batch."""
    page.heading(direction.capitalize(), "one layer, one micro-batch; sent: volumes of its collectives")
    passes = [each[direction] for each in operators]
    totals = {name: sum(each[name] for each in passes) for name in TIMES | WORK}
    columns = [Column(title="operator", cells=[*(_name(each) for each in operators), "layer"], is_text=True)]
    for name, (title, rank) in WORK.items():
        text = format_count if name == "flops" else format_bytes
        columns.append(Column(title=title, cells=[text(each[name]) for each in (*passes, totals)], rank=rank))
    columns.append(Column(title="sent", cells=[*(_sent(each) for each in passes), ""], rank=2))
    for name, (title, rank) in TIMES.items():
        columns.append(Column(title=title, cells=[format_time(each[name]) for each in (*passes, totals)], rank=rank))
    page.table(columns, styles=[*("" for _ in passes), "bold"])
    for each, work in zip(operators, passes, strict=True):
        if work["collectives"]:
            page.hanging(Text(_name(each), style="dim"), Text("; ".join(map(_call, work["collectives"])), style="dim"))


WORK: Final = {"flops": ("FLOP", 1), "memory_bytes": ("bytes", 1)}
TIMES: Final = {
    "compute_s": ("compute", 3),
    "exposed_memory_s": ("memory", 3),
    "communication_s": ("sending", 3),
    "time_s": ("time", 0),
}


def _name(operator: Mapping[str, Any]) -> str:
    return str(operator["operator"]).replace("_", " ")


def _sent(work: Mapping[str, Any]) -> str:
    total = sum(call["volume_bytes"] for call in work["collectives"])
    return format_bytes(total) if total else "-"


def _call(call: Mapping[str, Any]) -> str:
    """A collective as text."""
    rounds = f" in {call['rounds']} rounds" if call["rounds"] > 1 else ""
    return (
        f"{call['kind'].replace('_', '-')} of {format_bytes(call['volume_bytes'])} over {call['group']} "
        f"{call['size']} ({call['inside_domain']} inside a domain){rounds}, {format_time(call['round_s'])}"
        + (" each" if call["rounds"] > 1 else "")
    )

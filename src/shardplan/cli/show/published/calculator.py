"""The calculator's answer as text, our own estimate next to what is known to be wrong."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from shardplan.cli.layout import Column, Page
from shardplan.estimation.estimate import Estimate
from shardplan.reports.methods.calculator import CalculatorReport, CalculatorRow, KnownError
from shardplan.reports.texts.answer import percent
from shardplan.units import format_bytes, format_time

GB = 1e9


def show(page: Page, report: CalculatorReport) -> None:
    """Recommendation, tables, what is wrong."""
    _show_question(page, report)
    _show_verdict(page, report)
    _show_memory(page, report)
    _show_traffic(page, report)
    _show_texts(page, report)


def _show_question(page: Page, report: CalculatorReport) -> None:
    model, hardware, training = report.asked.model, report.asked.hardware, report.asked.training
    memory = report.answer["model_memory_gb"]
    page.line(
        f"calculator: {model.params_billions:g} billion parameters on {hardware.num_gpus:,} GPUs of "
        f"{hardware.memory_per_gpu_gb:g} GB",
        style="bold",
        indent=0,
    )
    layers = f"{model.num_layers} layers of {model.hidden_size:,}"
    experts = f", {model.num_experts} experts" if model.is_moe else ""
    parts = (
        f"{memory['param_count'] / 1e9:.4g} billion counted: {layers}{experts}",
        f"weights {memory['params']:.4g}, gradients {memory['gradients']:.4g}, optimizer {memory['optimizer']:.4g} GB",
        f"{training.batch_size:,} sequences of {training.sequence_length:,} tokens a step",
    )
    page.line("; ".join(parts), indent=0, style="dim")


def _show_verdict(page: Page, report: CalculatorReport) -> None:
    page.console.print()
    best = report.recommended
    if best is None:
        page.line(Text("Recommends nothing: ", style="bold red").append(f"{report.answer['reasons'][0]}."), indent=0)
    else:
        row = best.row
        figures = f"{row['memory_per_gpu']:.1f} GB, {row['communication']['total_gb']:.4g} GB of traffic a step"
        page.line(Text("Recommends ", style="bold green").append(f"{_degrees(best)}: {figures}", "bold"), indent=0)
        if report.fault is None:
            page.line(Text("Our estimate of it: ", style="bold").append(_our_words(best)), indent=0)
    fastest = report.our_fastest
    if fastest is not None and fastest is not best:
        text = f"{_degrees(fastest)}: {_our_words(fastest)}"
        page.line(Text("Of these, fastest by ours: ", style="bold").append(text), indent=0)
    if report.fault is not None:
        page.line(f"No estimate of ours: {report.fault}", indent=0, style="yellow")


def _degrees(row: CalculatorRow) -> str:
    return ", ".join(f"{name} {row.row[name]}" for name in ("tp", "pp", "dp"))


def _our_words(row: CalculatorRow) -> str:
    estimate = row.ours.estimate
    if estimate is None:
        return f"none, as {row.ours.broken_rule}"
    text = f"{format_time(estimate.step_time)} a step, {format_bytes(estimate.peak_memory_bytes)}"
    return (
        text if estimate.feasible else f"{text}; it does not fit ({format_bytes(estimate.usable_memory_bytes)} usable)"
    )


def _show_memory(page: Page, report: CalculatorReport) -> None:
    page.heading("Memory and bubble", "of one GPU, in the page's order; ours: our own estimate")
    rows, estimates = report.rows, [each.ours.estimate for each in report.rows]
    page.table(
        [
            *_named(rows),
            Column(title="memory", cells=[f"{each.row['memory_per_gpu']:.1f} GB" for each in rows]),
            Column(title="ours", cells=[_memory(e) for e in estimates]),
            Column(title="fits", cells=["yes" if each.row["fits"] else "no" for each in rows]),
            Column(title="ours", cells=["-" if e is None else "yes" if e.feasible else "no" for e in estimates]),
            Column(title="bubble", cells=[percent(each.row["bubble_fraction"]) for each in rows], rank=1),
            Column(title="micro-batches", cells=[f"{each.row['num_microbatches']:,}" for each in rows], rank=3),
            Column(title="our step", cells=["-" if e is None else format_time(e.step_time) for e in estimates], rank=2),
        ],
        styles=_styles(report),
    )
    broken = dict.fromkeys(each.ours.broken_rule for each in rows if each.ours.estimate is None)
    if broken and report.fault is None:
        page.line(f"No plan of ours: {'; '.join(broken)}.", style="dim")


def _memory(estimate: Estimate | None) -> str:
    return "-" if estimate is None else format_bytes(estimate.peak_memory_bytes, unit="GB")


def _named(rows: Sequence[CalculatorRow]) -> list[Column]:
    return [Column(title=name, cells=[str(each.row[name]) for each in rows]) for name in ("tp", "pp", "dp")]


def _styles(report: CalculatorReport) -> list[str]:
    return ["bold" if each is report.recommended else "" for each in report.rows]


def _show_traffic(page: Page, report: CalculatorReport) -> None:
    page.heading("Traffic", "of a step in GB; ours: what one accelerator sends")
    columns = _named(report.rows)
    for name in ("tp", "pp", "dp"):
        theirs = [f"{each.row['communication'][f'{name}_per_step_gb']:.1f}" for each in report.rows]
        ours = [_traffic(each.ours.estimate, name) for each in report.rows]
        rank = 2 if name == "pp" else 0
        columns += [Column(title=f"{name} GB", cells=theirs, rank=rank), Column(title="ours", cells=ours, rank=rank)]
    totals = [f"{each.row['communication']['total_gb']:.1f}" for each in report.rows]
    columns.append(Column(title="total GB", cells=totals, rank=3))
    page.table(columns, styles=_styles(report))


def _traffic(estimate: Estimate | None, name: str) -> str:
    return "-" if estimate is None else f"{sum(estimate.communication.get(name, {}).values()) / GB:.1f}"


def _show_texts(page: Page, report: CalculatorReport) -> None:
    if report.recommended is not None:
        page.heading("Its reasons")
        page.bullets(report.answer["reasons"])
    hint = report.answer["expert_parallelism"]
    if hint is not None:
        page.heading("Its word on experts")
        calls = f"{hint['all_to_all_per_layer']} all-to-all a layer"
        page.bullets([f"ep {hint['ep']}: {hint['experts_per_gpu']} experts per GPU, {calls}", *hint["hints"]])
    note = "" if report.recommended is None else "figures of the recommended configuration"
    page.heading("Wrong with it", note)
    page.bullets(_error_text(error) for error in report.known_errors)
    if report.assumptions:
        page.heading("Assumed")
        page.bullets(report.assumptions, style="dim")


def _error_text(error: KnownError) -> str:
    if error.ours is None:
        return error.flaw.text
    if error.theirs is None:
        return f"{error.flaw.text} (ours: {format_time(error.ours)} a step)"
    return f"{error.flaw.text} ({format_bytes(error.theirs)}, ours {format_bytes(error.ours)})"

"""What the answers of ``plan`` and ``estimate`` have in common: verdict, memory, split of the step, assumptions."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from rich.text import Text

from shardplan.cli.json_target import JsonTarget
from shardplan.cli.layout import HARD_SPACE, Column, Page
from shardplan.estimation.estimate import Estimate
from shardplan.estimation.evidence import NearRun
from shardplan.estimation.question import Question
from shardplan.reports.breakdown import Share, memory_bar, step_split, term_label
from shardplan.reports.plan_words import plan_flags, plan_words, variant_flag
from shardplan.units import format_bytes, format_count, format_rate, format_time

LETTERS = {
    "weights": ("W", "bright_blue"),
    "gradients": ("G", "bright_cyan"),
    "optimizer": ("O", "bright_magenta"),
    "activations": ("A", "bright_yellow"),
    "logits": ("L", "bright_green"),
    "buffers": ("B", "bright_red"),
    "framework": ("F", "white"),
}
COLOURS = {"matmul": "green", "attention": "green", "memory_bound": "yellow", "recompute": "yellow"}
LEAST_SHARE = 0.004
"""Terms below this share of the step are summed up in one line."""
LONGEST_BAR = 40
MOST_LINES_OF_RUNS = 3
"""Lines that the nearest measured runs take on the terminal, unless the first alone takes more."""
MOST_LINES = 2
"""Lines that one assumption takes on the terminal; the JSON has all of it."""


def percent(share: float) -> str:
    """A share as text."""
    return f"{100 * share:.1f} %"


def show_question(page: Page, question: Question) -> None:
    """Model, cluster and job in two lines."""
    model, cluster, job = question.model, question.cluster, question.job
    parameters = format_count(model.num_parameters)
    if model.is_moe:
        parameters += f" ({format_count(model.num_active_parameters)} active)"
    where = f"{question.num_accelerators:,} x {cluster.accelerator.full_name}"
    page.line(f"{model.name} on {where}", style="bold", indent=0)
    dot = page.glyph(" \u00b7 ", ", ")
    sequences = "sequence" if job.global_batch_size == 1 else "sequences"
    step = f"{job.global_batch_size:,} {sequences} of {job.sequence_length:,} tokens a step"
    trained = f"lora of rank {job.lora_rank}" if job.train == "lora" else f"without {job.freeze}"
    training = () if job.trains_all else (trained,)
    parts = (f"{parameters} parameters", cluster.name, step, job.precision, job.optimizer, *training)
    page.line(dot.join(parts), indent=0, style="dim")


def show_verdict(page: Page, question: Question, estimate: Estimate) -> None:
    """Whether it fits, how fast it is, how sure that is, and which plan it is."""
    page.console.print()
    show_framework(page, estimate)
    if estimate.not_measured is not None:
        show_not_measured(page, estimate)
    verdict = Text()
    if estimate.feasible:
        verdict.append("Fits: ", style="bold green")
    else:
        verdict.append("Does not fit: ", style="bold red")
        verdict.append(f"{estimate.reason}.")
        page.line(verdict, indent=0)
        verdict = Text("If it did: ", style="bold")
    verdict.append(f"{format_time(estimate.step_time)} a step", style="bold")
    low, high = format_time(estimate.step_time_p10), format_time(estimate.step_time_p90)
    verdict.append(f" ({low} to {high}{_basis(estimate.step_time_basis)})")
    page.line(verdict, indent=0)
    if estimate.step_time_note is not None and estimate.not_measured is None:
        page.line(_sentence(estimate.step_time_note), indent=0, style="yellow")
    for line in _rates(question, estimate):
        page.line(line, indent=0)
    show_plan(page, estimate)


def show_not_measured(page: Page, estimate: Estimate) -> None:
    """What no measured run covers, and the nearest that there is."""
    text = Text("Outside the measured runs: ", style="bold yellow")
    nearest = "".join(f"; the nearest is {run.id} ({run.summary})" for run in estimate.evidence[:1])
    page.line(text.append(f"{estimate.not_measured}{nearest}.", style="not bold"), indent=0)


def show_framework(page: Page, estimate: Estimate) -> None:
    """Which framework runs the plan, or why the one that was named cannot."""
    if estimate.framework is None:
        page.line("For no framework: it may be that none runs the plan.", indent=0)
        return
    if not estimate.refusals:
        page.line(f"Runs on {estimate.framework}.", indent=0)
    for refusal in estimate.refusals:
        values = f" ({refusal.message})" if refusal.message else ""
        text = Text(f"Not runnable on {estimate.framework}: ", style="bold red")
        page.line(text.append(f"{refusal.rule}{values}; {refusal.hint}.", style="not bold default"), indent=0)


def _basis(text: str) -> str:
    """What a band says, behind it."""
    return f" {text}" if text.startswith("in ") else f", {text}"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def show_plan(page: Page, estimate: Estimate) -> None:
    """A plan in words."""
    page.hanging(Text("Plan", style="bold"), Text(page.glyph(" \u00b7 ", ", ").join(plan_words(estimate))), indent=0)


def _rates(question: Question, estimate: Estimate) -> list[str]:
    peak = f"{format_rate(estimate.peak_flops, 'FLOP')} dense {estimate.peak_format} peak"
    per_token = f"{format_count(estimate.model_flops_per_token)} FLOP per token"
    mfu = f"MFU {percent(estimate.mfu)}"
    if estimate.hfu > estimate.mfu * 1.0005:
        mfu += f", HFU {percent(estimate.hfu)}"
    rate = format_count(round(estimate.tokens_per_second_per_accelerator))
    lines = [f"{rate} tokens/s per accelerator, {mfu} of the {peak} ({per_token})"]
    if estimate.time_to_train is not None and question.job.tokens is not None:
        lines.append(f"{format_time(estimate.time_to_train)} for {format_count(question.job.tokens)} tokens")
    return lines


def show_memory(page: Page, estimate: Estimate) -> None:
    """The fullest stage as a bar of its parts, and what each takes."""
    bar = memory_bar(estimate)
    stage = f"stage {bar.stage}, the fullest" if bar.num_stages > 1 else "on every accelerator"
    free = (
        f"{format_bytes(bar.free_bytes)} free" if bar.free_bytes >= 0 else f"{format_bytes(-bar.free_bytes)} too much"
    )
    used = f"{format_bytes(bar.used_bytes)} of {format_bytes(bar.usable_bytes)} usable, {free}; {stage}"
    page.heading("Memory", used)
    page.console.print(Text("  ") + _memory_bar(page, bar.parts, page.width - 6), soft_wrap=True)
    legend = Text()
    for part in sorted(bar.parts, key=lambda part: -part.value):
        letter, colour = LETTERS.get(part.name, (part.name[0].upper(), "white"))
        mark = "\u2588" if page.is_coloured else letter
        legend.append(f"{mark}{HARD_SPACE}", style=colour if page.is_coloured else "")
        legend.append(f"{part.name}{HARD_SPACE}{format_bytes(part.value)}   ")
    page.line(legend)
    _show_memory_band(page, estimate)


def _show_memory_band(page: Page, estimate: Estimate) -> None:
    """How sure the memory is, and whether that leaves room."""
    low, high = estimate.peak_memory_p10_bytes, estimate.peak_memory_p90_bytes
    if not low < high:
        return
    text = f"{format_bytes(low)} to {format_bytes(high)}{_basis(estimate.peak_memory_basis)}"
    risky = estimate.feasible and high > estimate.usable_memory_bytes
    page.line(text + (": the upper end would not fit" if risky else ""), style="yellow" if risky else "dim")
    note = estimate.peak_memory_note
    if note is not None and note != estimate.step_time_note:
        page.line(_sentence(note), style="dim")


def _memory_bar(page: Page, parts: Sequence[Share], room: int) -> Text:
    """Each part by its share of the usable memory; where that is too little, ``|`` stands where it ends."""
    everything = max(sum(part.share for part in parts), 1.0)
    text, reached = Text(), 0.0
    for part in parts:
        reached += part.share
        letter, colour = LETTERS.get(part.name, (part.name[0].upper(), "white"))
        length = max(round(reached / everything * room) - len(text), 0)
        text.append(("\u2588" if page.is_coloured else letter) * length, style=colour if page.is_coloured else "")
    text.append("." * (room - len(text)), style="dim")
    if everything > 1.0:
        end = round(room / everything)
        text = text[:end] + Text("|", style="bold red") + text[end + 1 :]
    return Text("[") + text + Text("]")


def show_step(page: Page, estimate: Estimate) -> None:
    """Where the seconds of the step go."""
    stage = f"of stage {estimate.slowest_stage}, the slowest; " if len(estimate.memory) > 1 else ""
    page.heading("Step", f"{stage}communication counts where computation does not hide it")
    shares = step_split(estimate)
    shown = [share for share in shares if share.share >= LEAST_SHARE]
    rest = [share for share in shares if share.share < LEAST_SHARE]
    if sum(share.share for share in rest) >= LEAST_SHARE / 4:
        total = Share(name="rest", value=sum(s.value for s in rest), share=sum(s.share for s in rest))
        shown.append(total)
    labels = ["the rest" if share.name == "rest" else term_label(share.name) for share in shown]
    times, shares_text = [format_time(share.value) for share in shown], [percent(share.share) for share in shown]
    widths = [max(len(text) for text in texts) for texts in (labels, times, shares_text)]
    room = min(page.width - sum(widths) - 8, LONGEST_BAR)
    longest = max(share.share for share in shown)
    for share, label, time, text in zip(shown, labels, times, shares_text, strict=True):
        line = Text(f"  {label.ljust(widths[0])}  {time.rjust(widths[1])}  {text.rjust(widths[2])}  ")
        line.append_text(page.bar(share.share / longest, room, COLOURS.get(share.name, "red")))
        page.console.print(line, soft_wrap=True)


def show_traffic(page: Page, estimate: Estimate) -> None:
    """Bytes that an accelerator sends in a step, by dimension and network tier."""
    if not estimate.communication:
        return
    page.heading("Traffic", "bytes that an accelerator of the slowest stage sends in a step")
    tiers = list(next(iter(estimate.communication.values())))
    columns = [Column(title="", cells=list(estimate.communication), is_text=True)]
    for tier in tiers:
        sent = [moved.get(tier, 0.0) for moved in estimate.communication.values()]
        columns.append(Column(title=tier, cells=[format_bytes(value) if value else "-" for value in sent]))
    page.table(columns)


def show_evidence(page: Page, estimate: Estimate) -> None:
    """The nearest measured runs, as many as fit in three lines; the JSON has all."""
    if not estimate.evidence:
        return
    nearest = estimate.evidence[0]
    said = "as asked" if nearest.distance == 0 else f"distance {nearest.distance:.1f}, 1 is a doubling of tp, cp or ep"
    page.heading("Nearest measured runs", said)
    texts = [_run_in_words(run) for run in estimate.evidence]
    lengths = [page.num_lines(text) for text in texts]
    shown = max([1, *(n for n in range(2, len(texts) + 1) if sum(lengths[:n]) <= MOST_LINES_OF_RUNS)])
    page.bullets(texts[:shown], style="dim")


def _run_in_words(run: NearRun) -> str:
    measured, predicted = format_time(run.measured_step_time), format_time(run.predicted_step_time)
    return (
        f"{run.id} ({run.num_accelerators:,} x {run.accelerator}; {run.summary}): measured {measured}, "
        f"predicted {predicted} ({100 * run.error:+.1f} %)"
    )


def show_assumptions(page: Page, estimate: Estimate) -> None:
    """What was taken for granted, each cut to what fits in two lines."""
    page.heading("Assumed")
    page.bullets(estimate.assumptions, style="dim", most_lines=MOST_LINES)
    page.bullets([f"MFU counts {estimate.flops_convention}"], style="dim")


def show_way_on(
    page: Page,
    target: JsonTarget,
    question: Question,
    estimates: Sequence[Estimate],
    recommended: Estimate | None = None,
) -> None:
    """What to do next with the answer."""
    if not estimates:
        return
    page.heading("Go on")
    other = recommended is not None and recommended.plan != estimates[0].plan
    several = len(estimates) > 1 or other
    file = str(target.where) if target.path is not None else "plans.json" if several else "plan.json"
    saved = f"Saved in {file}" if target.path is not None else f"Save the answer with --json {file}"
    page.line(f"{saved}; then try a variant, or put plans side by side:")
    file = shlex.quote(file)
    page.verbatim(f"shardplan estimate --from {file} {variant_flag(question, estimates[0].plan)}")
    picks = "1,recommended" if other else "1,2"
    page.verbatim(f"shardplan compare {file} --pick {picks}" if several else f"shardplan compare {file} other.json")
    page.line(f"The {'fastest ' if other else ''}plan as flags of `shardplan estimate`:")
    _show_flags(page, question, estimates[0])
    if other and recommended is not None:
        page.line("The recommended one:")
        _show_flags(page, question, recommended)


def _show_flags(page: Page, question: Question, estimate: Estimate) -> None:
    page.verbatim(" ".join(plan_flags(question, estimate)) or "none: every field has its default")

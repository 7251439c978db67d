"""What the answers of ``plan`` and ``estimate`` have in common: question, verdict, memory, split of the step."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from shardplan.answers.document import PartsBar
from shardplan.cli.layout import Page
from shardplan.estimation.band import COMPARABLE
from shardplan.estimation.estimate import Estimate
from shardplan.estimation.question import Question
from shardplan.render.drawings import show_parts
from shardplan.reports.breakdown import Share, memory_bar, step_split, term_label
from shardplan.reports.forms.framework_options import framework_options, grouped_options
from shardplan.reports.texts.answer import (
    cost_text,
    memory_use,
    note_sentence,
    percent,
    question_parts,
    question_title,
    rates_text,
    sentence,
    step_band,
    training_text,
)
from shardplan.reports.texts.plan import plan_words
from shardplan.units import format_bytes, format_time
from shardplan.words import joined

COLOURS = {"matmul": "green", "attention": "green", "memory_bound": "yellow", "recompute": "yellow"}
LEAST_SHARE = 0.004
"""Terms below this share of the step are summed up in one line."""
LONGEST_BAR = 40
MOST_TERMS = 5
"""Terms of the step that are shown unless all are asked for."""
ALL_TERMS = 100


def show_question(page: Page, question: Question, given: Sequence[str] = (), *, count: str | None = None) -> None:
    """Model, cluster and job in two lines, and what the user set in place of usual values.

    ``count``: the number of accelerators as text, where it is not one.
    """
    page.line(question_title(question, count), style="bold", indent=0)
    page.line(page.glyph(" \u00b7 ", ", ").join(question_parts(question)), indent=0, style="dim")
    for note in question.model.notes:
        page.labelled("Model", note, style="bold yellow")
    if given:
        page.labelled("You set", "; ".join(given), style="bold yellow")


def show_verdict(
    page: Page, question: Question, estimate: Estimate, *, is_whole: bool = False, runs_on: str = ""
) -> None:
    """Whether it fits and how fast it is, what is not sure about that, and which plan it is.

    ``is_whole``: with every option of the framework, not those of the plan alone, with HFU and the source of the price.
    ``runs_on``: in place of the framework's record, where a file is of a framework without one of its own.
    """
    page.console.print()
    _show_refusals(page, estimate)
    time = Text(f"{format_time(estimate.step_time)} a step", style="bold")
    time.append(f" ({step_band(estimate)})", style="not bold")
    if estimate.feasible:
        page.labelled("Fits", time, style="bold green")
    else:
        page.labelled("Too big", Text(sentence(estimate.reason or ""), style="bold red"), style="bold red")
        page.labelled("", Text("If it fitted: ").append_text(time))
    show_doubt(page, estimate)
    show_plan(page, estimate)
    if runs_on:
        page.labelled("Runs on", runs_on)
    else:
        show_framework(page, question, estimate, is_whole=is_whole)
    page.labelled("Speed", rates_text(question, estimate, is_whole=is_whole))
    if estimate.time_to_train is not None:
        page.labelled("Training", training_text(question, estimate))
    if estimate.money is not None:
        page.labelled("Cost", cost_text(question, estimate, is_whole=is_whole))


def show_doubt(page: Page, estimate: Estimate) -> None:
    """What is not measured of a plan, or little."""
    if estimate.not_measured is not None:
        text = Text("Outside the measured runs: ", style="bold yellow")
        page.labelled("", text.append(f"{estimate.not_measured}.", style="not bold default"))
    elif estimate.step_time_note is not None:
        page.labelled("", Text(note_sentence(estimate.step_time_note), style="yellow"))


def _show_refusals(page: Page, estimate: Estimate) -> None:
    """Why the framework cannot run the plan."""
    for refusal in estimate.refusals:
        values = f" ({refusal.message})" if refusal.message else ""
        text = Text(f"Not runnable on {estimate.framework}: ", style="bold red")
        text.append(f"{refusal.rule}{values}; {refusal.hint}.", style="not bold default")
        page.line(text, indent=0)


def show_framework(page: Page, question: Question, estimate: Estimate, *, is_whole: bool) -> None:
    """Which framework runs the plan, or why the one that was named cannot."""
    if estimate.framework is None:
        page.labelled("Runs on", "no named framework: it may be that none runs the plan")
        return
    if not estimate.refusals:
        page.labelled("Runs on", estimate.framework)
        _show_options(page, question, estimate, is_whole=is_whole)
    for each in estimate.untested:
        page.labelled("Untested", Text(sentence(each.partition(": ")[2]), style="yellow"))


def _show_options(page: Page, question: Question, estimate: Estimate, *, is_whole: bool) -> None:
    """The plan in the framework's own option names, and what these do not express."""
    found = framework_options(question, estimate)
    if found is None:
        return
    page.under_label(page.whole_words(found.options) if is_whole else _options_in_effect(page, found.in_effect))
    if found.unsaid:
        page.labelled("", f"Not among these options: {joined(found.unsaid)}.")


def _options_in_effect(page: Page, options: Sequence[str]) -> list[str]:
    """Flags as they are pasted, other options by the paths that they share."""
    groups = grouped_options(options).items()
    return [line for path, each in groups for line in page.whole_words([f"{path}:", *each] if path else each)]


def show_plan(page: Page, estimate: Estimate, label: str = "Plan") -> None:
    """A plan as text."""
    page.labelled(label, page.glyph(" \u00b7 ", ", ").join(plan_words(estimate)))


def show_memory(page: Page, estimate: Estimate, *, is_whole: bool = False) -> None:
    """The fullest stage as a bar of its parts, and what each takes: the smallest together unless ``is_whole``."""
    bar = memory_bar(estimate)
    page.heading("Memory", memory_use(estimate))
    show_parts(page, PartsBar(bar.parts, format_bytes, is_whole))
    if estimate.feasible and not estimate.has_headroom:
        page.line("At the upper end of its band it would not fit.", style="yellow")
    note = estimate.peak_memory_note
    is_said = note == estimate.step_time_note or (not is_whole and estimate.peak_memory_basis != COMPARABLE)
    if note is not None and not is_said:
        page.line(note_sentence(note), style="dim")


def show_step(page: Page, estimate: Estimate, most: int = MOST_TERMS) -> None:
    """Where the seconds of the step go: the largest terms, and the rest."""
    stage = f" on stage {estimate.slowest_stage}, the slowest" if len(estimate.memory) > 1 else ""
    page.heading("Step", f"where the time goes{stage}")
    shares = step_split(estimate)
    num_shown = min(most, sum(share.share >= LEAST_SHARE for share in shares))
    shown, rest = [*shares[:num_shown]], shares[num_shown:]
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

"""The runs of a budget side by side, and where their time goes."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from shardplan.cli.layout import Column, Page
from shardplan.cli.show.decisions.columns import plan_columns
from shardplan.decisions.budget import BudgetOption, ClusterBudget
from shardplan.decisions.goodput import Accounts
from shardplan.reports.decisions.budget import ACCOUNTS
from shardplan.reports.texts.answer import percent, sentence
from shardplan.reports.texts.decisions import budget_notes, budget_takes, carbon_text, energy_text, money_text
from shardplan.units import format_bytes, format_count, format_time


def show_budget(page: Page, budgets: Sequence[ClusterBudget], *, states_assumptions: bool) -> None:
    """Verdict, the runs side by side, and for a single one where its time goes."""
    options = [each.option for each in budgets if each.option is not None]
    if options:
        job = options[0].question.job
        tokens = format_count(round(job.tokens or 0))
        page.line(f"{options[0].question.model.name}, {tokens} tokens, {job.precision}", style="bold", indent=0)
    for each in budgets:
        _show_verdict(page, each)
    if options:
        _show_options(page, options)
        _show_time(page, options)
        _show_failures(page, options[0])
        if states_assumptions:
            _show_assumptions(page, options)
    if not states_assumptions:
        page.line("--assumptions lists every default that was taken, with its source.", style="dim", indent=0)


def _show_assumptions(page: Page, options: Sequence[BudgetOption]) -> None:
    """What was assumed: once where it is alike for all runs."""
    shared = [text for text in options[0].assumptions if all(text in each.assumptions for each in options)]
    page.heading("Assumptions")
    page.bullets(shared)
    for option in options:
        own = [text for text in option.assumptions if text not in shared]
        if own:
            page.heading("Assumptions", f"of {option.question.cluster.name} alone")
            page.bullets(own)


def _show_verdict(page: Page, budget: ClusterBudget) -> None:
    """Whether the limits are met, and by what."""
    option = budget.option
    if option is None:
        page.labelled("No plan", f"{budget.cluster.name}: {budget.reason}", style="bold red")
        return
    takes, band = budget_takes(option)
    text = Text(takes, style="bold")
    text.append(f"; {band}", style="not bold")
    label, style = ("Misses", "bold red") if option.shortfalls else ("Takes", "bold green")
    page.labelled(label, text, style=style)
    for each in option.shortfalls:
        page.labelled("", f"This is the nearest; {each}.", style="red")
    for note in budget_notes(option):
        page.labelled("", Text(note, style="yellow"))


def _show_options(page: Page, options: Sequence[BudgetOption]) -> None:
    """One line for each run."""
    page.heading("Cost", "of the whole run")
    money = [money_text(each) for each in options]
    columns = [
        Column(title="cluster", cells=[each.question.cluster.name for each in options], is_text=True),
        Column(title="accelerators", cells=[f"{each.num_accelerators:,}" for each in options]),
        Column(title="time", cells=[format_time(each.wall_time) for each in options]),
        Column(title="hours", cells=[format_count(round(each.accelerator_hours)) for each in options], rank=2),
        Column(title="money", cells=money),
        Column(title="energy", cells=[energy_text(each) for each in options]),
        Column(title="CO2", cells=[carbon_text(each) for each in options], rank=1),
        Column(title="MFU", cells=[percent(each.estimate.mfu) for each in options], rank=1),
        Column(title="goodput", cells=[percent(each.duration.accounts.goodput) for each in options]),
    ]
    page.table(columns)
    page.heading("Plan", "mb: micro-batch size; batch: sequences per step (--global-batch-size)")
    page.table(
        [
            Column(title="cluster", cells=[each.question.cluster.name for each in options], is_text=True),
            Column(title="step", cells=[format_time(each.estimate.step_time) for each in options]),
            Column(title="batch", cells=[f"{each.question.job.global_batch_size:,}" for each in options]),
            *plan_columns([each.estimate for each in options]),
        ]
    )


def _show_time(page: Page, options: Sequence[BudgetOption]) -> None:
    """Where the wall time goes."""
    page.heading("Time", "what it is spent on, in the mean over failures")
    spent = [each.duration.accounts for each in options]
    page.table(
        [
            Column(title="", cells=[name.replace("_", "-") for name in ACCOUNTS], is_text=True),
            *(
                Column(
                    title=option.question.cluster.name,
                    cells=[_spent(each, name, is_single=len(options) == 1) for name in ACCOUNTS],
                )
                for option, each in zip(options, spent, strict=True)
            ),
        ],
        styles=["green"],
    )


def _spent(accounts: Accounts, name: str, *, is_single: bool) -> str:
    """Time and share of an account; the share alone where runs stand side by side."""
    time = getattr(accounts, name)
    share = percent(time / accounts.wall_time)
    return f"{format_time(time)} {share:>7}" if is_single else share


def _show_failures(page: Page, option: BudgetOption) -> None:
    """How often the first run fails, and what it keeps."""
    recovery = option.duration.recovery
    rate = recovery.failures_per_second
    page.heading("Failures", option.question.cluster.name)
    for warning in option.warnings:
        page.line(f"{sentence(warning)} Set --failure-rate.", style="yellow")
    size = f"Checkpoints of {format_bytes(option.duration.checkpoint_bytes)} take {format_time(recovery.write_time)}"
    if not rate:
        page.line("None are assumed.")
        return
    page.line(
        f"One every {format_time(1 / rate)}: {format_count(round(option.duration.num_failures))} in the run. {size} "
        f"and come every {format_time(recovery.interval)}."
    )
    nodes = f"{option.spares_needed:,} spare accelerators replace failed ones without a wait in 99 % of the time"
    page.line(f"{nodes}; {option.spares:,} are paid for (--spares).")

"""A simulated step: how long it takes, and what every rank does."""

from __future__ import annotations

from shardplan.cli.layout import Column, Page
from shardplan.cli.show.steps.timeline import show_more_ranks
from shardplan.reports.texts.answer import more_or_less, percent
from shardplan.schedules.base import Schedule
from shardplan.simulation.replicas import ReplicaSteps
from shardplan.units import format_time

MOST_RANKS = 64
"""Rows of the table; JSON has all ranks."""


def show_step(
    page: Page,
    schedule: Schedule,
    steps: ReplicaSteps,
    *,
    step_time: float,
    closed_form_time: float | None,
    leaves_out: str = "",
) -> None:
    """Step time next to the closed form, which does not count ``leaves_out``, then a row for every rank."""
    step = steps.step
    page.line(f"{schedule.title}: {format_time(step_time)} a step", style="bold green", indent=0)
    if step_time > step.step_time:
        page.line(
            f"{format_time(step.step_time)} from the first pass of a rank to its last; the rest comes once a step."
        )
    if steps.count > 1:
        page.line(
            f"Replica {steps.slowest} of {steps.count} (from 0) takes longest; "
            f"others wait for it up to {format_time(steps.longest_wait)} at the reduction of gradients."
        )
    page.line(f"{percent(step.bubble_rate)} of that time is bubble, on the rank that takes longest.")
    if closed_form_time is not None:
        page.line(
            f"The closed form{f', without {leaves_out},' if leaves_out else ''} says {format_time(closed_form_time)}, "
            f"{more_or_less(closed_form_time / step_time - 1)}."
        )
    ranks = step.ranks[:MOST_RANKS]
    page.heading("Ranks", "in flight: passes through a chunk whose activations are kept")
    page.table(
        [
            Column(title="rank", cells=[str(number) for number in range(len(ranks))]),
            Column(title="busy", cells=[format_time(rank.busy_time) for rank in ranks]),
            Column(title="idle", cells=[format_time(rank.idle_time) for rank in ranks]),
            Column(
                title="idle share",
                cells=[percent(rank.idle_time / step.step_time if step.step_time else 0.0) for rank in ranks],
                rank=1,
            ),
            Column(title="in flight", cells=[str(rank.peak_in_flight) for rank in ranks]),
        ]
    )
    show_more_ranks(page, len(step.ranks), MOST_RANKS)

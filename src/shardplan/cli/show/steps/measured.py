"""A measured step on one screen: how far the prediction is from it, rank by rank or term by term."""

from __future__ import annotations

from collections.abc import Sequence

from shardplan.cli.layout import Column, Page
from shardplan.cli.show.steps.timeline import LEAST_SHARE, MOST_RANKS, show_more_ranks
from shardplan.estimation.parts.terms import term_label
from shardplan.reports.texts.answer import more_or_less, percent, signed_time
from shardplan.simulation.measured.answer import SPLIT_AS_PREDICTED, MeasuredAnswer
from shardplan.simulation.measured.comparison import PassComparison, PassName
from shardplan.simulation.measured.kernels import IDLE, OFFLOAD
from shardplan.simulation.measured.passes import MeasuredStep
from shardplan.simulation.measured.profile import ProfiledStep
from shardplan.simulation.measured.terms import SUM
from shardplan.units import format_bytes, format_time

MOST_COLLECTIVES = 4
LABELS = {SUM: "all computation", IDLE: "idle: host, bubble and the like", OFFLOAD: "copies to and from the host"}


def show_measured(page: Page, answer: MeasuredAnswer, *, written: Sequence[str], splits_gradients: bool) -> None:
    """The answer of ``timeline --measured``."""
    measurement = answer.measurement
    steps = "" if measurement.num_steps == 1 else f"; {measurement.num_steps} steps, of which --step chooses one"
    page.line(f"Measured step {measurement.step} ({measurement.source}{steps})", style="bold green", indent=0)
    notes = [*answer.notes]
    if answer.passes is not None:
        _show_comparison(page, answer.passes)
    elif measurement.passes is not None:
        _show_passes(page, measurement.passes)
    if answer.profile is not None:
        _show_profile(page, answer, answer.profile)
    notes += [SPLIT_AS_PREDICTED] if splits_gradients else []
    if notes:
        page.heading("Notes")
        page.bullets(notes)
    for name in written:
        page.labelled("Written", name)


def _show_passes(page: Page, step: MeasuredStep) -> None:
    """Of a step without a prediction."""
    page.line(f"{format_time(step.pipeline_time)} from a rank's first pass to its last.")
    shown = range(min(step.num_ranks, MOST_RANKS))
    page.heading("Ranks")
    memory = step.memory_bytes
    columns = [
        Column(title="rank", cells=[str(rank) for rank in shown]),
        Column(title="busy", cells=[format_time(step.busy_times[rank]) for rank in shown]),
        Column(title="bubble", cells=[percent(step.timeline.bubble_rates[rank]) for rank in shown]),
    ]
    if memory is not None:
        columns.append(Column(title="peak memory", cells=[format_bytes(memory[rank]) for rank in shown]))
    page.table(columns)
    show_more_ranks(page, step.num_ranks)


def _show_comparison(page: Page, compared: PassComparison) -> None:
    """Times, the reason of their difference, ranks and slow passes."""
    measured, predicted = compared.times
    page.line(
        f"{format_time(measured)} from a rank's first pass to its last; predicted {format_time(predicted)}, "
        f"{more_or_less(predicted / measured - 1)}."
    )
    page.line(
        f"Measured minus predicted is {signed_time(measured - predicted)}: {signed_time(compared.by_stage_times)} from "
        f"the times of the stages, {signed_time(compared.by_the_rest)} from slow passes and waiting."
    )
    name = compared.predicted.schedule.name
    if compared.first_other is None:
        page.line(f"Every rank ran its passes in the order of schedule {name}.")
    else:
        first, planned = compared.first_other
        page.line(
            f"The order is not that of schedule {name}: rank {first.rank} ran the {_name(first)} "
            f"where the {_name(planned)} was planned."
        )
    _show_ranks(page, compared)
    if compared.slow:
        page.heading("Slow passes", "those that lost most time against the median of their chunk")
        page.bullets(
            f"{_name(one.name)} on rank {one.name.rank}: {format_time(one.time)}, usually {format_time(one.usual_time)}"
            for one in compared.slow
        )


def _show_ranks(page: Page, compared: PassComparison) -> None:
    """Measured values, each with its distance from the prediction."""
    shown = compared.ranks[:MOST_RANKS]
    page.heading("Ranks", "measured, and how much more or less than predicted; passes of one micro-batch")
    columns = [
        Column(title="rank", cells=[str(rank.rank) for rank in shown]),
        Column(title="forward", cells=[_against(*rank.forward) for rank in shown]),
        Column(title="backward", cells=[_against(*rank.backward) for rank in shown]),
        Column(title="bubble", cells=[f"{percent(rank.bubble[0])} ({percent(rank.bubble[1])})" for rank in shown]),
    ]
    memory = [rank.memory_bytes for rank in shown if rank.memory_bytes is not None]
    if memory:
        cells = [f"{format_bytes(pair[0])} ({_share(*pair)})" for pair in memory]
        columns.append(Column(title="peak memory", cells=cells, rank=1))
    page.table(columns)
    show_more_ranks(page, len(compared.ranks))


def _show_profile(page: Page, answer: MeasuredAnswer, profile: ProfiledStep) -> None:
    """Terms of the step on one rank, and its collectives."""
    has_plan = answer.predicted is not None
    predicted = sum(answer.breakdown.values())
    page.line(
        f"{format_time(profile.step_time)} a step"
        + (
            f"; predicted {format_time(predicted)}, {more_or_less(predicted / profile.step_time - 1)}."
            if has_plan
            else "."
        )
    )
    if profile.is_open:
        page.line("No step follows in the trace, so that it ends with its last kernel.")
    page.heading("Where the time goes", f"on {profile.label}; communication that no computation hides")
    least = LEAST_SHARE * profile.step_time
    rows = [row for row in answer.terms(profile) if max(row.measured or 0.0, row.predicted or 0.0) >= least]
    columns = [
        Column(title="term", cells=[LABELS.get(row.name, term_label(row.name)) for row in rows], is_text=True),
        Column(title="measured", cells=["" if row.measured is None else format_time(row.measured) for row in rows]),
    ]
    if has_plan:
        both = [(row.measured, row.predicted) for row in rows]
        columns += [
            Column(title="predicted", cells=["" if each is None else format_time(each) for _, each in both]),
            Column(title="measured minus predicted", cells=[_difference(*each) for each in both]),
        ]
    page.table(columns, styles=["bold" if row.is_sum else "" for row in rows])
    if any(row.measured is None for row in rows):
        page.line("Kernels do not show whether they run for recomputation: it is in the measured terms above.")
    for one in profile.collectives[:MOST_COLLECTIVES]:
        where = "" if one.dimension == "communication" else f" ({term_label(one.dimension)})"
        page.line(
            f"{one.count} {one.collective}{where}: {format_time(one.busy_time)}, "
            f"of which {format_time(one.exposed_time)} are exposed."
        )


def _against(measured: float, predicted: float) -> str:
    """A measured time with its distance from the prediction."""
    return f"{format_time(measured)} ({_share(measured, predicted)})"


def _share(measured: float, predicted: float) -> str:
    return f"{100 * (measured / predicted - 1):+.0f} %" if predicted else "not predicted"


def _difference(measured: float | None, predicted: float | None) -> str:
    return "" if measured is None or predicted is None else signed_time(measured - predicted)


def _name(name: PassName) -> str:
    return f"{name.direction} pass of micro-batch {name.microbatch} in chunk {name.chunk}"

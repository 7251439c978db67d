"""``shardplan timeline``: one simulated step, from event to event, as files that show it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shardplan.cli.flags.option_groups import with_flags
from shardplan.cli.flags.plan import OutputFlags, PickFlag
from shardplan.cli.simulate import (
    JitterFlag,
    PlanArgument,
    ScheduleFlag,
    SeedFlag,
    StagesFlag,
    TimesFlag,
    case_of_file,
    check_one_given,
    disturbance_of,
    plan_of_file,
)
from shardplan.errors import InputError
from shardplan.outputs.target import HTML, SVG, TRACE, JsonTarget

if TYPE_CHECKING:
    from shardplan.simulation.step import Disturbance
    from shardplan.simulation.timeline import StepTimeline


def _file(name: str, text: str) -> Any:
    return typer.Option(name, metavar="FILE", help=text, show_default=False, rich_help_panel="Output")


OutFlag = Annotated[
    str | None, _file("--out", "Write the step as a trace that ui.perfetto.dev and chrome://tracing open.")
]
HtmlFlag = Annotated[
    str | None,
    _file("--html", "Write the step as a page to look around in: zoom, ranks, one layer. It needs no network."),
]
SvgFlag = Annotated[str | None, _file("--svg", "Draw the step as a picture for a README or a report.")]


@with_flags
def timeline(
    *,
    output: OutputFlags,
    plan: PlanArgument = None,
    times: TimesFlag = None,
    pick: PickFlag = None,
    schedule: ScheduleFlag = None,
    stages: StagesFlag = None,
    jitter: JitterFlag = "0",
    seed: SeedFlag = "0",
    out: OutFlag = None,
    html: HtmlFlag = None,
    svg: SvgFlag = None,
) -> int:
    """Show one step: what every rank does at every moment, and what its memory holds.

    The step is simulated with the times and bytes of the estimate. With --times there is no memory.
    """
    target, trace = output.target(), output.target(out, "--out", TRACE)
    page, picture = output.target(html, "--html", HTML), output.target(svg, "--svg", SVG)
    targets = (target, trace, page, picture)
    _check_targets(targets, (plan, times, stages))
    disturbance = disturbance_of(jitter, seed)
    check_one_given(plan, times)
    if times is not None:
        shown = _of_case(times, schedule, stages, disturbance)
    else:
        from shardplan.simulation.show import timeline_of

        assert plan is not None
        shown = timeline_of(plan_of_file(plan, pick, schedule, stages, disturbance))
    from shardplan.reports.timeline.record import timeline_record
    from shardplan.reports.timeline.trace import trace_text

    if out is not None:
        trace.write_parts(trace_text(shown))
    if html is not None:
        from shardplan.reports.timeline.page import timeline_html

        page.write_text(timeline_html(shown))
    if svg is not None:
        from shardplan.reports.timeline.picture import timeline_svg

        picture.write_text(timeline_svg(shown))
    target.write(timeline_record(shown))
    if not any(each.is_stdout for each in targets):
        from shardplan.cli.layout import Page
        from shardplan.cli.show.timeline import show_timeline

        show_timeline(Page(), shown, written=[str(each.path) for each in targets[1:] if each.path is not None])
    return 0


def _check_targets(targets: Sequence[JsonTarget], reads: Sequence[Path | None]) -> None:
    """Finds out early whether the files can be written. Raises InputError."""
    printed = [each.flag for each in targets if each.is_stdout]
    if len(printed) > 1:
        raise InputError(
            f"both {printed[0]} and {printed[1]} are -",
            rule="standard output takes one answer",
            hint=f"give {printed[1]} a file",
        )
    for place, each in enumerate(targets):
        each.check(*reads, *(other.path for other in targets[:place]))


def _of_case(file: Path, schedule: str | None, stages: Path | None, disturbance: Disturbance) -> StepTimeline:
    """The step of a case."""
    from shardplan.simulation.show import timeline_of_times
    from shardplan.simulation.step import simulate

    named, at, times = case_of_file(file, schedule, stages)
    return timeline_of_times(named, simulate(named, at, times, disturbance), times)

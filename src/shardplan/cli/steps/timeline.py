"""``shardplan timeline``: one simulated step, from event to event, as files that show it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shardplan.ask.task_forms import StepForm
from shardplan.cli.flags.option_groups import with_flags
from shardplan.cli.flags.plan import OutputFlags
from shardplan.cli.simulate import case_of_file, check_one_given, disturbance_of, plan_of_file
from shardplan.cli.steps.drawings import DrawingFlags
from shardplan.cli.steps.measured import MeasuredFlags, measured_timeline
from shardplan.errors import InputError

if TYPE_CHECKING:
    from shardplan.simulation.step import Disturbance
    from shardplan.simulation.timeline import StepTimeline


FilesArgument = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="PLAN.json",
        show_default=False,
        help="A plan file that `plan` or `estimate` wrote; with --measured, the files of a measured step.",
    ),
]


@with_flags
def timeline(
    *,
    output: OutputFlags,
    drawn: DrawingFlags,
    measured: MeasuredFlags,
    files: FilesArgument = None,
    step: StepForm,
) -> int:
    """Show one step: what every rank does at every moment, and what its memory holds.

    The step is simulated with the times and bytes of the estimate. With --times there is no memory.
    """
    target, drawings = output.target(), drawn.drawings(output)
    drawings.check(target, (*(files or ()), step.times, step.stages))
    disturbance = disturbance_of(step)
    if measured.measured:
        return measured_timeline(
            files or [],
            measured,
            step,
            others={
                "--times": step.times is not None,
                "--stages": step.stages is not None,
                "--jitter": disturbance.jitter > 0,
                "--slow-rank": bool(step.slow_rank),
            },
            target=target,
            drawn=drawings,
            draw=drawings.write,
        )
    measured.check_unused()
    plan = _only(files or [])
    check_one_given(plan, step.times)
    if step.times is not None:
        shown = _of_case(step, disturbance)
    else:
        from shardplan.simulation.show import timeline_of

        assert plan is not None
        shown = timeline_of(plan_of_file(plan, step, disturbance))
    from shardplan.answers.timeline import timeline_document
    from shardplan.render.record import document_record

    drawings.write(shown)
    document = timeline_document(shown, drawings.written)
    target.write(document_record(document))
    if not (target.is_stdout or drawings.are_on_stdout):
        from shardplan.render.page import Page
        from shardplan.render.terminal import show

        show(Page(), document)
    return 0


def _only(files: Sequence[Path]) -> Path | None:
    """The plan file. Raises InputError where there are several."""
    if len(files) > 1:
        raise InputError(
            f"{len(files)} files are given",
            rule="the step of one plan is simulated",
            hint="give one plan file, or add --measured if these are files of a measured step",
        )
    return files[0] if files else None


def _of_case(flags: StepForm, disturbance: Disturbance) -> StepTimeline:
    """The step of a case."""
    from shardplan.simulation.show import timeline_of_times
    from shardplan.simulation.step import simulate

    named, at, times = case_of_file(flags)
    return timeline_of_times(named, simulate(named, at, times, disturbance), times)

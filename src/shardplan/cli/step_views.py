"""``shardplan timeline``: one step, simulated or measured, and the files that show it: trace, page and picture."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from shardplan.ask.task_forms import StepForm
from shardplan.base.errors import InputError
from shardplan.base.fields import asked, dataclass, switch
from shardplan.base.outputs import CSV, HTML, SVG, TRACE, JsonTarget, check_one_on_stdout, check_together
from shardplan.cli.flags.option_groups import OutputFlags, with_flags
from shardplan.cli.simulate import case_of_file, check_one_given, disturbance_of, plan_of_file

if TYPE_CHECKING:
    from shardplan.simulation.timeline import StepTimeline


@dataclass(frozen=True, kw_only=True)
class DrawingFlags:
    """Which files show the step."""

    PANEL = "Output"

    out: str | None = asked("Write the step as a trace that ui.perfetto.dev opens.", metavar="FILE")
    html: str | None = asked("Write the step as an interactive page: one file that works offline.", metavar="FILE")
    svg: str | None = asked("Write the step as a picture.", metavar="FILE")

    def drawings(self, output: OutputFlags) -> Drawings:
        """Where they go."""
        return Drawings(
            trace=output.target(self.out, "--out", TRACE),
            page=output.target(self.html, "--html", HTML),
            picture=output.target(self.svg, "--svg", SVG),
        )


class Drawings(NamedTuple):
    """The files of a step; one that no flag names is not written."""

    trace: JsonTarget
    page: JsonTarget
    picture: JsonTarget

    @property
    def are_on_stdout(self) -> bool:
        """Whether one of them takes the place of the text."""
        return any(each.is_stdout for each in self)

    @property
    def written(self) -> list[str]:
        """Names of the files."""
        return [str(each.path) for each in self if each.path is not None]

    def check(self, answer: JsonTarget, reads: Iterable[Path | None]) -> None:
        """Finds out early whether all files can be written, and ``answer`` as well. Raises InputError."""
        check_one_on_stdout((answer, *self))
        check_together((answer, *self), list(reads))

    def write(self, step: StepTimeline) -> None:
        """Writes those that are asked for. Raises InputError."""
        if self.trace.where is not None:
            from shardplan.reports.timeline.trace import trace_text

            self.trace.write_parts(trace_text(step))
        if self.page.where is not None:
            from shardplan.reports.timeline.page import timeline_html

            self.page.write_text(timeline_html(step))
        if self.picture.where is not None:
            from shardplan.reports.timeline.picture import timeline_svg

            self.picture.write_text(timeline_svg(step))


if TYPE_CHECKING:
    from shardplan.simulation.measured.answer import MeasuredAnswer
    from shardplan.simulation.timeline import StepTimeline


@dataclass(frozen=True, kw_only=True)
class MeasuredFlags:
    """A measured step and the plan that it is compared with."""

    PANEL = "Measured step"

    measured: bool = switch(
        "The files are those of a measured step: pp_rank_*.json of Primus, traces of the PyTorch profiler, "
        "or a CSV of passes."
    )
    against: Path | None = asked("Compare it with a plan of this plan file.", metavar="PLAN.json")
    step: str | None = asked("The step of the files. Default: the last complete one.", metavar="N")
    stages_out: str | None = asked("Write measured times of the stages as CSV for `simulate --stages`.", metavar="FILE")

    def check_unused(self) -> None:
        """Refuses flags of a measured step where none is given. Raises InputError."""
        given = {"--against": self.against, "--step": self.step, "--stages-out": self.stages_out}
        flag = next((name for name, value in given.items() if value is not None), None)
        if flag is not None:
            raise InputError(
                f"{flag} is given without --measured",
                rule=f"{flag} is about a measured step",
                hint="add --measured, and give the files of the measured step",
            )


def measured_timeline(
    files: Sequence[Path],
    flags: MeasuredFlags,
    step: StepForm,
    *,
    others: Mapping[str, bool],
    target: JsonTarget,
    drawn: Sequence[JsonTarget],
    draw: Callable[[StepTimeline], None],
) -> int:
    """Reads, compares and shows a measured step.

    ``others``: flags of simulated steps, and whether they are given; ``drawn``: files that ``draw`` writes.
    """
    _check(files, flags, step, others)
    stages = JsonTarget(flags.stages_out, "--stages-out", kind=CSV, is_forced=target.is_forced)
    check_one_on_stdout((target, *drawn, stages))
    stages.check(flags.against, *files, *(each.path for each in (target, *drawn)))
    from shardplan.answers.measured import measured_document
    from shardplan.render.record import document_record
    from shardplan.simulation.measured.answer import measured_answer
    from shardplan.simulation.step import UNDISTURBED

    plan = flags.against
    predicted = None if plan is None else plan_of_file(plan, step, UNDISTURBED)
    answer = measured_answer(files, step=flags.step, predicted=predicted)
    if any(each.where is not None for each in drawn):
        draw(answer.timeline)
    if flags.stages_out is not None:
        from shardplan.simulation.plan import stage_times_text

        stages.write_text(stage_times_text(answer.stage_times))
    written = [str(each.path) for each in (*drawn, stages) if each.path is not None]
    document = measured_document(answer, written, splits_gradients=_splits(answer) and stages.path is not None)
    target.write(document_record(document))
    if not any(each.is_stdout for each in (target, stages, *drawn)):
        from shardplan.render.page import Page
        from shardplan.render.terminal import show

        show(Page(), document)
    return 0


def _check(files: Sequence[Path], flags: MeasuredFlags, step: StepForm, others: Mapping[str, bool]) -> None:
    """Refuses flags that do nothing. Raises InputError."""
    if not files:
        raise InputError(
            "--measured is given without files",
            rule="a measured step is read from files",
            hint="give them: shardplan timeline --measured run/pp_rank_*.json --against PLAN.json",
        )
    of_plan = (
        {} if flags.against is not None else {"--pick": step.pick is not None, "--schedule": step.schedule is not None}
    )
    flag = next((name for name, is_given in {**others, **of_plan}.items() if is_given), None)
    if flag is not None:
        hint = "add --against PLAN.json" if flag in of_plan else f"leave {flag} out"
        raise InputError(
            f"{flag} is given with --measured", rule=f"{flag} is about a plan, not about measured times", hint=hint
        )


def _splits(answer: MeasuredAnswer) -> bool:
    """Whether gradients that were measured in one piece are split as predicted."""
    passes = answer.measurement.passes
    return answer.predicted is not None and passes is not None and not passes.stage_times.weight_gradient.any()


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
        from shardplan.simulation.plan import timeline_of

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
    from shardplan.simulation.plan import timeline_of_times
    from shardplan.simulation.step import simulate

    named, at, times = case_of_file(flags)
    return timeline_of_times(named, simulate(named, at, times, disturbance), times)

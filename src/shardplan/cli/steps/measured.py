"""``shardplan timeline --measured``: a measured step laid over the prediction of a plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from shardplan.ask.task_forms import StepForm
from shardplan.cli.simulate import plan_of_file
from shardplan.errors import InputError
from shardplan.fields import asked, dataclass, switch
from shardplan.outputs.target import CSV, JsonTarget

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
    stages.check(flags.against, *files, other=target)
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
        from shardplan.simulation.stage_times import stage_times_text

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

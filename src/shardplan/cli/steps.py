"""``shardplan simulate``: one step event by event, and the files that show it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shardplan.ask.task_forms import SimulateForm, StepForm
from shardplan.base.errors import InputError, shown
from shardplan.base.fields import asked, dataclass, switch
from shardplan.base.outputs import CSV, JsonTarget, check_one_on_stdout
from shardplan.cli.flags import OutputFlags, with_flags
from shardplan.cli.output import AnswerFiles, show_document
from shardplan.inputs.readers.typed import number, whole
from shardplan.inputs.routing import MOST_RATIO

if TYPE_CHECKING:
    from shardplan.answers.document import AnswerDocument
    from shardplan.estimation.question import Question
    from shardplan.inputs.plan import Plan
    from shardplan.physics.schedules.base import ChunkTimes, Pipeline, Schedule
    from shardplan.simulation.exchanges import Replicas
    from shardplan.simulation.measured.answer import MeasuredAnswer
    from shardplan.simulation.plan import SimulatedPlan
    from shardplan.simulation.step import Disturbance
    from shardplan.simulation.timeline import StepTimeline

ALL_SCHEDULES = "all"
"""Stands for all schedules."""
MOST_RANK = 1_000_000
MOST_SLOW = 1e6


def _disturbance_of(step: StepForm) -> Disturbance:
    """The disturbance of the flags for jitter and slow ranks. Raises InputError."""
    from shardplan.simulation.step import Disturbance

    return Disturbance(jitter=step.jitter, seed=step.seed, slowdown=_slow(step.slow_rank, "--slow-rank"))


def _slow(texts: Sequence[str] | None, flag: str) -> dict[int, float]:
    """Factors by number, from ``3=1.2``, several separated by commas. Raises InputError."""
    found: dict[int, float] = {}
    for text in (part for given in texts or () for part in given.split(",")):
        which, is_there, factor = text.partition("=")
        if not is_there:
            raise InputError(
                f"{flag} is {shown(text)}; it must be a number and a factor, such as 3=1.2",
                rule=f"{flag} is N=FACTOR",
                hint=f"set {flag} 3=1.2: number 3, from 0, takes 1.2 times as long",
            )
        place = whole(which, flag, least=0, most=MOST_RANK)
        if place in found:
            raise InputError(
                f"{flag} names {place} twice", rule="a number has one factor", hint=f"leave out one {place}=FACTOR"
            )
        found[place] = number(factor, flag, most=MOST_SLOW)
    return found


def _replicas(wanted: SimulateForm) -> Replicas:
    """The replicas of the flags; by default as many as the slow ones need. Raises InputError."""
    from shardplan.simulation.exchanges import Replicas

    slowdown = _slow(wanted.slow_replica, "--slow-replica")
    least = max(*slowdown, 1) + 1 if slowdown else 1  # a slow one, and one that is not slow
    return Replicas(count=wanted.replicas or least, slowdown=slowdown)


def _refuse_imbalance(flag: str, imbalance: str | None) -> None:
    if imbalance is not None:
        raise InputError(
            f"both {flag} and --expert-imbalance are given",
            rule="imbalance of experts changes the times of the estimate",
            hint=f"leave out {flag}, or change its times",
        )


def _check_one_given(plan: Path | None, times: Path | None) -> None:
    """Refuses both a plan and a case, and neither."""
    if (plan is None) == (times is None):
        raise InputError(
            "both PLAN.json and --times are given" if plan else "neither PLAN.json nor --times is given",
            rule="a simulation is of a plan or of a case with times",
            hint="give a plan file, or --times with a case",
        )


def _case(flags: StepForm, drawings: AnswerFiles, *, disturbance: Disturbance, replicas: Replicas) -> AnswerDocument:
    """Simulates a case. Raises InputError if flags of plans are given too."""
    from shardplan.answers.timeline import simulated_case_document
    from shardplan.simulation.exchanges import simulate_replicas
    from shardplan.simulation.plan import timeline_of_times
    from shardplan.simulation.step import closed_form_step_time
    from shardplan.simulation.step import simulate as simulated_step

    named, at, times = _case_of_file(flags)
    steps = simulate_replicas(lambda each: simulated_step(named, at, times, each), disturbance, replicas)
    shown = timeline_of_times(named, steps.step, times)
    _draw(shown, drawings)
    closed, has_transfers = closed_form_step_time(named, at, times), bool(times.transfer.any())
    return simulated_case_document(named, steps, shown, closed, has_transfers=has_transfers, written=drawings.written)


def _case_of_file(flags: StepForm) -> tuple[Schedule, Pipeline, ChunkTimes]:
    """The case of ``--times``. Raises InputError if flags of plans are given too."""
    if flags.schedule is not None or flags.stages is not None:
        flag = "--schedule" if flags.schedule is not None else "--stages"
        raise InputError(
            f"both --times and {flag} are given",
            rule="a case names its schedule and has all times",
            hint=f"leave {flag} out, and change the case",
        )
    from shardplan.simulation.case import read_case

    assert flags.times is not None
    return read_case(flags.times).load()


def _picked(file: Path, flags: StepForm) -> tuple[Question, Plan]:
    """The question of a plan file, and its chosen plan. Raises InputError."""
    from shardplan.cli.question import picked_from
    from shardplan.reports.plan_file import read_plan_file

    found = read_plan_file(file)
    return found.question, picked_from(found, flags.pick).plan


def _plan_of_file(
    file: Path,
    flags: StepForm,
    disturbance: Disturbance,
    *,
    replicas: Replicas | None = None,
    expert_imbalance: float | None = None,
) -> SimulatedPlan:
    """Simulates a plan of a plan file. Raises InputError."""
    from shardplan.simulation.case import schedule_named
    from shardplan.simulation.exchanges import ALONE
    from shardplan.simulation.plan import read_stage_times, simulate_plan

    question, plan = _picked(file, flags)
    return simulate_plan(
        question if expert_imbalance is None else _imbalanced(question, expert_imbalance),
        plan,
        schedule_named(plan.effective_schedule if flags.schedule is None else flags.schedule),
        times=None if flags.stages is None else read_stage_times(flags.stages, plan.pp * plan.vp),
        disturbance=disturbance,
        replicas=replicas or ALONE,
    )


def _imbalanced(question: Question, ratio: float) -> Question:
    """The question with experts whose most loaded rank has ``ratio`` times the mean tokens. Raises InputError."""
    from shardplan.inputs.layers import MixtureOfExperts

    if not any(isinstance(kind.mlp, MixtureOfExperts) for kind in question.model.layer_kinds):
        raise InputError(
            f"--expert-imbalance is given, and {question.model.name} has no experts",
            rule="imbalance of experts is that of a mixture of experts",
            hint="leave --expert-imbalance out",
        )
    return replace(question, job=replace(question.job, routing=f"{ratio:g}"))


@dataclass(frozen=True, kw_only=True)
class DrawingFlags:
    """Files that show the step."""

    PANEL = "Output"

    out: str | None = asked("Write the step as a trace that ui.perfetto.dev opens.", metavar="FILE")
    html: str | None = asked("Write the step as an interactive page: one file that works offline.", metavar="FILE")
    svg: str | None = asked("Write the step as a picture.", metavar="FILE")


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
        """Refuses flags of a measured step if none is given. Raises InputError."""
        given = {"--against": self.against, "--step": self.step, "--stages-out": self.stages_out}
        flag = next((name for name, value in given.items() if value is not None), None)
        if flag is not None:
            raise InputError(
                f"{flag} is given without --measured",
                rule=f"{flag} is about a measured step",
                hint="add --measured, and give the files of the measured step",
            )


FilesArgument = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="PLAN.json",
        show_default=False,
        help="A plan file that `plan` or `estimate` wrote; with --measured, the files of a measured step.",
    ),
]


@with_flags
def simulate(
    *,
    output: OutputFlags,
    drawn: DrawingFlags,
    measured: MeasuredFlags,
    files: FilesArgument = None,
    step: StepForm,
    wanted: SimulateForm,
) -> int:
    """Simulate a step event by event: what each stage does and waits for at every moment, and the memory it holds.

    Times and bytes are those of the estimate, whose step time is shown for comparison. With --times there is no
    memory.
    """
    drawings = AnswerFiles(output, drawn)
    drawings.check(*(files or ()), step.times, step.stages)
    disturbance, several = _disturbance_of(step), _replicas(wanted)
    if measured.measured:
        _check_measured(files or [], measured, step, wanted)
        return _measured_step(files or [], measured, step, drawings)
    measured.check_unused()
    plan = _only(files or [])
    _check_one_given(plan, step.times)
    if plan is None:
        _refuse_imbalance("--times", wanted.expert_imbalance)
        document = _case(step, drawings, disturbance=disturbance, replicas=several)
    else:
        document = _plan(plan, step, wanted, drawings, disturbance=disturbance, replicas=several)
    return show_document(document, drawings.answer, is_silent=drawings.are_on_stdout)


def _plan(
    file: Path,
    flags: StepForm,
    wanted: SimulateForm,
    drawings: AnswerFiles,
    *,
    disturbance: Disturbance,
    replicas: Replicas,
) -> AnswerDocument:
    """Simulates a plan of a plan file. Raises InputError."""
    uneven = wanted.expert_imbalance
    if flags.stages is not None:
        _refuse_imbalance("--stages", uneven)
    imbalance = None if uneven is None else number(uneven, "--expert-imbalance", least=1.0, most=MOST_RATIO)
    if flags.schedule == ALL_SCHEDULES:
        return _schedules(file, flags, drawings, disturbance=disturbance, replicas=replicas)
    simulated = _plan_of_file(file, flags, disturbance, replicas=replicas, expert_imbalance=imbalance)
    from shardplan.answers.timeline import simulated_plan_document
    from shardplan.simulation.plan import timeline_of

    shown = timeline_of(simulated)
    _draw(shown, drawings)
    return simulated_plan_document(simulated, shown, drawings.written)


def _schedules(
    file: Path, flags: StepForm, drawings: AnswerFiles, *, disturbance: Disturbance, replicas: Replicas
) -> AnswerDocument:
    """Simulates a plan under every schedule. Raises InputError if a single one is needed."""
    given = next((f"--{name}" for name in drawings.others if drawings.wants(name)), None)
    if given is not None or flags.stages is not None:
        flag = given or "--stages"
        raise InputError(
            f"--schedule all is given with {flag}", rule=f"{flag} is about one schedule", hint=f"leave {flag} out"
        )
    from shardplan.answers.step import schedules_document
    from shardplan.simulation.plan import simulate_plan
    from shardplan.simulation.schedules import compared_schedules

    question, plan = _picked(file, flags)
    simulated = partial(simulate_plan, question, disturbance=disturbance, replicas=replicas)
    return schedules_document(compared_schedules(plan, simulated))


def _draw(step: StepTimeline, files: AnswerFiles) -> None:
    """Writes the files that show the step. Raises InputError."""
    if files.wants("out"):
        from shardplan.reports.timeline.trace import trace_text

        files.others["out"].write_parts(trace_text(step))
    if files.wants("html"):
        from shardplan.reports.timeline.page import timeline_html

        files.others["html"].write_text(timeline_html(step))
    if files.wants("svg"):
        from shardplan.reports.timeline.picture import timeline_svg

        files.others["svg"].write_text(timeline_svg(step))


def _measured_step(files: Sequence[Path], flags: MeasuredFlags, step: StepForm, drawings: AnswerFiles) -> int:
    """Reads, compares and shows a measured step."""
    target = drawings.answer
    stages = JsonTarget(flags.stages_out, "--stages-out", kind=CSV, is_forced=target.is_forced)
    check_one_on_stdout((*drawings.all, stages))
    stages.check(flags.against, *files, *(each.path for each in drawings.all))
    from shardplan.answers.measured import measured_document
    from shardplan.simulation.measured.answer import measured_answer
    from shardplan.simulation.step import UNDISTURBED

    plan = flags.against
    predicted = None if plan is None else _plan_of_file(plan, step, UNDISTURBED)
    answer = measured_answer(files, step=flags.step, predicted=predicted)
    if drawings.wants(*drawings.others):
        _draw(answer.timeline, drawings)
    if flags.stages_out is not None:
        from shardplan.simulation.plan import stage_times_text

        stages.write_text(stage_times_text(answer.stage_times))
    written = [*drawings.written, *([] if stages.path is None else [str(stages.path)])]
    document = measured_document(answer, written, splits_gradients=_splits(answer) and stages.path is not None)
    return show_document(document, target, is_silent=stages.is_stdout or drawings.are_on_stdout)


def _check_measured(files: Sequence[Path], flags: MeasuredFlags, step: StepForm, wanted: SimulateForm) -> None:
    """Refuses flags that have no effect. Raises InputError."""
    if not files:
        raise InputError(
            "--measured is given without files",
            rule="a measured step is read from files",
            hint="give them: shardplan simulate --measured run/pp_rank_*.json --against PLAN.json",
        )
    others = {
        "--times": step.times is not None,
        "--stages": step.stages is not None,
        "--jitter": step.jitter > 0,
        "--slow-rank": bool(step.slow_rank),
        "--slow-replica": bool(wanted.slow_replica),
        "--replicas": wanted.replicas is not None,
        "--expert-imbalance": wanted.expert_imbalance is not None,
    }
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


def _only(files: Sequence[Path]) -> Path | None:
    """The plan file. Raises InputError if there are several."""
    if len(files) > 1:
        raise InputError(
            f"{len(files)} files are given",
            rule="the step of one plan is simulated",
            hint="give one plan file, or add --measured if these are files of a measured step",
        )
    return files[0] if files else None

"""A plan simulated event by event, with the prices of its estimate or with measured times, and its timeline.

Measured times of stages come from a CSV with a row for every model chunk.
"""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shardplan.base.errors import InputError, ShardplanError, shown
from shardplan.base.fields import dataclass
from shardplan.base.files import FileKind, csv_rows, printable, read_text
from shardplan.estimation.parts.chunks import OnceAStep
from shardplan.estimation.priced import PricedPlan
from shardplan.estimation.question import Question
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.physics.schedules.base import ChunkTimes, Pipeline, Schedule
from shardplan.physics.schedules.registry import closed_form, is_known, list_all_schedules, load_any_schedule
from shardplan.physics.validity import check_plans
from shardplan.simulation.case import Between
from shardplan.simulation.events import PlacedStep, events_of, memory_of
from shardplan.simulation.exchanges import ALONE, Replicas, ReplicaSteps, StateExchanges, simulate_replicas
from shardplan.simulation.pieces import MOST_PASSES, check_passes
from shardplan.simulation.step import UNDISTURBED, Disturbance, KnownSteps, SimulatedStep, simulate
from shardplan.simulation.timeline import Events, StepTimeline, stage_names


@dataclass(frozen=True, kw_only=True)
class SimulatedPlan:
    """A plan with its simulated step."""

    schedule: Schedule
    priced: PricedPlan
    """The plan with its prices, the same as in an estimate."""
    times: ChunkTimes
    """Times of the pieces before any disturbance."""
    replicas: ReplicaSteps
    """The micro-batches of the step in every data-parallel replica."""
    exchanges: StateExchanges
    """What states exchange once a step, in the slowest replica."""
    step_time: float
    """Step time with exposed exchanges of states, optimizer, fixed time and stragglers. [s]"""
    closed_form_time: float | None
    """The estimate of the same plan; None if the schedule has no closed form. [s]"""

    @property
    def step(self) -> SimulatedStep:
        """The micro-batches of the step, from the first piece to the last, in the slowest replica."""
        return self.replicas.step

    @property
    def bubble_rate(self) -> float:
        """Share of the whole step in which the busiest rank waits."""
        return self.step.bubble_time / self.step_time

    @property
    def once_a_step(self) -> OnceAStep:
        """What happens once a step, with the exchanges of states that these passes leave exposed."""
        return self.exchanges.once(self.priced.once_a_step)

    @property
    def plan(self) -> Plan:
        """The simulated plan."""
        return self.priced.plan


def simulate_plan(
    question: Question,
    plan: Plan,
    schedule: Schedule,
    *,
    times: ChunkTimes | None = None,
    disturbance: Disturbance = UNDISTURBED,
    replicas: Replicas = ALONE,
    most_passes: int = MOST_PASSES,
    between: Between | None = None,
) -> SimulatedPlan:
    """The step of ``plan`` under ``schedule``; measured ``times`` replace the estimate's.

    ``between`` is called now and then: an exception from it ends the simulation. Raises ``ShardplanError`` if the
    plan or the schedule is not valid.
    """
    as_priced = _plan_as_priced(plan, schedule)
    if schedule.name != plan.effective_schedule:
        _check_other(question, plan, schedule)
    check_plans((as_priced,), question.setting)
    priced = PricedPlan.of(question, as_priced)
    check_passes(pipeline_of(priced), replicas.count if disturbance.jitter else 1, most=most_passes)
    return simulate_priced(priced, schedule, times=times, disturbance=disturbance, replicas=replicas, between=between)


def simulate_priced(
    priced: PricedPlan,
    schedule: Schedule,
    *,
    times: ChunkTimes | None = None,
    disturbance: Disturbance = UNDISTURBED,
    replicas: Replicas = ALONE,
    between: Between | None = None,
    known: KnownSteps | None = None,
) -> SimulatedPlan:
    """Like ``simulate_plan``, for a valid plan with prices: several plans are best priced together.

    ``known`` holds steps of other plans; a plan with the same times reuses one of them.
    """
    used = priced.chunk_times if times is None else times
    dp = priced.question.num_accelerators // priced.plan.model_parallel_degree
    if replicas.count > dp:
        raise InputError(
            f"{replicas.count} replicas are asked for; the plan has dp {dp}",
            rule="a plan has as many replicas as data-parallel ranks",
            hint=f"simulate {dp} or fewer, numbered from 0",
        )
    at = pipeline_of(priced)
    run = simulate if known is None else known.simulate
    steps = simulate_replicas(lambda disturbed: run(schedule, at, used, disturbed, between), disturbance, replicas)
    exchanges = {
        number: StateExchanges(traffic=priced.step_traffic, step=step, times=priced.chunk_times)
        for number, step in steps.steps.items()
    }
    estimated = priced.once_a_step
    has_form = closed_form(schedule) is not None and times is None
    return SimulatedPlan(
        schedule=schedule,
        priced=priced,
        times=used,
        replicas=steps,
        exchanges=exchanges[steps.slowest],
        step_time=max(float(each.once(estimated).after(each.step.spans).max()) for each in exchanges.values()),
        closed_form_time=priced.step_time if has_form else None,
    )


def _check_other(question: Question, plan: Plan, schedule: Schedule) -> None:
    """Refuses to replace the schedule of a valid plan by one that cannot run its chunks and micro-batches."""
    check_plans((plan,), question.setting)
    at = _pipeline(plan, PlanNumbers.of(plan, question.num_accelerators, question.job))
    if schedule.can_run(at):
        return
    others = [name for name in list_all_schedules() if _can_simulate(question, plan, load_any_schedule(name), at)]
    sequences = plan.dp(question.num_accelerators) * plan.micro_batch_size
    name = schedule.name if is_known(schedule.name) else schedule.priced_as
    flags = [*schedule.flags(at, sequences), *(["--schedule", name] if name else [])]
    raise InputError(
        f"schedule {schedule.name} cannot run the plan, which has pp {at.pp}, vp {at.vp} "
        f"and {at.num_microbatches} micro-batches per replica",
        rule=schedule.rule,
        hint=f"this plan runs under {', '.join(others)}; for {schedule.name} write another plan file with "
        f"`shardplan estimate --from PLAN.json {' '.join(flags)} --json FILE`, and simulate that",
    )


def _can_simulate(question: Question, plan: Plan, schedule: Schedule, at: Pipeline) -> bool:
    """Whether a valid plan can be simulated under a schedule."""
    try:
        check_plans((_plan_as_priced(plan, schedule),), question.setting)
    except ShardplanError:
        return False
    return bool(schedule.can_run(at))


def pipeline_of(priced: PricedPlan) -> Pipeline:
    """The pipeline of a plan."""
    return _pipeline(priced.plan, priced.numbers)


def _pipeline(plan: Plan, numbers: PlanNumbers) -> Pipeline:
    return Pipeline(
        pp=plan.pp,
        vp=plan.vp,
        num_microbatches=int(numbers.num_microbatches),
        group_size=int(numbers.microbatch_group_size),
    )


def _plan_as_priced(plan: Plan, schedule: Schedule) -> Plan:
    """The plan with the schedule that estimates price: the given one, or one with the same layout."""
    name = schedule.name if is_known(schedule.name) else schedule.priced_as
    if name is None:
        loops = schedule.path(plan.pp, plan.vp, 1, 0) == Schedule.path(schedule, plan.pp, plan.vp, 1, 0)
        if not loops:
            raise InputError(
                f"the order of {schedule.title} does not lay its stages in a loop over the ranks",
                rule="a plan is priced with stages in a loop, or as one of the schedules that it can name",
                hint="give the times of its stages in a case: shardplan simulate --times case.json",
            )
        name = "interleaved" if plan.vp > 1 else "1f1b"
    return plan if name == plan.effective_schedule else replace(plan, schedule=name)


def timeline_of(simulated: SimulatedPlan) -> StepTimeline:
    """The step of a plan, with what happens once a step and with its memory."""
    at = PlacedStep.of(simulated.step, simulated.times, simulated.once_a_step, simulated.exchanges)
    events = events_of(at)
    return replace(
        _timeline(at, simulated.schedule, events, simulated.step_time),
        memory=memory_of(at, events, simulated.priced.memory_parts),
        layer=simulated.priced.layer_operators,
        subject=_subject(simulated.priced),
        usable_memory_bytes=float(simulated.priced.question.usable_memory),
    )


DEGREES: Final = ("tp", "cp", "pp", "vp", "ep")


def _subject(priced: PricedPlan) -> str:
    """The model, the accelerators and the plan in short."""
    question, plan, numbers = priced.question, priced.plan, priced.numbers
    words = [f"{name} {getattr(plan, name)}" for name in DEGREES if getattr(plan, name) > 1]
    words += [f"dp {int(numbers.dp)}", f"micro-batch {plan.micro_batch_size}", plan.sharding]
    words += [] if plan.recompute == "none" else [f"recompute {plan.recompute}"]
    where = f"{question.num_accelerators:,} x {question.cluster.accelerator.full_name}"
    return f"{question.model.name} on {where}: {', '.join(words)}"


def timeline_of_times(schedule: Schedule, step: SimulatedStep, times: ChunkTimes) -> StepTimeline:
    """The step of a schedule with given times: without what happens once a step, and without memory."""
    at = PlacedStep.of(step, times)
    return _timeline(at, schedule, events_of(at), step.step_time)


def _timeline(at: PlacedStep, schedule: Schedule, events: Events, step_time: float) -> StepTimeline:
    """The timeline of a step, titled with its schedule and its counts."""
    ranks, microbatches = len(at.step.ranks), int(at.step.pieces.microbatch.max()) + 1
    counts = f"{ranks:,} stage{'s' * (ranks != 1)}, {microbatches:,} micro-batch{'es' * (microbatches != 1)}"
    return StepTimeline(
        title=f"{schedule.title}, {counts}",
        rank_names=stage_names(ranks),
        events=events,
        step_time=step_time,
        pipeline_time=at.step.step_time,
        slowest=at.slowest,
    )


RULE: Final = (
    "a file of stage times has the columns forward_s and backward_s, or input_gradient_s and weight_gradient_s"
)
FILE: Final = FileKind("the stage times", 1024 * 1024, RULE)
COLUMNS: Final = ("stage", "forward_s", "backward_s", "input_gradient_s", "weight_gradient_s", "transfer_s")
MOST: Final = 1e9
"""Longest time of one pass. [s]"""


def read_stage_times(path: Path, num_chunks: int) -> ChunkTimes:
    """Seconds of one micro-batch in every chunk, rows in the order of the model. Raises InputError.

    ``backward_s`` is both gradients; ``transfer_s`` is optional and 0 by default.
    """
    label = printable(path.name)
    names, *lines = csv_rows(read_text(path, FILE), label, FILE) or [[]]
    rows = [dict(zip(names, line, strict=False)) for line in lines if line]
    given = set(names)
    unknown = sorted(str(name) for name in given - set(COLUMNS))
    if unknown:
        raise FILE.wrong(f"{label} has the column {shown(unknown[0])}", f"use {', '.join(COLUMNS)}")
    if "forward_s" not in given or not given & {"backward_s", "input_gradient_s"}:
        what = f"{label} lacks forward_s, or the times of the backward pass"
        raise FILE.wrong(what, "add the columns that are missing")
    if len(rows) != num_chunks:
        what = f"{label} has {len(rows)} rows for {num_chunks} chunks"
        raise FILE.wrong(what, "give a row for every chunk of the model")

    def column(name: str) -> NDArray[np.float64]:
        if name not in given:
            return np.zeros(num_chunks)
        cells = [(row.get(name), f"{label}, row {number}") for number, row in enumerate(rows, start=2)]
        return np.array([_seconds(text, name, where) for text, where in cells])

    return ChunkTimes(
        forward=column("forward_s"),
        input_gradient=column("backward_s" if "backward_s" in given else "input_gradient_s"),
        weight_gradient=column("weight_gradient_s"),
        transfer=column("transfer_s"),
    )


def stage_times_text(times: ChunkTimes) -> str:
    """``times`` as such a CSV, with one column for both gradients if no weight gradient has its own time."""
    split = bool(np.any(times.weight_gradient))
    gradients = {"input_gradient_s": times.input_gradient, "weight_gradient_s": times.weight_gradient}
    columns = {
        "stage": range(len(times.forward)),
        "forward_s": times.forward,
        **(gradients if split else {"backward_s": times.input_gradient}),
        "transfer_s": times.transfer,
    }
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(
        [stage, *(f"{seconds:.9g}" for seconds in row)] for stage, *row in zip(*columns.values(), strict=True)
    )
    return file.getvalue()


def with_gradients_split(times: ChunkTimes, like: ChunkTimes) -> ChunkTimes:
    """``times`` with gradients that were measured in one piece, split in the proportion of ``like``."""
    whole = like.input_gradient + like.weight_gradient
    share = np.divide(like.weight_gradient, whole, out=np.zeros_like(whole), where=whole > 0)
    measured = times.input_gradient
    return replace(times, input_gradient=measured * (1 - share), weight_gradient=measured * share)


def _seconds(text: str | None, name: str, where: str) -> float:
    try:
        seconds = float(text or "")
    except ValueError:
        seconds = float("nan")
    if not 0 <= seconds <= MOST:
        raise FILE.wrong(f"{where}: {name} is {shown(text)}", f"give seconds between 0 and {MOST:g}")
    return seconds

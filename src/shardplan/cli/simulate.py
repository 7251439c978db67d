"""``shardplan simulate``: the step of a plan, or of given times, run event by event."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shardplan.ask.task_forms import SimulateForm, StepForm
from shardplan.base.errors import InputError, shown
from shardplan.base.outputs import JsonTarget
from shardplan.cli.flags.option_groups import OutputFlags, with_flags
from shardplan.cli.pick import picked_from
from shardplan.inputs.readers.typed import number, whole
from shardplan.inputs.routing import MOST_RATIO

if TYPE_CHECKING:
    from shardplan.estimation.question import Question
    from shardplan.physics.schedules.base import ChunkTimes, Pipeline, Schedule
    from shardplan.simulation.exchanges import Replicas
    from shardplan.simulation.plan import SimulatedPlan
    from shardplan.simulation.step import Disturbance

MOST_RANK = 1_000_000
MOST_SLOW = 1e6

PlanArgument = Annotated[
    Path | None,
    typer.Argument(metavar="PLAN.json", show_default=False, help="A plan file that `plan` or `estimate` wrote."),
]


def disturbance_of(step: StepForm) -> Disturbance:
    """What the flags of jitter and of slow ranks say. Raises InputError."""
    from shardplan.simulation.step import Disturbance

    return Disturbance(jitter=step.jitter, seed=step.seed, slowdown=_slow(step.slow_rank, "--slow-rank"))


@with_flags
def simulate(
    *,
    output: OutputFlags,
    plan: PlanArgument = None,
    step: StepForm,
    wanted: SimulateForm,
) -> int:
    """Simulate a step event by event: when each stage computes and waits, and the memory it uses.

    The times are those of the estimate, pass by pass. The step time of the estimate is shown for comparison.
    """
    target = output.checked_target(plan, step.times, step.stages)
    disturbance, several, uneven = disturbance_of(step), _replicas(wanted), wanted.expert_imbalance
    check_one_given(plan, step.times)
    if step.times is not None:
        _refuse_imbalance("--times", uneven)
        return _case(step, target, disturbance=disturbance, replicas=several)
    assert plan is not None
    if step.stages is not None:
        _refuse_imbalance("--stages", uneven)
    imbalance = None
    if uneven is not None:
        imbalance = number(uneven, "--expert-imbalance", least=1.0, most=MOST_RATIO)
    simulated = plan_of_file(plan, step, disturbance, replicas=several, expert_imbalance=imbalance)
    from shardplan.answers.timeline import simulated_plan_document
    from shardplan.cli.show.document import show_document

    return show_document(simulated_plan_document(simulated), target)


def _slow(texts: Sequence[str] | None, flag: str) -> dict[int, float]:
    """Factors by number, from ``3=1.2``, several of them with commas. Raises InputError."""
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
    """What the flags of replicas say; without a number as many as the slow ones need. Raises InputError."""
    from shardplan.simulation.exchanges import Replicas

    slowdown = _slow(wanted.slow_replica, "--slow-replica")
    least = max(*slowdown, 1) + 1 if slowdown else 1  # a slow one, and one that is not
    return Replicas(count=wanted.replicas or least, slowdown=slowdown)


def _refuse_imbalance(flag: str, imbalance: str | None) -> None:
    if imbalance is not None:
        raise InputError(
            f"both {flag} and --expert-imbalance are given",
            rule="imbalance of experts changes the times of the estimate",
            hint=f"leave out {flag}, or change its times",
        )


def check_one_given(plan: Path | None, times: Path | None) -> None:
    """Refuses both a plan and a case, and neither."""
    if (plan is None) == (times is None):
        raise InputError(
            "both PLAN.json and --times are given" if plan else "neither PLAN.json nor --times is given",
            rule="a simulation is of a plan or of a case with times",
            hint="give a plan file, or --times with a case",
        )


def _case(flags: StepForm, target: JsonTarget, *, disturbance: Disturbance, replicas: Replicas) -> int:
    """Simulates a case. Raises InputError where flags of plans are given too."""
    from shardplan.answers.timeline import simulated_case_document
    from shardplan.cli.show.document import show_document
    from shardplan.simulation.exchanges import simulate_replicas
    from shardplan.simulation.step import closed_form_step_time
    from shardplan.simulation.step import simulate as simulated_step

    named, at, times = case_of_file(flags)
    steps = simulate_replicas(lambda each: simulated_step(named, at, times, each), disturbance, replicas)
    closed = closed_form_step_time(named, at, times)
    has_transfers = bool(times.transfer.any())
    return show_document(simulated_case_document(named, steps, closed, has_transfers=has_transfers), target)


def case_of_file(flags: StepForm) -> tuple[Schedule, Pipeline, ChunkTimes]:
    """The case of ``--times``. Raises InputError where flags of plans are given too."""
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


def plan_of_file(
    file: Path,
    flags: StepForm,
    disturbance: Disturbance,
    *,
    replicas: Replicas | None = None,
    expert_imbalance: float | None = None,
) -> SimulatedPlan:
    """Simulates a plan of a plan file. Raises InputError."""
    from shardplan.reports.plan_file import read_plan_file
    from shardplan.simulation.case import schedule_named
    from shardplan.simulation.exchanges import ALONE
    from shardplan.simulation.plan import read_stage_times, simulate_plan

    found = read_plan_file(file)
    plan = picked_from(found, flags.pick).plan
    return simulate_plan(
        found.question if expert_imbalance is None else _imbalanced(found.question, expert_imbalance),
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

"""``shardplan simulate``: the step of a plan, or of given times, run event by event."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shardplan.cli.flags.flag import flag
from shardplan.cli.flags.option_groups import with_flags
from shardplan.cli.flags.plan import OutputFlags, PickFlag
from shardplan.cli.pick import picked_from
from shardplan.errors import InputError, shown
from shardplan.fields import dataclass
from shardplan.inputs.job import MOST_IMBALANCE
from shardplan.inputs.readers.typed import number, whole
from shardplan.outputs.target import JsonTarget

if TYPE_CHECKING:
    from shardplan.estimation.question import Question
    from shardplan.schedules.base import ChunkTimes, Pipeline, Schedule
    from shardplan.simulation.plan import SimulatedPlan
    from shardplan.simulation.replicas import Replicas
    from shardplan.simulation.step import Disturbance

MOST_SEED = 2**63 - 1
MOST_JITTER = 1.0
MOST_RANK = 1_000_000
MOST_SLOW = 1e6

PlanArgument = Annotated[
    Path | None,
    typer.Argument(metavar="PLAN.json", show_default=False, help="A plan file that `plan` or `estimate` wrote."),
]
TimesFlag = Annotated[
    Path | None, flag("Simulate a case with times of its own, not a plan.", "--times", metavar="FILE")
]
ScheduleFlag = Annotated[
    str | None,
    flag(
        "Schedule in place of the plan's: a name that `shardplan schedules` lists, or a PyTorch schedule file.",
        metavar="NAME|FILE.csv",
    ),
]
StagesFlag = Annotated[
    Path | None, flag("Measured times of the stages in place of the estimate's, as CSV.", "--stages", metavar="FILE")
]
JitterFlag = Annotated[str, flag("Relative spread of the time of every pass, such as 0.02.", metavar="SHARE")]
SeedFlag = Annotated[str, flag("Random seed of the jitter.", metavar="N")]

SlowRankFlag = Annotated[
    list[str] | None,
    flag("Rank of the pipeline, from 0, whose passes take FACTOR times as long: 3=1.2.", metavar="N=FACTOR"),
]


@dataclass(frozen=True, kw_only=True)
class StepFlags:
    """What is simulated in place of the plan's own step, and what disturbs it."""

    times: TimesFlag = None
    pick: PickFlag = None
    schedule: ScheduleFlag = None
    stages: StagesFlag = None
    jitter: JitterFlag = "0"
    seed: SeedFlag = "0"
    slow_rank: SlowRankFlag = None

    @property
    def disturbance(self) -> Disturbance:
        """What the flags of jitter and of slow ranks say. Raises InputError."""
        from shardplan.simulation.step import Disturbance

        jitter = self.jitter
        return Disturbance(
            jitter=0.0 if jitter.strip() and not jitter.strip(" 0.") else number(jitter, "--jitter", most=MOST_JITTER),
            seed=whole(self.seed, "--seed", least=0, most=MOST_SEED),
            slowdown=_slow(self.slow_rank, "--slow-rank"),
        )


SlowReplicaFlag = Annotated[
    list[str] | None,
    flag(
        "Data-parallel replica, from 0, whose passes take FACTOR times as long; the others wait for it.",
        metavar="N=FACTOR",
    ),
]
ReplicasFlag = Annotated[
    str | None,
    flag(
        "Data-parallel replicas, each with its own jitter, that wait for one another. Default: one, or enough for "
        "--slow-replica.",
        metavar="N",
    ),
]
ImbalanceFlag = Annotated[
    str | None,
    flag(
        "Tokens of the most loaded rank of experts relative to the mean, in place of the job's: 1.3.", metavar="RATIO"
    ),
]


@with_flags
def simulate(
    *,
    output: OutputFlags,
    plan: PlanArgument = None,
    step: StepFlags,
    slow_replica: SlowReplicaFlag = None,
    replicas: ReplicasFlag = None,
    expert_imbalance: ImbalanceFlag = None,
) -> int:
    """Simulate a step event by event: when every stage works, waits, and how much it keeps.

    The times are those of the estimate, pass by pass. The closed form of the estimate is shown for comparison.
    """
    target = output.checked_target(plan, step.times, step.stages)
    disturbance, several = step.disturbance, _replicas(replicas, slow_replica)
    check_one_given(plan, step.times)
    if step.times is not None:
        _refuse_imbalance("--times", expert_imbalance)
        return _case(step, target, disturbance=disturbance, replicas=several)
    assert plan is not None
    if step.stages is not None:
        _refuse_imbalance("--stages", expert_imbalance)
    imbalance = None
    if expert_imbalance is not None:
        imbalance = number(expert_imbalance, "--expert-imbalance", least=1.0, most=MOST_IMBALANCE)
    simulated = plan_of_file(plan, step, disturbance, replicas=several, expert_imbalance=imbalance)
    from shardplan.answers.simulation import simulated_plan_document
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


def _replicas(count: str | None, slow: Sequence[str] | None) -> Replicas:
    """What the flags of replicas say; without a number as many as the slow ones need. Raises InputError."""
    from shardplan.simulation.replicas import MOST_REPLICAS, Replicas

    slowdown = _slow(slow, "--slow-replica")
    least = max(*slowdown, 1) + 1 if slowdown else 1  # a slow one, and one that is not
    number_of = least if count is None else whole(count, "--replicas", most=MOST_REPLICAS)
    return Replicas(count=number_of, slowdown=slowdown)


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


def _case(flags: StepFlags, target: JsonTarget, *, disturbance: Disturbance, replicas: Replicas) -> int:
    """Simulates a case. Raises InputError where flags of plans are given too."""
    from shardplan.answers.simulation import simulated_case_document
    from shardplan.cli.show.document import show_document
    from shardplan.simulation.closed import closed_form_step_time
    from shardplan.simulation.replicas import simulate_replicas
    from shardplan.simulation.step import simulate as simulated_step

    named, at, times = case_of_file(flags)
    steps = simulate_replicas(lambda each: simulated_step(named, at, times, each), disturbance, replicas)
    closed = closed_form_step_time(named, at, times)
    has_transfers = bool(times.transfer.any())
    return show_document(simulated_case_document(named, steps, closed, has_transfers=has_transfers), target)


def case_of_file(flags: StepFlags) -> tuple[Schedule, Pipeline, ChunkTimes]:
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
    flags: StepFlags,
    disturbance: Disturbance,
    *,
    replicas: Replicas | None = None,
    expert_imbalance: float | None = None,
) -> SimulatedPlan:
    """Simulates a plan of a plan file. Raises InputError."""
    from shardplan.reports.plan_file import read_plan_file
    from shardplan.simulation.case import schedule_named
    from shardplan.simulation.plan import simulate_plan
    from shardplan.simulation.replicas import ALONE
    from shardplan.simulation.stage_times import read_stage_times

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
    return replace(question, job=replace(question.job, moe_imbalance=ratio))

"""``shardplan simulate``: the step of a plan, or of given times, run event by event."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shardplan.cli.flags.option_groups import with_flags
from shardplan.cli.flags.plan import OutputFlags, PickFlag
from shardplan.cli.numbers import number, picked, whole
from shardplan.errors import InputError
from shardplan.outputs.target import JsonTarget

if TYPE_CHECKING:
    from shardplan.schedules.base import ChunkTimes, Pipeline, Schedule
    from shardplan.simulation.plan import SimulatedPlan
    from shardplan.simulation.step import Disturbance

MOST_SEED = 2**63 - 1
MOST_JITTER = 1.0

PlanArgument = Annotated[
    Path | None,
    typer.Argument(metavar="PLAN.json", show_default=False, help="A plan file that `plan` or `estimate` wrote."),
]
TimesFlag = Annotated[
    Path | None, typer.Option("--times", metavar="FILE", help="Simulate a case with times of its own, not a plan.")
]
ScheduleFlag = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|FILE.csv",
        help="Schedule in place of the plan's: a name that `shardplan schedules` lists, or a PyTorch schedule file.",
    ),
]
StagesFlag = Annotated[
    Path | None,
    typer.Option("--stages", metavar="FILE", help="Measured times of the stages in place of the estimate's, as CSV."),
]
JitterFlag = Annotated[
    str, typer.Option(metavar="SHARE", help="Relative spread of the time of every pass, such as 0.02.")
]
SeedFlag = Annotated[str, typer.Option(metavar="N", help="Random seed of the jitter.")]


@with_flags
def simulate(
    *,
    output: OutputFlags,
    plan: PlanArgument = None,
    times: TimesFlag = None,
    pick: PickFlag = None,
    schedule: ScheduleFlag = None,
    stages: StagesFlag = None,
    jitter: JitterFlag = "0",
    seed: SeedFlag = "0",
) -> int:
    """Simulate a step event by event: when every stage works, waits, and how much it keeps.

    The times are those of the estimate, pass by pass. The closed form of the estimate is shown for comparison.
    """
    target = output.target()
    target.check(plan, times, stages)
    disturbance = disturbance_of(jitter, seed)
    check_one_given(plan, times)
    if times is not None:
        return _case(times, schedule, stages, disturbance, target)
    assert plan is not None
    simulated = plan_of_file(plan, pick, schedule, stages, disturbance)
    from shardplan.reports.simulation import simulated_plan_record

    target.write(simulated_plan_record(simulated))
    if not target.is_stdout:
        from shardplan.cli.layout import Page
        from shardplan.cli.show.simulation import show_step

        closed = simulated.closed_form_time
        show_step(Page(), simulated.schedule, simulated.step, step_time=simulated.step_time, closed_form_time=closed)
    return 0


def disturbance_of(jitter: str, seed: str) -> Disturbance:
    """What the flags of jitter say. Raises InputError."""
    from shardplan.simulation.step import Disturbance

    return Disturbance(
        jitter=0.0 if jitter.strip() and not jitter.strip(" 0.") else number(jitter, "--jitter", most=MOST_JITTER),
        seed=whole(seed, "--seed", least=0, most=MOST_SEED),
    )


def check_one_given(plan: Path | None, times: Path | None) -> None:
    """Refuses both a plan and a case, and neither."""
    if (plan is None) == (times is None):
        raise InputError(
            "both PLAN.json and --times are given" if plan else "neither PLAN.json nor --times is given",
            rule="a simulation is of a plan or of a case with times",
            hint="give a plan file, or --times with a case",
        )


def _case(file: Path, schedule: str | None, stages: Path | None, disturbance: Disturbance, target: JsonTarget) -> int:
    """Simulates a case. Raises InputError where flags of plans are given too."""
    from shardplan.reports.simulation import simulation_record
    from shardplan.simulation.closed import closed_form_step_time
    from shardplan.simulation.step import simulate as simulated_step

    named, at, times = case_of_file(file, schedule, stages)
    step = simulated_step(named, at, times, disturbance)
    closed = closed_form_step_time(named, at, times)
    target.write(simulation_record(step, closed))
    if not target.is_stdout:
        from shardplan.cli.layout import Page
        from shardplan.cli.show.simulation import show_step

        show_step(Page(), named, step, step_time=step.step_time, closed_form_time=closed)
    return 0


def case_of_file(file: Path, schedule: str | None, stages: Path | None) -> tuple[Schedule, Pipeline, ChunkTimes]:
    """The case of a file. Raises InputError where flags of plans are given too."""
    if schedule is not None or stages is not None:
        flag = "--schedule" if schedule is not None else "--stages"
        raise InputError(
            f"both --times and {flag} are given",
            rule="a case names its schedule and has all times",
            hint=f"leave {flag} out, and change the case",
        )
    from shardplan.simulation.case import read_case

    return read_case(file).load()


def plan_of_file(
    file: Path, pick: str | None, schedule: str | None, stages: Path | None, disturbance: Disturbance
) -> SimulatedPlan:
    """Simulates a plan of a plan file. Raises InputError."""
    from shardplan.reports.plan_file import read_plan_file
    from shardplan.simulation.case import schedule_named
    from shardplan.simulation.plan import simulate_plan
    from shardplan.simulation.stage_times import read_stage_times

    found = read_plan_file(file)
    plan = found.pick(found.best_pick if pick is None else picked(pick)).plan
    return simulate_plan(
        found.question,
        plan,
        schedule_named(plan.effective_schedule if schedule is None else schedule),
        times=None if stages is None else read_stage_times(stages, plan.pp * plan.vp),
        disturbance=disturbance,
    )

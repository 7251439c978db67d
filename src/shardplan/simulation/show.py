"""The timeline of a simulated plan, or of a step with times of its own."""

from __future__ import annotations

from shardplan.schedules.base import ChunkTimes, Schedule
from shardplan.simulation.events import PlacedStep, events_of
from shardplan.simulation.memory import memory_of
from shardplan.simulation.plan import SimulatedPlan
from shardplan.simulation.step import SimulatedStep
from shardplan.simulation.timeline import StepTimeline


def timeline_of(simulated: SimulatedPlan) -> StepTimeline:
    """The step of a plan, with what comes once a step and with its memory."""
    at = PlacedStep.of(simulated.step, simulated.times, simulated.once_a_step, simulated.exchanges)
    events = events_of(at)
    return StepTimeline(
        title=_title(simulated.schedule, simulated.step),
        rank_names=simulated.step.pieces.rank_names,
        events=events,
        step_time=simulated.step_time,
        pipeline_time=simulated.step.step_time,
        slowest=at.slowest,
        memory=memory_of(at, events, simulated.priced.memory_parts),
        layer=simulated.priced.layer_operators,
    )


def timeline_of_times(schedule: Schedule, step: SimulatedStep, times: ChunkTimes) -> StepTimeline:
    """The step of a schedule with times that no plan gives: without what comes once a step, and without memory."""
    at = PlacedStep.of(step, times)
    return StepTimeline(
        title=_title(schedule, step),
        rank_names=step.pieces.rank_names,
        events=events_of(at),
        step_time=step.step_time,
        pipeline_time=step.step_time,
        slowest=at.slowest,
    )


def _title(schedule: Schedule, step: SimulatedStep) -> str:
    """The schedule and its counts."""
    num_microbatches = int(step.pieces.microbatch.max()) + 1
    return f"{schedule.title}, {_counted(len(step.ranks), 'rank')}, {_counted(num_microbatches, 'micro-batch')}"


def _counted(number: int, what: str) -> str:
    """A count with its noun."""
    many = "es" if what.endswith("h") else "s"
    return f"{number:,} {what}{'' if number == 1 else many}"

"""A simulated step as a record."""

from __future__ import annotations

from typing import Final

from shardplan.records import Record, plain
from shardplan.simulation.plan import SimulatedPlan
from shardplan.simulation.replicas import ReplicaSteps
from shardplan.simulation.step import SimulatedStep

SCHEMA: Final = "shardplan/simulation/1"


def simulation_record(step: SimulatedStep, closed_form_time: float | None) -> Record:
    """``ranks``: busy and idle seconds of the step, and chunk passes in flight, of every rank."""
    return {
        "schema": SCHEMA,
        "step_time_s": step.step_time,
        "bubble_rate": step.bubble_rate,
        "ranks": [
            {"busy_s": rank.busy_time, "idle_s": rank.idle_time, "peak_in_flight": rank.peak_in_flight}
            for rank in step.ranks
        ],
        "closed_form_step_time_s": closed_form_time,
    }


def replicas_record(steps: ReplicaSteps) -> Record:
    """Which of several replicas is slowest, and how long others wait for it; nothing of a single one."""
    if steps.count == 1:
        return {}
    return {
        "replicas": {"number": steps.count, "slowest": steps.slowest, "longest_wait_s": steps.longest_wait},
    }


def simulated_plan_record(simulated: SimulatedPlan) -> Record:
    """As ``simulation_record``, where ``step_time_s`` includes what comes once a step; ``pipeline_time_s`` does not."""
    record = simulation_record(simulated.step, simulated.closed_form_time)
    return {
        "schema": SCHEMA,
        "schedule": simulated.schedule.name,
        **record,
        "step_time_s": simulated.step_time,
        "pipeline_time_s": simulated.step.step_time,
        **replicas_record(simulated.replicas),
        "plan": plain(simulated.plan),
    }

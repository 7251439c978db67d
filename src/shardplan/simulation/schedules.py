"""One plan under every pipeline schedule that can run it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Final

from shardplan.base.errors import InputError, PlanError
from shardplan.base.fields import dataclass
from shardplan.inputs.plan import Plan
from shardplan.physics.schedules.base import Schedule
from shardplan.physics.schedules.registry import list_all_schedules, load_any_schedule
from shardplan.simulation.plan import SimulatedPlan, timeline_of

Simulate = Callable[[Plan, Schedule], SimulatedPlan]
VIRTUAL: Final = (2, 1)
"""Virtual stages that a schedule is tried with where it cannot run those of the plan."""


@dataclass(frozen=True, kw_only=True)
class UnderSchedule:
    """The plan under a schedule."""

    simulated: SimulatedPlan
    is_own: bool
    """Whether it is the plan's own schedule."""

    @cached_property
    def peak_memory_bytes(self) -> float:
        """Of the fullest stage, from event to event."""
        return max(trace.peak_bytes for trace in timeline_of(self.simulated).memory)

    @property
    def usable_memory_bytes(self) -> float:
        """Of an accelerator."""
        return float(self.simulated.priced.question.usable_memory)

    @property
    def most_in_flight(self) -> int:
        """Most passes through a chunk whose activations a stage keeps."""
        return max(rank.peak_in_flight for rank in self.simulated.step.ranks)


@dataclass(frozen=True, kw_only=True)
class ComparedSchedules:
    """The plan under every schedule, the fastest first."""

    plan: Plan
    rows: tuple[UnderSchedule, ...]
    refused: tuple[tuple[str, str], ...]
    """Schedules that cannot run the plan, each with the reason."""


def compared_schedules(plan: Plan, simulate: Simulate) -> ComparedSchedules:
    """``simulate`` gives the step under a schedule, or raises what forbids it. None without a pipeline."""
    names = list_all_schedules() if plan.pp > 1 else ()
    tried = {name: next(_tried(plan, load_any_schedule(name), simulate)) for name in names}
    rows = [
        UnderSchedule(simulated=each, is_own=name == plan.effective_schedule)
        for name, each in tried.items()
        if isinstance(each, SimulatedPlan)
    ]
    refused = tuple((name, each) for name, each in tried.items() if isinstance(each, str))
    return ComparedSchedules(
        plan=plan, rows=tuple(sorted(rows, key=lambda each: each.simulated.step_time)), refused=refused
    )


def _tried(plan: Plan, schedule: Schedule, simulate: Simulate) -> Iterator[SimulatedPlan | str]:
    """The step with the first number of virtual stages that the schedule can run; else why it cannot run the plan's."""
    why = ""
    for vp in dict.fromkeys((plan.vp, *VIRTUAL)):
        layers = plan.stage_layers if vp == plan.vp else None
        try:
            yield simulate(replace(plan, vp=vp, stage_layers=layers, schedule=None), schedule)
        except (InputError, PlanError) as error:
            why = why or error.message
    yield why

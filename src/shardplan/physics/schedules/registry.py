"""Schedules by name: those that ship with shardplan, and those that other packages or programs add.

A package adds one by an entry point of the group ``shardplan.schedules`` whose name is the schedule's own; a program by
``register``, in its own process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from shardplan.base.errors import InputError, UnknownNameError
from shardplan.inputs.schedule_names import BUILT_IN, SIMULATED
from shardplan.physics.schedules.base import PipelineSchedule, Schedule

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP: Final = "shardplan.schedules"


def _built_in(place: str) -> Any:
    module, _, kind = place.partition(":")
    return getattr(import_module(f"shardplan.physics.schedules.{module}"), kind)()


class Schedules(Mapping[str, PipelineSchedule]):
    """Schedules by name: those that ship with shardplan, each imported when it is first asked for, then added ones."""

    def __init__(self) -> None:
        self._made: dict[str, PipelineSchedule] = {}

    def __getitem__(self, name: str) -> PipelineSchedule:
        if name not in self._made and name in BUILT_IN:
            self._made[name] = _built_in(BUILT_IN[name].place)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*BUILT_IN, *self._made)))

    def __len__(self) -> int:
        return len({*BUILT_IN, *self._made})

    def __contains__(self, name: object) -> bool:
        return name in BUILT_IN or name in self._made

    def add(self, schedule: PipelineSchedule) -> None:
        """Adds one by its own name."""
        self._made[schedule.name] = schedule


SCHEDULES: Final = Schedules()
"""Those that this process knows without its installed packages."""

ONE_F_ONE_B: Final = SCHEDULES["1f1b"]
INTERLEAVED: Final = SCHEDULES["interleaved"]


def register(schedule: PipelineSchedule) -> None:
    """Adds a schedule, so that plans can name it. Raises ``InputError`` where it is none, or its name is taken."""
    fault = _fault(schedule)
    if fault:
        raise InputError(
            f"schedule {type(schedule).__name__} cannot be added: {fault}",
            rule="a schedule has a name of its own",
            hint="derive it from shardplan.physics.schedules.base.PipelineSchedule and give it another name",
        )
    SCHEDULES.add(schedule)


def load_schedule(name: str) -> PipelineSchedule:
    """The schedule called ``name``. Raises ``UnknownNameError``, or ``InputError`` where its package is at fault."""
    if name in SCHEDULES:
        return SCHEDULES[name]
    schedule, fault = _installed().get(name, (None, ""))
    if fault:
        raise InputError(
            f"schedule '{name}' cannot be used: {fault}",
            rule=f"an entry point of the group {GROUP} leads to a PipelineSchedule",
            hint="correct or remove the package that adds it",
        )
    if schedule is None:
        known = list_schedules()
        raise UnknownNameError("schedule", name, known, hint=f"one of {', '.join(known)}")
    return schedule


def load_any_schedule(name: str) -> Schedule:
    """The schedule called ``name``, also one that only the simulation runs. Raises as ``load_schedule``."""
    if name in SIMULATED and not is_known(name):
        schedule: Schedule = _built_in(SIMULATED[name])
        return schedule
    if is_known(name):
        return load_schedule(name)
    known = list_all_schedules()
    raise UnknownNameError("schedule", name, known, hint=f"one of {', '.join(known)}")


def closed_form(schedule: Schedule) -> PipelineSchedule | None:
    """The schedule whose closed form holds for this one: itself, the one that it names, or none."""
    if isinstance(schedule, PipelineSchedule):
        return schedule
    if schedule.priced_as is None or not schedule.closed_form_holds:
        return None
    return load_schedule(schedule.priced_as)


def is_known(name: str) -> bool:
    """Whether a schedule has this name."""
    return name in SCHEDULES or name in _installed()


def list_schedules() -> list[str]:
    """Names of all schedules, the built-in ones first."""
    return list(dict.fromkeys((*SCHEDULES, *_installed())))


def list_all_schedules() -> list[str]:
    """The same, and those that only the simulation runs."""
    return list(dict.fromkeys((*list_schedules(), *SIMULATED)))


@cache
def _installed() -> dict[str, tuple[PipelineSchedule | None, str]]:
    """What installed packages add: the schedule, or what is wrong with it. Built-in schedules cannot be replaced."""
    from importlib.metadata import entry_points  # takes longer to import than all schedules

    points = sorted(entry_points(group=GROUP), key=lambda point: point.name)
    return {point.name: _load(point) for point in points if point.name not in BUILT_IN}


def _load(point: EntryPoint) -> tuple[PipelineSchedule | None, str]:
    try:
        schedule = point.load()()
    except Exception as error:  # noqa: BLE001  # another package's code may fail in any way
        return None, f"{point.value} fails: {type(error).__name__}: {error!s:.200}"
    if not isinstance(schedule, PipelineSchedule):
        return None, f"{point.value} is not a PipelineSchedule"
    if schedule.name != point.name:
        return None, f"{point.value} calls itself '{schedule.name}', not '{point.name}'"
    return schedule, ""


def _fault(schedule: object) -> str:
    """Why it cannot be registered, if so."""
    if not isinstance(schedule, PipelineSchedule):
        return "it is not a PipelineSchedule"
    taken = SCHEDULES.get(schedule.name)
    same = taken is None or type(taken) is type(schedule)
    return "" if same else f"the name {schedule.name} is taken by {type(taken).__name__}"

"""Schedules by name: those that ship with shardplan, and those that other packages or programs add.

A package adds one by an entry point of the group ``shardplan.schedules`` whose name is the schedule's own; a program by
``register``.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Final

from shardplan.errors import InputError, UnknownNameError
from shardplan.schedules.base import PipelineSchedule
from shardplan.schedules.names import BUILT_IN

GROUP: Final = "shardplan.schedules"


def _built_in(place: str) -> PipelineSchedule:
    module, _, kind = place.partition(":")
    schedule: PipelineSchedule = getattr(import_module(f"shardplan.schedules.{module}"), kind)()
    return schedule


SCHEDULES: Final = {name: _built_in(place) for name, place in BUILT_IN.items()}
"""Those that ship with shardplan, then those that were added."""

ONE_F_ONE_B: Final = SCHEDULES["1f1b"]
INTERLEAVED: Final = SCHEDULES["interleaved"]


def register(schedule: PipelineSchedule) -> None:
    """Adds a schedule, so that plans can name it. Raises ``InputError`` where its name is taken."""
    if not isinstance(schedule, PipelineSchedule):
        raise _refused(schedule, "it is not a PipelineSchedule")
    taken = SCHEDULES.get(schedule.name)
    if taken is not None and type(taken) is not type(schedule):
        raise _refused(schedule, f"the name {schedule.name} is taken by {taken.title}")
    SCHEDULES[schedule.name] = schedule


def load_schedule(name: str) -> PipelineSchedule:
    """The schedule called ``name``. Raises ``UnknownNameError``, or ``InputError`` where its package is at fault."""
    if name not in SCHEDULES:
        _load_entry_points()
    if name not in SCHEDULES:
        known = list_schedules()
        raise UnknownNameError("schedule", name, known, hint=f"one of {', '.join(known)}")
    return SCHEDULES[name]


def is_known(name: str) -> bool:
    """Whether a schedule has this name."""
    return name in SCHEDULES or name in list_schedules()


def list_schedules() -> list[str]:
    """Names of all schedules, the built-in ones first."""
    _load_entry_points()
    return list(SCHEDULES)


@cache
def _load_entry_points() -> None:
    """Registers what installed packages add, once; a built-in schedule cannot be replaced."""
    for point in entry_points(group=GROUP):
        try:
            schedule = point.load()()
        except Exception as error:
            raise InputError(
                f"schedule '{point.name}' cannot be used: {point.value} fails: {type(error).__name__}: {error!s:.200}",
                rule=f"an entry point of the group {GROUP} leads to a PipelineSchedule",
                hint=f"correct or remove the package that gives {point.value}",
            ) from error
        register(schedule)


def _refused(schedule: object, why: str) -> InputError:
    return InputError(
        f"schedule {type(schedule).__name__} cannot be added: {why}",
        rule="a schedule has a name of its own",
        hint="derive it from shardplan.schedules.base.PipelineSchedule and give it another name",
    )

"""From a point of a grid to a question, with the framework and the limits of its plans."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from shardplan.ask import names
from shardplan.ask.questions import CHOICES, ask_search
from shardplan.estimation.question import Question
from shardplan.frameworks.stack import Stack
from shardplan.frameworks.usual_stack import stack_for
from shardplan.inputs.cluster import Cluster
from shardplan.inputs.readers.catalog import load_accelerator
from shardplan.inputs.readers.overrides import override
from shardplan.planner.restrictions import Restrictions, as_lists
from shardplan.sweeps.fields import RECOMMENDED, REPLACED, WHICH_PLAN
from shardplan.sweeps.grid import SweepGrid

Point = Mapping[str, Any]
model_named = lru_cache(maxsize=64)(names.model_of)
profile_named = lru_cache(maxsize=64)(names.profile_named)
cluster_named = lru_cache(maxsize=256)(names.cluster_of)
NAMED = ("model", "cluster", "accelerator", "profile")


class PutPoint(NamedTuple):
    """A question as the search takes it."""

    question: Question
    stack: Stack | None
    restrictions: Restrictions
    is_recommended: bool = False
    """Whether the plan to take is asked for, rather than the fastest."""


def put(point: Point) -> PutPoint:
    """The question at a point, with the defaults that ``shardplan plan`` takes. Raises InputError."""
    choices = {name: as_lists(_grouped(point, name)) for name in CHOICES}
    own = {name: value for name, value in point.items() if "." not in name and name not in (*NAMED, *REPLACED)}
    own.pop(WHICH_PLAN, None)
    profile = None if point.get("profile") is None else profile_named(point["profile"])
    record = {"model": model_named(point["model"]), "cluster": _cluster(point), "profile": profile, **own}
    asked = ask_search({**record, "software": _grouped(point, "software"), **choices})
    return PutPoint(asked.question, asked.stack, Restrictions(**choices), point.get(WHICH_PLAN) == RECOMMENDED)


def _cluster(point: Point) -> Cluster:
    """The cluster with what is replaced; those that are named are read once."""
    named = cluster_named(point.get("cluster"), point.get("accelerator"))
    values: Any = {name: point[name] for name in REPLACED if name in point}
    return override(named, values) if values else named


def _grouped(point: Point, group: str) -> dict[str, Any]:
    """Values of ``group.field`` by field."""
    return {name.removeprefix(f"{group}."): value for name, value in point.items() if name.startswith(f"{group}.")}


def check_names(grid: SweepGrid) -> None:
    """Finds names that are not known before anything is asked. Raises InputError."""
    checks: dict[str, Callable[[str], object]] = {
        "model": model_named,
        "cluster": cluster_named,
        "accelerator": load_accelerator,
        "stack": lambda name: stack_for(name, ""),
        "profile": profile_named,
    }
    for axis in grid.axes:
        for place, field in enumerate(axis.fields):
            for value in dict.fromkeys(values[place] for values in axis.values if field in checks):
                if value is not None:
                    checks[field](value)

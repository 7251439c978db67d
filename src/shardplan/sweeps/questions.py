"""From a point of a grid to a question, with the framework and the limits of its plans."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, cast

from shardplan.estimation.question import Question, put_question
from shardplan.frameworks.stack import Stack
from shardplan.frameworks.usual_stack import USUAL, stack_for
from shardplan.inputs.cluster import Cluster
from shardplan.inputs.job import Job
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.profile import Profile, generations, load_profile, read_profile
from shardplan.inputs.readers.catalog import cluster_of_accelerator, load_accelerator, load_cluster, load_model
from shardplan.inputs.readers.overrides import Overrides, override
from shardplan.planner.related.frameworks import under_fastest
from shardplan.planner.restrictions import Restrictions, as_lists
from shardplan.sweeps.fields import CHOICES, RECOMMENDED, REPLACED, WHICH_PLAN
from shardplan.sweeps.grid import SweepGrid

Point = Mapping[str, Any]


class PutPoint(NamedTuple):
    """A question as the search takes it."""

    question: Question
    stack: Stack | None
    restrictions: Restrictions
    is_recommended: bool = False
    """Whether the plan to take is asked for, rather than the fastest."""


def put(point: Point) -> PutPoint:
    """The question at a point, with the defaults that ``shardplan plan`` takes. Raises InputError."""
    model, cluster = model_named(point["model"]), _cluster(point)
    num_accelerators = _world(point, cluster)
    fields = {name: point[name] for name in JOB if name in point}
    profile = None if point.get("profile") is None else profile_named(point["profile"])
    software, stack = _grouped(point, "software"), point.get("stack", USUAL)
    asked = put_question(model, cluster, num_accelerators, fields, software=software, stack=stack, profile=profile)
    choices = {name: as_lists(_grouped(point, name)) for name in CHOICES}
    asked = under_fastest(asked, fix=choices["fix"], limit=choices["limit"], exclude=choices["exclude"])
    return PutPoint(asked.question, asked.stack, Restrictions(**choices), point.get(WHICH_PLAN) == RECOMMENDED)


JOB = tuple(name for name in Job.__dataclass_fields__ if name != "software")


@lru_cache(maxsize=64)
def model_named(name: str) -> ModelConfig:
    """The model of that name or path. Raises InputError."""
    return load_model(name)


@lru_cache(maxsize=64)
def profile_named(name: str) -> Profile:
    """The constants of a generation or a file. Raises InputError."""
    return load_profile(name) if name in ("default", *generations()) else read_profile(name)


@lru_cache(maxsize=256)
def cluster_named(cluster: str | None, accelerator: str | None) -> Cluster:
    """The cluster, or the usual one of an accelerator. Raises InputError."""
    if cluster is not None:
        return load_cluster(cluster, accelerator=accelerator)
    assert accelerator is not None
    return cluster_of_accelerator(accelerator)


def _cluster(point: Point) -> Cluster:
    named = cluster_named(point.get("cluster"), point.get("accelerator"))
    values = {name: point[name] for name in REPLACED if name in point}
    return override(named, cast("Overrides", values)) if values else named


def _world(point: Point, cluster: Cluster) -> int:
    if "num_accelerators" in point:
        return int(point["num_accelerators"])
    return int(point["nodes"]) * cluster.accelerators_per_node


def _grouped(point: Point, group: str) -> dict[str, Any]:
    """Values of ``group.field`` by field."""
    return {name.removeprefix(f"{group}."): value for name, value in point.items() if name.startswith(f"{group}.")}


def check_names(grid: SweepGrid) -> None:
    """Finds names that are not known before anything is asked. Raises InputError."""
    checks: dict[str, Callable[[str], object]] = {
        "model": model_named,
        "cluster": lambda name: cluster_named(name, None),
        "accelerator": load_accelerator,
        "stack": lambda name: stack_for(name, ""),
        "profile": profile_named,
    }
    for axis in grid.axes:
        for place, field in enumerate(axis.fields):
            for value in dict.fromkeys(values[place] for values in axis.values if field in checks):
                if value is not None:
                    checks[field](value)

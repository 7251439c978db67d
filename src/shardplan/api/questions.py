"""A question as people write it in Python: names, mappings or objects, and fields of the job as keywords."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any, TypedDict, Unpack

from shardplan.decisions.searching import Searches
from shardplan.errors import InputError, UnknownNameError, shown
from shardplan.estimation.question import PutQuestion, Question, put_question
from shardplan.fields import described, in_our_words
from shardplan.frameworks.defaults import stated
from shardplan.frameworks.stack import Stack
from shardplan.frameworks.usual_stack import USUAL
from shardplan.inputs.cluster import Cluster
from shardplan.inputs.job import Job
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.plan import Plan
from shardplan.inputs.profile import Profile, generations, load_profile, read_profile
from shardplan.inputs.readers.catalog import load_cluster, load_model
from shardplan.inputs.software import Software
from shardplan.planner.related.frameworks import under_fastest
from shardplan.planner.restrictions import LIBRARY, Given
from shardplan.planner.stopping import Stop

ModelLike = ModelConfig | Mapping[str, Any] | str | os.PathLike[str]
"""A model, a name, the path of a ``config.json`` or of its folder, or the content of one."""
ClusterLike = Cluster | str | os.PathLike[str]
"""A cluster, a name or the path of a file."""
PlanLike = Plan | Mapping[str, Any]
"""Fields of a plan, or a plan. What is left out, or is at its default in a :class:`Plan` that no answer holds, is as
usual in the framework."""
ProfileLike = Profile | str | os.PathLike[str]
"""A profile, the name of a generation or the path of a file."""
StackLike = Stack | str | None
"""A framework by name, ``usual`` for that of the accelerator; None limits plans by none."""


class JobFields(TypedDict, total=False):
    """Fields of :class:`Job` as keywords; those left out take the framework's default, or that of ``default_job``."""

    sequence_length: int | str
    global_batch_size: int
    precision: str
    optimizer: str
    attention: str
    grad_dtype: str
    moment_dtype: str
    dropout: bool
    moe_imbalance: float
    tokens: float | str | None
    documents: tuple[int, ...] | None
    train: str
    lora_rank: int
    lora_targets: str
    base_weights: str
    freeze: str
    software: Software | Mapping[str, Any]


class SearchFields(JobFields, total=False):
    """What every function that searches takes, as :func:`search` explains it, and fields of the job."""

    job: Job | Mapping[str, Any] | None
    fix: Given | None
    limit: Given | None
    exclude: Given | None
    without: str | Sequence[str] | None
    stack: StackLike
    profile: ProfileLike | None
    stop: Stop | None


def ask(
    model: ModelLike,
    cluster: ClusterLike,
    num_accelerators: int,
    *,
    job: Job | Mapping[str, Any] | None = None,
    profile: ProfileLike | None = None,
    stack: StackLike = USUAL,
    **fields: Unpack[JobFields],
) -> PutQuestion:
    """The question that the arguments put. Raises InputError, which names the argument."""
    config, hardware = model_of(model), cluster_of(cluster)
    if not isinstance(stack, Stack | str | None):
        raise _wrong("stack", stack, "the name of a framework, a Stack or None", '"megatron-lm"')
    if not isinstance(job, Job | Mapping | None):
        raise _wrong("job", job, "a mapping of its fields, or a Job", '{"global_batch_size": 512}')
    values = _known(fields, Job, "keyword", also=("software",))
    if isinstance(job, Mapping):
        values, job = _known(job, Job, "field of the job", also=("software",)) | values, None
    software = _software(values.pop("software", {}))
    constants = None if profile is None else profile_of(profile)
    values = in_our_words(Job, values)
    return put_question(
        config, hardware, num_accelerators, values, job=job, software=software, stack=stack, profile=constants
    )


def put_search(
    model: ModelLike, cluster: ClusterLike, num_accelerators: int, asked: SearchFields
) -> tuple[PutQuestion, Searches]:
    """The question, with all that was assumed for it and its search, and how it is searched. Raises InputError."""
    fields: dict[str, Any] = {**asked}
    stop = fields.pop("stop", None)
    choices = choices_of(**{name: fields.pop(name, None) for name in ("fix", "limit", "exclude", "without")})
    put = under_fastest(ask(model, cluster, num_accelerators, **fields), **choices, stop=stop)
    return put.restricted(choices), Searches(stack=put.stack, stop=stop, **choices)


def is_given(name: str, asked: SearchFields) -> bool:
    """Whether a field of the job is given, by itself or with a job."""
    job = asked.get("job")
    return name in asked or isinstance(job, Job) or (isinstance(job, Mapping) and name in job)


def question(
    model: ModelLike,
    cluster: ClusterLike,
    num_accelerators: int,
    *,
    job: Job | Mapping[str, Any] | None = None,
    profile: ProfileLike | None = None,
    stack: StackLike = USUAL,
    **fields: Unpack[JobFields],
) -> Question:
    """A question for ``search_many``: everything about a training run but the plan. Raises InputError.

    Arguments are those of :func:`search`; the job has the defaults of the framework ``stack``.
    """
    return ask(model, cluster, num_accelerators, job=job, profile=profile, stack=stack, **fields).question


def model_of(model: ModelLike) -> ModelConfig:
    """The model that is meant. Raises InputError."""
    if isinstance(model, ModelConfig):
        return model
    if isinstance(model, str | os.PathLike | Mapping):
        return load_model(model)
    raise _wrong(
        "model", model, "a name, the path or the content of a config.json, or a ModelConfig", '"llama-3.1-70b"'
    )


def cluster_of(cluster: ClusterLike) -> Cluster:
    """The cluster that is meant. Raises InputError."""
    if isinstance(cluster, Cluster):
        return cluster
    if isinstance(cluster, str | os.PathLike):
        return load_cluster(cluster)
    raise _wrong("cluster", cluster, "a name, the path of a file, or a Cluster", '"dgx-h100"')


def plan_of(plan: PlanLike) -> tuple[Plan, Collection[str]]:
    """The plan that is meant, and which of its fields are given. Raises InputError."""
    if isinstance(plan, Plan):
        return plan, stated(plan)
    if not isinstance(plan, Mapping):
        raise _wrong("plan", plan, "a mapping of its fields, or a Plan", '{"tp": 4, "pp": 2}')
    return Plan(**_known(plan, Plan, "plan")), {*plan}


def profile_of(profile: ProfileLike) -> Profile:
    """The constants that are meant. Raises InputError."""
    if isinstance(profile, Profile):
        return profile
    if isinstance(profile, str) and profile in ("default", *generations()):
        return load_profile(profile)
    if isinstance(profile, str | os.PathLike):
        return read_profile(profile)
    raise _wrong("profile", profile, "a generation, the path of a file, or a Profile", '"hopper"')


def choices_of(without: str | Sequence[str] | None = None, **choices: Any) -> dict[str, Any]:
    """``fix``, ``limit`` and ``exclude``, each a mapping or None; libraries ``without`` which plans must run.

    Raises InputError.
    """
    for name, value in choices.items():
        if not isinstance(value, Mapping | None):
            raise _wrong(name, value, "a mapping of fields of the plan to values", '{"tp": 4}')
    if without is not None:
        names = without.split(",") if isinstance(without, str) else without
        choices["exclude"] = {**(choices.get("exclude") or {}), LIBRARY: tuple(names)}
    return choices


def _software(software: Software | Mapping[str, Any]) -> dict[str, Any]:
    """Fields of the software that are given."""
    if isinstance(software, Software):
        return asdict(software)
    if not isinstance(software, Mapping):
        raise _wrong("software", software, "a mapping of its fields, or a Software", '{"kernels": "eager"}')
    return _known(software, Software, "field of software")


def _known(given: Mapping[str, Any], record: type[Any], what: str, also: tuple[str, ...] = ()) -> dict[str, Any]:
    """The fields, all of which the record has."""
    names = (*described(record), *also)
    for name in given:
        if name not in names:
            raise UnknownNameError(what, str(name)[:60], names, hint=f"see shardplan.{record.__name__}")
    return dict(given)


def _wrong(name: str, value: object, rule: str, example: str) -> InputError:
    return InputError(
        f"{name} is {shown(value)}; it must be {rule}", rule=f"{name} is {rule}", hint=f"write {name}={example}"
    )

"""Questions in Python: names, mappings or objects, and fields of the job as keywords."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypedDict, Unpack

from shardplan.ask import questions
from shardplan.ask.names import ClusterLike, ModelLike, ProfileLike, StackLike, cluster_of, model_of, wrong
from shardplan.ask.questions import choices_in, known_fields
from shardplan.decide.searching import Searches
from shardplan.estimation.question import PosedQuestion, Question
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.software import Software
from shardplan.physics.frameworks.defaults import stated
from shardplan.physics.frameworks.usual_stack import USUAL
from shardplan.planner.restrictions import Given
from shardplan.planner.stopping import Stop

__all__ = ["ClusterLike", "ModelLike", "ProfileLike", "StackLike", "cluster_of", "model_of"]
PlanLike = Plan | Mapping[str, Any]
"""Fields of a plan, or a plan. Missing fields, and fields at their default in a :class:`Plan` that is not from an
answer, take the framework's default.
"""


class JobFields(TypedDict, total=False):
    """Fields of :class:`Job` as keywords; missing ones take the framework's default, or that of ``default_job``."""

    sequence_length: int | str
    global_batch_size: int
    precision: str
    optimizer: str
    attention: str
    grad_dtype: str
    moment_dtype: str
    dropout: bool
    routing: str
    tokens: float | str | None
    documents: tuple[int, ...] | None
    train: str
    lora_rank: int
    lora_targets: str
    base_weights: str
    freeze: str
    companion: str | Mapping[str, ModelLike]
    software: Software | Mapping[str, Any]


class SearchFields(JobFields, total=False):
    """Arguments of every function that searches, as :func:`search` explains them, and fields of the job."""

    job: Job | Mapping[str, Any] | None
    fix: Given | None
    limit: Given | None
    exclude: Given | None
    without: str | Sequence[str] | None
    stack: StackLike
    profile: ProfileLike | None
    stop: Stop | None


def ask(model: ModelLike, cluster: ClusterLike, num_accelerators: int, **asked: Any) -> PosedQuestion:
    """The question of the arguments of :func:`question`. Raises InputError, which names the argument."""
    return questions.ask({"model": model, "cluster": cluster, "num_accelerators": num_accelerators, **asked})


def posed_search(
    model: ModelLike, cluster: ClusterLike, num_accelerators: int | str, asked: SearchFields
) -> tuple[PosedQuestion, Searches]:
    """The question with all assumptions, and how it is searched. Raises InputError."""
    fields: dict[str, Any] = {**asked}
    stop = fields.pop("stop", None)
    record = {"model": model, "cluster": cluster, "num_accelerators": num_accelerators, **fields}
    choices = choices_in(record)
    posed = questions.ask_search(record, stop=stop)
    return posed.restricted(choices), Searches.of(stack=posed.stack, stop=stop, **choices)


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
    """A question for ``search_many``: everything about a training run except the plan. Raises InputError.

    Arguments are those of :func:`search`; the job has the defaults of the framework ``stack``.
    """
    return ask(model, cluster, num_accelerators, job=job, profile=profile, stack=stack, **fields).question


def plan_of(plan: PlanLike) -> tuple[Plan, Collection[str]]:
    """The plan, and which of its fields are given. Raises InputError."""
    if isinstance(plan, Plan):
        return plan, stated(plan)
    if not isinstance(plan, Mapping):
        raise wrong("plan", plan, "a mapping of its fields, or a Plan", '{"tp": 4, "pp": 2}')
    return Plan(**known_fields(plan, Plan, "plan")), {*plan}

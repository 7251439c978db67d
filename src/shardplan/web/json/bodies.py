"""Bodies of requests. A question has the arguments of ``shardplan.search``; a plan file is that of ``--json``."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field

from shardplan.decisions.operations import Operations
from shardplan.inputs.counts import MAX_NUM_ACCELERATORS
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.software import Software
from shardplan.web.json.fields import MOST_LISTED, MOST_NAME, Body, body_of
from shardplan.web.settings import MOST_TEXT

MOST_PLANS: Final = 100
"""Plans that one answer lists."""
MOST_SIMULATED: Final = 100
MOST_SIDES: Final = 20
MOST_FACTOR: Final = 1e6

Name = Annotated[str, Field(min_length=1, max_length=MOST_NAME)]
Count = Annotated[int, Field(ge=1, le=MAX_NUM_ACCELERATORS)]
Scalar = bool | int | float | Name
Quantity = Annotated[float, Field(gt=0)] | Name
Restrictions = Annotated[dict[Name, Scalar | Annotated[list[Scalar], Field(max_length=MOST_LISTED)]], Field()]
PlanFileRecord = Annotated[
    dict[str, Any], Field(description="A plan file: the answer of /api/plan or /api/estimate, or a file of --json.")
]
Pick = Annotated[int, Field(ge=1, le=MOST_LISTED)] | Literal["recommended"]
Factors = Annotated[
    dict[Annotated[str, Field(pattern=r"^\d{1,6}$")], Annotated[float, Field(gt=0, le=MOST_FACTOR)]],
    Field(max_length=MOST_LISTED),
]

SoftwareBody = body_of(Software, "SoftwareBody", "How the training framework runs the job.")
PlanBody = body_of(Plan, "PlanBody", "A plan: how the job is laid out. Fields left out take their defaults.")
OperationsBody = body_of(Operations, "OperationsBody", "How a cluster is run for weeks: failures, checkpoints, energy.")


class JobBody(body_of(Job, "JobFields", "")):  # type: ignore[misc]  # its fields are those of the record
    """The job: what one step computes. Fields left out take the framework's defaults."""

    software: SoftwareBody | None = Field(None, description="Behaviours of the framework.")  # type: ignore[valid-type]


class OverridesBody(Body):
    """Single values of the cluster, replaced. A number is in SI units; a text carries its unit: ``450GB/s``."""

    intra_node_bandwidth: Quantity | None = Field(None, description="Inside the innermost tier, per accelerator.")
    inter_node_bandwidth: Quantity | None = Field(None, description="Around it; tiers further out keep their ratio.")
    intra_node_latency: Quantity | None = Field(None, description="Of one hop inside the innermost tier.")
    inter_node_latency: Quantity | None = Field(None, description="Of one hop around it.")
    node_size: Count | None = Field(None, description="Accelerators in one domain of the innermost tier.")
    memory: Quantity | None = Field(None, description="Of one accelerator.")
    memory_bandwidth: Quantity | None = Field(None, description="Of its memory.")
    price: Annotated[float, Field(ge=0)] | Name | None = Field(
        None, description="Of one accelerator for an hour. [USD]"
    )
    peak_flops: dict[Name, Quantity] | None = Field(None, description="Dense peaks by number format.")


class RunBody(Body):
    """What is trained, and where."""

    model: Name | dict[str, Any] = Field(description="Name of a built-in model, or the content of a config.json.")
    overrides: OverridesBody | None = Field(None, description="Values of the cluster that are replaced.")
    job: JobBody | None = Field(None, description="The job.")
    stack: Name | None = Field(None, description="Training framework; any for none. Default: the accelerator's usual.")
    profile: Name | None = Field(None, description="Generation whose constants are taken in place of the cluster's.")


class QuestionBody(RunBody):
    """Everything about a training run but the plan."""

    cluster: Name | dict[str, Any] | None = Field(
        None, description="Name of a built-in cluster, or the `cluster` of a plan file."
    )
    accelerator: Name | None = Field(None, description="Alone: in its usual cluster. With a cluster: in its network.")
    num_accelerators: Count = Field(description="Number of accelerators.")


class SpaceFields(Body):
    """The declared space of a search."""

    fix: Restrictions | None = Field(None, description='Fields of the plan that are fixed: {"tp": 4}.')
    limit: Restrictions | None = Field(None, description='Values that are searched: {"tp": [4, 8]}.')
    exclude: Restrictions | None = Field(None, description='Values that are left out: {"sharding": "zero3"}.')


class SearchBody(QuestionBody, SpaceFields):
    """A question, and which plans are searched."""

    top: Annotated[int, Field(ge=1, le=MOST_PLANS)] = Field(10, description="Plans to list.")
    simulate_top: Annotated[int, Field(ge=1, le=MOST_SIMULATED)] | None = Field(
        None, description="Simulate this many of the best plans and rank them by that."
    )
    prune: bool = Field(
        False,  # noqa: FBT003  # pydantic takes the default first
        description="Leave out plans that a bound shows to be too slow for the answer, which stays the same.",
    )
    use_all: bool = Field(
        False,  # noqa: FBT003
        description="Leave no accelerator idle, even where fewer of them take less time for the same batch.",
    )


class EstimateBody(QuestionBody):
    """A question, and one plan."""

    plan: PlanBody = Field(description="The plan. Fields left out take their defaults.")  # type: ignore[valid-type]


class CompareBody(Body):
    """Plans of plan files, to put side by side."""

    files: list[PlanFileRecord] = Field(min_length=1, max_length=MOST_SIDES, description="Plan files.")
    picks: list[Pick] | None = Field(
        None, max_length=MOST_SIDES, description="Plan of each file, from 1, or recommended; of one file, several."
    )


class FileBody(Body):
    """A plan of a plan file."""

    file: PlanFileRecord
    pick: Pick | None = Field(None, description="Which of its plans, from 1. Default: the recommended one.")


class ExportBody(FileBody):
    """A plan to write as launch files."""

    to: Name = Field(description="Training framework.")
    version: Name | None = Field(None, description="Its version. Default: that which the plan is for.")


class SimulateBody(FileBody):
    """A plan to simulate."""

    schedule: Name | None = Field(None, description="Pipeline schedule in place of the plan's.")
    jitter: Annotated[float, Field(ge=0, le=1)] = Field(0.0, description="Relative spread of the time of every pass.")
    seed: Annotated[int, Field(ge=0, le=2**53)] = Field(0, description="Random seed of the jitter.")
    slow_ranks: Factors | None = Field(None, description="Factor on the passes of a rank of the pipeline, from 0.")
    slow_replicas: Factors | None = Field(None, description="Factor on the passes of a data-parallel replica, from 0.")
    replicas: Annotated[int, Field(ge=1, le=64)] | None = Field(None, description="Data-parallel replicas.")


class AuditBody(Body):
    """A launch script or configuration. It is read, never run."""

    text: str = Field(min_length=1, max_length=MOST_TEXT, description="The script or configuration.")
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$")] = Field(
        "launch.sh", description="Its file name; the ending says what it is: .sh, .yaml, .json, .toml or .py."
    )
    model: Name | dict[str, Any] | None = Field(None, description="Model, where the file does not have it.")
    cluster: Name | dict[str, Any] | None = Field(None, description="Cluster, by name or as in a plan file.")
    num_accelerators: Count | None = Field(None, description="Number of accelerators, where the file does not say.")
    env: dict[Name, Annotated[str, Field(max_length=MOST_LISTED)]] = Field({}, description="Environment variables.")
    arguments: list[Name] = Field([], max_length=MOST_LISTED, description="Arguments of the script.")
    entry: Name | None = Field(None, description="Function of a configuration in Python.")
    given: dict[Name, Scalar] = Field({}, description="Values of keys that the file leaves open.")
    observed: list[Name] = Field([], max_length=MOST_SIDES, description="Measurements to explain: step 7.9s.")
    keep: list[Name] = Field([], max_length=MOST_SIDES, description="Fields of the plan that stay as they are.")


class BudgetBody(RunBody, SpaceFields):
    """A training run, and what it may take."""

    clusters: list[Name | dict[str, Any]] = Field(min_length=1, max_length=5, description="Clusters, side by side.")
    num_accelerators: Count | None = Field(None, description="It uses exactly this many accelerators.")
    days: Annotated[float, Field(gt=0, le=1e6)] | None = Field(None, description="At most this many days.")
    money: Annotated[float, Field(gt=0, le=1e15)] | None = Field(None, description="At most this cost.")
    energy: Annotated[float, Field(gt=0, le=1e15)] | None = Field(None, description="At most this energy. In kWh.")
    batch_ramp: Name | None = Field(None, description="Batches and the tokens up to which they hold: 512x4096:252M.")
    operations: OperationsBody | None = Field(None, description="How the cluster is run.")  # type: ignore[valid-type]

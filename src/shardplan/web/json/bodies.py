"""Bodies of requests. A question has the arguments of ``shardplan.search``; a plan file is that of ``--json``."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import Field

from shardplan.ask.forms import HOW, FileForm, QuestionForm, Replaced, SearchForm
from shardplan.ask.rl_forms import RlForm
from shardplan.ask.task_forms import BudgetForm, LaunchForm, SimulateForm, StepForm
from shardplan.base.fields import described
from shardplan.decide.operations import Operations
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.software import Software
from shardplan.web.json.fields import (
    MOST_LISTED,
    MOST_SIDES,
    TYPES,
    Body,
    Name,
    Pick,
    body_of,
    form_body,
    form_field,
)
from shardplan.web.settings import MOST_TEXT

PlanFileRecord = Annotated[
    dict[str, Any], Field(description="A plan file: the answer of /api/plan or /api/estimate, or a file of --json.")
]

SoftwareBody = body_of(Software, "SoftwareBody", "How the training framework runs the job.")
PlanBody = body_of(Plan, "PlanBody", "A plan: how the job is laid out. Fields left out take their defaults.")
OperationsBody = body_of(Operations, "OperationsBody", "How a cluster is run for weeks: failures, checkpoints, energy.")


class JobBody(body_of(Job, "JobFields", "")):  # type: ignore[misc]  # its fields are those of the record
    """The job: what one step computes. Fields left out take the framework's defaults."""

    software: SoftwareBody | None = Field(None, description="Behaviours of the framework.")  # type: ignore[valid-type]


OverridesBody = form_body(
    "OverridesBody",
    "Single values of the cluster, replaced. A number is in SI units; a text carries its unit: ``450GB/s``.",
    (Replaced, " ".join(described(Replaced))),
)
RUN: Final[dict[str, Any]] = {
    "overrides": (OverridesBody | None, Field(None, description="Values of the cluster that are replaced.")),
    "job": (JobBody | None, Field(None, description="The job.")),
}
"""The job, and what is replaced of the cluster."""
ON_CLUSTERS: Final = (QuestionForm, "model stack profile")
QUESTION: Final = (QuestionForm, "model stack profile cluster accelerator num_accelerators")
SPACE: Final = (SearchForm, "fix limit exclude")
LISTED: Final = (SearchForm, " ".join(HOW))

SearchBody = form_body("SearchBody", "A question, and which plans are searched.", SPACE, QUESTION, LISTED, **RUN)
EstimateBody = form_body(
    "EstimateBody",
    "A question, and one plan.",
    QUESTION,
    **RUN,
    plan=(PlanBody, Field(description="The plan. Fields left out take their defaults.")),
)
BudgetBody = form_body(
    "BudgetBody",
    "A training run, and what it may take.",
    SPACE,
    ON_CLUSTERS,
    (BudgetForm, "clusters num_accelerators days money energy batch_ramp"),
    **RUN,
    operations=(OperationsBody | None, Field(None, description="How the cluster is run.")),
)
RlBody = form_body(
    "RlBody",
    "A step of reinforcement learning: a question of its trainer, and what is generated for it.",
    SPACE,
    QUESTION,
    (RlForm, " ".join(described(RlForm))),
    **RUN,
    num_accelerators=(
        TYPES["pools"],
        Field(description="Number of accelerators, trainer+generation (64+128), or several sizes to compare."),
    ),
)


class CompareBody(Body):
    """Plans of plan files, to put side by side."""

    files: list[PlanFileRecord] = Field(min_length=1, max_length=MOST_SIDES, description="Plan files.")
    picks: list[Pick] | None = Field(
        None, max_length=MOST_SIDES, description="Plan of each file, from 1, or recommended; of one file, several."
    )


FILE: Final[dict[str, Any]] = {"file": (PlanFileRecord, ...), "pick": form_field(FileForm, "pick")}
ExportBody = form_body(
    "ExportBody",
    "A plan to write as launch files.",
    **FILE,
    to=(Name, Field(description="Training framework.")),
    version=(Name | None, Field(None, description="Its version. Default: that which the plan is for.")),
)
SimulateBody = form_body(
    "SimulateBody",
    "A plan to simulate.",
    (StepForm, "schedule jitter seed"),
    (SimulateForm, "replicas"),
    **FILE,
    slow_ranks=form_field(StepForm, "slow_rank"),
    slow_replicas=form_field(SimulateForm, "slow_replica"),
)


class AuditBody(
    form_body("AuditFields", "", (LaunchForm, "model cluster num_accelerators env entry given observed keep"))  # type: ignore[misc]
):
    """A launch script or configuration. It is read, never run."""

    text: str = Field(min_length=1, max_length=MOST_TEXT, description="The script or configuration.")
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$")] = Field(
        "launch.sh", description="Its file name; the ending says what it is: .sh, .yaml, .json, .toml or .py."
    )
    arguments: list[Name] = Field([], max_length=MOST_LISTED, description="Arguments of the script.")

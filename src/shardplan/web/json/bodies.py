"""Bodies of requests: a question has the arguments of search, a plan file is that of --json.

Fields of records are fields of bodies: type, bounds, choices and text are those that flags have too.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from math import inf
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator

from shardplan.ask.forms import HOW, FileForm, QuestionForm, Replaced, SearchForm
from shardplan.ask.rl_forms import RlDecisionForm, RlForm
from shardplan.ask.task_forms import BudgetForm, LaunchForm, SimulateForm, StepForm
from shardplan.base.fields import Described, described
from shardplan.decide.operations import Operations
from shardplan.inputs.counts import MAX_NUM_ACCELERATORS
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.software import Software
from shardplan.web.settings import MOST_TEXT

STRICT: Final = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
MOST_NAME: Final = 200
"""Characters of a name."""
MOST_LISTED: Final = 1000
"""Elements of a list."""
MOST_SIDES: Final = 20
MOST_CLUSTERS: Final = 5
MOST_FACTOR: Final = 1e6
MOST_AMOUNT: Final = 1e15
JSON_LARGEST: Final = 2**53
"""Above it not every whole number is one of JSON's."""


class Body(BaseModel):
    """An object of a request: every value of exactly its type, and no field that is not known."""

    model_config = STRICT

    def stated(self) -> dict[str, Any]:
        """The fields that the request has and that are not null."""
        return {
            name: value.stated() if isinstance(value, Body) else value
            for name in self.model_fields_set
            if (value := getattr(self, name)) is not None
        }


@cache
def body_of(record: Any, name: str, about: str) -> type[Body]:
    """A body with the described fields of a record, each of which may be left out."""
    fields: dict[str, Any] = {
        each.name: (_type(each), Field(default=None, description=_text_of(each))) for each in described(record).values()
    }
    return create_model(name, __base__=Body, __doc__=about, __validators__=_in_our_words(record), **fields)


def form_body(name: str, about: str, *forms: tuple[type[Any], str], **others: Any) -> type[Body]:
    """A body with fields of forms, each form with their names between spaces; ``others``: as pydantic takes them."""
    fields: dict[str, Any] = {each: form_field(form, each) for form, names in forms for each in names.split()}
    return create_model(name, __base__=Body, __doc__=about, **(fields | others))


def form_field(form: type[Any], name: str) -> tuple[Any, Any]:
    """Type and default of a field of a form."""
    field = described(form)[name]
    said = field.about.in_json
    takes = field.about.takes or ("quantity" if field.about.quantity else "")
    kind = TYPES[takes] if takes else _own_type(_as_in_json(field))
    if said.is_required:
        return kind, Field(description=_text_of(field))
    default = field.default if said.default is None else said.default
    is_optional = field.kind.may_be_none and said.default is None
    return kind | None if is_optional else kind, Field(default=default, description=_text_of(field))


def _as_in_json(field: Described) -> Described:
    """The field with the bound that it has in the JSON API."""
    about = field.about
    return field._replace(about=about._replace(most=min(about.most, about.in_json.most)))


def _in_our_words(record: Any) -> dict[str, Any]:
    """Other names of choices (``fsdp``) become ours before types are checked."""
    known = {name: field for name, field in described(record).items() if field.kind.choices}

    def translated(raw: Any) -> Any:
        if not isinstance(raw, Mapping):
            return raw
        return {name: known[name].meant(value) if name in known else value for name, value in raw.items()}

    return {"in_our_words": model_validator(mode="before")(translated)}


def _type(field: Described) -> Any:
    """The type of a value; null where the record has None, so that fields of a plan file can be asked again."""
    return _own_type(field) | None if field.kind.may_be_none else _own_type(field)


def _own_type(field: Described) -> Any:
    least, most = field.about.least, field.about.most
    if field.kind.choices:
        return Literal[field.kind.choices]
    whole = Annotated[int, Field(ge=_whole(least, -JSON_LARGEST), le=_whole(most, JSON_LARGEST))]
    if field.kind.base is int:
        return whole | _text() if field.about.is_length else whole
    if field.kind.base is tuple:
        return Annotated[list[whole], Field(min_length=1, max_length=MOST_LISTED)]
    if field.kind.base is float:
        number = Annotated[float, Field(**_bounds(field))]
        return number | _text() if field.about.is_count else number
    return _text() if field.kind.base is str else field.kind.base


def _whole(bound: float, otherwise: int) -> int:
    return otherwise if abs(bound) == inf else int(bound)


def _bounds(field: Described) -> dict[str, float]:
    least, most = field.about.least, field.about.most
    low = {} if least == -inf else {"ge" if field.about.includes_least else "gt": least}
    return low if most == inf else {**low, "le": most}


def _text() -> Any:
    return Annotated[str, Field(min_length=1, max_length=MOST_NAME)]


def _text_of(field: Described) -> str:
    """What it is, in what unit."""
    unit = f" In {field.about.unit}." if field.about.unit else ""
    return (field.about.in_json.help or field.about.help) + unit


Name = Annotated[str, Field(min_length=1, max_length=MOST_NAME)]
Scalar = bool | int | float | Name
Quantity = Annotated[float, Field(gt=0)] | Name
Pick = Annotated[int, Field(ge=1, le=MOST_LISTED)] | Literal["recommended"]
Count = Annotated[int, Field(ge=1, le=MAX_NUM_ACCELERATORS)]
TYPES: Final[dict[str, Any]] = {
    "name or content": Name | dict[str, Any],
    "yes or no": bool | Literal["yes", "no"],
    "count": Count | Annotated[str, Field(pattern=r"^[0-9]{1,8}x[0-9]{1,8}$")],
    "pools": Count
    | Annotated[str, Field(pattern=r"^[0-9]{1,9}(\+[0-9]{1,9})?$")]
    | Annotated[list[Count], Field(min_length=1, max_length=MOST_SIDES)],
    "quantity": Quantity,
    "price": Annotated[float, Field(ge=0)] | Name,
    "peaks": dict[Name, Quantity],
    "choices": Annotated[dict[Name, Scalar | Annotated[list[Scalar], Field(max_length=MOST_LISTED)]], Field()],
    "pick": Pick,
    "amount": Annotated[float, Field(gt=0, le=MOST_AMOUNT)],
    "clusters": Annotated[list[Name | dict[str, Any]], Field(min_length=1, max_length=MOST_CLUSTERS)],
    "factors": Annotated[
        dict[Annotated[str, Field(pattern=r"^\d{1,6}$")], Annotated[float, Field(gt=0, le=MOST_FACTOR)]],
        Field(max_length=MOST_LISTED),
    ],
    "variables": dict[Name, Annotated[str, Field(max_length=MOST_LISTED)]],
    "values": dict[Name, Scalar],
    "names": Annotated[list[Name], Field(max_length=MOST_SIDES)],
}
"""Types of what fields of forms take as text on the command line."""


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
    (RlDecisionForm, " ".join(described(RlDecisionForm))),
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

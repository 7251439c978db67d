"""Forms: the fields of a question, each declared once.

Flags and their help, bodies of the JSON API with their schema, fields of pages and columns of sweeps derive from them.
Fields of records (``Job``, ``Plan``, ``Software``) are declared with the records; a form says where they appear.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Any, Final

from shardplan.base.fields import FieldOf, FieldsOf, Given, InJson, asked, dataclass, described, switch
from shardplan.inputs.counts import MAX_NUM_ACCELERATORS
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan

CATALOG: Final = "inputs.readers.catalog"
MOST_TYPED: Final = 2**31
LISTED: Final = ("recompute", "stage_layers")
"""Fields of the plan whose values may have commas."""
MOST_PLANS: Final = 1000
MOST_PLANS_IN_JSON: Final = 100
_VALUE: Final[Mapping[str, Any]] = {"metavar": "VALUE", "is_rare": True}
_COUNT: Final[Mapping[str, Any]] = {"takes": "count", "least": 1, "most": MAX_NUM_ACCELERATORS}


@dataclass(frozen=True, kw_only=True)
class Replaced:
    """Single values of the cluster to replace: see :class:`shardplan.inputs.readers.overrides.Overrides`."""

    intra_node_bandwidth: str | None = asked(
        "Bandwidth inside the innermost tier, per accelerator and direction: 450, 450GB/s.",
        in_json=InJson("Inside the innermost tier, per accelerator."),
        in_form=("Bandwidth inside a node", "per accelerator: 450 GB/s"),
        quantity=("bandwidth", "bytes_per_s"),
        **_VALUE,
    )
    inter_node_bandwidth: str | None = asked(
        "Bandwidth of the first tier around a node: 25, 25GB/s, 200Gb/s. Tiers further out keep their ratio.",
        in_json=InJson("Around it; tiers further out keep their ratio."),
        in_form=("Bandwidth between nodes", "per accelerator: 50 GB/s, 400 Gb/s"),
        quantity=("bandwidth", "bytes_per_s"),
        **_VALUE,
    )
    intra_node_latency: str | None = asked(
        "Latency of one hop inside the innermost tier: 1us.",
        in_json=InJson("Of one hop inside the innermost tier."),
        in_form=("Latency inside a node", "1 us"),
        quantity=("time", "s"),
        **_VALUE,
    )
    inter_node_latency: str | None = asked(
        "Latency of one hop in the first tier around a node: 5us.",
        in_json=InJson("Of one hop around it."),
        in_form=("Latency between nodes", "5 us"),
        quantity=("time", "s"),
        **_VALUE,
    )
    node_size: int | None = asked(
        "Accelerators in one domain of the innermost tier.",
        least=1,
        most=MOST_TYPED,
        in_json=InJson(most=MAX_NUM_ACCELERATORS),
        in_form=("Accelerators in a node", "8"),
        **_VALUE,
    )
    memory: str | None = asked(
        "Memory of one accelerator: 141, 141GB, 80GiB.",
        in_json=InJson("Of one accelerator."),
        in_form=("Memory of an accelerator", "80 GiB, 141 GB"),
        quantity=("bytes", "bytes"),
        **_VALUE,
    )
    memory_bandwidth: str | None = asked(
        "Memory bandwidth of one accelerator: 3350, 3.35TB/s.",
        in_json=InJson("Of its memory."),
        in_form=("Memory bandwidth", "3.35 TB/s"),
        quantity=("bandwidth", "bytes_per_s"),
        **_VALUE,
    )
    peak_flops: str | None = asked(
        "Dense peaks by number format: bf16=989,fp8=1979 (TFLOP/s) or bf16=1.2PFLOP/s.",
        takes="peaks",
        in_json=InJson("Dense peaks by number format."),
        **_VALUE,
    )
    price: str | None = asked(
        "Price of an accelerator-hour: 2.5 (USD). Default: a public quote, if one is known.",
        takes="price",
        in_json=InJson("Of one accelerator for an hour. [USD]"),
        quantity=("price", "usd_per_hour"),
        **_VALUE,
    )


ReplacedFields = Annotated[Given, FieldsOf(Replaced, "Cluster")]
JobFields = Annotated[Given, FieldsOf(Job, "Job")]
PlanFields = Annotated[Given, FieldsOf(Plan, "Plan")]


@dataclass(frozen=True, kw_only=True)
class QuestionForm:
    """Everything about a training run except the plan."""

    model: str | None = asked(
        "Name (see `shardplan models`), path of a config.json or its folder, repository in the hub cache, or "
        "- for standard input.",
        is_argument=True,
        metavar="MODEL",
        completes=(CATALOG, "list_models"),
        takes="name or content",
        in_json=InJson("Name of a built-in model, or the content of a config.json.", is_required=True),
    )
    cluster: str | None = asked(
        "Name (see `shardplan clusters`) or a file.",
        panel="Cluster",
        metavar="NAME|FILE",
        completes=(CATALOG, "list_clusters"),
        takes="name or content",
        in_json=InJson("Name of a built-in cluster, or the `cluster` of a plan file."),
    )
    accelerator: str | None = asked(
        "Accelerator that replaces the cluster's; alone, it stands for its usual cluster.",
        panel="Cluster",
        metavar="NAME|FILE",
        completes=(CATALOG, "list_accelerators"),
        in_json=InJson("Alone: in its usual cluster. With a cluster: in its network."),
    )
    num_accelerators: str | None = asked(
        "Accelerators: 64, or 8x8 for 8 nodes of 8.",
        flags=("--gpus", "--num-accelerators"),
        panel="Cluster",
        metavar="N",
        in_json=InJson(is_required=True),
        **_COUNT,
    )
    nodes: str | None = asked("Number of nodes, instead of --gpus.", panel="Cluster", metavar="N", **_COUNT)
    job: JobFields = field(default_factory=dict)
    software: list[str] | None = asked(
        "Change a setting of the framework: kernels=eager,cuda_graphs=none (see `shardplan stacks --fields`).",
        panel="Job",
        is_rare=True,
        metavar="NAME=VALUE",
    )
    overrides: ReplacedFields = field(default_factory=dict)
    stack: str | None = asked(
        "Framework (see `shardplan stacks`; NAME@VERSION, NAME@YYYY-MM), any or all. Default: the usual.",
        panel="Job",
        metavar="NAME|FILE",
        completes=("physics.frameworks.stack", "list_stacks"),
        in_json=InJson("Training framework; any for none. Default: the accelerator's usual."),
    )
    profile: str | None = asked(
        "Constants that replace those of the accelerator's generation (see `shardplan profiles` and `calibrate`).",
        panel="Job",
        is_rare=True,
        metavar="FILE|GENERATION",
        completes=("inputs.profile", "generations"),
        in_json=InJson("Generation whose constants replace the cluster's."),
    )

    @property
    def reads(self) -> tuple[str | None, ...]:
        """Paths that the question may read."""
        return self.model, self.cluster, self.accelerator, self.stack, self.profile


ModelField = Annotated[str | None, FieldOf(QuestionForm, "model")]
SoftwareField = Annotated[list[str] | None, FieldOf(QuestionForm, "software")]
AcceleratorField = Annotated[str | None, FieldOf(QuestionForm, "accelerator")]
NodesField = Annotated[str | None, FieldOf(QuestionForm, "nodes")]
StackField = Annotated[str | None, FieldOf(QuestionForm, "stack")]
ProfileField = Annotated[str | None, FieldOf(QuestionForm, "profile")]


@dataclass(frozen=True, kw_only=True)
class SpaceForm:
    """The declared space of a search. Each field can be repeated, or take several fields: tp=4,pp=2."""

    PANEL = "Search"

    fix: list[str] | None = asked(
        "Fix a field: tp=4, recompute=full.",
        metavar="FIELD=VALUE",
        takes="choices",
        in_json=InJson('Fields of the plan that are fixed: {"tp": 4}.'),
    )
    limit: list[str] | None = asked(
        "Search these values only: pp=1,2,4 or pp=1..4.",
        metavar="FIELD=VALUES",
        takes="choices",
        in_json=InJson('Values that are searched: {"tp": [4, 8]}.'),
    )
    exclude: list[str] | None = asked(
        "Leave these values out: sharding=zero3.",
        metavar="FIELD=VALUES",
        takes="choices",
        in_json=InJson('Values that are left out: {"sharding": "zero3"}.'),
    )
    without: list[str] | None = asked(
        "Search only plans without these libraries: deepep,hybridep.", metavar="LIBRARIES", is_rare=True
    )


@dataclass(frozen=True, kw_only=True)
class SearchForm(SpaceForm):
    """The space of the search, and what the answer lists."""

    top: int | None = asked(
        "Number of plans to list. Default: 5, in JSON 10.",
        least=1,
        most=MOST_PLANS,
        in_json=InJson("Plans to list.", most=MOST_PLANS_IN_JSON, default=10),
    )
    simulate_top: int | None = asked(
        "Simulate the N best plans and rank them by that; 50 is enough for most questions.",
        is_rare=True,
        least=1,
        most=MOST_PLANS,
        in_json=InJson("Simulate this many of the best plans and rank them by that.", most=MOST_PLANS_IN_JSON),
    )
    prune: bool = switch(
        "Skip plans that a bound shows to be too slow. The answer is the same, in less time, but without the "
        "number of plans that fit.",
        is_rare=True,
        in_json=InJson("Skip plans that a bound shows to be too slow. The answer is the same."),
    )
    use_all: bool = switch("Leave no accelerator idle, even if fewer take less time for the same batch.", is_rare=True)


HOW: Final = tuple(name for name in described(SearchForm) if name not in described(SpaceForm))
"""Fields that say how a space is searched: arguments of ``search_question``."""


@dataclass(frozen=True, kw_only=True)
class FileForm:
    """A plan of a plan file."""

    PANEL = "Plan file"

    pick: str | None = asked(
        "Number of a plan of the file, from 1, or `recommended`. Default: recommended, if there is one.",
        metavar="N",
        takes="pick",
        in_json=InJson("Which of its plans, from 1. Default: the recommended one."),
    )


PickField = Annotated[str | None, FieldOf(FileForm, "pick")]

"""Flags of the commands, in groups that commands share.

A group is a dataclass whose fields are annotated as typer options (:mod:`shardplan.cli.flags.option_groups`), or the
fields of a record (:mod:`shardplan.cli.flags.records`). A flag that is not given is None; numbers arrive as text, since
:mod:`shardplan.inputs.readers.typed` says better than typer what is wrong with one.
"""

from __future__ import annotations

from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from shardplan.cli.flags.completion import listed_by, named
from shardplan.cli.flags.flag import flag
from shardplan.cli.flags.records import DETAILS, FlagsOf, Given
from shardplan.fields import dataclass
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.outputs.target import JSON, JsonTarget, OwnFile

_search = partial(flag, panel="Search")
_output = partial(flag, panel="Output", show_default=False)
_cluster = partial(flag, panel="Cluster")
_override = partial(flag, panel=f"Cluster{DETAILS}", metavar="VALUE")

ModelArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="MODEL",
        show_default=False,
        help="Name (see `shardplan models`), path of a config.json or its folder, repository in the hub cache, or "
        "- for standard input.",
        autocompletion=named("models"),
    ),
]
StackFlag = Annotated[
    str | None,
    flag(
        "Training framework, with its defaults and limits (see `shardplan stacks`); NAME@VERSION for a version, "
        "`any` for no limits, `all` to compare. Default: the usual one of the accelerator.",
        "--stack",
        panel="Job",
        metavar="NAME|FILE",
        autocompletion=listed_by("frameworks.stack", "list_stacks"),
    ),
]
ProfileFlag = Annotated[
    str | None,
    flag(
        "Constants in place of those of the accelerator's generation (see `shardplan profiles` and `calibrate`).",
        "--profile",
        panel=f"Job{DETAILS}",
        metavar="FILE|GENERATION",
        autocompletion=listed_by("inputs.profile", "generations"),
    ),
]
PickFlag = Annotated[
    str | None,
    flag(
        "Number of a plan of the file, from 1, or `recommended`. Default: recommended, if there is one.",
        panel="Plan file",
        metavar="N",
    ),
]

JobFlags = Annotated[Given, FlagsOf(Job, "Job")]
"""What one step computes."""
PlanFlags = Annotated[Given, FlagsOf(Plan, "Plan")]
"""Every field of a plan."""


@dataclass(frozen=True, kw_only=True)
class SoftwareFlags:
    """How the training framework runs the job."""

    software: Annotated[
        list[str] | None,
        flag(
            "A behaviour of the framework in place of its default: kernels=eager,cuda_graphs=none "
            "(see `shardplan stacks --fields`).",
            panel=f"Job{DETAILS}",
            metavar="NAME=VALUE",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ClusterFlags:
    """Which accelerators, and how many."""

    cluster: Annotated[
        str | None,
        _cluster(
            "Name (see `shardplan clusters`), or path of a file.", metavar="NAME|FILE", autocompletion=named("clusters")
        ),
    ] = None
    accelerator: Annotated[
        str | None,
        _cluster(
            "Alone: in its usual node and network. With --cluster: in that network.",
            metavar="NAME|FILE",
            autocompletion=named("accelerators"),
        ),
    ] = None
    num_accelerators: Annotated[
        str | None, _cluster("Number of accelerators.", "--gpus", "--num-accelerators", metavar="N")
    ] = None
    nodes: Annotated[str | None, _cluster("Number of nodes, in place of --gpus.", metavar="N")] = None


@dataclass(frozen=True, kw_only=True)
class OverrideFlags:
    """Single values of the cluster, replaced."""

    intra_node_bandwidth: Annotated[
        str | None, _override("Inside the innermost tier, per accelerator and direction: 450, 450GB/s.")
    ] = None
    inter_node_bandwidth: Annotated[
        str | None, _override("Around it; tiers further out keep their ratio: 25, 25GB/s, 200Gb/s.")
    ] = None
    intra_node_latency: Annotated[str | None, _override("Of one hop inside the innermost tier: 1us.")] = None
    inter_node_latency: Annotated[str | None, _override("Of one hop around it: 5us.")] = None
    node_size: Annotated[str | None, _override("Accelerators in one domain of the innermost tier.")] = None
    memory: Annotated[str | None, _override("Of one accelerator: 141, 141GB, 80GiB.")] = None
    memory_bandwidth: Annotated[str | None, _override("Of its memory: 3350, 3.35TB/s.")] = None
    peak_flops: Annotated[
        str | None, _override("Dense peaks by number format: bf16=989,fp8=1979 (TFLOP/s) or bf16=1.2PFLOP/s.")
    ] = None
    price: Annotated[
        str | None, _override("Of one accelerator for an hour: 2.5 (USD). Default: a public quote, where one is known.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class QuestionFlags:
    """All flags that put a question."""

    model: ModelArgument = None
    cluster: ClusterFlags = ClusterFlags()
    job: JobFlags = field(default_factory=dict)
    software: SoftwareFlags = SoftwareFlags()
    overrides: OverrideFlags = OverrideFlags()
    stack: StackFlag = None
    profile: ProfileFlag = None

    @property
    def reads(self) -> tuple[str | None, ...]:
        """What may be files."""
        return self.model, self.cluster.cluster, self.cluster.accelerator, self.stack, self.profile


@dataclass(frozen=True, kw_only=True)
class SpaceFlags:
    """The declared space of the search. All three can be repeated, or take several fields: tp=4,pp=2."""

    fix: Annotated[list[str] | None, _search("Fix a field: tp=4, recompute=full.", metavar="FIELD=VALUE")] = None
    limit: Annotated[
        list[str] | None, _search("Search these values only: pp=1,2,4 or pp=1..4.", metavar="FIELD=VALUES")
    ] = None
    exclude: Annotated[list[str] | None, _search("Leave these values out: sharding=zero3.", metavar="FIELD=VALUES")] = (
        None
    )

    without: Annotated[
        list[str] | None,
        _search("Libraries that are not installed: deepep,hybridep. No plan may need them.", metavar="LIBRARIES"),
    ] = None


@dataclass(frozen=True, kw_only=True)
class SearchFlags(SpaceFlags):
    """The space of the search, and what is listed of it."""

    top: Annotated[str | None, _search("Number of plans to list. Default: 5, in JSON 10.", metavar="N")] = None
    simulate_top: Annotated[
        str | None,
        _search("Simulate the N best plans and rank them by that; 50 is enough for most questions.", metavar="N"),
    ] = None
    prune: Annotated[
        bool,
        flag(
            "Leave out plans that a bound shows to be too slow for the answer. The answer is the same, in less "
            "time; how many plans fit is no longer known.",
            "--prune",
            panel="Search",
            show_default=False,
        ),
    ] = False
    use_all: Annotated[
        bool,
        flag(
            "Leave no accelerator idle, even where fewer of them take less time for the same batch.",
            "--use-all",
            panel="Search",
            show_default=False,
        ),
    ] = False


@dataclass(frozen=True, kw_only=True)
class DetailFlags:
    """How much of the answer is printed."""

    explain: Annotated[
        bool, _output("Also print the reasons: what limits the plan, alternatives, nearest measured runs.", "--explain")
    ] = False
    assumptions: Annotated[bool, _output("Also print all that was assumed.", "--assumptions")] = False
    all: Annotated[bool, _output("Print everything.", "--all")] = False

    @property
    def explains(self) -> bool:
        """Whether the reasons are printed."""
        return self.explain or self.all

    @property
    def states_assumptions(self) -> bool:
        """Whether the assumptions are printed."""
        return self.assumptions or self.all


@dataclass(frozen=True, kw_only=True)
class OutputFlags:
    """Where the answer goes."""

    json: Annotated[
        str | None,
        flag(
            "Write the answer as JSON to a file, or to standard output (-) in place of text.",
            panel="Output",
            metavar="FILE|-",
        ),
    ] = None
    force: Annotated[bool, flag("Replace files that shardplan did not write.", "--force", panel="Output")] = False

    def target(self, where: str | None = None, flag: str = "--json", kind: OwnFile = JSON) -> JsonTarget:
        """Where the file of ``flag`` goes; that of ``--json`` where none is named."""
        return JsonTarget(self.json if flag == "--json" else where, flag, kind=kind, is_forced=self.force)

    def checked_target(self, *reads: str | Path | None) -> JsonTarget:
        """As ``target``, once it is known that it can be written and is none of ``reads``. Raises InputError."""
        target = self.target()
        target.check(*reads)
        return target

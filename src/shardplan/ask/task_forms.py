"""Forms of commands other than a single search: decisions, one step, launch files."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

from shardplan.ask.forms import CATALOG, PickField
from shardplan.base.fields import InJson, asked, dataclass
from shardplan.inputs.counts import MAX_NUM_ACCELERATORS

LARGEST: Final = 1e30
MOST_SEED: Final = 2**63 - 1
MOST_SEED_IN_JSON: Final = 2**53
MOST_REPLICAS: Final = 4096
MOST_REPLICAS_IN_JSON: Final = 64
_MODEL: Final = partial(
    asked,
    "Model, if the file does not have its dimensions: name or path.",
    metavar="NAME|FILE",
    takes="name or content",
    in_json=InJson("Model, if the file does not have it."),
)
_CLUSTER: Final = partial(
    asked,
    "Cluster: name (see `shardplan clusters`) or path of a file.",
    metavar="NAME|FILE",
    takes="name or content",
    in_json=InJson("Cluster, by name or as in a plan file."),
)
_ENV: Final = partial(
    asked,
    "Value of an environment variable. Can be repeated.",
    metavar="NAME=VALUE",
    takes="variables",
    in_json=InJson("Environment variables.", default={}),
)
_OBSERVED: Final = partial(
    asked,
    'Measurement to explain: "step 7.9s", 1500tok/s, "120 TFLOP/s", "MFU 38%", "OOM rank 0". Can be repeated.',
    metavar="TEXT",
    takes="names",
    in_json=InJson("Measurements to explain: step 7.9s.", default=[]),
)
_GIVEN: Final = partial(
    asked,
    "Value that the file leaves open: vocab_size=128256. Can be repeated.",
    metavar="KEY=VALUE",
    takes="values",
    in_json=InJson("Values of keys that the file leaves open.", default={}),
)


@dataclass(frozen=True, kw_only=True)
class ScaleForm:
    """When more accelerators pay."""

    PANEL = "Search"

    least_gain: float | None = asked(
        "Least gain of an added accelerator that pays, relative to one at the smallest size. Default: 0.5.",
        least=0,
        most=1,
        metavar="SHARE",
    )


@dataclass(frozen=True, kw_only=True)
class SensitivityForm:
    """How far the hardware is changed."""

    PANEL = "Search"

    factor: float | None = asked(
        "Factor by which parameters are divided and multiplied. Default: 1.25.", least=1, most=10, metavar="FACTOR"
    )


@dataclass(frozen=True, kw_only=True)
class FitForm:
    """What is maximised or minimised."""

    PANEL = "Search"

    largest: str | None = asked("What to maximise: sequence_length, micro_batch_size or layers.", metavar="NAME")
    smallest: str | None = asked("What to minimise: gpus.", metavar="NAME")


@dataclass(frozen=True, kw_only=True)
class WhatIfForm:
    """The changes."""

    PANEL = "Change"

    change: list[str] | None = asked(
        "A value of the cluster or the job, as its flag takes it: inter_node_bandwidth=100, memory=141GB, "
        "peak_flops.bf16=2000, precision=fp8, gpus=1024, cluster=dgx-b200; or a relative change: gpus=2x, "
        "inter_node_bandwidth=+50%. Can be repeated.",
        metavar="NAME=VALUE",
    )


@dataclass(frozen=True, kw_only=True)
class BudgetForm:
    """The cluster and the limits of a run."""

    PANEL = "Budget: the others are worked out"

    clusters: str | None = asked(
        "Clusters (see `shardplan clusters`), or paths of files; several are set side by side.",
        flags=("--cluster", "--clusters"),
        panel="Cluster",
        metavar="NAME|FILE[,...]",
        completes=(CATALOG, "list_clusters"),
        takes="clusters",
        in_json=InJson("Clusters, side by side.", is_required=True),
    )
    days: float | None = asked(
        "Most days of the run.",
        least=0,
        most=LARGEST,
        in_json=InJson("At most this many days.", most=1e6),
    )
    num_accelerators: str | None = asked(
        "Number of accelerators of the run, 64 or 8x8; `shardplan pareto` compares sizes.",
        flags=("--gpus",),
        metavar="N",
        takes="count",
        least=1,
        most=MAX_NUM_ACCELERATORS,
        in_json=InJson("It uses exactly this many accelerators."),
    )
    money: str | None = asked("Most money: 50M.", metavar="N", takes="amount", in_json=InJson("At most this cost."))
    energy: str | None = asked(
        "Most energy: 20GWh; a bare number is in kWh.",
        metavar="VALUE",
        takes="amount",
        in_json=InJson("At most this energy. In kWh."),
    )
    batch_ramp: str | None = asked(
        "A batch, or batch x sequence length, until a number of tokens is done: 512x4096:252M,1024:2.87T.",
        panel="Job",
        metavar="BATCH[xLENGTH]:TOKENS,...",
        in_json=InJson("Batches and the tokens up to which they hold: 512x4096:252M."),
    )
    batch_limits: str | None = asked(
        "Choose the batch of every size within these sequences per step: 1024..4096.", panel="Job", metavar="LOW..HIGH"
    )


@dataclass(frozen=True, kw_only=True)
class StepForm:
    """The step to simulate instead of the plan's own, and its disturbances."""

    times: Path | None = asked("Simulate a case with its own times, instead of a plan.", metavar="FILE")
    pick: PickField = None
    schedule: str | None = asked(
        "Schedule that replaces the plan's: a name that `shardplan schedules` lists, a PyTorch schedule file, or all.",
        metavar="NAME|FILE.csv",
        in_json=InJson("Pipeline schedule that replaces the plan's."),
    )
    stages: Path | None = asked("Measured times of the stages that replace the estimate's, as CSV.", metavar="FILE")
    jitter: float = asked(
        "Relative spread of the time of every pass, such as 0.02.",
        default=0,
        least=0,
        most=1,
        includes_least=True,
        metavar="SHARE",
        in_json=InJson("Relative spread of the time of every pass.", default=0.0),
    )
    seed: int = asked(
        "Random seed of the jitter.",
        default=0,
        least=0,
        most=MOST_SEED,
        in_json=InJson(most=MOST_SEED_IN_JSON, default=0),
    )
    slow_rank: list[str] | None = asked(
        "Rank of the pipeline, from 0, whose passes take FACTOR times as long: 3=1.2.",
        metavar="N=FACTOR",
        takes="factors",
        in_json=InJson("Factor on the passes of a rank of the pipeline, from 0."),
    )


@dataclass(frozen=True, kw_only=True)
class SimulateForm:
    """Simulation of more than the step of one replica."""

    slow_replica: list[str] | None = asked(
        "Data-parallel replica, from 0, whose passes take FACTOR times as long; the others wait for it.",
        metavar="N=FACTOR",
        takes="factors",
        in_json=InJson("Factor on the passes of a data-parallel replica, from 0."),
    )
    replicas: int | None = asked(
        "Data-parallel replicas, each with its own jitter, that wait for one another. Default: one, or enough for "
        "--slow-replica.",
        least=1,
        most=MOST_REPLICAS,
        in_json=InJson("Data-parallel replicas.", most=MOST_REPLICAS_IN_JSON),
    )
    expert_imbalance: str | None = asked(
        "Tokens of the most loaded expert-parallel rank relative to the mean: 1.3. Default: the job's.", metavar="RATIO"
    )


@dataclass(frozen=True, kw_only=True)
class ObservedForm:
    """Measurements of a plan."""

    PANEL = "Measurement"

    observed: list[str] | None = _OBSERVED()


@dataclass(frozen=True, kw_only=True)
class LaunchForm:
    """Values that a launch file leaves open."""

    PANEL = "Question"

    model: str | None = _MODEL()
    cluster: str | None = _CLUSTER()
    num_accelerators: int | None = asked(
        "Number of accelerators, if the file does not state it.",
        flags=("--gpus", "--num-accelerators"),
        least=1,
        most=MAX_NUM_ACCELERATORS,
        in_json=InJson("Number of accelerators, if the file does not say."),
    )
    env: list[str] | None = _ENV()
    given: list[str] | None = _GIVEN()
    entry: str | None = asked("Function of a configuration in Python.", metavar="NAME")
    observed: list[str] | None = _OBSERVED()
    keep: str | None = asked(
        "Fields of the plan that improvements do not change: tp,pp.",
        metavar="FIELDS",
        takes="names",
        in_json=InJson("Fields of the plan that stay as they are.", default=[]),
    )


@dataclass(frozen=True, kw_only=True)
class ResumeForm:
    """Values that two launch files or plan files leave open."""

    PANEL = "Question"

    framework: str | None = asked(
        "Framework of plan files that name none: megatron-lm, torchtitan, deepspeed ...", metavar="NAME"
    )
    model: str | None = _MODEL()
    cluster: str | None = _CLUSTER()
    env: list[str] | None = _ENV()
    given: list[str] | None = _GIVEN()
    checkpoint_bandwidth: float | None = asked(
        "Bandwidth for reading checkpoints, per accelerator: 0.15GB/s.", unit="bytes/s", metavar="VALUE"
    )

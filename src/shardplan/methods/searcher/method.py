"""The heuristic searcher: time of an iteration of every (dp, tp, pp), and the fastest of them.

Every configuration is one element of the arrays below. Its units: TFLOP, GFLOP/s, GB/s of 1024 MB, milliseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import fields
from functools import partial
from typing import Annotated, Any, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationInfo, field_validator

from shardplan.base.arrays import divisors
from shardplan.base.fields import dataclass
from shardplan.inputs.cluster import Cluster
from shardplan.inputs.job import Job
from shardplan.inputs.model import ModelConfig
from shardplan.methods.base import Case, Method, MethodAnswer, MethodRow
from shardplan.methods.fields import LARGEST, Positive, StrictFields, Whole, json_cases, read_fields
from shardplan.methods.mapping import case_of, even_nodes, layer_work

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BASE_EFFICIENCY: Final = 0.35
DP_PENALTY: Final = 0.20
TP_PENALTY: Final = 0.25
IMBALANCE_PENALTY: Final = 0.1
PP_OVERLAP: Final = 0.60
MB_PER_GB: Final = 1024
MS: Final = 1000.0
MOST_GPUS: Final = 10_000_000

NotNegative = Annotated[float, Field(ge=0, le=LARGEST)]
Numbers = Annotated[Sequence[NotNegative], Field(min_length=1, max_length=100_000)]


class SearcherCluster(StrictFields):
    """The cluster in the searcher's words."""

    n_node: Annotated[Whole, Field(ge=1, le=MOST_GPUS)]
    n_gpu_per_node: Annotated[Whole, Field(ge=1, le=MOST_GPUS)]
    gpu_gflops: Positive
    bw_gpu_to_gpu: Positive
    """Bandwidth inside a node. [GB/s]"""
    bw_inter_node: Positive
    """Bandwidth between nodes. [GB/s]"""

    @field_validator("n_gpu_per_node")
    @classmethod
    def _not_too_many(cls, value: int, info: ValidationInfo) -> int:
        if value * info.data.get("n_node", 1) > MOST_GPUS:
            raise ValueError(f"n_node x n_gpu_per_node must be at most {MOST_GPUS:,}")
        return value

    @property
    def num_gpus(self) -> int:
        """All of them."""
        return self.n_node * self.n_gpu_per_node


class SearcherModel(StrictFields):
    """The model in the searcher's words, for one iteration."""

    layer_tflops: Numbers
    """Forward work of each layer. [TFLOP]"""
    dp_sum_gradient_MB: NotNegative  # noqa: N815  # the name in the file
    tp_comm_sum_MB: NotNegative  # noqa: N815
    layer_activation_MB: Numbers  # noqa: N815
    num_layers: Annotated[Whole, Field(ge=1, le=100_000)]
    """Deepest pipeline that is tried."""


class SearcherCase(StrictFields):
    """One question to the searcher."""

    cluster: SearcherCluster
    model: SearcherModel


@dataclass(frozen=True, kw_only=True)
class Configurations:
    """Every configuration and the parts of its iteration time. [ms]"""

    dp: Ints
    tp: Ints
    pp: Ints
    eff: Floats
    """Share of the GPUs' rate that is reached."""
    compute_ms: Floats
    dp_ms: Floats
    tp_ms: Floats
    pp_ms: Floats
    total_ms: Floats

    @property
    def best(self) -> int:
        """Index of the fastest; of several, the first."""
        return int(np.argmin(self.total_ms))

    def row(self, index: int) -> dict[str, Any]:
        """One configuration in the words of the reference file."""
        return {field.name: getattr(self, field.name)[index].item() for field in fields(self)}


def search(case: SearcherCase, *, executor: Executor | None = None, num_chunks: int = 8) -> Configurations:
    """Evaluates every configuration of the cluster's GPUs, dp outermost.

    An ``executor`` computes it in ``num_chunks`` calls that other processes can run; the answer is the same to the last
    bit.
    """
    degrees = _degrees(case.cluster.num_gpus, case.model.num_layers)
    if executor is None:
        return evaluate(case, degrees)
    chunks = [chunk for chunk in np.array_split(degrees, max(num_chunks, 1)) if len(chunk)]
    parts = list(executor.map(partial(evaluate, case), chunks))
    names = [field.name for field in fields(Configurations)]
    return Configurations(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})


def evaluate(case: SearcherCase, degrees: Ints) -> Configurations:
    """Iteration time of each row (dp, tp, pp) of ``degrees``: four parts, added up."""
    (dp, tp, pp), cluster, model = degrees.T, case.cluster, case.model
    eff = _efficiency(dp, tp)
    inside = cluster.bw_gpu_to_gpu * MB_PER_GB
    of_gradients = np.where(dp <= cluster.n_gpu_per_node, cluster.bw_gpu_to_gpu, cluster.bw_inter_node) * MB_PER_GB
    parts = {
        "compute_ms": _compute_ms(case, dp, tp, pp, eff),
        "dp_ms": model.dp_sum_gradient_MB * _ring(dp) / of_gradients * MS,  # fast links if all GPUs fit into one node
        "tp_ms": model.tp_comm_sum_MB / tp * _ring(tp) / inside * MS,  # a tp-th of the messages, on the fast links
        "pp_ms": (pp - 1.0) * 2 * max(model.layer_activation_MB) / inside * MS,  # there and back over every boundary
    }
    return Configurations(dp=dp, tp=tp, pp=pp, eff=eff, **parts, total_ms=np.sum(list(parts.values()), axis=0))


def _degrees(num_gpus: int, deepest: int) -> Ints:
    """All (dp, tp, pp) whose product is the number of GPUs, without pipelines deeper than the layers."""
    dp, tp = (grid.ravel() for grid in np.meshgrid(*[divisors(num_gpus)] * 2, indexing="ij"))
    whole = num_gpus % (dp * tp) == 0
    dp, tp = dp[whole], tp[whole]
    pp = num_gpus // (dp * tp)
    return np.column_stack([dp, tp, pp])[pp <= deepest]


def _efficiency(dp: Ints, tp: Ints) -> Floats:
    r"""Reached share of the peak, :math:`0.35 / ((1 + 0.2 (d - 1)) (1 + 0.25 (t - 1)) (1 + 0.1 |d - t|))`."""
    penalties = (1 + DP_PENALTY * (dp - 1), 1 + TP_PENALTY * (tp - 1), 1 + IMBALANCE_PENALTY * np.abs(dp - tp))
    return BASE_EFFICIENCY / penalties[0] / penalties[1] / penalties[2]


def _compute_ms(case: SearcherCase, dp: Ints, tp: Ints, pp: Ints, eff: Floats) -> Floats:
    r"""Forward and backward, three times the forward FLOP, on dp x tp GPUs; divided by 0.6 if there are stages."""
    tflops_per_second = case.cluster.gpu_gflops / 1000 * dp * tp
    time = MS * 3 * sum(case.model.layer_tflops) / tflops_per_second / eff
    return np.where(pp > 1, time / PP_OVERLAP, time)


def _ring(ranks: Ints) -> Floats:
    """Times the message that each rank of a ring all-reduce sends; 0 for one rank."""
    return 2 * (ranks - 1) / ranks


def result_file(found: Configurations) -> str:
    """The searcher's JSON result file: ``"dp, tp, pp": "12.3456ms/iter"`` for every configuration."""
    rows = zip(found.dp, found.tp, found.pp, found.total_ms, strict=True)
    return json.dumps({f"{dp}, {tp}, {pp}": f"{time:.4f}ms/iter" for dp, tp, pp, time in rows}, indent=4) + "\n"


RESULTS: Final = ("n_configs", "configs", "best", "notes")
"""Fields of an answer."""
MIB: Final = 2.0**20
GIB: Final = 2.0**30

FLAWS: Final = (
    "pp never divides the compute time, and any pp above 1 lengthens it by two thirds",
    "the efficiency penalties let dp gain no more than 5 times and tp no more than 4, whatever the hardware",
    "tensor and pipeline traffic takes the fast links also where a group spans nodes",
    "tensor traffic is divided by tp and then takes the ring's factor, and is that of the whole batch whatever dp is",
    "units are mixed: a GB is 1024 MB",
)


class Searcher(Method):
    """The searcher as a method."""

    name = "searcher"
    title = "heuristic iteration time of every (dp, tp, pp) from compute, ring all-reduces and stage transfers"
    source = "project report 'Searcher': automatic search of a 3D parallelism strategy"
    counts = (
        "compute with efficiency penalties for dp, tp and their imbalance",
        "ring all-reduce of gradients and of tensor-parallel messages",
        "stage transfers of the pipeline",
    )
    leaves_out = ("memory, micro-batches and the bubble", "latency and overlap of communication", *FLAWS)

    def answer(self, case: Mapping[str, Any], *, executor: Executor | None = None) -> Mapping[str, Any]:
        """Every configuration of ``cluster`` and ``model``, and the best. Raises ``InputError``."""
        found = search(read_fields(SearcherCase, case, owner=self.name, results=RESULTS), executor=executor)
        return {
            "n_configs": len(found.dp),
            "configs": [found.row(index) for index in range(len(found.dp))],
            "best": found.row(found.best),
            "notes": list(FLAWS),
        }

    def result_file(self, case: Mapping[str, Any]) -> str:
        """The searcher's JSON result file for a case. Raises ``InputError``."""
        return result_file(search(read_fields(SearcherCase, case, owner=self.name, results=RESULTS)))

    def cases(self, text: str) -> Iterator[Case] | None:
        """Cases of a file that holds ``cluster`` and ``model`` of each."""
        cases = json_cases(text, "cluster")
        return None if cases is None else (self.recomputed(case, RESULTS) for case in cases)

    def plan(
        self, model: ModelConfig, cluster: Cluster, num_accelerators: int, job: Job, *, top: int = 10
    ) -> MethodAnswer:
        """The searcher's ranking for a question of ours, from the work of our layers for the global batch."""
        case = _terms(model, cluster, num_accelerators, job)
        found = search(case_of(SearcherCase, case, owner=self.name))
        order = np.argsort(found.total_ms, kind="stable")[:top]
        return MethodAnswer(
            method=self.name,
            rows=tuple(_method_row(found, int(index)) for index in order),
            mapped=_mapped(case, cluster, job),
            ignored=_ignored(model, cluster),
            notes=FLAWS,
        )


def _terms(model: ModelConfig, cluster: Cluster, num_accelerators: int, job: Job) -> dict[str, Any]:
    """A question of ours in the searcher's words. MB and GB/s are binary, so that its times come out in real ones."""
    work = layer_work(model, job)
    nodes, used = even_nodes(cluster, num_accelerators)
    gradients = (model.num_parameters + model.num_mtp_parameters) * job.grad_bytes
    return {
        "cluster": {
            "n_node": nodes,
            "n_gpu_per_node": used,
            "gpu_gflops": cluster.accelerator.peak(job.recipe.matmul) / 1e9,
            "bw_gpu_to_gpu": cluster.tiers[0].bandwidth / GIB,
            "bw_inter_node": cluster.tiers[:2][-1].bandwidth / GIB,
        },
        "model": {
            "layer_tflops": [layer.flops / 1e12 for layer in work],
            "dp_sum_gradient_MB": gradients / MIB,
            "tp_comm_sum_MB": sum(layer.all_reduced_bytes for layer in work) / MIB,
            "layer_activation_MB": [layer.output_bytes / MIB for layer in work],
            "num_layers": model.num_hidden_layers,
        },
    }


def _mapped(case: Mapping[str, Any], cluster: Cluster, job: Job) -> tuple[str, ...]:
    """How a question was translated, as text."""
    machine, model = case["cluster"], case["model"]
    inside, beyond = (tier.bandwidth / 1e9 for tier in (cluster.tiers[0], cluster.tiers[:2][-1]))
    in_gb = {name: model[name] * MIB / 1e9 for name in ("dp_sum_gradient_MB", "tp_comm_sum_MB")}
    return (
        f"{sum(model['layer_tflops']):.4g} TFLOP forward for the global batch, ends counted with the outer layers",
        f"{in_gb['dp_sum_gradient_MB']:.4g} GB of {job.grad_dtype} gradients of the whole model",
        f"{in_gb['tp_comm_sum_MB']:.4g} GB all-reduced by tensor parallelism for the global batch",
        f"{max(model['layer_activation_MB']) * MIB / 1e9:.4g} GB leave each layer for the global batch",
        f"{machine['n_node']:,} nodes of {machine['n_gpu_per_node']}: {inside:g} GB/s inside, {beyond:g} GB/s beyond",
        f"{machine['gpu_gflops'] / 1e3:g} TFLOP/s, the {job.recipe.matmul} peak",
        "MB and GB/s taken as binary, so that its milliseconds are real ones",
    )


def _ignored(model: ModelConfig, cluster: Cluster) -> tuple[str, ...]:
    """What the searcher ignores of a question."""
    ignored = [
        "memory: every configuration counts as possible",
        "micro-batches and the pipeline's bubble",
        "context and expert parallelism, sharding, recomputation, schedules",
        "latencies, and efficiencies measured on this accelerator",
    ]
    if len(cluster.tiers) > 2:
        ignored.append(f"network tiers beyond the {cluster.tiers[1].name}")
    if model.is_moe:
        ignored.append("where experts lie: their gradients count like all others")
    return tuple(ignored)


def _method_row(found: Configurations, index: int) -> MethodRow:
    row = found.row(index)
    return MethodRow(
        degrees={name: row[name] for name in ("dp", "tp", "pp")},
        step_time=row["total_ms"] / 1000,
        parts={f"{name}_s": row[f"{name}_ms"] / 1000 for name in ("compute", "dp", "tp", "pp")}
        | {"efficiency": row["eff"]},
    )

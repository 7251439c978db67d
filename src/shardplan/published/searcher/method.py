"""The searcher as a method: its answers in its report's words, and questions of ours in its terms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Executor
from typing import Any, Final

import numpy as np

from shardplan.inputs.cluster import Cluster
from shardplan.inputs.job import Job
from shardplan.inputs.model import ModelConfig
from shardplan.published.base import Case, Method, MethodAnswer, MethodRow
from shardplan.published.fields import json_object, read_fields
from shardplan.published.mapping import even_nodes, layer_work, put
from shardplan.published.searcher.search import Configurations, SearcherCase, result_file, search

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
        cases = (json_object(text) or {}).get("cases")
        if not isinstance(cases, list) or not any(isinstance(case, dict) and "cluster" in case for case in cases):
            return None
        return (self.recomputed(case, RESULTS) for case in cases)

    def plan(
        self, model: ModelConfig, cluster: Cluster, num_accelerators: int, job: Job, *, top: int = 10
    ) -> MethodAnswer:
        """The searcher's ranking for a question of ours: work of our own layers, for the global batch."""
        case = _terms(model, cluster, num_accelerators, job)
        found = search(put(SearcherCase, case, owner=self.name))
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
    """How a question was put as text."""
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
    """What of a question the searcher does not look at."""
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

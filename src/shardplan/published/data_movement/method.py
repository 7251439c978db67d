"""The data-movement model as a method: its cases, its reference files, and questions of ours in its terms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from shardplan.errors import InputError
from shardplan.inputs.cluster import Cluster, NetworkTier
from shardplan.inputs.job import Job
from shardplan.inputs.layers import MLP, Attention
from shardplan.inputs.model import ModelConfig
from shardplan.published.base import Case, Method, MethodAnswer, MethodError, MethodRow
from shardplan.published.data_movement.case import RESULTS, answer_case
from shardplan.published.data_movement.layer import Device
from shardplan.published.data_movement.search import LayerSearch, Matrix, search_layers
from shardplan.published.fields import json_object
from shardplan.published.mapping import one_sequence
from shardplan.units import format_bytes, format_rate
from shardplan.workload.layer import layer_block
from shardplan.workload.ops import Matmul

TABLES: Final = ("notebook_value", "fwd_bwd", "end_of_batch")
"""Parts of a reference file."""
BYTEWIDTH: Final = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "mxfp8": 1.0, "nvfp4": 0.5}
"""Bytes per number, by precision."""
READS_SPLIT_OUTPUTS: Final = ("proj", "mlp_fc2")
"""Products whose inputs are the outputs of the product before."""
FLAWS: Final = (
    "only matrix products: attention, norms and activation functions cost nothing",
    "the second half of an all-reduce is a free multicast",
    "one network tier for every kind of parallelism, its bandwidth counted in both directions together",
    "memory has no capacity: everything fits",
)


class DataMovement(Method):
    """The data-movement model as a method."""

    name = "data-movement"
    title = "linear layers with tensor parallelism over both dimensions, and how far training can scale"
    source = (
        "Erdil and Schneider-Joseph, Data movement limits to frontier model training, arXiv 2411.01137, and notebook"
    )
    counts = (
        "arithmetic, device-memory and network time of matrix products, whichever is longest",
        "all-reduces of tensor parallelism over inputs and outputs, and of gradients at the end of the batch",
        "limits curve: best utilisation of a run that must end in time",
    )
    leaves_out = ("pipeline parallelism (but in the limits curve)", *FLAWS)

    def answer(self, case: Mapping[str, Any]) -> Mapping[str, Any]:
        """Prices a ``layer`` on a ``device``, searches ``num_devices``, or draws ``limits``. Raises ``InputError``."""
        return answer_case(case, self.name)

    def cases(self, text: str) -> Iterator[Case] | None:
        """Cases of a file that holds ``notebook_value``, ``fwd_bwd`` or ``end_of_batch``."""
        tables = json_object(text) or {}
        if not any(name in tables for name in TABLES):
            return None
        return (self.recomputed(case, RESULTS, name) for name, case in _named(tables))

    def plan(
        self, model: ModelConfig, cluster: Cluster, num_accelerators: int, job: Job, *, top: int = 10
    ) -> MethodAnswer:
        """Every (tp_in, tp_out, dp) of the model's matrix products, fastest first. Raises ``MethodError``."""
        matrices = _matrices(model, job)
        bytewidth = BYTEWIDTH[job.precision]
        link = _link(cluster, num_accelerators)
        device = Device(
            name=cluster.accelerator.name,
            flops_8bit=cluster.accelerator.peak(job.recipe.matmul) * bytewidth,
            memory_bandwidth=cluster.accelerator.memory_bandwidth,
            network_bandwidth=2 * link.bandwidth,
        )
        try:
            found = search_layers(device, matrices, job.tokens_per_step, num_accelerators, bytewidth=bytewidth)
        except InputError as error:
            raise MethodError(error.message, rule=error.rule, hint=error.hint) from None
        return MethodAnswer(
            method=self.name,
            rows=tuple(_method_row(found, int(index)) for index in found.order[:top]),
            mapped=_mapped(matrices, device, link, job, bytewidth),
            ignored=_ignored(model),
            notes=FLAWS,
        )


def _named(tables: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for table in TABLES:
        cases = tables.get(table, [])
        if isinstance(cases, list):
            yield from ((f"{table}[{index}]", case) for index, case in enumerate(cases))
        else:
            yield table, cases


def _matrices(model: ModelConfig, job: Job) -> list[Matrix]:
    """The model's matrix products with a weight, output head included. Raises ``MethodError``."""
    if not all(isinstance(kind.mixer, Attention) and isinstance(kind.mlp, MLP) for kind in model.layer_kinds):
        raise MethodError(
            f"{model.name} has layers other than attention and a dense MLP: the data-movement model knows matrices "
            "that all tokens pass one after the other",
            rule="every layer is attention and a dense MLP",
            hint="ask another method (`shardplan methods`)",
        )
    shard = one_sequence(model, job)
    matrices = []
    for index, kind in enumerate(model.layer_kinds):
        products = [operator for operator in layer_block(kind, shard).operators if isinstance(operator, Matmul)]
        matrices += [
            Matrix(
                d_in=float(product.k),
                d_out=float(product.n),
                count=model.layer_pattern.count(index),
                reads_split_outputs=product.name in READS_SPLIT_OUTPUTS,
            )
            for product in products
        ]
    head = [Matrix(d_in=model.hidden_size, d_out=model.vocab_size)] if model.vocab_size else []
    return matrices + head


def _link(cluster: Cluster, num_accelerators: int) -> NetworkTier:
    """The slowest tier that this number of accelerators spans."""
    spanned = [cluster.tiers[0]]
    for inner, outer in zip(cluster.tiers, cluster.tiers[1:], strict=False):
        if inner.size is not None and inner.size < num_accelerators:
            spanned.append(outer)
    return min(spanned, key=lambda tier: tier.bandwidth)


def _mapped(matrices: list[Matrix], device: Device, link: NetworkTier, job: Job, bytewidth: float) -> tuple[str, ...]:
    weights = sum(matrix.count * matrix.d_in * matrix.d_out for matrix in matrices)
    achieved = f"{device.base_utilisation:.0%}"
    return (
        f"{sum(matrix.count for matrix in matrices):,} matrices of {len(matrices)} shapes, {weights:.4g} weights",
        f"{job.tokens_per_step:,} tokens in one micro-batch, the best for this model",
        f"{format_rate(device.flops_8bit / bytewidth, 'FLOP')}, the {job.recipe.matmul} peak, at {achieved}",
        f"{format_rate(device.memory_bandwidth)} of memory bandwidth at {achieved}",
        f"one network: the {link.name} at {format_rate(link.bandwidth)} a direction, counted twice",
        f"{bytewidth:g} bytes per number, gradients included ({format_bytes(weights * bytewidth)} of them)",
    )


def _ignored(model: ModelConfig) -> tuple[str, ...]:
    ignored = [
        "memory: every configuration counts as possible",
        "attention scores, norms, activation functions, embedding lookup",
        "pipeline, context and expert parallelism, sharding, recomputation, micro-batches",
        "latencies, and faster networks inside the one that is spanned",
    ]
    if model.num_mtp_layers:
        ignored.append("multi-token-prediction blocks")
    return tuple(ignored)


def _method_row(found: LayerSearch, index: int) -> MethodRow:
    tp_in, tp_out, dp = (int(degrees[index]) for degrees in (found.tp_in, found.tp_out, found.dp))
    return MethodRow(
        degrees={"dp": dp, "tp": tp_in * tp_out, "pp": 1, "tp_in": tp_in, "tp_out": tp_out},
        step_time=float(found.total_time[index]),
        parts={
            "layers_s": float(found.compute_time[index]),
            "gradients_s": float(found.gradient_time[index]),
            "utilisation": float(found.utilisation[index]),
        },
    )

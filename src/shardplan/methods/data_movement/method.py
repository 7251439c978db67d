"""The data-movement model as a method: cases in the notebook's own words, reference files, and questions of ours."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Annotated, Any, Final

import numpy as np
from pydantic import Field, field_validator, model_validator

from shardplan.base.records import plain
from shardplan.base.units import format_bytes, format_rate
from shardplan.inputs.cluster import Cluster, NetworkTier
from shardplan.inputs.job import Job
from shardplan.inputs.layers import MLP, Attention
from shardplan.inputs.model import ModelConfig
from shardplan.methods.base import Case, Method, MethodAnswer, MethodError, MethodRow
from shardplan.methods.data_movement.layer import (
    DEFAULT_DEVICE,
    FIELDS,
    Device,
    LayerSearch,
    LayerTime,
    LinearLayer,
    Matrix,
    device_called,
    end_of_batch,
    forward_backward,
    search_layers,
)
from shardplan.methods.data_movement.limits import (
    CLAIMS,
    NOT_IN_THE_CURVE,
    SCANNED,
    Cliff,
    cliffs,
    limits_curve,
    variants,
)
from shardplan.methods.data_movement.training_step import Assumptions
from shardplan.methods.fields import Count, Positive, StrictFields, Whole, json_object, read_fields
from shardplan.methods.mapping import ASK_ANOTHER, as_refusal, one_sequence, spanned_tiers
from shardplan.physics.workload.layer import layer_block
from shardplan.physics.workload.ops import Matmul

RESULTS: Final = (
    "result_secs", "bound", "flop_secs", "hbm_secs", "net_secs", "end_of_batch", "utilisation", "configs", "best",
    "n_configs", "notes",
)  # fmt: skip
"""Fields of an answer."""
MOST_DEVICES: Final = 10**12


class DeviceFields(StrictFields):
    """A device in the notebook's words."""

    name: str = "given"
    flop_per_sec_8bit: Positive
    global_Bps: Positive  # noqa: N815  # the notebook's name
    net_Bps: Positive  # noqa: N815
    base_util: Annotated[float, Field(gt=0, le=1)] = 0.8

    @model_validator(mode="before")
    @classmethod
    def _by_name(cls, raw: object) -> object:
        return device_fields(device_called(raw)) if isinstance(raw, str) else raw

    def device(self) -> Device:
        """The device in our words."""
        return Device(name=self.name, **{ours: getattr(self, theirs) for theirs, ours in FIELDS.items()})


def device_fields(device: Device) -> dict[str, Any]:
    """A device in the notebook's words."""
    return {"name": device.name, **{theirs: getattr(device, ours) for theirs, ours in FIELDS.items()}}


def default_device() -> DeviceFields:
    """The notebook's."""
    return DeviceFields.model_validate(device_fields(device_called(DEFAULT_DEVICE)))


class LayerFields(StrictFields):
    """A linear layer in the notebook's words."""

    d_in: Count
    d_out: Count
    tp_in: Count = 1
    tp_out: Count = 1
    dp: Count = 1
    bytewidth: Positive = 2.0


class LayerCase(StrictFields):
    """One layer: priced, or searched if ``num_devices`` is given."""

    device: DeviceFields = Field(default_factory=default_device)
    layer: LayerFields
    b: Positive | None = None
    """Tokens of a micro-batch over all replicas; without it only the end of the batch is priced."""
    num_devices: Annotated[Whole, Field(ge=1, le=MOST_DEVICES)] | None = None
    """Searches all tp_in, tp_out and dp with this product."""
    num_microbatches: Count = 1
    """Micro-batches of a batch, in a search."""

    @model_validator(mode="after")
    def _searchable(self) -> LayerCase:
        given = {"tp_in", "tp_out", "dp"} & self.layer.model_fields_set
        if self.num_devices is not None and given:
            raise ValueError(f"num_devices searches the degrees: leave out {', '.join(sorted(given))} of the layer")
        if self.num_devices is not None and self.b is None:
            raise ValueError("a search over num_devices needs b, the tokens of a micro-batch")
        return self


class Range(StrictFields):
    """Range of a limits curve."""

    min_flop: Annotated[float, Field(ge=1e15, le=1e40)] = 1e20
    max_flop: Annotated[float, Field(ge=1e15, le=1e40)] = 1e33
    points_per_decade: Annotated[Whole, Field(ge=1, le=50)] = 5
    variants: bool = False
    """Whether the cliffs of every variant are located too."""

    @field_validator("max_flop")
    @classmethod
    def _above(cls, value: float, info: Any) -> float:
        if value < info.data.get("min_flop", 0.0):
            raise ValueError("it must be at least min_flop")
        return value


class LimitsFields(Assumptions, Range):
    """Range of a limits curve, and assumptions that replace the default ones; null keeps the default."""

    @model_validator(mode="before")
    @classmethod
    def _given(cls, raw: object) -> object:
        if not isinstance(raw, Mapping):
            return raw
        return {name: each for name, each in raw.items() if each is not None or name not in Assumptions.model_fields}

    def assumptions(self) -> Assumptions:
        """The baseline with the given values."""
        return Assumptions(**{name: getattr(self, name) for name in Assumptions.model_fields})


class LimitsCase(StrictFields):
    """A limits curve."""

    device: DeviceFields = Field(default_factory=default_device)
    limits: LimitsFields


def answer_case(case: Mapping[str, Any], owner: str) -> dict[str, Any]:
    """The answer to any case. Raises ``InputError``."""
    if isinstance(case, Mapping) and "limits" in case:
        return _limits(read_fields(LimitsCase, case, owner=owner))
    asked = read_fields(LayerCase, case, owner=owner, results=RESULTS)
    device = asked.device.device()
    if asked.num_devices is not None and asked.b is not None:
        matrix = Matrix(d_in=asked.layer.d_in, d_out=asked.layer.d_out)
        found = search_layers(
            device, [matrix], asked.b, asked.num_devices, bytewidth=asked.layer.bytewidth,
            num_microbatches=asked.num_microbatches,
        )  # fmt: skip
        rows = [_configuration(found, int(index)) for index in found.order]
        return {"n_configs": len(rows), "configs": rows, "best": rows[0]}
    layer = LinearLayer(**asked.layer.model_dump())
    gradients = _seconds(end_of_batch(device, layer))
    if asked.b is None:
        return gradients
    time = forward_backward(device, layer, asked.b)
    return {**_seconds(time), "end_of_batch": gradients}


def _seconds(time: LayerTime) -> dict[str, Any]:
    return {
        "result_secs": float(time.total),
        "bound": time.bound,
        "flop_secs": float(time.flop),
        "hbm_secs": float(time.memory),
        "net_secs": float(time.network),
    }


def _configuration(found: LayerSearch, index: int) -> dict[str, Any]:
    return {
        **{name: int(getattr(found, name)[index]) for name in ("tp_in", "tp_out", "dp")},
        "fwd_bwd_secs": float(found.compute_time[index]),
        "end_of_batch_secs": float(found.gradient_time[index]),
        "total_secs": float(found.total_time[index]),
        "utilisation": float(found.utilisation[index]),
    }


def _limits(case: LimitsCase) -> dict[str, Any]:
    device, assumptions = case.device.device(), case.limits.assumptions()
    first, last = math.log10(case.limits.min_flop), math.log10(case.limits.max_flop)
    num_points = round((last - first) * case.limits.points_per_decade) + 1
    curve = limits_curve(device, np.logspace(first, last, num_points), assumptions)
    found = cliffs(device, assumptions)
    answer = {
        "device": device_fields(device),
        "assumptions": assumptions.model_dump(),
        "left_out": list(NOT_IN_THE_CURVE),
        "points": [
            {name: float(value) for name, value in asdict(point.run).items()}
            | {key: value for key, value in plain(point).items() if key != "run"}
            for point in curve
        ],
        "cliffs": [_cliff(cliff) for cliff in found],
        "claims": [
            {**asdict(claim), "computed_flop": _cliff(cliff)["training_flop"]}
            for claim in CLAIMS
            for cliff in found
            if cliff.level == claim.level
        ],
    }
    if case.limits.variants:
        answer["variants"] = [
            {
                "name": one.name,
                "changed": one.changed,
                "cliffs": [_cliff(c) for c in cliffs(one.device, one.assumptions)],
            }
            for one in variants(device, assumptions)
        ]
    return answer


def _cliff(cliff: Cliff) -> dict[str, Any]:
    """JSON has no infinity: ``remark`` says why there is no figure."""
    flop, remark = cliff.training_flop, ""
    if flop is None:
        remark = "no run reaches this level"
    elif math.isinf(flop):
        flop, remark = None, f"every run up to 1e{SCANNED[1]:g} FLOP keeps this level"
    return {"level": cliff.level, "training_flop": flop, "remark": remark}


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
        return (self.recomputed(case, RESULTS, name) for name, case in _named_tables(tables))

    def plan(
        self, model: ModelConfig, cluster: Cluster, num_accelerators: int, job: Job, *, top: int = 10
    ) -> MethodAnswer:
        """Every (tp_in, tp_out, dp) of the model's matrix products, fastest first. Raises ``MethodError``."""
        matrices = _matrices(model, job)
        bytewidth = BYTEWIDTH[job.precision]
        link = min(spanned_tiers(cluster, num_accelerators), key=lambda tier: tier.bandwidth)
        device = Device(
            name=cluster.accelerator.name,
            flops_8bit=cluster.accelerator.peak(job.recipe.matmul) * bytewidth,
            memory_bandwidth=cluster.accelerator.memory_bandwidth,
            network_bandwidth=2 * link.bandwidth,
        )
        with as_refusal():
            found = search_layers(device, matrices, job.tokens_per_step, num_accelerators, bytewidth=bytewidth)
        return MethodAnswer(
            method=self.name,
            rows=tuple(_method_row(found, int(index)) for index in found.order[:top]),
            mapped=_mapped(matrices, device, link, job, bytewidth),
            ignored=_ignored(model),
            notes=FLAWS,
        )


def _named_tables(tables: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
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
            hint=ASK_ANOTHER,
        )
    shard = one_sequence(model, job)
    matrices = []
    for index, kind in enumerate(model.layer_kinds):
        count = model.layer_pattern.count(index)
        matrices += [
            Matrix(
                d_in=float(each.k),
                d_out=float(each.n),
                count=count,
                reads_split_outputs=each.name in READS_SPLIT_OUTPUTS,
            )
            for each in layer_block(kind, shard).operators
            if isinstance(each, Matmul)
        ]
    head = [Matrix(d_in=model.hidden_size, d_out=model.vocab_size)] if model.vocab_size else []
    return matrices + head


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

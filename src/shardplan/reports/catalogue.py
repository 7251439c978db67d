"""What the catalogue holds: a row for every model, cluster and accelerator, and every value of one with its origin."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, Final, Literal

from shardplan.fields import dataclass
from shardplan.inputs.cluster import Accelerator, Cluster
from shardplan.inputs.defaults import default_sequence_length
from shardplan.inputs.layers import MLP
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.readers.catalog import (
    NameOrPath,
    list_accelerators,
    list_clusters,
    list_models,
    load_accelerator,
    load_cluster,
    load_model,
)
from shardplan.inputs.readers.names import model_sources, name_meant
from shardplan.records import plain
from shardplan.reports.model_record import PARTS, model_record

Record = dict[str, Any]
Quantity = Literal["text", "count", "bytes", "bytes_per_s", "flops_per_s", "s", "share", "w", "usd_per_hour", "flops"]

HARDWARE: Final[Mapping[str, Quantity]] = {
    "memory_bytes": "bytes",
    "memory_bandwidth": "bytes_per_s",
    "vector_flops": "flops_per_s",
    "num_cores": "count",
    "host_link_bandwidth": "bytes_per_s",
    "power": "w",
    "price_per_hour": "usd_per_hour",
    "memory_efficiency": "share",
    "release_year": "text",
    "accelerators_per_node": "count",
    "max_num_accelerators": "count",
    "host_memory_bytes": "bytes",
    "host_memory_bandwidth": "bytes_per_s",
}
"""Fields of accelerators and clusters with what they measure."""

DIMENSIONS: Final = tuple(dict.fromkeys(name for part in PARTS.values() for name in part.dimensions))
"""Names of the dimensions of all parts of a layer."""


@dataclass(frozen=True, kw_only=True)
class CatalogueEntry:
    """One row of a list: a name, its quantities, and whether some value has low confidence."""

    name: str
    title: str
    """Name in the maker's words; for a model its kind of layers."""
    values: tuple[Value, ...]
    num_marks: int = 0
    """Values that carry a mark."""

    @property
    def record(self) -> Record:
        """The row as a mapping; units in the keys."""
        return {"name": self.name, "title": self.title, "num_marks": self.num_marks} | {
            value.key: value.value for value in self.values
        }


@dataclass(frozen=True, kw_only=True)
class Value:
    """One value with where it comes from."""

    field: str
    value: Any
    quantity: Quantity = "text"
    source: str = ""
    mark: str = ""
    """Why confidence in it is low: from memory, assumed ...; empty where it is not."""

    @property
    def key(self) -> str:
        """The field with its unit, as it is in a file."""
        suffix = {"bytes_per_s": "_bytes_per_s", "flops_per_s": "_per_s", "s": "_s", "w": "_w"}
        return self.field.replace(".", "_") + suffix.get(self.quantity, "")


def list_record(kind: str, entries: Iterable[CatalogueEntry]) -> Record:
    """All entries of a kind, ``models``, ``clusters`` or ``accelerators``, as ``--json`` writes them."""
    return {"schema": f"shardplan/{kind}/1", kind: [entry.record for entry in entries]}


def model_entries() -> tuple[CatalogueEntry, ...]:
    """All models of the catalogue."""
    return tuple(_model_entry(name) for name in list_models())


def _model_entry(name: str) -> CatalogueEntry:
    model, origin = load_model(name), model_sources().get(name)
    return CatalogueEntry(
        name=name,
        title=_kind(model),
        num_marks=1 if origin is not None and origin.mark else 0,
        values=(
            Value(field="num_parameters", value=model.num_parameters, quantity="count"),
            Value(field="num_active_parameters", value=model.num_active_parameters, quantity="count"),
            Value(field="num_hidden_layers", value=model.num_hidden_layers, quantity="count"),
            Value(field="hidden_size", value=model.hidden_size, quantity="count"),
            Value(field="max_position_embeddings", value=model.max_position_embeddings, quantity="count"),
        ),
    )


def _kind(model: ModelConfig) -> str:
    """What the layers are made of as text."""
    kinds = model.layer_kinds
    found = dict.fromkeys(mixer.title for kind in kinds for mixer in kind.mixers)
    dense = any(isinstance(kind.mlp, MLP) for kind in kinds)
    mlps = ["dense"] * (dense and not model.is_moe) + ["MoE"] * model.is_moe
    return " ".join([*mlps, *(name for name in found if name != "attention" or len(found) > 1)])


def model_details(given: NameOrPath | Mapping[str, Any], *, sequence_length: int | None = None) -> Record:
    """Every dimension of a model, its parameter counts and FLOP per token; the record of ``models NAME --json``."""
    model = load_model(given)
    from shardplan.estimation.flops import FLOPS_CONVENTION, model_flops_per_token  # takes time to import

    length = sequence_length or default_sequence_length(model)
    record = model_record(model)
    derived = {
        "num_active_parameters_without_input_embedding": model.num_active_parameters_without_input_embedding,
        "num_mtp_parameters": model.num_mtp_parameters,
        "model_flops_per_token": model_flops_per_token(model, length),
        "sequence_length": length,
        "flops_convention": FLOPS_CONVENTION,
    }
    name = given if isinstance(given, str) else ""
    origin = model_sources().get(name_meant("model", name) or name.lower())
    source = {"hf_id": origin.hf_id, "source": origin.source, "mark": origin.mark} if origin else {}
    return {"schema": "shardplan/model/1", **record, **derived, **_dimensions(model), **source}


def _dimensions(model: ModelConfig) -> Record:
    """Dimensions of the layers under one name each; a list where layers differ, left out where there are none."""
    parts = [part for kind in model.layer_kinds for part in (*kind.mixers, kind.mlp) if part is not None]
    found: Record = {}
    for name in DIMENSIONS:
        values = [getattr(part, part.dimensions[name]) for part in parts if name in part.dimensions]
        distinct = list(dict.fromkeys(values))
        if any(value is not None and value != 0 for value in distinct):
            found[name] = distinct[0] if len(distinct) == 1 else distinct
    return found


def model_values(details: Mapping[str, Any]) -> tuple[Value, ...]:
    """The values of ``model_details`` that a person reads first."""
    counts = ("num_parameters", "num_active_parameters", "num_mtp_parameters")
    shown = (*counts, "num_hidden_layers", "hidden_size", *DIMENSIONS, "vocab_size", "max_position_embeddings")
    values = [
        _dimension(name, details)
        for name in shown
        if details.get(name) and not (name == "num_active_parameters" and details[name] == details["num_parameters"])
    ]
    return (*values, Value(field="model_flops_per_token", value=details["model_flops_per_token"], quantity="flops"))


def _dimension(name: str, details: Mapping[str, Any]) -> Value:
    """A dimension as a number, or as text where layers differ in it."""
    value = details[name]
    if not isinstance(value, list):
        return Value(field=name, value=value, quantity="count")
    layers = Counter(details["layer_pattern"])
    counted: Counter[Any] = Counter()
    for kind, count in layers.items():
        parts = details["layer_kinds"][kind]
        held = [part for part in (parts["mixer"], parts["parallel_mixer"], parts["mlp"]) if part is not None]
        fields_of = [(part, PARTS[part["kind"]].dimensions) for part in held]
        counted.update({part[known[name]]: count for part, known in fields_of if name in known})
    shown = (f"{size:,} in {counted[size]:,}" for size in value if size)
    return Value(field=name, value=f"{', '.join(shown)} of {details['num_hidden_layers']:,} layers")


def cluster_entries() -> tuple[CatalogueEntry, ...]:
    """All clusters of the catalogue."""
    return tuple(_cluster_entry(load_cluster(name)) for name in list_clusters())


def _cluster_entry(cluster: Cluster) -> CatalogueEntry:
    links = [
        Value(field=f"tiers.{tier.name}.bandwidth", value=tier.bandwidth, quantity="bytes_per_s")
        for tier in cluster.tiers
    ]
    return CatalogueEntry(
        name=cluster.name,
        title=cluster.full_name,
        num_marks=_num_marks(cluster.marks),
        values=(
            Value(field="accelerator", value=cluster.accelerator.name),
            Value(field="fast_domain", value=cluster.innermost.size, quantity="count"),
            *links,
        ),
    )


def _num_marks(marks: Mapping[str, str]) -> int:
    """Marked values of the description itself; default latencies are marked where they are listed."""
    return sum(not name.endswith(".latency") for name in marks)


def cluster_details(cluster: Cluster) -> Record:
    """The record of ``clusters NAME --json``: every value with sources and marks."""
    return {"schema": "shardplan/cluster/1", **plain(cluster)}


def cluster_values(cluster: Cluster) -> tuple[Value, ...]:
    """Every value of a cluster but those of its accelerator, with its origin."""
    return (*_hardware_values(cluster), *_tier_values(cluster))


def _tier_values(cluster: Cluster) -> Iterable[Value]:
    for tier in cluster.tiers:
        for field, value, quantity in (
            ("size", tier.size, "count"),
            ("bandwidth", tier.bandwidth, "bytes_per_s"),
            ("latency", tier.latency, "s"),
        ):
            if value is not None:
                yield _value(cluster, f"tiers.{tier.name}.{field}", value, quantity)  # type: ignore[arg-type]  # listed above


def accelerator_entries() -> tuple[CatalogueEntry, ...]:
    """All accelerators of the catalogue."""
    return tuple(_accelerator_entry(load_accelerator(name)) for name in list_accelerators())


def _accelerator_entry(part: Accelerator) -> CatalogueEntry:
    precision = next(name for name in ("bf16", "fp16", *part.peak_flops) if name in part.peak_flops)
    return CatalogueEntry(
        name=part.name,
        title=part.full_name,
        num_marks=_num_marks(part.marks),
        values=(
            Value(field="generation", value=part.generation),
            Value(field="memory_bytes", value=part.memory_bytes, quantity="bytes"),
            Value(field="memory_bandwidth", value=part.memory_bandwidth, quantity="bytes_per_s"),
            Value(field=f"peak_flops.{precision}", value=part.peak_flops[precision], quantity="flops_per_s"),
        ),
    )


def accelerator_details(part: Accelerator) -> Record:
    """The record of ``accelerators NAME --json``: every value with sources and marks."""
    return {"schema": "shardplan/accelerator/1", **plain(part)}


def accelerator_values(part: Accelerator) -> tuple[Value, ...]:
    """Every value of an accelerator with its origin."""
    peaks = [_value(part, f"peak_flops.{name}", peak, "flops_per_s") for name, peak in part.peak_flops.items()]
    shares = [_value(part, f"gemm_efficiency.{name}", share, "share") for name, share in part.gemm_efficiency.items()]
    return (*_hardware_values(part), *peaks, *shares)


def _hardware_values(described: Accelerator | Cluster) -> Iterable[Value]:
    for field in fields(described):
        value = getattr(described, field.name)
        if field.name in HARDWARE and value is not None:
            yield _value(described, field.name, value, HARDWARE[field.name])


def _value(described: Accelerator | Cluster, field: str, value: Any, quantity: Quantity) -> Value:
    return Value(
        field=field,
        value=value,
        quantity=quantity,
        source=described.sources.get(field, ""),
        mark=described.marks.get(field, ""),
    )

"""The catalogue: lists of models, clusters and accelerators, and one of them with the origin of its values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import Any, Final, Literal, NamedTuple

from shardplan.answers.document import AnswerDocument, Block, Bullets, Column, Line, Numbered, Part, RowTable
from shardplan.base.records import plain
from shardplan.base.units import format_bytes, format_count, format_rate, format_time
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
from shardplan.reports.model_record import PARTS, model_record
from shardplan.reports.texts.answer import percent

Record = dict[str, Any]
Quantity = Literal["text", "count", "bytes", "bytes_per_s", "flops_per_s", "s", "share", "w", "usd_per_hour"]

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
CARE: Final = "* some values have low confidence: from memory, assumed ...; the page of one says which"
EXACT: Final = 10_000_000
"""Counts up to this are shown in full."""


def count(number: float) -> str:
    """A count, in full where it is small."""
    return f"{number:,}" if abs(number) < EXACT else format_count(number)


WORDS: Final[Mapping[Quantity, Callable[[Any], str]]] = {
    "text": str,
    "count": count,
    "bytes": format_bytes,
    "bytes_per_s": format_rate,
    "flops_per_s": partial(format_rate, unit="FLOP"),
    "s": format_time,
    "share": percent,
    "w": "{:,.0f} W".format,
    "usd_per_hour": "{:.2f} USD/h".format,
}


class CatalogueEntry(NamedTuple):
    """One row of a list."""

    name: str
    title: str
    """Name in the maker's words; for a model its kind of layers."""
    num_marks: int
    """Values that have low confidence."""
    held: Any
    """The model, cluster or accelerator."""


def held(name: str) -> Callable[[CatalogueEntry], Any]:
    """A field of what an entry holds."""
    return lambda entry: getattr(entry.held, name)


FIRST: Final = (
    Column("name", None, lambda entry: entry.name),
    Column("title", None, lambda entry: entry.title),
    Column("num_marks", None, lambda entry: entry.num_marks),
    Column("", "name", lambda entry: entry.name + "*" * (entry.num_marks > 0), is_text=True),
)
MODELS: Final = (
    *FIRST,
    Column("num_parameters", "parameters", held("num_parameters"), count, rank=1),
    Column("num_active_parameters", "active", held("num_active_parameters"), count, rank=2),
    Column("num_hidden_layers", "layers", held("num_hidden_layers"), count, rank=1),
    Column("hidden_size", "hidden", held("hidden_size"), count, rank=4),
    Column("max_position_embeddings", "longest sequence", held("max_position_embeddings"), count, rank=5),
    Column("", "layers", lambda entry: entry.title, is_text=True, rank=9),
)
IN_FULL: Final = Column("", "in full", lambda entry: entry.title, is_text=True, rank=9)


def tier_rates(cluster: Cluster) -> Record:
    """Bandwidth of every tier."""
    return {f"tiers_{tier.name}_bandwidth_bytes_per_s": tier.bandwidth for tier in cluster.tiers}


CLUSTERS: Final = (
    *FIRST,
    Column("accelerator", "accelerator", lambda entry: entry.held.accelerator.name, is_text=True, rank=3),
    Column("fast_domain", "scale-up domain", lambda entry: entry.held.innermost.size, count, rank=2),
    Column(
        "",
        "GB/s by tier",
        lambda entry: entry.held,
        lambda cluster: " / ".join(f"{tier.bandwidth / 1e9:g}" for tier in cluster.tiers),
        is_text=True,
        rank=1,
        record=tier_rates,
    ),
    IN_FULL,
)


def peak(part: Accelerator) -> tuple[str, float]:
    """The first precision of training, and its dense peak. [FLOP/s]"""
    return next((name, part.peak_flops[name]) for name in ("bf16", "fp16", *part.peak_flops) if name in part.peak_flops)


ACCELERATORS: Final = (
    *FIRST,
    Column("generation", None, held("generation")),
    Column("memory_bytes", "memory", held("memory_bytes"), format_bytes, rank=1),
    Column("memory_bandwidth_bytes_per_s", None, held("memory_bandwidth")),
    Column(
        "",
        "dense peak",
        lambda entry: peak(entry.held),
        lambda found: f"{found[1] / 1e12:g} TFLOP/s {found[0]}",
        is_text=True,
        rank=2,
        record=lambda found: {f"peak_flops_{found[0]}_per_s": found[1]},
    ),
    Column("", "memory bandwidth", held("memory_bandwidth"), format_rate, rank=3),
    Column("", "generation", held("generation"), is_text=True, rank=4),
    IN_FULL,
)


def models_document() -> AnswerDocument:
    """All models of the catalogue."""
    sources = model_sources()
    marked = {name for name, origin in sources.items() if origin.mark}
    models = ((name, load_model(name)) for name in list_models())
    entries = [CatalogueEntry(name, _kind(model), int(name in marked), model) for name, model in models]
    return _list("models", entries, MODELS)


def clusters_document() -> AnswerDocument:
    """All clusters of the catalogue."""
    return _list("clusters", [_entry(load_cluster(name)) for name in list_clusters()], CLUSTERS)


def accelerators_document() -> AnswerDocument:
    """All accelerators of the catalogue."""
    return _list("accelerators", [_entry(load_accelerator(name)) for name in list_accelerators()], ACCELERATORS)


def _entry(each: Cluster | Accelerator) -> CatalogueEntry:
    """A row of the list; default latencies are marked where they are listed."""
    marks = sum(not name.endswith(".latency") for name in each.marks)
    return CatalogueEntry(each.name, each.full_name, marks, each)


def _list(kind: str, entries: Sequence[CatalogueEntry], columns: Sequence[Column]) -> AnswerDocument:
    table = RowTable(entries, columns)
    care = [Line(CARE, tone="quiet")] if any(entry.num_marks for entry in entries) else []
    more = Line(f"shardplan {kind} NAME shows one, with the sources of its values.", tone="quiet")
    return AnswerDocument(
        name=kind, verdict=[table], parts=[Part("", [*care, more])], table=table, record=lambda: {kind: table}
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
    from shardplan.estimation.charge import FLOPS_CONVENTION, model_flops_per_token  # takes time to import

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
    return {**record, **derived, **_dimensions(model), **source}


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


def model_document(given: NameOrPath | Mapping[str, Any], *, sequence_length: int | None = None) -> AnswerDocument:
    """Dimensions and parameter counts of a model."""
    details = model_details(given, sequence_length=sequence_length)
    columns = (Column("", "", lambda row: row[0], is_text=True), Column("", "", lambda row: row[1], is_text=True))
    flops = f"FLOP per token at {details['sequence_length']:,} tokens: {details['flops_convention']}."
    origins = [details.get("mark"), *details["notes"], details.get("source")]
    return AnswerDocument(
        name="model",
        verdict=[Line(details["name"], tone="strong"), RowTable(model_values(details), columns)],
        parts=[Part("", [Line(flops, tone="quiet")]), *_notes(origins)],
        record=lambda: details,
    )


def model_values(details: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The values of ``model_details`` that a person reads first: names and texts."""
    counts = ("num_parameters", "num_active_parameters", "num_mtp_parameters")
    shown = (*counts, "num_hidden_layers", "hidden_size", *DIMENSIONS, "vocab_size", "max_position_embeddings")
    values = [
        (name, _dimension(name, details))
        for name in shown
        if details.get(name) and not (name == "num_active_parameters" and details[name] == details["num_parameters"])
    ]
    values.append(("model_flops_per_token", _exact(details["model_flops_per_token"])))
    return [(name.replace("num_", "").replace("_", " "), text) for name, text in values]


def _exact(value: float) -> str:
    text = f"{value:,.0f}"
    return text if value < 100_000 else f"{text}  ({format_count(value)})"


def _dimension(name: str, details: Mapping[str, Any]) -> str:
    """A dimension, and in how many layers each of its values is where layers differ in it."""
    value = details[name]
    if not isinstance(value, list):
        return value if isinstance(value, str) else _exact(value)
    layers = Counter(details["layer_pattern"])
    counted: Counter[Any] = Counter()
    for kind, number in layers.items():
        parts = details["layer_kinds"][kind]
        held_parts = [part for part in (parts["mixer"], parts["parallel_mixer"], parts["mlp"]) if part is not None]
        fields_of = [(part, PARTS[part["kind"]].dimensions) for part in held_parts]
        counted.update({part[known[name]]: number for part, known in fields_of if name in known})
    shown = (f"{size:,} in {counted[size]:,}" for size in value if size)
    return f"{', '.join(shown)} of {details['num_hidden_layers']:,} layers"


class Value(NamedTuple):
    """One value of a cluster or an accelerator, with where it comes from."""

    field: str
    value: Any
    quantity: Quantity
    source: str
    mark: str
    """Why confidence in it is low: from memory, assumed ...; empty where it is not."""


def cluster_document(cluster: Cluster) -> AnswerDocument:
    """Every value of a cluster but those of its accelerator, with its source, tiers inner to outer."""
    tiers = [
        f"{tier.name}: {tier.kind}, {tier.topology}, {f'{tier.size:,} accelerators' if tier.size else 'any number'}"
        for tier in cluster.tiers
    ]
    accelerator = f"of {cluster.accelerator.full_name} ({cluster.accelerator.name})"
    notes = Bullets([cluster.notes] if cluster.notes else [], "quiet")
    values = [*_hardware_values(cluster), *_tier_values(cluster)]
    return AnswerDocument(
        name="cluster",
        verdict=[Line(cluster.full_name, tone="strong"), *map(Line, (accelerator, *tiers))],
        parts=[*_values(values), Part("", [Bullets(cluster.assumptions, "quiet", most_lines=1), notes])],
        record=lambda: plain(cluster),
    )


def accelerator_document(part: Accelerator, taken: str = "") -> AnswerDocument:
    """Every value of an accelerator with its source. ``taken``: as what its name was read."""
    peaks = [_value(part, f"peak_flops.{name}", rate, "flops_per_s") for name, rate in part.peak_flops.items()]
    shares = [_value(part, f"gemm_efficiency.{name}", share, "share") for name, share in part.gemm_efficiency.items()]
    lead: list[Block] = [Line(taken, tone="quiet")] if taken else []
    return AnswerDocument(
        name="accelerator",
        verdict=[*lead, Line(part.full_name, tone="strong"), Line(f"{part.vendor}, {part.generation}")],
        parts=[*_values([*_hardware_values(part), *peaks, *shares]), *_notes([part.notes])],
        record=lambda: plain(part),
    )


def _tier_values(cluster: Cluster) -> Iterable[Value]:
    for tier in cluster.tiers:
        quantities: tuple[tuple[str, float | None, Quantity], ...] = (
            ("size", tier.size, "count"),
            ("bandwidth", tier.bandwidth, "bytes_per_s"),
            ("latency", tier.latency, "s"),
        )
        for field, value, quantity in quantities:
            if value is not None:
                yield _value(cluster, f"tiers.{tier.name}.{field}", value, quantity)


def _hardware_values(described: Accelerator | Cluster) -> Iterable[Value]:
    for field in fields(described):
        value = getattr(described, field.name)
        if field.name in HARDWARE and value is not None:
            yield _value(described, field.name, value, HARDWARE[field.name])


def _value(described: Accelerator | Cluster, field: str, value: Any, quantity: Quantity) -> Value:
    return Value(field, value, quantity, described.sources.get(field, ""), described.marks.get(field, ""))


def _values(values: Sequence[Value]) -> list[Part]:
    """A table of values that refers to numbered sources."""
    sources = list(dict.fromkeys(value.source for value in values if value.source))

    def name(value: Value) -> str:
        return value.field.removeprefix("tiers.").removesuffix("_bytes").replace("_", " ").replace(".", " ")

    columns = (
        Column("", "value", name, is_text=True),
        Column("", "", text=lambda value: WORDS[value.quantity](value.value)),
        Column("", "src", text=lambda value: str(sources.index(value.source) + 1) if value.source else ""),
        Column("", "low confidence", lambda value: value.mark, is_text=True),
    )
    return [Part("", [RowTable(values, columns)]), Part("Sources", [Numbered(sources, "quiet")])]


def _notes(texts: Sequence[str | None]) -> list[Part]:
    """What a user should know, below a blank line."""
    found = [text for text in texts if text]
    return [Part("", [Bullets(found, "quiet")])] if found else []

"""Lists of models, clusters and accelerators, and one of them with the origin of its values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from rich.text import Text

from shardplan.cli.layout import Column, Page
from shardplan.inputs.cluster import Accelerator, Cluster
from shardplan.reports.catalogue import (
    CatalogueEntry,
    Quantity,
    Value,
    accelerator_values,
    cluster_values,
    model_values,
)
from shardplan.reports.texts.answer import percent
from shardplan.units import format_bytes, format_count, format_rate, format_time

CARE = "* some values have low confidence: from memory, assumed ...; the page of one says which"
EXACT = 10_000_000
"""Counts up to this are shown in full."""
TITLES = {
    "num_parameters": "parameters",
    "num_active_parameters": "active",
    "num_hidden_layers": "layers",
    "hidden_size": "hidden",
    "max_position_embeddings": "longest sequence",
    "accelerator": "accelerator",
    "fast_domain": "scale-up domain",
    "generation": "generation",
    "memory_bytes": "memory",
    "memory_bandwidth": "memory bandwidth",
}

WORDS: Mapping[Quantity, Callable[[Any], str]] = {
    "text": str,
    "count": lambda count: f"{count:,}" if abs(count) < EXACT else format_count(count),
    "flops": format_count,
    "bytes": format_bytes,
    "bytes_per_s": format_rate,
    "flops_per_s": partial(format_rate, unit="FLOP"),
    "s": format_time,
    "share": percent,
    "w": "{:,.0f} W".format,
    "usd_per_hour": "{:.2f} USD/h".format,
}


def show_list(page: Page, kind: str, entries: Sequence[CatalogueEntry]) -> None:
    """One line for each."""
    columns = [
        Column(title="name", cells=[e.name + ("*" if e.num_marks else "") for e in entries], is_text=True),
        *_columns(kind, entries),
        Column(
            title="layers" if kind == "models" else "in full", cells=[e.title for e in entries], is_text=True, rank=9
        ),
    ]
    page.table(columns)
    page.console.print()
    if any(entry.num_marks for entry in entries):
        page.line(CARE, style="dim")
    page.line(f"shardplan {kind} NAME shows one, with the sources of its values.", style="dim")


def _columns(kind: str, entries: Sequence[CatalogueEntry]) -> list[Column]:
    """The quantities; the later of them give way first."""
    if kind == "clusters":
        links = [[v for v in e.values if v.quantity == "bytes_per_s"] for e in entries]
        tiers = [" / ".join(f"{v.value / 1e9:g}" for v in each) for each in links]
        named = [_named("accelerator", entries, rank=3), _named("fast_domain", entries, rank=2)]
        return [*named, Column(title="GB/s by tier", cells=tiers, is_text=True, rank=1)]
    names = list(TITLES) if kind == "models" else ["memory_bytes", "memory_bandwidth", "generation"]
    ranks = {
        "max_position_embeddings": 5,
        "hidden_size": 4,
        "generation": 4,
        "num_active_parameters": 2,
        "memory_bandwidth": 3,
    }
    columns = [
        _named(name, entries, rank=ranks.get(name, 1))
        for name in names
        if any(v.field == name for v in entries[0].values)
    ]
    if kind == "accelerators":
        columns.insert(1, Column(title="dense peak", cells=[_peak(e) for e in entries], is_text=True, rank=2))
    return columns


def _named(name: str, entries: Sequence[CatalogueEntry], *, rank: int) -> Column:
    values = [next(v for v in e.values if v.field == name) for e in entries]
    is_text = values[0].quantity == "text"
    return Column(title=TITLES[name], cells=[text_of(v) for v in values], is_text=is_text, rank=rank)


def _peak(entry: CatalogueEntry) -> str:
    value = next(v for v in entry.values if v.quantity == "flops_per_s")
    return f"{value.value / 1e12:g} TFLOP/s {value.field.partition('.')[2]}"


def show_model(page: Page, details: Mapping[str, Any]) -> None:
    """Dimensions and parameter counts."""
    page.line(details["name"], style="bold", indent=0)
    values = model_values(details)
    page.table(
        [
            Column(title="", cells=[v.field.replace("num_", "").replace("_", " ") for v in values], is_text=True),
            Column(title="", cells=[_exact(v) for v in values], is_text=True),
        ]
    )
    page.console.print()
    page.line(f"FLOP per token at {details['sequence_length']:,} tokens: {details['flops_convention']}.", style="dim")
    _origins(page, [details.get("mark"), *details["notes"]], details.get("source"))


def _exact(value: Value) -> str:
    if isinstance(value.value, str):
        return value.value
    text = f"{value.value:,.0f}"
    return text if value.value < 100_000 else f"{text}  ({format_count(value.value)})"


def show_cluster(page: Page, cluster: Cluster) -> None:
    """Every value with its source, tiers inner to outer."""
    page.line(cluster.full_name, style="bold", indent=0)
    page.line(f"of {cluster.accelerator.full_name} ({cluster.accelerator.name})", indent=0)
    for tier in cluster.tiers:
        size = f"{tier.size:,} accelerators" if tier.size else "any number"
        page.line(f"{tier.name}: {tier.kind}, {tier.topology}, {size}", indent=0)
    _values(page, cluster_values(cluster))
    page.console.print()
    page.bullets(cluster.assumptions, style="dim", most_lines=1)
    page.bullets([cluster.notes] if cluster.notes else [], style="dim")


def show_accelerator(page: Page, part: Accelerator) -> None:
    """Every value with its source."""
    page.line(part.full_name, style="bold", indent=0)
    page.line(f"{part.vendor}, {part.generation}", indent=0)
    _values(page, accelerator_values(part))
    _origins(page, (), part.notes)


def _values(page: Page, values: Sequence[Value]) -> None:
    page.console.print()
    names = [v.field.removeprefix("tiers.").removesuffix("_bytes").replace("_", " ").replace(".", " ") for v in values]
    sources = list(dict.fromkeys(v.source for v in values if v.source))
    numbers = [str(sources.index(v.source) + 1) if v.source else "" for v in values]
    page.table(
        [
            Column(title="value", cells=names, is_text=True),
            Column(title="", cells=[text_of(v) for v in values]),
            Column(title="src", cells=numbers),
            Column(title="low confidence", cells=[v.mark for v in values], is_text=True),
        ]
    )
    page.heading("Sources")
    for number, source in enumerate(sources, start=1):
        page.hanging(Text(str(number).rjust(2)), Text(source, style="dim"), gap=1)


def _origins(page: Page, notes: Sequence[str | None], source: str | None) -> None:
    """What a user should know, below a blank line."""
    texts = [text for text in (*notes, source) if text]
    if texts:
        page.console.print()
        page.bullets(texts, style="dim")


def text_of(value: Value) -> str:
    """A value with its unit."""
    if value.value is None:
        return "-"
    return WORDS[value.quantity](value.value)

"""Models, clusters and accelerators by name or by path, and clusters as plain records.

Names are those of the files under ``shardplan/data``, in any case of letters. What looks like a path (a separator or
a suffix) is read as a file in the same format: YAML or JSON for clusters and accelerators, ``config.json`` for models.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from shardplan.errors import InputError, UnknownNameError, nearest_names
from shardplan.inputs.cluster import Accelerator, Cluster
from shardplan.inputs.cluster_record import accelerator_record, cluster_from_record, cluster_record
from shardplan.inputs.documents import Document, parse_document, read_document
from shardplan.inputs.hardware_files import (
    DATA,
    Domain,
    accelerator_from,
    check_document,
    cluster_from,
    domain_from,
    networks,
    scale_up_from,
)
from shardplan.units import format_rate, parse_count

if TYPE_CHECKING:
    from shardplan.inputs.model import ModelConfig

__all__ = [
    "accelerator_record",
    "cluster_from_record",
    "cluster_of_accelerator",
    "cluster_record",
    "list_accelerators",
    "list_clusters",
    "list_models",
    "load_accelerator",
    "load_cluster",
    "load_model",
]

NameOrPath = str | os.PathLike[str]

_SUFFIXES: Final = (".yaml", ".yml", ".json")
_FOLDERS: Final = {
    "model": ("models", ".json"),
    "cluster": ("clusters", ".yaml"),
    "accelerator": ("accelerators", ".yaml"),
}


def list_models() -> list[str]:
    """Names of the models that are shipped."""
    return sorted(_names("model").values())


def list_clusters() -> list[str]:
    """Names of the clusters that are shipped."""
    return sorted(_names("cluster").values())


def list_accelerators() -> list[str]:
    """Names of the accelerators that are shipped."""
    return sorted(_names("accelerator").values())


def load_model(name_or_path: NameOrPath) -> ModelConfig:
    """A model by name, by the path of its ``config.json`` or of the folder that holds one. Raises InputError."""
    from shardplan.inputs.hf_config import read_model_file

    path = _find("model", name_or_path)
    return read_model_file(path / "config.json" if path.is_dir() and (path / "config.json").exists() else path)


def load_accelerator(name_or_path: NameOrPath) -> Accelerator:
    """An accelerator by name or by the path of its file. Raises InputError."""
    document, label = _document("accelerator", name_or_path)
    return accelerator_from(document, label)


def load_cluster(
    name_or_path: NameOrPath,
    *,
    intra_node_bandwidth: float | None = None,
    inter_node_bandwidth: float | None = None,
    intra_node_latency: float | None = None,
    inter_node_latency: float | None = None,
    memory: float | None = None,
    memory_bandwidth: float | None = None,
    peak_flops: Mapping[str, float] | None = None,
    accelerator: NameOrPath | Accelerator | None = None,
) -> Cluster:
    """A cluster by name or by the path of its file, with single values replaced.

    Values are in SI units (bytes, bytes/s, s, FLOP/s) and act as in :meth:`Cluster.with_overrides`. Another
    ``accelerator`` brings its own fast link where that is of the same family. Raises InputError.
    """
    document, label = _document("cluster", name_or_path)
    cluster = cluster_from(document, label, _own_accelerator(document, label))
    if accelerator is not None:
        cluster = _with_accelerator(cluster, accelerator)
    return cluster.with_overrides(
        intra_node_bandwidth=intra_node_bandwidth,
        inter_node_bandwidth=inter_node_bandwidth,
        intra_node_latency=intra_node_latency,
        inter_node_latency=inter_node_latency,
        memory=memory,
        memory_bandwidth=memory_bandwidth,
        peak_flops=peak_flops,
    )


def cluster_of_accelerator(
    name_or_path: NameOrPath,
    *,
    intra_node_bandwidth: float | None = None,
    inter_node_bandwidth: float | None = None,
    intra_node_latency: float | None = None,
    inter_node_latency: float | None = None,
    memory: float | None = None,
    memory_bandwidth: float | None = None,
    peak_flops: Mapping[str, float] | None = None,
) -> Cluster:
    """The usual cluster of an accelerator, with single values replaced as in :func:`load_cluster`.

    It is the node type that the accelerator's file names, or is built from the part's own fast domain and a default
    network; ``assumptions`` says which and why. Raises InputError.
    """
    document, label = _document("accelerator", name_or_path)
    accelerator, usual = accelerator_from(document, label), document.get("usual_cluster")
    if usual:
        cluster = _with_accelerator(load_cluster(usual), name_or_path)
        taken = f"no cluster given: {cluster.full_name}, the usual one of {accelerator.name}"
    else:
        cluster = _built_around(accelerator, document, label)
        taken = f"no cluster given and no node type known for {accelerator.name}: built from its own links"
    return replace(cluster, assumptions=(taken, *cluster.assumptions)).with_overrides(
        intra_node_bandwidth=intra_node_bandwidth,
        inter_node_bandwidth=inter_node_bandwidth,
        intra_node_latency=intra_node_latency,
        inter_node_latency=inter_node_latency,
        memory=memory,
        memory_bandwidth=memory_bandwidth,
        peak_flops=peak_flops,
    )


def _own_accelerator(document: Document, label: str) -> Accelerator:
    """The accelerator that a cluster file names, points to (relative to itself) or describes."""
    given = document["accelerator"]
    if not isinstance(given, str):
        return accelerator_from(given, label)
    beside = Path(label).parent / given
    return load_accelerator(beside if _looks_like_path(given) and beside.is_file() else given)


def _with_accelerator(cluster: Cluster, given: NameOrPath | Accelerator) -> Cluster:
    """``cluster`` made of another accelerator, with that part's own fast link where it is of the same family."""
    if isinstance(given, Accelerator):
        return cluster.with_overrides(accelerator=given)
    document, label = _document("accelerator", given)
    accelerator = accelerator_from(document, label)
    if accelerator == cluster.accelerator:
        return cluster
    cluster = cluster.with_overrides(accelerator=accelerator)
    tier, own = cluster.innermost, scale_up_from(document, label, name=cluster.innermost.name)
    if own is None or own.tier.link_type != tier.link_type or own.tier.bandwidth == tier.bandwidth:
        return cluster
    field = f"tiers.{tier.name}.bandwidth"
    line = (
        f"bandwidth of tier '{tier.name}': {format_rate(own.tier.bandwidth)}, the {own.tier.kind} of {accelerator.name}"
    )
    return replace(
        cluster,
        tiers=(replace(tier, bandwidth=own.tier.bandwidth, kind=own.tier.kind), *cluster.tiers[1:]),
        sources={**cluster.sources, field: own.sources[field]},
        marks={name: mark for name, mark in cluster.marks.items() if name != field}
        | {name: mark for name, mark in own.marks.items() if name == field},
        assumptions=(*cluster.assumptions, f"{line}: {own.sources[field]}"),
    )


def _built_around(accelerator: Accelerator, document: Document, label: str) -> Cluster:
    """A cluster of the part's own fast domain, PCIe where that is small, and a default network."""
    defaults = networks()
    per_node = parse_count(defaults["accelerators_per_node"]["value"], field="accelerators_per_node")
    domains = _own_domains(accelerator, document, label, per_node)
    network = defaults["default_networks"]["pcie" if domains[-1].tier.link_type == "pcie" else "other"]
    outer = domain_from(network, "networks.yaml", name="cluster")
    parts = (*domains, outer)
    mark = defaults["accelerators_per_node"]["mark"]
    return Cluster(
        name=f"{accelerator.name}-default",
        full_name=f"{accelerator.full_name} in a default network",
        accelerator=accelerator,
        tiers=tuple(part.tier for part in parts),
        accelerators_per_node=per_node,
        sources={name: source for part in parts for name, source in part.sources.items()},
        marks={name: mark for part in parts for name, mark in part.marks.items()},
        assumptions=(
            f"accelerators per node: {per_node} ({mark})",
            *(line for part in parts for line in part.assumptions),
        ),
    )


def _own_domains(accelerator: Accelerator, document: Document, label: str, per_node: int) -> list[Domain]:
    """The part's own fast domain, and a node joined by PCIe where that is smaller than a node."""
    own = scale_up_from(document, label, name="node")
    size = 1 if own is None else own.tier.size or 1
    if own is not None and size >= per_node:
        return [own]
    if accelerator.host_link_bandwidth is None:
        raise InputError(
            f"{label}: accelerator '{accelerator.name}' states no link of its own",
            rule="the network of an accelerator is known",
            hint="give scale_up, host_link_bandwidth or usual_cluster in its file, or name a cluster",
        )
    source = accelerator.sources["host_link_bandwidth"]
    bandwidth = {"value": accelerator.host_link_bandwidth / 1e9, "unit": "GB/s", "source": source}
    count = {"value": per_node, "unit": "accelerators", "source": "networks.yaml"}
    raw = {"kind": "PCIe", "link_type": "pcie", "size": count, "bandwidth": bandwidth}
    node = domain_from(raw, label, name="node")
    if own is None or size == 1:
        return [node]
    bridge = scale_up_from(document, label, name="bridge")
    return [node] if bridge is None else [bridge, node]


def _document(what: str, name_or_path: NameOrPath) -> tuple[Document, str]:
    """The fields of a shipped or a user's file, and what to call it in messages. Raises InputError."""
    path = _find(what, name_or_path)
    if path.parent == DATA / _FOLDERS[what][0]:
        return _shipped(path), path.stem
    document = read_document(path)
    check_document(document, str(path), what=what)
    return document, str(path)


@cache
def _shipped(path: Path) -> Document:
    return parse_document(path.read_text(encoding="utf-8"), label=path.name, is_trusted=True)


def _find(what: str, name_or_path: NameOrPath) -> Path:
    """Path of the shipped file called ``name_or_path``, or of the user's. Raises InputError."""
    text = os.fsdecode(name_or_path) if isinstance(name_or_path, str | os.PathLike) else ""
    if not text.strip():
        raise InputError(
            f"{what} is {name_or_path!r}", rule=f"a {what} has a name or a path", hint=f"see `shardplan {what}s`"
        )
    known, (folder, suffix) = _names(what), _FOLDERS[what]
    if not isinstance(name_or_path, os.PathLike) and text.lower() in known:
        return DATA / folder / f"{known[text.lower()]}{suffix}"
    try:
        exists = Path(text).exists()
    except (OSError, ValueError):  # too long, or with a null character
        exists = False
    if exists and (isinstance(name_or_path, os.PathLike) or _looks_like_path(text) or Path(text).is_file()):
        return Path(text)
    if isinstance(name_or_path, os.PathLike) or _looks_like_path(text):
        nearest = nearest_names(text.replace("\\", "/").rsplit("/", maxsplit=1)[-1], known.values())
        raise InputError(
            f"{what} file {text[:200]!r} does not exist",
            rule=f"the {what} file exists",
            hint=f"correct the path, or give a name: {' or '.join(nearest) or f'see `shardplan {what}s`'}",
        )
    raise UnknownNameError(what, text[:200], known.values(), hint=f"see `shardplan {what}s`")


def _looks_like_path(text: str) -> bool:
    return "/" in text or os.sep in text or text.lower().endswith(_SUFFIXES)


@cache
def _names(what: str) -> Mapping[str, str]:
    """Names of the shipped files, by their lower-case form."""
    folder, suffix = _FOLDERS[what]
    stems = [path.stem for path in (DATA / folder).glob(f"*{suffix}")]
    return {stem.lower(): stem for stem in stems}

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
from typing import TYPE_CHECKING, Final, Unpack

from shardplan.errors import InputError, UnknownNameError, nearest_names
from shardplan.files import DATA, Document, read_document, shipped_document
from shardplan.inputs.cluster import Accelerator, Cluster
from shardplan.inputs.readers.default_cluster import cluster_around
from shardplan.inputs.readers.hardware_files import accelerator_from, cluster_from, scale_up_from
from shardplan.inputs.readers.overrides import Overrides, override
from shardplan.units import format_rate

if TYPE_CHECKING:
    from shardplan.inputs.model import ModelConfig


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
    from shardplan.inputs.readers.hf.config import read_model_file

    path = _find("model", name_or_path)
    return read_model_file(path / "config.json" if path.is_dir() and (path / "config.json").exists() else path)


def load_accelerator(name_or_path: NameOrPath) -> Accelerator:
    """An accelerator by name or by the path of its file. Raises InputError."""
    document, label = _document("accelerator", name_or_path)
    return accelerator_from(document, label)


def load_cluster(
    name_or_path: NameOrPath, *, accelerator: NameOrPath | Accelerator | None = None, **overrides: Unpack[Overrides]
) -> Cluster:
    """A cluster by name or by the path of its file, with single values replaced: see :class:`Overrides`.

    Another ``accelerator`` brings its own fast link where that is of the same family. Raises InputError.
    """
    document, label = _document("cluster", name_or_path)
    cluster = cluster_from(document, label, _own_accelerator(document, label))
    if accelerator is not None:
        cluster = _with_accelerator(cluster, accelerator)
    return override(cluster, overrides)


def cluster_of_accelerator(name_or_path: NameOrPath, **overrides: Unpack[Overrides]) -> Cluster:
    """The usual cluster of an accelerator, with single values replaced: see :class:`Overrides`.

    It is the node type that the accelerator's file names, or is built from the part's own scale-up domain and a default
    network; ``assumptions`` says which and why. Raises InputError.
    """
    document, label = _document("accelerator", name_or_path)
    accelerator, usual = accelerator_from(document, label), document.get("usual_cluster")
    if usual:
        cluster = _with_accelerator(load_cluster(_beside(usual, label)), name_or_path)
        taken = f"no cluster given: {cluster.full_name}, the usual one of {accelerator.name}"
    else:
        cluster = cluster_around(accelerator, document, label)
        taken = f"no cluster given and no node type known for {accelerator.name}: built from its own links"
    return override(replace(cluster, assumptions=(taken, *cluster.assumptions)), overrides)


def _own_accelerator(document: Document, label: str) -> Accelerator:
    """The accelerator that a cluster file names, points to or describes."""
    given = document["accelerator"]
    return load_accelerator(_beside(given, label)) if isinstance(given, str) else accelerator_from(given, label)


def _beside(given: str, label: str) -> NameOrPath:
    """A name, or the path of a file relative to the file ``label`` that mentions it."""
    beside = Path(label).parent / given
    return beside if _looks_like_path(given) and beside.is_file() else given


def _with_accelerator(cluster: Cluster, given: NameOrPath | Accelerator) -> Cluster:
    """``cluster`` made of another accelerator, with that part's own fast link where it is of the same family."""
    if isinstance(given, Accelerator):
        return _in_network_of(cluster, given)
    document, label = _document("accelerator", given)
    accelerator = accelerator_from(document, label)
    tier, own = cluster.innermost, scale_up_from(document, label, name=cluster.innermost.name)
    if accelerator == cluster.accelerator:
        return cluster
    cluster = _in_network_of(cluster, accelerator)
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


def _in_network_of(cluster: Cluster, accelerator: Accelerator) -> Cluster:
    """Another part in the same network; the price quoted was that of the old one."""
    line = f"{accelerator.name} in place of {cluster.accelerator.name} in the network of {cluster.name}"
    return replace(cluster, accelerator=accelerator, price_per_hour=None, assumptions=(*cluster.assumptions, line))


def _document(what: str, name_or_path: NameOrPath) -> tuple[Document, str]:
    """The fields of a shipped or a user's file, and what to call it in messages. Raises InputError."""
    path = _find(what, name_or_path)
    if path.parent == DATA / _FOLDERS[what][0]:
        return shipped_document(path), path.stem
    from shardplan.inputs.readers.hardware_schema import check_document

    document = read_document(path)
    check_document(document, str(path), what=what)
    return document, str(path)


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
        nearest = nearest_names(Path(text).name, known.values())
        raise InputError(
            f"{what} file {text[:200]!r} does not exist",
            rule=f"the {what} file exists",
            hint=f"correct the path, or give a name: {' or '.join(nearest) or f'see `shardplan {what}s`'}",
        )
    shown = text[:100] if text.isprintable() else repr(text[:100])[1:-1]
    raise UnknownNameError(what, shown, known.values(), hint=_where_to_look(what, text.lower()))


def _where_to_look(what: str, text: str) -> str:
    """What else ``text`` names, or the names that contain it."""
    lines = [f"{text} is one of the {other}s;" for other in _FOLDERS if other != what and text in _names(other)]
    containing = sorted(name for folded, name in _names(what).items() if text in folded)
    if len(containing) > 1:
        lines.append(f"names that contain it: {', '.join(containing[:6])};")
    return " ".join((*lines, f"see `shardplan {what}s`"))


def _looks_like_path(text: str) -> bool:
    return "/" in text or os.sep in text or text.lower().endswith(_SUFFIXES)


@cache
def _names(what: str) -> Mapping[str, str]:
    """Names of the shipped files, by their lower-case form."""
    folder, suffix = _FOLDERS[what]
    stems = [path.stem for path in (DATA / folder).glob(f"*{suffix}")]
    return {stem.lower(): stem for stem in stems}

"""Models, clusters and accelerators by name or by path.

Names are those of the files under ``shardplan/data``, in any case, or other unambiguous names
(:mod:`shardplan.inputs.readers.names`). Paths lead to files in the same format: YAML or JSON for clusters and
accelerators, ``config.json`` or a folder with one for models. A model may also be in the local hub cache
(:mod:`shardplan.inputs.readers.hub`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeGuard, Unpack

from shardplan.base.errors import InputError, UnknownNameError, nearest_names, shown
from shardplan.base.files import DATA, Document, looks_like_path, printable, read_document, shipped_document
from shardplan.base.units import format_rate
from shardplan.inputs.cluster import Accelerator, Cluster
from shardplan.inputs.readers.hardware_files import accelerator_from, cluster_around, cluster_from, scale_up_from
from shardplan.inputs.readers.names import (
    FOLDERS,
    Relative,
    name_meant,
    names_meant,
    relative_meant,
    shipped_names,
    taken_as,
)
from shardplan.inputs.readers.overrides import Overrides, override

if TYPE_CHECKING:
    from shardplan.inputs.model import ModelConfig


NameOrPath = str | os.PathLike[str]

MOST_NEAR: Final = 5
"""Most similar names that an error lists."""


def list_models() -> list[str]:
    """Names of the built-in models."""
    return sorted(shipped_names("model").values())


def list_clusters() -> list[str]:
    """Names of the built-in clusters."""
    return sorted(shipped_names("cluster").values())


def list_accelerators() -> list[str]:
    """Names of the built-in accelerators."""
    return sorted(shipped_names("accelerator").values())


def load_model(name_or_path: NameOrPath | Mapping[str, Any]) -> ModelConfig:
    """A model by name, by the path of its ``config.json`` or of the folder that holds one. Raises InputError.

    A name may be that of a repository on the Hugging Face hub: one of a built-in model, or one in the local cache.
    A mapping has the contents of a ``config.json``.
    """
    from shardplan.inputs.readers.hf.config import model_from_config, read_model_file
    from shardplan.inputs.readers.hf.file import config_path

    if isinstance(name_or_path, Mapping):
        return model_from_config(name_or_path, name=_name_in(name_or_path))
    path, taken, relative = _find("model", name_or_path)
    if relative is None:
        model = read_model_file(config_path(path))
    else:
        own = {key: value for key, value in shipped_document(path).items() if key != "architectures"}
        model = model_from_config({**own, **relative.changes}, name=relative.name)
    return replace(model, notes=(*taken, *model.notes)) if taken else model


def _name_in(config: Mapping[str, Any]) -> str:
    """Name of a configuration in memory: the last part of its ``_name_or_path``."""
    stated = config.get("_name_or_path")
    return printable(stated.rstrip("/").rpartition("/")[2]) if isinstance(stated, str) and stated else "config"


def load_accelerator(name_or_path: NameOrPath) -> Accelerator:
    """An accelerator by name or by the path of its file. Raises InputError."""
    document, label, _ = _document("accelerator", name_or_path)
    return accelerator_from(document, label)


def load_cluster(
    name_or_path: NameOrPath, *, accelerator: NameOrPath | Accelerator | None = None, **overrides: Unpack[Overrides]
) -> Cluster:
    """A cluster by name or by the path of its file, with single values replaced: see :class:`Overrides`.

    The name of an accelerator stands for its usual cluster. Another ``accelerator`` brings its own fast link if that is
    of the same family. Raises InputError.
    """
    if (
        accelerator is None
        and names_accelerator(name_or_path)
        and not _is_users("cluster", name_or_path, is_path=False)
    ):
        return _usual_cluster(name_or_path, f"{printable(name_or_path)} is the name of an accelerator", overrides)
    document, label, taken = _document("cluster", name_or_path)
    cluster = _with_assumption(cluster_from(document, label, _own_accelerator(document, label)), taken)
    if accelerator is not None:
        cluster = _with_accelerator(cluster, accelerator)
    return override(cluster, overrides)


def names_accelerator(cluster: object) -> TypeGuard[str]:
    """Whether the text for a cluster is the name of an accelerator, and not that of a cluster."""
    if not isinstance(cluster, str) or not cluster.strip() or _is_one("cluster", cluster):
        return False
    return _is_one("accelerator", cluster)


def _with_assumption(cluster: Cluster, taken: tuple[str, ...]) -> Cluster:
    """``cluster`` with an assumption on how its name was understood."""
    return replace(cluster, assumptions=(*taken, *cluster.assumptions)) if taken else cluster


def cluster_of_accelerator(name_or_path: NameOrPath, **overrides: Unpack[Overrides]) -> Cluster:
    """The usual cluster of an accelerator, with single values replaced: see :class:`Overrides`.

    It is the node type that the accelerator's file names, or is built from the accelerator's own scale-up domain and a
    default network; ``assumptions`` says which and why. Raises InputError.
    """
    return _usual_cluster(name_or_path, "no cluster given", overrides)


def _usual_cluster(name_or_path: NameOrPath, why: str, overrides: Overrides) -> Cluster:
    """The usual cluster of an accelerator; its assumptions say ``why`` it was taken."""
    document, label, called = _document("accelerator", name_or_path)
    accelerator, usual = accelerator_from(document, label), document.get("usual_cluster")
    if usual:
        cluster = _with_assumption(
            _with_accelerator(load_cluster(_relative_to_file(usual, label)), name_or_path, is_said=True), called
        )
        taken = f"{why}: {cluster.full_name}, the usual one of {accelerator.name}"
    else:
        cluster = _with_assumption(cluster_around(accelerator, document, label), called)
        taken = f"{why} and no node type is known for {accelerator.name}: built from its own links"
    return override(replace(cluster, assumptions=(taken, *cluster.assumptions)), overrides)


def _own_accelerator(document: Document, label: str) -> Accelerator:
    """The accelerator that a cluster file names, points to or describes."""
    given = document["accelerator"]
    return (
        load_accelerator(_relative_to_file(given, label)) if isinstance(given, str) else accelerator_from(given, label)
    )


def _relative_to_file(given: str, label: str) -> NameOrPath:
    """A name, or the path of a file relative to the file ``label`` that mentions it."""
    beside = Path(label).parent / given
    is_file = looks_like_path(given) and os.path.isfile(beside)  # noqa: PTH113  # Path.is_file raises in closed folders
    return beside if is_file else given


def _with_accelerator(cluster: Cluster, given: NameOrPath | Accelerator, *, is_said: bool = False) -> Cluster:
    """``cluster`` with another accelerator, and with that one's own fast link if it is of the same family.

    ``is_said``: the assumptions already say how the name was understood.
    """
    if isinstance(given, Accelerator):
        return _in_network_of(cluster, given)
    document, label, taken = _document("accelerator", given)
    cluster = cluster if is_said else _with_assumption(cluster, taken)
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
    """Another accelerator in the same network, without the price, which was that of the old one."""
    line = f"{accelerator.name} in place of {cluster.accelerator.name} in the network of {cluster.name}"
    return replace(cluster, accelerator=accelerator, price_per_hour=None, assumptions=(*cluster.assumptions, line))


def _document(what: str, name_or_path: NameOrPath) -> tuple[Document, str, tuple[str, ...]]:
    """The fields of a built-in or a user's file, its name for messages, and assumptions. Raises InputError."""
    path, taken, _ = _find(what, name_or_path)
    if path.parent == DATA / FOLDERS[what][0]:
        return shipped_document(path), path.stem, taken
    from shardplan.inputs.readers.hardware_schema import check_document

    document = read_document(path)
    check_document(document, str(path), what=what)
    return document, str(path), taken


def shipped_name(what: str, name: str) -> str:
    """The built-in model, cluster or accelerator that ``name`` means. Reads no user file. Raises InputError.

    For callers who may not read files: ``/etc/passwd`` is an unknown name.
    """
    known = shipped_names(what)
    found = known.get(name.lower()) or name_meant(what, name)
    relative = relative_meant(name) if found is None and what == "model" else None
    if relative is not None:
        return relative.name
    if found is None:
        shown = name[:100] if name.isprintable() else repr(name[:100])[1:-1]
        meant = names_meant(what, name)
        raise UnknownNameError(what, shown, () if meant else known.values(), hint=_where_to_look(what, name, meant))
    return found


def is_shipped(what: str, name: str) -> bool:
    """Whether ``name`` means a built-in model, cluster or accelerator, and not a user's file."""
    try:
        shipped_name(what, name)
    except UnknownNameError:
        return False
    return name.lower() in shipped_names(what) or not _is_users(what, name, is_path=False)


class NamedFile(NamedTuple):
    """The file that a name means."""

    path: Path
    taken: tuple[str, ...] = ()
    """How the name was understood, if it is not that of the file."""
    relative: Relative | None = None
    """The meant model, if its dimensions differ from those of the file."""


def _find(what: str, name_or_path: NameOrPath) -> NamedFile:
    """The built-in file called ``name_or_path``, the user's, or a built-in one by another name. Raises InputError."""
    text = os.fsdecode(name_or_path) if isinstance(name_or_path, str | os.PathLike) else ""
    if not text.strip():
        raise InputError(
            f"{what} is {shown(name_or_path)}", rule=f"a {what} has a name or a path", hint=f"see `shardplan {what}s`"
        )
    is_path = isinstance(name_or_path, os.PathLike)
    if not is_path and text.lower() in shipped_names(what):
        return NamedFile(_shipped(what, shipped_names(what)[text.lower()]))
    if _is_users(what, text, is_path=is_path):
        return NamedFile(Path(text))
    named = None if is_path else _file_by_other_name(what, text)
    if named is None:
        raise _not_found(what, text, is_path=is_path or looks_like_path(text))
    return named


def _shipped(what: str, name: str) -> Path:
    folder, suffix = FOLDERS[what]
    return DATA / folder / f"{name}{suffix}"


def _is_users(what: str, text: str, *, is_path: bool) -> bool:
    """Whether ``text`` is the path of an existing file, or of a folder that is meant as one."""
    path = Path(text)
    try:
        if not path.exists():
            return False
        if what == "model" and path.is_dir():
            return (path / "config.json").is_file()
        return is_path or looks_like_path(text) or path.is_file()
    except (OSError, ValueError):  # too long, or with a null character
        return False


def _file_by_other_name(what: str, text: str) -> NamedFile | None:
    """The built-in file with another name, or a model of the hub cache; None if there is none."""
    from shardplan.inputs.readers.hub import cached_model

    relative = relative_meant(text) if what == "model" else None
    if relative is not None:
        said = () if text.lower() == relative.name else (f"model {text[:80]} is taken as {relative.name}",)
        return NamedFile(_shipped(what, relative.like), said, relative)
    exact = name_meant(what, text)
    if exact is not None:
        return NamedFile(_shipped(what, exact), (f"{what} {taken_as(what, text)}",))
    cached = cached_model(text) if what == "model" else None
    return None if cached is None else NamedFile(cached.config, (cached.said,))


def _is_folder(text: str) -> bool:
    try:
        return Path(text).is_dir()
    except (OSError, ValueError):  # too long, or with a null character
        return False


def _not_found(what: str, text: str, *, is_path: bool) -> InputError:
    shown = text[:100] if text.isprintable() else repr(text[:100])[1:-1]
    known = shipped_names(what)
    is_repository = (
        what == "model"
        and text.count("/") == 1
        and text[0] not in "./~"
        and not text.endswith((".yaml", ".yml", ".json"))
    )
    if what == "model" and _is_folder(text):
        return InputError(
            f"the folder {text[:200]!r} holds no config.json",
            rule="the folder of a model holds its config.json",
            hint="put the model's config.json there, or give a name: see `shardplan models`",
        )
    if is_repository:
        from shardplan.inputs.readers.hub import NotFetchedError

        return NotFetchedError(shown)
    if is_path:
        nearest = nearest_names(Path(text).name, known.values())
        return InputError(
            f"{what} file {text[:200]!r} does not exist",
            rule=f"the {what} file exists",
            hint=f"correct the path, or give a name: {' or '.join(nearest) or f'see `shardplan {what}s`'}",
        )
    meant = names_meant(what, text)  # several; a single one would have been found
    return UnknownNameError(what, shown, () if meant else known.values(), hint=_where_to_look(what, text, meant))


def _where_to_look(what: str, text: str, meant: Sequence[str]) -> str:
    """What else ``text`` names, or names that it may mean: ``meant``, or if there are none, names that contain it."""
    lines = [f"{text[:100]} is one of the {other}s;" for other in FOLDERS if other != what and _is_one(other, text)]
    known = shipped_names(what)
    is_near = not meant and nearest_names(text[:100], known.values())
    listed = meant or sorted(name for folded, name in known.items() if not is_near and text.lower() in folded)
    if len(listed) > 1:
        listed, more = listed[:MOST_NEAR], len(listed) - MOST_NEAR
        lines.append(f"it may be {', '.join(listed)}{f' and {more} more' if more > 0 else ''};")
    return " ".join((*lines, f"see `shardplan {what}s`"))


def _is_one(what: str, text: str) -> bool:
    if text.lower() in shipped_names(what) or name_meant(what, text) is not None:
        return True
    return what == "model" and relative_meant(text) is not None

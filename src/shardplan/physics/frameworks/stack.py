"""A stack: the documented defaults of one training framework, so that naming it gives its behaviour.

``data/stacks`` holds one file for each. A default is a field of :class:`Software`, :class:`Job` or :class:`Plan` with
its source; what a user or a measured run states takes its place. Beside the defaults the file records what the
framework can run (:mod:`shardplan.physics.frameworks.capabilities`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from shardplan.base.errors import InputError, ShardplanError, UnknownNameError, shown
from shardplan.base.fields import dataclass, in_files
from shardplan.base.files import DATA, Document, looks_like_path, read_document, shipped_document
from shardplan.base.words import folded
from shardplan.inputs.job import PRECISIONS, Job, recipe_of
from shardplan.inputs.plan import Plan
from shardplan.inputs.software import Software
from shardplan.physics.frameworks.releases import Earlier, at_release, read_history, undone

if TYPE_CHECKING:
    from shardplan.physics.frameworks.capabilities import Capabilities


STACKS: Final = DATA / "stacks"

STACKED_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "software": tuple(f.name for f in fields(Software)),
    "job": ("optimizer", "attention", "grad_dtype", "moment_dtype", "dropout"),
    "plan": (
        "sequence_parallel", "sharding", "recompute", "offload", "cp_comm",
        "overlap_tp", "overlap_dp", "overlap_pp", "overlap_ep",
    ),
}  # fmt: skip
"""Fields of each record for which a framework may have a default."""

_HEAD: Final = (
    "name",
    "full_name",
    "date",
    "frameworks",
    "aliases",
    "where",
    "usual_on",
    "only_for_runs",
    "layers_per_chunk",
    "stages_by_cost",
    "experts_split_as_layers",
    "since",
    "earlier",
    "can_run",
    "can_run_before",
    "notes",
)


@dataclass(frozen=True, kw_only=True)
class Stack:
    """Defaults of one framework."""

    name: str
    """Identifier, such as ``megatron-bridge``."""
    full_name: str = field(metadata=in_files("title"))
    """Name in its makers' words."""
    frameworks: tuple[str, ...] = ()
    """Names under which runs of it are recorded."""
    aliases: tuple[str, ...] = ()
    """Other names of it, and of what runs on the same parts: they are taken as the first of ``frameworks``, and a
    prediction says so."""
    where: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Stated values of a recorded run that choose this stack among those of its framework."""
    usual_on: tuple[str, ...] = ()
    """Makers of accelerators on which it is the usual framework: it is taken there if none is named."""
    only_for_runs: bool = False
    """Whether it is here to describe published runs: its makers keep it, or it is no longer developed."""
    software: Mapping[str, Any] = field(default_factory=dict)
    """Fields of ``Software``; a value may be given for each precision."""
    job: Mapping[str, Any] = field(default_factory=dict)
    """Fields of ``Job``; likewise."""
    plan: Mapping[str, Any] = field(default_factory=dict)
    """Fields of ``Plan``."""
    layers_per_chunk: int | None = None
    """Layers of a model chunk where a pipeline's ``vp`` is left open; None: pipelines are not interleaved."""
    stages_by_cost: bool = False
    """Whether stages are closed by the cost of their layers and the head; otherwise layers are shared out evenly."""
    experts_split_as_layers: bool = False
    """Whether experts are split over the tensor-parallel ranks (``etp`` is ``tp``) where nothing is stated."""
    sources: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Where each default comes from, by ``software.cuda_graphs`` and the like."""
    since: str = ""
    """Month of its first public version; empty: its history is not on record."""
    earlier: tuple[Earlier, ...] = field(default=(), repr=False)
    """What was different before a month, the latest change first."""
    as_of: str = ""
    """Month whose behaviour this is; empty: that of the version in ``can_run``."""
    can_run: Capabilities | None = field(default=None, repr=False)
    """What the framework can run in its newest version, or in the one that was asked for; None: no record."""
    can_run_before: tuple[Capabilities, ...] = field(default=(), repr=False)
    """The same of other versions, the latest first."""
    notes: str = field(default="", repr=False)
    """What a user should know."""

    def __post_init__(self) -> None:
        """Checks every default by making the records. Raises ``InputError``."""
        for precision in PRECISIONS:
            Job(sequence_length=1, global_batch_size=1, **self.job_fields(precision))
        Plan(**self.plan_fields())

    @property
    def label(self) -> str:
        """Name and version of the record of what it can run, such as ``deepspeed 0.19.6``; or the month asked for."""
        if self.as_of:
            return f"{self.name} {self.as_of}"
        return self.name if self.can_run is None else f"{self.name} {self.can_run.version}"

    @property
    def versioned_name(self) -> str:
        """What names it on the command line: ``deepspeed``, or ``torchtitan@0.3.0`` where a newer record is shipped."""
        if self.as_of:
            return f"{self.name}@{self.as_of}"
        newest = _shipped(self.name).can_run if self.name in list_stacks() else self.can_run
        if self.can_run is None or newest is None or self.can_run.version == newest.version:
            return self.name
        return f"{self.name}@{self.can_run.version}"

    def job_fields(self, precision: str) -> dict[str, Any]:
        """Arguments of ``Job`` at this precision, ``software`` among them. Raises ``UnknownNameError``."""
        recipe_of(precision)  # else defaults for each precision would be left out without a word
        software = Software(**_at_precision(self.software, precision))
        return _at_precision(self.job, precision) | {"software": software}

    def plan_fields(self) -> dict[str, Any]:
        """Arguments of ``Plan``."""
        return dict(self.plan)

    def at_version(self, version: str) -> Stack:
        """The stack at a version on record (``0.3`` names 0.3.0) or in a month (``2024-12``). Raises InputError."""
        return at_release(self, version)


class Same:
    """A stack that is the same as itself alone: it holds mappings, which have no hash."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack

    def __hash__(self) -> int:
        return id(self.stack)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.stack is other.stack


def list_stacks() -> list[str]:
    """Names of the stacks that are shipped."""
    return list(_names())


@cache
def _names() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in STACKS.glob("*.yaml")))


def load_stack(name_or_path: str | os.PathLike[str]) -> Stack:
    """A stack by name, by name and version or month (``torchtitan@0.3``, ``torchtitan@2024-12``) or by file.

    Raises InputError.
    """
    text = os.fspath(name_or_path) if isinstance(name_or_path, str | os.PathLike) else repr(name_or_path)
    text = text if isinstance(text, str) else repr(text)
    known = _named(text)
    if known is not None:
        return known
    if isinstance(name_or_path, os.PathLike) or looks_like_path(text):
        return _stack_from(read_document(Path(text)), text, is_shipped=False)
    raise _unknown(text, "see `shardplan stacks`, or give a file")


def shipped_stack(name: str) -> Stack:
    """The shipped stack that ``name`` means, at a version if it names one. No file is looked at. Raises InputError."""
    found = _named(name)
    if found is None:
        raise _unknown(name, "see `shardplan stacks`")
    return found


def _named(text: str) -> Stack | None:
    """The shipped stack of a name, such as ``torchtitan@0.3``; None where none has it."""
    name, at, version = text.lower().partition("@")
    known = name if name in list_stacks() else _aliases().get(folded(name))
    if known is None:
        return None
    return _shipped(known).at_version(version) if at else _shipped(known)


def _unknown(text: str, hint: str) -> UnknownNameError:
    shown = text[:100] if text.isprintable() else repr(text[:100])[1:-1]
    return UnknownNameError("stack", shown, list_stacks(), hint=hint)


@cache
def _aliases() -> Mapping[str, str]:
    """Stacks by the folded names of their own and of other projects that are known by them: ``megatron``, ``fsdp2``."""
    files = {name: shipped_document(STACKS / f"{name}.yaml") for name in list_stacks()}
    aliases = {folded(alias): name for name, file in files.items() for alias in file.get("aliases") or ()}
    return {**aliases, **{folded(name): name for name in files}}


@cache
def _shipped(name: str) -> Stack:
    path = STACKS / f"{name}.yaml"
    document = shipped_document(path)
    return _stack_from(document, path.name)


def _at_precision(values: Mapping[str, Any], precision: str) -> dict[str, Any]:
    """Values at one precision; those that are given for others only are left out."""
    chosen = {name: value.get(precision) if isinstance(value, Mapping) else value for name, value in values.items()}
    return {name: value for name, value in chosen.items() if value is not None}


def _stack_from(document: Document, label: str, *, is_shipped: bool = True) -> Stack:
    for name in document:
        if name not in (*_HEAD, *STACKED_FIELDS):
            raise UnknownNameError(f"field of stack file {label}", str(name)[:60], (*_HEAD, *STACKED_FIELDS))
    sources: dict[str, str] = {}
    defaults: dict[str, Any] = {part: _defaults(document.get(part), part, label, sources) for part in STACKED_FIELDS}
    chunk = document.get("layers_per_chunk")
    try:
        found = Stack(
            name=_text(document, "name", label),
            full_name=str(document.get("full_name") or document["name"]),
            frameworks=tuple(_texts(document.get("frameworks") or [], "frameworks", label)),
            aliases=tuple(_texts(document.get("aliases") or [], "aliases", label)),
            where={
                str(column): tuple(_texts(values, f"where.{column}", label))
                for column, values in _mapping(document.get("where") or {}, "where", label).items()
            },
            layers_per_chunk=None
            if chunk is None
            else _count(_value(chunk, "layers_per_chunk", label, sources), label),
            usual_on=tuple(_sourced_texts(document, "usual_on", label, sources)),
            only_for_runs=_flag(document, "only_for_runs", label, sources),
            stages_by_cost=_flag(document, "stages_by_cost", label, sources),
            experts_split_as_layers=_flag(document, "experts_split_as_layers", label, sources),
            **_records(document, label, is_shipped=is_shipped),
            **read_history(document, label, sources, _defaults),
            sources=sources,
            notes=str(document.get("notes") or ""),
            **defaults,
        )
        for change in () if is_shipped else found.earlier:  # those that are shipped are tested
            undone(found, change)
    except ShardplanError as error:
        raise InputError(f"{label}: {error.message}", rule=error.rule, hint=error.hint) from None
    return found


def _defaults(raw: object, part: str, label: str, sources: dict[str, str]) -> dict[str, Any]:
    read: dict[str, Any] = {}
    for name, entry in _mapping(raw or {}, part, label).items():
        if name not in STACKED_FIELDS[part]:
            raise UnknownNameError(
                f"{part} field of stack file {label}", str(name)[:60], STACKED_FIELDS[part],
                hint=f"one of {', '.join(STACKED_FIELDS[part])}",
            )  # fmt: skip
        value = _value(entry, f"{part}.{name}", label, sources)
        if isinstance(value, Mapping):
            for precision in value:
                if part == "plan" or precision not in PRECISIONS:
                    raise UnknownNameError(
                        f"precision of {part}.{name} in stack file {label}", str(precision)[:60], PRECISIONS
                    )
        read[name] = value
    return read


def _value(entry: object, name: str, label: str, sources: dict[str, str]) -> Any:
    """The value of ``{value: ..., source: ...}``; its source is kept."""
    if not isinstance(entry, Mapping) or set(entry) != {"value", "source"}:
        raise InputError(
            f"{label}: {name} is {shown(str(entry))}",
            rule="a default has a value and a source",
            hint=f"write {name.rpartition('.')[2]}: {{value: ..., source: ...}}",
        )
    sources[name] = str(entry["source"])
    return entry["value"]


def _records(document: Document, label: str, *, is_shipped: bool) -> dict[str, Any]:
    """What the framework can run, in its newest version and in earlier ones; options that are shipped are tested."""
    if document.get("can_run") is None and "can_run_before" not in document:
        return {}
    from shardplan.physics.frameworks.capabilities import read_capabilities  # most questions name no stack

    given = _mapping(document.get("can_run"), "can_run", label)
    base = _alike(_text(given, "like", f"{label}: can_run"), label) if "like" in given else None
    newest = read_capabilities({name: value for name, value in given.items() if name != "like"}, "can_run", base)
    before = document.get("can_run_before", [])
    if not isinstance(before, list):
        raise InputError(
            f"{label}: can_run_before is {shown(str(before))}",
            rule="can_run_before is a list of what differs from can_run in earlier versions",
            hint='write can_run_before: [{version: "...", date: "...", ...}]',
        )
    earlier = tuple(read_capabilities(each, "can_run_before", newest) for each in before)
    for each in () if is_shipped else (newest, *earlier):
        each.check_options()
    return {"can_run": newest, "can_run_before": earlier}


def _alike(name: str, label: str) -> Capabilities | None:
    """The record of the shipped stack that another record is like."""
    if name.partition("@")[0] not in list_stacks():
        known = ", ".join(list_stacks())
        raise UnknownNameError(f"stack after like in {label}", name[:60], list_stacks(), hint=f"one of {known}")
    return load_stack(name).can_run


def _flag(document: Document, name: str, label: str, sources: dict[str, str]) -> bool:
    raw = document.get(name)
    value = False if raw is None else _value(raw, name, label, sources)
    if not isinstance(value, bool):
        raise InputError(f"{label}: {name} is {shown(str(value))}", rule=f"{name} is true or false", hint="true")
    return value


def _mapping(raw: object, name: str, label: str) -> Mapping[str, Any]:
    if not isinstance(raw, Mapping):
        raise InputError(
            f"{label}: {name} is {shown(str(raw))}", rule=f"{name} holds named fields", hint=f"give fields under {name}"
        )
    return raw


def _text(document: Mapping[str, Any], name: str, label: str) -> str:
    value = document.get(name)
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{label}: {name} is {shown(str(value))}", rule=f"a stack has a {name}", hint=f"give {name}")
    return value


def _texts(raw: object, name: str, label: str) -> list[str]:
    if not isinstance(raw, list) or not all(isinstance(item, str) for item in raw):
        raise InputError(f"{label}: {name} is {shown(str(raw))}", rule=f"{name} is a list of names", hint="[a, b]")
    return raw


def _sourced_texts(document: Document, name: str, label: str, sources: dict[str, str]) -> list[str]:
    raw = document.get(name)
    return [] if raw is None else _texts(_value(raw, name, label, sources), name, label)


def _count(value: object, label: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 1000:
        raise InputError(
            f"{label}: layers_per_chunk is {shown(str(value))}",
            rule="layers_per_chunk is a whole number from 1 to 1000",
            hint="leave it out where pipelines are not interleaved",
        )
    return value

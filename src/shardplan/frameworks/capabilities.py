"""What one version of a training framework can run, read from the key ``can_run`` of its stack file.

Every entry has a value and a source, and a mark where it is from memory. An entry that a record leaves out restricts
nothing. :mod:`shardplan.frameworks.runnable` turns a record into rules.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field, fields, replace
from typing import Any, Final, Literal, NamedTuple, get_args

from shardplan.errors import InputError, UnknownNameError, shown
from shardplan.fields import dataclass
from shardplan.frameworks.conditions import Condition, parse_condition
from shardplan.frameworks.layer_kinds import LAYER_KINDS
from shardplan.frameworks.option_entries import OptionTable, read_options
from shardplan.inputs.job import PACKED, PRECISIONS, Optimizer
from shardplan.inputs.plan import NAME, OP_SAC, RECOMPUTE_MODULES, CpComm, Plan, Sharding, TpKind, placement_tokens
from shardplan.inputs.software import CHOICES

Switch = Literal["either", "on", "off"]
Ways = Literal["equal", "counts", "remainder", "by_cost"]
Counted = Literal["stage", "chunk"]
GroupSizes = Literal["any", "pp"]
ExpertTp = Literal["any", "one", "tp"]

ANY_PLACEMENT: Final = "any"
RECOMPUTE_WORDS: Final = (*RECOMPUTE_MODULES, OP_SAC, "full")
CONCERNED: Final = (
    *(each.name for each in fields(Plan)), "precision", "optimizer", "global_batch_size", "base_weights", *CHOICES,
)  # fmt: skip
"""Fields of a plan, a job or its software that an exclusion may concern."""

_DATE: Final = re.compile(r"\d{4}-\d{2}(-\d{2})?")
_HEAD: Final = ("version", "date", "repository", "commit")


@dataclass(frozen=True, kw_only=True)
class Exclusion:
    """Plans that a framework refuses beyond what the other entries say."""

    rule: str
    """The framework's rule, as a sentence."""
    when: Condition
    """Which plans break it."""
    field: str
    """The field of the plan or the job that it concerns first."""
    instead: str
    """What the framework can do instead."""
    source: str
    from_memory: bool = False


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """What one version of a framework can run. None: not stated, and so not restricted."""

    version: str
    """Version of the framework, such as ``0.16.1``."""
    date: str
    """When this version was current: a year and a month, or a day."""
    repository: str = ""
    """Where its sources are, such as ``github.com/NVIDIA/Megatron-LM``; or the paper that describes it."""
    commit: str = ""
    """Commit at which the sources were read."""
    vendors: tuple[str, ...] | None = None
    """Makers of the accelerators that it runs on, as accelerators name their ``vendor``."""
    layer_kinds: tuple[str, ...] | None = None
    """Kinds of layers that it has models with."""
    lora: bool | None = None
    """Whether it trains low-rank adapters next to frozen weights."""
    base_weights: tuple[str, ...] | None = None
    """Formats of few bits that weights next to adapters can have."""
    packed_documents: bool | None = None
    """Whether tokens of documents that share a sequence can attend within their own document only."""
    schedules: Mapping[str, str] | None = None
    """Pipeline schedules, each with the framework's own name of it; none: it has no pipelines."""
    group_sizes: str | None = None
    """Micro-batches that a virtual stage runs in a row: ``any`` number, or always ``pp``."""
    shardings: tuple[str, ...] | None = None
    """What data parallelism may shard without a pipeline."""
    pipelined_shardings: tuple[str, ...] | None = None
    """The same with a pipeline."""
    partial_shardings: tuple[str, ...] | None = None
    """Kinds of sharding that take a ``sharding_degree`` smaller than all replicas."""
    recompute: tuple[str, ...] | None = None
    """Modules whose recomputation can be chosen, alone or together, and ``full`` and ``op_sac`` where they exist."""
    recompute_layers: Mapping[str, str] | None = None
    """Policies that can be limited to a number of layers, and whether the number counts per ``stage`` or ``chunk``."""
    layers: tuple[str, ...] | None = None
    """How layers are shared among model chunks: ``equal`` (pp vp divides them), ``counts`` (any numbers can be stated),
    ``remainder`` (the framework spreads what is left over), ``by_cost`` (it closes stages by cost, nothing else)."""
    empty_chunks: bool | None = None
    """Whether a model chunk may be without layers (embedding or head alone)."""
    cp_comm: tuple[str, ...] | None = None
    """Exchanges of context parallelism; none: it has no context parallelism."""
    tp_kinds: tuple[str, ...] | None = None
    """Kinds of tensor parallelism; none: it has no tensor parallelism."""
    sequence_parallel: str | None = None
    """Sequence parallelism together with tensor parallelism: ``either`` way, always ``on`` or always ``off``."""
    expert_parallel: bool | None = None
    """Whether experts can be shared among ranks."""
    expert_tensor_parallel: str | None = None
    """Expert-tensor parallelism: ``any`` degree, always ``one``, or always that of ``tp``."""
    overlap_tp: str | None = None
    """Tensor-parallel collectives pipelined with their products: ``either``, always ``on`` or always ``off``."""
    overlap_dp: str | None = None
    """Gradient reduction and parameter gathering overlapped with computation."""
    overlap_pp: str | None = None
    """Transfers between stages overlapped with computation."""
    overlap_ep: str | None = None
    """Expert dispatch overlapped with another micro-batch's computation."""
    precisions: tuple[str, ...] | None = None
    optimizers: tuple[str, ...] | None = None
    offload: tuple[str, ...] | None = None
    """What can live in host memory."""
    offload_layers: bool | None = None
    """Whether the offload of activations can be limited to a number of layers."""
    software: Mapping[str, tuple[str, ...]] | None = None
    """Values that a user can choose for fields of its software, by field; a field that is left out is as it is."""
    placements: tuple[str, ...] | None = None
    """Orders of the dimensions from the fastest network outward, or ``any``."""
    options: OptionTable | None = None
    """The framework's own options of a plan, with values of the plan in braces."""
    refuses: tuple[Exclusion, ...] = ()
    """Combinations that it refuses besides."""
    sources: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Where each entry comes from: a path in the repository, or a paper."""
    from_memory: tuple[str, ...] = ()
    """Entries that were not looked up."""

    def at(self, version: str) -> bool:
        """Whether ``version`` names this record: ``0.3`` names 0.3.0, ``main`` names main-2026-08."""
        rest = self.version.removeprefix(version)
        return rest == "" or (rest != self.version and rest[0] in ".-+ ")

    def check_options(self) -> None:
        """Parses the options. Raises ``InputError``."""
        if self.options is not None:
            _ = self.options.entries

    @property
    def stated(self) -> tuple[str, ...]:
        """Names of the entries that the record has."""
        return tuple(name for name in FORMS if getattr(self, name) is not None)


class Form(NamedTuple):
    """How an entry is written."""

    kind: Literal["names", "texts", "name", "flag", "mapping", "software", "options"]
    known: tuple[str, ...] | None = None
    """Names that it may have, keys in a mapping; None: any well-formed name."""
    values: tuple[str, ...] | None = None
    """Values of a mapping; None: any text."""


FORMS: Final[Mapping[str, Form]] = {
    "vendors": Form("texts"),  # a user's accelerator may be of any maker
    "layer_kinds": Form("names", LAYER_KINDS),
    "lora": Form("flag"),
    "base_weights": Form("names", tuple(PACKED)),
    "packed_documents": Form("flag"),
    "schedules": Form("mapping"),  # other packages add schedules: which are known is a rule of validity
    "group_sizes": Form("name", get_args(GroupSizes)),
    "shardings": Form("names", get_args(Sharding)),
    "pipelined_shardings": Form("names", get_args(Sharding)),
    "partial_shardings": Form("names", get_args(Sharding)),
    "recompute": Form("names", RECOMPUTE_WORDS),
    "recompute_layers": Form("mapping", RECOMPUTE_WORDS, get_args(Counted)),
    "layers": Form("names", get_args(Ways)),
    "empty_chunks": Form("flag"),
    "cp_comm": Form("names", get_args(CpComm)),
    "tp_kinds": Form("names", get_args(TpKind)),
    "sequence_parallel": Form("name", get_args(Switch)),
    "expert_parallel": Form("flag"),
    "expert_tensor_parallel": Form("name", get_args(ExpertTp)),
    "overlap_tp": Form("name", get_args(Switch)),
    "overlap_dp": Form("name", get_args(Switch)),
    "overlap_pp": Form("name", get_args(Switch)),
    "overlap_ep": Form("name", get_args(Switch)),
    "precisions": Form("names", tuple(PRECISIONS)),
    "optimizers": Form("names", get_args(Optimizer)),
    "offload": Form("names", ("optimizer", "activations")),
    "offload_layers": Form("flag"),
    "software": Form("software", tuple(CHOICES)),
    "placements": Form("names"),
    "options": Form("options"),
}
"""Entries of a record, in the order in which they are shown."""


def read_capabilities(raw: object, label: str, base: Capabilities | None = None) -> Capabilities:
    """The record in ``raw``, which states what differs from ``base`` if there is one. Raises ``InputError``."""
    given = _mapping(raw, label, (*_HEAD, *FORMS, "refuses"))
    found: dict[str, Any] = {name: _head(given, name, label, base) for name in _HEAD}
    sources: dict[str, str] = {}
    remembered: list[str] = []
    for name in (each for each in FORMS if each in given):
        where = f"{name} of {label}"
        entry = _mapping(given[name], where, ("value", "source", "from_memory"))
        found[name] = _read(entry.get("value"), FORMS[name], name, where)
        sources[name], is_remembered = _origin(entry, where)
        remembered += [name] if is_remembered else []
    if "refuses" in given:
        found["refuses"] = _exclusions(given["refuses"], label)
    if base is None:
        return Capabilities(**found, sources=sources, from_memory=tuple(remembered))
    return _over(base, found, sources, remembered)


def _over(base: Capabilities, found: dict[str, Any], sources: dict[str, str], remembered: list[str]) -> Capabilities:
    """``base`` with other entries in place of its own; what is kept names the repository where it was read."""
    same = (base.repository, base.commit) == (found["repository"], found["commit"])
    origin = "" if same else f"{base.repository} {base.commit}: ".lstrip()
    kept = {name: f"{origin}{source}" for name, source in base.sources.items()}
    excluded = tuple(replace(each, source=f"{origin}{each.source}") for each in base.refuses)
    from_memory = (*(name for name in base.from_memory if name not in found), *remembered)
    return replace(base, **{"refuses": excluded, **found}, sources=kept | sources, from_memory=from_memory)


def _head(given: Mapping[str, Any], name: str, label: str, base: Capabilities | None) -> str:
    value = given.get(name, "" if base is None else getattr(base, name))
    if not isinstance(value, str) or (name in ("version", "date") and not value.strip()):
        rule = f"a record has a {name}, a text in quotes"
        raise _wrong(f"{name} of {label}", given.get(name), rule, f'{name}: "..."')
    if name == "date" and not _DATE.fullmatch(value):
        raise _wrong(f"date of {label}", value, "a date is a year and a month, or a day", 'date: "2026-08"')
    return value


def _origin(entry: Mapping[str, Any], where: str) -> tuple[str, bool]:
    """Source of an entry, and whether it is from memory."""
    source, remembered = entry.get("source"), entry.get("from_memory", False)
    if not isinstance(source, str) or not source.strip():
        raise _wrong(
            f"source of {where}", source, "every entry has a source", "source: path in the repository, or paper"
        )
    if not isinstance(remembered, bool):
        raise _wrong(f"from_memory of {where}", remembered, "from_memory is true or false", "from_memory: true")
    return source, remembered


def _read(value: object, form: Form, name: str, where: str) -> Any:
    """The value of an entry in its form."""
    if form.kind == "options":
        return read_options(value, where)
    if form.kind == "flag":
        if not isinstance(value, bool):
            raise _wrong(f"value of {where}", value, f"{name} is true or false", "value: true")
        return value
    if form.kind == "name":
        return _name(value, form.known, where)
    if form.kind in ("names", "texts"):
        if not isinstance(value, list):
            raise _wrong(f"value of {where}", value, f"{name} is a list of names", f"value: [{_few(form.known)}]")
        read = tuple(_name(each, form.known, where, free=form.kind == "texts") for each in value)
        return _placements(read) if name == "placements" else read
    if form.kind == "software":
        return _software(value, where)
    if not isinstance(value, Mapping):
        raise _wrong(f"value of {where}", value, f"{name} is a mapping of names", f"value: {{{_few(form.known)}: ...}}")
    return {_name(key, form.known, where): _name(each, form.values, where, free=True) for key, each in value.items()}


def _name(value: object, known: tuple[str, ...] | None, where: str, *, free: bool = False) -> str:
    """One name; ``free``: any text where no names are known."""
    if not isinstance(value, str) or (known is None and not (value.strip() if free else NAME.fullmatch(value))):
        raise _wrong(f"value of {where}", value, "a name is a text", "write a name")
    if known is not None and value not in known:
        raise UnknownNameError(where, value[:60], known, hint=f"one of {', '.join(known)}")
    return value


def _software(value: object, where: str) -> dict[str, tuple[str, ...]]:
    """Values of fields of the software, each one of those that the field can have."""
    read: dict[str, tuple[str, ...]] = {}
    for name, values in _mapping(value, f"value of {where}", tuple(CHOICES)).items():
        if not isinstance(values, list) or not values:
            raise _wrong(f"{name} of {where}", values, "a field has a list of values", f"{name}: [{CHOICES[name][0]}]")
        read[name] = tuple(_name(each, CHOICES[name], f"{name} of {where}") for each in values)
    return read


def _placements(orders: tuple[str, ...]) -> tuple[str, ...]:
    for order in orders:
        if order != ANY_PLACEMENT:
            placement_tokens(order)
    return orders


def _exclusions(raw: object, label: str) -> tuple[Exclusion, ...]:
    if not isinstance(raw, list):
        raise _wrong(f"refuses of {label}", raw, "refuses is a list of rules", "refuses: [{rule: ..., when: ...}]")
    return tuple(_exclusion(each, f"refuses[{number}] of {label}") for number, each in enumerate(raw))


def _exclusion(raw: object, where: str) -> Exclusion:
    given = _mapping(raw, where, ("rule", "when", "field", "instead", "source", "from_memory"))
    for name in ("rule", "instead"):
        if not isinstance(given.get(name), str) or not given[name].strip():
            raise _wrong(
                f"{name} of {where}", given.get(name), f"an exclusion has a sentence as its {name}", f"{name}: ..."
            )
    source, remembered = _origin(given, where)
    return Exclusion(
        rule=given["rule"],
        when=parse_condition(given.get("when"), f"when of {where}"),
        field=_name(given.get("field"), CONCERNED, f"field of {where}"),
        instead=given["instead"],
        source=source,
        from_memory=remembered,
    )


def _mapping(raw: object, where: str, known: tuple[str, ...]) -> Mapping[str, Any]:
    if not isinstance(raw, Mapping):
        raise _wrong(where, raw, f"it has the fields {', '.join(known[:4])} ...", f"write fields: {_few(known)}")
    for name in raw:
        if name not in known:
            raise UnknownNameError(f"field of {where}", str(name)[:60], known, hint=f"one of {', '.join(known)}")
    return raw


def _few(known: tuple[str, ...] | None) -> str:
    return ", ".join((known or ("1f1b",))[:3])


def _wrong(what: str, value: object, rule: str, hint: str) -> InputError:
    return InputError(f"{what} is {shown(value)}", rule=rule, hint=hint)

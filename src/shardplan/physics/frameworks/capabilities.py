"""What one version of a training framework can run, read from the key ``can_run`` of its stack file.

Every entry has a value and a source, and a mark where it is from memory. An entry that a record leaves out restricts
nothing. :mod:`shardplan.physics.frameworks.runnable` turns a record into rules.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field, fields, replace
from typing import Any, Final, Literal, NamedTuple, get_args

from shardplan.base.errors import UnknownNameError
from shardplan.base.fields import dataclass
from shardplan.base.words import switch_word
from shardplan.inputs.job import PACKED, PRECISIONS, Optimizer
from shardplan.inputs.plan import NAME, OP_SAC, RECOMPUTE_MODULES, CpComm, Plan, Sharding, TpKind, placement_tokens
from shardplan.inputs.software import CHOICES, CHOSEN
from shardplan.physics.frameworks.conditions import (
    Condition,
    few,
    fields_of,
    list_in,
    origin_of,
    parse_condition,
    wrong,
)
from shardplan.physics.frameworks.option_entries import OptionTable, read_options
from shardplan.physics.frameworks.shown import Aspect, read_shown
from shardplan.physics.frameworks.stage_layers import LAYER_KINDS

Switch = Literal["either", "on", "off"]
Ways = Literal["equal", "counts", "remainder", "by_cost"]
Counted = Literal["stage", "chunk"]
GroupSizes = Literal["any", "pp"]
ExpertTp = Literal["any", "one", "tp"]

ANY_PLACEMENT: Final = "any"
RECOMPUTE_WORDS: Final = (*RECOMPUTE_MODULES, OP_SAC, "full")
OFFERED: Final[Mapping[str, tuple[str | bool, ...]]] = {
    **CHOICES,
    **{name: (False, True) for name in CHOSEN if name not in CHOICES},
}
"""Fields of the software that a framework may offer, with their values."""
CONCERNED: Final = (
    *(each.name for each in fields(Plan)), "precision", "optimizer", "global_batch_size", "base_weights", *OFFERED,
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
    own_script: bool = False
    """Whether a training script of one's own can run them: launch files cannot ask for it."""


@dataclass(frozen=True, kw_only=True)
class Library:
    """A library beside the framework that some choices need."""

    when: Condition
    """Plans that need it."""
    field: str
    """The field whose value needs it."""
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
    software: Mapping[str, tuple[str | bool, ...]] | None = None
    """Values that a user can choose for fields of its software, by field; a field that is left out is as it is."""
    placements: tuple[str, ...] | None = None
    """Orders of the dimensions from the fastest network outward, or ``any``."""
    options: OptionTable | None = None
    """The framework's own options of a plan, with values of the plan in braces."""
    refuses: tuple[Exclusion, ...] = ()
    """Combinations that it refuses besides."""
    libraries: Mapping[str, Library] | None = None
    """Libraries beside it that some choices need, by name; none: no choice needs one."""
    shown: tuple[Aspect, ...] | None = None
    """What its tests, recipes or published runs show working. None: the record names none of them."""
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
    "software": Form("software", tuple(OFFERED)),
    "placements": Form("names"),
    "options": Form("options"),
}
"""Entries of a record, in the order in which they are shown."""


def read_capabilities(raw: object, label: str, base: Capabilities | None = None) -> Capabilities:
    """The record in ``raw``, which states what differs from ``base`` if there is one. Raises ``InputError``."""
    given = fields_of(raw, label, (*_HEAD, *FORMS, "refuses", "libraries", "shown"))
    found: dict[str, Any] = {name: _head(given, name, label, base) for name in _HEAD}
    sources: dict[str, str] = {}
    remembered: list[str] = []
    for name in (each for each in FORMS if each in given):
        where = f"{name} of {label}"
        entry = fields_of(given[name], where, ("value", "source", "from_memory"))
        found[name] = _read(entry.get("value"), FORMS[name], name, where)
        sources[name], is_remembered = origin_of(entry, where)
        remembered += [name] if is_remembered else []
    if "refuses" in given:
        found["refuses"] = _exclusions(given["refuses"], label)
    if "libraries" in given:
        found["libraries"] = _libraries(given["libraries"], label)
    if "shown" in given:
        found["shown"] = read_shown(given["shown"], label)
    if base is None:
        return Capabilities(**found, sources=sources, from_memory=tuple(remembered))
    return _over(base, found, sources, remembered)


def _over(base: Capabilities, found: dict[str, Any], sources: dict[str, str], remembered: list[str]) -> Capabilities:
    """``base`` with other entries in place of its own; what is kept names the repository where it was read."""
    same = (base.repository, base.commit) == (found["repository"], found["commit"])
    origin = "" if same else f"{base.repository} {base.commit}: ".lstrip()
    kept = {name: f"{origin}{source}" for name, source in base.sources.items()}
    from_memory = (*(name for name in base.from_memory if name not in found), *remembered)
    lists = {
        "refuses": tuple(replace(each, source=f"{origin}{each.source}") for each in base.refuses),
        "libraries": None if base.libraries is None else _elsewhere(base.libraries, origin),
        "shown": None if base.shown is None else tuple(each.read_elsewhere(origin) for each in base.shown),
    }
    return replace(base, **{**lists, **found}, sources=kept | sources, from_memory=from_memory)


def _elsewhere(libraries: Mapping[str, Library], origin: str) -> dict[str, Library]:
    return {name: replace(each, source=f"{origin}{each.source}") for name, each in libraries.items()}


def _head(given: Mapping[str, Any], name: str, label: str, base: Capabilities | None) -> str:
    value = given.get(name, "" if base is None else getattr(base, name))
    if not isinstance(value, str) or (name in ("version", "date") and not value.strip()):
        rule = f"a record has a {name}, a text in quotes"
        raise wrong(f"{name} of {label}", given.get(name), rule, f'{name}: "..."')
    if name == "date" and not _DATE.fullmatch(value):
        raise wrong(f"date of {label}", value, "a date is a year and a month, or a day", 'date: "2026-08"')
    return value


def _read(value: object, form: Form, name: str, where: str) -> Any:
    """The value of an entry in its form."""
    if form.kind == "options":
        return read_options(value, where)
    if form.kind == "flag":
        if not isinstance(value, bool):
            raise wrong(f"value of {where}", value, f"{name} is true or false", "value: true")
        return value
    if form.kind == "name":
        return _name(value, form.known, where)
    if form.kind in ("names", "texts"):
        if not isinstance(value, list):
            raise wrong(f"value of {where}", value, f"{name} is a list of names", f"value: [{few(form.known)}]")
        read = tuple(_name(each, form.known, where, free=form.kind == "texts") for each in value)
        return _placements(read) if name == "placements" else read
    if form.kind == "software":
        return _software(value, where)
    if not isinstance(value, Mapping):
        raise wrong(f"value of {where}", value, f"{name} is a mapping of names", f"value: {{{few(form.known)}: ...}}")
    return {_name(key, form.known, where): _name(each, form.values, where, free=True) for key, each in value.items()}


def _name(value: object, known: tuple[str, ...] | None, where: str, *, free: bool = False) -> str:
    """One name; ``free``: any text where no names are known."""
    if not isinstance(value, str) or (known is None and not (value.strip() if free else NAME.fullmatch(value))):
        raise wrong(f"value of {where}", value, "a name is a text", "write a name")
    if known is not None and value not in known:
        raise UnknownNameError(where, value[:60], known, hint=f"one of {', '.join(known)}")
    return value


def _software(value: object, where: str) -> dict[str, tuple[str | bool, ...]]:
    """Values of fields of the software, each one of those that the field can have."""
    read: dict[str, tuple[str | bool, ...]] = {}
    for name, values in fields_of(value, f"value of {where}", tuple(OFFERED)).items():
        known = OFFERED[name]
        if not isinstance(values, list) or not values:
            sample = f"{name}: [{switch_word(known[0])}]"
            raise wrong(f"{name} of {where}", values, "a field has a list of values", sample)
        read[name] = tuple(_offered(each, known, f"{name} of {where}") for each in values)
    return read


def _offered(value: object, known: tuple[str | bool, ...], where: str) -> str | bool:
    """One value of a field: a name, or true or false."""
    if isinstance(value, str | bool) and value in known:
        return value
    words = [switch_word(each) for each in known]
    if isinstance(value, str):
        raise UnknownNameError(where, value[:60], words, hint=f"one of {', '.join(words)}")
    raise wrong(f"value of {where}", value, f"it is one of {', '.join(words)}", f"[{words[0]}]")


def _placements(orders: tuple[str, ...]) -> tuple[str, ...]:
    for order in orders:
        if order != ANY_PLACEMENT:
            placement_tokens(order)
    return orders


def _exclusions(raw: object, label: str) -> tuple[Exclusion, ...]:
    rules = list_in(raw, "refuses", label, "rule: ..., when: ...")
    return tuple(_exclusion(each, f"refuses[{number}] of {label}") for number, each in enumerate(rules))


def _libraries(raw: object, label: str) -> dict[str, Library]:
    if not isinstance(raw, Mapping):
        raise wrong(f"libraries of {label}", raw, "libraries have names", "libraries: {deepep: {when: ...}}")
    return {_name(name, None, f"libraries of {label}"): _library(each, name, label) for name, each in raw.items()}


def _library(raw: object, name: str, label: str) -> Library:
    where = f"{name} in libraries of {label}"
    given = fields_of(raw, where, ("when", "field", "source", "from_memory"))
    source, remembered = origin_of(given, where)
    return Library(
        when=parse_condition(given.get("when"), f"when of {where}"),
        field=_name(given.get("field"), CONCERNED, f"field of {where}"),
        source=source,
        from_memory=remembered,
    )


def _exclusion(raw: object, where: str) -> Exclusion:
    given = fields_of(raw, where, ("rule", "when", "field", "instead", "source", "from_memory", "own_script"))
    for name in ("rule", "instead"):
        if not isinstance(given.get(name), str) or not given[name].strip():
            raise wrong(
                f"{name} of {where}", given.get(name), f"an exclusion has a sentence as its {name}", f"{name}: ..."
            )
    source, remembered = origin_of(given, where)
    return Exclusion(
        rule=given["rule"],
        when=parse_condition(given.get("when"), f"when of {where}"),
        field=_name(given.get("field"), CONCERNED, f"field of {where}"),
        instead=given["instead"],
        source=source,
        from_memory=remembered,
        own_script=given.get("own_script") is True,
    )

"""OLMo-core: programs in Python whose functions build model, training and data, read without running them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from shardplan.base.files import read_text
from shardplan.launch.dialects.ask import Ask, Environment, begin, take_notes, unread
from shardplan.launch.dialects.own_names import unsaid
from shardplan.launch.dialects.reading import Facts
from shardplan.launch.dialects.records import Dialect
from shardplan.launch.dialects.settings import NamedSetting, Settings, batch_of, state, world_of
from shardplan.launch.dialects.values import degree, optimizer, precision, switch, words_of
from shardplan.launch.read.facts import Document
from shardplan.launch.read.trees import LONG_FILE

RECORD: Final = Dialect(name="olmo-core")
_IMPORTS: Final = re.compile(r"^\s*(?:from|import)\s+olmo_core\b", re.MULTILINE)
_BUILDS: Final = re.compile(r"(?:build|make|get|create)_\w*config\w*|config(?:_builder)?|build_\w*experiment\w*")
SECTIONS: Final = ("train_module", "model", "data_loader", "dataset", "launch", "trainer")
"""Parts of an experiment; a function that builds one is called after it."""
KINDS: Final = {
    "TransformerTrainModuleConfig": "train_module",
    "TransformerConfig": "model",
    "NumpyDataLoaderConfig": "data_loader",
    "BeakerLaunchConfig": "launch",
}
"""Which part a class is, by the first word of its name."""
STRATEGIES: Final = words_of({"fsdp": "zero3", "hsdp": "hsdp", "ddp": "ddp"})
CHECKPOINTS: Final = words_of({"full": "full", "selected_ops": "op_sac"})


def is_olmo_core(path: Path) -> bool:
    """Whether a program is one of OLMo-core's."""
    return _IMPORTS.search(read_text(path, LONG_FILE)) is not None


def olmo_core_facts(ask: Ask, over: Settings | None = None, world: Callable[[Facts], None] | None = None) -> Facts:
    """What the functions of the program build. Raises InputError for a program that builds no training.

    ``over``: options of the line that starts it; ``world``: what that line says of nodes and processes.
    """
    from shardplan.launch.read.python import python_parts

    asked: set[str] = set()
    top, parts = python_parts(ask.path, _BUILDS, env=Environment(ask.env, asked))
    settings = _joined(top, parts)
    if not settings.has("train_module"):
        raise unread(ask.path, "a program of OLMo-core that builds no train_module which reading decides")
    facts = begin(ask, RECORD.name, RECORD.version)
    take_notes(facts, top)
    if world is not None:
        world(facts)
    _read(facts, settings if over is None else over.over(settings))
    facts.asked |= asked
    facts.names |= set(settings)
    return facts


def _joined(top: Document, parts: Mapping[str, Document]) -> Settings:
    """Values by part: ``train_module.rank_microbatch_size``; arguments of the program under ``started``."""
    found = Settings()
    for key, each in Settings.of(top).items():
        name = key.rpartition(".")[2]
        found[key] = each
        if not key.split(".")[0].isupper() and name in (
            "global_batch_size",
            "max_sequence_length",
            "num_nodes",
            "sequence_length",
        ):
            found.setdefault(f"started.{name}", each)
    for function, document in parts.items():
        own = Settings.of(document)
        kind = str(own.value("__class__") or "").partition(".")[0]
        part = KINDS.get(kind) or next((name for name in SECTIONS if name in function), "")
        if kind == "ExperimentConfig" or any(own.has(name) for name in ("train_module", "model")):
            part = ""
        found.update({f"{part}.{key}" if part else key: each for key, each in own.items()})
    return Settings({key: _enum(each) for key, each in found.items()})


def _enum(each: NamedSetting) -> NamedSetting:
    """A member of an enumeration as its name: ``DataParallelType.hsdp`` is ``hsdp``."""
    said = re.fullmatch(r"code:(?:\w+\.)*[A-Z]\w*\.([a-z]\w*)", each.needs[0]) if len(each.needs) == 1 else None
    return each if said is None else replace(each, value=said[1], needs=())


def _read(facts: Facts, settings: Settings) -> None:
    RECORD.state(facts, _decided(settings))
    _model(facts, settings)
    _tokens(facts, settings)
    _sharding(facts, settings)
    _formats(facts, settings)
    _recompute(facts, settings)
    if "nodes" in facts:
        facts.assume("per_node", 8, "num_gpus of a node")
    nodes, each = facts.number("nodes"), facts.number("per_node")
    if nodes and each:
        facts.derive("num_accelerators", nodes * each, f"{nodes} nodes x {each} accelerators")
    RECORD.assume(facts)
    world_of(facts)
    batch_of(facts)
    for key, need in ASKED.items():
        facts.miss(key, (need,))
    unsaid(facts, settings, r"train_module\.(?!optim|dp_config|ac_config|scheduler).*", all_of=False)


ASKED: Final = {
    "num_accelerators": "num_nodes: --gpus",
    "sequence_length": "max_sequence_length",
    "micro_batch_size": "rank_microbatch_size",
    "global_batch_size": "global_batch_size",
}
"""What is asked for where the program does not decide it, by the name that would."""


def _decided(settings: Settings) -> Settings:
    """Those whose value is known: another name may say what an argument leaves open."""
    return Settings({key: each for key, each in settings.items() if each.value is not None})


def _model(facts: Facts, settings: Settings) -> None:
    """A method of TransformerConfig gives a model of the catalogue, unless its arguments change layers."""
    made = settings.first("model.__class__")
    if made is None:
        facts.miss("model", ("model_config: --model",))
        return
    name = RECORD.words("models").get(str(made.value).rpartition(".")[2])
    changed = next((each for key in CHANGES if (each := settings.get(f"model.{key}")) is not None), None)
    if name is None or changed is not None:
        facts.miss("model", (f"{made.place} {(changed or made).value}: --model",))
    else:
        facts.derive("model", name, f"{made.place} {made.value}", "model")


CHANGES: Final = ("n_layers", "d_model", "n_heads", "n_kv_heads", "hidden_size_multiplier", "sliding_window",
                  "feed_forward_moe")  # fmt: skip


def _recompute(facts: Facts, settings: Settings) -> None:
    """All of a block, or its MLP; other parts and budgets have no counterpart."""
    names = ("mode", "modules", "activation_memory_budget")
    mode, modules, budget = (settings.first(f"train_module.ac_config.{name}") for name in names)
    listed = [] if modules is None or not isinstance(modules.value, tuple) else [*map(str, modules.value)]
    if mode is not None and mode.value == "selected_modules" and listed and all(map(_OF_MLP.fullmatch, listed)):
        facts.state("recompute", "mlp", mode.place, mode.name)
    elif settings.has("train_module.ac_config"):
        state(facts, "recompute", mode or budget, CHECKPOINTS)
        facts.derive("recompute", "full", "the mode of ac_config is full")
    facts.assume("recompute", "none", "no ac_config")


_OF_MLP: Final = re.compile(r"blocks\.\*\.feed_forward(?:_moe)?")


def _tokens(facts: Facts, settings: Settings) -> None:
    """Batches are in tokens."""
    length = facts.number("sequence_length")
    for key in ("micro_batch_size", "global_batch_size"):
        setting = _decided(settings).first(*RECORD.words("tokens")[key]["names"])
        tokens = None if setting is None else degree(setting.value)
        if setting is not None and length and tokens and tokens % length == 0:
            facts.state(key, tokens // length, setting.place, setting.name)
        elif setting is not None:
            facts.miss(key, (f"{setting.said} tokens, and the length of sequences",))


def _sharding(facts: Facts, settings: Settings) -> None:
    state(facts, "sharding", settings.first("train_module.dp_config.name"), STRATEGIES)
    shard, copies = (settings.first(f"train_module.dp_config.{name}") for name in ("shard_degree", "num_replicas"))
    state(facts, "sharding_degree", shard, degree)
    total, number = facts.number("num_accelerators"), None if copies is None else degree(copies.value)
    if total and number and total % number == 0 and facts.value("sharding") == "hsdp":
        facts.derive("sharding_degree", total // number, f"{total} accelerators / num_replicas {number}")
    if facts.value("sharding") == "hsdp" and "sharding_degree" not in facts:
        facts.miss("sharding_degree", ("num_replicas: the accelerators of a node where it is not given",))
    if not settings.has("train_module.dp_config"):
        facts.miss("sharding", ("train_module has no dp_config",))


def _formats(facts: Facts, settings: Settings) -> None:
    """The format of products and the optimizer's name."""
    low = settings.first("train_module.float8_config.enabled")
    if low is not None and switch(low.value):
        facts.state("precision", "fp8", low.place, low.name)
    dtype = settings.first("train_module.dp_config.param_dtype", "train_module.autocast_precision")
    state(facts, "precision", dtype, precision)
    facts.assume("precision", "fp32", "neither param_dtype nor autocast_precision")
    name = settings.first("train_module.optim.__class__")
    word = "" if name is None else str(name.value).removesuffix("Config").removeprefix("SkipStep")
    state(facts, "optimizer", name, lambda _: optimizer(word))

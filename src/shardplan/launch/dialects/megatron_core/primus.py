"""Primus: options of Megatron-LM in a YAML file over presets, and torchtitan's sections under the same key."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from shardplan.launch.dialects.frameworks import torchtitan
from shardplan.launch.dialects.megatron_core.megatron import megatron_facts
from shardplan.launch.dialects.megatron_core.megatron_options import BARE
from shardplan.launch.dialects.models import DIMENSIONS, named_model
from shardplan.launch.dialects.reading import ONE_NODE, Facts
from shardplan.launch.dialects.records import Dialect
from shardplan.launch.dialects.settings import NamedSetting, Option, Options, Settings, as_option
from shardplan.launch.dialects.values import switch

RECORD: Final = Dialect(name="primus")
TRAINER: Final = r"modules\.(pre_trainer|sft_trainer|post_trainer)\."
PRESET: Final = "pre_trainer.yaml of Primus"
DIMENSION: Final = r"num_layers|hidden_size|ffn_hidden_size|num_attention_heads|num_query_groups|num_experts|moe_.*size"


def is_primus(settings: Settings) -> bool:
    """Whether a document is an experiment of Primus."""
    return any(re.match(TRAINER, key) for key in settings)


def framework_of(settings: Settings) -> NamedSetting | None:
    """What trains: ``megatron`` or ``torchtitan``."""
    return next((each for key, each in settings.items() if re.fullmatch(f"{TRAINER}framework", key)), None)


def primus_facts(facts: Facts, settings: Settings) -> None:
    """Reads an experiment."""
    prefix = next(found[0] for key in settings if (found := re.match(TRAINER, key)))
    facts.miss("num_accelerators", (ONE_NODE,))
    own = Settings({key.removeprefix(f"{prefix}overrides."): each for key, each in settings.items()
                    if key.startswith(f"{prefix}overrides.")})  # fmt: skip
    _model(facts, settings.first(f"{prefix}model"), own)
    named = framework_of(settings)
    if named is not None and named.value == "torchtitan":
        torchtitan.torchtitan_facts(facts, own)
        return
    config = settings.first(f"{prefix}config")
    if config is not None and config.value != "pre_trainer.yaml":
        facts.open = (f"file:{config.value or config.shown}",)
    presets = {} if facts.open else {name: _preset(name, value) for name, value in RECORD.words("presets").items()}
    given = {each.name: each for each in _options(own)}
    off = {name.replace("_", "-") for name, each in own.items() if switch(each.value) is False}
    left = {name: each for name, each in presets.items() if name not in given and name not in off}
    open_, facts.open = facts.open, ()
    megatron_facts(facts, Options(given={**left, **given}, repeated={}))
    if open_:
        facts.note(f"the preset {open_[0].removeprefix('file:')} was not read: defaults of Megatron-LM are taken")
    for key, fact in facts.facts.items():
        if fact.why.startswith(PRESET):
            facts.facts[key] = replace(fact, origin="assumed", why=f"{PRESET} {fact.why.rpartition('--')[2]}")


def _model(facts: Facts, named: NamedSetting | None, own: Settings) -> None:
    """The built-in model that a file of Primus is called like, unless the experiment changes its layers."""
    changed = next((each for key, each in own.items() if re.fullmatch(DIMENSION, key) and each.value is not None), None)
    if named is None or not isinstance(named.value, str):
        return
    stem = named.value.removesuffix(".yaml").replace("_", "-")
    if changed is not None and any(key in facts for key in DIMENSIONS):
        return
    if changed is not None:
        facts.miss("model", (f"{changed.said} of {named.value}: --model",))
    elif named_model(stem) is None:
        facts.miss("model", (f"{named.place} {named.value}: --model",))
    else:
        facts.derive("model", stem, named.place, named.name)


def _options(own: Settings) -> Iterator[Option]:
    """Settings as options: true is a bare one, false and null are none."""
    for key, setting in own.items():
        name = key.rpartition(".")[2].replace("_", "-")
        if (setting.value is None or setting.value is False) and not setting.needs:
            continue
        option = as_option(setting, name)
        yield replace(option, words=()) if name in BARE else option


def _preset(name: str, value: object) -> Option:
    option = as_option(NamedSetting(name=name, value=value, place=f"{PRESET}:0 {name}"), name)
    return replace(option, file=PRESET, words=() if value is True else option.words)

"""nanotron's YAML."""

from __future__ import annotations

from math import prod
from typing import Final

from shardplan.launch.dialects.own_names import unsaid
from shardplan.launch.dialects.reading import Facts
from shardplan.launch.dialects.records import Dialect
from shardplan.launch.dialects.settings import NamedSetting, Settings, batch_of, state
from shardplan.launch.dialects.values import on_off, switch, whole

NAME: Final = "nanotron"
VERSION: Final = "main of 2026-04 (2411b022)"

RECORD: Final = Dialect(name=NAME)


def is_nanotron(settings: Settings) -> bool:
    """Whether a document is nanotron's."""
    return settings.has("parallelism") and settings.has("tokens") and settings.has("model.model_config")


def nanotron_facts(facts: Facts, config: Settings) -> None:
    """Reads a configuration into ``facts``."""
    RECORD.state(facts, config)
    RECORD.assume(facts)
    names = ("dp", "tp", "pp", "cp")
    degrees = [facts.number(key) for key in names]
    if None not in degrees:
        product = prod(each or 1 for each in degrees)
        total = facts.number("num_accelerators")
        facts.derive("num_accelerators", product, "dp x tp x pp x cp")
        if total is not None and total != product:
            facts.breaks_rule(
                "dp x tp x pp x cp is the number of accelerators",
                f"{product} for {total}",
                "change dp or the launch line",
            )
    if (facts.number("ep") or 1) > 1:
        facts.breaks_rule(
            "expert parallelism has a place in the world",
            f"expert_parallel_size {facts.value('ep')}: since 2025 the world leaves it out, and the run stops",
            "set expert_parallel_size to 1, or use the version of 2024-04, whose world is dp x pp x tp x ep",
        )
    batch_of(facts)
    if facts.value("sequence_parallel") is None:
        facts.assume("sequence_parallel", value=False, why="tp_mode ALL_REDUCE")
    _kind(facts, config)
    _layers_with_experts(facts, config.first("model.model_config.moe_config.layers"))
    grads = config.first("optimizer.accumulate_grad_in_fp32")
    state(facts, "grad_dtype", grads, on_off("fp32", "bf16"))
    positions, length = whole(facts.value("max_position_embeddings")), facts.number("sequence_length")
    if positions and length and positions < length:
        facts.note(f"max_position_embeddings {positions} is below sequence_length {length}")
    unsaid(facts, config, r"(?:parallelism|model|tokens|optimizer)\..*", all_of=False)


def _layers_with_experts(facts: Facts, places: NamedSetting | None) -> None:
    """Their places, from 0; -1 is every layer (``config/models_config.py``, ``models/qwen.py``)."""
    number = facts.number("num_hidden_layers")
    if places is None or number is None or not isinstance(places.value, list | tuple):
        return
    found = {whole(each) for each in places.value}
    pattern = tuple(int(at in found or -1 in found) for at in range(number))
    facts.state("moe_layer_freq", pattern, places.place, places.name)


LIKE_LLAMA: Final = ("is_llama_config", "is_qwen2_config", "is_llamoe_config")
"""Marks of configurations whose layers are read."""


def _kind(facts: Facts, config: Settings) -> None:
    """Another kind of model than Llama's marks its configuration by a switch of its own."""
    prefix = "model.model_config."
    for key, each in config.items():
        name = key.removeprefix(prefix)
        is_mark = key.startswith(f"{prefix}is_") and name.endswith("_config")
        if is_mark and name not in LIKE_LLAMA and switch(each.value):
            facts.miss("model", (f"{each.place}: layers of another kind: --model",))

"""NeMo 1: hydra's YAML, alone or under the overrides of a line.

Names and defaults as in ``examples/nlp/language_modeling/conf`` and ``megatron_base_model.py`` at 8cfedd7203.
"""

from __future__ import annotations

from typing import Final

from shardplan.launch.dialects.reading import Facts
from shardplan.launch.dialects.records import Dialect
from shardplan.launch.dialects.settings import NamedSetting, Settings, state
from shardplan.launch.dialects.trainers import adapter_facts, objective_facts
from shardplan.launch.dialects.values import degree, number, precision, switch, words_of

GATED: Final = ("swiglu", "geglu", "reglu")
"""Ends of the names of activations whose MLPs have three matrices."""
STRATEGIES: Final = words_of({"full": "zero3", "hybrid": "hsdp", "grad": "zero2"})
"""``fsdp_sharding_strategy``."""


def _rules(facts: Facts, config: Settings) -> None:
    """What needs more than one key."""
    _precision(facts, config)
    _sharding(facts, config)
    _recompute(facts, config)
    _layers(facts, config)
    _adapters(facts, config)
    objective_facts(facts, config)
    offload = config.first("model.cpu_offloading")
    if offload is not None and switch(offload.value):
        facts.state("offload", "activations", offload.place, offload.name)
        if switch(config.value("model.cpu_offloading_weights")):
            facts.doubt(f"{config['model.cpu_offloading_weights'].place}: weights in host memory are not priced")
        state(facts, "offload_num_layers", config.first("model.cpu_offloading_num_layers"), degree)
    rates = [config.first(f"model.{name}_dropout") for name in ("hidden", "attention")]
    known = [number(each.value) for each in rates if each is not None]
    if known:
        facts.derive("dropout", any(known), "hidden_dropout, attention_dropout")


def _precision(facts: Facts, config: Settings) -> None:
    """fp8 of Transformer Engine is a switch on top of the trainer's precision."""
    low, base = config.first("model.fp8"), config.first("trainer.precision", "model.precision")
    if low is not None and switch(low.value):
        mx = str(config.value("model.fp8_recipe")) == "mxfp8"
        facts.state("precision", "mxfp8" if mx else "fp8", low.place, low.name)
    elif low is not None and low.needs:
        facts.miss("precision", low.needs)
    state(facts, "precision", base, lambda value: precision({"16": "fp16", "32": "fp32"}.get(str(value), value)))


def _sharding(facts: Facts, config: Settings) -> None:
    fsdp, name = config.first("model.fsdp"), config.first("model.optim.name")
    if fsdp is not None and switch(fsdp.value):
        state(facts, "sharding", config.first("model.fsdp_sharding_strategy"), STRATEGIES)
        facts.derive("sharding", "zero3", f"{fsdp.place}: full is the default strategy", fsdp.name)
    own = {"distributed_fused_adam", "mcore_distributed_optim"}
    state(facts, "sharding", name, lambda value: "zero1" if str(value) in own else "ddp")


def _recompute(facts: Facts, config: Settings) -> None:
    """``block`` counts the layers of a chunk."""
    method, layers = (config.first(f"model.activations_checkpoint_{name}") for name in ("method", "num_layers"))
    partial = config.first("model.num_micro_batches_with_partial_activation_checkpoints")
    if partial is not None:
        facts.doubt(f"{partial.place} {partial.value}: micro-batches that recompute less are not priced")
    if facts.value("recompute") != "full" or method is None or layers is None or method.value != "block":
        return
    chunk, vp = degree(layers.value), facts.number("vp") or 1
    if chunk is not None:
        facts.derive("recompute_num_layers", chunk * vp, f"{layers.place}: of a chunk")


def _layers(facts: Facts, config: Settings) -> None:
    """Activation, heads and experts where they are not given."""
    activation = config.first("model.activation")
    if activation is not None and isinstance(activation.value, str):
        facts.state("gated", activation.value.lower().endswith(GATED), activation.place, activation.name)
    heads, width = facts.number("num_attention_heads"), facts.number("intermediate_size")
    if heads is not None:
        facts.assume("num_key_value_heads", heads, "num_query_groups")
    if "num_experts" in facts:
        facts.assume("num_experts_per_tok", 2)
        facts.assume("moe_intermediate_size", width)


SCHEME: Final = "model.peft.peft_scheme"
SCHEMES: Final = {"none": "full", "null": "full", "lora": "lora", "qlora": "lora"}
"""``peft_scheme``; others train something else next to the weights."""


def _adapters(facts: Facts, config: Settings) -> None:
    scheme: NamedSetting | None = config.first(SCHEME)
    if scheme is None and SCHEME in config:
        facts.derive("train", "full", f"{config[SCHEME].place}: null", SCHEME)
    state(facts, "train", scheme, lambda value: SCHEMES.get(str(value).lower()))
    own = "model.peft.lora_tuning"
    adapter_facts(facts, config, ranks=(f"{own}.adapter_dim",), targets=(f"{own}.target_modules",), source=own)


NEMO: Final = Dialect(name="nemo", rule=_rules)

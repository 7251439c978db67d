"""GPT-NeoX: YAML flow mappings that look like JSON, with hyphens or underscores."""

from __future__ import annotations

import re
from typing import Final

from shardplan.launch.dialects.deepspeed import bf16_optimizer, deepspeed_facts
from shardplan.launch.dialects.own_names import unsaid
from shardplan.launch.dialects.reading import Facts
from shardplan.launch.dialects.records import Dialect
from shardplan.launch.dialects.settings import Settings, batch_of, state, world_of
from shardplan.launch.dialects.values import degree, on_off, switch, whole

NAME: Final = "gpt-neox"
VERSION: Final = "main of 2025 (ea7aefd8)"

RECORD: Final = Dialect(name=NAME)


def is_neox(settings: Settings) -> bool:
    """Whether a document is GPT-NeoX's."""
    folded = _folded(settings)
    return sum(folded.has(key) for key in OWN) >= LEAST_OWN


DEGREES: Final = ("pipe_parallel_size", "model_parallel_size")
OWN: Final = (
    *DEGREES, "train_micro_batch_size_per_gpu", "checkpoint_num_layers", "partition_activations",
    "synchronize_each_layer", "lr_decay_iters", "lr_decay_style", "distributed_backend", "checkpoint_factor",
    "train_iters", "keep_last_n_checkpoints", "num_layers", "hidden_size", "pos_emb", "no_weight_tying",
    "gpt_j_residual", "rotary_pct", "hidden_dropout", "output_layer_parallelism", "attention_config",
    "scaled_upper_triang_masked_softmax_fusion", "output_layer_init_method", "zero_optimization",
)  # fmt: skip
"""Keys of its files, of which those that are merged with others on the line have some."""
LEAST_OWN: Final = 5
"""How many show that a file is its own: others have layers, widths and degrees under these names too."""


def _folded(settings: Settings) -> Settings:
    return Settings({key.replace("-", "_"): each for key, each in settings.items()})


def neox_facts(facts: Facts, settings: Settings) -> None:
    """Reads a configuration into ``facts``."""
    config = _folded(settings)
    RECORD.state(facts, config)
    _stages(facts, config)
    _width(facts, config)
    _recompute(facts, config)
    for key in () if any(name in config for name in DEGREES) else ("tp", "pp", "sequence_length"):
        facts.miss(key, ("the other files of the line",))
    if any(
        config.has(key)
        for key in ("zero_optimization", "train_micro_batch_size_per_gpu", "fp16", "bf16", "train_batch_size")
    ):
        if config.first("gradient_accumulation_steps", "train_batch_size", "gas") is None:
            facts.assume("gradient_accumulation", 1)
        state(facts, "gradient_accumulation", config.first("gas"), degree)
        deepspeed_facts(facts, config)
        if whole(config.value("pipe_parallel_size")):
            bf16_optimizer(facts)
    else:
        facts.note(
            "only a part of a configuration: no batch, optimizer or precision; other files are merged on the line"
        )
        for key in ("micro_batch_size", "global_batch_size", "precision", "sharding", "recompute"):
            facts.miss(key, ("the other files of the line",))
    _attention(facts, config)
    if config.has("operator_config"):
        facts.miss("model", ("operator_config: layers of other kinds: --model",))
    kind = config.first("fp16.type")
    if kind is not None and facts.value("precision") == "fp16" and str(kind.value) != "fp16":
        facts.note(f"{kind.place} = {kind.value} is read by DeeperSpeed of 2022 alone; since then it trains in fp16")
    _switches(facts, config)
    RECORD.assume(facts)
    world_of(facts)
    batch_of(facts)
    unsaid(facts, config, all_of=False)


KERNELS: Final = {"flash": "flash", "global": "unfused"}
"""Kinds of attention over all tokens, by their kernel (``megatron/model/transformer.py``)."""


def _attention(facts: Facts, config: Settings) -> None:
    """The kernel of layers of one kind: ``[[["flash"], 24]]``; global attention, which writes scores, unless stated."""
    setting = config.first("attention_config")
    if setting is None:
        facts.assume("attention", "unfused", "attention_config")
        return
    kinds = set(re.findall(r"[a-z_]+", str(setting.value).lower())) - {"all", "none"}
    if kinds - KERNELS.keys():
        facts.miss("model", (f"{setting.place}: layers of other kinds: --model",))
    elif len(kinds) == 1:
        facts.state("attention", KERNELS[kinds.pop()], setting.place, setting.name)
    elif setting.value is not None or setting.needs:
        facts.miss("attention", setting.needs or (f"{setting.place}: layers of both kernels",))


def _stages(facts: Facts, config: Settings) -> None:
    """0 stages: no pipeline engine, which is one stage here."""
    setting = config.first("pipe_parallel_size")
    if setting is not None and whole(setting.value) == 0:
        facts.derive("pp", 1, f"{setting.place} = 0: no pipeline module", setting.name)
    else:
        state(facts, "pp", setting, degree)


MLPS: Final = ("regular", "llama")
"""Kinds of MLP of GPT-NeoX; forks have others."""


def _width(facts: Facts, config: Settings) -> None:
    """``intermediate_size`` of a swiglu model is three times the width of one matrix."""
    setting, hidden = config.first("intermediate_size"), facts.number("hidden_size")
    kind = config.first("mlp_type")
    if kind is not None and kind.value not in MLPS:
        for key in ("gated", "intermediate_size"):
            facts.miss(key, (f"{kind.place} = {kind.value}: layers of a fork",))
    gated = (
        config.value("activation") in {"swiglu", "geglu", "reglu", "bilinear"} or config.value("mlp_type") == "llama"
    )
    size = None if setting is None else whole(setting.value)
    if setting is not None and size is not None and gated and size % 3 == 0:
        facts.derive("intermediate_size", size // 3, f"{setting.place} = {size}: a third for each matrix", setting.name)
    elif setting is not None:
        state(facts, "intermediate_size", setting, degree)
    elif hidden is not None and gated:
        facts.miss("intermediate_size", ("mlp_multiple_of of the activation: the code's rule",))
    elif hidden is not None:
        facts.assume("intermediate_size", 4 * hidden, "4 h")
    (facts.state if "activation" in config else facts.assume)(
        "gated", gated, config["activation"].place if "activation" in config else ""
    )
    heads = facts.number("num_attention_heads")
    if heads is not None:
        facts.assume("num_key_value_heads", heads, "as many as heads")
    if "num_experts" in facts:
        facts.assume("num_experts_per_tok", 1)


def _recompute(facts: Facts, config: Settings) -> None:
    setting = config.first("checkpoint_activations")
    if setting is not None:
        state(facts, "recompute", setting, on_off("full", "none"))
    elif config.has("zero_optimization"):
        facts.assume("recompute", "none")


def _switches(facts: Facts, config: Settings) -> None:
    rates = [config.value("hidden_dropout"), config.value("attention_dropout")]
    facts.derive("dropout", any(rate not in {0, None} for rate in rates), "hidden_dropout, attention_dropout")
    tied = config.first("no_weight_tying")
    state(facts, "tie_word_embeddings", tied, lambda value: None if switch(value) is None else not switch(value))
    norm = {"rmsnorm": "RMSNorm", "layernorm": "LayerNorm"}.get(str(config.value("norm") or "layernorm"))
    facts.assume("normalization", norm or "LayerNorm")
    position = "rope" if config.value("pos_emb") == "rotary" else "learned_absolute"
    facts.assume("position_embedding_type", position)
    facts.assume("bias", not switch(config.value("use_bias_in_mlp") is False))
    facts.miss("vocab_size", ("the tokenizer",))
    facts.miss("num_accelerators", ("the host file: --gpus",))

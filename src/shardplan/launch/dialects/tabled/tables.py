"""Frameworks whose configurations are read by a table alone: names, and defaults where a key is not given."""

from __future__ import annotations

from typing import Final

from shardplan.launch.dialects.adapters import adapter_facts
from shardplan.launch.dialects.megatron_core.nemo import NEMO
from shardplan.launch.dialects.reading import Facts
from shardplan.launch.dialects.records import Dialect
from shardplan.launch.dialects.settings import Settings, state
from shardplan.launch.dialects.tabled.internevo import INTERNEVO
from shardplan.launch.dialects.tabled.small_frameworks import LEVANTER, LINGUA, TORCHTUNE
from shardplan.launch.dialects.tabled.trainers import AXOLOTL, LLAMA_FACTORY, TRAINER
from shardplan.launch.dialects.values import degree, on_off, switch, words_of

FULL_OR_NONE: Final = on_off("full", "none")
STRATEGY: Final = words_of(
    {
        "full_shard": "zero3",
        "shard_grad_op": "zero2",
        "no_shard": "ddp",
        "hybrid_shard": "hsdp",
        "fsdp": "zero3",
        "hsdp": "hsdp",
        "ddp": "ddp",
    }
)


def _of_foundry(facts: Facts, config: Settings) -> None:
    """Layers of MPT (``llmfoundry/models/mpt/configuration_mpt.py`` at 8c8dd48f), and adapters."""
    beside_host = config.first("fsdp_config.activation_cpu_offload")
    state(facts, "offload", beside_host, on_off("activations", "none"))
    mixed = config.first("fsdp_config.mixed_precision")
    if mixed is not None and mixed.value == "PURE":
        facts.doubt(f"{mixed.place} = PURE: gradients are reduced in the format of products, and priced in fp32")
    peft = config.first("model.peft_config.peft_type")
    if peft is not None:
        state(facts, "train", peft, lambda value: "lora" if str(value).lower() == "lora" else None)
        names = ("model.peft_config.r",), ("model.peft_config.target_modules",)
        adapter_facts(facts, config, ranks=names[0], targets=names[1], source="the file: peft_config")
    made = config.first("model.name")
    if made is not None and str(made.value) not in ("mpt_causal_lm", "hf_causal_lm"):
        facts.miss("model", (f"{made.place} = {made.value}: layers of another kind: --model",))
    if made is None or made.value != "mpt_causal_lm":
        return
    state(facts, "num_key_value_heads", config.first("model.attn_config.kv_n_heads"), degree)
    heads = facts.number("num_attention_heads")
    if config.value("model.attn_config.attn_type") == "multiquery_attention":
        facts.derive("num_key_value_heads", 1, "multiquery_attention", "model.attn_config.attn_type")
    if heads is not None:
        facts.assume("num_key_value_heads", heads, "as many as heads")
    state(facts, "gated", config.first("model.ffn_config.ffn_type"), lambda value: str(value).endswith("glu"))
    bias = config.first("model.no_bias")
    state(facts, "bias", bias, lambda value: None if switch(value) is None else not switch(value))
    state(facts, "tie_word_embeddings", config.first("model.tie_word_embeddings"), switch)
    own = ("model.attn_config.alibi", "model.attn_config.rope")
    moved = [name for name in own if switch(config.value(name))] or not switch(config.value("model.learned_pos_emb"))
    relative = config.first("model.learned_pos_emb") is not None or any(name in config for name in own)
    kind = "rope" if relative and moved else "learned_absolute"
    facts.derive("position_embedding_type", kind, "learned_pos_emb, alibi and rope of MPT")
    norm = "RMSNorm" if "rms" in str(config.value("model.norm_type") or "") else "LayerNorm"
    facts.derive("normalization", norm, "norm_type of MPT")
    for key, value in {"gated": False, "bias": True, "tie_word_embeddings": True}.items():
        facts.assume(key, value)
    hidden = facts.number("hidden_size")
    if hidden is not None:
        facts.assume("intermediate_size", 4 * hidden, "expansion_ratio 4")


LLM_FOUNDRY: Final = Dialect(name="llm-foundry", rule=_of_foundry)

STRATEGIES: Final = words_of({"whole_layer": "full"})
"""``activation_checkpointing``; one layer in several has no counterpart."""
BLOCKS: Final = ("sequential", "llama")
"""``block_type`` of attention and one MLP, one after the other; ``moe`` has experts, forks have more."""


def _of_olmo(facts: Facts, config: Settings) -> None:
    """Layers and sharding (``olmo/config.py`` and ``olmo/model.py`` at 59a53e3f)."""
    hidden, ratio = facts.number("hidden_size"), degree(config.value("model.mlp_ratio")) or 4
    wide, kind = config.first("model.mlp_hidden_size"), str(config.value("model.activation_type") or "swiglu")
    both = (degree(wide.value) if wide is not None else None) or (ratio * hidden if hidden else None)
    facts.derive("gated", kind == "swiglu", f"activation_type {kind}", "model.activation_type")
    if both:
        place = wide.place if wide is not None else f"mlp_ratio {ratio} x d_model"
        share = 2 if kind == "swiglu" else 1
        facts.derive("intermediate_size", both // share, f"{place} / {share}", "" if wide is None else wide.name)
    state(facts, "vocab_size", config.first("model.embedding_size", "model.vocab_size"), degree)
    if switch(config.value("model.multi_query_attention")):
        facts.derive("num_key_value_heads", 1, "multi_query_attention", "model.multi_query_attention")
    facts.assume("num_key_value_heads", facts.value("num_attention_heads"), "as many as heads")
    norm = "RMSNorm" if config.value("model.layer_norm_type") == "rms" else "LayerNorm"
    facts.derive("normalization", norm, "layer_norm_type")
    moved = any(switch(config.value(name)) for name in ("model.rope", "model.alibi"))
    facts.derive("position_embedding_type", "rope" if moved else "learned_absolute", "rope and alibi")
    block = config.first("model.block_type")
    if block is not None and block.value not in BLOCKS:
        facts.miss("model", (f"{block.place} = {block.value}: layers of another kind: --model",))
    strategy = config.first("distributed_strategy")
    if strategy is not None and strategy.value in ("ddp", "single"):
        facts.state("sharding", "ddp", strategy.place, strategy.name)
    state(facts, "sharding", config.first("fsdp.sharding_strategy"), STRATEGY)
    facts.assume("sharding", "zero3", "distributed_strategy fsdp, FULL_SHARD")


OLMO: Final = Dialect(name="olmo", rule=_of_olmo)

TABLES: Final = (INTERNEVO, NEMO, LLAMA_FACTORY, AXOLOTL, OLMO, LLM_FOUNDRY, LEVANTER, LINGUA, TORCHTUNE, TRAINER)

"""Frameworks whose files are a record and few rules.

levanter ``trainer.py`` and ``models/*.py`` at 9263f81e8b; lingua ``apps/main/train.py`` at 437d680e52; torchtune's
recipes at bd2a0fc7c3; fms-fsdp ``fms_fsdp/config/training.py`` at 5a296afe42.
"""

from __future__ import annotations

import re
from math import ceil
from typing import Final

from shardplan.launch.dialects.frameworks.line_frameworks import LM_ENGINE, NANOGPT, NEMO_RL
from shardplan.launch.dialects.frameworks.newer_frameworks import NEWER
from shardplan.launch.dialects.megatron_core.nemo import NEMO
from shardplan.launch.dialects.models import named_model
from shardplan.launch.dialects.reading import Facts
from shardplan.launch.dialects.records import Dialect
from shardplan.launch.dialects.settings import NamedSetting, Settings, state
from shardplan.launch.dialects.trainers import (
    AXOLOTL,
    LLAMA_FACTORY,
    TRAINER,
    adapter_facts,
    objective_facts,
    targets_of,
)
from shardplan.launch.dialects.values import degree, number, on_off, optimizer, precision, switch, whole, words_of

SHARDS: Final = words_of({"full_shard": "zero3", "no_shard": "ddp", "fsdp": "zero3", "hsdp": "hsdp", "ddp": "ddp"})
ROTARY: Final = {"gated": True, "normalization": "RMSNorm", "position_embedding_type": "rope", "bias": False}
"""Layers of models in the manner of Llama."""


def _compute(value: object) -> str | None:
    """The format of products in ``p=f32,c=bfloat16``."""
    found = re.search(r"(?:^|,)\s*(?:c|compute)=(\w+)", str(value))
    word = found[1] if found else str(value)
    return precision({"f32": "fp32", "f16": "fp16"}.get(word, word))


def _levanter(facts: Facts, config: Settings) -> None:
    """The last batch of a schedule, what is sharded, and the layers of the model's kind."""
    _devices(facts, config)
    sizes = sorted(key for key in config if re.fullmatch(r"trainer\.train_batch_size\.\d+\.value", key))
    if sizes:
        last = config[max(sizes, key=lambda key: int(key.split(".")[2]))]
        state(facts, "global_batch_size", last, degree)
        facts.note(f"{last.place}: the batch changes; the plan is judged at the last size")
    axis = config.get("trainer.fsdp_axis")
    if axis is not None and axis.value is None and not axis.needs:
        facts.state("sharding", "ddp", axis.place, axis.name)
    elif axis is not None or config.first("trainer.parameter_axis_resources.embed") is not None:
        place = axis or config["trainer.parameter_axis_resources.embed"]
        facts.state("sharding", "zero3", place.place, place.name)
    facts.assume("sharding", "zero3", "fsdp_axis embed")
    heads, hidden = facts.number("num_attention_heads"), facts.number("hidden_size")
    if heads:
        facts.assume("num_key_value_heads", heads, "as many as heads")
    named = config.first("optimizer")
    if named is not None and "optimizer" not in facts:
        facts.miss("optimizer", named.needs or (named.place,))
    if config.value("model.type") == "gpt2" and hidden:
        facts.assume("sequence_length", 1024)
        facts.assume("intermediate_size", 4 * hidden, "mlp_scale 4")
        facts.assume("tie_word_embeddings", value=True)
        state(facts, "bias", config.first("model.use_bias"), switch)
        facts.assume("bias", value=True)
    elif config.value("model.type") in {"llama", "mistral", "qwen", "olmo", "olmo2"}:
        for key, value in {**ROTARY, "tie_word_embeddings": False}.items():
            facts.assume(key, value)
    else:
        facts.miss("model", (f"layers of {config.value('model.type')}: --model",))


LEVANTER: Final = Dialect(name="levanter", rule=_levanter, converts={"products": _compute})


def _devices(facts: Facts, config: Settings) -> None:
    """Sequences of a device at once; -1 is all of its share."""
    setting = config.first("trainer.per_device_parallelism")
    if setting is not None and whole(setting.value) != -1:
        state(facts, "micro_batch_size", setting, degree)


def _lingua(facts: Facts, config: Settings) -> None:
    """The width of its gated MLP, and copies of shards."""
    hidden, share = facts.number("hidden_size"), number(config.value("model.ffn_dim_multiplier"))
    multiple = degree(config.value("model.multiple_of")) or 256
    if hidden:
        width = int((share or 1.0) * int(2 * 4 * hidden / 3))
        facts.derive("intermediate_size", multiple * ceil(width / multiple), f"8 h / 3 in whole {multiple}s")
    heads, copies = facts.number("num_attention_heads"), config.first("distributed.dp_replicate")
    if heads:
        facts.assume("num_key_value_heads", heads, "as many as heads")
    if copies is not None and (degree(copies.value) or 1) > 1:
        state(facts, "sharding_degree", config.first("distributed.dp_shard"), degree)
        facts.derive("sharding", "hsdp" if "sharding_degree" in facts.facts else "ddp", copies.place, copies.name)
    state(facts, "sharding", config.first("distributed.fsdp_type"), SHARDS)
    whole_blocks = config.first("distributed.full_activation_checkpointing")
    if whole_blocks is not None and switch(whole_blocks.value):
        facts.replace_where_none("recompute", "full", whole_blocks.place)
    elif whole_blocks is not None and switch(whole_blocks.value) is None and facts.value("recompute") in (None, "none"):
        facts.facts.pop("recompute", None)
        state(facts, "recompute", whole_blocks, lambda _: None)
    config.seen.update(OTHER_APPS)
    kind = next((config[name] for name in OTHER_APPS if name in config), None)
    if kind is not None:
        facts.miss("model", (f"{kind.place} = {kind.value}: layers of another app of lingua: --model",))
    for key, value in {**ROTARY, "tie_word_embeddings": False}.items():
        facts.assume(key, value)


OTHER_APPS: Final = (
    "model_type",
    "model.conv_size",
    "model.state_dim",
    "model.lru_dim",
    "model.n_future_head",
    "model.patch_size",
    "model.vision_model.layers",
    "entropy_model.dim",
)
"""Keys of apps besides ``apps/main`` and of forks: recurrent layers, heads for later tokens, vision in front."""

LINGUA: Final = Dialect(name="lingua", rule=_lingua)

PAGED: Final = r"(?i)(?:bitsandbytes|bnb|torchao)\.(?:\w+\.)*(?:Paged)?AdamW?(?:8bit|32bit)?"
"""Adam of other packages."""
BUILDER: Final = r"(?:\w+\.)*(q?lora_)?([a-z]+)(\d+)(?:_(\d))?_(\d+(?:_\d+)?b)(?:_base|_instruct)?"


def _torchtune(facts: Facts, config: Settings) -> None:
    """The model by the name of its builder, adapters, copies, and host memory."""
    builder = config.first("model._component_")
    found = None if builder is None else re.fullmatch(BUILDER, str(builder.value))
    if builder is not None and found is not None:
        version = found[3] if found[4] is None else f"{found[3]}.{found[4]}"
        names = [
            f"{found[2]}-{version}-{found[5].replace('_', '.')}",
            f"{found[2]}{version}-{found[5].replace('_', '.')}",
        ]
        name = next((each for each in names if named_model(each) is not None), None)
        if name is not None:
            facts.derive("model", name, f"{builder.place} {builder.value}", builder.name)
    if builder is not None:
        facts.miss("model", (f"the builder {builder.value}: --model",))
        prefix = str(builder.value).rpartition(".")[2].partition("_")[0]
        adapters = prefix in ("lora", "qlora", "dora")
        facts.derive("train", "lora" if adapters else "full", builder.place, builder.name)
        if adapters:
            _adapters(facts, config)
        if prefix == "qlora":
            facts.derive("base_weights", "nf4-dq", f"{builder.place} {builder.value}", builder.name)
    copies = config.first("data_parallel_replicate_dim")
    if copies is not None and (degree(copies.value) or 1) > 1:
        state(facts, "sharding_degree", config.first("data_parallel_shard_dim"), degree)
        facts.derive("sharding", "hsdp", copies.place, copies.name)
    _formats(facts, config)
    objective_facts(facts, config)
    _host(facts, config.first("fsdp_cpu_offload"), config.first("enable_activation_offloading"))


def _adapters(facts: Facts, config: Settings) -> None:
    """Projections that are listed, and the matrices of the MLP by a switch."""
    listed, wide = config.first("model.lora_attn_modules"), config.first("model.apply_lora_to_mlp")
    own = targets_of(listed.value) if listed is not None else None
    if listed is not None and own is not None:
        mlp = ",gate,up,down" if wide is not None and switch(wide.value) else ""
        facts.state("lora_targets", own + mlp, listed.place, listed.name)
    head = config.first("model.apply_lora_to_output")
    if head is not None and switch(head.value):
        facts.doubt(f"{head.place}: the adapter of the head is not priced")
    adapter_facts(facts, config, ranks=("model.lora_rank",), targets=(), source="the builder")


def _adam_or_other(value: object) -> str | None:
    return "adam" if re.fullmatch(PAGED, str(value)) else optimizer(value)


def _formats(facts: Facts, config: Settings) -> None:
    """``dtype`` is that of weights, gradients and moments; there is no fp32 copy (``recipes/full_finetune_*.py``)."""
    setting, paged = config.first("dtype"), config.first("optimizer._component_")
    word = None if setting is None else precision(setting.value)
    if setting is not None and word in {"bf16", "fp16"}:
        for key in ("grad_dtype", "moment_dtype"):
            facts.derive(key, word, f"{setting.place}: gradients and moments are as the weights", setting.name)
        facts.doubt(f"{setting.place} = {setting.value}: an fp32 copy of the weights is priced that torchtune has not")
    if paged is not None and "8bit" in str(paged.value).lower():
        facts.doubt(f"{paged.place} = {paged.value}: moments of few bits are priced in 16 bits or more")
    fused = config.first("optimizer_in_bwd")
    if fused is not None and switch(fused.value):
        facts.doubt(f"{fused.place}: gradients that are freed layer by layer are priced as kept")


def _host(facts: Facts, states: NamedSetting | None, activations: NamedSetting | None) -> None:
    for each, word in ((states, "optimizer"), (activations, "activations")):
        if each is not None and switch(each.value) is not False:
            state(facts, "offload", each, on_off(word, "none"))
    if states is not None and switch(states.value):
        facts.doubt(f"{states.place}: weights in host memory are not priced")
    off = states or activations
    if off is not None:
        facts.derive("offload", "none", off.place)


TORCHTUNE: Final = Dialect(name="torchtune", rule=_torchtune, converts={"adam_or_other": _adam_or_other})

FMS_FSDP: Final = Dialect(name="fms-fsdp")


def _of_fsdp(facts: Facts, config: Settings) -> None:
    """The precision by a switch; the number of accelerators over which a hybrid sharding shares."""
    config.seen.update({*PYTORCH_FSDP.record["marks"], "mixed-precision"})
    for name in ("bf16", "fp16"):
        setting = config.first(name)
        if setting is not None:
            state(facts, "precision", setting, lambda value, name=name: name if switch(value) else None)  # type: ignore[misc]
    if facts.value("sharding") == "hsdp":
        facts.miss("sharding_degree", ("the accelerators of a node",))


PYTORCH_FSDP: Final = Dialect(name="pytorch-fsdp", rule=_of_fsdp)


def _of_internevo(facts: Facts, config: Settings) -> None:
    """Degrees whose meaning the mode decides, and layers."""
    _tensor(facts, config)
    _sharding(facts, config)
    facts.miss("intermediate_size", ("model.mlp_ratio and the code's rounding",))
    if "num_experts" in facts:
        facts.miss("ep", ("the code, from the data-parallel degree",))
    if config.has("adam"):
        facts.derive("optimizer", "adam", "the section adam")


def _tensor(facts: Facts, config: Settings) -> None:
    """``mtp``, ``msp`` and ``fsp`` split weights; ``isp`` splits the sequence alone."""
    size, mode = (
        config.first("parallel.tensor.size", "parallel.tensor"),
        str(config.value("parallel.tensor.mode") or "mtp"),
    )
    if mode == "isp" and size is not None:
        state(facts, "cp", size, degree)
        facts.derive("tp", 1, f"{size.place}: mode isp splits the sequence, not the weights")
        facts.derive("cp_comm", "a2a", f"{size.place}: mode isp")
        facts.derive("sequence_parallel", value=True, rule="mode isp")
    elif mode in {"mtp", "msp", "fsp"}:
        state(facts, "tp", size, degree)
        facts.derive("sequence_parallel", mode != "mtp", f"tensor mode {mode}")
    else:
        facts.miss("tp", (f"parallel.tensor.mode = {mode}",))


def _sharding(facts: Facts, config: Settings) -> None:
    """Optimizer states over ``zero1``; weights over ``weight``."""
    zero, weight = config.first("parallel.zero1.size", "parallel.zero1"), whole(config.value("parallel.weight.size"))
    if weight is not None and weight > 1:
        facts.miss("sharding", (f"parallel.weight.size = {weight}: weights are sharded over fewer ranks than states",))
    elif zero is not None and whole(zero.value) == 1:
        facts.derive("sharding", "ddp", f"{zero.place} = 1", zero.name)
    elif zero is not None and (size := whole(zero.value)) is not None:
        facts.derive("sharding", "zero1", f"{zero.place} = {size}", zero.name)
        if size > 1:
            facts.derive("sharding_degree", size, zero.place)


def _recompute(value: object) -> str | None:
    """A switch, or a share of the layers; a share between none and all has no counterpart."""
    if isinstance(value, bool):
        return "full" if value else "none"
    return {0.0: "none", 1.0: "full"}.get(-1.0 if (share := number(value)) is None else share)


INTERNEVO: Final = Dialect(
    name="internevo",
    rule=_of_internevo,
    converts={"recompute": _recompute, "experts": lambda value: None if (n := degree(value)) == 1 else n},
)


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

WHOLE_LAYERS: Final = words_of({"whole_layer": "full"})
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

TABLES: Final = (
    INTERNEVO,
    NEMO,
    LLAMA_FACTORY,
    AXOLOTL,
    OLMO,
    LLM_FOUNDRY,
    LEVANTER,
    LINGUA,
    TORCHTUNE,
    *NEWER,
    NANOGPT,
    LM_ENGINE,
    NEMO_RL,
    TRAINER,
)

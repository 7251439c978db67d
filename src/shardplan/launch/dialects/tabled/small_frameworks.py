"""levanter, lingua, torchtune and fms-fsdp: frameworks whose files are a table and few rules.

levanter ``trainer.py`` and ``models/*.py`` at 9263f81e8b; lingua ``apps/main/train.py`` at 437d680e52; torchtune's
recipes at bd2a0fc7c3; fms-fsdp ``fms_fsdp/config/training.py`` at 5a296afe42.
"""

from __future__ import annotations

import re
from math import ceil
from typing import Final

from shardplan.launch.dialects.adapters import adapter_facts, targets_of
from shardplan.launch.dialects.models import named_model
from shardplan.launch.dialects.objectives import objective_facts
from shardplan.launch.dialects.reading import Facts
from shardplan.launch.dialects.records import Dialect
from shardplan.launch.dialects.settings import NamedSetting, Settings, state
from shardplan.launch.dialects.values import degree, number, optimizer, precision, switch, whole, words_of

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
    if states is not None and switch(states.value):
        facts.state("offload", "optimizer", states.place, states.name)
        facts.doubt(f"{states.place}: weights in host memory are not priced")
    elif activations is not None and switch(activations.value):
        facts.state("offload", "activations", activations.place, activations.name)
    elif states is not None or activations is not None:
        each = states or activations
        facts.derive("offload", "none", "" if each is None else each.place)


TORCHTUNE: Final = Dialect(name="torchtune", rule=_torchtune, converts={"adam_or_other": _adam_or_other})

FMS_FSDP: Final = Dialect(name="fms-fsdp")

"""Frameworks of 2025 and 2026 whose files are a record and few rules: prime-rl, NeMo Automodel, Oumi, VeOmni, LitGPT.

Keys and defaults at the commits that the records name.
"""

from __future__ import annotations

from typing import Final

from shardplan.launch.dialects.accelerate import STRATEGIES
from shardplan.launch.dialects.models import named_model
from shardplan.launch.dialects.reading import Facts
from shardplan.launch.dialects.records import Dialect
from shardplan.launch.dialects.settings import NamedSetting, Settings, state
from shardplan.launch.dialects.trainers import adapter_facts, frozen_facts, objective_facts, packed_facts
from shardplan.launch.dialects.values import degree, on_off, optimizer, precision, switch, words_of, zero_stage

IN_BF16: Final = "weights, gradients and moments are in bf16: an fp32 copy of the weights is priced that is not there"


def _is_on(setting: NamedSetting | None) -> bool:
    return setting is not None and (switch(setting.value) is True or switch(setting.value) is None)


def _prime_rl(facts: Facts, config: Settings) -> None:
    """World, sharding, adapters and host memory: activations and optimizer states are there unless it is said."""
    _prime_world(facts, config)
    copies, reshard = config.first("model.dp_replicate"), config.first("model.reshard_after_forward")
    if copies is not None and (degree(copies.value) or 1) > 1:
        facts.derive("sharding", "hsdp", f"{copies.place} = {copies.value}", copies.name)
        total, number = facts.number("num_accelerators"), degree(copies.value)
        if total and number and total % number == 0:
            facts.derive("sharding_degree", total // number, f"{total} accelerators / {copies.place}", copies.name)
    state(facts, "sharding", reshard, on_off("zero3", "zero2"))
    facts.assume("sharding", "zero3", "reshard_after_forward")
    if config.has("model.lora"):
        rank = config.first("model.lora.rank")
        facts.derive("train", "lora", f"the section model.lora{'' if rank is None else f' ({rank.place})'}")
        adapter_facts(
            facts, config, ranks=("model.lora.rank",), targets=("model.lora.target_modules",), rank=16, matrices="all"
        )
    facts.assume("train", "full", "no section model.lora")
    stored = config.first("model.optimization_dtype")
    if stored is not None and precision(stored.value) == "bf16":
        facts.derive("moment_dtype", "bf16", f"{stored.place}: moments are as the weights")
        facts.doubt(f"{stored.place}: {IN_BF16}")
    _prime_host(facts, config)
    _prime_experts(facts, config)
    objective_facts(facts, config)


def _prime_world(facts: Facts, config: Settings) -> None:
    """Of one node its accelerators that train, of several all of them."""
    nodes = facts.number("nodes")
    if config.value("deployment.type") == "multi_node" or nodes is not None:
        facts.assume("nodes", 2, "num_train_nodes")
        facts.assume("per_node", 8, "gpus_per_node")
        nodes, each = facts.number("nodes"), facts.number("per_node")
        if nodes and each:
            facts.derive("num_accelerators", nodes * each, f"{nodes} nodes x {each} accelerators")
    elif "num_accelerators" not in facts:
        facts.facts.pop("per_node", None)
        facts.assume("num_accelerators", 1, "num_train_gpus")


def _prime_host(facts: Facts, config: Settings) -> None:
    """What lives in host memory: optimizer states, activations, by default both."""
    states = config.first("model.full_offload", "model.optim_cpu_offload")
    weights, kept = config.first("model.fsdp_cpu_offload"), config.first("model.ac_offloading")
    if weights is not None and _is_on(weights):
        facts.state("offload", "optimizer", weights.place, weights.name)
        facts.doubt(f"{weights.place}: weights in host memory are not priced")
    state(facts, "offload", states, on_off("optimizer", "none"))
    facts.assume("offload", "optimizer", "optim_cpu_offload")
    if kept is None or _is_on(kept):
        place = "the default of model.ac_offloading" if kept is None else kept.place
        facts.doubt(f"{place}: activations in host memory too are priced as kept")


def _prime_experts(facts: Facts, config: Settings) -> None:
    """``auto`` is up to 8 of a group of shards for models with experts, whose adapters break the compiled graph."""
    setting, model = config.first("model.ep"), named_model(facts.value("model") or "qwen3-0.6b")
    has_experts = model is not None and any(hasattr(layer.mlp, "num_experts") for layer in model.layers)
    if has_experts and facts.value("train") == "lora" and facts.value("lora_targets") == "all":
        facts.derive("software.expert_scores", "eager", "adapters on experts")
    if setting is not None and setting.value != "auto":
        state(facts, "ep", setting, degree)
    elif model is None:
        facts.miss("ep", ("model.ep = auto: 1, or up to 8 where the model has experts",))
    elif not has_experts:
        facts.derive("ep", 1, "auto, of a model without experts")
    else:
        group = facts.number("sharding_degree") or facts.number("num_accelerators")
        if group:
            facts.derive("ep", min(group, 8), f"auto: at most 8 of a group of {group}")  # trainer.py: resolve_ep
        facts.miss("ep", ("model.ep = auto: up to 8 of a group of shards",))


PRIME_RL: Final = Dialect(name="prime-rl", rule=_prime_rl)

OF_STRATEGY: Final = {"fsdp2": "zero3", "megatron_fsdp": "zero3", "ddp": "ddp"}
MANAGERS: Final = {"fsdp2": "fsdp2", "megatronfsdp": "megatron_fsdp", "ddp": "ddp"}
"""Classes by which files of 2025 name the strategy (``FSDP2Manager``)."""


def _automodel(facts: Facts, config: Settings) -> None:
    """Strategy, stages, formats and adapters."""
    pp = facts.number("pp")
    if pp == 1:
        facts.facts.pop("schedule", None)
        facts.derive("vp", 1, "no pipeline")
        batch = config.first("step_scheduler.local_batch_size")
        if batch is not None:
            facts.facts.pop("micro_batch_size", None)
            state(facts, "micro_batch_size", batch, degree)
    elif pp is None and "pp" not in facts:
        facts.assume("vp", 1, "no pipeline")
    elif str(facts.value("schedule")) in ("1f1b", "gpipe", "None"):
        facts.derive("vp", 1, "one stage of a rank")
    else:
        facts.miss("vp", ("distributed.pipeline.layers_per_stage: stages of a rank",))
    _automodel_sharding(facts, config)
    packed = config.first("packed_sequence.packed_sequence_size")
    if packed is not None and degree(packed.value):
        state(facts, "sequence_length", packed, degree)
    dtype = config.first("model.torch_dtype", "model.config.torch_dtype")
    if dtype is None or precision(str(dtype.value).rpartition(".")[2]) != "fp32":
        for key in ("grad_dtype", "moment_dtype"):
            facts.assume(key, "bf16", "torch_dtype of the checkpoint")
        facts.doubt(f"{'torch_dtype of the checkpoint' if dtype is None else dtype.place}: {IN_BF16}")
    if config.has("peft"):
        facts.derive("train", "lora", "the section peft")
        linear = config.first("peft.match_all_linear")
        if linear is not None and switch(linear.value):
            facts.state("lora_targets", "all", linear.place, linear.name)
        adapter_facts(facts, config, ranks=("peft.dim",), targets=("peft.target_modules",), rank=8)
    facts.assume("train", "full", "no section peft")
    frozen_facts(facts, config)
    objective_facts(facts, config)


def _automodel_sharding(facts: Facts, config: Settings) -> None:
    named = config.first("distributed.strategy", "distributed._target_")
    word = "" if named is None else str(named.value).rpartition(".")[2].lower().removesuffix("manager")
    strategy = MANAGERS.get(word.removesuffix("config"), word)
    copies = config.first("distributed.dp_replicate_size")
    sizes = [degree(config.value(f"distributed.{name}_size")) for name in ("dp", "tp", "cp", "pp")]
    if sizes[0] is not None:
        product = sizes[0] * (sizes[1] or 1) * (sizes[2] or 1) * (sizes[3] or 1)
        facts.derive("num_accelerators", product, f"{config['distributed.dp_size'].place} x tp x cp x pp")
    if copies is not None and (number := degree(copies.value) or 1) > 1:
        facts.derive("sharding", "hsdp", f"{copies.place} = {copies.value}", copies.name)
        if sizes[0] is not None and sizes[0] % number == 0:
            facts.derive("sharding_degree", sizes[0] // number, "dp_size / dp_replicate_size", copies.name)
    reshard = config.first("distributed.reshard_after_forward")
    if strategy == "fsdp2" and reshard is not None and switch(reshard.value) is False:
        facts.state("sharding", "zero2", reshard.place, reshard.name)
    stage = config.first("distributed.zero_dp_strategy")
    if strategy == "megatron_fsdp" and stage is not None:
        state(facts, "sharding", stage, zero_stage)
    if named is not None:
        state(facts, "sharding", named, lambda _: OF_STRATEGY.get(strategy))
    facts.assume("sharding", "zero3", "strategy fsdp2")


AUTOMODEL: Final = Dialect(name="automodel", rule=_automodel)

TRAINERS: Final = {"TRL_SFT": None, "HF": None, "OUMI": None, "TRL_DPO": "pairs", "TRL_KTO": "pairs"}
OFFLOADS: Final = words_of({"cpu": "optimizer", "nvme": "optimizer", "none": "none"})


def _oumi(facts: Facts, config: Settings) -> None:
    """Formats, sharding and adapters."""
    kind = config.first("training.trainer_type")
    if kind is not None and str(kind.value).rpartition(".")[2].upper() not in TRAINERS:
        facts.doubt(f"{kind.said}: priced as supervised training")
    elif kind is not None and TRAINERS[str(kind.value).rpartition(".")[2].upper()]:
        facts.doubt(f"{kind.said}: pairs of answers and a reference model are priced as single sequences of one model")
    _oumi_precision(facts, config)
    _oumi_sharding(facts, config)
    named = config.first("training.optimizer")
    word = "" if named is None else str(named.value).replace("paged_", "").replace("_8bit", "")
    state(facts, "optimizer", named, lambda _: optimizer(word))
    if named is not None and word != str(named.value):
        facts.doubt(f"{named.said}: moments of few bits are priced as fp32")
    adapter_facts(facts, config, ranks=("peft.lora_r",), targets=("peft.lora_target_modules",), rank=8)
    packed_facts(facts, config, doubled=False)
    layers = config.first("model.freeze_layers")
    if layers is not None and layers.value not in (None, ()):
        facts.doubt(f"{layers.place}: weights that are frozen are priced as trained")


def _oumi_precision(facts: Facts, config: Settings) -> None:
    mixed, stored = config.first("training.mixed_precision_dtype"), config.first("model.torch_dtype_str")
    word = "" if mixed is None else str(mixed.value).rpartition(".")[2].lower()
    if mixed is not None and word not in ("", "none"):
        state(facts, "precision", mixed, lambda _: precision(word))
    elif stored is not None and stored.value != "auto":
        state(facts, "precision", stored, precision)
        if facts.value("precision") in ("bf16", "fp16"):
            for key in ("grad_dtype", "moment_dtype"):
                facts.derive(key, facts.value("precision"), f"{stored.place}: gradients and moments are as the weights")
            facts.doubt(f"{stored.place}: {IN_BF16}")
    else:
        facts.miss("precision", ("model.torch_dtype_str",))


def _oumi_sharding(facts: Facts, config: Settings) -> None:
    fsdp, stage = config.first("fsdp.enable_fsdp"), config.first("deepspeed.zero_stage")
    is_zero = switch(config.value("deepspeed.enable_deepspeed")) is True
    if fsdp is not None and switch(fsdp.value):
        state(facts, "sharding", config.first("fsdp.sharding_strategy"), lambda value: STRATEGIES(_last(value)))
        facts.derive("sharding", "zero3", f"{fsdp.place}: FULL_SHARD is the default", fsdp.name)
        state(facts, "offload", config.first("fsdp.cpu_offload"), on_off("optimizer", "none"))
    elif is_zero:
        state(facts, "sharding", stage, lambda value: zero_stage(str(value).rpartition("_")[2]))
        facts.miss("sharding", ("deepspeed.zero_stage",))
        state(
            facts, "offload", config.first("deepspeed.offload_optimizer.device"), lambda value: OFFLOADS(_last(value))
        )
    facts.assume("sharding", "ddp", "neither fsdp nor deepspeed")
    facts.assume("offload", "none")


def _last(value: object) -> str:
    """The last part of ``ShardingStrategy.FULL_SHARD``."""
    return str(value).rpartition(".")[2]


OUMI: Final = Dialect(name="oumi", rule=_oumi)


def _veomni(facts: Facts, config: Settings) -> None:
    """Sharding, host memory and sequences that Ulysses splits."""
    mode, shard = config.first("train.data_parallel_mode"), config.first("train.enable_full_shard")
    copies = config.first("train.data_parallel_replicate_size")
    if facts.number("cp") not in (None, 1):
        facts.derive("cp_comm", "a2a", "ulysses_parallel_size")
    if copies is not None and (degree(copies.value) or 1) > 1:
        facts.derive("sharding", "hsdp", f"{copies.place} = {copies.value}", copies.name)
        state(facts, "sharding_degree", config.first("train.data_parallel_shard_size"), degree)
    elif mode is not None and mode.value == "ddp":
        facts.state("sharding", "ddp", mode.place, mode.name)
    state(facts, "sharding", shard, on_off("zero3", "zero2"))
    facts.assume("sharding", "zero3", "enable_full_shard")
    weights, kept = config.first("train.enable_fsdp_offload"), config.first("train.enable_activation_offload")
    if weights is not None and switch(weights.value):
        facts.state("offload", "optimizer", weights.place, weights.name)
        facts.doubt(f"{weights.place}: weights in host memory are not priced")
    elif kept is not None and switch(kept.value):
        facts.state("offload", "activations", kept.place, kept.name)
    facts.assume("train", "full")


VEOMNI: Final = Dialect(name="veomni", rule=_veomni)
MATRICES: Final = {"query": "q", "key": "k", "value": "v", "projection": "o", "mlp": "gate,up,down"}
"""Switches of LitGPT for matrices with adapters."""


def _litgpt(facts: Facts, config: Settings) -> None:
    """Adapters and their matrices, the format, and sharding on more than one device."""
    facts.assume("nodes", 1, "num_nodes")
    rank, given = config.first("lora_r"), config.first("precision")
    if rank is not None:
        facts.state("train", "lora", rank.place, rank.name)
        state(facts, "lora_rank", rank, degree)
        on = [MATRICES[part] for part in MATRICES if switch(config.value(f"lora_{part}")) is True]
        facts.derive("lora_targets", ",".join(on) or "q,v", "lora_query, lora_key, ...")
    facts.assume("train", "full", "no lora_r")
    word = None if given is None else str(given.value)
    if word is not None and word.endswith("-true"):
        state(facts, "precision", given, lambda _: precision(word.removesuffix("-true")))
        if facts.value("precision") in ("bf16", "fp16"):
            facts.derive("moment_dtype", facts.value("precision"), f"{word}: moments are as the weights")
            facts.doubt(f"precision {word}: {IN_BF16}")
    elif word is not None:
        state(facts, "precision", given, lambda _: precision(word.removesuffix("-mixed")))
    packed = config.first("quantize")
    if packed is not None and str(packed.value).startswith("bnb.nf4"):
        facts.state("base_weights", "nf4-dq" if str(packed.value).endswith("dq") else "nf4", packed.place, packed.name)
    _litgpt_sharding(facts, config)


def _litgpt_sharding(facts: Facts, config: Settings) -> None:
    """FSDP on several devices: fine-tuning recomputes blocks, pretraining keeps copies in every node."""
    devices, nodes = facts.number("per_node"), facts.number("nodes") or 1
    is_pretraining = config.has("model_name") and not config.has("checkpoint_dir")
    if devices is None:
        for key in ("sharding", "recompute"):
            facts.miss(key, ("devices: one, or several with FSDP",))
    elif devices * nodes == 1:
        facts.derive("sharding", "ddp", "one device")
        facts.derive("recompute", "none", "one device")
    elif is_pretraining:
        facts.derive("sharding", "hsdp" if nodes > 1 else "zero3", "HYBRID_SHARD of pretrain.py")
        facts.derive("recompute", "none", "pretrain.py")
        if nodes > 1:
            facts.derive("sharding_degree", devices, "HYBRID_SHARD: the devices of a node")
    else:
        facts.derive("sharding", "zero3", "FSDPStrategy of finetune")
        facts.derive("recompute", "full", "activation_checkpointing_policy of finetune")


LITGPT: Final = Dialect(name="litgpt", rule=_litgpt)

NEWER: Final = (PRIME_RL, AUTOMODEL, OUMI, VEOMNI, LITGPT)

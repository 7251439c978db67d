"""Frameworks whose lines or files are a record and few rules: OpenRLHF, verl, NeMo RL (all without rollouts), nanoGPT.

Names and defaults at the commits that the records name.
"""

from __future__ import annotations

import re
from typing import Final

from shardplan.launch.dialects.launches import Launch
from shardplan.launch.dialects.models import named_model
from shardplan.launch.dialects.reading import Fact, Facts
from shardplan.launch.dialects.records import Dialect
from shardplan.launch.dialects.settings import NamedSetting, Settings, state
from shardplan.launch.dialects.trainers import adapter_facts, objective_facts, packed_facts
from shardplan.launch.dialects.values import degree, on_off, precision, switch


def _ranked(facts: Facts, config: Settings, ranks: tuple[str, ...], targets: tuple[str, ...]) -> None:
    """Adapters where the rank is above zero; all linear layers get them unless it is said."""
    rank = config.first(*ranks)
    if rank is not None and degree(rank.value):
        facts.state("train", "lora", rank.place, rank.name)
    elif rank is not None and rank.needs:
        facts.miss("train", rank.needs)
    facts.assume("train", "full", "no rank of adapters")
    adapter_facts(facts, config, ranks=ranks, targets=targets, matrices="all")


def _openrlhf(facts: Facts, config: Settings) -> None:
    """Formats, adapters, ring attention and what a reward model or pairs add."""
    word = config.first("param_dtype", "ds.param_dtype")
    if word is not None:
        state(facts, "precision", word, precision)
    elif any(name.startswith("ds.") for name in config):
        facts.assume("precision", "bf16", "ds.param_dtype")
    _ranked(facts, config, ("lora_rank", "ds.lora.rank"), ("target_modules", "ds.lora.target_modules"))
    packed_facts(facts, config, doubled=True)
    if facts.number("cp") not in (None, 1):
        facts.derive("cp_comm", "p2p", "ring attention")
    flash = config.first("flash_attn")
    if flash is not None and switch(flash.value):
        facts.state("attention", "flash", flash.place, flash.name)
    facts.assume("overlap_dp", facts.value("sharding") == "zero3", "overlap_comm")


OPENRLHF: Final = Dialect(name="openrlhf", rule=_openrlhf)


def _verl(facts: Facts, config: Settings) -> None:
    """Adapters, Ulysses, and the micro-batch of earlier versions, which is one of all ranks."""
    _ranked(facts, config, ("model.lora_rank",), ("model.target_modules",))
    if facts.number("cp") not in (None, 1):
        facts.derive("cp_comm", "a2a", "ulysses_sequence_parallel_size")
    whole = config.first("data.micro_batch_size")
    if whole is not None and "micro_batch_size" not in facts:
        facts.miss("micro_batch_size", (f"{whole.place}: of all ranks together",))
    facts.assume("micro_batch_size", 4, "micro_batch_size_per_gpu")


VERL_SFT: Final = Dialect(name="verl-sft", rule=_verl)


def _nanogpt(facts: Facts, config: Settings) -> None:
    """The batch, which is accumulated over all ranks, the vocabulary of the data, and weights that are loaded."""
    steps, size = config.first("gradient_accumulation_steps"), facts.number("micro_batch_size")
    number = 40 if steps is None else degree(steps.value)
    if steps is not None and number is None:
        facts.miss("global_batch_size", steps.needs or (steps.said,))
    elif size and number:
        place = "gradient_accumulation_steps, by default 40," if steps is None else f"{steps.place} {number}"
        facts.derive("global_batch_size", size * number, f"{place} of all ranks x batch_size {size}")
    started, data = config.first("init_from"), config.first("dataset")
    word = "scratch" if started is None else str(started.value)
    if started is not None and word != "scratch":
        if named_model(word) is not None:
            facts.derive("model", word, f"{started.place} {word}", started.name)
        facts.miss("model", (f"{started.place} = {word}: --model",))
    known = NANOGPT.words("vocabularies").get("openwebtext" if data is None else str(data.value))
    if known is not None:
        facts.derive("vocab_size", known, "the default data" if data is None else f"{data.place} {data.value}")
    facts.miss("vocab_size", ("meta.pkl of the data, else 50304 (--given vocab_size=VALUE)",))
    if "model" not in facts:
        facts.note("layers are those of nanoGPT, GPT-2's: a copy of its program may have others")
    hidden = facts.number("hidden_size")
    facts.assume("hidden_size", 768, "n_embd")
    facts.derive("intermediate_size", 4 * (hidden or 768), "4 n_embd")
    objective_facts(facts, config)


NANOGPT: Final = Dialect(name="nanogpt", rule=_nanogpt)


def _lm_engine(facts: Facts, config: Settings) -> None:
    """Layers where all blocks say the same, and groups of shards."""
    sections = {"sequence_mixer_blocks": _MIXER, "mlp_blocks": _MLP}
    for section, keys in sections.items() if config.first("model_args.model_name") is None else ():
        blocks: dict[str, dict[str, NamedSetting]] = {}
        for name, each in config.items():
            if found := re.fullmatch(rf"model_args\.pretrained_config\.{section}\.(\d+)\.(\w+)", name):
                blocks.setdefault(found[1], {})[found[2]] = each
        kinds = {tuple((name, str(each.value)) for name, each in sorted(block.items())) for block in blocks.values()}
        block = next(iter(blocks.values()), {})
        kind = block.get("sequence_mixer_type", block.get("mlp_type"))
        if len(kinds) != 1 or kind is None or kind.value not in ("softmax_attention", "MLP"):
            facts.miss("model", (f"{section}: layers of several kinds, or of other kinds than attention and MLP",))
            continue
        for key, (name, convert) in keys.items():
            state(facts, key, block.get(name), convert)
        word = block.get("activation_function")
        if word is not None:
            facts.derive("gated", "glu" in str(word.value), f"{word.place} {word.value}")
    heads, mqa = facts.number("num_attention_heads"), config.first(f"{_FIRST}.attention_head_type")
    if heads and mqa is not None:
        facts.derive("num_key_value_heads", 1 if mqa.value == "mqa" else heads, f"{mqa.place} {mqa.value}")
    copies = config.first("distributed_args.zero_topology.data_parallel_replication_world_size")
    group = config.first("distributed_args.zero_topology.data_parallel_sharding_world_size")
    if (
        copies is not None
        and group is not None
        and (number := degree(copies.value))
        and (shards := degree(group.value))
    ):
        facts.derive("sharding_degree", shards, group.place, group.name)
        product = number * shards * (facts.number("tp") or 1) * (facts.number("pp") or 1) * (facts.number("cp") or 1)
        facts.derive("num_accelerators", product, f"{copies.place} {number} x {group.place} {shards} x other degrees")
        if number > 1 and facts.value("sharding") == "zero3":
            facts.replace("sharding", Fact(value="hsdp", origin="derived", why=copies.place))
    facts.miss("train", ("tuning_args.tuning_method",))
    adapter_facts(facts, config)


_FIRST: Final = "model_args.pretrained_config.sequence_mixer_blocks.0"
_MIXER: Final = {
    "num_attention_heads": ("num_attention_heads", degree),
    "num_key_value_heads": ("num_key_value_heads", degree),
    "head_dim": ("head_dim", degree),
    "sliding_window": ("sliding_window", degree),
}
_MLP: Final = {"intermediate_size": ("intermediate_size", degree), "bias": ("add_bias", switch)}
LM_ENGINE: Final = Dialect(name="lm-engine", rule=_lm_engine)


def _nemo_rl(facts: Facts, config: Settings) -> None:
    """What trains: DTensor by FSDP, or Megatron."""
    on_megatron = switch(config.value("policy.megatron_cfg.enabled")) is True
    section = "megatron" if on_megatron else "dtensor"
    NEMO_RL.state_section(facts, config, section)
    if on_megatron:
        shared = config.first("policy.megatron_cfg.optimizer.use_distributed_optimizer")
        state(facts, "sharding", shared, on_off("zero1", "ddp"))
        facts.miss("sharding", ("policy.megatron_cfg.optimizer.use_distributed_optimizer",))
        kept = config.first("policy.megatron_cfg.activation_checkpointing")
        if kept is None or switch(kept.value) is not False:
            facts.miss("recompute", ("policy.megatron_cfg.activation_checkpointing and recompute_granularity",))
        state(facts, "recompute", kept, on_off("full", "none"))
        state(
            facts,
            "offload",
            config.first("policy.megatron_cfg.optimizer.optimizer_cpu_offload"),
            on_off("optimizer", "none"),
        )
        facts.assume("etp", 1)
    else:
        copies = facts.number("sharding_copies")
        if copies is not None and copies > 1:
            facts.miss("sharding_degree", (f"dp_replicate_size {copies}: accelerators of a group of shards",))
        facts.derive("sharding", "hsdp" if copies is not None and copies > 1 else "zero3", "FSDP of DTensor")
        facts.assume("recompute", "none", "activation_checkpointing")
    facts.facts.pop("sharding_copies", None)
    for key in ("tp", "cp", "pp", "ep"):
        facts.assume(key, 1)
    facts.assume("offload", "none")
    lora = config.first("policy.dtensor_cfg.lora_cfg.enabled", "policy.megatron_cfg.peft.enabled")
    if lora is not None and switch(lora.value) is not False:
        facts.state("train", "lora", lora.place, lora.name)
        names = ("policy.dtensor_cfg.lora_cfg.dim", "policy.megatron_cfg.peft.dim")
        adapter_facts(facts, config, ranks=names, targets=(), matrices=None, source="target_modules of lora_cfg")
    facts.assume("train", "full", "no lora_cfg")


NEMO_RL: Final = Dialect(name="nemo-rl", rule=_nemo_rl)
LINES: Final = (OPENRLHF, VERL_SFT, NANOGPT)


def dialect_of_line(launch: Launch, settings: Settings) -> Dialect | None:
    """The record whose program a line starts; a name that many programs have needs its options too."""
    for each in LINES:
        if re.search(each.record["program"], launch.program) and ("must" not in each.record or each.owns(settings)):
            return each
    return None

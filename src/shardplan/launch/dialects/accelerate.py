"""Hugging Face accelerate: its YAML, alone or behind ``accelerate launch --config_file``."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from shardplan.launch.dialects.reading import Facts
from shardplan.launch.dialects.records import Dialect
from shardplan.launch.dialects.settings import Settings, state
from shardplan.launch.dialects.values import degree, on_off, precision, switch, words_of

NAME: Final = "accelerate"
VERSION: Final = "1.15"

STRATEGIES: Final = words_of(
    {
        "full_shard": "zero3",
        "1": "zero3",
        "shard_grad_op": "zero2",
        "2": "zero2",
        "no_shard": "ddp",
        "3": "ddp",
        "hybrid_shard": "hsdp",
        "4": "hsdp",
        "hybrid_shard_zero2": "hsdp",
        "5": "hsdp",
    }
)
"""Names and numbers of ``fsdp_sharding_strategy``."""

RECORD: Final = Dialect(name=NAME)


KINDS: Final = {"use_deepspeed": "DEEPSPEED", "use_fsdp": "FSDP", "use_megatron_lm": "MEGATRON_LM",
                "multi_gpu": "MULTI_GPU"}  # fmt: skip
"""Switches of ``accelerate launch``, and the word of its file that says the same."""
OF_DEEPSPEED: Final = (
    "zero_stage", "deepspeed_config_file", "offload_optimizer_device", "offload_param_device",
    "gradient_accumulation_steps",
)  # fmt: skip


def line_settings(front: Settings) -> Settings:
    """Options of ``accelerate launch`` under the keys of its file."""
    found = Settings()
    for key, each in front.items():
        name = key.replace("-", "_")
        section = next((mark for mark in ("fsdp", "megatron_lm", "parallelism_config") if name.startswith(mark)), None)
        if name in KINDS and switch(each.value) is not False:
            found["distributed_type"] = replace(each, value=KINDS[name])
        elif section is not None:
            found[f"{section.removesuffix('_config')}_config.{name}"] = each
        elif name in OF_DEEPSPEED:
            found[f"deepspeed_config.{name}"] = each
        elif name in {"mixed_precision", "num_machines", "num_processes"}:
            found[name] = each
    if not found.has("distributed_type") and found.has("deepspeed_config.zero_stage"):
        found["distributed_type"] = replace(found["deepspeed_config.zero_stage"], value="DEEPSPEED")
    return found


def is_accelerate(settings: Settings) -> bool:
    """Whether a document is accelerate's."""
    return "distributed_type" in settings and ("num_processes" in settings or "compute_environment" in settings)


def accelerate_facts(facts: Facts, config: Settings, *, program: str = "") -> None:
    """A configuration of accelerate; the file of DeepSpeed that it may name is read by the caller.

    ``program``: what is launched with it, which may set the precision itself.
    """
    _world(facts, config)
    on_host = config.first("use_cpu")
    if on_host is not None and switch(on_host.value):
        facts.doubt(f"{on_host.place}: training on the host's processor is priced on accelerators")
    named = config.value("distributed_type")
    kind = "NO" if named is False else str(named or "").upper()  # YAML reads a bare NO as false
    if kind == "MEGATRON_LM":
        _megatron(facts, config.section("megatron_lm_config"))
    elif kind == "FSDP":
        _fsdp(facts, config)
    elif kind == "NO" or kind.startswith("MULTI_"):
        facts.derive("sharding", "ddp", f"distributed_type {kind}", "distributed_type")
    elif kind == "DEEPSPEED":
        RECORD.state_section(facts, config.section("parallelism_config"), "parallelism", ("tp", "cp"))
        if facts.number("cp") not in {None, 1} and config.has("parallelism_config.parallelism_config_sp_size"):
            facts.derive("cp_comm", "a2a", "sequence parallelism of DeepSpeed (Ulysses)")
    elif kind:
        facts.doubt(f"distributed_type {kind}")
        facts.miss("sharding", (f"distributed_type {kind}",))
    setting = config.first("mixed_precision")
    if setting is not None and str(setting.value).lower() in {"no", "false"}:
        facts.state("precision", "fp32", setting.place, "mixed_precision")
    else:
        state(facts, "precision", setting, precision)
    by_file = kind == "DEEPSPEED" and config.has("deepspeed_config.deepspeed_config_file")
    if program and not by_file and "precision" not in facts:
        facts.miss("precision", (f"the program {program}",))
    elif kind != "DEEPSPEED" and setting is None:
        facts.assume("precision", "fp32", "mixed_precision is no; the training script may say otherwise")


def _world(facts: Facts, config: Settings) -> None:
    """``num_processes`` is the total over all machines."""
    state(facts, "num_accelerators", config.first("num_processes"), degree)
    state(facts, "nodes", config.first("num_machines"), degree)
    total, nodes = facts.number("num_accelerators"), facts.number("nodes")
    if total and nodes and total % nodes == 0:
        facts.derive("per_node", total // nodes, f"num_processes {total} / num_machines {nodes}")


def _megatron(facts: Facts, section: Settings) -> None:
    RECORD.state(facts, section)
    RECORD.assume(facts)


def _fsdp(facts: Facts, config: Settings) -> None:
    """FSDP 1 by strategy, FSDP 2 by whether weights are resharded; degrees of ``parallelism_config``."""
    section = config.section("fsdp_config")
    RECORD.state_section(facts, config.section("parallelism_config"), "parallelism")
    replicate, shard, cp = (facts.number(key) for key in ("replicate", "shard", "cp"))
    _strategy(facts, section, replicate or 1, (shard or 1) * (cp or 1))
    for helper in ("replicate", "shard"):
        facts.facts.pop(helper, None)
    checkpointing = section.first("fsdp_activation_checkpointing")
    state(facts, "recompute", checkpointing, on_off("full", "none"))
    offload = section.first("fsdp_offload_params", "fsdp_cpu_offload")
    state(facts, "offload", offload, on_off("optimizer", "none"))
    if offload is not None and switch(offload.value) is not False:
        facts.doubt(f"{offload.place}: weights in host memory are not priced")


def _strategy(facts: Facts, section: Settings, replicate: int, group: int) -> None:
    strategy, reshard = section.first("fsdp_sharding_strategy"), section.first("fsdp_reshard_after_forward")
    if replicate > 1 and group > 1:
        facts.derive(
            "sharding", "hsdp", f"replicate {replicate}, shard {group}", "parallelism_config_dp_replicate_size"
        )
        facts.derive("sharding_degree", group, "dp_shard_size x cp_size", "parallelism_config_dp_shard_size")
    elif strategy is not None:
        state(facts, "sharding", strategy, STRATEGIES)
    elif reshard is not None and isinstance(switch(reshard.value), bool):
        word = "zero3" if switch(reshard.value) else "zero2"
        facts.state("sharding", word, reshard.place, reshard.name)
    elif reshard is not None:
        state(facts, "sharding", reshard, STRATEGIES)
    facts.assume("sharding", "zero3", "FULL_SHARD")

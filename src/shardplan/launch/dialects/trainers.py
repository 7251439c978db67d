"""Configurations in the manner of Hugging Face's Trainer: LLaMA-Factory, axolotl, and YAML files of its arguments.

Names as in LLaMA-Factory ff6d4d12, axolotl 067b021c, ``TrainingArguments`` and ``ModelConfig`` of TRL 1.x.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import prod
from typing import Final

from shardplan.launch.dialects.accelerate import STRATEGIES
from shardplan.launch.dialects.reading import Facts
from shardplan.launch.dialects.records import Dialect
from shardplan.launch.dialects.settings import NamedSetting, Settings, state
from shardplan.launch.dialects.training import (
    RANKS,
    adapter_facts,
    copy_facts,
    frozen_facts,
    objective_facts,
    packed_facts,
)
from shardplan.launch.dialects.values import ATTENTION, attention, degree, on_off, optimizer, precision, switch

FEW_BITS: Final = r"(?:paged_)?adamw?_(?:\w+_)?[48]bit"
"""Adam whose moments have four or eight bits."""
ADAPTERS: Final[Mapping[str, tuple[int | None, str | None]]] = {"llama-factory": (8, "all"), "hf-trainer": (16, None)}
"""Rank and matrices of adapters where a file does not name them; PEFT chooses matrices by the model's type."""
TRAINED: Final = {"lora": "lora", "qlora": "lora", "full": "full"}


def _rules(facts: Facts, config: Settings) -> None:
    """Precision, adapters, optimizer, attention and sharding by PyTorch."""
    state(facts, "attention", config.first(*ATTENTION), attention)
    _precision(facts, config)
    _trained(facts, config)
    _optimizer(facts, config)
    _fsdp(facts, config)
    if facts.framework == "hf-trainer" and not config.has("deepspeed"):
        copy_facts(facts, config)


FORMATS: Final = (
    ("fp16_bfloat16", "bf16"), ("bf16", "bf16"), ("pure_bf16", "bf16"), ("fp16", "fp16"), ("bfloat16", "bf16"),
)  # fmt: skip
"""Switches of formats; the first that is on counts."""


def _precision(facts: Facts, config: Settings) -> None:
    """``bf16: auto`` is bf16 where the accelerator has it, which all that train at scale have."""
    low = config.first("fp8")
    if low is not None and switch(low.value):
        facts.state("precision", "fp8", low.place, low.name)
    for name, word in FORMATS:
        setting = config.first(name)
        if setting is not None and switch(setting.value):
            facts.state("precision", word, setting.place, name)
        elif setting is not None and setting.value == "auto":
            facts.derive("precision", word, f"{setting.place} = auto: the accelerator has it", name)
    given = config.first("bf16", "fp16", "pure_bf16")
    if given is None:
        state(facts, "precision", config.first("torch_dtype", "dtype"), _word_of_dtype)
    if "precision" not in facts and not config.has("deepspeed"):
        facts.miss("precision", ("the launch line, or the defaults of the script",))


def _word_of_dtype(value: object) -> str | None:
    return None if value == "auto" else precision(value)


def _trained(facts: Facts, config: Settings) -> None:
    """All weights or adapters alone."""
    tuned = config.first("finetuning_type", "adapter")
    peft = config.first("use_peft")
    if tuned is not None and str(tuned.value) not in {"", "none"}:
        state(facts, "train", tuned, lambda value: TRAINED.get(str(value)))
    elif peft is not None:
        state(facts, "train", peft, on_off("lora", "full"))
    ranked = config.first(*RANKS)
    if "train" not in facts and facts.framework == "hf-trainer" and ranked is not None and peft is None:
        facts.miss("train", (f"{ranked.place} {ranked.value}: full or lora",))
    rank, matrices = ADAPTERS.get(facts.framework, (None, None))
    adapter_facts(facts, config, rank=rank, matrices=matrices, source="the file: lora_r and its targets")
    frozen_facts(facts, config)
    objective_facts(facts, config)
    packed_facts(facts, config, doubled=facts.framework == "llama-factory" or config.first("adapter") is not None)


def _optimizer(facts: Facts, config: Settings) -> None:
    setting = config.first("optimizer", "optim")
    if setting is not None and re.fullmatch(FEW_BITS, str(setting.value)):
        facts.state("optimizer", "adam", setting.place, setting.name)
        facts.doubt(f"{setting.place} = {setting.value}: moments of few bits are priced as fp32")
    else:
        state(
            facts,
            "optimizer",
            setting,
            lambda value: optimizer(str(value).removeprefix("paged_").replace("_32bit", "")),
        )


def _fsdp(facts: Facts, config: Settings) -> None:
    """``fsdp_config`` of version 2, or the list of words of version 1."""
    section = [config.first(f"fsdp_config.{name}", f"fsdp_config.fsdp_{name}") for name in _NAMES]
    strategy, offload, checkpointing, reshard = section
    listed = config.first("fsdp", "fsdp.0")
    words = str(listed.value).lower() if listed is not None else ""
    on = listed is not None and words not in {"", "none", "false", "()", "[]"}
    if not on and not config.has("fsdp_config"):
        return
    found = next((word for word in ("full_shard", "shard_grad_op", "hybrid_shard", "no_shard") if word in words), None)
    copies = degree(config.value("dp_replicate_size")) or 1
    if copies > 1:
        facts.derive("sharding", "hsdp", f"{config['dp_replicate_size'].place} {copies}", "dp_replicate_size")
    elif listed is not None and found is not None:
        state(facts, "sharding", listed, lambda _: STRATEGIES(found))
    elif strategy is not None:
        state(facts, "sharding", strategy, STRATEGIES)
    elif reshard is not None:
        state(facts, "sharding", reshard, on_off("zero3", "zero2"))
    else:
        facts.assume("sharding", "zero3", "FULL_SHARD")
    _section(facts, offload, checkpointing, words)


_NAMES: Final = ("sharding_strategy", "offload_params", "activation_checkpointing", "reshard_after_forward")


def _section(facts: Facts, offload: NamedSetting | None, checkpointing: NamedSetting | None, words: str) -> None:
    """Weights and states in host memory, and what is computed again."""
    if offload is not None and switch(offload.value):
        facts.state("offload", "optimizer", offload.place, offload.name)
        facts.doubt(f"{offload.place}: weights in host memory are not priced")
    elif "offload" in words:
        facts.derive("offload", "optimizer", "fsdp: offload")
    if checkpointing is not None and switch(checkpointing.value):
        facts.replace_where_none("recompute", "full", checkpointing.place)


def _of_axolotl(facts: Facts, config: Settings) -> None:
    """Plain data parallelism without a section of FSDP or DeepSpeed; the world is the product of its degrees."""
    _rules(facts, config)
    aware = next((each for name, each in config.items() if name.startswith("qat.")), None)
    if aware is not None:
        facts.doubt(f"{aware.place}: training for few bits is priced without it")
    if config.first("dp_shard_size") is not None:
        _product(facts, config)
    if "sharding" not in facts and not config.has("deepspeed"):
        facts.assume("sharding", "ddp", "neither fsdp nor deepspeed")
    checkpointing = config.first("gradient_checkpointing")
    if checkpointing is not None and checkpointing.value == "offload":
        facts.state("recompute", "full", checkpointing.place, checkpointing.name)
        facts.replace_where_none("offload", "activations", checkpointing.place)
    facts.assume("train", "full", "no adapter")


DEGREES: Final = (
    "dp_replicate_size", "dp_shard_size", "tensor_parallel_size", "context_parallel_size", "expert_parallel_size",
)  # fmt: skip


def _product(facts: Facts, config: Settings) -> None:
    """The world is the product of all degrees; a group of shards is that of the dense ones."""
    sizes = {name: degree(config.value(name)) or 1 for name in DEGREES}
    facts.derive("num_accelerators", prod(sizes.values()), " x ".join(DEGREES))
    if facts.value("sharding") == "hsdp":
        group = sizes["dp_shard_size"] * sizes["context_parallel_size"]
        facts.derive("sharding_degree", group, "dp_shard_size x context_parallel_size")


LLAMA_FACTORY: Final = Dialect(name="llama-factory", rule=_rules)

AXOLOTL: Final = Dialect(
    name="axolotl",
    rule=_of_axolotl,
    converts={
        "recompute": lambda value: "full" if value in {"offload", "unsloth"} else on_off("full", "none")(value),
    },
)

TRAINER: Final = Dialect(name="hf-trainer", rule=_rules)
"""A file of arguments for a script with Hugging Face's Trainer (``trl sft --config``, alignment-handbook)."""

"""ms-swift: ``megatron sft`` and ``megatron pt`` with Megatron's names, ``swift sft`` with those of a trainer.

Defaults: ``swift/megatron/arguments/megatron_args.py``, ``swift/trainers/arguments.py`` and ``swift/arguments`` of
3602360a.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import ceil
from typing import Final

from shardplan.base.words import folded
from shardplan.inputs.words import RECOMPUTE_WORDS
from shardplan.launch.dialects.megatron_core.megatron_options import RECORD, SHARDINGS
from shardplan.launch.dialects.own_names import unsaid
from shardplan.launch.dialects.reading import Facts
from shardplan.launch.dialects.records import Dialect
from shardplan.launch.dialects.settings import NamedSetting, Settings, batch_of, state, world_of
from shardplan.launch.dialects.trainers import (
    adapter_facts,
    copy_facts,
    frozen_facts,
    kernel_facts,
    objective_facts,
    packed_facts,
)
from shardplan.launch.dialects.values import degree, on_off, optimizer, precision, switch, text

NAME: Final = "ms-swift"
VERSION: Final = "main of 2026 (3602360a)"
TRAINER: Final = f"{VERSION}, on transformers"


TRAINED: Final = {"lora": "lora", "full": "full"}
LEAST_BATCH: Final = 16
"""Sequences of a step that ``swift sft`` accumulates to where no accumulation is given."""


INSTEAD: Final[Mapping[tuple[str, object], str]] = {
    ("recompute", "none"): "--recompute_granularity none",
    ("sharding", "ddp"): "--use_distributed_optimizer false",
}
"""What is written for a value that is Megatron-LM's default and not that of ms-swift."""


OF_PLANS: Final = frozenset(f"--{name}" for name in RECORD.words("plans_of_swift").split())
"""Options of plans that Megatron-LM has and ms-swift too: no CUDA graphs, no overlap of experts, no other placement."""
GROUP_SIZE: Final = "microbatch-group-size-per-virtual-pipeline-stage"
RENAMED: Final = {
    "num-virtual-stages-per-pipeline-rank": "virtual-pipeline-model-parallel-size",
    GROUP_SIZE: "microbatch-group-size-per-vp-stage",
}
"""Options of Megatron-LM that ms-swift has under another name."""


def as_options(options: str) -> tuple[str, ...]:
    """Options of Megatron-LM as ms-swift spells them: with underscores, and a bare one is true.

    >>> as_options("--micro-batch-size 2 --overlap-grad-reduce")
    ('--micro_batch_size 2 --overlap_grad_reduce true',)
    """
    found = (each.partition(" ") for each in re.split(r"(?:^| +)--(?=[a-z])", options) if each)
    named = ((RENAMED.get(name, name).replace("-", "_"), value.strip() or "true") for name, _, value in found)
    return (" ".join(f"--{name} {value}" for name, value in named),)


def swift_facts(facts: Facts, settings: Settings) -> None:
    """Reads options of ``megatron sft``, whose names have hyphens here."""
    for row in RECORD.rows:
        if row.value is None:  # switches have values here
            row.state(facts, settings)
    for name, key in (("num-virtual-stages-per-pipeline-rank", "vp"), (GROUP_SIZE, "microbatch_group_size")):
        state(facts, key, settings.first(RENAMED[name], name), degree)
    state(facts, "model", settings.first("model", "load"), text)
    state(facts, "sequence_length", settings.first("packing-length", "max-length"), degree)
    state(facts, "sequence_parallel", settings.first("sequence-parallel"), switch)
    fsdp = settings.first("use-megatron-fsdp")
    if fsdp is not None and switch(fsdp.value):
        strategy = settings.first("data-parallel-sharding-strategy")
        state(facts, "sharding", strategy, lambda value: SHARDINGS.get(str(value)))
        facts.derive("sharding", "zero3", f"{fsdp.place}: optim_grads_params is the default strategy", fsdp.name)
    sharding = settings.first("use-distributed-optimizer")
    state(facts, "sharding", sharding, on_off("zero1", "ddp"))
    facts.assume("sharding", "zero1", "use_distributed_optimizer true")
    _recompute(facts, settings)
    _trained(facts, settings, "full")
    _precision(facts, settings)
    state(facts, "overlap_dp", settings.first("overlap-grad-reduce"), switch)
    state(facts, "offload", settings.first("optimizer-cpu-offload"), on_off("optimizer", "none"))
    Dialect(name=NAME).assume(facts)
    world_of(facts)
    batch_of(facts)
    unsaid(facts, settings, sign="--")


def _recompute(facts: Facts, settings: Settings) -> None:
    """Granularity, and the modules of ``selective``."""
    granularity, modules = settings.first("recompute-granularity"), settings.first("recompute-modules")
    if granularity is None or granularity.value == "selective":
        _modules(facts, granularity, modules)
    else:
        state(facts, "recompute", granularity, lambda value: value if value in {"full", "none"} else None)


def _modules(facts: Facts, granularity: NamedSetting | None, modules: NamedSetting | None) -> None:
    words = [] if modules is None else [RECOMPUTE_WORDS.get(folded(each)) for each in str(modules.value).split()]
    if modules is not None and words != ["core_attn"]:
        state(facts, "recompute", modules, lambda _: None if None in words else ",".join(map(str, words)))
    elif granularity is not None:
        facts.state("recompute", "selective", granularity.place, granularity.name)
    else:
        facts.assume("recompute", "selective", "recompute_granularity")


def _trained(facts: Facts, settings: Settings, default: str) -> None:
    """Adapters or all weights; another tuner is not understood."""
    tuner = settings.first("tuner-type", "train-type", "sft-type")
    if not state(facts, "train", tuner, lambda value: TRAINED.get(str(value))):
        facts.assume("train", default, "tuner_type")
    kernel_facts(facts, settings)
    adapter_facts(facts, settings, rank=8, matrices="all")
    frozen_facts(facts, settings)
    objective_facts(facts, settings)
    packed_facts(facts, settings, doubled=True)


def _precision(facts: Facts, settings: Settings) -> None:
    fp8 = settings.first("fp8-format")
    if fp8 is not None:
        mx = settings.value("fp8-recipe") == "mxfp8"
        state(facts, "precision", fp8, lambda _: "mxfp8" if mx else "fp8")
    for name in ("bf16", "fp16"):
        setting = settings.first(name)
        if setting is not None and switch(setting.value):
            facts.state("precision", name, setting.place, name)
    state(facts, "precision", settings.first("torch-dtype"), precision)
    facts.miss("precision", ("the checkpoint",))


def trainer_facts(facts: Facts, settings: Settings) -> bool:
    """Reads options of ``swift sft``, ``pt`` and ``rlhf``; whether a file of DeepSpeed decides the sharding."""
    for key, (names, convert) in {
        "model": (("model", "model-id-or-path"), text),
        "sequence_length": (("packing-length", "max-length"), degree),
        "micro_batch_size": (("per-device-train-batch-size",), degree),
        "gradient_accumulation": (("gradient-accumulation-steps",), degree),
        "cp": (("sequence-parallel-size",), degree),
        "optimizer": (("optimizer", "optim"), optimizer),
    }.items():
        state(facts, key, settings.first(*names), convert)
    state(facts, "recompute", settings.first("gradient-checkpointing"), on_off("full", "none"))
    facts.assume("recompute", "full", "gradient_checkpointing is on")
    _trained(facts, settings, "lora")
    _precision(facts, settings)
    in_file = _sharding(facts, settings)
    facts.assume("optimizer", "adam")
    facts.assume("micro_batch_size", 1)
    if not in_file:
        _finish(facts)
        copy_facts(facts, settings)
    unsaid(facts, settings, sign="--")
    return in_file


STAGES: Final = {"zero0": "ddp", "zero1": "zero1", "zero2": "zero2", "zero3": "zero3"}
"""Names of configurations of DeepSpeed that ms-swift brings; ``_offload`` at the end moves states to the host."""


def _sharding(facts: Facts, settings: Settings) -> bool:
    deepspeed, fsdp = settings.first("deepspeed"), settings.first("fsdp")
    stage, _, offload = str("" if deepspeed is None else deepspeed.value).partition("_")
    if deepspeed is not None and stage in STAGES:
        facts.state("sharding", STAGES[stage], deepspeed.place, "deepspeed")
        facts.derive("offload", "optimizer" if offload else "none", deepspeed.place, "deepspeed")
        if offload and stage == "zero3":
            facts.doubt(f"{deepspeed.place} {deepspeed.value}: weights in host memory are not priced")
        return False
    if deepspeed is not None:
        return True
    if fsdp is not None:
        state(facts, "sharding", fsdp, lambda value: "zero3" if str(value) in {"fsdp2", "full_shard"} else None)
    elif settings.first("device-map") is not None:
        facts.miss("sharding", (settings["device-map"].place,))
    else:
        facts.assume("sharding", "ddp", "neither deepspeed nor fsdp")
    facts.assume("offload", "none")
    return False


def _finish(facts: Facts) -> None:
    """The batch: at least 16 sequences a step where no accumulation is given."""
    for key in ("tp", "pp", "cp", "ep", "vp"):
        facts.assume(key, 1)
    world_of(facts)
    size, total = facts.number("micro_batch_size"), facts.number("num_accelerators")
    if "gradient_accumulation" not in facts and size and total:
        facts.assume("gradient_accumulation", max(1, ceil(LEAST_BATCH / size / total)), "at least 16 sequences a step")
    batch_of(facts)
    facts.miss("global_batch_size", ("num_accelerators",))

"""DeepSpeed's JSON, and the options of trainers that use it (Hugging Face Trainer, DeepSpeed-Chat and others)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from shardplan.launch.dialects.models import named_model
from shardplan.launch.dialects.own_names import unsaid, without_effect
from shardplan.launch.dialects.reading import Fact, Facts
from shardplan.launch.dialects.records import Dialect
from shardplan.launch.dialects.settings import NamedSetting, Settings, batch_of, state, world_of
from shardplan.launch.dialects.trainers import (
    RANKS,
    adapter_facts,
    frozen_facts,
    kernel_facts,
    optimizer_facts,
    packed_facts,
)
from shardplan.launch.dialects.values import (
    degree,
    number,
    on_off,
    optimizer,
    precision,
    switch,
    text,
    whole,
    words_of,
    zero_stage,
)

NAME: Final = "deepspeed"
VERSION: Final = "0.19.8"

SECTIONS: Final = (
    "zero_optimization", "train_batch_size", "train_micro_batch_size_per_gpu", "fp16.enabled", "bf16.enabled",
)  # fmt: skip


def is_deepspeed(settings: Settings) -> bool:
    """Whether a document is a configuration of DeepSpeed."""
    return sum(settings.has(section) for section in SECTIONS) >= 2 or settings.has("zero_optimization")


RECORD: Final = Dialect(name=NAME)
"""Options of trainers, with underscores."""
NAMED: Final = ("model_name_or_path", "pretrained_model_name_or_path", "from_pretrained", "model_id")
"""Options that name the model that is loaded."""
VAGUE: Final = ("base_model", "model", "model_name", "model_path")
"""Options that name it in some programs; in others one of them is a family, a class or where the result is written."""


def trainer_facts(facts: Facts, options: Settings) -> None:
    """Options of a training script in the manner of Hugging Face's Trainer."""
    Dialect(name="mcore-adapter").state(facts, options)
    optimizer_facts(facts, options, "optim")
    RECORD.state(facts, options)
    _both_lengths(facts, options)
    _model(facts, options)
    for name, word in (("bf16", "bf16"), ("fp16", "fp16")):
        setting = options.first(name)
        if setting is not None and switch(setting.value):
            facts.state("precision", word, setting.place, name)
        elif setting is not None and setting.needs:
            facts.miss("precision", setting.needs)
    state(facts, "precision", options.first("mixed_precision", "precision"), precision)
    state(facts, "precision", options.first("dtype"), lambda value: {"fp16": "fp16", "bf16": "bf16"}.get(str(value)))
    weights = options.first("torch_dtype", "model_dtype")
    if weights is not None and weights.value != "auto":
        state(facts, "precision", weights, precision)
    checkpointing = options.first(*CHECKPOINTING)
    state(facts, "recompute", checkpointing, on_off("full", "none"))
    kernel_facts(facts, options)
    _fsdp(facts, options)
    offload = options.first("offload", "actor_offload", "offload_optimizer")
    if offload is not None and switch(offload.value) and offload.name == "offload" and not _has_stage(options):
        facts.miss("offload", (f"{offload.place}: what the program keeps in host memory",))
    elif offload is not None and (switch(offload.value) or offload.needs):
        state(facts, "offload", offload, on_off("optimizer", "none"))
        if facts.value("sharding") == "zero3":
            facts.doubt(f"{offload.place}: weights in host memory are not priced")
    _adapters(facts, options)


def _both_lengths(facts: Facts, options: Settings) -> None:
    """Programs in the manner of QLoRA's pad source and target to a length of their own."""
    source, target = options.first("source_max_len"), options.first("target_max_len")
    lengths = [degree(each.value) for each in (source, target) if each is not None]
    if source is not None and len(lengths) == 2 and all(lengths):
        total = sum(each for each in lengths if each is not None)
        facts.derive("sequence_length", total, f"{source.said} + target_max_len", source.name)


def _model(facts: Facts, options: Settings) -> None:
    """The model that is loaded; asked for where two options may name it."""
    vague = [each for each in map(options.first, VAGUE) if each is not None]
    if options.first(*NAMED) is None and len({each.value or each.shown for each in vague}) > 1:
        facts.miss("model", (" or ".join(f"{each.place} {each.value or each.shown}" for each in vague),))
    named = options.first(*NAMED, *VAGUE)
    state(facts, "model", named, text)
    own = {} if named is not None else {str(each.value): each for each in _own_models(options)}
    if len(own) == 1:
        value, each = own.popitem()
        facts.derive("model", value, f"{each.place} {value}: no other option names a model", each.name)


def _own_models(options: Settings) -> Iterator[NamedSetting]:
    """Options whose names speak of a model that trains and whose values are models that are known."""
    for name, each in options.items():
        if re.fullmatch(_OWN_MODEL, name) and named_model(each.value) is not None:
            options.seen.add(name)
            yield each


_OWN_MODEL: Final = (
    r"(?!.*(?:token|vision|visual|image|video|audio|speech|tower|teacher|ref_|reward|draft|critic|judge|assistant|eval|output"
    r"|process|embed|encoder|lora|adapter|mlp|projector|rerank|retriev)).*(?:model|llm|pretrain|backbone|ckpt|checkpoint).*"
)


def _has_stage(options: Settings) -> bool:
    """Whether a line is in the manner of DeepSpeed-Chat, whose ``--offload`` is that of the optimizer."""
    return options.first(*next(row.names for row in RECORD.rows if row.field == "sharding")) is not None


CHECKPOINTING: Final = (
    "gradient_checkpointing", "actor_gradient_checkpointing", "activation_checkpointing", "grad_checkpoint",
    "use_gradient_checkpointing", "enable_gradient_checkpointing",
)  # fmt: skip
"""Switches of training scripts that compute every layer again."""
ADAPTERS: Final = ("use_peft", "use_lora", "lora", "lora_enable", "use_peft_lora", "only_optimize_lora")
"""Switches of training scripts that train adapters alone."""


def _adapters(facts: Facts, options: Settings) -> None:
    """Adapters alone where a switch says so; a rank without one is understood by the script only."""
    rank = options.first(*RANKS)
    kind = options.first("tuner_type", "train_type", "sft_type", "finetuning_type", "peft_type")
    if kind is not None and str(kind.value).lower() not in STAGES:
        state(facts, "train", kind, lambda value: KINDS.get(str(value).lower()))
    on = next((options[name] for name in ADAPTERS if name in options and switch(options[name].value)), None)
    if on is not None:
        facts.state("train", "lora", on.place, on.name)
    state(facts, "train", options.first("full_finetune"), on_off("full", "lora"))
    parts = next((each for name, each in options.items() if re.fullmatch(PARTS, name) and whole(each.value)), None)
    if parts is not None:
        options.seen.add(parts.name.replace("-", "_"))
        facts.miss("train", (f"{parts.place} {parts.value}: adapters in a part of the model",))
    adapter_facts(facts, options)
    frozen_facts(facts, options)
    packed_facts(facts, options, doubled=False)
    if "train" not in facts and rank is not None and whole(rank.value) and not any(n in options for n in ADAPTERS):
        facts.note(f"{rank.place} {rank.value}: low-rank adapters; whether all weights train too is the script's")
        facts.miss("train", (f"{rank.place} {rank.value}: full or lora",))


KINDS: Final = {
    "full": "full", "fft": "full", "lora": "lora", "qlora": "lora", "use_lora": "lora", "adalora": "lora",
}  # fmt: skip
"""What a program's word for adapters says; another one is asked for."""
STAGES: Final = frozenset({"sft", "pt", "pretrain", "cpt", "finetune", "dpo", "instruct"})
"""What a program trains for, under a name that is that of adapters elsewhere."""
PARTS: Final = r"use_\w+_lora"
"""Ranks of adapters in parts of a model (``--use_backbone_lora 16``)."""
PROGRAMS: Final = ("run_clm.py", "run_clm_no_trainer.py")
"""Programs of transformers, whose options have the defaults of its Trainer."""


MODELS: Final = r"train|tun(?:e|ing)|sft|\brun|main|po\b|lora|lm\b|superv"
"""What programs are called that train a model; others may train something else, in another way."""


def program_defaults(facts: Facts, options: Settings, program: str) -> None:
    """What options of a program of transformers are where a line leaves them out; one with other options is a copy."""
    name = program.lower().rpartition("/")[2].removesuffix(".py")
    if facts.framework == "hf-trainer" and not re.search(MODELS, name):
        facts.miss("optimizer", (f"the program {program}",))
    elif facts.framework == "hf-trainer" and not facts.open:
        facts.assume_because("optimizer", "adam", "optim of TrainingArguments is adamw")
    is_copy = any(each not in options.seen and not without_effect(each) for each in options)
    if program.rpartition("/")[2] in PROGRAMS and not facts.open and not is_copy:
        facts.assume_because("recompute", "none", "gradient_checkpointing of TrainingArguments is off")
        if "precision" not in facts:
            facts.assume_because("precision", "fp32", "neither bf16 nor fp16 of TrainingArguments is on")


def _fsdp(facts: Facts, options: Settings) -> None:
    """``--fsdp "full_shard auto_wrap offload"``."""
    setting = options.first("fsdp")
    words = str(setting.value).split() if setting is not None and setting.value is not None else []
    strategies = {"full_shard": "zero3", "shard_grad_op": "zero2", "hybrid_shard": "hsdp", "no_shard": "ddp"}
    for word, value in strategies.items():
        if word in words and setting is not None:
            facts.state("sharding", value, setting.place, "fsdp")
    if "offload" in words and setting is not None:
        facts.state("offload", "optimizer", setting.place, "fsdp")
        facts.doubt(f"{setting.place} offload: weights in host memory are not priced")


_QUIET: Final = (
    r"(?!.*(?:quantized|\.ratio)).*(?:bucket_size|pin_memory|(?:16bit|fp16)_weights_on_model_save)|(?:scheduler|optimizer|bf16|bfloat16|fp16|flops_profiler"
    r"|tensorboard|wandb|csv_monitor|comms_logger|aio|curriculum_learning|data_efficiency|compression_training)\..*"
    r"|zero_optimization\.(?:stage3_\w+|contiguous_gradients|sub_group_size|reduce_scatter|allgather_partitions"
    r"|round_robin_gradients|find_unused_parameters|load_from_fp32_weights|memory_efficient_linear|legacy_stage1"
    r"|ignore_unused_parameters|elastic_checkpoint|log_trace_cache_warnings)"
    r"|activation_checkpointing\.(?:contiguous_memory_optimization|synchronize_checkpoint_boundary|profile"
    r"|number_checkpoints)|zero_\w+_optimizer|steps_per_print|wall_clock_breakdown|dump_state|memory_breakdown"
    r"|prescale_gradients|gradient_predivide_factor|gradient_clipping|min_lr|compile\.(?:backend|kwargs\..*)|checkpoint\..*"
)
"""Keys of DeepSpeed's file that change neither time nor memory, or no more than buffers: a pattern, compiled where it
is used."""
_MISPLACED: Final = ("offload_optimizer", "offload_param", "overlap_comm", "stage")
"""Keys of ``zero_optimization`` that do nothing elsewhere."""


def file_facts(facts: Facts, config: Settings) -> None:
    """A file of DeepSpeed, with what of it is not read."""
    deepspeed_facts(facts, config)
    for name in _MISPLACED:
        if config.has(name):
            facts.breaks_rule(
                "keys of ZeRO stand in zero_optimization",
                f"{name} at the top of the file has no effect",
                f"move {name} into zero_optimization",
                "notice",
            )
            config.seen.update(key for key in config if key.partition(".")[0] == name)
    config.seen.update(key for key in config if re.fullmatch(_QUIET, key))
    unsaid(facts, config)


def deepspeed_facts(facts: Facts, config: Settings) -> None:
    """A configuration of DeepSpeed; ``facts`` may know world, degrees and the trainer's options already."""
    facts.priced_by = NAME
    _batch(facts, config)
    state(facts, "sharding", config.first("zero_optimization.stage"), zero_stage)
    tuned = config.first("autotuning.enabled")
    if tuned is not None and switch(tuned.value):
        for key in ("sharding", "micro_batch_size", "gradient_accumulation"):
            facts.miss(key, (f"{tuned.place}: what the search for it finds",))
    if "sharding" not in facts:
        facts.assume("sharding", "ddp", "stage 0")
    _precision(facts, config)
    _offload(facts, config)
    _partial(facts, config)
    _not_priced(facts, config)
    state(facts, "tp", config.first("tensor_parallel.autotp_size"), degree)
    state(facts, "cp", config.first("sequence_parallel_size"), degree)
    _pipeline(facts, config)
    if switch(config.value("expert_parallel.enabled")):  # off by default (auto_ep_config.py)
        state(facts, "ep", config.first("expert_parallel.autoep_size"), degree)
    state(facts, "optimizer", _word(config, "optimizer.type"), optimizer)
    state(facts, "grad_dtype", config.first("data_types.grad_accum_dtype"), precision)
    state(facts, "checkpoint.universal", config.first("checkpoint.load_universal"), switch)
    overlap = config.first("zero_optimization.overlap_comm")
    state(facts, "overlap_dp", None if overlap is None or overlap.value == "auto" else overlap, switch)
    facts.assume("overlap_dp", facts.value("sharding") == "zero3", "overlap_comm")
    if config.has(TOPOLOGY):
        for key in ("tp", "pp"):
            facts.miss(key, (f"{TOPOLOGY}, which gdGPT alone reads (--given {key}=VALUE)",))
    for key in ("tp", "pp", "cp", "ep"):
        facts.assume(key, 1)


def bf16_optimizer(facts: Facts) -> None:
    """Stage 0 in bf16 on the pipeline engine: BF16_Optimizer shares the optimizer's states as stage 1 does.

    ``_do_optimizer_sanity_check`` in ``deepspeed/runtime/engine.py`` at edaa7221, ``runtime/bf16_optimizer.py``.
    """
    stage = facts.facts.get("sharding")
    if stage is not None and stage.value == "ddp" and facts.value("precision") == "bf16":
        rule = f"{stage.why}; in bf16 the pipeline engine shares optimizer states (BF16_Optimizer)"
        facts.replace("sharding", Fact(value="zero1", origin="derived", why=rule))


def _pipeline(facts: Facts, config: Settings) -> None:
    """What the file says of a pipeline, whose module the training script makes (``get_pipeline_config``)."""
    stages = config.first("pipeline.stages")
    if stages is not None and degree(stages.value):  # auto by default
        state(facts, "pp", stages, degree)
    interval = config.first("pipeline.activation_checkpoint_interval")
    if interval is not None and degree(interval.value):  # 0: as the module has it
        facts.state("recompute", "full", interval.place, interval.name)


TOPOLOGY: Final = "model_topo"
"""Where gdGPT, whose files are those of DeepSpeed with keys of its own, states axes and layers of stages."""


def finish(facts: Facts) -> None:
    """What follows once all files are read, and the identity of the batch."""
    for key in ("tp", "pp", "cp", "ep", "vp"):
        facts.assume(key, 1)
    world_of(facts)
    batch_of(facts)
    gbs, mbs = facts.number("global_batch_size"), facts.number("micro_batch_size")
    accumulation, dp = facts.number("gradient_accumulation"), facts.number("dp")
    if gbs and mbs and accumulation and dp and gbs != mbs * accumulation * dp:
        facts.breaks_rule(
            "train_batch_size = micro-batch x accumulation x ranks",
            f"{gbs} is not {mbs} x {accumulation} x {dp} = {mbs * accumulation * dp}",
            "leave one of the three out",
        )
    counts = (*facts.missing.get("nodes", ()), *facts.missing.get("per_node", ()))
    for key, need in (
        ("num_accelerators", ", ".join(counts) or "the launcher's host file: --gpus"),
        ("micro_batch_size", "the training script"),
        ("sequence_length", "the training script"),
        ("model", "the training script: --model"),
    ):
        if key != "num_accelerators" or key not in facts:
            facts.miss(key, (need,))
    if "global_batch_size" not in facts:
        needs = [
            need
            for key in ("micro_batch_size", "gradient_accumulation", "num_accelerators")
            for need in facts.missing.get(key, ())
        ]
        facts.miss("global_batch_size", needs or ("the training script",))


def _not_priced(facts: Facts, config: Settings) -> None:
    """Sections that change time or memory and that no plan states."""
    quantised = next((each for name, each in config.items() if name.startswith("compression_training.")), None)
    if quantised is not None:
        facts.doubt(f"{quantised.place}: compression while training is not priced")
    grows = config.first("curriculum_learning.enabled", "data_efficiency.enabled")
    if grows is not None and switch(grows.value):
        facts.doubt(f"{grows.place}: sequences that grow are priced at their full length")
    share = config.first("zero_optimization.offload_optimizer.ratio")
    if share is not None and number(share.value) not in {None, 1.0}:
        facts.doubt(f"{share.place} = {share.value}: a share of the states in host memory is priced as all of them")


def _word(config: Settings, name: str) -> NamedSetting | None:
    found = config.first(name)
    return None if found is None or found.value == "auto" else found


def _batch(facts: Facts, config: Settings) -> None:
    """Two of the three sizes give the third; ``auto`` takes the trainer's."""
    for key, name in (
        ("global_batch_size", "train_batch_size"),
        ("micro_batch_size", "train_micro_batch_size_per_gpu"),
        ("gradient_accumulation", "gradient_accumulation_steps"),
    ):
        setting = config.first(name)
        if setting is None:
            continue
        if setting.value == "auto":
            if key not in facts.facts and key != "global_batch_size":
                facts.miss(key, (f"{setting.place} = auto: the training script",))
            continue
        _check_same(facts, key, setting)
        state(facts, key, setting, degree)


def _check_same(facts: Facts, key: str, setting: NamedSetting) -> None:
    """The line and the file must agree."""
    before, value = facts.facts.get(key), whole(setting.value)
    if before is not None and value is not None and before.value != value:
        facts.breaks_rule(
            "the line and the configuration agree",
            f"{before.why} is {before.value}, {setting.place} is {value}",
            "make them equal",
        )


def _precision(facts: Facts, config: Settings) -> None:
    """``enabled`` of the sections; fp32 without any."""
    for name in ("bf16", "fp16"):
        setting = config.first(f"{name}.enabled", f"{name.replace('bf', 'bfloat')}.enabled")
        if setting is None:
            continue
        if setting.value == "auto":
            if "precision" not in facts.facts:
                facts.miss("precision", (f"{setting.place} = auto: the training script",))
        elif switch(setting.value):
            facts.state("precision", name, setting.place, setting.name)
        elif setting.needs:
            facts.miss("precision", setting.needs)
    sizes = [config.value(name) for name in SIZES]
    is_whole = any(each not in (None, "auto") for each in sizes)
    if is_whole or any(config.has(name) for name in ("bf16", "bfloat16", "fp16")):
        facts.assume("precision", "fp32", "neither bf16 nor fp16 is enabled")
    facts.miss("precision", ("the program, which completes the file",))


SIZES: Final = ("train_batch_size", "train_micro_batch_size_per_gpu")
"""Sizes of which DeepSpeed needs one: a program completes a file without them, or with ``auto`` in their place."""


def _offload(facts: Facts, config: Settings) -> None:
    """Optimizer states in host memory; ``none`` is no offload. Offloaded weights are not priced."""
    optimizer_device = config.first("zero_optimization.offload_optimizer.device")
    weights = config.first("zero_optimization.offload_param.device")
    old = config.first("zero_optimization.cpu_offload")
    if optimizer_device is not None:
        state(facts, "offload", optimizer_device, DEVICES)
    elif old is not None:
        state(facts, "offload", old, on_off("optimizer", "none"))
    if weights is not None and DEVICES(weights.value) != "none":
        facts.doubt(f"{weights.place} = {weights.value or weights.shown}: weights in host memory are not priced")
    checkpoints = config.first("activation_checkpointing.cpu_checkpointing")
    if checkpoints is not None and facts.value("offload") in (None, "none") and "offload" not in facts.missing:
        on = on_off("activations", "none")(checkpoints.value)
        if on == "activations":
            facts.replace("offload", Fact(value=on, origin="stated", why=checkpoints.place))
            facts.options["offload"] = checkpoints.name
        elif on is None:
            state(facts, "offload", checkpoints, lambda _: None)
    facts.assume("offload", "none")


DEVICES: Final = words_of({"cpu": "optimizer", "nvme": "optimizer", "none": "none", "null": "none", "false": "none"})
"""Where optimizer states stay."""


def _partial(facts: Facts, config: Settings) -> None:
    """Secondary shards of ZeRO++ and groups of MiCS."""
    for name, kind in (("zero_hpz_partition_size", "hpz"), ("mics_shard_size", "hsdp")):
        setting = config.first(f"zero_optimization.{name}")
        size = None if setting is None else whole(setting.value)
        if setting is not None and size is not None and size > 1 and facts.value("sharding") == "zero3":
            fact = facts.facts.pop("sharding")
            facts.derive("sharding", kind, f"{setting.place} with {fact.why}", name)
            facts.state("sharding_degree", size, setting.place, name)

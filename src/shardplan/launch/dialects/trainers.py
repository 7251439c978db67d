"""Trainers: what trains and for what (adapters, frozen parts, few bits, objectives), and files of their arguments.

Names as in LLaMA-Factory ff6d4d12, axolotl 067b021c, ``TrainingArguments`` and ``ModelConfig`` of TRL 1.x.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import prod
from typing import Final

from shardplan.base.words import folded
from shardplan.inputs.words import LORA_MATRICES
from shardplan.launch.dialects.accelerate import STRATEGIES
from shardplan.launch.dialects.reading import Facts
from shardplan.launch.dialects.records import Dialect
from shardplan.launch.dialects.settings import NamedSetting, Settings, state
from shardplan.launch.dialects.values import ATTENTION, attention, degree, on_off, optimizer, precision, switch

RANKS: Final = ("lora_rank", "lora_r", "lora_dim", "actor_lora_dim")
TARGETS: Final = ("lora_target_modules", "target_modules", "lora_target", "lora_modules")
"""Names of the rank and of the matrices in trainers; ms-swift has hyphens on the line."""
SCRIPT: Final = "the training script"
_FROZEN: Final = r"(?:.*[._])?(?:freeze|frozen|unfrozen)_\w+|tune_(?:\w+_)?mm_mlp_adapter"
"""Switches and lists that keep parts of a model as they are."""
_TRAINED: Final = r"tune_(?:mm_)?(?:vision|mlp|llm|language|audio)\w*|tune_mm_projector"
"""Switches without which a part of a model keeps its weights."""
BESIDES: Final = ("modules_to_save", "lora_modules_to_save", "additional_target", "lora_target_parameters")
"""What trains besides the matrices of adapters."""


_FOUR_BITS: Final = r"load_in_4_?bit|use_4_?bit\w*"
_BITS: Final = r"quantization_bits?|quant_bits|load_in_bits|bits"
_QUANTISED: Final = rf"{_FOUR_BITS}|{_BITS}|load_in_\w+|use_8_?bit\w*|(?:use_)?q_?lora|quantize"
"""Switches and numbers of bits of weights next to adapters, mostly of bitsandbytes."""
DOUBLED: Final = ("bnb_4bit_use_double_quant", "double_quantization", "use_bnb_nested_quant", "use_nested_quant")
"""Whether scales are quantised too."""
_FEW_BITS: Final = r"(?i).*[-_](?:gptq|awq|aqlm|hqq|bnb|int[48]|[48]bit)(?:[-_].*)?"
"""Names of models whose weights are stored so."""


def packed_facts(facts: Facts, settings: Settings, *, doubled: bool) -> None:
    """Weights of 4 bits next to adapters; of others it says that they are not priced.

    ``doubled``: whether scales are quantised too where nothing is said of that.
    """
    given = [each for name, each in settings.items() if re.fullmatch(_QUANTISED, _plain(name))]
    settings.seen.update(each.name.replace("-", "_") for each in given)
    few = next((each for each in given if _is_few(each.value)), None)
    model = facts.value("model")
    if few is None:
        if re.fullmatch(_FEW_BITS, str(model or "")):
            facts.doubt(f"{model}: quantised weights are not priced")
            facts.miss("train", (f"{model}: weights of few bits are trained by adapters next to them",))
        return
    name, bits = _plain(few.name), degree(few.value)
    is_four = re.fullmatch(_FOUR_BITS, name) or (re.fullmatch(_BITS, name) and bits == 4)  # bits
    if not is_four or facts.value("train") != "lora" or facts.value("precision") in ("fp8", "mxfp8", "nvfp4"):
        facts.doubt(f"{few.place}: quantised weights are not priced")
        return
    said = settings.first(*_spelled(DOUBLED))
    doubles = doubled if said is None else switch(said.value) is True
    facts.state("base_weights", "nf4-dq" if doubles else "nf4", few.place, few.name)


def _plain(name: str) -> str:
    return name.rpartition(".")[2].replace("-", "_")


def _is_few(value: object) -> bool:
    bits = degree(value)
    return bits in (2, 3, 4, 8) if bits is not None and bits > 1 else bool(switch(value))


def targets_of(value: object) -> str | None:
    """Matrices that get adapters, under our names; None where one of them is not known.

    >>> targets_of("q_proj,v_proj"), targets_of(("linear_qkv", "linear_proj")), targets_of("all-linear")
    ('q,v', 'qkv,o', 'all')
    """
    choice = re.search(r"\(\??:?([\w|]+)\)\$?$", str(value))  # a pattern of PEFT: ``.*layers.*\.(q_proj|v_proj)``
    listed = str(value) if choice is None else choice[1].replace("|", ",")
    parts = value if isinstance(value, tuple | list) else re.split(r"[\s,]+", listed.strip())
    names = [str(part).strip("[]()\"' ").rpartition(".")[2] for part in parts]
    found = dict.fromkeys(LORA_MATRICES.get(folded(name)) for name in names if name)
    return None if not found or None in found else ",".join(str(each) for each in found)


def adapter_facts(
    facts: Facts,
    settings: Settings,
    *,
    ranks: Sequence[str] = RANKS,
    targets: Sequence[str] = TARGETS,
    rank: int | None = None,
    matrices: str | None = None,
    source: str = SCRIPT,
) -> None:
    """Rank and matrices of adapters; ``rank`` and ``matrices`` are the framework's defaults, or ``source`` has them."""
    if facts.value("train") != "lora":
        return
    state(facts, "lora_rank", settings.first(*_spelled(ranks)), degree)
    linear = settings.first("lora_target_linear")
    if linear is not None and switch(linear.value):
        facts.state("lora_targets", "all", linear.place, linear.name)
    state(facts, "lora_targets", settings.first(*_spelled(targets)), targets_of)
    for name in _spelled(BESIDES):
        if (also := settings.first(name)) is not None and also.value not in ("", ()):
            facts.doubt(f"{also.place} {also.value}: what trains besides these adapters is not priced")
    for key, default in (("lora_rank", rank), ("lora_targets", matrices)):
        if default is None:
            facts.miss(key, (source,))
        else:
            facts.assume(key, default)


def _spelled(names: Sequence[str]) -> tuple[str, ...]:
    return (*names, *(name.replace("_", "-") for name in names))


LIGER: Final = (
    "use_liger_kernel", "enable_liger_kernel", "use_liger", "use_liger_loss", "liger_fused_linear_cross_entropy",
    "cut_cross_entropy",
)  # fmt: skip
"""Switches by which trainers compute the loss without keeping the logits."""


def kernel_facts(facts: Facts, settings: Settings) -> None:
    """Kernels of attention and of the loss."""
    state(facts, "attention", settings.first(*ATTENTION), attention)
    state(facts, "software.fused_loss", settings.first(*_spelled(LIGER)), switch)


def frozen_facts(facts: Facts, settings: Settings) -> None:
    """Says of parts that are frozen that they are priced as trained."""
    for name, each in settings.items():
        plain, is_on = name.replace("-", "_"), switch(each.value) is not False and each.value not in (None, "", ())
        frozen, trained = re.fullmatch(_FROZEN, plain), re.fullmatch(_TRAINED, plain)
        if frozen or trained:
            settings.seen.add(name)
        if (frozen and is_on) or (trained and switch(each.value) is False):
            facts.doubt(f"{each.place}: weights that are frozen are priced as trained")


def copy_facts(facts: Facts, settings: Settings) -> None:
    """Says of weights that are loaded in few bits, and that neither DeepSpeed nor FSDP copies, what is priced."""
    dtype = settings.first("torch_dtype", "torch-dtype", "dtype")
    is_copied = facts.value("sharding") not in (None, "ddp") or facts.value("train") == "lora"
    if dtype is not None and not is_copied and precision(dtype.value) in ("bf16", "fp16"):
        facts.doubt(
            f"{dtype.place} = {dtype.value}: an fp32 copy of the weights is priced, which FSDP or DeepSpeed makes"
        )


NAMES: Final = (
    "rlhf_type", "rlhf-type", "rl", "stage", "task_type", "task-type", "objective", "reward_model", "loss",
)  # fmt: skip
"""Options of trainers that say it; others have other values under these names."""
PAIRS: Final = frozenset({"dpo", "ipo", "kto", "orpo", "simpo", "cpo", "rm", "reward", "reward_model", "bco", "apo"})
ROLLOUTS: Final = frozenset(
    {"ppo", "grpo", "gspo", "rloo", "gkd", "online_dpo", "distillation", "gold", "reinforce", "rs", "spin"}
)
HEADS: Final = frozenset({"embedding", "reranker", "seq_cls", "prm"})
"""Values, by what training needs besides one pass over single sequences."""
_PROGRAM: Final = (
    r"(?i)(?:^|[/_.-])(dpo|rm|prm|ipo|kto|orpo|simpo|cpo|ppo|grpo|rloo|gkd|reward\w*|distill\w*|rlhf)(?:[/_.-]|$)"
)
"""Programs that are named by it: ``trl/scripts/dpo.py``."""


_ROLLOUT: Final = (
    r"vllm_\w+|\w*rollout\w*|num_generations|reward_\w+|kl_(?:estimator|coef|beta)|init_kl_coef|teacher_model.*"
)
"""Options of trainers that generate answers, or that have models beside the one that trains."""


def objective_facts(facts: Facts, settings: Settings, program: str = "") -> None:
    """Says what is not priced: answers in pairs, models beside the one that trains, answers that are generated."""
    found = (settings.first(name) for name in NAMES)
    for each in found:
        if each is not None and (text := _beside(str(each.value).lower())):
            _say(facts, each, text)
    loss = settings.first("loss._component_")
    for word, kind in _LOSSES.items() if loss is not None else ():
        if loss is not None and word in str(loss.value).lower() and (text := _beside(kind)):
            _say(facts, loss, text)
    for section in sorted({name.split(".")[1] for name in settings if name.startswith("trainer.")}):
        if text := _beside(section):
            facts.doubt(f"the section trainer.{section}: {text}")
    named = re.search(_PROGRAM, program)
    rolled = next((each for name, each in settings.items() if re.fullmatch(_ROLLOUT, name.replace("-", "_"))), None)
    if rolled is not None:
        facts.doubt(f"{rolled.place}: {_beside('ppo')}")
    prompts = settings.first("max_prompt_length")
    if prompts is not None and rolled is None:
        facts.doubt(f"{prompts.place}: {_beside('dpo')}")
    if named is not None:
        text = _beside(named[1].lower()) or _beside("ppo")
        facts.doubt(f"the program {program}: {text}")


_LOSSES: Final = {"dpo": "dpo", "rsoloss": "dpo", "ppo": "ppo", "grpo": "grpo", "kdloss": "gkd", "forwardkl": "gkd"}
"""Parts of the names of losses, in torchtune."""


def _say(facts: Facts, each: NamedSetting, text: str) -> None:
    facts.doubt(f"{each.place} = {each.value}: {text}")


def _beside(value: str) -> str | None:
    """What is not priced of an objective.

    >>> _beside("sft") is None
    True
    """
    if value in PAIRS:
        return "pairs of answers and a reference model are priced as single sequences of one model"
    if value in ROLLOUTS:
        return "models beside the one that trains, and answers that are generated, are not priced"
    return "a head of its own is priced as the logits over the vocabulary" if value in HEADS else None


FEW_BITS: Final = r"(?:paged_)?adamw?_(?:\w+_)?[48]bit"
"""Adam whose moments have four or eight bits."""
ADAPTER_DEFAULTS: Final[Mapping[str, tuple[int | None, str | None]]] = {
    "llama-factory": (8, "all"),
    "hf-trainer": (16, None),
}
"""Rank and matrices of adapters where a file does not name them; PEFT chooses matrices by the model's type."""
TRAINED: Final = {"lora": "lora", "qlora": "lora", "full": "full"}


def _rules(facts: Facts, config: Settings) -> None:
    """Precision, adapters, optimizer, attention and sharding by PyTorch."""
    kernel_facts(facts, config)
    own_batch(facts, config)
    _precision(facts, config)
    _trained(facts, config)
    optimizer_facts(facts, config, "optimizer", "optim")
    fsdp_facts(facts, config)
    if facts.framework == "hf-trainer" and not config.has("deepspeed"):
        copy_facts(facts, config)


def own_batch(facts: Facts, config: Settings) -> None:
    """Asks for sizes that a program's own word for a batch may state: the Trainer's defaults do not hold."""
    named = (each for name, each in config.items() if re.fullmatch(_BATCH, name.replace("-", "_")) and each.value)
    own = next(named, None)
    for key in ("micro_batch_size", "gradient_accumulation") if own is not None else ():
        facts.miss(key, (f"{own.said if own is not None else ''}, as the program reads it",))


_BATCH: Final = r"(?!.*(?:eval|per_device|per_gpu))(?:[\w.]*[._])?(?:(?:mini|micro)?_?batch(?:_?size)?|m?bsz?)(?:_\w+)?"
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
    rank, matrices = ADAPTER_DEFAULTS.get(facts.framework, (None, None))
    adapter_facts(facts, config, rank=rank, matrices=matrices, source="the file: lora_r and its targets")
    frozen_facts(facts, config)
    objective_facts(facts, config)
    packed_facts(facts, config, doubled=facts.framework == "llama-factory" or config.first("adapter") is not None)


def optimizer_facts(facts: Facts, config: Settings, *names: str) -> None:
    """The optimizer under one of ``names``; of moments of few bits it says that they are not priced."""
    setting = config.first(*names)
    if setting is not None and re.fullmatch(FEW_BITS, str(setting.value)):
        facts.state("optimizer", "adam", setting.place, setting.name)
        facts.doubt(f"{setting.place} = {setting.value}: moments of few bits are priced as fp32")
    else:
        state(facts, "optimizer", setting, optimizer)


def fsdp_facts(facts: Facts, config: Settings) -> None:
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

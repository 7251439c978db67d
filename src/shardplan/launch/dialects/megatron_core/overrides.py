"""Lines of Megatron-Bridge and NeMo 2 over a recipe by name or over the table of the performance scripts.

The fields go by the names of Megatron-LM's options, so they are read as these.

Options as in ``scripts/performance/argument_parser.py`` at 067f987df0. The table of plans is code of the repository:
what a line does not state is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from shardplan.base.files import DATA, shipped_document
from shardplan.base.words import folded
from shardplan.inputs.words import RECOMPUTE_WORDS
from shardplan.launch.dialects.megatron_core.megatron import megatron_facts
from shardplan.launch.dialects.megatron_core.megatron_stages import stages
from shardplan.launch.dialects.reading import Facts
from shardplan.launch.dialects.records import Dialect
from shardplan.launch.dialects.settings import NamedSetting, Option, Options, batch_of, state, world_of
from shardplan.launch.dialects.values import degree, on_off, precision
from shardplan.launch.read.facts import Word

BRIDGE: Final = "megatron-bridge"
NEMO: Final = "nemo"
VERSIONS: Final = {BRIDGE: "0.7.0", NEMO: "2.6.0"}
SECTIONS: Final = (
    "model.config.", "model.", "ddp.", "dist.", "train.", "dataset.", "data.", "optimizer.", "optim.config.",
    "trainer.strategy.ddp.", "trainer.strategy.",
)  # fmt: skip
"""Parts of a configuration whose fields are named as options are."""
RENAMED: Final = {
    "num-moe-experts": "num-experts",
    "virtual-pipeline-model-parallel-size": "num-virtual-stages-per-pipeline-rank",
    "microbatch-group-size-per-vp-stage": "microbatch-group-size-per-virtual-pipeline-stage",
    "gated-linear-unit": "swiglu",
}
FSDP: Final = {"megatron": "use-megatron-fsdp", "pytorch": "use-torch-fsdp2"}
"""Switches by the value of ``fsdp`` (NeMo, ``megatron_strategy.py``)."""
NEGATED: Final = {
    "add-bias-linear": "disable-bias-linear",
    "share-embeddings-and-output-weights": "untie-embeddings-and-output-weights",
    "overlap-p2p-comm": "no-overlap-p2p-communication",
}
"""Switches whose option says the opposite."""
STATED_BY: Final[Mapping[str, str]] = {
    "overlap_tp": "tp-comm-overlap",
    "overlap_ep": "overlap-moe-expert-parallel-comm",
    "overlap_dp": "overlap-grad-reduce",
    "sequence_parallel": "sequence-parallel",
    "recompute": "recompute-granularity",
    "vp": "num-virtual-stages-per-pipeline-rank",
    "sharding": "use-distributed-optimizer",
    "gated": "swiglu",
    "bias": "disable-bias-linear",
    "qkv_bias": "add-qkv-bias",
    "qk_norm": "qk-layernorm",
    "tie_word_embeddings": "untie-embeddings-and-output-weights",
    "overlap_pp": "no-overlap-p2p-communication",
}
"""Switches that are known where a line turns them off."""
IDLE: Final[Mapping[str, str]] = {
    "overlap_tp": "tp", "sequence_parallel": "tp", "cp_comm": "cp", "overlap_ep": "ep", "vp": "pp",
}  # fmt: skip
"""What makes no difference where a degree is one."""


def is_bridge(program: str) -> bool:
    """Whether a program takes a recipe of Megatron-Bridge."""
    return program.rpartition("/")[2] in ("run_recipe.py", "run_recipe")


def override_facts(facts: Facts, pairs: Mapping[str, Option], recipe: NamedSetting | None) -> None:
    """Reads the fields of a line; what the recipe decides is open unless its facts are on record."""
    given = {option.name: option for option in _options(pairs)}
    off = {_name(key)[0] for key, option in pairs.items() if _name(key)[0]} - given.keys()
    _precision(facts, pairs)
    _gradients(facts, pairs)
    megatron_facts(facts, Options(given=given, repeated={}))
    known = recipe_of(facts.framework, str(recipe.value)) if recipe is not None else None
    place = "the recipe" if recipe is None else f"the recipe {recipe.value}"
    for key, fact in list(facts.facts.items()):
        if fact.origin != "assumed":
            continue
        degree = facts.number(IDLE[key]) if key in IDLE else None
        if STATED_BY.get(key) in off or degree == 1:
            facts.replace(key, type(fact)(value=fact.value, origin="derived", why="off, or without effect here"))
        elif known is None or key not in known:
            del facts.facts[key]
            facts.miss(key, (place,))
        else:
            facts.replace(key, type(fact)(value=known[key], origin="assumed", why=f"{place}, as on record"))
    if facts.number("num_experts") is None and "num_experts" not in facts.missing:
        facts.missing = {key: needs for key, needs in facts.missing.items() if key not in ("overlap_ep", "etp")}


def recipe_of(framework: str, name: str) -> Mapping[str, object] | None:
    """What a recipe sets that lines leave to it; None where it is not on record."""
    document = shipped_document(DATA / "launch" / "recipes.yaml")
    bare = name.partition("(")[0].strip()
    named = (each for each in document["recipes"] if each["framework"] == framework)
    return next((each["facts"] for each in named if each["name"] == bare), None)


def _name(key: str) -> tuple[str, bool]:
    """The option of a field, and whether it says the opposite; empty for fields of other parts."""
    section = next((each for each in SECTIONS if key.startswith(each)), None)
    if section is None or "." in key.removeprefix(section):
        return "", False
    name = key.removeprefix(section).replace("_", "-")
    return (NEGATED[name], True) if name in NEGATED else (RENAMED.get(name, name), False)


def _options(pairs: Mapping[str, Option]) -> Iterator[Option]:
    """The fields as options: switches are bare or left out, lists have blanks, ``null`` is not given."""
    for key, option in pairs.items():
        name, is_opposite = _name(key)
        value = option.value
        switch = {"true": True, "false": False}.get((value or "").lower())
        if name == "fsdp" and value in FSDP:
            name, switch = FSDP[value], True
        if not name or name.startswith("-") or (value is not None and value.lower() in ("null", "none")):
            continue
        if switch is None:
            yield Option(name=name, words=tuple(_listed(name, option)), file=option.file, line=option.line)
        elif switch is not is_opposite:
            yield Option(name=name, words=(), file=option.file, line=option.line)
    groups = pairs.get("model.num_query_groups") or pairs.get("model.config.num_query_groups")
    if groups is not None:
        yield Option(name="group-query-attention", words=(), file=groups.file, line=groups.line)


_DTYPES: Final = {"torch.bfloat16": "bf16", "torch.float16": "fp16", "torch.float32": "fp32"}


def _listed(name: str, option: Option) -> Iterator[Word]:
    """The words of a value; a list of modules is as many words."""
    for word in option.words:
        text = word.text
        if name in ("exp-avg-dtype", "exp-avg-sq-dtype") and text in _DTYPES:
            yield Word(text=_DTYPES[text], shown=word.shown, line=word.line, file=word.file)
            continue
        if text is None or not re.fullmatch(r"\[[\w,. ']*\]", text) or name == "moe-layer-freq":
            yield word
            continue
        for part in filter(None, re.split(r"[,\s']+", text.strip("[]"))):
            yield Word(text=part, shown=part, line=word.line, file=word.file)


def _precision(facts: Facts, pairs: Mapping[str, Option]) -> None:
    """``mixed_precision`` or the plugin of the trainer, by the names of the frameworks' recipes."""
    option = pairs.get("mixed_precision") or pairs.get("trainer.plugins")
    if option is None:
        facts.miss("precision", ("the recipe: mixed_precision",))
        return
    setting = NamedSetting(name=option.name, value=option.value, place=option.place, needs=option.needs)
    state(facts, "precision", setting, _named_precision)


def _named_precision(value: object) -> str | None:
    word = str(value).lower().replace("-", "_")
    if word in ("null", "none"):
        return "fp32"
    for mark, meant in (("mxfp8", "mxfp8"), ("nvfp4", "nvfp4"), ("fp8", "fp8"), ("fp16", "fp16"), ("bf16", "bf16")):
        if mark in word:
            return meant
    return None


def _gradients(facts: Facts, pairs: Mapping[str, Option]) -> None:
    """Gradients and weights of 8 bits: of the precision's configuration, or of its name."""
    mixed = pairs.get("mixed_precision")
    stated = dict(re.findall(r"(\w+):(true|false)\b", (mixed.value if mixed is not None else None) or ""))
    if mixed is not None and "grad_reduce_in_fp32" in stated:
        short = "fp16" if facts.value("precision") == "fp16" else "bf16"
        facts.state("grad_dtype", "fp32" if stated["grad_reduce_in_fp32"] == "true" else short, mixed.place, mixed.name)
        facts.state("software.quantised_weights", stated.get("fp8_param_gather") == "true", mixed.place, mixed.name)
        return
    option = pairs.get("trainer.plugins.grad_reduce_in_fp32") or pairs.get("ddp.grad_reduce_in_fp32")
    if option is not None:
        setting = NamedSetting(name=option.name, value=option.value, place=option.place, needs=option.needs)
        state(facts, "grad_dtype", setting, on_off("fp32", "bf16"))
    elif facts.framework == BRIDGE and facts.value("precision") != "fp32" and mixed is not None:
        dtype = "fp16" if str(mixed.value).startswith("fp16") else "fp32"
        facts.derive("grad_dtype", dtype, f"mixed_precision by name reduces gradients in {dtype}")


PERFORMANCE_VERSION: Final = "0.7.0, scripts/performance"
PROGRAM: Final = r"(?:.*/)?scripts/performance/(?:\w+_)?(?:run_script|setup_experiment)\.py"
PERFORMANCE: Final = Dialect(name="performance")
DISPATCHERS: Final = {"deepep": "deepep", "hybridep": "hybridep"}
LEFT: Final = (
    "tp", "pp", "cp", "ep", "vp", "micro_batch_size", "global_batch_size", "sequence_length", "sharding", "recompute",
    "overlap_tp", "overlap_ep", "offload", "sequence_parallel",
)  # fmt: skip
"""What the table of the repository decides where a line does not."""


def is_performance(program: str) -> bool:
    """Whether a program is one of the performance scripts."""
    return re.fullmatch(PROGRAM, program) is not None


def performance_facts(facts: Facts, options: Options) -> None:
    """Reads a line of the performance scripts."""
    PERFORMANCE.state(facts, options)
    dtype = options.first("compute_dtype", "c")
    state(facts, "precision", dtype, lambda value: precision(folded(str(value))))
    facts.assume("precision", "bf16", "--compute_dtype")
    if options.first("pipeline_model_parallel_layout") is not None:
        stages(facts, options.renamed({"pipeline_model_parallel_layout": "pipeline-model-parallel-layout"}))
    modules, layers = options.first("recompute_modules"), options.first("recompute_num_layers", "rl")
    if layers is not None:
        facts.derive("recompute", "full", layers.place, layers.name)
        state(facts, "recompute_num_layers", layers, degree)
    elif modules is not None:
        words = [RECOMPUTE_WORDS.get(folded(each)) for each in (modules.value or "").replace(",", " ").split()]
        state(facts, "recompute", modules, lambda _: None if None in words else ",".join(map(str, words)))
    dispatcher = options.first("moe_flex_dispatcher_backend")
    state(facts, "software.moe_dispatcher", dispatcher, lambda value: DISPATCHERS.get(str(value)))
    task = options.first("task")
    if task is not None and task.value == "lora":
        facts.state("train", "lora", task.place, task.name)
        for key in ("lora_rank", "lora_targets"):
            facts.miss(key, ("the recipe of adapters",))
    each, total = facts.number("per_node"), facts.number("num_accelerators")
    if each and total and total % each == 0:
        facts.derive("nodes", total // each, f"{total} / {each} of a node")
    world_of(facts)
    batch_of(facts)
    name, gpu = facts.value("model_name"), options.first("gpu", "g")
    place = f"the table of plans for {name} on {gpu.value if gpu is not None else 'the accelerator'}"
    facts.miss("model", (f"the recipe {name}: --model",))
    facts.miss("num_accelerators", ("--num_gpus",))
    for key in LEFT:
        facts.miss(key, (place,))

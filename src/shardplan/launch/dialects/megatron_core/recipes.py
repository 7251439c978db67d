"""Recipes of Megatron-Bridge and NeMo 2 in Python, as far as their own text decides."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from shardplan.base.words import folded
from shardplan.inputs.words import RECOMPUTE_WORDS
from shardplan.launch.dialects.megatron_core.megatron import GRAPHS
from shardplan.launch.dialects.megatron_core.megatron_options import BACKENDS, KEY, SHARDINGS, dispatch
from shardplan.launch.dialects.megatron_core.megatron_stages import pipeline_layout
from shardplan.launch.dialects.models import named_model
from shardplan.launch.dialects.own_names import unsaid
from shardplan.launch.dialects.reading import Fact, Facts
from shardplan.launch.dialects.records import Dialect
from shardplan.launch.dialects.settings import Option, Options, Settings, as_option, batch_of, state, world_of
from shardplan.launch.dialects.trainers import adapter_facts
from shardplan.launch.dialects.values import degree, on_off, precision, switch

_CODE: Final = r"(?:code:)?(?:\w+\.)*(\w+)\(\)"
"""A call without arguments, such as ``bf16_mixed()``."""


def _precision_of(value: object) -> str | None:
    word = folded(str(value)).removeprefix("bf16-with-").removesuffix("-mixed").removesuffix("-mixed-precision")
    for mark in ("nvfp4", "mxfp8", "fp8"):
        if mark in word:
            return mark
    return precision(word)


RECORD: Final = Dialect(name="recipes", converts={"precision_of": _precision_of})


def is_recipe(settings: Settings) -> bool:
    """Whether a configuration in Python is a recipe on Megatron Core."""
    own = [name for row in RECORD.rows if row.field in {"tp", "pp", "cp", "ep"} for name in row.names]
    return any(name in settings for name in own)


def recipe_facts(facts: Facts, settings: Settings, entry: str | None) -> None:
    """Reads what the recipe sets; what it takes from functions of other files is missing, and so not guessed."""
    is_bridge = not settings.has("trainer") and any(key.startswith(("model.", "train.", "ddp.")) for key in settings)
    facts.framework = "megatron-bridge" if is_bridge else "nemo"
    facts.version = "recipes of 2026"
    settings = _with_calls(settings)
    RECORD.state(facts, settings)
    _recompute(facts, settings)
    _sharding(facts, settings)
    _software(facts, settings)
    _model(facts, settings)
    _adapters(facts, settings)
    _stages(facts, settings)
    nodes, each = facts.number("nodes"), facts.number("per_node")
    if nodes and each:
        facts.derive("num_accelerators", nodes * each, f"{nodes} nodes x {each} accelerators")
    is_called = any(key.startswith("trainer.") and key.endswith("_parallelism") for key in settings)
    for key in ("tp", "pp", "cp", "ep", "vp"):
        if is_called and key not in facts:
            facts.miss(key, (f"the function {settings.value('trainer.__class__')} of another file",))
        elif not is_bridge and not settings.has("trainer.strategy") and settings.has("resume"):
            facts.miss(key, ("the base recipe",))
        facts.assume(key, 1, "not set by the recipe")
    world_of(facts)
    batch_of(facts)
    for key, need in (
        ("num_accelerators", "the launch line: --gpus"),
        ("micro_batch_size", "the base recipe"),
        ("global_batch_size", "the base recipe"),
        ("sequence_length", "the base recipe"),
        ("precision", "the base recipe"),
        ("sharding", "the base recipe"),
        ("recompute", "the base recipe"),
        ("model", "the recipe's model: --model"),
    ):
        facts.miss(key, (need,))
    unsaid(facts, settings, "")
    if entry is None:
        facts.note("no function is named; --entry NAME chooses one of several")


def _with_calls(settings: Settings) -> Settings:
    """Settings where a call without arguments is its name: ``trainer.plugins = bf16_mixed()``."""
    named = {key: re.fullmatch(_CODE, each.needs[0]) for key, each in settings.items() if len(each.needs) == 1}
    own = {key: found for key, found in named.items() if found and key in ("mixed_precision", "trainer.plugins")}
    return Settings({**settings, **{key: replace(settings[key], value=m[1], needs=()) for key, m in own.items()}})


def _is_none(settings: Settings, key: str) -> bool:
    """Whether a recipe sets ``key`` to ``None``."""
    return key in settings and settings[key].value is None and not settings[key].needs


def _recompute(facts: Facts, settings: Settings) -> None:
    """Granularity, and the modules of ``selective``; ``None`` recomputes nothing."""
    name = next((each for each in RECOMPUTE if each in settings), RECOMPUTE[0])
    granularity, modules = settings.first(name), settings.first(name.replace("granularity", "modules"))
    method, layers = (settings.first(name.replace("granularity", each)) for each in ("method", "num_layers"))
    if _is_none(settings, name):
        facts.state("recompute", "none", settings[name].place, name)
    elif granularity is not None and granularity.value == "selective" and modules is not None:
        listed = modules.value if isinstance(modules.value, tuple | list) else ()
        words = [RECOMPUTE_WORDS.get(folded(str(each))) for each in listed]
        text = None if None in words or not words else ",".join(map(str, words))
        state(facts, "recompute", modules, lambda _: "selective" if text == "core_attn" else text)
    else:
        state(facts, "recompute", granularity, lambda value: value if value in ("full", "selective") else None)
    chunk = None if layers is None else degree(layers.value)
    if facts.value("recompute") == "full" and method is not None and method.value == "block" and chunk:
        facts.derive("recompute_num_layers", chunk * (facts.number("vp") or 1), f"{name}: block")


def _software(facts: Facts, settings: Settings) -> None:
    """Exchange of experts, CUDA graphs, and the format of moments."""
    given = {each.name: each for each in (_as_option(settings, f"model.{name}") for name in DISPATCH) if each}
    flex, applied = settings.first("model.moe_flex_dispatcher_backend"), settings.first(f"model.{APPLY}()")
    if applied is not None and flex is not None and flex.value in BACKENDS:
        facts.derive(KEY, flex.value, f"{flex.place}, which {APPLY} sets up where the accelerator has it", flex.name)
    elif DISPATCH[0].replace("_", "-") in given:
        dispatch(facts, Options(given=given, repeated={}))
    state(facts, "software.cuda_graphs", settings.first("model.cuda_graph_impl"), lambda value: GRAPHS.get(str(value)))
    both = [settings.first(f"optimizer.{name}") for name in ("exp_avg_dtype", "exp_avg_sq_dtype")]
    words = {re.sub(_FORMAT, "", (*each.needs, str(each.value))[0]) for each in both if each is not None}
    facts.asked_places.update(each.place for each in both if each is not None)
    aware = switch(settings.value("optimizer.use_precision_aware_optimizer"))
    if aware and len(words) == 1 and (word := precision(words.pop())) is not None:
        facts.state("moment_dtype", word, "" if both[0] is None else both[0].place, "optimizer.exp_avg_dtype")


def _as_option(settings: Settings, key: str) -> Option | None:
    """A field as the option that says the same."""
    setting = settings.first(key)
    if setting is None or setting.value is False:
        return None
    return as_option(setting, key.rpartition(".")[2].replace("_", "-"))


DISPATCH: Final = ("moe_token_dispatcher_type", "moe_flex_dispatcher_backend", "moe_enable_deepep")
APPLY: Final = "apply_flex_dispatcher_backend"
"""A function of Megatron-Bridge that sets the flex dispatcher (``training/flex_dispatcher_backend.py``)."""
_FORMAT: Final = r"^(?:code:)?(?:torch\.)?"
RECOMPUTE: Final = ("model.recompute_granularity", "model.config.recompute_granularity", "recompute_granularity")


def _sharding(facts: Facts, settings: Settings) -> None:
    """The distributed optimizer, or the strategy of Megatron-FSDP; NeMo's fused adam shards its states."""
    fsdp, strategy = settings.first("ddp.use_megatron_fsdp"), settings.first("ddp.data_parallel_sharding_strategy")
    shared = settings.first("ddp.use_distributed_optimizer", "optimizer.use_distributed_optimizer")
    optimizer = settings.first("optim.__class__")
    if fsdp is not None and switch(fsdp.value):
        state(facts, "sharding", strategy, lambda value: SHARDINGS.get(str(value)))
        facts.derive("sharding", "zero3", fsdp.place, fsdp.name)
    elif shared is not None:
        state(facts, "sharding", shared, on_off("zero1", "ddp"))
    elif optimizer is not None and str(optimizer.value).rpartition(".")[2].startswith("distributed_fused_adam"):
        facts.derive("sharding", "zero1", f"{optimizer.place} {optimizer.value}", optimizer.name)
    offload = settings.first("optimizer.optimizer_cpu_offload")
    state(facts, "offload", offload, on_off("optimizer", "none"))


HUB: Final = r"""AutoBridge\.from_hf_pretrained\(['"]([\w./-]+)['"]"""
CONFIGURATION: Final = r"(?:code:)?(?:\w+\.)*(Llama|Mixtral|Mistral|Qwen|Gemma)(\d*)Config(\w+)"


def _model(facts: Facts, settings: Settings) -> None:
    """The checkpoint that a recipe of Megatron-Bridge names; NeMo's class of a configuration has size and family."""
    made, config = settings.first("model.__class__"), settings.first("model.config.__0__")
    named = None if made is None else re.search(HUB, str(made.value))
    if made is not None and named is not None:
        facts.state("model", named[1], made.place, made.name)
    found = None if config is None or not config.needs else re.fullmatch(CONFIGURATION, config.needs[0])
    if config is not None and found is not None:
        version = ".".join(found[2])
        name = "-".join(filter(None, (found[1].lower(), version, found[3].lower())))
        if named_model(name) is not None:
            facts.derive("model", name, f"{config.place}: {config.needs[0].removeprefix('code:')}", config.name)


def _adapters(facts: Facts, settings: Settings) -> None:
    """Adapters of a recipe; what another file decides is asked for."""
    made = settings.first("peft.__class__")
    setting = settings.first("peft")
    if made is not None and str(made.value).rpartition(".")[2] == "LoRA":
        facts.state("train", "lora", made.place, made.name)
        own = ("peft.dim",), ("peft.target_modules",)
        adapter_facts(facts, settings, ranks=own[0], targets=own[1], rank=32, matrices="qkv,o,gate_up,down")
    elif made is not None or setting is not None:
        each = made or setting
        facts.miss("train", () if each is None else each.needs or (f"{each.place} {each.value}: full or lora",))


def _stages(facts: Facts, settings: Settings) -> None:
    """A layout of stages, or numbers of layers of the first and last, which another file may set."""
    layout = settings.first("model.pipeline_model_parallel_layout")
    counts = pipeline_layout(layout.value) if layout is not None and isinstance(layout.value, str) else None
    pp = facts.number("pp")
    if layout is not None and counts is not None and pp and len(counts) % pp == 0:
        facts.replace("vp", Fact(value=len(counts) // pp, origin="derived", why=layout.place))
        facts.derive("stage_layers", counts, layout.place, layout.name)
        return
    called = next((each for key, each in settings.items() if key.endswith("_parallel_layout()")), None)
    if called is not None and pp != 1:
        facts.miss("stage_layers", (called.place,))
    ends = [settings.first(f"model.num_layers_in_{end}_pipeline_stage") for end in ("first", "last")]
    for each in (layout, *ends):
        if each is not None and pp != 1:
            facts.miss("stage_layers", each.needs or (f"{each.place} {each.value}",))
    if "vp" not in facts and _is_none(settings, "model.virtual_pipeline_model_parallel_size"):
        facts.derive("vp", 1, "virtual_pipeline_model_parallel_size is None")

"""torchtitan: TOML files up to 0.2.2, options on the line, and configurations in Python since."""

from __future__ import annotations

import re
from dataclasses import replace
from math import ceil, prod
from pathlib import PurePath
from typing import Final

from shardplan.base.words import folded
from shardplan.launch.dialects.frameworks.torchtitan_stages import state_stages
from shardplan.launch.dialects.models import KEYS, named_model
from shardplan.launch.dialects.own_names import unsaid
from shardplan.launch.dialects.reading import Facts
from shardplan.launch.dialects.records import Dialect
from shardplan.launch.dialects.settings import (
    NamedConfiguration,
    NamedSetting,
    Settings,
    batch_of,
    configuration_named,
    state,
)
from shardplan.launch.dialects.values import degree, number, on_off, optimizer, precision, switch, whole, words_of

NAME: Final = "torchtitan"
TOML, RELEASE, PYTHON = "0.2.2 (TOML)", "0.3.0", "main of 2026-08 (Python)"
OF_RELEASE: Final = ("training.local_batch_size", "training.global_batch_size", "training.seq_len")
"""Options of 0.3.0 that main has under other names."""

RECORD: Final = Dialect(name=NAME)

FLAVORS: Final = {
    (family, flavor): model for family, flavors in RECORD.words("flavors").items() for flavor, model in flavors.items()
}
"""Models of the catalogue by torchtitan's family and flavor (``torchtitan/models/*/__init__.py``)."""


def is_torchtitan(settings: Settings) -> bool:
    """Whether a configuration is torchtitan's."""
    sections = ("parallelism", "training", "activation_checkpoint", "job", "metrics", "checkpoint")
    is_alike = sum(settings.has(section) for section in sections) >= 3 and settings.has("training")
    return is_alike and any(settings.has(name) for name in OWN)


OWN: Final = (
    "training.seq_len", "training.max_context_length", "training.local_batch_size", "training.batch_size",
    "training.steps", "model.flavor", "training.num_tokens_per_microbatch_per_dp_rank", "model_spec",
    "parallelism.data_parallel_shard_degree",
)  # fmt: skip
"""Settings of which it has one; others have sections of these names too."""


def torchtitan_facts(facts: Facts, settings: Settings) -> None:
    """Reads a configuration into ``facts``, which may know the world size already."""
    settings = _with_flavor(_switched(settings))
    RECORD.state(facts, settings)
    _model(facts, settings)
    if facts.version != TOML:
        facts.derive("etp", 1, "experts are not split over tensor-parallel ranks since 2026")
    _without_experts(facts)
    for key in ("tp", "pp", "cp", "ep", "etp", "replicate"):
        facts.assume(key, 1)
    facts.assume("shard", -1, "what is left")
    _world(facts)
    _sharding(facts, settings)
    _batch(facts, settings)
    state_stages(facts, settings)
    _precision(facts, settings)
    _recompute(facts, settings)
    _rest(facts, settings)
    batch_of(facts)
    unsaid(
        facts,
        settings,
        r"(?:parallelism|compile|activation_checkpoint|training|quantize|float8|mx)\..*(?<!__class__)",
        all_of=False,
    )
    for helper in HELPERS:
        facts.facts.pop(helper, None)
        facts.missing.pop(helper, None)


HELPERS: Final = ("replicate", "shard", "local_batch_size", "schedule_word", "layers_per_stage", "pipeline_micro_batch",
                  "flavor", "family", "pipelined_batch")  # fmt: skip


def named_by_function(settings: Settings) -> Settings:
    """Settings of a line with family and flavor by the name of the configuration's function: ``llama3_8b``."""
    module, config = settings.value("module"), settings.first("config")
    for family, flavor in FLAVORS:
        if config is not None and family == module and folded(str(config.value)) == folded(f"{family}_{flavor}"):
            for key, value in (("model.name", family), ("model.flavor", flavor)):
                settings[key] = replace(config, name=key, value=value)
    return settings


BARE: Final = frozenset(
    f"{section}.{prefix}{name}"
    for section, name in (
        ("compile", "enable"), ("compile", "enable_async_tensor_parallel"), ("training", "enable_cpu_offload"),
        ("training", "disable_cuda_graphs"), ("parallelism", "enable_sequence_parallel"),
    )
    for prefix in ("", "no_", "no-")
)  # fmt: skip
"""Switches of the line; ``no_`` turns them off."""
ALIASES: Final = {
    "training.seq_len": ("training.max_context_length",),
    "training.local_batch_size": ("training.num_tokens_per_microbatch_per_dp_rank",),
}
"""Options of a line that replace those of a configuration under other names."""


def over_configuration(settings: Settings, known: NamedConfiguration, place: str) -> Settings:
    """A line's settings on top of those of the configuration that it names."""
    sets: dict[str, object] = {**known.sets, "optimizer.name": "AdamW"}
    model = named_model(known.model)
    if model is not None and not model.num_mtp_layers:
        sets["loss.__class__"] = "ChunkedLossWrapper.Config"
    if known.precision != "bf16":
        sets["precision of converters"] = known.precision
    below = {
        name: NamedSetting(name=name, value=value, place=f"{place}: {name}")
        for name, value in sets.items()
        if not any(each in settings for each in ALIASES.get(name, ()))
    }
    return settings.over(Settings(below))


WRITTEN: Final = "training"
"""The function of a configuration that is written next to a line, with constants for what it replaces."""


def over_written(facts: Facts, settings: Settings, constants: Settings) -> Settings:
    """A line's settings on top of those of a configuration that is written next to it."""
    base = constants.value("BASE")
    known = configuration_named(*base) if isinstance(base, tuple | list) and len(base) == 2 else None
    for key, each in constants.section("MODEL").items():
        if key in KEYS:
            facts.state(key, each.value, each.place, key)
    if known is not None and "num_hidden_layers" not in facts:
        facts.derive("model", known.model, f"{constants['BASE'].place}: the same model in the catalogue", "config")
    for key, value in OF_BUILT.items() if "num_hidden_layers" in facts else ():
        facts.derive(key, value, "layers of torchtitan")
    stages, pp = constants.get("STAGES"), degree(settings.value("parallelism.pipeline_parallel_degree"))
    if stages is not None and isinstance(stages.value, tuple | list) and pp and len(stages.value) % pp == 0:
        facts.state("stage_layers", tuple(stages.value), stages.place, "STAGES")
        facts.derive("vp", len(stages.value) // pp, f"{stages.place}: {len(stages.value)} stages / pp {pp}")
    facts.state("software.fused_loss", constants.value("CHUNKED_LOSS") is True, constants["BASE"].place, "CHUNKED_LOSS")
    own = {"optimizer.name": "AdamW", "model_spec.moe_comm_backend": constants.value("DISPATCHER")}
    if constants.value("PRECISION") != "bf16":
        own["precision of converters"] = constants.value("PRECISION")
    sets = {**({} if known is None else known.sets), **own}
    below = {name: replace(constants["BASE"], name=name, value=value) for name, value in sets.items()}
    hidden = {each for name, alike in ALIASES.items() if any(key in settings for key in alike) for each in (name,)}
    return settings.over(Settings({name: each for name, each in below.items() if name not in hidden}))


OF_BUILT: Final = {"gated": True, "bias": False, "normalization": "RMSNorm", "position_embedding_type": "rope"}
"""What the layers have that such a configuration builds."""


def _switched(settings: Settings) -> Settings:
    """Switches that a line turns off, by their own name alone."""
    off = {key for key in settings if key in BARE and (".no_" in key or ".no-" in key)}
    named = {key.replace(".no_", ".").replace(".no-", "."): replace(settings[key], value=False) for key in off}
    return Settings({**{key: each for key, each in settings.items() if key not in off}, **named})


REGISTRY: Final = r"code:model_registry\(['\"]([\w.+-]{1,40})['\"]\)"
"""A call that only names a flavor: a reader of Python leaves it as it is."""


def _with_flavor(settings: Settings) -> Settings:
    """Settings with the flavor that ``model_registry("32B")`` names."""
    spec = settings.get("model_spec")
    named = None if spec is None or len(spec.needs) != 1 else re.fullmatch(REGISTRY, spec.needs[0])
    if spec is None or named is None:
        return settings
    return Settings({**settings, "model_spec.__0__": replace(spec, value=named[1], needs=())})


def _model(facts: Facts, settings: Settings) -> None:
    """The catalogue's model of a flavor; a configuration in Python lies in the folder of its family."""
    if "model_spec.__0__" in settings and "family" not in facts:
        folder = PurePath(facts.file).parent.name
        if folder in {name for name, _ in FLAVORS}:
            facts.derive("family", folder, "the folder of the file")
    family, flavor = facts.value("family"), facts.value("flavor")
    if "num_hidden_layers" in facts:
        return
    if family is None or flavor is None:
        facts.miss("model", ("model.flavor",))
        return
    place = facts.facts["flavor"].why
    known = FLAVORS.get((str(family), str(flavor)))
    if known is None:
        facts.note(f"the dimensions of {family} {flavor} are in torchtitan's code")
        facts.state("model_name", f"{family} {flavor}", place)
        facts.miss("model", (f"the dimensions of {family} {flavor}: --model",))
    else:
        facts.state("model_name", f"{family} {flavor}", place)
        facts.derive("model", known, f"{place}: torchtitan's {family} {flavor}", "model.flavor")


def _without_experts(facts: Facts) -> None:
    """Expert parallelism of a model that has no experts."""
    model = named_model(facts.value("model"))
    if model is not None and not model.is_moe:
        facts.derive("ep", 1, "the model has no experts")


def _world(facts: Facts) -> None:
    """The product of all degrees, unless one is -1; then what is left is sharded."""
    names = ("replicate", "shard", "tp", "cp", "pp")
    values = [facts.number(name) for name in names]
    if None in values:
        return
    product = prod(value or 1 for value in values)
    if product > 0:
        facts.derive("num_accelerators", product, "replicate x shard x tp x cp x pp")
    facts.miss("num_accelerators", ("the launch line: --gpus",))
    total = facts.number("num_accelerators")
    rest = abs(product)
    if total is not None and (total != rest if product > 0 else total % rest):
        facts.breaks_rule(
            "the degrees multiply to the accelerators",
            f"dp_replicate x dp_shard x tp x cp x pp = {rest} for {total} accelerators",
            "change a degree or the number of accelerators",
        )
    elif total is not None:
        dense = (facts.number("tp") or 1) * (facts.number("cp") or 1) * (facts.number("pp") or 1)
        facts.derive("dp", total // dense, f"{total} / (tp cp pp = {dense})")


def _sharding(facts: Facts, settings: Settings) -> None:
    """FSDP over shard x cp; hybrid with replicas."""
    replicate, shard = facts.number("replicate"), facts.number("shard")
    cp, dp = facts.number("cp"), facts.number("dp")
    if replicate is None or shard is None or cp is None:
        facts.miss("sharding", ("data_parallel_shard_degree",))
        return
    groups = shard * cp if shard > 0 else None if dp is None else dp // replicate * cp
    never = settings.value("parallelism.fsdp_reshard_after_forward") == "never"
    rule = f"replicate {replicate}, shard {shard}"
    if groups == 1 and shard == 1:
        facts.derive("sharding", "ddp", rule, "parallelism.data_parallel_shard_degree")
    elif replicate == 1:
        facts.derive("sharding", "zero2" if never else "zero3", rule, "parallelism.data_parallel_shard_degree")
    else:
        facts.derive("sharding", "hsdp", rule, "parallelism.data_parallel_replicate_degree")
        if groups is None:
            facts.miss("sharding_degree", ("num_accelerators",))
        else:
            facts.derive("sharding_degree", groups, rule)


def _batch(facts: Facts, settings: Settings) -> None:
    """Sequences of a rank, or tokens of it; a pipeline splits them into micro-batches."""
    _tokens(facts, settings)
    facts.assume("local_batch_size", 8)
    local, pp = facts.number("local_batch_size"), facts.number("pp")
    if pp == 1 and local is not None:
        fact = facts.facts["local_batch_size"]
        facts.put("micro_batch_size", fact, "training.local_batch_size")
    elif facts.version == PYTHON and local is not None:
        facts.derive("micro_batch_size", local, facts.facts["local_batch_size"].why)
    elif pp is not None and local is not None:
        facts.assume("pipeline_micro_batch", 1)
        if "pipeline_micro_batch" in facts.facts:
            facts.put("micro_batch_size", facts.facts["pipeline_micro_batch"], "")
    else:
        facts.miss("micro_batch_size", facts.missing.get("local_batch_size", ("training.local_batch_size",)))
    stated = settings.first("training.global_batch_size")
    if stated is not None and whole(stated.value) not in {-1, None}:
        state(facts, "global_batch_size", stated, degree)
    elif stated is not None and stated.needs:
        facts.miss("global_batch_size", stated.needs)
    _whole_batch(facts, settings.first("parallelism.num_pp_microbatches"))
    facts.miss("global_batch_size", ("num_accelerators",))


def _whole_batch(facts: Facts, pieces: NamedSetting | None) -> None:
    """One accumulation where no batch is given; the local batch of main is that of one of a pipeline's micro-batches.

    ``num_tokens_per_train_step`` in ``torchtitan/config/configs.py``; without a pipeline the number is ignored.
    """
    dp, local = facts.number("dp"), facts.number("local_batch_size")
    count = whole(pieces.value) if pieces is not None and facts.number("pp") != 1 and facts.version == PYTHON else 1
    if dp is not None and local is not None and count is not None and "global_batch_size" not in facts:
        of_pipeline = f" x {count} micro-batches" if count > 1 else ""
        facts.derive("global_batch_size", local * count * dp, f"local batch {local}{of_pipeline} x dp {dp}")


def _tokens(facts: Facts, settings: Settings) -> None:
    """Batch in tokens, since 2026."""
    tokens, length = settings.first("training.num_tokens_per_microbatch_per_dp_rank"), facts.number("sequence_length")
    if tokens is None:
        return
    count = whole(tokens.value)
    if count is None or length is None or count % length:
        facts.miss("local_batch_size", tokens.needs or (tokens.place,))
        return
    facts.derive("local_batch_size", count // length, f"{tokens.place}: {count} tokens / {length}")
    step = whole(settings.value("training.num_tokens_per_train_step"))
    if step is not None and step > 0 and step % length == 0:
        facts.derive("global_batch_size", step // length, f"{step} tokens a step / {length}")


def _precision(facts: Facts, settings: Settings) -> None:
    """Mixed precision of FSDP; float8 and mx where a converter turns them on."""
    converters = settings.value("model.converters")
    named = {str(each): "model.converters" for each in converters} if isinstance(converters, tuple | list) else {}
    own = [key for key in settings if key.startswith("model_spec.converters") and key.endswith("__class__")]
    named |= {str(settings[key].value): key for key in own}
    for word, value in (("mx", "mxfp8"), ("float8", "fp8")):
        for each, key in named.items():
            if word in each.lower():
                facts.state("precision", value, settings[key].place, key)
    if own and "precision" not in facts:
        facts.miss("precision", [str(settings[key].value) for key in own])
    if settings.has("float8") and "precision" not in facts:
        facts.breaks_rule(
            "float8 needs its converter",
            '[float8] without model.converters = ["float8"]',
            "add it, or remove the section",
            "notice",
        )
    state(facts, "precision", settings.first("precision of converters"), precision)
    state(facts, "precision", settings.first("training.mixed_precision_param", "training.dtype"), precision)
    facts.assume("precision", "bf16", "mixed_precision_param")
    if facts.value("precision") == "fp8":
        recipe = settings.first("quantize.linear.float8.recipe_name", "float8.recipe_name")
        state(facts, "software.fp8_scaling", recipe, SCALINGS)
        if recipe is None and facts.version == TOML:
            facts.derive("software.fp8_scaling", "tensor", "float8 without recipe_name scales whole tensors")
        gathers = [f"{where}float8.enable_fsdp_float8_all_gather" for where in ("quantize.linear.", "")]
        state(facts, "software.quantised_gathers", settings.first(*gathers), switch)


def _recompute(facts: Facts, settings: Settings) -> None:
    """Full, by operator, or every n-th layer."""
    mode = settings.first("activation_checkpoint.mode", "activation_checkpoint.__class__", "activation_checkpoint")
    word = "selective" if mode is None else str(mode.value).removesuffix(".Config").rsplit(".", 1)[-1].lower()
    place = "default mode" if mode is None else mode.place
    if (mode is None and (facts.open or facts.version != TOML)) or (mode is not None and mode.needs):
        facts.miss("recompute", (mode.needs if mode else facts.open) or ("activation_checkpoint",))
        return
    option = settings.value("activation_checkpoint.selective_ac_option")
    if word in {"none", "full", "fullac"}:
        facts.state("recompute", "full" if "full" in word else "none", place, "activation_checkpoint.mode")
    elif word == "selectiveac" or (word == "selective" and (option == "op" or facts.version != TOML)):
        facts.state("recompute", "op_sac", place, "activation_checkpoint.mode")
    elif word == "selective":
        _every(facts, option if option is not None else "2", place)
    else:
        facts.miss("recompute", () if mode is None else mode.needs or (mode.place,))


def _every(facts: Facts, option: object, place: str) -> None:
    """Every n-th layer whole."""
    every, layers = degree(option), facts.number("num_hidden_layers")
    pp, vp = facts.number("pp"), facts.number("vp")
    facts.derive("recompute", "full", f"{place}: every {option}. layer", "activation_checkpoint.selective_ac_option")
    if every is None or layers is None or pp is None or vp is None:
        facts.derive("recompute_every", every, place)
    else:
        facts.derive("recompute_num_layers", ceil(layers / pp / every), f"every {every}. layer")


def _optimizer(facts: Facts, settings: Settings) -> None:
    """What builds it, or the optimizers of its groups; Muon leaves vectors and embeddings to AdamW."""
    groups = {key: each for key, each in settings.items() if re.fullmatch(_GROUP, key)}
    kinds = {optimizer(each.value) for each in groups.values()}
    made = settings.first("optimizer.__class__", "optimizer")
    if groups and (len(kinds) == 1 or kinds == {"adam", "muon"}) and None not in kinds:
        first = next(iter(groups.values()))
        facts.state("optimizer", "muon" if "muon" in kinds else kinds.pop(), first.place, first.name)
    elif groups or (made is not None and not re.search(_ADAM, str(made.value or made.needs))):
        facts.miss("optimizer", (made.needs or (f"{made.place} {made.value}",)) if made else tuple(groups))
    facts.assume("optimizer", "adam")


_GROUP: Final = r"optimizer\.param_groups\.\d+\.optimizer_name"
_ADAM: Final = r"(?i)adamw|OptimizersContainer"
SCALINGS: Final = words_of({"tensorwise": "tensor", "rowwise": "row"})
"""Scales of 8-bit products."""
EXCHANGES: Final = words_of({"standard": "alltoall", "deepep": "deepep", "hybridep": "hybridep"})
"""How tokens reach their experts."""


def _rest(facts: Facts, settings: Settings) -> None:
    loss = settings.first("loss.__class__")
    if loss is not None:
        facts.state("software.fused_loss", str(loss.value).startswith("ChunkedLoss"), loss.place, loss.name)
    tp = facts.number("tp")
    own = settings.first("parallelism.enable_sequence_parallel")
    if own is not None:
        state(facts, "sequence_parallel", own, switch)
    elif tp is not None:
        facts.derive("sequence_parallel", value=True, rule="tensor parallelism of torchtitan splits the sequence")
    _optimizer(facts, settings)
    backend = settings.first("parallelism.expert_parallel_comm_backend", "model_spec.moe_comm_backend")
    state(facts, "software.moe_dispatcher", backend, EXCHANGES)
    if tp == 1:
        facts.derive("overlap_tp", value=False, rule="no tensor parallelism")
    facts.assume("overlap_tp", value=False)
    state(facts, "offload", settings.first("training.enable_cpu_offload"), on_off("optimizer", "none"))
    facts.assume("offload", "none")
    facts.derive("overlap_dp", value=True, rule="FSDP gathers and reduces during computation")
    facts.assume("sequence_length", 2048)
    compiled = settings.first("compile.enable", "training.compile")
    if compiled is not None and switch(compiled.value) is not None:
        components = settings.value("compile.components")
        is_on = switch(compiled.value) and (components is None or "model" in str(components))
        facts.state("software.kernels", "fused" if is_on else "eager", compiled.place, compiled.name)


def as_keys(options: str) -> tuple[str, ...]:
    """Options as they stand in a file.

    >>> as_keys("--activation_checkpoint.mode none --training.local_batch_size 2 --compile.enable")
    ('activation_checkpoint.mode = "none"', 'training.local_batch_size = 2', 'compile.enable = true')
    """
    found = (each.partition(" ") for each in re.split(r"(?:^| +)--(?=[a-z])", options) if each)
    return tuple(f"{name} = {_value(value.strip())}" for name, _, value in found)


def _value(text: str) -> str:
    if not text:
        return "true"
    return text if number(text) is not None else f'"{text}"'

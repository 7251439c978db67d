"""MaxText: ``key=value`` over a YAML over ``base.yml``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Final

from shardplan.base.words import folded
from shardplan.launch.dialects.own_names import unsaid
from shardplan.launch.dialects.reading import Facts
from shardplan.launch.dialects.records import Dialect
from shardplan.launch.dialects.settings import NamedSetting, Settings, state
from shardplan.launch.dialects.values import degree, number, switch, whole
from shardplan.launch.dialects.world import slices_named

NAME: Final = "maxtext"
VERSION: Final = "main of 2026-08 (e591f30c)"

AXES: Final = (
    "data",
    "fsdp",
    "fsdp_transpose",
    "tensor",
    "tensor_transpose",
    "tensor_sequence",
    "pipeline",
    "expert",
    "context",
    "sequence",
)
"""Mesh axes, each within a slice (``ici``) and across (``dcn``)."""

RECORD: Final = Dialect(name=NAME, converts={"latent": lambda value: str(value) == "mla"})
HELPERS: Final = ("pipeline_microbatches", "layers_per_stage")
KEPT: Final[Mapping[str, Sequence[str]]] = RECORD.words("kept")
"""Tensors of ``remat_policy=custom`` without which a module is computed again."""
PROJECTIONS: Final = ("query_proj", "key_proj", "value_proj", "qkv_proj", "out_proj")

CATALOGUE: Final[Mapping[str, str]] = RECORD.words("catalogue")


def is_maxtext(settings: Settings) -> bool:
    """Whether settings are MaxText's."""
    own = ("base_emb_dim", "remat_policy", "ici_fsdp_parallelism", "dcn_fsdp_parallelism")
    builds_on = str(settings.value("base_config")).endswith((".yml", ".yaml"))
    return builds_on or any(key in settings for key in own) or sum(key in settings for key in USUAL) >= LEAST_USUAL


USUAL: Final = (
    "per_device_batch_size", "max_target_length", "base_output_directory", "enable_checkpointing", "dataset_type",
    "reuse_example_batch", "async_checkpointing",
)  # fmt: skip
LEAST_USUAL: Final = 2
"""Keys that files of others have too, and how many of them a file of MaxText's own has (too many others have
``model_name`` and ``tokenizer_path``)."""


def maxtext_facts(facts: Facts, config: Settings) -> None:
    """Reads settings, the line on top of its files, into ``facts``."""
    RECORD.state(facts, config)
    _model(facts, config)
    _layers(facts, config)
    axes = _axes(facts, config)
    topology, number_of = config.first("compile_topology"), config.first("compile_topology_num_slices")
    if topology is not None and topology.value:
        slices_named(facts, topology, 1 if number_of is None else degree(number_of.value))
    _degrees(facts, config, axes)
    _pipeline(facts)
    _batch(facts, config)
    _remat(facts, config)
    quantization = config.first("quantization")
    if quantization is not None and quantization.value:
        word = {
            "fp8": "fp8",
            "nanoo_fp8": "fp8",
            "fp8_full": "fp8",
            "te_fp8_delayedscaling": "fp8",
            "te_mxfp8": "mxfp8",
            "te_nvfp4": "nvfp4",
        }
        if str(quantization.value).lower() in {"int8", "int4", "intmp"}:
            facts.note(f"{quantization.place} = {quantization.value}: integer products are not priced")
            facts.miss("precision", (f"{quantization.place} = {quantization.value}",))
        state(facts, "precision", quantization, lambda value: word.get(str(value).lower()))
    state(
        facts, "precision", config.first("dtype"), lambda value: {"bfloat16": "bf16", "float32": "fp32"}.get(str(value))
    )
    moment = config.first("mu_dtype")
    if moment is not None and str(moment.value) not in {"", "float32"}:
        facts.doubt(f"{moment.place} = {moment.value}: the first moment in few bits is priced as fp32")
    for key, value in {"optimizer": "adam", "gradient_accumulation": 1}.items():  # known of files that are not at hand
        facts.assume_because(key, value, f"default of {NAME} {VERSION}")
    RECORD.assume(facts)
    unsaid(facts, config, all_of=False)
    for helper in HELPERS:
        facts.facts.pop(helper, None)
        facts.missing.pop(helper, None)


def _model(facts: Facts, config: Settings) -> None:
    """The catalogue's model of a name, unless dimensions are given on top."""
    own = [key for key in ("num_hidden_layers", "hidden_size", "intermediate_size") if key in facts]
    name, place = facts.value("model_name"), "" if "model_name" not in config else config["model_name"].place
    if name in CATALOGUE and not own:
        facts.derive("model", CATALOGUE[str(name)], f"{place}: the same model in the catalogue", "model_name")
    elif name is not None and name != "default":
        facts.miss("model", (f"the dimensions of {name}{' with other layers' if own else ''}: --model",))
    scale = config.first("global_parameter_scale")
    if scale is not None and whole(scale.value) not in {1, None}:
        facts.miss("model", (f"{scale.place} = {scale.value} scales the model in code: --model",))


def _layers(facts: Facts, config: Settings) -> None:
    """Dense layers in front of those of experts, and shared experts as wide as their number of routed ones."""
    layers, width = facts.number("num_hidden_layers"), facts.number("moe_intermediate_size")
    dense, shared = (whole(config.value(name)) for name in ("first_num_dense_layers", "shared_experts"))
    if dense and layers and dense < layers and "num_experts" in facts:
        pattern = (0,) * dense + (1,) * (layers - dense)
        facts.derive("moe_layer_freq", pattern, f"{dense} dense layers first", "first_num_dense_layers")
    if shared and width:
        rule = f"{shared} x {width}"
        facts.derive("shared_expert_intermediate_size", shared * width, rule, "shared_experts")


def _axes(facts: Facts, config: Settings) -> dict[str, tuple[int | None, int | None]]:
    """Degrees of every axis within and across slices; None where one is not decidable."""
    found = {}
    for axis in AXES:
        pair = []
        for place, default in (("ici", -1 if axis == "fsdp" else 1), ("dcn", -1 if axis == "data" else 1)):
            setting = config.first(f"{place}_{axis}_parallelism")
            value = default if setting is None else whole(setting.value)
            if setting is not None and value is None:
                facts.miss(f"{place}_{axis}", setting.needs or (setting.place,))
            pair.append(value)
        found[axis] = (pair[0], pair[1])
    return found


def _degrees(facts: Facts, config: Settings, axes: dict[str, tuple[int | None, int | None]]) -> None:
    """Products of the axes; -1 is what is left of the slice, or of the slices."""
    for key, names in {
        "tp": ("tensor", "tensor_transpose", "tensor_sequence"),
        "pp": ("pipeline",),
        "cp": ("context", "sequence"),
        "ep": ("expert",),
    }.items():
        _product(facts, config, axes, key, names)
    plain = _extent([each for name in ("tensor", "tensor_transpose") for each in axes[name]])
    if plain is not None and plain > 1:
        facts.derive("sequence_parallel", value=False, rule="the axis tensor; tensor_sequence shares the sequence")
    _total(facts, axes)
    _sharding(facts, config, axes)


GROUP: Final = ("fsdp", "fsdp_transpose", "context", "expert")
"""Axes over which weights are sharded (``logical_axis_rules``)."""


def _sharding(facts: Facts, config: Settings, axes: dict[str, tuple[int | None, int | None]]) -> None:
    """Weights are sharded over the axes of fsdp, contexts and experts, and copied over that of data."""
    group = _extent([each for name in GROUP for each in axes[name]])
    data = _extent(list(axes["data"]))
    stated = any(f"{place}_{name}_parallelism" in config for place in ("ici", "dcn") for name in (*GROUP, "data"))
    rule = "the axes of fsdp, context and expert"
    if group == 1:
        over = config.first("shard_optimizer_over_data")
        word = "zero1" if over is not None and switch(over.value) else "ddp"
        facts.derive("sharding", word, f"{rule} are 1", "ici_fsdp_parallelism")
    elif data is not None and data > 1:
        facts.derive("sharding", "hsdp", f"{rule}, and data {data}", "dcn_data_parallelism")
        if group is None:
            facts.miss("sharding_degree", ("num_accelerators",))
        else:
            facts.derive("sharding_degree", group, f"the product of {rule}")
    elif stated:
        facts.derive("sharding", "zero3", rule, "ici_fsdp_parallelism")
    else:
        facts.assume("sharding", "zero3", "ici_fsdp_parallelism -1")


def _extent(values: list[int | None]) -> int | None:
    """The product of axes; None where one is open."""
    product = 1
    for each in values:
        if each is None or each < 1:
            return None
        product *= each
    return product


def _pipeline(facts: Facts) -> None:
    """Stages of a rank, and the schedule that follows from them."""
    pp, size, layers = (facts.number(key) for key in ("pp", "layers_per_stage", "num_hidden_layers"))
    if pp is None or pp == 1:
        facts.derive("vp", 1, "no pipeline")
        return
    if size and layers and layers % (pp * size) == 0:
        facts.derive("vp", layers // (pp * size), f"{layers} layers / pp {pp} / {size} of a stage")
    vp = facts.number("vp")
    facts.derive(
        "schedule", "gpipe" if vp in (None, 1) else "breadth-first", "pipelines of MaxText repeat their stages"
    )


def _product(
    facts: Facts, config: Settings, axes: dict[str, tuple[int | None, int | None]], key: str, names: tuple[str, ...]
) -> None:
    values = [each for name in names for each in axes[name]]
    given = [name for name in names for place in ("ici", "dcn") if f"{place}_{name}_parallelism" in config]
    if any(each is None or each < 1 for each in values):
        facts.miss(
            key,
            [
                need
                for name in names
                for p in ("ici", "dcn")
                for need in facts.missing.get(f"{p}_{name}", ("num_accelerators",))
            ],
        )
        return
    product = prod(each or 1 for each in values)
    if given:
        facts.derive(key, product, f"{', '.join(given)} axes", f"ici_{given[0]}_parallelism")
    else:
        facts.assume(key, product)


def _total(facts: Facts, axes: dict[str, tuple[int | None, int | None]]) -> None:
    """The product of all axes where none is -1; one slice where only ``dcn_data`` is open is not assumed."""
    slices = [pair[1] for pair in axes.values()]
    within = [pair[0] for pair in axes.values()]
    if None in slices or None in within or -1 in within:
        facts.miss("num_accelerators", ("the platform: --gpus",))
        return
    product = prod(each or 1 for each in (*within, *(each for each in slices if each != -1)))
    if slices.count(-1) == 0 or facts.number("num_accelerators") == product:
        facts.derive("num_accelerators", product, "the product of the mesh axes")
    else:
        facts.assume_because("num_accelerators", product, "one slice: dcn_data_parallelism is -1")


def _batch(facts: Facts, config: Settings) -> None:
    """``per_device_batch_size`` counts for every device; its group is a data-parallel rank."""
    setting = config.first("per_device_batch_size")
    each = 12.0 if setting is None else number(setting.value)
    if each is None or (setting is None and "micro_batch_size" in facts.missing):
        facts.miss("micro_batch_size", () if setting is None else setting.needs or (setting.place,))
        facts.miss("global_batch_size", ("per_device_batch_size",))
        facts.miss("per_device_batch_size", facts.missing["micro_batch_size"])
        return
    total, accumulation = facts.number("num_accelerators"), facts.number("gradient_accumulation") or 1
    place = "per_device_batch_size" if setting is None else setting.place
    degrees = [facts.number(key) for key in ("tp", "cp", "pp")]
    if total is not None and float(each * total * accumulation).is_integer():
        facts.derive("global_batch_size", int(each * total * accumulation), f"{place}: {each:g} x {total} devices")
    facts.miss("global_batch_size", ("num_accelerators",))
    if None in degrees:
        facts.miss("micro_batch_size", ("the mesh axes",))
        return
    ranks = (degrees[0] or 1) * (degrees[1] or 1) * (degrees[2] or 1)
    size = each * ranks
    facts.state("per_device_batch_size", each, place, "per_device_batch_size")
    if not float(size).is_integer() or size < 1:
        facts.miss("micro_batch_size", (f"{place}: {each:g} x {ranks} devices is not whole",))
    elif (degrees[2] or 1) > 1:
        number_ = facts.number("pipeline_microbatches")
        if number_ and int(size) % number_ == 0:
            facts.derive("micro_batch_size", int(size) // number_, f"{size:g} sequences / {number_} micro-batches")
        facts.miss("micro_batch_size", ("num_pipeline_microbatches",))
    else:
        rule = f"{place}: {each:g} x tp x cp = {ranks} devices"
        (facts.assume if setting is None else facts.derive)("micro_batch_size", int(size), rule)
        facts.options.setdefault("micro_batch_size", "per_device_batch_size")


def _policy(name: str) -> str | None:
    """What a policy computes again, wherever it keeps the rest; None where it is not known."""
    from shardplan.calibrate.runs.option_words import POLICIES  # here: its modules are read for MaxText alone

    return "none" if name == "none" else POLICIES.get(folded(name)) or POLICIES.get(name.removesuffix("_offloaded"))


def _remat(facts: Facts, config: Settings) -> None:
    setting = config.first("remat_policy")
    if setting is None:
        facts.assume("recompute", "full", "remat_policy")
        _optimizer_offload(facts, config)
        facts.assume("offload", "none")
        return
    if str(setting.value) == "custom":
        _custom(facts, config, setting)
    else:
        state(facts, "recompute", setting, lambda value: _policy(str(value)))
    if "offload" in str(setting.value):
        facts.derive("offload", "activations", f"{setting.place} = {setting.value}: kept activations go to the host")
    _optimizer_offload(facts, config)
    facts.assume("offload", "none")


def _custom(facts: Facts, config: Settings, setting: NamedSetting) -> None:
    """Tensors that are kept on the device or the host; all others are computed again (``configs/base.yml``)."""
    names = ("decoder_layer_input", *PROJECTIONS, *(name for tensors in KEPT.values() for name in tensors))
    given = {name: found for name in names if (found := config.first(name)) is not None}
    vague = [found for found in given.values() if found.value not in PLACES]
    if vague:
        for key in ("recompute", "offload"):
            state(facts, key, vague[0], lambda _: None)
        return
    kept = {name: found for name, found in given.items() if found.value != "remat"}
    if any(found.value == "offload" for found in kept.values()):
        facts.derive("offload", "activations", f"{setting.place}: tensors that are offloaded", "remat_policy")
    if "qkv_proj" not in kept and not {"query_proj", "key_proj", "value_proj"} <= kept.keys():
        facts.derive("recompute", "full", f"{setting.place}: projections are computed again", "remat_policy")
        more = [found.place for name, found in kept.items() if name != "decoder_layer_input"]
        if more:
            facts.doubt(f"{', '.join(more)}: tensors that are kept are priced as computed again")
        return
    absent = {
        "mlp": "num_experts" in facts and "moe_layer_freq" not in facts,
        "moe": "num_experts" not in facts,
        "mla_up_proj": not facts.value("latent_attention"),
    }
    again = [
        name for name, tensors in KEPT.items() if not absent.get(name) and not any(each in kept for each in tensors)
    ]
    facts.derive("recompute", ",".join(["layernorm", "activation", *again]), f"{setting.place}: what is not kept")


PLACES: Final = ("remat", "device", "offload")
"""Where a tensor is for the backward pass: computed again, kept, or in host memory."""


def _optimizer_offload(facts: Facts, config: Settings) -> None:
    setting = config.first("optimizer_memory_host_offload")
    state(facts, "offload", setting, lambda value: "optimizer" if switch(value) else "none")

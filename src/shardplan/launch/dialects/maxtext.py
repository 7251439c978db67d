"""MaxText: ``key=value`` over a YAML over ``base.yml``."""

from __future__ import annotations

from typing import Final

from shardplan.launch.dialects.reading import Facts
from shardplan.launch.dialects.settings import Settings, Table, state, state_all
from shardplan.launch.dialects.values import degree, number, optimizer, text, whole
from shardplan.words import folded

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

TABLE: Final[Table] = {
    "sequence_length": (("max_target_length",), degree),
    "gradient_accumulation": (("gradient_accumulation_steps",), degree),
    "optimizer": (("opt_type",), optimizer),
    "model_name": (("model_name",), text),
    "num_hidden_layers": (("base_num_decoder_layers",), degree),
    "hidden_size": (("base_emb_dim",), degree),
    "intermediate_size": (("base_mlp_dim",), degree),
    "num_attention_heads": (("base_num_query_heads",), degree),
    "num_key_value_heads": (("base_num_kv_heads",), degree),
    "head_dim": (("head_dim",), degree),
    "vocab_size": (("vocab_size",), degree),
    "num_experts": (("num_experts",), degree),
    "num_experts_per_tok": (("num_experts_per_tok",), degree),
    "vp": (("num_pipeline_repeats",), degree),
}

CATALOGUE: Final = {
    "llama2-7b": "llama-2-7b",
    "llama2-13b": "llama-2-13b",
    "llama2-70b": "llama-2-70b",
    "llama3-8b": "llama-3-8b",
    "llama3-70b": "llama-3-70b",
    "llama3.1-8b": "llama-3.1-8b",
    "llama3.1-70b": "llama-3.1-70b",
    "llama3.1-405b": "llama-3.1-405b",
    "mixtral-8x7b": "mixtral-8x7b",
    "mixtral-8x22b": "mixtral-8x22b",
    "deepseek3-671b": "deepseek-v3",
    "deepseek2-16b": "deepseek-v2-lite",
    "gpt3-175b": "gpt3-175b",
}


def is_maxtext(settings: Settings) -> bool:
    """Whether settings are MaxText's."""
    own = ("per_device_batch_size", "max_target_length", "base_emb_dim", "remat_policy", "base_config")
    return any(key in settings for key in own) or any(
        f"{place}_fsdp_parallelism" in settings for place in ("ici", "dcn")
    )


def maxtext_facts(facts: Facts, config: Settings) -> None:
    """Reads settings, the line on top of its files, into ``facts``."""
    state_all(facts, config, TABLE)
    _model(facts, config)
    axes = _axes(facts, config)
    _degrees(facts, config, axes)
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
        }
        if str(quantization.value).lower() in {"int8", "int4", "intmp"}:
            facts.note(f"{quantization.place} = {quantization.value}: integer products are not priced")
            facts.miss("precision", (f"{quantization.place} = {quantization.value}",))
        state(facts, "precision", quantization, lambda value: word.get(str(value).lower()))
    state(
        facts, "precision", config.first("dtype"), lambda value: {"bfloat16": "bf16", "float32": "fp32"}.get(str(value))
    )
    for key, value in {
        "precision": "bf16",
        "optimizer": "adam",
        "sequence_length": 2048,
        "gradient_accumulation": 1,
        "vp": 1,
        "sequence_parallel": True,
        "overlap_dp": True,
    }.items():
        facts.assume(key, value)


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
    for key, value in {
        "gated": True,
        "bias": False,
        "normalization": "RMSNorm",
        "position_embedding_type": "rope",
        "tie_word_embeddings": False,
        "head_dim": 128,
    }.items():
        facts.assume(key, value)


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
    _total(facts, axes)
    fsdp = [axes[name][place] for name in ("fsdp", "fsdp_transpose") for place in (0, 1)]
    data = [each for each in axes["data"] if each is not None and each > 1]
    whole_fsdp = any(each is None or each != 1 for each in fsdp)
    group = 1
    for each in fsdp:
        group = group * each if each is not None and each > 0 and group > 0 else -1
    if data and whole_fsdp:
        facts.derive("sharding", "hsdp", f"data {data}, fsdp {fsdp}", "dcn_data_parallelism")
        if group > 0:
            facts.derive("sharding_degree", group, "the product of the fsdp axes")
        else:
            facts.miss("sharding_degree", ("num_accelerators",))
    elif whole_fsdp and any(f"{place}_fsdp_parallelism" in config for place in ("ici", "dcn")):
        facts.derive("sharding", "zero3", f"fsdp {fsdp}", "ici_fsdp_parallelism")
    elif whole_fsdp:
        facts.assume("sharding", "zero3", "ici_fsdp_parallelism -1")
    else:
        facts.derive("sharding", "ddp", "all fsdp axes are 1")


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
    product = 1
    for each in values:
        product *= each or 1
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
    product = 1
    for each in (*within, *(each for each in slices if each != -1)):
        product *= each or 1
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
        facts.miss("micro_batch_size", ("num_pipeline_microbatches",))
    else:
        facts.derive(
            "micro_batch_size", int(size), f"{place}: {each:g} x tp x cp = {ranks} devices", "per_device_batch_size"
        )


def _policy(name: str) -> str | None:
    """What a policy computes again; None where activations go to the host too, or the policy is not known."""
    from shardplan.calibration.runs.option_remat import POLICIES  # here: its modules are read for MaxText alone

    return None if "offload" in name else POLICIES.get(folded(name))


def _remat(facts: Facts, config: Settings) -> None:
    setting = config.first("remat_policy")
    if setting is None:
        facts.assume("recompute", "full", "remat_policy")
        facts.assume("offload", "none")
        return
    state(facts, "recompute", setting, lambda value: _policy(str(value)))
    if "offload" in str(setting.value):
        facts.miss("offload", (f"{setting.place} = {setting.value}: parts of the activations go to the host",))
    facts.assume("offload", "none")

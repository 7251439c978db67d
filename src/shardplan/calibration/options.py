"""What the ``options`` of a measured run mean: every known key changes fields of ``Software``, ``Job`` or ``Plan``.

Keys that change nothing in the estimate are known all the same and said to be without effect; others are kept and
reported.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Final, cast, get_args

from shardplan.calibration.choices import Choices
from shardplan.inputs.cluster import LinkType
from shardplan.inputs.job import PRECISIONS
from shardplan.inputs.software import Software

__all__ = ["OPTIONS", "WITHOUT_EFFECT", "apply_options", "layers_of_layout"]


def apply_options(choices: Choices) -> None:
    """Applies every option of the run, in the order of ``OPTIONS``. Raises ``InputError``."""
    stated = choices.run.options
    for key, apply in OPTIONS.items():
        if key in stated:
            apply(choices, key, stated[key])
    choices.ignored += [
        f"option {key}={value}" + (f": {WITHOUT_EFFECT[key]}" if key in WITHOUT_EFFECT else "")
        for key, value in stated.items()
        if key not in OPTIONS
    ]


WITHOUT_EFFECT: Final[Mapping[str, str]] = {
    "delay_wgrad": "part of the overlap of expert dispatch",
    "fp8_recipe": "the constants speak of the precision, not of its scaling recipe",
    "fsdp_mixed_precision": "grad_dtype says what is reduced",
    "ici_fsdp_transpose_parallelism": "order of the mesh axes",
    "limit_all_gathers": "bounds the weights gathered ahead, two layers here",
    "pack_sample_into_one": "packing of samples",
    "quantization": "the precision says what is computed",
    "remat_policy": "remat_tensors or recompute say what is kept",
    "slices": "scale_up_size is the slice",
    "stack": "chosen",
    "weights": "the fp32 copy is the optimizer's",
}
"""Known keys that change nothing, and why."""


def _overlap(choices: Choices, key: str, value: str) -> None:
    """Kinds of communication that run beside computation; what is not named keeps the framework's default."""
    words: dict[str, str] = {}
    chosen: dict[str, bool] = {}
    for word in _words(value):
        if word == "p2p_scatter_gather":
            choices.state(key, "software", split_transfers=True)
        elif word not in OVERLAPS:
            choices.ignored.append(f"overlap {word}")
        for name, flag in OVERLAPS.get(word, {}).items():
            if chosen.setdefault(name, flag) != flag:
                raise choices.wrong(
                    key, value, f"without words that contradict each other, as {words[name]} and {word}"
                )
            words[name] = word
    choices.state(key, "plan", **chosen)


OVERLAPS: Final[Mapping[str, Mapping[str, bool]]] = {
    "dp_grad": {"overlap_dp": True},
    "dp_param": {"overlap_dp": True},
    "fsdp": {"overlap_dp": True},
    "fsdp_prefetch": {"overlap_dp": True},
    "tp": {"overlap_tp": True},
    "tp_comm": {"overlap_tp": True},
    "async_tp": {"overlap_tp": True},
    "no_tp": {"overlap_tp": False},
    "p2p": {"overlap_pp": True},
    "moe_a2a": {"overlap_ep": True},
    "moe_a2a_1f1b": {"overlap_ep": True},
    "none": {"overlap_dp": False, "overlap_tp": False, "overlap_pp": False, "overlap_ep": False},
}
"""Words of ``overlap`` and the fields that they set."""


def _cuda_graph(choices: Choices, key: str, value: str) -> None:
    """``full_iteration`` (with or without an implementation in front), parts of a layer, or none."""
    text = value.lower()
    if text.startswith("unclear"):
        choices.ignored.append(f"option cuda_graph={value}: not certain")
        return
    kind = "none" if re.fullmatch(r"none *(\(.*\))?", text) else GRAPHS.get(text) or _captured(text)
    if kind is None:
        choices.assumed.append(f"cuda_graph {value} is taken as graphs of parts of a layer")
    choices.state(key, "software", cuda_graphs=kind or "partial")


def _captured(text: str) -> str | None:
    """Kind of the graphs of parts behind an implementation; None where a word is unknown."""
    implementation, colon, listed = text.rpartition(":")
    parts = {part.strip() for part in re.split(r"[+,]", listed)}
    if (colon and implementation not in GRAPH_MAKERS) or not parts <= set(GRAPH_PARTS):
        return None
    return "full" if "full_iteration" in parts else "partial"


GRAPHS: Final[Mapping[str, str]] = {
    "yes": "partial",
    "true": "partial",
    "partial": "partial",
    "transformer_engine": "partial",
    "local": "partial",
    "full": "full",
    "no": "none",
    "false": "none",
}
"""Words of ``cuda_graph`` that stand alone; Megatron's implementations capture parts of a layer."""
GRAPH_MAKERS: Final = ("transformer_engine", "local")
GRAPH_PARTS: Final = ("full_iteration", "attn", "mlp", "moe", "moe_router", "moe_preprocess", "mamba")
"""What Megatron captures (``--cuda-graph-scope``)."""


def _dispatcher(choices: Choices, key: str, value: str) -> None:
    known = {
        "alltoall": "alltoall",
        "allgather": "alltoall",
        "flex": "deepep",
        "deepep": "deepep",
        "hybridep": "hybridep",
    }
    if value.lower() not in known:
        raise choices.wrong(key, value, f"one of {', '.join(known)}")
    choices.state(key, "software", moe_dispatcher=known[value.lower()])


def _capacity(choices: Choices, key: str, value: str) -> None:
    """Experts take a fixed number of tokens where a factor is given."""
    none = value.lower() in ("no", "none", "false")
    if not none and not 0 < _number(value) < math.inf:
        raise choices.wrong(key, value, "a number above zero, or no")
    choices.state(key, "software", moe_capacity=not none)


def _number(text: str) -> float:
    """NaN where the text is no number."""
    try:
        return math.nan if "_" in text else float(text)
    except ValueError:
        return math.nan


def _moments(choices: Choices, key: str, value: str) -> None:
    if value not in ("fp32", "bf16", "fp16"):
        raise choices.wrong(key, value, "fp32, bf16 or fp16")
    choices.state(key, "job", moment_dtype=value)


def _primary_weights(choices: Choices, key: str, value: str) -> None:
    """Number format of the weights between steps; formats of 8 bits or fewer leave no 16-bit copy."""
    known = (*PRECISIONS, "fp4")
    name = re.split("[-_ ]", value.lower())[0]  # fp8_e4m3
    if name not in known:
        raise choices.wrong(key, value, f"one of {', '.join(known)}")
    choices.state(key, "software", quantised_weights=name not in ("fp32", "bf16", "fp16"))


def _reshard(choices: Choices, key: str, value: str) -> None:
    """Weights that stay gathered from forward to backward: only gradients and states are sharded, as in zero2."""
    if not _flag(choices, key, value) and choices.plan.get("sharding") == "zero3":
        choices.plan["sharding"] = "zero2"
        choices.assumed.append("weights stay gathered after the forward pass: taken as zero2")


def _compile(choices: Choices, key: str, value: str) -> None:
    choices.state(key, "software", kernels="fused" if _flag(choices, key, value) else "eager")


def _blocking(choices: Choices, key: str, value: str) -> None:
    choices.state(key, "software", blocking_launches=_flag(choices, key, value))


def _network(choices: Choices, key: str, value: str) -> None:
    allowed = get_args(LinkType)
    if value not in allowed:
        raise choices.wrong(key, value, f"one of {', '.join(allowed)}")
    choices.network = cast(LinkType, value)


def _a2a(choices: Choices, key: str, value: str) -> None:
    choices.state(key, "plan", overlap_ep=_flag(choices, key, value))


def _vocabulary_tiling(choices: Choices, key: str, value: str) -> None:
    """Pieces in which the loss is computed; one is the whole."""
    if not _is_count(value) or int(value) < 1:
        raise choices.wrong(key, value, "a whole number from 1")
    choices.state(key, "software", fused_loss=int(value) > 1)


def _schedule(choices: Choices, key: str, value: str) -> None:
    if value in ("1f1b", "gpipe", "interleaved"):
        choices.state(key, "plan", schedule=value)
    elif value in ("dualpipe", "zerobubble", "zb-h1", "zbv"):
        choices.state(key, "plan", vp=1)
        choices.assumed.append(f"schedule {value} is taken as 1f1b")
    else:
        raise choices.wrong(key, value, "1f1b, interleaved, gpipe or dualpipe")


def _cp_comm(choices: Choices, key: str, value: str) -> None:
    known = {"p2p": "p2p", "a2a": "a2a", "all_gather": "allgather", "allgather": "allgather", "a2a+p2p": "p2p"}
    if value.lower() not in known:
        raise choices.wrong(key, value, f"one of {', '.join(known)}")
    choices.state(key, "plan", cp_comm=known[value.lower()])


def _recompute_layers(choices: Choices, key: str, value: str) -> None:
    if not _is_count(value):
        raise choices.wrong(key, value, "a whole number of layers of each stage")
    choices.state(key, "plan", recompute_num_layers=int(value))


def _offloaded_layers(choices: Choices, key: str, value: str) -> None:
    """Activations of so many layers of each stage."""
    if not _is_count(value):
        raise choices.wrong(key, value, "a whole number of layers of each stage")
    kind, layers = ("activations", int(value)) if int(value) else ("none", None)
    choices.state(key, "plan", offload=kind, offload_num_layers=layers)


PROJECTIONS: Final = frozenset({"query_proj", "key_proj", "value_proj"})


def _remat_policy(choices: Choices, key: str, value: str) -> None:
    """MaxText's named policies; the tensors of ``custom`` stand in ``remat_tensors``."""
    if value in POLICIES:
        choices.state(key, "plan", recompute=POLICIES[value])
    elif value != "custom":
        choices.ignored.append(f"option {key}={value}")


POLICIES: Final[Mapping[str, str]] = {
    "full": "full",
    "minimal": "layernorm,activation,core_attn",
    "qkv_proj_offloaded": "layernorm,activation,core_attn,mlp",
    "save_qkv_proj": "layernorm,activation,core_attn,mlp",
    "save_dot_except_mlp": "layernorm,activation,core_attn,mlp",
    "save_dot_with_context_except_mlp": "layernorm,activation,mlp",
    "minimal_with_context": "layernorm,activation",
}
"""Modules that MaxText's policies compute again (a policy is named after what it keeps)."""


def _remat_tensors(choices: Choices, key: str, value: str) -> None:
    """Named tensors that stay on the device or wait on the host; all others are computed again."""
    items = [re.fullmatch(r"([^:\s]+) *: *(device|offload|remat)", word) for word in _words(value)]
    places = {item[1]: item[2] for item in items if item}
    if not items or len(places) < len(items):
        raise choices.wrong(key, value, "a comma list of name:device, name:offload or name:remat, each name once")
    choices.state(key, "plan", recompute=_recomputed({name for name, place in places.items() if place != "remat"}))


def _recomputed(kept: set[str]) -> str:
    """What is computed again where these tensors are kept."""
    if not (kept >= PROJECTIONS or "qkv_proj" in kept):
        return "full"
    modules = ["layernorm", "activation"]
    modules += [] if "context" in kept else ["core_attn"]
    modules += [] if kept & {"mlpwi", "mlpwi_0"} else ["mlp"]
    return ",".join(modules)


def _features(choices: Choices, _key: str, value: str) -> None:
    """Free text: words that name kernels are understood, the rest is reported. Options of their own come later."""
    for word, settings in FEATURES.items():
        if re.search(word, value, flags=re.IGNORECASE):
            choices.software.update(settings)
    choices.ignored.append(f"features: {value}")


FEATURES: Final[Mapping[str, Mapping[str, object]]] = {
    r"\bliger kernels\b": {"fused_loss": True, "kernels": "fused"},
    r"\bFA2\b|\bFlashAttention-2\b": {"attention_generation": "flash2"},
    r"\bFA[34]\b|\bFlashAttention-[34]\b|\bcuDNN attention\b": {"attention_generation": "current"},
    r"\bdeepep\b": {"moe_dispatcher": "deepep"},
    r"\bhybridep\b": {"moe_dispatcher": "hybridep"},
}
"""Words of free text that decide fields of ``Software``."""


def _layout(choices: Choices, key: str, value: str) -> None:
    """Megatron's pipeline layout: layers of every model chunk."""
    sizes = layers_of_layout(value)
    if sizes is None:
        raise choices.wrong(key, value, "stages between '|' of t (layer), E, m, L, with *n and (...)*n")
    choices.state(key, "plan", stage_layers=sizes)


def layers_of_layout(text: str) -> tuple[int, ...] | None:
    """Layers of each chunk of a Megatron pipeline layout such as ``Et|(tt|)*30L``; None where it cannot be read."""
    if len(text) > 2000:
        return None
    for _ in range(4):  # groups may nest
        text = re.sub(r"\(([^()]*)\)\*(\d{1,4})", lambda found: found[1] * int(found[2]), text)
        if len(text) > 20_000:
            return None
    text = re.sub(r"([A-Za-z|])\*(\d{1,4})", lambda found: found[1] * int(found[2]), text)
    if not re.fullmatch(r"[EtmL|,]+", text):
        return None
    parts = text.replace(",", "").split("|")
    return tuple(part.count("t") for part in parts)


def _of_software(choices: Choices, key: str, value: str) -> None:
    """A field of ``Software`` by its own name."""
    is_flag = isinstance(getattr(Software(), key), bool)
    choices.state(key, "software", **{key: _flag(choices, key, value) if is_flag else value})


def _dropout(choices: Choices, key: str, value: str) -> None:
    choices.state(key, "job", **{key: _flag(choices, key, value)})


def _optimizer(choices: Choices, key: str, value: str) -> None:
    choices.state(key, "job", **{key: "adam" if value.lower() == "adamw" else value.lower()})


def _placement(choices: Choices, key: str, value: str) -> None:
    choices.state(key, "plan", **{key: value})


def _flag(choices: Choices, key: str, value: str) -> bool:
    known = {"yes": True, "true": True, "no": False, "false": False}
    if value.lower() not in known:
        raise choices.wrong(key, value, "yes or no")
    return known[value.lower()]


MOST_DIGITS: Final = 6


def _is_count(text: str) -> bool:
    return text.isdecimal() and len(text) <= MOST_DIGITS


def _words(value: str) -> list[str]:
    return [word.strip() for word in value.split(",") if word.strip()]


OPTIONS: Final[Mapping[str, Callable[[Choices, str, str], None]]] = {
    "features": _features,
    "overlap": _overlap,
    "moe_a2a_1f1b": _a2a,
    "cuda_graph": _cuda_graph,
    "cuda_launch_blocking": _blocking,
    "moe_capacity_factor": _capacity,
    "optimizer_moments": _moments,
    "optimizer": _optimizer,
    "primary_weights": _primary_weights,
    "reshard_after_forward": _reshard,
    "compile": _compile,
    "torch_compile": _compile,
    "num_vocab_tiling": _vocabulary_tiling,
    "schedule": _schedule,
    "cp_comm_type": _cp_comm,
    "recompute_layers": _recompute_layers,
    "recompute_num_layers": _recompute_layers,
    "cpu_activation_offload_layers": _offloaded_layers,
    "offload_num_layers": _offloaded_layers,
    "remat_policy": _remat_policy,
    "remat_tensors": _remat_tensors,
    "pp_layout": _layout,
    "dropout": _dropout,
    "placement": _placement,
    "network": _network,
    **{f.name: _of_software for f in fields(Software)},
    "moe_dispatcher": _dispatcher,
}
"""What each key does, in the order in which they apply."""

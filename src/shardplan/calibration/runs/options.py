"""What the ``options`` of a measured run mean: every known key changes fields of ``Software``, ``Job`` or ``Plan``.

Words are read by tables of their names. A value that is not understood sets nothing: the framework's default stays, and
the prediction says so. Keys that change nothing in the estimate are known all the same and reported as without effect;
others are kept and reported.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Final, cast

from shardplan.calibration.runs.choices import MOST_SHOWN, Choices, Part
from shardplan.calibration.runs.option_remat import (
    is_count,
    offloaded_layers,
    recompute_layers,
    remat_policy,
    remat_tensors,
)
from shardplan.calibration.runs.option_words import (
    COMPILED,
    GRAPH_MAKERS,
    GRAPH_PARTS,
    NETWORKS,
    NOT_MODELLED,
    OVERLAPS,
    RESHARDED,
    ROUTER_PARTS,
    SOFTWARE_OVERLAPS,
    SOFTWARE_WORDS,
)
from shardplan.errors import InputError
from shardplan.inputs.cluster import LinkType
from shardplan.inputs.job import MOST_IMBALANCE, MOST_RANK, qlora_in_full
from shardplan.inputs.plan import DEFAULT_PLACEMENT, placement_tokens
from shardplan.inputs.software import Software
from shardplan.inputs.trained import LORA_TARGETS, lora_targets
from shardplan.inputs.words import (
    BASE_WEIGHTS,
    CP_COMMS,
    DISPATCHERS,
    DTYPES,
    GRAPHS,
    LORA_MATRICES,
    OPTIMIZERS,
    PRECISIONS,
    SCHEDULES,
    TRAINED,
)
from shardplan.words import FLAGS, folded, guess, one_of


def apply_options(choices: Choices) -> None:
    """Applies every option of the run, in the order of ``OPTIONS``. Raises ``InputError``."""
    stated = choices.run.options
    for key, apply in OPTIONS.items():
        if key in stated:
            apply(choices, key, stated[key])
    for key, value in stated.items():
        if key in choices.unclear:
            continue
        if key in WITHOUT_EFFECT:
            choices.ignored.append(f"option {key}={value}: {WITHOUT_EFFECT[key]}")
        elif key not in OPTIONS:
            choices.say_unknown(f"option {key}={value}")


WITHOUT_EFFECT: Final[Mapping[str, str]] = {
    "delay_wgrad": "part of the overlap of expert dispatch",
    "fp8_recipe": "the constants speak of the precision, not of its scaling recipe",
    "fsdp_mixed_precision": "grad_dtype says what is reduced",
    "ici_fsdp_transpose_parallelism": "order of the mesh axes",
    **dict.fromkeys(("lora_alpha", "lora_dropout"), "of adapters, without effect on time and memory here"),
    "limit_all_gathers": "bounds the weights gathered ahead, two layers here",
    "pack_sample_into_one": "packing of samples",
    "post_validation": "schedules are priced without a wait of all ranks before the optimizer step",
    "quantization": "the precision says what is computed",
    "slices": "scale_up_size is the slice",
    "stack": "chosen",
    "weights": "the fp32 copy is the optimizer's",
}
"""Known keys that change nothing, and why."""


def _overlap(choices: Choices, key: str, value: str) -> None:
    """Kinds of communication that overlap with computation; what is not named keeps the framework's default."""
    words: dict[str, str] = {}
    chosen: dict[str, bool] = {}
    for word in (word.strip() for word in value.split(",") if word.strip()):
        settings, runs = OVERLAP_WORDS.get(folded(word), {}), SOFTWARE_OVERLAPS.get(folded(word), {})
        choices.state(key, "software", **runs)
        if not (settings or runs):
            choices.not_known(key, word, one_of(OVERLAPS), guess(word, OVERLAP_NAMES))
        for name, flag in settings.items():
            if chosen.setdefault(name, flag) != flag:
                raise choices.contradicts_itself(key, value, f"{words[name]} and {word} exclude each other")
            words[name] = word
    if not value.strip(" ,"):
        choices.not_known(key, value, "a comma list of what overlaps")
    choices.state(key, "plan", **chosen)


OVERLAP_WORDS: Final = {folded(word): settings for word, settings in OVERLAPS.items()}
OVERLAP_NAMES: Final = {folded(word): word for word in OVERLAPS}


def _cuda_graph(choices: Choices, key: str, value: str) -> None:
    """``full_iteration`` (with or without an implementation in front), parts of a layer, or none."""
    text = value.lower()
    if text.startswith("unclear"):
        choices.ignored.append(f"option {key}={value}: not certain")
        return
    kind = "none" if re.fullmatch(r"none *(\(.*\))?", text) else GRAPHS.get(folded(value)) or _captured(text)
    if kind is not None:
        choices.state(key, "software", cuda_graphs=kind)
    elif _captures_parts(text):
        choices.assumed.append(f"{key} {value} is taken as graphs of parts of a layer")
        choices.state(key, "software", cuda_graphs="partial")
    else:
        choices.not_known(key, value, "full, none or parts of a layer", guess(value, GRAPHS))


def _captured(text: str) -> str | None:
    """Kind of the graphs of parts behind an implementation; None where a word is unknown."""
    implementation, parts = _scope(text)
    if implementation not in {"", *GRAPH_MAKERS} or not parts <= GRAPH_PARTS:
        return None
    if "fulliteration" in parts:
        return "full"
    return "router" if parts and parts <= ROUTER_PARTS else "partial"


def _captures_parts(text: str) -> bool:
    """Whether the implementation or one of the parts is known."""
    implementation, parts = _scope(text)
    return implementation in GRAPH_MAKERS or bool(parts & GRAPH_PARTS)


def _scope(text: str) -> tuple[str, set[str]]:
    """Implementation in front of the colon, and the parts that it captures."""
    implementation, _, listed = text.rpartition(":")
    return folded(implementation), {folded(part) for part in re.split(r"[+,]", listed)}


def _capacity(choices: Choices, key: str, value: str) -> None:
    """Experts take a fixed number of tokens where a factor is given; MaxText writes -1 where none is."""
    none = folded(value) in ("no", "none", "false", "off") or _number(value) == -1
    if none or 0 < _number(value) < math.inf:
        choices.state(key, "software", moe_capacity=not none)
    else:
        choices.not_known(key, value, "a number above zero, or no")


def _imbalance(choices: Choices, key: str, value: str) -> None:
    """Load of the most loaded rank of experts; balanced routing is 1."""
    ratio = {"no": 1.0, "none": 1.0, "balanced": 1.0, "forced": 1.0}.get(folded(value), _number(value))
    if 1 <= ratio <= MOST_IMBALANCE:
        choices.state(key, "job", moe_imbalance=ratio)
    else:
        choices.not_known(key, value, f"a number from 1 to {MOST_IMBALANCE:g}, or balanced")


def _number(text: str) -> float:
    """NaN where the text is not a number."""
    try:
        return math.nan if "_" in text else float(text)
    except ValueError:
        return math.nan


def _primary_weights(choices: Choices, key: str, value: str) -> None:
    """Number format of the weights between steps; formats of 8 bits or fewer leave no 16-bit copy."""
    name = PRECISIONS.get(folded(value)) or re.split("[-_ ]", value.lower())[0]  # fp8_e4m3
    if name in (*PRECISIONS.values(), "fp4"):
        choices.state(key, "software", quantised_weights=name not in ("fp32", "bf16", "fp16"))
    else:
        choices.not_known(key, value, one_of((*PRECISIONS.values(), "fp4")))


def _reshard(choices: Choices, key: str, value: str) -> None:
    """Weights that stay gathered from forward to backward: only gradients and states are sharded, as in zero2."""
    sharding = choices.plan.get("sharding")
    over_ranks = is_count(value) and int(value) > 1
    if not over_ranks and folded(value) not in RESHARDED:
        choices.not_known(key, value, "always, never, default or a number of ranks")
    elif sharding not in ("zero3", "hsdp"):
        choices.ignored.append(f"option {key}={value}: {sharding} does not shard weights")
    elif over_ranks:
        choices.assumed.append(f"weights are resharded over {value} ranks after the forward pass: taken as {sharding}")
    elif RESHARDED[folded(value)] is False and sharding == "zero3":
        choices.plan["sharding"] = "zero2"
        choices.assumed.append("weights stay gathered after the forward pass: taken as zero2")


def _dropout(choices: Choices, key: str, value: str) -> None:
    """A switch, or the probability."""
    flag = FLAGS.get(folded(value), _number(value) > 0)
    if folded(value) in FLAGS or 0 <= _number(value) < 1:
        choices.state(key, "job", dropout=flag)
    else:
        choices.not_known(key, value, "yes, no or a probability below 1")


def _lora_rank(choices: Choices, key: str, value: str) -> None:
    if is_count(value) and 0 < int(value) <= MOST_RANK:
        choices.state(key, "job", lora_rank=int(value))
    else:
        choices.not_known(key, value, f"a whole number from 1 to {MOST_RANK:,}")


def _lora_targets(choices: Choices, key: str, value: str) -> None:
    """Names of matrices as frameworks give them."""
    named = [LORA_MATRICES.get(folded(word), "") for word in value.split(",")]
    try:
        lora_targets(",".join(named))
    except InputError:
        choices.not_known(key, value, f"names among {', '.join(LORA_TARGETS)}")
    else:
        choices.state(key, "job", lora_targets=",".join(named))


def _network(choices: Choices, key: str, value: str) -> None:
    choices.network = cast("LinkType | None", choices.meant(key, value, NETWORKS))


def _compile(choices: Choices, key: str, value: str) -> None:
    is_compiled = choices.meant(key, value, COMPILED)
    if is_compiled is not None:
        choices.state(key, "software", kernels="fused" if is_compiled else "eager")


def _vocabulary_tiling(choices: Choices, key: str, value: str) -> None:
    """Pieces in which the loss is computed; one is the whole."""
    if is_count(value) and int(value) >= 1:
        choices.state(key, "software", fused_loss=int(value) > 1)
    else:
        choices.not_known(key, value, "a whole number from 1")


def _schedule(choices: Choices, key: str, value: str) -> None:
    """The schedule, or the nearest to one that is not modelled."""
    word = folded(value).removeprefix("schedule")  # classes of torch.distributed.pipelining
    nearest = NOT_MODELLED.get(word)
    if word in SCHEDULES:
        choices.state(key, "plan", schedule=SCHEDULES[word])
    elif nearest is not None:
        choices.state(key, "plan", schedule=nearest)
        choices.say_taken(f"schedule {value} is taken as {nearest}")
    else:
        choices.not_known(key, value, one_of(SCHEDULES.values()), guess(word, SCHEDULES))
        choices.assumed.append(
            f"schedule {value[:MOST_SHOWN]} is priced as interleaved where vp is above 1, else as 1f1b"
        )


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
        choices.not_known(key, value, "stages between '|' of t (layer), E, m, L, with *n and (...)*n")
    else:
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


def _placement(choices: Choices, key: str, value: str) -> None:
    try:
        placement_tokens(value.lower())
    except InputError:
        choices.not_known(key, value, f"an order such as {DEFAULT_PLACEMENT}")
    else:
        choices.state(key, "plan", placement=value.lower())


Apply = Callable[[Choices, str, str], None]


def _word(part: Part, field: str, table: Mapping[str, object]) -> Apply:
    """An option that sets one field to one of the words of a table."""

    def apply(choices: Choices, key: str, value: str) -> None:
        meant = choices.meant(key, value, table)
        if meant is not None:
            choices.state(key, part, **{field: meant})

    return apply


def _trained(choices: Choices, key: str, value: str) -> None:
    """All weights or adapters; those of QLoRA are next to weights in 4 bits."""
    meant = choices.meant(key, value, TRAINED)
    if meant is None:
        return
    base = BASE_WEIGHTS.get(folded(choices.run.options.get("base_weights", "")))
    stated = {"train": meant, **qlora_in_full(meant, "same")}
    left = ["base_weights"] if base not in (None, "same") else []  # which says more
    choices.state(key, "job", **{name: each for name, each in stated.items() if name not in left})


OPTIONS: Final[Mapping[str, Apply]] = {
    "features": _features,
    "overlap": _overlap,
    "moe_a2a_1f1b": _word("plan", "overlap_ep", FLAGS),
    "cuda_graph": _cuda_graph,
    "cuda_launch_blocking": _word("software", "blocking_launches", FLAGS),
    "moe_capacity_factor": _capacity,
    "moe_imbalance": _imbalance,
    "optimizer_moments": _word("job", "moment_dtype", DTYPES),
    "optimizer": _word("job", "optimizer", OPTIMIZERS),
    "primary_weights": _primary_weights,
    "reshard_after_forward": _reshard,
    "compile": _compile,
    "torch_compile": _compile,
    "num_vocab_tiling": _vocabulary_tiling,
    "schedule": _schedule,
    "cp_comm_type": _word("plan", "cp_comm", CP_COMMS),
    "recompute_layers": recompute_layers,
    "recompute_num_layers": recompute_layers,
    "cpu_activation_offload_layers": offloaded_layers,
    "offload_num_layers": offloaded_layers,
    "remat_policy": remat_policy,
    "remat_tensors": remat_tensors,
    "pp_layout": _layout,
    "dropout": _dropout,
    "placement": _placement,
    "network": _network,
    "train": _trained,
    "lora_rank": _lora_rank,
    "lora_targets": _lora_targets,
    "base_weights": _word("job", "base_weights", BASE_WEIGHTS),
    **{field.name: _word("software", field.name, SOFTWARE_WORDS.get(field.name, FLAGS)) for field in fields(Software)},
    "moe_dispatcher": _word("software", "moe_dispatcher", DISPATCHERS),
}
"""What each key does, in the order in which they apply."""

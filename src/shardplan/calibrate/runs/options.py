"""The ``options`` of a measured run: every known key changes fields of ``Software``, ``Job`` or ``Plan``.

Words are read by tables of their names. A value that is not understood sets nothing: the framework's default stays, and
the prediction says so. Keys that change nothing in the estimate are known and reported as without effect;
others are kept and reported.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Final, cast

from shardplan.base.errors import InputError
from shardplan.base.words import FLAGS, folded, guess, one_of
from shardplan.calibrate.runs import option_words as tables
from shardplan.calibrate.runs.choices import MOST_SHOWN, Choices, Part
from shardplan.inputs.cluster import LinkType
from shardplan.inputs.job import MOST_RANK, qlora_in_full
from shardplan.inputs.plan import DEFAULT_PLACEMENT, placement_tokens
from shardplan.inputs.routing import BALANCED, WORDS, routing_of
from shardplan.inputs.software import Software
from shardplan.inputs.trained import LORA_TARGETS, lora_targets
from shardplan.inputs.words import (
    BASE_WEIGHTS,
    CP_COMMS,
    DISPATCHERS,
    DTYPES,
    FP8_SCALINGS,
    GRAPHS,
    LORA_MATRICES,
    OPTIMIZERS,
    PRECISIONS,
    SCHEDULES,
    TRAINED,
)


def apply_options(choices: Choices) -> None:
    """Applies every option of the run, in the order of ``OPTIONS``. Raises ``InputError``."""
    stated = choices.run.options
    for key, apply in OPTIONS.items():
        if key in stated:
            apply(choices, key, stated[key])
    for key, value in stated.items():
        if key in choices.unclear:
            continue
        if key in tables.WITHOUT_EFFECT:
            choices.ignored.append(f"option {key}={value}: {tables.WITHOUT_EFFECT[key]}")
        elif key not in OPTIONS:
            choices.say_unknown(f"option {key}={value}")


def _overlap(choices: Choices, key: str, value: str) -> None:
    """Kinds of communication that overlap with computation; those not named keep the framework's default."""
    words: dict[str, str] = {}
    chosen: dict[str, bool] = {}
    for word in (word.strip() for word in value.split(",") if word.strip()):
        settings, runs = tables.OVERLAP_WORDS.get(folded(word), {}), tables.SOFTWARE_OVERLAPS.get(folded(word), {})
        choices.state(key, "software", **runs)
        if not (settings or runs):
            choices.not_known(key, word, one_of(tables.OVERLAPS), guess(word, tables.OVERLAP_NAMES))
        for name, flag in settings.items():
            if chosen.setdefault(name, flag) != flag:
                raise choices.contradicts_itself(key, value, f"{words[name]} and {word} exclude each other")
            words[name] = word
    if not value.strip(" ,"):
        choices.not_known(key, value, "a comma list of what overlaps")
    choices.state(key, "plan", **chosen)


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
    """Kind of the graphs for parts after an implementation; None if a word is unknown."""
    implementation, parts = _scope(text)
    if implementation not in {"", *tables.GRAPH_MAKERS} or not parts <= tables.GRAPH_PARTS:
        return None
    if "fulliteration" in parts:
        return "full"
    return "router" if parts and parts <= tables.ROUTER_PARTS else "partial"


def _captures_parts(text: str) -> bool:
    """Whether the implementation or one of the parts is known."""
    implementation, parts = _scope(text)
    return implementation in tables.GRAPH_MAKERS or bool(parts & tables.GRAPH_PARTS)


def _scope(text: str) -> tuple[str, set[str]]:
    """Implementation before the colon, and the captured parts."""
    implementation, _, listed = text.rpartition(":")
    return folded(implementation), {folded(part) for part in re.split(r"[+,]", listed)}


def _scaling(choices: Choices, key: str, value: str) -> None:
    """Scaling of 8-bit products, and whether weights are gathered so; other blocks are priced by the precision."""
    scaled, _, gathered = value.partition("+")
    scaling = FP8_SCALINGS.get(folded(scaled))
    if folded(gathered) == "fp8allgather":
        choices.state(key, "software", quantised_gathers=True)
    if scaling is None:
        choices.ignored.append(f"option {key}={value}: the constants speak of the precision, not of its blocks")
    else:
        choices.state(key, "software", fp8_scaling=scaling)


def _reshard(choices: Choices, key: str, value: str) -> None:
    """Weights that stay gathered from forward to backward: only gradients and states are sharded, as in zero2."""
    sharding = choices.plan.get("sharding")
    over_ranks = (_count(value) or 0) > 1
    if not over_ranks and folded(value) not in tables.RESHARDED:
        choices.not_known(key, value, "always, never, default or a number of ranks")
    elif sharding not in ("zero3", "hsdp"):
        choices.ignored.append(f"option {key}={value}: {sharding} does not shard weights")
    elif over_ranks:
        choices.assumed.append(f"weights are resharded over {value} ranks after the forward pass: taken as {sharding}")
    elif tables.RESHARDED[folded(value)] is False and sharding == "zero3":
        choices.plan["sharding"] = "zero2"
        choices.assumed.append("weights stay gathered after the forward pass: taken as zero2")


def _network(choices: Choices, key: str, value: str) -> None:
    choices.network = cast("LinkType | None", choices.meant(key, value, tables.NETWORKS))


def _memory_rank(choices: Choices, key: str, value: str) -> None:
    """Pipeline rank whose peak is stated, if it may not be the fullest; ``first`` and ``last`` are its ends."""
    word, pp = folded(value), int(choices.plan.get("pp", 1))
    rank = METERED.get(word, _count(word))
    if word in METERED or (rank is not None and rank < pp):
        choices.metered_rank = rank
    else:
        choices.not_known(key, value, f"fullest, first, last or a pipeline rank from 0 to {pp - 1}")


METERED: Final[Mapping[str, int | None]] = {"fullest": None, "first": 0, "last": -1}


def _schedule(choices: Choices, key: str, value: str) -> None:
    """The schedule, or the nearest to one that is not modelled."""
    word = folded(value).removeprefix("schedule")  # classes of torch.distributed.pipelining
    nearest = tables.NOT_MODELLED.get(word)
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
    """Free text: words that name kernels are understood, the rest is reported. Separate options override it."""
    for word, settings in tables.FEATURES.items():
        if re.search(word, value, flags=re.IGNORECASE):
            choices.software.update(settings)
    choices.ignored.append(f"features: {value}")


def layers_of_layout(text: str) -> tuple[int, ...] | None:
    """Layers of each chunk of a Megatron pipeline layout such as ``Et|(tt|)*30L``; None if it cannot be read."""
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


Apply = Callable[[Choices, str, str], None]
Settings = Mapping[str, object]
MOST_DIGITS: Final = 6


def _sets(part: Part, read: Callable[[str], Settings | None], allowed: str, names: Mapping[str, str] = {}) -> Apply:
    """An option that sets the fields that ``read`` returns; None means that the value is not understood.

    ``names`` are candidates for what was meant then.
    """

    def apply(choices: Choices, key: str, value: str) -> None:
        settings = read(value)
        if settings is None:
            choices.not_known(key, value, allowed, guess(value, names))
        else:
            choices.state(key, part, **settings)

    return apply


def _value(part: Part, field: str, read: Callable[[str], object], allowed: str) -> Apply:
    """An option that sets one field to what ``read`` returns; None means that the value is not understood."""
    return _sets(part, lambda text: None if (found := read(text)) is None else {field: found}, allowed)


def _word(part: Part, field: str, table: Mapping[str, object], values: Mapping[object, object] = {}) -> Apply:
    """An option that sets one field to a word of a table; ``values`` are the field's own names for some words."""

    def apply(choices: Choices, key: str, value: str) -> None:
        meant = choices.meant(key, value, table)
        if meant is not None:
            choices.state(key, part, **{field: values.get(meant, meant)})

    return apply


def _number(text: str) -> float:
    """The number in a text; NaN if it is none."""
    try:
        return math.nan if "_" in text else float(text)
    except ValueError:
        return math.nan


def _count(text: str) -> int | None:
    """A whole number of a plausible size; None if the text is none."""
    return int(text) if text.isdecimal() and len(text) <= MOST_DIGITS else None


def _capacity(value: str) -> bool | None:
    """Whether experts take a fixed number of tokens, which a factor means; MaxText writes -1 for none."""
    none = folded(value) in ("no", "none", "false", "off") or _number(value) == -1
    return not none if none or 0 < _number(value) < math.inf else None


ROUTINGS: Final = {"no": BALANCED, "none": BALANCED, "forced": BALANCED, "natural": "learned"}
WEIGHTS: Final = (*PRECISIONS.values(), "fp4")


def _quantised(value: str) -> bool | None:
    """Whether weights have a number format of 8 bits or fewer between steps, which leaves no 16-bit copy."""
    name = PRECISIONS.get(folded(value)) or re.split("[-_ ]", value.lower())[0]  # fp8_e4m3
    return name not in ("fp32", "bf16", "fp16") if name in WEIGHTS else None


def _dropout(value: str) -> bool | None:
    """A switch, or the probability."""
    flag = FLAGS.get(folded(value), _number(value) > 0)
    return flag if folded(value) in FLAGS or 0 <= _number(value) < 1 else None


def _lora_targets(value: str) -> str | None:
    """Names of matrices in the words of frameworks."""
    return _accepted(lora_targets, ",".join(LORA_MATRICES.get(folded(word), "") for word in value.split(",")))


def _accepted(read: Callable[[str], object], text: str) -> str | None:
    """The text, if ``read`` accepts it."""
    try:
        read(text)
    except InputError:
        return None
    return text


def _offloaded_layers(value: str) -> Settings | None:
    """Offloads the activations of this number of layers of each stage to the host."""
    layers = _count(value)
    if layers is None:
        return None
    return {"offload": "activations" if layers else "none", "offload_num_layers": layers or None}


def _remat_policy(value: str) -> Settings | None:
    """MaxText's named policies; the tensors of ``custom`` are in ``remat_tensors``, or listed after a colon."""
    name, _, listed = value.partition(":")
    if folded(name) == "custom" and listed:
        return _listed_tensors(listed)
    policy = tables.POLICIES.get(folded(value))
    return {} if folded(value) == "custom" else None if policy is None else {"recompute": policy}


def _listed_tensors(text: str) -> Settings | None:
    """Tensors that share a place: ``context, q, k, v kept on device``, ``decoder_layer_input & out_proj offload``."""
    found = re.fullmatch(r"(.+?) *(?:kept )?(?:on )?(device|offload)(?:ed)?", text.strip())
    if found is None:
        return None
    names = [name.strip() for name in re.split(r"[,&]", found[1])]
    return _remat_tensors(",".join(f"{tables.SHORT_TENSORS.get(name, name)}:{found[2]}" for name in names))


def _remat_tensors(value: str) -> Settings | None:
    """Named tensors that stay on the device or are offloaded to the host; all others are recomputed."""
    listed = [word.strip() for word in value.split(",") if word.strip()]
    items = [re.fullmatch(r"([^:\s]+) *: *(device|offload|remat)", word) for word in listed]
    places = {item[1]: item[2] for item in items if item}
    if not items or len(places) < len(items):
        return None
    kept = {name for name, place in places.items() if place != "remat"}
    if not (kept >= tables.PROJECTIONS or "qkv_proj" in kept):
        return {"recompute": "full"}
    modules = ["layernorm", "activation"]
    modules += [] if "context" in kept else ["core_attn"]
    modules += [] if kept & {"mlpwi", "mlpwi_0"} else ["mlp"]
    return {"recompute": ",".join(modules)}


def _trained(choices: Choices, key: str, value: str) -> None:
    """All weights or adapters; those of QLoRA are on 4-bit weights."""
    meant = choices.meant(key, value, TRAINED)
    if meant is None:
        return
    base = BASE_WEIGHTS.get(folded(choices.run.options.get("base_weights", "")))
    stated = {"train": meant, **qlora_in_full(meant, "same")}
    left = ["base_weights"] if base not in (None, "same") else []  # the base weights say more
    choices.state(key, "job", **{name: each for name, each in stated.items() if name not in left})


LAYERS: Final = "a whole number of layers of each stage"
COMPILES: Final = _word("software", "kernels", tables.COMPILED, {True: "fused", False: "eager"})
RECOMPUTES: Final = _value("plan", "recompute_num_layers", _count, LAYERS)
OFFLOADS: Final = _sets("plan", _offloaded_layers, LAYERS)
ROUTES: Final = _value(
    "job",
    "routing",
    lambda text: _accepted(routing_of, ROUTINGS.get(folded(text), text)),
    f"{', '.join(WORDS)}, a ratio from 1, or shares of all experts",
)
OPTIONS: Final[Mapping[str, Apply]] = {
    "features": _features,
    "overlap": _overlap,
    "moe_a2a_1f1b": _word("plan", "overlap_ep", FLAGS),
    "cuda_graph": _cuda_graph,
    "fp8_recipe": _scaling,
    "cuda_launch_blocking": _word("software", "blocking_launches", FLAGS),
    "moe_capacity_factor": _value("software", "moe_capacity", _capacity, "a number above zero, or no"),
    "routing": ROUTES,
    "moe_imbalance": ROUTES,
    "optimizer_moments": _word("job", "moment_dtype", DTYPES),
    "optimizer": _word("job", "optimizer", OPTIMIZERS),
    "primary_weights": _value("software", "quantised_weights", _quantised, one_of(WEIGHTS)),
    "reshard_after_forward": _reshard,
    "compile": COMPILES,
    "torch_compile": COMPILES,
    "num_vocab_tiling": _value(  # pieces in which the loss is computed; one is the whole
        "software", "fused_loss", lambda text: pieces > 1 if (pieces := _count(text)) else None, "a whole number from 1"
    ),
    "schedule": _schedule,
    "cp_comm_type": _word("plan", "cp_comm", CP_COMMS),
    "recompute_layers": RECOMPUTES,
    "recompute_num_layers": RECOMPUTES,
    "cpu_activation_offload_layers": OFFLOADS,
    "offload_num_layers": OFFLOADS,
    "remat_policy": _sets(
        "plan", _remat_policy, one_of((*tables.POLICY_NAMES.values(), "custom")), tables.POLICY_NAMES
    ),
    "remat_tensors": _sets(
        "plan", _remat_tensors, "a comma list of name:device, name:offload or name:remat, each name once"
    ),
    "pp_layout": _value(
        "plan", "stage_layers", layers_of_layout, "stages between '|' of t (layer), E, m, L, with *n and (...)*n"
    ),
    "dropout": _value("job", "dropout", _dropout, "yes, no or a probability below 1"),
    "placement": _value(
        "plan",
        "placement",
        lambda text: _accepted(placement_tokens, text.lower()),
        f"an order such as {DEFAULT_PLACEMENT}",
    ),
    "network": _network,
    "memory_rank": _memory_rank,
    "train": _trained,
    "lora_rank": _value(
        "job",
        "lora_rank",
        lambda text: rank if (rank := _count(text) or 0) and rank <= MOST_RANK else None,
        f"a whole number from 1 to {MOST_RANK:,}",
    ),
    "lora_targets": _value("job", "lora_targets", _lora_targets, f"names among {', '.join(LORA_TARGETS)}"),
    "base_weights": _word("job", "base_weights", BASE_WEIGHTS),
    **{
        field.name: _word("software", field.name, tables.SOFTWARE_WORDS.get(field.name, FLAGS))
        for field in fields(Software)
    },
    "moe_dispatcher": _word("software", "moe_dispatcher", DISPATCHERS),
}
"""The effect of each key, in the order in which they apply."""

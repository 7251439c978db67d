"""What a line of Megatron-LM says of recomputation."""

from __future__ import annotations

from shardplan.inputs.words import RECOMPUTE_WORDS
from shardplan.launch.dialects.reading import Fact, Facts
from shardplan.launch.dialects.settings import Option, Options, state
from shardplan.launch.dialects.values import whole
from shardplan.words import folded


def recompute(facts: Facts, options: Options) -> None:
    """Granularity and modules; ``--recompute-activations`` is selective; old options recompute every layer."""
    granularity = options.first("recompute-granularity")
    if granularity is not None and granularity.value == "selective":
        _modules(facts, granularity, options.first("recompute-modules"))
    elif granularity is not None:
        state(facts, "recompute", granularity, lambda value: "full" if value == "full" else None)
    short = options.first("recompute-activations")
    if short is not None:
        _modules(facts, short, options.first("recompute-modules"))
    experts = options.first("moe-layer-recompute")
    if experts is not None and facts.value("recompute") in (None, "selective"):
        word = "core_attn,moe" if facts.value("recompute") else "moe"
        facts.replace("recompute", Fact(value=word, origin="stated", why=experts.place))
        facts.options["recompute"] = experts.name
    old, alone = (
        options.first("checkpoint-activations", "activations-checkpoint-method"),
        options.first("deepspeed-activation-checkpointing"),
    )
    if alone is not None and old is None and granularity is None and short is None:
        facts.note(f"{alone.place} says how, and without --checkpoint-activations nothing is recomputed")
    if old is not None:
        facts.derive("recompute", "full", f"{old.place} recomputes every layer", old.name)
    facts.assume("recompute", "none")
    _recomputed_layers(facts, options)


def _modules(facts: Facts, granularity: Option, modules: Option | None) -> None:
    """Modules of selective recomputation; the attention core where none are named."""
    if modules is None:
        facts.state("recompute", "selective", granularity.place, granularity.name)
        return
    if modules.value is None:
        facts.miss("recompute", modules.needs or (modules.place,))
        return
    words = [RECOMPUTE_WORDS.get(folded(word)) for word in modules.value.replace(",", " ").split()]
    unknown = [word for word, meant in zip(modules.value.split(), words, strict=False) if meant is None]
    if unknown:
        facts.doubt(f"{modules.place} {' '.join(unknown)}")
        facts.miss("recompute", (modules.place,))
    else:
        named = dict.fromkeys(word for word in words if word is not None)
        facts.state(
            "recompute", "selective" if list(named) == ["core_attn"] else ",".join(named), modules.place, modules.name
        )


def _recomputed_layers(facts: Facts, options: Options) -> None:
    """The number of layers counts with the method ``block``; with ``uniform`` it is the size of a piece."""
    method = options.first("recompute-method", "activations-checkpoint-method")
    layers = options.first("recompute-num-layers", "activations-checkpoint-num-layers", "checkpoint-num-layers")
    if facts.value("recompute") != "full" or layers is None:
        return
    if method is not None and method.value == "block":
        state(facts, "recompute_num_layers_per_chunk", layers, whole)
    elif layers.value is not None and whole(layers.value) not in {1, None}:
        facts.note(f"{layers.place} {layers.value}: pieces of several layers keep fewer inputs than priced")

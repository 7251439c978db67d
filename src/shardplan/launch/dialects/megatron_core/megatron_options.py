"""Options of Megatron-LM's record, and rules on the model, recomputation and exchange of experts.

``megatron/core/transformer/transformer_config.py`` of 2026-08-22 (d98e8a64): ``moe_flex_dispatcher_backend`` is read
with ``moe_token_dispatcher_type`` ``flex`` alone, ``moe_enable_deepep`` and the backend ``ncclep`` stop without it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from shardplan.base.words import folded
from shardplan.inputs.words import RECOMPUTE_WORDS
from shardplan.launch.dialects.megatron_core.megatron_stages import layer_pattern
from shardplan.launch.dialects.models import named_model
from shardplan.launch.dialects.reading import Fact, Facts
from shardplan.launch.dialects.records import Dialect
from shardplan.launch.dialects.settings import Option, Options, state
from shardplan.launch.dialects.values import degree, whole
from shardplan.physics.frameworks.option_entries import bare_options

RECORD: Final = Dialect(name="megatron-lm")
VERSION: Final = RECORD.version
BARE: Final = frozenset({
    *RECORD.words("bare").split(), *RECORD.words("kernels"), *RECORD.words("switches"),
    *(name for stack in RECORD.words("stacks") for name in bare_options(stack)),
}) - {"cpu-offloading-num-layers"}  # fmt: skip
"""Options without a value: those that the records write so, switches, and others that are listed."""
SHARDINGS: Final[Mapping[str, str]] = RECORD.words("shardings")
"""``--data-parallel-sharding-strategy`` of Megatron-FSDP."""
TOKENIZERS: Final[Mapping[str, Mapping[str, Any]]] = RECORD.words("tokenizers")
"""Words of the vocabulary that a tokenizer's kind is used with: an assumption, which the answer states."""
OLD: Final = frozenset(RECORD.words("old").split())
"""Names that only versions of 2019 to 2022 have."""


UNSUPPORTED: Final[Mapping[str, str]] = RECORD.words("unsupported")
"""Options of models whose dimensions are not read into layers: ``--model`` names them."""


IMAGES: Final = ("vision-model-type", "img-h")
"""Options of models with a vision encoder, whose ``--seq-length`` is that of the encoder."""


def sequence_of_images(facts: Facts, options: Options) -> None:
    """The sequence of the language model next to a vision encoder (``examples/multimodal/model.py``)."""
    if options.first(*IMAGES) is not None:
        state(facts, "sequence_length", options.first("decoder-seq-length"), degree)


def model_rules(facts: Facts, options: Options) -> None:
    """Widths, heads and switches of the layers."""
    _hybrid(facts, options)
    _heads(facts, options)
    _width(facts, options)
    _experts(facts, options)
    _switches(facts, options)
    options.seen.update(UNSUPPORTED)
    for name, what in UNSUPPORTED.items():
        if name in options:
            facts.note(f"{options.given[name].place}: {what}; its layers are not built from options: give --model")
            facts.miss("model", (f"{what}: --model",))
            break
    spec = options.first("spec")
    if spec is not None and spec.value not in {None, "None", "local"}:
        facts.note(f"{spec.place} {spec.value}: its code builds the layers; they are taken as the options say")
    if options.first("use-checkpoint-args", "use-mp-args-from-checkpoint-args") is not None:
        facts.note("dimensions of a checkpoint replace those of the line (--use-checkpoint-args)")


def _hybrid(facts: Facts, options: Options) -> None:
    """The letters of a hybrid pattern are its layers."""
    option = options.first("hybrid-layer-pattern", "hybrid-override-pattern")
    if option is None or option.value is None:
        return
    letters = option.value.split("/", maxsplit=1)[0].replace("|", "")
    facts.derive("num_hidden_layers", len(letters), f"{option.place}: its letters", option.name)


def _heads(facts: Facts, options: Options) -> None:
    """Key-value heads count only with ``--group-query-attention``."""
    grouped, groups = options.first("group-query-attention"), options.first("num-query-groups", "num-key-value-heads")
    if groups is not None and (grouped is not None or groups.name == "num-key-value-heads"):
        state(facts, "num_key_value_heads", groups, degree)
    elif groups is not None and groups.value not in {None, "1"}:
        facts.breaks_rule(
            "query groups need grouped attention",
            f"{groups.place} {groups.value} without --group-query-attention: every head has its own keys and values",
            "add --group-query-attention",
            "changes",
        )
    elif grouped is not None:
        facts.assume("num_key_value_heads", 1, "--group-query-attention without --num-query-groups")
    kind = options.first("attention-head-type")
    if kind is not None and kind.value == "multiquery":
        facts.state("num_key_value_heads", 1, kind.place, kind.name)
    heads = facts.number("num_attention_heads")
    if heads is not None:
        facts.assume("num_key_value_heads", heads, "as many as heads, without --group-query-attention")


def _width(facts: Facts, options: Options) -> None:
    """Four times the hidden size; with ``--swiglu`` two thirds of it, in whole 64s."""
    hidden = facts.number("hidden_size")
    if hidden is None:
        return
    multiple = options.first("multiple-of")
    size = None if multiple is None else degree(multiple.value)
    if "swiglu" in options and multiple is not None and size and "hidden-dim-multiplier" not in options:
        rule = f"int(8 h / 3) in whole {size}s ({multiple.place})"
        facts.derive("intermediate_size", -(-int(4 * hidden * 2 / 3) // size) * size, rule, multiple.name)
    elif "swiglu" in options:
        facts.assume("intermediate_size", int(4 * hidden * 2 / 3 / 64) * 64, "int(8 h / 3 / 64) x 64 with --swiglu")
    else:
        facts.assume("intermediate_size", 4 * hidden, "4 h")


def _experts(facts: Facts, options: Options) -> None:
    if "num_experts" not in facts:
        return
    by_deepspeed = facts.framework == "megatron-deepspeed"
    if by_deepspeed or any(name.startswith("moe-") for name in options.given):
        facts.assume("num_experts_per_tok", 1 if by_deepspeed else 2)
    else:
        facts.miss(
            "num_experts_per_tok",
            ("1 without --moe-router-topk up to 2023, 2 since",),
        )
    width = facts.number("intermediate_size")
    if width is not None:
        facts.assume("moe_intermediate_size", width, "as wide as the dense layers")
    frequency = options.first("moe-layer-freq", "expert-interval")
    state(facts, "moe_layer_freq", frequency, lambda value: layer_pattern(str(value)))
    facts.assume("moe_layer_freq", 2 if by_deepspeed else 1)


def _switches(facts: Facts, options: Options) -> None:
    """What holds without a switch: activation, biases, tying, norms, positions and overlap."""
    for name, (key, value) in RECORD.words("without").items():
        facts.assume(key, value, f"without --{name}")
    facts.assume("normalization", "LayerNorm")
    facts.assume("position_embedding_type", "learned_absolute")
    if facts.value("position_embedding_type") == "mrope":
        facts.doubt("positions of images (mrope): the text model alone is priced, without what reads images")
    without = options.first("no-rope-freq")
    if without is not None:
        facts.note(f"{without.place} {without.value}: layers without rotary positions are priced with them")
    _vocabulary(facts, options)


def _vocabulary(facts: Facts, options: Options) -> None:
    """Of the model whose tokenizer is named; of the tokenizer's kind where no file is named that may hold another."""
    named = [option for name in FILES if (option := options.first(name))]
    shown = " ".join(word.shown for option in named for word in option.words)
    of_file = (kind for kind, each in TOKENIZERS.items() if re.search(str(each["names"]), shown.lower()))
    kind = str(facts.value("tokenizer_type") or next(of_file, ""))
    of_model = next((model for option in named[:1] if (model := named_model(option.value))), None)
    if of_model is not None:
        rule = f"{named[0].place} {named[0].value}: the vocabulary of {of_model.name}"
        facts.derive("vocab_size", of_model.vocab_size, rule, named[0].name)
    elif kind in TOKENIZERS and "vocab_size" not in facts and _is_usual(shown, str(TOKENIZERS[kind]["names"])):
        facts.assume_because("vocab_size", TOKENIZERS[kind]["size"], f"the usual vocabulary of {kind}")
    facts.miss(
        "vocab_size",
        (f"the tokenizer {' '.join(option.value or ' '.join(option.needs) for option in named[:1])}".strip(),),
    )


FILES: Final = ("tokenizer-model", "tokenizer-name-or-path", "vocab-file")
"""Options that name the tokenizer's file or model."""
_OF_ANY: Final = re.compile(
    r"(?:<[^<>]*>|/)*(?:[\w.-]*/)*(?:tokenizer|vocab|encoder|bpe|spm?)?\.?(?:model|json|txt|bpe)?"
)
"""Paths whose file says nothing of what is in it."""
_OF_OTHERS: Final = re.compile(
    r"llama[-_]?3|code|mi[sx]tral|yi-|qwen|deepseek|baichuan|gemma|phi-|falcon|internlm|aquila|swallow|chinese"
    r"|japanese|\d{2,3}k\b|neox|bloom|opt-|multilingual"
)
"""Words of paths to tokenizers of other sizes."""


def _is_usual(shown: str, names: str) -> bool:
    """Whether a tokenizer's file may be the usual one of its kind: it is called so, or nothing says otherwise."""
    path = shown.lower()
    if _OF_OTHERS.search(re.sub(r"<[^<>]*>", "", path)):
        return False
    return re.search(names, path) is not None or _OF_ANY.fullmatch(path) is not None


def recompute(facts: Facts, options: Options) -> None:
    """Granularity and modules; ``--recompute-activations`` is selective; old options recompute every layer."""
    granularity = options.first("recompute-granularity")
    if granularity is not None and granularity.value == "selective":
        _recomputed_modules(facts, granularity, options.first("recompute-modules"))
    elif granularity is not None:
        state(facts, "recompute", granularity, lambda value: "full" if value == "full" else None)
    short = options.first("recompute-activations")
    if short is not None:
        _recomputed_modules(facts, short, options.first("recompute-modules"))
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


def _recomputed_modules(facts: Facts, granularity: Option, modules: Option | None) -> None:
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


KEY: Final = "software.moe_dispatcher"
TYPES: Final = {"allgather": "alltoall", "alltoall": "alltoall", "alltoall_seq": "alltoall"}
"""Types besides ``flex``, and what they are priced as."""
BACKENDS: Final = {"deepep": "deepep", "hybridep": "hybridep"}


def dispatch(facts: Facts, options: Options) -> None:
    """The type decides; ``flex`` runs on a backend. A line over a recipe may name the backend alone."""
    kind, deep = options.first("moe-token-dispatcher-type"), options.first("moe-enable-deepep")
    backend = options.first("moe-flex-dispatcher-backend")
    over_recipe = kind is None and facts.framework not in ("megatron-lm", "megatron-deepspeed")
    if kind is not None and kind.value is None:
        facts.miss(KEY, kind.needs or (kind.place,))
    elif (kind is not None and kind.value == "flex") or (over_recipe and (deep or backend)):
        _flex(facts, deep or backend or kind, backend if deep is None else None)
    else:
        state(facts, KEY, kind, lambda value: TYPES.get(str(value)))
        facts.assume(KEY, "alltoall", "allgather, priced as alltoall")
        _without_flex(facts, deep, backend)


def _flex(facts: Facts, named: Option | None, backend: Option | None) -> None:
    """DeepEP where no other backend is named."""
    if backend is None and named is not None:
        facts.derive(KEY, "deepep", f"{named.place}: the backend of flex where no other is named", named.name)
    else:
        state(facts, KEY, backend, lambda value: BACKENDS.get(str(value)))


def _without_flex(facts: Facts, deep: Option | None, backend: Option | None) -> None:
    """Options of ``flex`` next to another type: without effect, or the end of the run."""
    stops = deep or (backend if backend is not None and backend.value == "ncclep" else None)
    each = stops or backend
    if each is not None:
        facts.breaks_rule(
            "a backend of the flex dispatcher needs --moe-token-dispatcher-type flex",
            f"{each.place} {each.value or ''}".rstrip() + ": the dispatcher is of another type"
            + ("" if stops else ", and the backend has no effect"),
            "set --moe-token-dispatcher-type flex, or leave the option out",
            "stops" if stops else "notice",
        )  # fmt: skip

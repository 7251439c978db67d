"""Names that no dialect looks for: what a program's own words choose is asked for, and what they may change is said.

What they choose is then not at a framework's default, and is asked for.

Names of data, logging, saving, learning rates and the like do nothing to either, and are left out by their words.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from shardplan.base.files import DATA, shipped_document
from shardplan.launch.dialects.reading import Facts
from shardplan.launch.dialects.settings import Settings
from shardplan.launch.dialects.values import degree

_DEGREE: Final = (
    r"(?!.*(?:data|vllm|rollout|infer|gen|ref|reward|critic|eval|per_device|virtual))"
    r".*(?:parallel\w*|mp_size|mp|[tpce]p_(?:size|degree))"
)
_AXES: Final[Mapping[str, str]] = {
    "pipeline": "pp", "pipe": "pp", "pp": "pp", "context": "cp", "sequence": "cp", "seq": "cp", "cp": "cp",
    "expert": "ep",
}  # fmt: skip
"""Words of axes; a degree without one is of tensors."""


def own_degrees(facts: Facts, settings: Settings, seen: Collection[str]) -> None:
    """A program's own word for a degree, which is not among ``seen``: that axis is not at one."""
    for name, each in settings.items():
        plain = name.replace("-", "_")
        if name not in seen and re.fullmatch(_DEGREE, plain) and (degree(each.value) or 1) > 1:
            axis = next((_AXES[word] for word in re.split(r"[._]", plain) if word in _AXES), "tp")
            facts.miss(axis, (f"{each.place} {each.value}, as the program reads it",))


ADAPTERS: Final = frozenset({"lora", "qlora", "dora", "use_lora"})
"""Values that choose adapters, whatever the name."""
_CHOICES: Final[Mapping[str, str]] = {
    "train": r"(?!(?:.*_)?[a-z]{1,2}_lora|.*mlp_adapter)"
    r"(?:.*_)?(?:q?lora|dora|peft|adapters?|p_?tuning|pre_seq_len|target_modules)(?:_.*)?",
    "optimizer": r"(?:.*_)?(?:galore|apollo|badam|adam_mini|adafactor|muon|sophia|lion|(?:ada)?lomo|shampoo)(?:_.*)?",
    "recompute": r".*recomput.*|(?:.*_)?(?:activation|gradient|grad)_?(?:checkpoint|ckpt).*|(?:.*_)?remat(?:_.*)?",
    "offload": r"(?!.*(?:ref|reward|critic|teacher|vllm|rollout)).*offload(?:ing)?"
    r"(?:_(?:optimizer|adam|states?|activations?|params?|weights|model|grads?))*",
}
"""What a name chooses in a plan: patterns of names with underscores. ``q_lora_rank`` is of latent attention,
``mm_mlp_adapter`` a projector."""
_ELSEWHERE: Final = r"(?!.*(?:ref_|reward|critic|vllm|rollout|wrap|save|load|ckpt|checkpoint|data|file|state_dict))"
"""Words of names that speak of another model, of files or of wrapping."""
_LOUD: Final[Mapping[str, str]] = {
    "recompute": r"(?:.*_)?(?:use|full|selective)_(?:ckpt|checkpointing)"
    r"|(?:.*_)?(?:ckpt|checkpoint|checkpointing)_(?:activations?|layers?|blocks?|every_\w+|mlp|attn|attention)",
    "sharding": _ELSEWHERE + r"(?:.*_)?(?:(?:use|enable|with|torch|megatron|custom|full|hybrid)_fsdp\d?|fsdp\d?"
    r"|fsdp\d?_(?:type|mode|strategy)|zero_?(?:\d\w*|stage\w*|level|dp\w*)|(?:\w+_)?sharding_(?:strategy|stage|mode|type)"
    r"|fully?_shard\w*|shard_(?:optim\w*|params?|weights|grads?|states?|degree|size)|(?:hybrid_)?shard(?:ing)?)",
    "offload": r"(?:.*_)?swap(?:_\w+)?|(?:.*_)?(?:host|cpu)_(?:optimizer|adam|activations?|states?|weights)",
}
"""The same of names that are heard even where their first or last word says nothing."""
_GATED: Final = r"(?:.*_)?(?:swi|ge|re)?glu(?:_.*)?|.*gated_(?:mlp|linear).*"
_LAYERS: Final[Mapping[str, tuple[str, object]]] = {
    "gated": (_GATED, True),
    "bias": (r"(?!.*(?:router|expert|mask|fusion)).*(?:disable|no|without)_(?:.*_)?bias(?:_.*)?", False),
    "tie_word_embeddings": (r"(?:.*_)?unti(?:e|ed)(?:_.*)?", False),
    "normalization": (r"(?:.*_)?rms_?norm(?:_.*)?", "RMSNorm"),
}
"""What a name chooses in the layers of a model that a file builds, and what it seems to say."""


def own_choices(facts: Facts, values: Mapping[str, object], sign: str) -> None:
    """Asks for what ``values``, which nothing reads and which are on, choose by their names: no default holds there."""
    for name, value in values.items():
        plain = name.replace("-", "_").replace(".", "_").lower()
        for key in (*_of_plan(facts, plain, value), *_of_layers(facts, plain)):
            facts.facts.pop(key, None)
            if key not in facts.missing:
                facts.miss(key, (f"{sign}{name}, as the program reads it",))


def _of_plan(facts: Facts, name: str, value: object) -> Iterator[str]:
    """Choices of a plan that no table has read: nothing is known of them, or a default alone.

    A framework that has a default for ``train`` has its own word for adapters.
    """
    for key, pattern in (*_CHOICES.items(), *_LOUD.items()):
        known = facts.facts.get(key)
        is_open = known is None or (known.origin == "assumed" and key != "train")
        if is_open and (re.fullmatch(pattern, name) or (key == "train" and str(value).lower() in ADAPTERS)):
            yield key


def _of_layers(facts: Facts, name: str) -> Iterator[str]:
    """Choices of layers whose default says otherwise; the width of an MLP goes with whether it is gated."""
    for key, (pattern, said) in _LAYERS.items():
        known = facts.facts.get(key)
        if known is not None and known.origin == "assumed" and known.value != said and re.fullmatch(pattern, name):
            yield key
            width = facts.facts.get("intermediate_size")
            if key == "gated" and width is not None and width.origin == "assumed":
                yield "intermediate_size"


def _words(kind: str) -> frozenset[str]:
    return frozenset(shipped_document(DATA / "dialects" / "names.yaml")[kind].split())


FIRST: Final = _words("first")
"""First words of names without effect."""
LAST: Final = _words("last")
"""Last words of names without effect, unless the name says what is built."""
PLAIN: Final = _words("plain")
"""Whole names without effect."""
_RECIPES: Final = re.compile(
    r"(?:use_fused|no_\w+_fusion|\w+_fusion|rope_scaling|rotary|yarn|(?:use_)?liger|moe_aux|moe_z)\w*"
)
"""Fused kernels, which are priced as usual, positions and losses."""
_QUIET: Final = re.compile(
    r"(?:model_)?(?:fp8_(?:hybrid|interval|margin|wgrad|amax_\w+)|ub_tp_comm_overlap_cfg_\w+|fsdp_sharding_strategy"
    r"|cpu_offloading_\w+)|fp16_\w+|(?:model_config_|model_model_config_)?hidden_act|output_layer_parallelism"
    r"|checkpoint_num_layers|scan_layers|\w*initializer_range|\w*flash_attention_block_size|model_attn_impl|model_\w+_pdrop|multiple_of|parallelism_(?:spmd_backend|fsdp_reshard_after_forward)|quantize_\w+_fqns|(?:no_)?ckpt_\w+"
    r"|data_parallel_shard_dim|batch_size_val|fsdp_config_\w*cpu_ram_efficient_loading|lora_(?:alpha|dropout|bias)"
    r"|gradient_checkpointing|average_tokens_across_devices|embed_layernorm"
)
"""Names with such words that are read elsewhere, or that set no more than numbers of a format."""
_MATTERS: Final = _words("matters")
"""Words of names that no other word makes harmless."""
MOST: Final = 12
"""Names that are listed."""


def without_effect(name: str) -> bool:
    """Whether a name says by its words that it changes neither time nor memory.

    >>> without_effect("lr-decay-style"), without_effect("dataset.path"), without_effect("recompute-vision")
    (True, True, False)
    >>> without_effect("adam-offload")
    False
    """
    plain, words = _plain(name)
    starts = {"_".join(words[:number]) for number in (1, 2)}
    if plain in PLAIN or _QUIET.fullmatch(plain):
        return True
    if not _MATTERS.isdisjoint(words):
        return False
    return bool(starts & FIRST) or words[-1] in LAST or bool(_RECIPES.fullmatch(plain))


def _plain(name: str) -> tuple[str, list[str]]:
    plain = name.replace("-", "_").replace(".", "_").lower()
    return plain, plain.split("_")


OFF: Final = frozenset({"false", "no", "none", "null", "0", "", "[]", "()", "{}"})
"""Values of names that are off."""


def unread_names(facts: Facts, values: Mapping[str, object], seen: set[str], sign: str = "", *, all_of: bool) -> None:
    """Lists the names that no rule looked for and that are on: ``all_of`` them, or those with a word that matters."""
    on = [name for name, value in values.items() if name not in seen and str(value).lower() not in OFF]
    loud = {name for name in on if any(re.fullmatch(each, _plain(name)[0]) for each in _LOUD.values())}
    found = {name: values[name] for name in on if name in loud or not without_effect(name)}
    own_choices(facts, found, sign)
    left = [f"{sign}{name}" for name in found if all_of or not _MATTERS.isdisjoint(_plain(name)[1])]
    if left:
        more = f" and {len(left) - MOST} more" if len(left) > MOST else ""
        facts.doubt(f"{', '.join(left[:MOST])}{more} may change time or memory")


def unsaid(facts: Facts, settings: Settings, pattern: str = ".*", sign: str = "", *, all_of: bool = True) -> None:
    """What is open and no key asks for, and names that no rule looked for.

    ``all_of`` is false for files that spell out their framework's defaults.
    """
    for place, each in settings.undecided.items():
        is_asked = any(set(each.needs) <= set(needs) for needs in facts.missing.values())
        if place not in facts.asked_places and not is_asked:
            facts.doubt(f"{place} is not decided ({', '.join(each.needs)})")
    if pattern:
        values = {name: settings[name].needs or value for name, value in settings.values_of(pattern).items()}
        unread_names(facts, values, settings.seen, sign, all_of=all_of)

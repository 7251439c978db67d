"""A program's own words: names that no table has, and that say by a word what they choose.

What they choose is then not at a framework's default, and is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final

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
    for key, pattern in _CHOICES.items():
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

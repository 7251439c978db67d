"""Fields that bear a shape and that the reader of a family left unread: such a file is refused, not half understood.

A field bears a shape where it changes the number or the size of a model's matrices, or the keys that a query sees.
Names say so (``num_experts``, ``mamba_d_state``, ``sliding_window``, ``layer_types``), together with the kind of value:
0, false, null and an empty list ask for nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from shardplan.inputs.readers.hf.fields import ConfigFields, shown

_NUMBERS: Final = re.compile(
    r"^(num|n|d|moe|mamba|ssm|conv|kda|index|indexer|mtp|ffn|cla|mlp)_"
    r"|(^|_)(size|sizes|dim|dims|rank|head|heads|kv|expert|experts|layer|layers|width|group|groups|channel|channels"
    r"|kernel|window|windows|state|chunk|topk|expand|blocks?|stride|local|global|registers?|codebooks?|streams?)(_|$)"
)
"""Names of numbers, and of lists of numbers, that bear a shape."""
_RATIOS: Final = re.compile(r"(^|_)(ratio|expand|expansion|widening|mult)(_|$)")
"""Names of fractions of one size to another."""
_LAYOUTS: Final = re.compile(r"(pattern|layer_types?|block_types?|type_list|attention_types|layers_type)$")
"""Names of texts and lists that say which layer is what."""
_SWITCHES: Final = re.compile(
    r"qk_?(layer)?norm|^qk_ln$|(^|_)(glu|gated|swiglu)(_|$)|(^|_)gate$|^(use_)?bias$"
    r"|(^|_)(qkv|attn|attention|mlp|proj|projectors|conv|head|expert|out|linear|ffn)_bias$"
    r"|^(use|has|enable|is)_(moe|mla|ssm|mamba|cla|kda|conv|sinks?|mixed_mlp_moe|residual)"
)
"""Names of switches that add or remove matrices."""
_PARTS: Final = re.compile(r"(^|_)(config|cfg)$|^(moe|ssm|attn|mamba)$")
"""Names of objects that describe layers."""

_HARMLESS: Final = re.compile(
    r"_token_id$|_token_index$|_theta$|_multipliers?$|dropout|_pdrop$|_eps$|_epsilon$|_coef$|_coefficient$|_(alpha|beta)(_factor)?$|norm_before_gate$|^use_expert_bias$|_act_fn$|^rope_|^rotary_|_rotary_"
    r"|^(init|initializer|summary|pooler|problem|generation|quantization|compression|vision|audio|speech|time_step)_"
    r"|^(id2label|label2id|num_labels|n_ctx|num_logits_to_keep|num_return_sequences|num_beams|num_beam_groups|diversity)"
    r"|^(chunk_size_feed_forward|no_repeat_ngram_size|encoder_no_repeat_ngram_size|original_max_position_embeddings)$"
    r"|^(ep_size|norm_topk_prob|moe_capacity|moe_capacity_factor|moe_shared_expert_overlap|moe_gate|model_parallel_size)$"
    r"|^(use_mamba_kernels|use_mambapy|moe_dropout_prob|moe_router_topk_scaling_factor|encoder_stride|use_conv_kernels)$"
    r"|^(vit|anyres|image|img|video|im)_|^org_vocab_size$"
)
"""Names that look like shapes and bear none, in any family: positions, initialisation, heads of other tasks,
generation, and how a framework splits or computes the model."""

_NOTHING: Final = (None, False, 0, "", "full_attention", "global")
"""Entries of a list that ask for nothing."""


def refuse_unread(fields: ConfigFields) -> None:
    """Raise where the file has a field that bears a shape and that the reader of its family did not read."""
    for name, value in fields.values.items():
        if isinstance(name, str) and name not in fields.read and bears_shape(name, value):
            raise fields.error(
                f"{shown(name).strip(chr(39))} is {shown(value)}, which {fields.model_type} models are not read with",
                rule="every field that bears a shape is understood",
                hint=f"remove it if the model is a plain {fields.model_type} without it; "
                "otherwise the model cannot be read from this file",
            )
    for part in fields.parts:
        refuse_unread(part)


def bears_shape(name: str, value: object) -> bool:
    """Whether a field of this name and value changes what the layers of a model are."""
    if _HARMLESS.search(name):
        return False
    return any(isinstance(value, kind) and bears(name, value) for kind, bears in _KINDS)


def _list_bears(name: str, value: object) -> bool:
    listed = value if isinstance(value, list | tuple) else ()
    asks = any(isinstance(item, list | tuple | dict) or item not in _NOTHING for item in listed)
    return asks and bool(_NUMBERS.search(name) or _LAYOUTS.search(name))


def _number_bears(name: str, value: object) -> bool:
    if isinstance(value, bool):
        return value and bool(_SWITCHES.search(name))
    if isinstance(value, int):
        return value > 0 and bool(_NUMBERS.search(name) or _RATIOS.search(name) or _LAYOUTS.search(name))
    return isinstance(value, float) and value > 0 and bool(_RATIOS.search(name))


def _text_bears(name: str, value: object) -> bool:
    return bool(value) and bool(_LAYOUTS.search(name) or (value == "auto" and _NUMBERS.search(name)))


def _part_bears(name: str, value: object) -> bool:
    return bool(value) and bool(_PARTS.search(name) or _LAYOUTS.search(name))


_KINDS: Final[tuple[tuple[type, Callable[[str, object], bool]], ...]] = (
    (int, _number_bears),
    (float, _number_bears),
    (str, _text_bears),
    (list, _list_bears),
    (tuple, _list_bears),
    (Mapping, _part_bears),
)

"""Configurations that are not read, and why: no cost model, files of other kinds, and unread fields.

A field sets a shape if it changes the number or the size of a model's matrices, or the keys that a query sees.
Its name shows that (``num_experts``, ``mamba_d_state``, ``sliding_window``, ``layer_types``), together with the kind of
value: 0, false, null and an empty list ask for nothing. A file with such a field that the reader of its family did not
read is refused, rather than half understood.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from shardplan.base.errors import InputError
from shardplan.inputs.readers.hf.fields import ConfigFields, shown

_ENCODER_DECODER: Final = "encoder and decoder are two stacks joined by cross-attention"
_PER_LAYER_INPUTS: Final = "its layers have inputs of their own and share keys and values"

UNSUPPORTED: Final[Mapping[str, str]] = {
    "bart": _ENCODER_DECODER,
    "deci": "every layer has a shape of its own",
    "gemma3n_text": _PER_LAYER_INPUTS,
    "hy_v4": "its gated latent attention has sinks, and its hyper-connections are not those of DeepSeek-V4",
    "inkling_text": "its attention adds logits by relative position, and convolves",
    "laguna": "its layers differ in their numbers of heads, each of which has a gate",
    "longcat_flash": "its layers hold two attentions and experts that compute nothing",
    "mbart": _ENCODER_DECODER,
    "mimo_v2_flash": "its values are narrower than its keys, which differ between sliding and other layers",
    "minimax_m3_vl_text": "its indexer selects blocks of grouped keys",
    "mistral_large4_text": "its layers share latent keys, and its rotary frequencies are learned",
    "mllama_text_model": "its text model attends to the image through cross-attention layers",
    "mt5": _ENCODER_DECODER,
    "nemotron-nas": "every layer has a shape of its own",
    "qwen4_exp_text": "its embeddings of n-grams and low-rank hyper-connections have no cost model",
    "recurrent_gemma": "its gated linear recurrence has no cost model",
    "rwkv": "its recurrence has no cost model",
    "t5": _ENCODER_DECODER,
    "umt5": _ENCODER_DECODER,
    "whisper": _ENCODER_DECODER,
    "zamba2": "its layers share one attention block",
}
"""Known families that are refused, and why."""

_SWITCHES: Final[Mapping[str, str]] = {
    "add_cross_attention": "cross-attention has no cost model",
    "altup_num_inputs": "alternating updates have no cost model",
    "block_configs": "every layer has a shape of its own",
    "compress_ratios": "compressed keys (DeepSeek-V4) next to other attention have no cost model",
    "hidden_size_per_layer_input": "inputs of their own for every layer have no cost model",
    "is_encoder_decoder": _ENCODER_DECODER,
    "num_kv_shared_layers": "keys and values shared between layers have no cost model",
    "per_layer_config": "dimensions of their own for single layers have no cost model",
    "o_groups": "grouped output projections (DeepSeek-V4) next to other attention have no cost model",
    "o_lora_rank": "low-rank output projections (DeepSeek-V4) next to other attention have no cost model",
    "use_bidirectional_attention": "a decoder family used as an encoder is not supported",
    "zero_expert_num": "experts that compute nothing have no cost model",
}
"""Fields that change the layers of any family, and why a file that sets one is refused."""

_READ: Final = {
    *(("per_layer_config", family) for family in ("gemma4_text", "gemma4_unified_text")),
    *((key, "deepseek_v4") for key in ("compress_ratios", "o_groups", "o_lora_rank")),
}
"""Switches that the reader of a family understands."""

_OTHER_FILES: Final[Mapping[str, str]] = {
    "weight_map": "an index of weights",
    "peft_type": "the configuration of an adapter",
    "added_tokens_decoder": "the configuration of a tokenizer",
    "quantization": "a quantisation file (hf_quant_config.json)",
    "image_processor_type": "the configuration of an image processor",
    "max_new_tokens": "a generation configuration",
    "train_micro_batch_size_per_gpu": "a DeepSpeed configuration",
    "plans": "a plan file",
}
"""Fields by which files of other kinds are recognised."""


def refuse_unsupported(fields: ConfigFields) -> None:
    """Raises if the family, or a field that changes the layers of any family, has no cost model."""
    reason = UNSUPPORTED.get(fields.model_type.lower())
    if reason:
        raise fields.error(
            f"model_type '{fields.model_type}' is not supported: {reason}",
            rule="the architecture is supported",
            hint="this part is unknown here; plan another model",
        )
    for key, why in _SWITCHES.items():
        value = fields.values.get(key)
        # False, 0, null and empty lists switch nothing on; with "vision" (Gemma 4) text stays causal.
        if value and value != "vision" and (key, fields.model_type) not in _READ:
            raise fields.error(
                f"{key} is {shown(value)}: {why}",
                rule="the architecture is supported",
                hint=f"remove {key} to plan the family's usual layers instead",
            )


def refuse_other_files(config: Mapping[str, object], name: str) -> None:
    """Raises if ``config`` is not a model configuration but another file that is found next to one."""
    if "model_type" in config or "architectures" in config:
        return
    for key, kind in _OTHER_FILES.items():
        if key in config:
            raise InputError(
                f"{name}: this is {kind} (it has '{key}' and no model_type)",
                rule="a model file states its model_type",
                hint="give the config.json of the model",
            )


_NUMBERS: Final = re.compile(
    r"^(num|n|d|moe|mamba|ssm|conv|kda|index|indexer|mtp|ffn|cla|mlp)_"
    r"|(^|_)(size|sizes|dim|dims|rank|head|heads|kv|expert|experts|layer|layers|width|group|groups|channel|channels"
    r"|kernel|window|windows|state|chunk|topk|expand|blocks?|stride|local|global|registers?|codebooks?|streams?)(_|$)"
)
"""Names of numbers, and of lists of numbers, that set a shape."""
_RATIOS: Final = re.compile(r"(^|_)(ratio|expand|expansion|widening|mult)(_|$)")
"""Names of fractions of one size to another."""
_LAYOUTS: Final = re.compile(r"(pattern|layer_types?|block_types?|type_list|attention_types|layers_type)$")
"""Names of texts and lists that give the kind of each layer."""
_SWITCH_NAMES: Final = re.compile(
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
"""Names that look like shapes but set none in any family: positions, initialisation, heads of other tasks,
generation, and how a framework splits or computes the model.
"""

_NOTHING: Final = (None, False, 0, "", "full_attention", "global")
"""Entries of a list that ask for nothing."""


def refuse_unread(fields: ConfigFields) -> None:
    """Raises if the file has a field that sets a shape and that the reader of its family did not read."""
    for name, value in fields.values.items():
        if isinstance(name, str) and name not in fields.read and bears_shape(name, value):
            raise fields.error(
                f"{shown(name).strip(chr(39))} is {shown(value)}, which {fields.model_type} models are not read with",
                rule="every field that bears a shape is understood",
                hint=f"remove it if the model is a plain {fields.model_type} without it; "
                "otherwise the model cannot be read from this file",
            )
    for part in fields.parts.values():
        refuse_unread(part)


def bears_shape(name: str, value: object) -> bool:
    """Whether a field of this name and value changes the layers of a model."""
    if _HARMLESS.search(name):
        return False
    return any(isinstance(value, kind) and bears(name, value) for kind, bears in _KINDS)


def _list_bears(name: str, value: object) -> bool:
    listed = value if isinstance(value, list | tuple) else ()
    asks = any(isinstance(item, list | tuple | dict) or item not in _NOTHING for item in listed)
    return asks and bool(_NUMBERS.search(name) or _LAYOUTS.search(name))


def _number_bears(name: str, value: object) -> bool:
    if isinstance(value, bool):
        return value and bool(_SWITCH_NAMES.search(name))
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

"""Configurations that are not read, and why: architectures without a cost model, and files of other kinds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from shardplan.errors import InputError
from shardplan.inputs.readers.hf.fields import ConfigFields, shown

_ENCODER_DECODER: Final = "encoder and decoder are two stacks joined by cross-attention"
_PER_LAYER_INPUTS: Final = "its layers have inputs of their own and share keys and values"

UNSUPPORTED: Final[Mapping[str, str]] = {
    "bart": _ENCODER_DECODER,
    "deci": "every layer has a shape of its own",
    "deepseek_v4": "its compressed attention and its streams between layers have no cost model",
    "gemma3n_text": _PER_LAYER_INPUTS,
    "longcat_flash": "its layers hold two attentions and experts that compute nothing",
    "mbart": _ENCODER_DECODER,
    "mllama_text_model": "its text model attends to the image through cross-attention layers",
    "mt5": _ENCODER_DECODER,
    "nemotron-nas": "every layer has a shape of its own",
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
    "compress_ratios": "compressed attention (DeepSeek-V4) has no cost model",
    "hidden_size_per_layer_input": "inputs of their own for every layer have no cost model",
    "is_encoder_decoder": _ENCODER_DECODER,
    "num_kv_shared_layers": "keys and values shared between layers have no cost model",
    "per_layer_config": "dimensions of their own for single layers have no cost model",
    "o_groups": "grouped output projections (DeepSeek-V4) have no cost model",
    "o_lora_rank": "low-rank output projections (DeepSeek-V4) have no cost model",
    "use_bidirectional_attention": "a decoder family used as an encoder is not supported",
    "zero_expert_num": "experts that compute nothing have no cost model",
}
"""Fields that change the layers of any family, and why a file that sets one is refused."""

_READ: Final = {("per_layer_config", family) for family in ("gemma4_text", "gemma4_unified_text")}
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
    """Raise where the family, or a field that changes the layers of any family, has no cost model."""
    reason = UNSUPPORTED.get(fields.model_type.lower())
    if reason:
        raise fields.error(
            f"model_type '{fields.model_type}' is not supported: {reason}",
            rule="the architecture is supported",
            hint="no other family has these layers; plan another model",
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
    """Raise where ``config`` is not a model configuration but another file that is found next to one."""
    if "model_type" in config or "architectures" in config:
        return
    for key, kind in _OTHER_FILES.items():
        if key in config:
            raise InputError(
                f"{name}: this is {kind} (it has '{key}' and no model_type)",
                rule="a model file states its model_type",
                hint="give the config.json of the model",
            )

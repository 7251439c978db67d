"""Reads any ``config.json`` of the supported Hugging Face families into a :class:`~shardplan.inputs.model.ModelConfig`.

Values come from the file, or from the family's own default if ``transformers`` has one; nothing is guessed. ``notes``
names what the reader leaves out (a vision tower, quantised weights). Each family is a row of the tables in
``gpt``, ``decoders``, ``experts``, ``compressed``, ``hybrids`` and ``encoders``; :data:`FAMILIES` is all of them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from shardplan.base.errors import InputError
from shardplan.inputs.model import ModelConfig, ModelDetails
from shardplan.inputs.readers.hf.compressed import COMPRESSED
from shardplan.inputs.readers.hf.decoders import GEMMA, LLAMA
from shardplan.inputs.readers.hf.encoders import ENCODERS
from shardplan.inputs.readers.hf.experts import EXPERTS
from shardplan.inputs.readers.hf.family import ModelFamily
from shardplan.inputs.readers.hf.fields import ConfigFields, shown
from shardplan.inputs.readers.hf.file import config_path, model_name, read_config
from shardplan.inputs.readers.hf.gpt import GPT
from shardplan.inputs.readers.hf.hybrids import HYBRIDS
from shardplan.inputs.readers.hf.refusals import refuse_other_files, refuse_unread, refuse_unsupported
from shardplan.inputs.readers.names import MODELS, model_sources

FAMILIES: Final[Mapping[str, ModelFamily]] = {**GPT, **LLAMA, **GEMMA, **EXPERTS, **COMPRESSED, **HYBRIDS, **ENCODERS}
"""Families by ``model_type``."""

_TEXT_PARTS: Final = ("text_config", "llm_config", "language_config")
_ARCHITECTURES: Final[Mapping[str, str]] = {
    "ApertusForCausalLM": "apertus",
    "ArcticForCausalLM": "arctic",
    "BailingMoeForCausalLM": "bailing_moe",
    "BailingMoeV2ForCausalLM": "bailing_moe",
    "BambaForCausalLM": "bamba",
    "BertForMaskedLM": "bert",
    "BloomForCausalLM": "bloom",
    "DeepseekV2ForCausalLM": "deepseek_v2",
    "DeepseekV3ForCausalLM": "deepseek_v3",
    "DeepseekV4ForCausalLM": "deepseek_v4",
    "Dinov2ForImageClassification": "dinov2",
    "Exaone4ForCausalLM": "exaone4",
    "FalconForCausalLM": "falcon",
    "FalconH1ForCausalLM": "falcon_h1",
    "FalconMambaForCausalLM": "falcon_mamba",
    "Gemma2ForCausalLM": "gemma2",
    "Gemma3ForCausalLM": "gemma3_text",
    "GemmaForCausalLM": "gemma",
    "Glm4MoeForCausalLM": "glm4_moe",
    "GPT2LMHeadModel": "gpt2",
    "GPTNeoXForCausalLM": "gpt_neox",
    "GptOssForCausalLM": "gpt_oss",
    "Grok1ModelForCausalLM": "grok-1",
    "HunYuanDenseV1ForCausalLM": "hunyuan_v1_dense",
    "HunYuanMoEV1ForCausalLM": "hunyuan_v1_moe",
    "JambaForCausalLM": "jamba",
    "KimiLinearForCausalLM": "kimi_linear",
    "Lfm2ForCausalLM": "lfm2",
    "Lfm2MoeForCausalLM": "lfm2_moe",
    "LlamaForCausalLM": "llama",
    "Mamba2ForCausalLM": "mamba2",
    "MambaForCausalLM": "mamba",
    "MiniMaxForCausalLM": "minimax",
    "MiniMaxM1ForCausalLM": "minimax_m1",
    "MiniMaxText01ForCausalLM": "minimax_text_01",
    "MistralForCausalLM": "mistral",
    "MixtralForCausalLM": "mixtral",
    "ModernBertForMaskedLM": "modernbert",
    "NemotronHForCausalLM": "nemotron_h",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "Qwen3MoeForCausalLM": "qwen3_moe",
    "RobertaForMaskedLM": "roberta",
    "ViTForImageClassification": "vit",
    "XLMRobertaForMaskedLM": "xlm-roberta",
}
"""Model class to family, for files with a missing or unknown ``model_type``."""

_DIMENSIONS: Final = (
    "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "max_position_embeddings", "num_key_value_heads",
)  # fmt: skip
_CLASS_DEFAULTS: Final[Mapping[str, Mapping[str, int]]] = {
    family: dict(zip(_DIMENSIONS, sizes, strict=False))
    for family, sizes in {
        "gemma": (256000, 3072, 24576, 28, 16, 8192, 16),
        "gemma2": (256000, 2304, 9216, 26, 8, 8192, 4),
        "gemma3_text": (262208, 2304, 9216, 26, 8, 131072, 4),
        "llama": (32000, 4096, 11008, 32, 32, 2048),
        "mistral": (32000, 4096, 14336, 32, 32, 131072, 8),
    }.items()
}
"""Default dimensions of the classes in ``transformers``: multimodal files state only differences for their text."""

_TRAINING_LENGTHS: Final[Mapping[str, Mapping[str, int]]] = {
    "bloom": {"max_position_embeddings": 2048},
    "falcon": {"max_position_embeddings": 2048},
    "falcon_mamba": {"max_position_embeddings": 8192},
    "mamba": {"max_position_embeddings": 2048},
    "mamba2": {"max_position_embeddings": 2048},
}
"""Lengths that files of these families leave out."""

_EPSILONS: Final = (
    "rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "layernorm_epsilon", "norm_epsilon", "norm_eps",
)  # fmt: skip
_ACTIVATIONS: Final = ("hidden_act", "hidden_activation", "activation_function", "mlp_hidden_act")
_BASES: Final = ("rope_theta", "rotary_emb_base")
_SHARES: Final = ("partial_rotary_factor", "rotary_pct")
_LONGEST_WORD: Final = 40


class _TextPart(NamedTuple):
    values: Mapping[str, object]
    prefix: str
    outer_type: object


def read_model_file(path: str | os.PathLike[str]) -> ModelConfig:
    """Model of the ``config.json`` at ``path``, or inside the directory ``path``.

    It is named after the file, or after its directory when the file is just called ``config.json``.

    Raises :class:`~shardplan.base.errors.InputError`: the file cannot be read, or as :func:`model_from_config`.
    """
    file = config_path(path)
    model = model_from_config(read_config(file), name=model_name(file))
    return replace(model, notes=(*model.notes, *_notes_on_file(file)))


def _notes_on_file(file: Path) -> Iterator[str]:
    """Notes about the file itself."""
    source = model_sources().get(file.stem) if file.parent == MODELS else None
    if source is not None and source.mark:
        yield f"dimensions {source.mark}"
    if (file.parent / "hf_quant_config.json").is_file():
        yield "hf_quant_config.json next to the file is ignored: training precision is part of the job"


def model_from_config(config: object, *, name: str) -> ModelConfig:
    """Model of a configuration in memory: the object that a ``config.json`` holds.

    Raises :class:`~shardplan.base.errors.InputError`: a field is missing, not of its type or out of range, fields
    contradict each other, or the architecture is not supported.
    """
    if not isinstance(config, Mapping):
        raise InputError(
            f"{name}: the configuration is {shown(config)}",
            rule="a model configuration is an object with fields",
            hint='give the config.json of a model: { "model_type": ..., "hidden_size": ..., ... }',
        )
    refuse_other_files(config, name)
    text = _text_part(config, name)
    model_type, notes = _family(text, name)
    fields = ConfigFields(
        name=name,
        model_type=model_type,
        values=text.values,
        prefix=text.prefix,
        defaults=(_CLASS_DEFAULTS if text.prefix else _TRAINING_LENGTHS).get(model_type, {}),
    )
    refuse_unsupported(fields)
    model = FAMILIES[model_type].read(fields)
    refuse_unread(fields)
    return replace(model, notes=(*notes, *_notes(config, fields, model)), details=details_of(fields.values))


def _text_part(config: Mapping[str, object], name: str) -> _TextPart:
    """The text model of a multimodal file, or the whole file."""
    outer_type = config.get("model_type")
    for key in _TEXT_PARTS:
        part = config.get(key)
        if part is None:
            continue
        if not isinstance(part, Mapping):
            raise InputError(
                f"{name}: {key} is {shown(part)}", rule=f"{key} is an object with fields", hint=f"correct {key}"
            )
        inherited = {k: config[k] for k in ("tie_word_embeddings",) if k in config}
        return _TextPart({**inherited, **part}, f"{key}.", outer_type)
    return _TextPart(config, "", outer_type)


def _family(text: _TextPart, name: str) -> tuple[str, tuple[str, ...]]:
    """Family of the text model, and a note if it was inferred."""
    stated = text.values.get("model_type", f"{text.outer_type}_text" if text.prefix and text.outer_type else None)
    if stated is not None and not isinstance(stated, str):
        raise InputError(
            f"{name}: {text.prefix}model_type is {shown(stated)}",
            rule="model_type is a name",
            hint=f"write model_type in quotes; {LISTED}",
        )
    if stated is not None and stated in FAMILIES:
        return stated, ()
    refuse_unsupported(ConfigFields(name=name, model_type=stated or "", values=text.values, prefix=text.prefix))
    classes = text.values.get("architectures")
    for cls in classes if isinstance(classes, list | tuple) else ():
        if isinstance(cls, str) and cls in _ARCHITECTURES:
            family = _ARCHITECTURES[cls]
            what = f"model_type {shown(stated)} is not known" if stated else "the file states no model_type"
            return family, (f"{what}: read as {family}, the family of its class {cls}",)
    raise _unknown(stated, f"{name}: {text.prefix}model_type")


LISTED: Final = "the page 'Models' of the documentation lists the families that are read"


def _unknown(stated: str | None, what: str) -> InputError:
    """The error for an unknown family. It proposes no other one: families of similar names have different layers."""
    if stated is None:
        return InputError(
            f"{what} is missing", rule="a model states its model_type", hint=f"add model_type to the file; {LISTED}"
        )
    spelled = next((family for family in FAMILIES if _letters(family) == _letters(stated)), None)
    like = f"describe your model by a family that has the same layers: {LISTED}"
    return InputError(
        f"{what} {shown(stated)} is not known",
        rule="the model_type is one that shardplan reads, and no other family is guessed",
        hint=f"write it '{spelled}'" if spelled else like,
    )


def _letters(name: str) -> str:
    """A name without case and punctuation, in which its spellings differ."""
    return "".join(letter for letter in name.casefold() if letter.isalnum())


def _notes(config: Mapping[str, object], fields: ConfigFields, model: ModelConfig) -> tuple[str, ...]:
    notes = []
    if fields.prefix:
        notes.append(f"the text model of a multimodal file ({fields.prefix.rstrip('.')}); its other parts are left out")
    elif "vision_config" in config:
        notes.append("the text model of a multimodal file; its vision tower is left out")
    if fields.taken:
        taken = ", ".join(f"{key} {value}" for key, value in fields.taken.items())
        notes.append(f"not in the file, taken from the defaults of the family: {taken}")
    for holder in (config, fields.values):
        quantised = holder.get("quantization_config")
        if quantised is not None:
            method = quantised.get("quant_method") if isinstance(quantised, Mapping) else None
            how = f" ({shown(method).strip(chr(39))})" if method else ""
            notes.append(f"quantization_config{how} is ignored: training precision is part of the job")
            break
    if model.num_mtp_layers:
        blocks = "blocks are" if model.num_mtp_layers > 1 else "block is"
        notes.append(f"{model.num_mtp_layers} multi-token-prediction {blocks} not in the parameter count")
    return tuple(notes)


def details_of(values: Mapping[str, object]) -> ModelDetails:
    """The details in ``values``. ``rope_parameters`` of transformers 5 has base, share and scaling together.

    A value of another type counts as not stated: no answer depends on it, and exports ask for unknown values.
    """
    positions = values.get("rope_parameters")
    rotary = {**values, **positions} if isinstance(positions, Mapping) else values
    scaling = positions if isinstance(positions, Mapping) else values.get("rope_scaling")
    return ModelDetails(
        rope_theta=_first_number(rotary, _BASES),
        partial_rotary_factor=_first_number(rotary, _SHARES),
        rope_scaling=tuple(_scaling(scaling)) if isinstance(scaling, Mapping) else (),
        norm_eps=_first_number(values, _EPSILONS),
        hidden_act=_first_word(values, _ACTIVATIONS),
        initializer_range=_first_number(values, ("initializer_range",)),
        scoring_func=_first_word(values, ("scoring_func",)),
        routed_scaling_factor=_first_number(values, ("routed_scaling_factor",)),
        norm_topk_prob=_switch(values.get("norm_topk_prob")),
    )


def _first_number(values: Mapping[str, object], names: tuple[str, ...]) -> float | None:
    """The first of ``names`` that is a positive number."""
    found = (_positive(values.get(name)) for name in names)
    return next((each for each in found if each is not None), None)


def _switch(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _positive(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) and number > 0 else None


def _first_word(values: Mapping[str, object], names: tuple[str, ...]) -> str | None:
    words = (values.get(name) for name in names)
    return next((each for each in words if isinstance(each, str) and 0 < len(each) <= _LONGEST_WORD), None)


def _scaling(values: Mapping[str, object]) -> Iterator[tuple[str, bool | float | str]]:
    """Kind and numbers of a scaling; ``default`` counts as none."""
    kind = _first_word(values, ("rope_type", "type"))
    if kind is None or kind == "default":
        return
    yield "rope_type", kind
    for name, value in values.items():
        if name == "truncate" and value is False:
            yield name, False
        number = _positive(value)
        if isinstance(name, str) and number is not None and name not in (*_BASES, *_SHARES):
            yield name, number

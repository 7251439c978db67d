"""A model from the dimensions that a launch file states, or from the name that it gives."""

from __future__ import annotations

from collections.abc import Sequence

from shardplan.base.errors import ShardplanError
from shardplan.inputs.layers import MLP, Attention, LatentAttention, Layer, MixtureOfExperts
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.readers.catalog import load_model, shipped_name
from shardplan.inputs.readers.hub import cached_model
from shardplan.launch.dialects.reading import Reading

DIMENSIONS = ("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "vocab_size")
"""What a model has at least."""
LAYERS = ("num_experts_per_tok", "gated", "bias", "tie_word_embeddings", "normalization")
"""Further words of its layers that a file may leave open."""
KEYS = (
    *DIMENSIONS,
    "num_key_value_heads",
    "head_dim",
    "max_position_embeddings",
    "num_experts",
    "num_experts_per_tok",
    "moe_intermediate_size",
    "shared_expert_intermediate_size",
    "moe_layer_freq",
    "num_mtp_layers",
    "q_lora_rank",
    "kv_lora_rank",
    "qk_nope_head_dim",
    "qk_rope_head_dim",
    "v_head_dim",
    "n_group",
    "topk_group",
    "gated",
    "bias",
    "qkv_bias",
    "qk_norm",
    "sliding_window",
    "tie_word_embeddings",
    "normalization",
    "position_embedding_type",
    "latent_attention",
    "model",
    "model_name",
    "tokenizer",
    "tokenizer_type",
)
"""Keys of a reading that describe the model."""


def named_model(name: object) -> ModelConfig | None:
    """The model of a name in the catalogue or the local cache, by its folder's name too; None where there is none."""
    if not isinstance(name, str) or not name:
        return None
    is_folder = name[:1] in ("/", ".", "~") or name.rstrip("/").count("/") > 1 or name.endswith("/")
    meant = name.rstrip("/").rpartition("/")[2] if is_folder and not name.lower().endswith(".json") else name
    try:
        return load_model(shipped_name("model", meant))
    except ShardplanError:
        cached = cached_model(name)
    try:
        return None if cached is None else load_model(cached.config)
    except ShardplanError:
        return None


def model_of(reading: Reading) -> ModelConfig | None:
    """The model that ``reading`` describes by dimensions or by name; None where something is open."""
    if reading.config is not None:
        return load_model(reading.config)
    if "model" in reading.facts:
        return named_model(reading.value("model"))
    if "model" in reading.missing or missing_dimensions(reading):
        return None
    return _built(reading)


def missing_dimensions(reading: Reading) -> tuple[str, ...]:
    """Dimensions without which no model is built, and what a word of the file leaves open of its layers."""
    open_ = (key for key in LAYERS if key in reading.missing)
    return (*(key for key in DIMENSIONS if reading.value(key) is None), *open_)


def _whole(reading: Reading, key: str, default: int = 0) -> int:
    value = reading.value(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def _built(reading: Reading) -> ModelConfig:
    """Layers of one or two kinds around embedding and head. Raises InputError for dimensions that do not fit."""
    norm_bias = reading.value("normalization") != "RMSNorm"
    positions = _whole(reading, "max_position_embeddings") or _whole(reading, "sequence_length") or 1
    learned = reading.value("position_embedding_type") == "learned_absolute"
    return ModelConfig(
        name=str(reading.value("model_name") or "model of the script"),
        model_type=f"{reading.framework} dimensions",
        hidden_size=_whole(reading, "hidden_size"),
        layers=_layers(reading),
        vocab_size=_whole(reading, "vocab_size"),
        tie_word_embeddings=bool(reading.value("tie_word_embeddings")),
        norm_bias=norm_bias,
        max_position_embeddings=positions,
        num_position_embeddings=positions if learned else 0,
        num_mtp_layers=_whole(reading, "num_mtp_layers"),
    )


def _layers(reading: Reading) -> tuple[Layer, ...]:
    mixer = _mixer(reading)
    dense = Layer(mixer=mixer, mlp=_mlp(reading), num_norms=2)
    number = _whole(reading, "num_hidden_layers")
    if not _whole(reading, "num_experts"):
        return (dense,) * number
    sparse = Layer(mixer=mixer, mlp=_experts(reading), num_norms=2)
    return tuple(sparse if has else dense for has in _pattern(reading.value("moe_layer_freq"), number))


def _pattern(frequency: object, number: int) -> Sequence[bool]:
    """Whether each layer has experts: every n-th from the first, or a list."""
    if isinstance(frequency, tuple):
        return [bool(frequency[i]) if i < len(frequency) else True for i in range(number)]
    every = frequency if isinstance(frequency, int) and frequency > 0 else 1
    return [i % every == 0 for i in range(number)]


def _mlp(reading: Reading) -> MLP:
    return MLP(
        intermediate_size=_whole(reading, "intermediate_size"),
        gated=bool(reading.value("gated")),
        bias=bool(reading.value("bias")),
    )


def _experts(reading: Reading) -> MixtureOfExperts:
    return MixtureOfExperts(
        num_experts=_whole(reading, "num_experts"),
        top_k=_whole(reading, "num_experts_per_tok", 1),
        intermediate_size=_whole(reading, "moe_intermediate_size") or _whole(reading, "intermediate_size"),
        gated=bool(reading.value("gated")),
        bias=bool(reading.value("bias")),
        shared_intermediate_size=_whole(reading, "shared_expert_intermediate_size"),
        n_group=_whole(reading, "n_group", 1),
        topk_group=_whole(reading, "topk_group", 1),
    )


def _mixer(reading: Reading) -> Attention | LatentAttention:
    heads = _whole(reading, "num_attention_heads")
    rotary = reading.value("position_embedding_type") != "learned_absolute"
    if reading.value("latent_attention"):
        return LatentAttention(
            num_heads=heads,
            q_lora_rank=_whole(reading, "q_lora_rank") or None,
            kv_lora_rank=_whole(reading, "kv_lora_rank", 32),
            qk_nope_head_dim=_whole(reading, "qk_nope_head_dim", 128),
            qk_rope_head_dim=_whole(reading, "qk_rope_head_dim", 64),
            v_head_dim=_whole(reading, "v_head_dim", 128),
            rotary=rotary,
        )
    bias = bool(reading.value("bias"))
    return Attention(
        num_heads=heads,
        num_kv_heads=_whole(reading, "num_key_value_heads", heads),
        head_dim=_whole(reading, "head_dim") or _whole(reading, "hidden_size") // max(heads, 1),
        qkv_bias=bias or bool(reading.value("qkv_bias")),
        output_bias=bias,
        qk_norm="head" if reading.value("qk_norm") else "none",
        window=_whole(reading, "sliding_window") or None,
        rotary=rotary,
    )

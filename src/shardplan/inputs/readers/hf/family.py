"""The rows of the tables of model families, and how a model is read with one.

A row (:class:`ModelFamily`) states how the layers of a family differ from Llama's. A value of a row is fixed, or a
function of the fields of a file: ``flag("attention_bias")``. What no row can say (which layers attend within a window,
how wide experts are) is a function of the fields, too, in the file of the family's table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar, cast

from shardplan.inputs.layers import MLP, Attention, LatentAttention, Layer, Mixer, MixtureOfExperts, QKNorm
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.readers.hf.fields import ConfigFields

T = TypeVar("T")
Stated: TypeAlias = Callable[[ConfigFields], T] | T
"""A value that is fixed for a family, or that the file states."""
FeedForward = MLP | MixtureOfExperts
Layout = Callable[[ConfigFields], Sequence[bool]]
"""For every layer, whether it is of a kind."""
NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


def stated(value: Stated[T], fields: ConfigFields) -> T:
    """The value of a row for one file."""
    return value(fields) if callable(value) else value


def flag(key: str, *, default: bool = False) -> Callable[[ConfigFields], bool]:
    """Reads the switch ``key`` of the file; ``default`` without it."""
    return lambda fields: fields.flag(key, default)


def norm_if(key: str, norm: QKNorm, *, default: bool = False) -> Callable[[ConfigFields], QKNorm]:
    """A norm of queries and keys if the switch ``key`` asks for it."""
    return lambda fields: norm if fields.flag(key, default) else "none"


def count(key: str) -> Callable[[ConfigFields], int]:
    """The whole number under ``key``, which the file must state."""
    return lambda fields: fields.count(key)


ALL_HEADS: Final = count("num_attention_heads")
ATTENTION_BIAS: Final = flag("attention_bias")
MLP_BIAS: Final = flag("mlp_bias")


class ModelFamily(NamedTuple):
    """The layers of a family; values that a row leaves out are those of Llama without biases."""

    about: str
    """One line for the documentation."""
    qkv_bias: Stated[bool] = False
    output_bias: Stated[bool] | None = None
    """Bias on the output projection; None: the same as for queries, keys and values."""
    head_dim: int | None = None
    """Default head size; None: ``hidden_size / num_attention_heads``."""
    kv_required: bool = False
    """Whether a file without ``num_key_value_heads`` is refused, rather than read with as many as query heads."""
    kv_heads: Stated[int] | None = None
    """Number of key-value heads that the family fixes."""
    attention: Mapping[str, Stated[Any]] = NOTHING
    """Other fields of :class:`Attention`."""
    slides: Layout | None = None
    """Layers with a sliding window; None if the family has no windows."""
    window: int | None = None
    """Default of ``sliding_window``."""
    rotates_only_where_it_slides: bool = False
    gated: bool = True
    mlp_bias: Stated[bool] = False
    widening: int | None = None
    """Default of ``intermediate_size`` over ``hidden_size``."""
    experts: Callable[[ConfigFields], MixtureOfExperts] | None = None
    sparse: Layout | None = None
    """Layers with experts; None: all."""
    num_norms: Stated[int] = 2
    parallel_residual: Stated[bool] = False
    tie: Stated[bool] = False
    """Whether by default the head is the token embedding."""
    model: Mapping[str, Stated[Any]] = NOTHING
    """Other fields of :class:`ModelConfig`."""
    required: Mapping[str, Stated[object]] = NOTHING
    """Required values of fields that a file may have: other values mean other layers."""
    understood: tuple[str, ...] = ()
    """Fields that may be present and do not affect these layers."""
    mixers: Callable[[ConfigFields], Mixer | Sequence[Mixer]] | None = None
    """The mixer of every layer, or one for each, if it is not the attention that the row describes."""
    mlps: Callable[[ConfigFields], FeedForward | Sequence[FeedForward | None] | None] | None = None
    """The same for MLPs; layers whose MLP is None have none."""
    layers: Callable[[ConfigFields], tuple[Layer, ...]] | None = None
    """The layers, if they differ in more than mixer and MLP."""
    adjusted: Callable[[ConfigFields, ModelConfig], ModelConfig] | None = None
    """Adds to the model what depends on its layers."""
    whole: Callable[[ConfigFields], ModelConfig] | None = None
    """Reads the whole model, if it reads no tokens."""

    def called(self, about: str) -> ModelFamily:
        """A family of the same layers; ``_replace`` states differences."""
        return self._replace(about=about)

    def read(self, fields: ConfigFields) -> ModelConfig:
        """The model of this family that a file describes. Raises InputError."""
        for key, usual in self.required.items():
            fields.require(key, expected=stated(usual, fields))
        fields.understood(*self.understood)
        if self.whole:
            return self.whole(fields)
        model = decoder(fields, (self.layers or self._layers)(fields), tie=stated(self.tie, fields))
        if self.model:
            model = replace(model, **{name: stated(value, fields) for name, value in self.model.items()})
        return self.adjusted(fields, model) if self.adjusted else model

    def _layers(self, fields: ConfigFields) -> tuple[Layer, ...]:
        mixers = (self.mixers or self._attentions)(fields)
        mlps = self._feed_forwards(fields)
        return stack(
            fields,
            mixers,
            mlps,
            num_norms=stated(self.num_norms, fields),
            parallel_residual=stated(self.parallel_residual, fields),
        )

    def _attentions(self, fields: ConfigFields) -> Mixer | Sequence[Mixer]:
        base = attention(
            fields,
            qkv_bias=stated(self.qkv_bias, fields),
            output_bias=stated(self.output_bias, fields),
            head_dim=self.head_dim,
            num_kv_heads=stated(self.kv_heads, fields),
            kv_required=self.kv_required,
        )
        base = replace(base, **{name: stated(value, fields) for name, value in self.attention.items()})
        if self.slides is None:
            return base
        mixers = windowed(fields, base, self.slides(fields), default=self.window)
        if self.rotates_only_where_it_slides:
            return [mixer if mixer.window else replace(mixer, rotary=False) for mixer in mixers]
        return mixers

    def _feed_forwards(self, fields: ConfigFields) -> FeedForward | Sequence[FeedForward | None] | None:
        if self.sparse and self.experts:
            return feed_forwards(fields, self.sparse(fields), self.experts)
        if own := self.mlps or self.experts:
            return own(fields)
        width = None if self.widening is None else self.widening * fields.count("hidden_size")
        return mlp(fields, gated=self.gated, bias=stated(self.mlp_bias, fields), width=width)


ROUTING: Final = (
    "moe_intermediate_size",
    "num_experts",
    "num_experts_per_tok",
    "n_shared_experts",
    "shared_expert_intermediate_size",
    "n_group",
    "topk_group",
)
"""Fields that do not affect a model whose layers are all dense."""


def attention(
    fields: ConfigFields,
    *,
    qkv_bias: bool = False,
    output_bias: bool | None = None,
    head_dim: int | None = None,
    num_kv_heads: int | None = None,
    kv_required: bool = False,
) -> Attention:
    """Attention of ``fields``; by default the output projection has a bias if the others have.

    ``head_dim`` is the default of the family, otherwise ``hidden_size / num_attention_heads``.
    ``num_kv_heads`` is fixed by the family. With ``kv_required``, a missing ``num_key_value_heads`` is an error.
    """
    num_heads = fields.count("num_attention_heads")
    if num_kv_heads is not None:
        _check_kv_heads(fields, num_kv_heads)
    else:
        absent = not kv_required or "num_key_value_heads" in fields.values
        num_kv_heads = fields.count("num_key_value_heads", num_heads if absent else None)
    return Attention(
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=fields.count("head_dim", head_dim or _even_head(fields)),
        qkv_bias=qkv_bias,
        output_bias=qkv_bias if output_bias is None else output_bias,
    )


def _check_kv_heads(fields: ConfigFields, fixed: int) -> None:
    """Refuses a file with another number of key-value heads than its family."""
    stated, heads = fields.count("num_key_value_heads", fixed), fields.count("num_attention_heads")
    if stated != fixed:
        raise fields.error(
            f"num_key_value_heads is {stated}",
            rule=f"a {fields.model_type} model of {heads} heads has {fixed} key-value heads",
            hint="correct num_key_value_heads, or leave it out",
        )


def _even_head(fields: ConfigFields) -> int | None:
    if fields.has("head_dim"):
        return None
    hidden_size, num_heads = fields.count("hidden_size"), fields.count("num_attention_heads")
    if hidden_size % num_heads:
        raise fields.error(
            f"a hidden size of {hidden_size} does not divide into {num_heads} attention heads",
            rule="without head_dim, num_attention_heads divides hidden_size",
            hint="correct one of them, or give head_dim",
        )
    return hidden_size // num_heads


def latent_attention(fields: ConfigFields) -> LatentAttention:
    """Latent attention of the DeepSeek families, with its indexer if the file has one."""
    if "q_lora_rank" not in fields.values:
        fields.count("q_lora_rank")  # absent is an error; null is an answer (DeepSeek-V2-Lite)
    topk = fields.optional_count("index_topk")
    fields.understood("num_key_value_heads", "head_dim", "qk_head_dim")  # all heads are decompressed from one latent
    return LatentAttention(
        num_heads=fields.count("num_attention_heads"),
        q_lora_rank=fields.optional_count("q_lora_rank"),
        kv_lora_rank=fields.count("kv_lora_rank"),
        qk_nope_head_dim=fields.count("qk_nope_head_dim"),
        qk_rope_head_dim=fields.count("qk_rope_head_dim", minimum=0),
        v_head_dim=fields.count("v_head_dim"),
        qkv_bias=fields.flag("attention_bias", default=False),
        index_topk=topk,
        index_num_heads=0 if topk is None else fields.count("index_n_heads"),
        index_head_dim=0 if topk is None else fields.count("index_head_dim"),
    )


def mlp(fields: ConfigFields, *, gated: bool, bias: bool = False, width: int | None = None) -> MLP:
    """MLP of ``intermediate_size``, or of ``width`` if the file leaves that out."""
    return MLP(intermediate_size=fields.count("intermediate_size", width), gated=gated, bias=bias)


BIASED: Final = (
    "bailing_moe", "deepseek_v3", "deepseek_v32", "deepseek_v4", "dots1", "ernie4_5_moe", "glm4_moe", "glm4_moe_lite",
    "glm4v_moe_text", "glm5_next_text", "glm_moe_dsa", "kimi_k2", "kimi_linear", "lfm2_moe", "minimax_m2", "nemotron_h",
    "solar_open",
)  # fmt: skip
"""Families whose router adds biases that are moved against the load (``e_score_correction_bias``, ``expert_bias``)."""


def experts(
    fields: ConfigFields,
    *,
    width: str = "moe_intermediate_size",
    num_shared: int = 0,
    shared_width: int | None = None,
    shared_gate: bool = False,
    bias: bool = False,
) -> MixtureOfExperts:
    """Gated experts, each as wide as the field ``width``, and ``num_shared`` of the same width that all tokens use.

    ``shared_width`` is the total width of the shared experts if it has its own field.
    """
    size = fields.count(width)
    return MixtureOfExperts(
        num_experts=fields.count("num_experts"),
        top_k=fields.count("num_experts_per_tok"),
        intermediate_size=size,
        gated=True,
        bias=bias,
        router_bias=bias,
        shared_intermediate_size=num_shared * size if shared_width is None else shared_width,
        shared_gate=shared_gate,
        balanced_by_bias=fields.model_type in BIASED,
    )


def grouped(fields: ConfigFields, moe: MixtureOfExperts, default: tuple[int, int] = (1, 1)) -> MixtureOfExperts:
    """``moe`` with the groups of its router, by default the family's. Greedy routing (DeepSeek-V2) ignores groups."""
    if fields.word("topk_method") == "greedy":
        return moe
    n_group = fields.optional_count("n_group", default[0]) or 1
    return replace(moe, n_group=n_group, topk_group=fields.optional_count("topk_group", min(default[1], n_group)) or 1)


def first_k_dense(fields: ConfigFields, first_k: int) -> tuple[bool, ...]:
    """Whether each layer has experts: all from ``first_k_dense_replace`` on, or what ``mlp_layer_types`` says."""
    n = fields.num_layers
    kinds = fields.kinds("mlp_layer_types", ("dense", "sparse"), length=n)
    if kinds:
        fields.understood("first_k_dense_replace", "moe_layer_freq")
        return tuple(kind == "sparse" for kind in kinds)
    first_k = fields.count("first_k_dense_replace", first_k, minimum=0)
    every = fields.count("moe_layer_freq", 1)
    return tuple(i >= first_k and i % every == 0 for i in range(n))


def sparse_step(fields: ConfigFields) -> tuple[bool, ...]:
    """Whether each layer has experts: every ``decoder_sparse_step``-th but those of ``mlp_only_layers`` (Qwen)."""
    n = fields.num_layers
    step = fields.count("decoder_sparse_step", 1)
    dense = set(fields.counts("mlp_only_layers", maximum=n - 1))
    return tuple((i + 1) % step == 0 and i not in dense for i in range(n))


def sliding(fields: ConfigFields, by_default: Callable[[int], bool]) -> tuple[bool, ...]:
    """Whether each layer attends within a sliding window: by ``layer_types``, else by the family's default."""
    n = fields.num_layers
    kinds = fields.kinds("layer_types", ("full_attention", "sliding_attention"), length=n)
    fields.understood("sliding_window_pattern")
    if kinds:
        return tuple(kind == "sliding_attention" for kind in kinds)
    return tuple(by_default(i) for i in range(n))


def windowed(
    fields: ConfigFields, base: Attention, slides: Sequence[bool], *, default: int | None = None
) -> tuple[Attention, ...]:
    """``base`` once per layer, with ``sliding_window`` if the layer slides; a window of null is none."""
    fields.understood("sliding_window")
    if not any(slides):
        return (base,) * len(slides)
    local = replace(base, window=fields.optional_count("sliding_window", default))
    return tuple(local if slide else base for slide in slides)


def all_but_every(period: int) -> Layout:
    """By default, all layers slide but the last of every ``period``."""
    return lambda fields: sliding(fields, lambda i: (i + 1) % period != 0)


def every_layer(fields: ConfigFields) -> Sequence[bool]:
    """Every layer slides."""
    return (True,) * fields.num_layers


def feed_forwards(
    fields: ConfigFields, sparse: Sequence[bool], moe: Callable[[ConfigFields], MixtureOfExperts]
) -> list[FeedForward]:
    """Experts where ``sparse`` is true, elsewhere a gated MLP of ``intermediate_size``; reads only what occurs."""
    fields.understood("intermediate_size", *ROUTING)
    routed = moe(fields) if any(sparse) else None
    dense = None if all(sparse) else mlp(fields, gated=True)
    chosen = [routed if is_sparse else dense for is_sparse in sparse]
    return [part for part in chosen if part is not None]


def stack(
    fields: ConfigFields,
    mixers: Mixer | Sequence[Mixer | None] | None,
    mlps: FeedForward | Sequence[FeedForward | None] | None,
    *,
    num_norms: int = 2,
    parallel_residual: bool = False,
) -> tuple[Layer, ...]:
    """Layers from their mixers and MLPs, given for each or one for all; equal layers are one object."""
    pairs = list(zip(_for_each(mixers, fields), _for_each(mlps, fields), strict=True))
    kinds = {
        pair: Layer(mixer=pair[0], mlp=pair[1], num_norms=num_norms, parallel_residual=parallel_residual)
        for pair in dict.fromkeys(pairs)
    }
    return tuple(kinds[pair] for pair in pairs)


def _for_each(part: T | Sequence[T], fields: ConfigFields) -> Sequence[T]:
    return part if isinstance(part, list | tuple) else [cast("T", part)] * fields.num_layers


def decoder(fields: ConfigFields, layers: tuple[Layer, ...], *, tie: bool = False) -> ModelConfig:
    """Causal language model of ``layers``; ``tie`` is the family's default for a tied head."""
    return ModelConfig(
        name=fields.name,
        model_type=fields.model_type,
        hidden_size=fields.count("hidden_size"),
        layers=layers,
        vocab_size=fields.count("vocab_size"),
        tie_word_embeddings=fields.flag("tie_word_embeddings", tie),
        norm_bias=False,
        max_position_embeddings=fields.count("max_position_embeddings"),
        num_mtp_layers=fields.count("num_nextn_predict_layers", 0, minimum=0),
    )

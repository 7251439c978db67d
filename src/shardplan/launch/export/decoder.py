"""A model as launch files state it: one kind of attention, dense layers, experts, and what is unusual about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from shardplan.base.errors import InputError
from shardplan.base.fields import dataclass
from shardplan.inputs.layers import MLP, Attention, LatentAttention, Layer, MixtureOfExperts
from shardplan.inputs.model import ModelConfig

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Decoder:
    """A decoder whose layers differ at most in windows, positions, and in being dense or of experts."""

    model: ModelConfig
    attention: Attention | LatentAttention
    """Attention of every layer; windows, chunks and positions aside."""
    dense: MLP | None
    """MLP of dense layers; None: there are none."""
    experts: MixtureOfExperts | None
    """Experts of the other layers; None: there are none."""
    has_experts: tuple[bool, ...]
    """Which layers have experts."""
    windows: tuple[int | None, ...]
    """Keys that a query sees in each layer; None: all."""
    rotary: tuple[bool, ...]
    """Which layers rotate queries and keys."""
    features: Mapping[str, str]
    """What is unusual about it, by name, as a person reads it."""

    @property
    def gated(self) -> bool:
        """Whether MLPs and experts have a gate."""
        part = self.experts or self.dense
        return part is not None and part.gated

    @property
    def ffn_size(self) -> int:
        """Width of dense layers; of an expert where all layers have experts."""
        part = self.dense or self.experts
        assert part is not None
        return part.intermediate_size

    @property
    def has_bias(self) -> bool:
        """Whether any of the linear layers other than those of queries, keys and values has a bias."""
        a = self.attention
        output = isinstance(a, Attention) and a.output_bias
        return output or any(part is not None and part.bias for part in (self.dense, self.experts))

    def unlike(self, *expressed: str) -> tuple[str, ...]:
        """Features that are not among the ``expressed`` ones."""
        return tuple(text for name, text in self.features.items() if name not in expressed)


def decoder_of(model: ModelConfig) -> Decoder:
    """The facts of ``model``. Raises ``InputError`` where it is no decoder of attention layers."""
    _check(model)
    mixers = [_mixer(layer, model) for layer in model.layers]
    experts = [layer.mlp for layer in model.layers if isinstance(layer.mlp, MixtureOfExperts)]
    dense = [layer.mlp for layer in model.layers if isinstance(layer.mlp, MLP)]
    decoder = Decoder(
        model=model,
        attention=_only([_plain(each) for each in mixers], "attention", model),
        dense=_only(dense, "MLPs", model) if dense else None,
        experts=_only(experts, "experts", model) if experts else None,
        has_experts=tuple(isinstance(layer.mlp, MixtureOfExperts) for layer in model.layers),
        windows=tuple(each.window if isinstance(each, Attention) else None for each in mixers),
        rotary=tuple(each.rotary for each in mixers),
        features={},
    )
    return replace(decoder, features=dict(_features(decoder, mixers)))


def _check(model: ModelConfig) -> None:
    """Refuses encoders, vision models and layers without attention. Raises ``InputError``."""
    kinds = model.layer_kinds
    reads_text = model.vocab_size > 0 and model.patch is None and not (model.num_labels or model.num_token_types)
    is_decoder = all(
        isinstance(kind.mixer, Attention | LatentAttention)
        and kind.mixer.causal
        and kind.parallel_mixer is None
        and kind.mlp is not None
        for kind in kinds
    )
    if not (reads_text and is_decoder and model.causal):
        raise _wrong(model, "it is no decoder whose layers are attention and an MLP or experts")


def _wrong(model: ModelConfig, why: str) -> InputError:
    return InputError(
        f"'{model.name}' cannot be exported: {why}",
        rule="models that are exported are decoders of attention layers of one kind",
        hint="take the plan's options from `shardplan plan` and put them into a launch file of your own",
    )


def _mixer(layer: Layer, model: ModelConfig) -> Attention | LatentAttention:
    if not isinstance(layer.mixer, Attention | LatentAttention):
        raise _wrong(model, "it has layers without attention")
    return layer.mixer


def _plain(mixer: Attention | LatentAttention) -> Attention | LatentAttention:
    """Attention without what may differ among layers."""
    if isinstance(mixer, Attention):
        return replace(mixer, window=None, chunk=None, rotary=True)
    return replace(mixer, rotary=True)


def _only(found: list[T], what: str, model: ModelConfig) -> T:
    """The one kind there is. Raises ``InputError``."""
    if any(each != found[0] for each in found):
        raise _wrong(model, f"its layers differ in their {what}")
    return found[0]


def _features(d: Decoder, mixers: list[Attention | LatentAttention]) -> Iterator[tuple[str, str]]:
    yield from _of_model(d.model)
    yield from _of_attention(d, mixers)
    yield from _of_mlps(d)


def _of_model(model: ModelConfig) -> Iterator[tuple[str, str]]:
    kinds = model.layer_kinds
    if model.norm_bias:
        yield "layer_norm", "norms with a bias (LayerNorm)"
    if not model.norm_weight:
        yield "norm_weight", "norms without a weight"
    if model.num_position_embeddings:
        yield "learned_positions", f"{model.num_position_embeddings} learned positions"
    if model.has_embedding_norm:
        yield "embedding_norm", "a norm behind the embedding"
    if model.head_bias:
        yield "head_bias", "a bias in the output head"
    if model.tie_word_embeddings:
        yield "tied_embeddings", "input and output embeddings are one table"
    if model.num_mtp_layers:
        yield "mtp", f"{model.num_mtp_layers} blocks of multi-token prediction"
    if not model.has_final_norm:
        yield "final_norm", "no norm behind the last layer"
    if any(kind.parallel_residual for kind in kinds):
        yield "parallel_residual", "attention and MLP in parallel"
    elif any(kind.num_norms != 2 for kind in kinds):
        yield "norms", f"{max(kind.num_norms for kind in kinds)} norms in a layer"
    if any(kind.layer_scale for kind in kinds):
        yield "layer_scale", "scaled outputs of a layer's parts"


def _of_attention(d: Decoder, mixers: list[Attention | LatentAttention]) -> Iterator[tuple[str, str]]:
    total = len(mixers)
    windows = Counter(each for each in d.windows if each is not None)
    for window, number in sorted(windows.items()):
        yield "windows", f"attention windows of {window} keys in {number} of {total} layers"
    if not all(d.rotary) and not d.model.num_position_embeddings:
        yield "no_rotary", f"no rotary positions in {d.rotary.count(False)} of {total} layers"
    if isinstance(d.attention, LatentAttention):
        yield "latent_attention", "multi-head latent attention"
        if d.attention.index_topk:
            yield "sparse_attention", f"sparse attention to {d.attention.index_topk} keys"
        if d.attention.qkv_bias:
            yield "qkv_bias", "biases of queries, keys and values"
        return
    if chunks := {each.chunk for each in mixers if isinstance(each, Attention) and each.chunk}:
        yield "chunks", f"attention within chunks of {max(chunks)} keys"
    if d.attention.qk_norm != "none":
        yield f"qk_norm_{d.attention.qk_norm}", f"norms of queries and keys ({d.attention.qk_norm})"
    for name, text in (
        ("qkv_bias", "biases of queries, keys and values"),
        ("output_bias", "a bias of attention's output projection"),
        ("sinks", "attention sinks"),
        ("output_gate", "gated attention output"),
        ("tied_kv", "keys that serve as values"),
    ):
        if getattr(d.attention, name):
            yield name, text


def _of_mlps(d: Decoder) -> Iterator[tuple[str, str]]:
    parts = [part for part in (d.dense, d.experts) if part is not None]
    if len({part.gated for part in parts}) > 1:
        yield "mixed_gates", "a gate in dense layers or in experts, not in both"
    if not d.gated:
        yield "ungated", "MLPs without a gate"
    if any(part.bias for part in parts):
        yield "mlp_bias", "biases in MLPs"
    if d.dense is not None and d.dense.num_activation_parameters:
        yield "activation_parameters", "an activation function with learned numbers"
    if d.experts is not None:
        yield "experts", f"{d.experts.num_experts} experts, {d.experts.top_k} for a token"
        yield from _of_experts(d, d.experts)


def _of_experts(d: Decoder, e: MixtureOfExperts) -> Iterator[tuple[str, str]]:
    if not all(d.has_experts):
        yield "some_dense", f"experts in {d.has_experts.count(True)} of {len(d.has_experts)} layers"
    if e.shared_intermediate_size:
        yield "shared_experts", f"shared experts of width {e.shared_intermediate_size}"
    if e.shared_gate:
        yield "shared_gate", "a gate on the shared experts"
    if e.router_bias:
        yield "router_bias", "a bias of the router"
    if e.latent_size is not None:
        yield "latent_experts", f"experts on {e.latent_size} channels"
    if e.n_group > 1:
        yield "expert_groups", f"routing to {e.topk_group} of {e.n_group} groups of experts"

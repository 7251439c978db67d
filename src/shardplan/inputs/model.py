"""A model: its layers in order, its embeddings and its head, and their numbers of parameters.

Nothing that reads a :class:`ModelConfig` asks which family it comes from. The parts of a layer are in
:mod:`shardplan.inputs.layers` and can be imported from here.
"""

from __future__ import annotations

from dataclasses import field, replace
from functools import cached_property

from shardplan.base.errors import InputError
from shardplan.base.fields import dataclass
from shardplan.base.units import format_count
from shardplan.inputs.compressed import CompressedAttention, collapse_parameters
from shardplan.inputs.counts import MAX_NUM_LAYERS, check_counts
from shardplan.inputs.layers import Attention, LatentAttention, Layer, MixtureOfExperts


@dataclass(frozen=True, kw_only=True)
class ModelDetails:
    """Values of a ``config.json`` that do not affect time and memory. None: the file does not state it."""

    rope_theta: float | None = None
    """Base of rotary positions."""
    partial_rotary_factor: float | None = None
    """Share of a head's channels that are rotated."""
    rope_scaling: tuple[tuple[str, bool | float | str], ...] = ()
    """Scaling of rotary positions, by name in ``config.json``; empty: none, or none stated."""
    norm_eps: float | None = None
    """Number that norms add below the root."""
    hidden_act: str | None = None
    """Activation function, or that of the gate: ``silu``, ``gelu`` ..."""
    initializer_range: float | None = None
    """Standard deviation of initial weights."""
    scoring_func: str | None = None
    """How the router turns its outputs into scores: ``softmax`` or ``sigmoid``."""
    routed_scaling_factor: float | None = None
    """Factor of the routed experts' outputs."""
    norm_topk_prob: bool | None = None
    """Whether the weights of a token's experts are normalised to add up to one."""

    @property
    def scaling_kind(self) -> str:
        """Kind of scaling of rotary positions, such as ``llama3`` or ``yarn``; empty: none is stated."""
        known = dict(self.rope_scaling)
        return str(known.get("rope_type", known.get("type", ""))) if known else ""


@dataclass(frozen=True, kw_only=True)
class PatchEmbedding:
    r"""Image patches to tokens (ViT, Dosovitskiy et al. 2021): a convolution with bias and one class token.

    Parameters: :math:`c p^2 h + h + h`, with :math:`c` channels and patches of :math:`p \times p` pixels.
    """

    image_size: int
    """Side of the square image. [pixels]"""
    patch_size: int
    """Side of the square patch. [pixels]"""
    num_channels: int
    """Colour channels."""
    num_registers: int = 0
    """Register tokens besides the class token (Darcet et al. 2023, arXiv 2309.16588)."""
    has_mask_token: bool = False
    """A learned token takes the place of masked patches (DINOv2)."""

    def __post_init__(self) -> None:
        check_counts(self, "image_size", "patch_size", "num_channels")
        check_counts(self, "num_registers", minimum=0)
        if self.patch_size > self.image_size:
            raise InputError(
                f"patches of {self.patch_size} pixels do not fit an image of {self.image_size}",
                rule="patch_size is at most image_size",
                hint="lower patch_size or raise image_size",
            )

    @property
    def num_patches(self) -> int:
        """Patches per image; a part of a patch at the edge is dropped."""
        return (self.image_size // self.patch_size) ** 2

    @property
    def sequence_length(self) -> int:
        """Tokens per image: the patches, the class token and the registers."""
        return self.num_patches + 1 + self.num_registers

    def num_parameters(self, hidden_size: int) -> int:
        """Convolution, its bias and the tokens that are not patches."""
        tokens = 1 + self.num_registers + self.has_mask_token
        return (self.num_channels * self.patch_size**2 + 1 + tokens) * hidden_size


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    r"""A transformer, or a hybrid of attention and state-space layers.

    Parameters: embeddings, the layers, the final norm and the head,

    .. math:: V h + P h + \sum_l N_l + h + V h

    where the last term is absent with tied embeddings, and :math:`P` counts learned positions and token types.
    Multi-token-prediction blocks are not part of it, as on most model cards: see :attr:`num_mtp_parameters`.
    """

    name: str
    """Display name."""
    model_type: str
    """Family, as Hugging Face spells it."""
    hidden_size: int
    """Channels of the residual stream."""
    layers: tuple[Layer, ...]
    """Every layer, in order."""
    vocab_size: int
    """Rows of the token embedding; 0: the model reads no tokens (ViT)."""
    tie_word_embeddings: bool
    """The output head is the token embedding."""
    norm_bias: bool
    """Norms have a bias (LayerNorm) or not (RMSNorm)."""
    max_position_embeddings: int
    """Longest sequence the model is made for. [tokens]"""
    num_position_embeddings: int = 0
    """Rows of learned positions; 0: none."""
    num_mtp_layers: int = 0
    """Multi-token-prediction blocks after the last layer; not in :attr:`num_parameters`."""
    patch: PatchEmbedding | None = None
    """Patch embedding of a vision transformer."""
    num_labels: int = 0
    """Classes of a classification head; 0: none."""
    has_final_norm: bool = True
    """A norm follows the last layer."""
    causal: bool = True
    """The model predicts the next token; False for encoders."""
    notes: tuple[str, ...] = ()
    """What the reader of the file left out or assumed, as text."""
    norm_weight: bool = True
    """Norms have a weight (False: OLMo)."""
    has_embedding_norm: bool = False
    """A norm follows the embeddings (BLOOM, BERT)."""
    num_token_types: int = 0
    """Rows of the segment embedding (BERT); 0: none."""
    head_bias: bool = False
    """The output head has a bias."""
    has_head_transform: bool = False
    """A dense layer and a norm precede the output head (BERT)."""
    head_transform_bias: bool = True
    """That dense layer has a bias (ModernBERT: none)."""
    num_label_inputs: int = 1
    """Hidden states that the classification head reads (DINOv2: class token and mean patch, 2)."""
    averages_streams: bool = False
    """Whether several residual streams are averaged after the last layer, without weights (GLM-5.3)."""
    mtp_block: Layer | None = None
    """Layer inside a multi-token-prediction block, if it differs from the last layer's kind."""
    details: ModelDetails = field(default=ModelDetails(), compare=False)
    """Values that launch files state and no cost depends on; they do not count when models are compared."""

    def __post_init__(self) -> None:
        check_counts(self, "hidden_size", "max_position_embeddings")
        check_counts(self, "vocab_size", "num_position_embeddings", "num_mtp_layers", minimum=0)
        check_counts(self, "num_labels", "num_token_types", minimum=0)
        check_counts(self, "num_label_inputs")
        if not 1 <= len(self.layers) <= MAX_NUM_LAYERS:
            raise InputError(
                f"'{self.name}' has {len(self.layers)} layers",
                rule=f"a model has 1 to {MAX_NUM_LAYERS:,} layers",
                hint="correct num_hidden_layers",
            )
        if not self.vocab_size and self.patch is None:
            raise InputError(
                f"'{self.name}' has neither a vocabulary nor image patches",
                rule="a model reads tokens or patches",
                hint="give vocab_size, or image_size and patch_size",
            )

    @property
    def num_hidden_layers(self) -> int:
        """Layers, without multi-token prediction."""
        return len(self.layers)

    @cached_property
    def layer_kinds(self) -> tuple[Layer, ...]:
        """Distinct layers, in order of first appearance."""
        distinct = dict.fromkeys({id(layer): layer for layer in self.layers}.values())
        return tuple(distinct)

    @cached_property
    def layer_pattern(self) -> tuple[int, ...]:
        """For every layer its index in :attr:`layer_kinds`."""
        index = {kind: i for i, kind in enumerate(self.layer_kinds)}
        by_identity = {id(layer): index[layer] for layer in {id(layer): layer for layer in self.layers}.values()}
        return tuple(by_identity[id(layer)] for layer in self.layers)

    @property
    def is_moe(self) -> bool:
        """Whether any layer routes tokens to experts."""
        return any(isinstance(kind.mlp, MixtureOfExperts) for kind in self.layer_kinds)

    @property
    def mtp_layer(self) -> Layer:
        """Layer inside a multi-token-prediction block: by default one of the last layer's kind."""
        return self.mtp_block or self.layers[-1]

    @property
    def norm_parameters(self) -> int:
        """Parameters of one norm over the hidden size."""
        return self.hidden_size * (self.norm_weight + self.norm_bias)

    @property
    def num_embedding_parameters(self) -> int:
        """Parameters of the input token table."""
        return self.vocab_size * self.hidden_size

    @property
    def num_input_parameters(self) -> int:
        """Everything before the first layer: tokens, positions, token types, patches and their norm."""
        rows = self.vocab_size + self.num_position_embeddings + self.num_token_types
        patches = self.patch.num_parameters(self.hidden_size) if self.patch else 0
        return rows * self.hidden_size + patches + self.norm_parameters * self.has_embedding_norm

    @property
    def num_head_parameters(self) -> int:
        """Everything after the final norm that is not tied to the input embedding."""
        h = self.hidden_size
        tokens = 0 if self.tie_word_embeddings else self.num_embedding_parameters
        transform = (h * (h + self.head_transform_bias) + self.norm_parameters) * self.has_head_transform
        labels = (self.num_label_inputs * h + 1) * self.num_labels
        return tokens + transform + self.vocab_size * self.head_bias + labels

    @property
    def streams(self) -> int:
        """Residual streams between its layers."""
        return self.layers[-1].streams

    @property
    def residual_size(self) -> int:
        """Channels of all residual streams, which a pipeline stage sends to the next."""
        return self.streams * self.hidden_size

    @property
    def final_parameters(self) -> int:
        """Parameters between the last layer and the head: the norm, and what combines several streams."""
        weights = 0 if self.averages_streams else collapse_parameters(self.hidden_size, self.streams)
        return self.norm_parameters * self.has_final_norm + weights

    def __repr__(self) -> str:
        size = f"{format_count(self.num_parameters)} parameters"
        return f"<ModelConfig {self.name}: {size}, {self.num_hidden_layers} layers, hidden size {self.hidden_size:,}>"

    @cached_property
    def num_parameters(self) -> int:
        """All parameters, without multi-token-prediction blocks."""
        return self._count(active=False)

    @property
    def num_active_parameters(self) -> int:
        """Like :attr:`num_parameters`, but with only the routed experts that a token uses."""
        return self._count(active=True)

    @property
    def num_active_parameters_without_input_embedding(self) -> int:
        """Active parameters without an input embedding that is only looked up; a tied one is the head and counts."""
        untied = not self.tie_word_embeddings
        return self.num_active_parameters - untied * self.num_embedding_parameters

    @property
    def num_mtp_parameters(self) -> int:
        r"""Parameters of the multi-token-prediction blocks, embedding and head shared with the model.

        Each holds a layer, a projection of two hidden states to one, :math:`2 h^2`, and three norms
        (DeepSeek-V3, arXiv 2412.19437, section 2.2).
        """
        return self.num_mtp_layers * (self.num_layer_parameters(self.mtp_layer) + self.joining_parameters)

    @property
    def joining_parameters(self) -> int:
        """Parameters of a multi-token-prediction block outside its layer; they combine several streams into one."""
        own = 2 * self.hidden_size**2 + 3 * self.norm_parameters
        return own + collapse_parameters(self.hidden_size, self.mtp_layer.streams)

    def num_layer_parameters(self, layer: Layer, *, active: bool = False) -> int:
        """Parameters of one layer of this model; ``active`` counts only the routed experts that a token uses."""
        count = layer.num_active_parameters if active else layer.num_parameters
        return count(self.hidden_size, norm_bias=self.norm_bias, norm_weight=self.norm_weight)

    def _count(self, *, active: bool) -> int:
        counts = [self.num_layer_parameters(kind, active=active) for kind in self.layer_kinds]
        layers = sum(counts[i] for i in self.layer_pattern)
        return self.num_input_parameters + layers + self.final_parameters + self.num_head_parameters


def check_positions(model: ModelConfig, sequence_length: int) -> None:
    """Refuse sequences for which a model has no learned positions. Raises InputError."""
    if not model.num_position_embeddings or sequence_length <= model.max_position_embeddings:
        return
    lower = f"set --sequence-length to at most {model.max_position_embeddings:,}"
    field = "image_size" if model.patch else "the number of positions (max_position_embeddings, n_positions)"
    raise InputError(
        f"sequences of {sequence_length:,} tokens, and {model.name} has learned positions for "
        f"{model.max_position_embeddings:,}",
        rule="a sequence is no longer than a model's learned positions",
        hint=f"{lower}, or raise {field} in the model's file",
    )


def beyond_positions(model: ModelConfig, sequence_length: int) -> str:
    """A note on sequences longer than a model with rotary positions is made for; empty for shorter ones."""
    mixers = (mixer for kind in model.layer_kinds for mixer in kind.mixers)
    rotates = any(
        isinstance(mixer, CompressedAttention) or (isinstance(mixer, Attention | LatentAttention) and mixer.rotary)
        for mixer in mixers
    )
    if not rotates or sequence_length <= model.max_position_embeddings:
        return ""
    return (
        f"sequences of {sequence_length:,} tokens are longer than the {model.max_position_embeddings:,} that "
        f"{model.name} is made for (max_position_embeddings): time and memory are right, rotary positions need scaling"
    )


def with_positions(model: ModelConfig, sequence_length: int) -> ModelConfig:
    """``model`` as if made for sequences of this length, which a measured run used; learned positions are unchanged."""
    if not model.num_position_embeddings or model.patch or sequence_length <= model.max_position_embeddings:
        return model
    return replace(model, max_position_embeddings=sequence_length)

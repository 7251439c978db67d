"""The parts of a transformer layer, their dimensions and their numbers of parameters.

Dimensions keep their Hugging Face names. Parameter counts follow the modules of ``transformers``: weights, biases and
norms; buffers (rotary tables, the score-correction bias of DeepSeek's router) do not count.

Symbols of the equations: :math:`h` hidden size, :math:`n` query heads, :math:`g` key-value heads, :math:`d` head size,
:math:`f` intermediate size, :math:`E` experts, :math:`V` vocabulary.
"""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar, Literal

from shardplan.base.errors import InputError
from shardplan.base.fields import dataclass
from shardplan.inputs.compressed import CompressedAttention, connection_parameters
from shardplan.inputs.counts import MAX_NUM_NORMS, check_counts
from shardplan.inputs.recurrent import MixerFacts, Recurrent

MAX_STREAMS = 64
Gradients = Literal["all", "input", "none"]
"""Which gradients of a layer training computes."""
QKNorm = Literal["none", "head", "full", "l2"]
"""Norm of queries and keys."""


@dataclass(frozen=True, kw_only=True)
class Attention(MixerFacts):
    r"""Multi-head attention; grouped when ``num_kv_heads < num_heads``. Vaswani et al. 2017; Ainslie et al. 2023.

    Parameters: :math:`2 h n d + 2 h g d` (:math:`h g d` less where keys serve as values), plus biases, norms of
    queries and keys, an output gate :math:`h n d`, and sinks.
    """

    title = "attention"
    dimensions: ClassVar = {
        "num_attention_heads": "num_heads",
        "num_key_value_heads": "num_kv_heads",
        "head_dim": "head_dim",
        "sliding_window": "window",
    }

    num_heads: int
    """Query heads."""
    num_kv_heads: int
    """Key-value heads; divides ``num_heads``."""
    head_dim: int
    """Size of one head; need not be ``hidden_size / num_heads``."""
    qkv_bias: bool = False
    """Biases on the query, key and value projections."""
    output_bias: bool = False
    """Bias on the output projection."""
    qk_norm: QKNorm = "none"
    """Norm of queries and keys: a weight per head channel (head), per projected channel (full), or none (l2)."""
    window: int | None = None
    """Sliding window: each query sees this many keys, itself included. None: all."""
    chunk: int | None = None
    """Chunked attention: queries see keys of their own chunk of this length only. None: one chunk."""
    causal: bool = True
    """Each query sees the keys up to its own position."""
    rotary: bool = True
    """Rotary position embedding on queries and keys."""
    sinks: bool = False
    """One learned logit per head in the softmax (GPT-OSS)."""
    output_gate: bool = False
    """A gate as wide as the queries, projected with them, multiplies the attention output (Qwen3-Next)."""
    tied_kv: bool = False
    """Keys serve as values: one projection for both (Gemma 4)."""

    def __post_init__(self) -> None:
        check_counts(self, "num_heads", "num_kv_heads", "head_dim")
        check_counts(self, *(name for name in ("window", "chunk") if getattr(self, name) is not None))
        if self.num_heads % self.num_kv_heads:
            raise InputError(
                f"{self.num_heads} query heads cannot share {self.num_kv_heads} key-value heads",
                rule="num_kv_heads divides num_heads",
                hint="set num_key_value_heads to a divisor of num_attention_heads",
            )

    def num_parameters(self, hidden_size: int) -> int:
        """Weights, biases, norms and sinks of one attention module."""
        q, kv = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        projected = q + (1 if self.tied_kv else 2) * kv + q * self.output_gate
        weights = hidden_size * (projected + q)
        biases = projected * self.qkv_bias + hidden_size * self.output_bias
        norms = {"none": 0, "l2": 0, "head": 2 * self.head_dim, "full": q + kv}[self.qk_norm]
        return weights + biases + norms + self.num_heads * self.sinks


@dataclass(frozen=True, kw_only=True)
class LatentAttention(MixerFacts):
    r"""Multi-head latent attention (MLA). DeepSeek-AI 2024, arXiv 2405.04434, section 2.1.

    With ``index_topk`` an indexer selects the keys of every query (sparse attention of DeepSeek-V3.2).
    Parameters, with :math:`r_q, r_{kv}` the ranks and :math:`d_n, d_r, d_v` the head sizes (without position,
    rotary, value):
    :math:`h r_q + r_q + r_q n (d_n + d_r)` (or :math:`h n (d_n + d_r)` without a query rank)
    :math:`+ h (r_{kv} + d_r) + r_{kv} + r_{kv} n (d_n + d_v) + n d_v h`.
    """

    title = "MLA"
    dimensions: ClassVar = {"num_attention_heads": "num_heads"} | {
        name: name for name in ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    }

    num_heads: int
    """Query heads; keys and values have as many after decompression."""
    q_lora_rank: int | None
    """Rank of the query compression; None: queries are projected directly (DeepSeek-V2-Lite)."""
    kv_lora_rank: int
    """Rank of the shared key-value compression."""
    qk_nope_head_dim: int
    """Query and key channels per head without position."""
    qk_rope_head_dim: int
    """Query channels per head with rotary position; the key's are shared by all heads."""
    v_head_dim: int
    """Value channels per head."""
    qkv_bias: bool = False
    """Biases on the down-projections and on the output projection (``attention_bias`` of the DeepSeek files)."""
    index_topk: int | None = None
    """Keys that the indexer selects per query; None: dense attention."""
    index_num_heads: int = 0
    """Heads of the indexer; 0: the layer reuses the keys that an earlier one selected."""
    index_head_dim: int = 0
    """Size of one indexer head."""
    index_pool: int = 1
    """Tokens of one key of the indexer, pooled by a gate (GLM-5.3); 1 if each token has its own."""
    causal: bool = True
    """Each query sees the keys up to its own position."""
    rotary: bool = True
    """Rotary position embedding on the rotary channels (Kimi Linear: none)."""

    def __post_init__(self) -> None:
        check_counts(self, "num_heads", "kv_lora_rank", "qk_nope_head_dim", "v_head_dim", "index_pool")
        check_counts(self, "qk_rope_head_dim", minimum=0)
        if self.q_lora_rank is not None:
            check_counts(self, "q_lora_rank")
        if self.index_topk is not None:
            check_counts(self, "index_topk")
            check_counts(self, "index_num_heads", minimum=0)
            check_counts(self, "index_head_dim", minimum=min(self.index_num_heads, 1))
            if self.q_lora_rank is None:
                raise InputError(
                    f"index_topk is {self.index_topk} but q_lora_rank is None: the indexer reads the compressed query",
                    rule="an indexer needs q_lora_rank",
                    hint="give q_lora_rank, or leave out index_topk",
                )

    @property
    def qk_head_dim(self) -> int:
        """Query and key channels per head."""
        return self.qk_nope_head_dim + self.qk_rope_head_dim

    def num_parameters(self, hidden_size: int) -> int:
        """Weights, biases and norms of one module, indexer included."""
        h, n, bias = hidden_size, self.num_heads, self.qkv_bias
        rank, kv_rank, rope = self.q_lora_rank, self.kv_lora_rank, self.qk_rope_head_dim
        query = h * n * self.qk_head_dim if rank is None else rank * (h + 1 + bias + n * self.qk_head_dim)
        key_value = (h + bias) * (kv_rank + rope) + kv_rank + kv_rank * n * (self.qk_nope_head_dim + self.v_head_dim)
        return query + key_value + n * self.v_head_dim * h + h * bias + self.indexer_parameters(h)

    def indexer_parameters(self, hidden_size: int) -> int:
        r"""Parameters of the indexer: :math:`r_q n_i d_i + h d_i + 2 d_i + h n_i`; 0 without one.

        Keys that are pooled over p tokens also have a gate and biases by position: :math:`h d_i + p d_i`.
        """
        if self.index_topk is None or self.q_lora_rank is None:
            return 0
        n, d = self.index_num_heads, self.index_head_dim
        pooling = (hidden_size + self.index_pool) * d if n and self.index_pool > 1 else 0
        return self.q_lora_rank * n * d + hidden_size * d + 2 * d + hidden_size * n + pooling


@dataclass(frozen=True, kw_only=True)
class MLP:
    r"""Two matrices around an activation, :math:`2 h f`, or three when gated (SwiGLU, GeGLU), :math:`3 h f`."""

    dimensions: ClassVar = {"intermediate_size": "intermediate_size"}

    intermediate_size: int
    """Width between the matrices."""
    gated: bool
    """A third matrix gates the activation."""
    bias: bool = False
    """Biases on every matrix."""
    num_activation_parameters: int = 0
    """Learned numbers of the activation function (xIELU, arXiv 2411.13010: 2)."""

    def __post_init__(self) -> None:
        check_counts(self, "intermediate_size")
        check_counts(self, "num_activation_parameters", minimum=0)

    def num_parameters(self, hidden_size: int) -> int:
        """Weights and biases."""
        num_inputs = 1 + self.gated
        weights = (num_inputs + 1) * hidden_size * self.intermediate_size
        biases = (num_inputs * self.intermediate_size + hidden_size) * self.bias
        return weights + biases + self.num_activation_parameters


@dataclass(frozen=True, kw_only=True)
class MixtureOfExperts:
    r"""A router, :math:`E` experts of which every token uses ``top_k``, and shared experts that all tokens use.

    Parameters: :math:`h E + E \cdot 3 h f + 3 h f_{shared}` (2 for experts that are not gated). With a latent size
    :math:`l` the experts work on :math:`l` channels between two projections :math:`2 h l` (Nemotron-3 Super).
    """

    dimensions: ClassVar = {
        "num_experts": "num_experts",
        "num_experts_per_tok": "top_k",
        "moe_intermediate_size": "intermediate_size",
        "shared_expert_intermediate_size": "shared_intermediate_size",
    }

    num_experts: int
    """Routed experts."""
    top_k: int
    """Routed experts that a token uses."""
    intermediate_size: int
    """Width of one routed expert."""
    gated: bool
    """Experts, routed and shared, have a gate matrix."""
    bias: bool = False
    """Biases on every matrix of the experts."""
    router_bias: bool = False
    """Bias on the router."""
    shared_intermediate_size: int = 0
    """Total width of all shared experts; 0: none."""
    shared_gate: bool = False
    """One learned scalar gate per token on the shared experts (Qwen2-MoE, Qwen3-Next)."""
    latent_size: int | None = None
    """Channels that the routed experts read and write; None: the hidden size."""
    n_group: int = 1
    """Groups of consecutive routed experts; 1: none."""
    topk_group: int = 1
    """Groups that a token may use (group-limited routing: DeepSeek-V3, arXiv 2412.19437, section 2.1.2)."""
    balanced_by_bias: bool = field(default=False, compare=False)
    """Biases that are moved against the load choose the experts (DeepSeek-V3); else a separate loss balances them."""

    def __post_init__(self) -> None:
        check_counts(self, "num_experts", "top_k", "intermediate_size", "n_group", "topk_group")
        check_counts(self, "shared_intermediate_size", minimum=0)
        if self.latent_size is not None:
            check_counts(self, "latent_size")
        if self.top_k > self.num_experts:
            raise InputError(
                f"a token cannot visit {self.top_k} of {self.num_experts} experts",
                rule="top_k is at most num_experts",
                hint="lower num_experts_per_tok or raise the number of experts",
            )
        self._check_groups()

    def _check_groups(self) -> None:
        """Checks that groups are equal, and that those of a token hold enough experts."""
        if self.num_experts % self.n_group or self.topk_group > self.n_group:
            raise InputError(
                f"a token visits {self.topk_group} of {self.n_group} groups of {self.num_experts} experts",
                rule="n_group divides the number of experts, and topk_group is at most n_group",
                hint="correct n_group or topk_group, or leave both out where routing knows no groups",
            )
        reachable = self.topk_group * (self.num_experts // self.n_group)
        if self.top_k > reachable:
            raise InputError(
                f"a token cannot visit {self.top_k} experts in {self.topk_group} groups that hold {reachable}",
                rule="the groups that a token visits hold at least top_k experts",
                hint="lower num_experts_per_tok, or raise topk_group",
            )

    def router_parameters(self, hidden_size: int) -> int:
        """Weights and bias of the router."""
        return (hidden_size + self.router_bias) * self.num_experts

    def parameters_per_expert(self, hidden_size: int) -> int:
        """Parameters of one routed expert."""
        return self._mlp(self.intermediate_size).num_parameters(self.latent_size or hidden_size)

    def expert_parameters(self, hidden_size: int) -> int:
        """Parameters of all routed experts."""
        return self.num_experts * self.parameters_per_expert(hidden_size)

    def shared_parameters(self, hidden_size: int) -> int:
        """Parameters of the shared experts and their gate."""
        if not self.shared_intermediate_size:
            return 0
        return self._mlp(self.shared_intermediate_size).num_parameters(hidden_size) + hidden_size * self.shared_gate

    def latent_parameters(self, hidden_size: int) -> int:
        """Parameters of the projections into and out of the latent channels; 0 without them."""
        return 2 * hidden_size * (self.latent_size or 0)

    def num_parameters(self, hidden_size: int) -> int:
        """Router, routed and shared experts."""
        num_routed = self.expert_parameters(hidden_size)
        return num_routed + self._always_active_parameters(hidden_size)

    def num_active_parameters(self, hidden_size: int) -> int:
        """Router, ``top_k`` routed experts and the shared ones."""
        num_routed = self.top_k * self.parameters_per_expert(hidden_size)
        return num_routed + self._always_active_parameters(hidden_size)

    def _always_active_parameters(self, hidden_size: int) -> int:
        parts = (self.router_parameters, self.shared_parameters, self.latent_parameters)
        return sum(part(hidden_size) for part in parts)

    def _mlp(self, width: int) -> MLP:
        return MLP(intermediate_size=width, gated=self.gated, bias=self.bias)


Mixer = Attention | LatentAttention | CompressedAttention | Recurrent
"""A part that moves information between tokens."""


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One layer: a mixer, an MLP, or both, each in a residual connection."""

    mixer: Mixer | None
    """Attention or its replacement; None if the layer is only an MLP (hybrid models)."""
    mlp: MLP | MixtureOfExperts | None
    """MLP or mixture of experts; None if the layer is only a mixer (hybrid models)."""
    num_norms: int
    """Norms over the hidden size (norms inside the mixer not counted)."""
    gradients: Gradients = "all"
    """Gradients that training computes: all, only that of its input (frozen), or none (frozen, with nothing to
    train before it).
    """
    parallel_residual: bool = False
    """Whether mixer and MLP read the same input and their outputs are added (GPT-NeoX, PaLM)."""
    parallel_mixer: Mixer | None = None
    """Another mixer that reads the same input as ``mixer``, and whose output is added to it (Falcon-H1)."""
    streams: int = 1
    """Residual streams that its blocks read and write through hyper-connections (DeepSeek-V4); 1: one residual."""
    layer_scale: bool = False
    """The outputs of mixer and MLP are scaled per channel before they are added to the residual (DINOv2)."""

    def __post_init__(self) -> None:
        check_counts(self, "num_norms", minimum=0, maximum=MAX_NUM_NORMS)
        check_counts(self, "streams", maximum=MAX_STREAMS)
        if self.mixer is None and self.mlp is None:
            raise InputError("a layer has neither mixer nor mlp", rule="a layer does something", hint="give one")
        if self.mixer is None and self.parallel_mixer is not None:
            raise InputError(
                "a layer has a parallel_mixer and no mixer",
                rule="a parallel mixer stands next to another one",
                hint="give it as mixer",
            )

    @property
    def mixers(self) -> tuple[Mixer, ...]:
        """The mixers: none, one, or two in parallel."""
        return tuple(mixer for mixer in (self.mixer, self.parallel_mixer) if mixer is not None)

    @property
    def shares_norm(self) -> bool:
        """Whether mixer and MLP read the output of one norm."""
        return self.parallel_residual and self.num_norms == 1 and self.mixer is not None and self.mlp is not None

    @property
    def num_blocks(self) -> int:
        """Number of residual blocks: mixer and MLP."""
        return (self.mixer is not None) + (self.mlp is not None)

    @property
    def num_scales(self) -> int:
        """Vectors over the hidden size that scale the outputs of mixer and MLP."""
        return self.num_blocks * self.layer_scale

    def connection_parameters(self, hidden_size: int) -> int:
        """Hyper-connections around its blocks; 0 with one residual."""
        return self.num_blocks * connection_parameters(hidden_size, self.streams)

    def num_parameters(self, hidden_size: int, *, norm_bias: bool = False, norm_weight: bool = True) -> int:
        """Mixers, MLP, hyper-connections, scales and norms."""
        parts = sum(part.num_parameters(hidden_size) for part in (*self.mixers, self.mlp) if part)
        parts += self.connection_parameters(hidden_size)
        return parts + (self.num_norms * (norm_weight + norm_bias) + self.num_scales) * hidden_size

    def num_active_parameters(self, hidden_size: int, *, norm_bias: bool = False, norm_weight: bool = True) -> int:
        """Like :meth:`num_parameters`, but with only the routed experts that a token uses."""
        total = self.num_parameters(hidden_size, norm_bias=norm_bias, norm_weight=norm_weight)
        if not isinstance(self.mlp, MixtureOfExperts):
            return total
        return total - self.mlp.num_parameters(hidden_size) + self.mlp.num_active_parameters(hidden_size)

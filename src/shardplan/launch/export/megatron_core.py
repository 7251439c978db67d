"""What Megatron-LM, Megatron-Bridge and NeMo share: fields of Megatron Core that describe a model and its kernels.

Names are those of ``megatron/core/transformer/transformer_config.py`` at d98e8a64; Megatron-LM's options are the same
with dashes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, Final

from shardplan.inputs.layers import Attention, LatentAttention, MixtureOfExperts
from shardplan.launch.export.decoder import Decoder
from shardplan.launch.export.details import SILU, number_text, unlike_details
from shardplan.launch.export.shell import blocking
from shardplan.launch.export.written import LaunchCase

FEATURES: Final = (
    "layer_norm", "learned_positions", "tied_embeddings", "mtp", "windows", "no_rotary", "latent_attention",
    "qk_norm_head", "qkv_bias", "sinks", "output_gate", "ungated", "experts", "some_dense", "shared_experts",
    "shared_gate", "latent_experts", "expert_groups",
)  # fmt: skip
"""Features of a model that these fields express."""
SAID: Final = (
    "attention", "dropout", "grad_dtype", "moment_dtype", "quantised_weights", "blocking_launches", "loss_kernel",
)  # fmt: skip
"""Fields of a job and of its software that they express."""


def features(decoder: Decoder) -> tuple[str, ...]:
    """Those that a model's fields express: biases are all on, or all off but those of queries, keys and values."""
    has_all = {"output_bias", "mlp_bias"} <= {*decoder.features}
    return (*FEATURES, "output_bias", "mlp_bias") if has_all else FEATURES


def model_fields(case: LaunchCase) -> dict[str, Any]:
    """Dimensions of the model. A bool is a switch, a tuple a number for every layer (or the two of a window)."""
    d, model = case.decoder, case.model
    dropout = dict.fromkeys(("attention_dropout", "hidden_dropout"), 0.1 if case.job.dropout else 0.0)
    return {
        "num_layers": model.num_hidden_layers,
        "hidden_size": model.hidden_size,
        "ffn_hidden_size": d.ffn_size,
        **_attention(d),
        "add_bias_linear": {"output_bias", "mlp_bias"} <= {*d.features},
        "add_qkv_bias": "qkv_bias" in d.features,
        **_windows(d),
        **dropout,
        **({"mtp_num_layers": model.num_mtp_layers} if model.num_mtp_layers else {}),
        **({} if d.experts is None else _experts(d, d.experts)),
        **_details(case),
    }


def _details(case: LaunchCase) -> dict[str, Any]:
    """Known details of positions, initial weights and the router."""
    details, found = case.model.details, dict[str, Any]()
    if details.partial_rotary_factor not in (None, 1) and any(case.decoder.rotary):
        found["rotary_percent"] = number_text(details.partial_rotary_factor)
    if details.initializer_range is not None:
        found["init_method_std"] = number_text(details.initializer_range)
    if case.decoder.experts is not None and details.scoring_func in ("softmax", "sigmoid"):
        found["moe_router_score_function"] = details.scoring_func
    if case.decoder.experts is not None and details.routed_scaling_factor not in (None, 1):
        found["moe_router_topk_scaling_factor"] = number_text(details.routed_scaling_factor)
    return found


def lost_details(case: LaunchCase, activation: str | None, *, states_scaling: bool) -> tuple[str, ...]:
    """Known details that the launch files of a framework on Megatron Core do not state."""
    scaling = ("rope_scaling",) if states_scaling else ()
    return unlike_details(case, (*details_said(case, activation), *scaling))


def details_said(case: LaunchCase, activation: str | None) -> tuple[str, ...]:
    """Details that its fields express; ``activation``: the function that the options stand for."""
    known = case.model.details.hidden_act
    acts = ("hidden_act",) if known == activation or (known in SILU and activation in SILU) else ()
    scores = ("router",) if case.model.details.scoring_func in (None, "softmax", "sigmoid") else ()
    return ("partial_rotary_factor", "initializer_range", *acts, *scores)


def kernel_fields(case: LaunchCase) -> dict[str, Any]:
    """How the framework computes it: attention and loss; experts and graphs are options of its record."""
    software = case.job.software
    fields: dict[str, Any] = {"attention_backend": "unfused"} if case.job.attention == "unfused" else {}
    if software.loss_kernel == "single":
        fields |= {"cross_entropy_loss_fusion": True, "cross_entropy_fusion_impl": "te"}
    return fields


def _attention(d: Decoder) -> dict[str, Any]:
    a = d.attention
    if isinstance(a, LatentAttention):
        return {
            "num_attention_heads": a.num_heads,
            "multi_latent_attention": True,
            **({} if a.q_lora_rank is None else {"q_lora_rank": a.q_lora_rank}),
            "kv_lora_rank": a.kv_lora_rank,
            "qk_head_dim": a.qk_nope_head_dim,
            "qk_pos_emb_head_dim": a.qk_rope_head_dim,
            "v_head_dim": a.v_head_dim,
            "qk_layernorm": True,  # the norms behind the projections to low rank
        }
    return {
        "num_attention_heads": a.num_heads,
        "num_query_groups": a.num_kv_heads,
        "kv_channels": a.head_dim,
        "qk_layernorm": a.qk_norm == "head",
        **({"softmax_type": "learnable"} if a.sinks else {}),
        **({"attention_output_gate": True} if a.output_gate else {}),
    }


def _windows(d: Decoder) -> dict[str, Any]:
    """One window in some layers; a query counts among the keys it sees, and Megatron counts those before it."""
    found: dict[str, Any] = {}
    sizes = {each for each in d.windows if each is not None}
    if len(sizes) == 1:
        found["window_size"] = (max(sizes) - 1, 0)
        if None in d.windows:
            found["window_attn_skip_freq"] = tuple(int(each is not None) for each in d.windows)
    if not all(d.rotary) and any(d.rotary):
        found["no_rope_freq"] = tuple(int(not each) for each in d.rotary)
    return found


def _experts(d: Decoder, e: MixtureOfExperts) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "num_moe_experts": e.num_experts,
        "moe_router_topk": e.top_k,
        "moe_ffn_hidden_size": e.intermediate_size,
        "moe_layer_freq": 1 if all(d.has_experts) else tuple(map(int, d.has_experts)),
    }
    if e.shared_intermediate_size:
        fields["moe_shared_expert_intermediate_size"] = e.shared_intermediate_size
    if e.shared_gate:
        fields["moe_shared_expert_gate"] = True
    if e.latent_size is not None:
        fields["moe_latent_size"] = e.latent_size
    if e.n_group > 1:
        fields |= {"moe_router_num_groups": e.n_group, "moe_router_group_topk": e.topk_group}
    return fields


def pattern(values: Sequence[int]) -> str:
    """A list of zeros and ones as options of Megatron-LM have it.

    >>> pattern([0, 0, 0, 1, 1])
    '([0]*3+[1]*2)'
    """
    for period in range(1, len(values) // 2 + 1):
        if len(values) % period == 0 and list(values) == list(values[:period]) * (len(values) // period):
            return f"([{','.join(map(str, values[:period]))}]*{len(values) // period})"
    runs = [(value, len(list(same))) for value, same in groupby(values)]
    return f"({'+'.join(f'[{value}]*{number}' for value, number in runs)})"


def positions(d: Decoder) -> str:
    """The kind of position embedding."""
    return "learned_absolute" if d.model.num_position_embeddings else "rope" if any(d.rotary) else "none"


def environment(case: LaunchCase) -> dict[str, str]:
    """Variables that Megatron checks or that decide its speed.

    ``megatron/training/arguments.py``: with tensor or context parallelism CUDA_DEVICE_MAX_CONNECTIONS is 1 before
    Blackwell; it is above 1 or unset with sharded weights, and 1 or 32 where expert exchange overlaps. Fine-grained
    offload needs NVTE_CPU_OFFLOAD_V1.
    """
    plan, found = case.plan, dict[str, str]()
    is_before_blackwell = case.cluster.accelerator.generation in ("volta", "turing", "ampere", "ada", "hopper")
    if is_before_blackwell and plan.sharding in ("ddp", "zero1") and (plan.tp > 1 or plan.cp > 1):
        found["CUDA_DEVICE_MAX_CONNECTIONS"] = "32" if plan.overlap_ep and plan.ep > 1 else "1"
    if plan.offload == "activations" and not plan.offload_num_layers:
        found["NVTE_CPU_OFFLOAD_V1"] = "1"
    return found | blocking(case)


def is_gqa(d: Decoder) -> bool:
    """Whether key-value heads are fewer than query heads."""
    return isinstance(d.attention, Attention) and d.attention.num_kv_heads < d.attention.num_heads

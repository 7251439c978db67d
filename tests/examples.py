"""Models, clusters and constants that several tests use, written out so that no file can change them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from shardplan.inputs.cluster import Accelerator, Cluster, NetworkTier, Topology
from shardplan.inputs.layers import MLP, Attention, LatentAttention, Layer, MixtureOfExperts
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.profile import Profile, load_profile

GB = 1e9


def gpt(
    hidden_size: int,
    num_layers: int,
    num_heads: int,
    *,
    vocab_size: int = 51200,
    causal: bool = True,
    tied: bool = True,
) -> ModelConfig:
    """A GPT as in Megatron-LM: multi-head attention, an MLP of four times the width, biases, tied embeddings."""
    attention = Attention(
        num_heads=num_heads, num_kv_heads=num_heads, head_dim=hidden_size // num_heads, qkv_bias=True, output_bias=True,
        rotary=False, causal=causal,
    )  # fmt: skip
    layer = Layer(mixer=attention, mlp=MLP(intermediate_size=4 * hidden_size, gated=False, bias=True), num_norms=2)
    return ModelConfig(
        name="gpt", model_type="gpt2", hidden_size=hidden_size, layers=(layer,) * num_layers, vocab_size=vocab_size,
        tie_word_embeddings=tied, norm_bias=True, max_position_embeddings=2048, causal=causal,
    )  # fmt: skip


def llama(
    hidden_size: int, num_layers: int, num_heads: int, num_kv_heads: int, intermediate_size: int, *,
    vocab_size: int = 128256, tied: bool = False,
) -> ModelConfig:  # fmt: skip
    """A Llama: grouped-query attention, gated MLP, RMSNorm."""
    layer = Layer(
        mixer=Attention(num_heads=num_heads, num_kv_heads=num_kv_heads, head_dim=hidden_size // num_heads),
        mlp=MLP(intermediate_size=intermediate_size, gated=True),
        num_norms=2,
    )
    return ModelConfig(
        name="llama", model_type="llama", hidden_size=hidden_size, layers=(layer,) * num_layers, vocab_size=vocab_size,
        tie_word_embeddings=tied, norm_bias=False, max_position_embeddings=8192,
    )  # fmt: skip


def mixtral(num_layers: int = 32) -> ModelConfig:
    """Mixtral 8x7B (arXiv 2401.04088), or the first layers of it."""
    layer = Layer(
        mixer=Attention(num_heads=32, num_kv_heads=8, head_dim=128),
        mlp=MixtureOfExperts(num_experts=8, top_k=2, intermediate_size=14336, gated=True),
        num_norms=2,
    )
    return ModelConfig(
        name="mixtral", model_type="mixtral", hidden_size=4096, layers=(layer,) * num_layers, vocab_size=32000,
        tie_word_embeddings=False, norm_bias=False, max_position_embeddings=32768,
    )  # fmt: skip


def deepseek_v3(num_layers: int = 61, num_dense: int = 3, num_mtp_layers: int = 0) -> ModelConfig:
    """DeepSeek-V3 (arXiv 2412.19437, section 4.2), or the first layers of it."""
    attention = LatentAttention(
        num_heads=128, q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128
    )
    dense = Layer(mixer=attention, mlp=MLP(intermediate_size=18432, gated=True), num_norms=2)
    experts = MixtureOfExperts(
        num_experts=256, top_k=8, intermediate_size=2048, gated=True, shared_intermediate_size=2048, n_group=8,
        topk_group=4,
    )  # fmt: skip
    sparse = Layer(mixer=attention, mlp=experts, num_norms=2)
    return ModelConfig(
        name="deepseek-v3", model_type="deepseek_v3", hidden_size=7168,
        layers=(dense,) * num_dense + (sparse,) * (num_layers - num_dense), vocab_size=129280,
        tie_word_embeddings=False, norm_bias=False, max_position_embeddings=163840, num_mtp_layers=num_mtp_layers,
    )  # fmt: skip


GPT3_175B = gpt(12288, 96, 96)
LLAMA_70B = llama(8192, 80, 64, 8, 28672)
LLAMA_405B = llama(16384, 126, 128, 8, 53248)
SMALL = llama(512, 8, 8, 4, 2048, vocab_size=1024)


def accelerator(**changes: Any) -> Accelerator:  # fields of Accelerator
    """An 80 GB part of the Hopper generation with round numbers."""
    fields: dict[str, Any] = {
        "name": "part", "full_name": "Part", "vendor": "NVIDIA", "generation": "hopper", "memory_bytes": 80 * GB,
        "memory_bandwidth": 3350 * GB, "num_cores": 132, "host_link_bandwidth": 64 * GB,
        "peak_flops": {"fp32": 50e12, "bf16": 1000e12, "fp16": 1000e12, "fp8": 2000e12},
    }  # fmt: skip
    return Accelerator(**(fields | changes))


def tier(
    name: str, size: int | None, bandwidth: float, *, latency: float = 2e-6, topology: Topology = "switch"
) -> NetworkTier:
    """One level of the network; bandwidth in GB/s per accelerator and direction."""
    return NetworkTier(name=name, size=size, bandwidth=bandwidth * GB, latency=latency, kind=name, topology=topology)


def cluster(*tiers: NetworkTier, part: Accelerator | None = None) -> Cluster:
    """Accelerators joined by these tiers; by default nodes of eight."""
    tiers = tiers or (tier("node", 8, 450), tier("network", None, 50, latency=5e-6))
    return Cluster(
        name="cluster", full_name="Cluster", accelerator=part or accelerator(), tiers=tiers,
        accelerators_per_node=tiers[0].size or 8,
    )  # fmt: skip


IDEAL_CONSTANTS: dict[str, Any] = {
    **dict.fromkeys(
        ("matmul_launch_time", "matmul_half_depth", "matmul_wave_weight", "attention_half_sequence",
         "attention_head_dim_exponent", "memory_pass_latency", "accumulation_passes", "collective_launch_time",
         "ring_step_factor", "tp_fill", "tp_window", "tp_panel_loss", "cp_window", "ep_window", "pp_window",
         "offload_window", "hidden_slowdown", "dp_window", "fsdp_window", "moe_host_time", "moe_wait_time",
         "unfused_accumulation_factor", "microbatch_time", "optimizer_bytes_per_parameter", "step_time",
         "step_time_alone", "straggler_growth", "framework_bytes", "context_bytes", "process_bytes", "fragmentation",
         "fragmentation_when_full"),
        0.0,
    ),
    **dict.fromkeys(
        ("grouped_matmul_efficiency", "misaligned_matmul_efficiency", "attention_efficiency",
         "attention_backward_ratio", "unfused_attention_efficiency", "memory_efficiency",
         "moe_host_backward_ratio", "optimizer_pass_factor", "all_to_all_efficiency", "p2p_efficiency",
         "low_latency_share",
         "host_link_efficiency", "capacity_host_share"),
        1.0,
    ),
    "cast_bytes": 1e-12,  # a rate is divided by it
    "column_cast_bytes": dict.fromkeys(("input", "gradient", "weight"), 1e-12),
    "matmul_efficiency": dict.fromkeys(("fp32", "bf16", "fp16", "fp8"), 1.0),
    "network_efficiency": {"other": 1.0},
    "own_chunk_time": {"other": 0.0},
    "accelerator_rate": {},
    "attention_generation": dict.fromkeys(("current", "flash2", "flash1"), 1.0),
    "memory_pass_factor": dict.fromkeys(("fused", "eager"), 1.0),
    "activation_factor": dict.fromkeys(("fused", "eager"), 1.0),
    "kernel_launch_time": dict.fromkeys(("fused", "eager"), 0.0),
    "graph_host_share": dict.fromkeys(("none", "partial", "full"), 1.0),
    "dispatcher_host_share": dict.fromkeys(("alltoall", "deepep", "hybridep"), 1.0),
}  # fmt: skip
"""Every efficiency 1, every fixed time and hidden share 0: what is left is the textbook."""


def ideal_profile(**changes: Any) -> Profile:  # fields of Profile
    """Constants of an ideal machine, some of them changed."""
    return replace(load_profile("hopper"), **(IDEAL_CONSTANTS | changes))

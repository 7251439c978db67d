"""Values of options that are not fields of a job or a plan; ``options`` says what each option sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, get_args

from shardplan.base.words import folded, words
from shardplan.inputs.cluster import LinkType
from shardplan.inputs.software import LossKernel
from shardplan.inputs.words import (
    ATTENTION_GENERATIONS,
    DISPATCH_FORMATS,
    EXPERT_SCORES,
    FP8_SCALINGS,
    GRAPHS,
    KERNELS,
    NORM_KERNELS,
    SHARDED_ACCUMULATIONS,
    SOFTMAX_KERNELS,
    TP_OVERLAPS,
)

NOT_MODELLED: Final[Mapping[str, str]] = words(
    {
        "zb-h1": "zero-bubble zb",
        "zb-v": "v-half v-min",
        "interleaved": "interleaved-zero-bubble zb-interleaved",
    }
)
"""Schedules that shardplan does not model, and the schedules whose price they get: the zero-bubble schedule with the
activations of 1F1B; V-Half and V-Min (arXiv 2405.15362) keep less than ZB-V and wait longer; those of several chunks in
a loop share the bubble of the interleaved schedule.
"""

COMPILED: Final[Mapping[str, bool]] = words(
    {
        True: "yes true 1 on enabled inductor model model,loss loss,model block blocks per-block full "
        "reduce-overhead max-autotune max-autotune-no-cudagraphs torch.compile torchinductor",
        False: "no none false 0 off disabled eager",
    }
)
"""Whether a compiler fuses kernels: a switch, back ends, modes and torchtitan's ``compile.components``."""

RESHARDED: Final[Mapping[str, bool | None]] = words(
    {True: "yes true 1 on always enabled", False: "no false 0 off never disabled", None: "default"}
)
"""``default``, ``always`` and ``never`` are torchtitan's; the first keeps the framework's default."""

NETWORKS: Final[Mapping[str, str]] = words(
    {name: name for name in get_args(LinkType)}
    | {
        "infiniband": "infiniband ib ndr hdr edr infiniband-ndr infiniband-hdr ib-ndr ib-hdr",
        "roce": "roce rocev2 roce-v2",
        "tcp": "tcp tcp/ip",
        "omnipath": "omnipath omni-path opa",
    }
)
GRAPH_MAKERS: Final = frozenset(words({"": "transformer_engine te local"}))
GRAPH_PARTS: Final = frozenset(words({"": "full_iteration attn mlp moe moe_router moe_preprocess mamba"}))
"""What Megatron captures (``--cuda-graph-scope``)."""
ROUTER_PARTS: Final = frozenset(words({"": "moe_router moe_preprocess"}))
"""Parts of the expert router only."""

SOFTWARE_WORDS: Final[Mapping[str, Mapping[str, str]]] = {
    "attention_generation": ATTENTION_GENERATIONS,
    "kernels": KERNELS,
    "cuda_graphs": GRAPHS,
    "norm_kernel": NORM_KERNELS,
    "softmax_kernel": SOFTMAX_KERNELS,
    "expert_scores": EXPERT_SCORES,
    "loss_kernel": words({name: name for name in get_args(LossKernel)}),
    "moe_dispatch_format": DISPATCH_FORMATS,
    "fp8_scaling": FP8_SCALINGS,
    "tp_overlaps": TP_OVERLAPS,
    "sharded_accumulation": SHARDED_ACCUMULATIONS,
    "ring_kernels": KERNELS,
}
"""Fields of ``Software`` that are words; the others are switches, except for the dispatcher."""

OVERLAPS: Final[Mapping[str, Mapping[str, bool]]] = {
    "dp_grad": {"overlap_dp": True},
    "dp_param": {"overlap_dp": True},
    "dp": {"overlap_dp": True},
    "fsdp": {"overlap_dp": True},
    "fsdp_prefetch": {"overlap_dp": True},
    "tp": {"overlap_tp": True},
    "tp_comm": {"overlap_tp": True},
    "async_tp": {"overlap_tp": True},
    "no_tp": {"overlap_tp": False},
    "p2p": {"overlap_pp": True},
    "pp": {"overlap_pp": True},
    "moe_a2a": {"overlap_ep": True},
    "moe_a2a_1f1b": {"overlap_ep": True},
    "none": {"overlap_dp": False, "overlap_tp": False, "overlap_pp": False, "overlap_ep": False},
}
"""Words of ``overlap`` and the fields of a plan that they set."""
OVERLAP_WORDS: Final = {folded(word): settings for word, settings in OVERLAPS.items()}
OVERLAP_NAMES: Final = {folded(word): word for word in OVERLAPS}

SOFTWARE_OVERLAPS: Final[Mapping[str, Mapping[str, bool]]] = {
    "p2pscattergather": {"split_transfers": True},
    "tpbackward": {"async_tp_backward": True},
}
"""Words of ``overlap`` that set fields of the software: ``p2p_scatter_gather`` and ``tp_backward``."""

MODULES: Final = {
    "full": "full",
    "layernorm,activation,core_attn": "minimal",
    "layernorm,activation,core_attn,mlp": "qkv_proj_offloaded save_qkv_proj save_dot_except_mlp",
    "layernorm,activation,mlp": "save_dot_with_context_except_mlp",
    "layernorm,activation": "minimal_with_context",
    "op_sac": "per-op-sac",
}
"""Modules that MaxText's policies recompute (a policy is named after what it saves), and torchtitan's policy by
operator.
"""
POLICIES: Final[Mapping[str, str]] = words(MODULES)
POLICY_NAMES: Final = {folded(name): name for listed in MODULES.values() for name in listed.split()}
PROJECTIONS: Final = frozenset({"query_proj", "key_proj", "value_proj"})
SHORT_TENSORS: Final = {"q": "query_proj", "k": "key_proj", "v": "value_proj"}
"""Short names of recipes for tensors of MaxText's policies."""

FEATURES: Final[Mapping[str, Mapping[str, object]]] = {
    r"\bliger kernels\b": {"fused_loss": True, "kernels": "fused"},
    r"\bFA2\b|\bFlashAttention-2\b": {"attention_generation": "flash2"},
    r"\bFA[34]\b|\bFlashAttention-[34]\b|\bcuDNN attention\b": {"attention_generation": "current"},
    r"\bdeepep\b": {"moe_dispatcher": "deepep"},
    r"\bhybridep\b": {"moe_dispatcher": "hybridep"},
}
"""Words of free text that set fields of ``Software``."""

WITHOUT_EFFECT: Final[Mapping[str, str]] = {
    "delay_wgrad": "part of the overlap of expert dispatch",
    "fsdp_mixed_precision": "grad_dtype says what is reduced",
    "ici_fsdp_transpose_parallelism": "order of the mesh axes",
    **dict.fromkeys(("lora_alpha", "lora_dropout"), "of adapters, without effect on time and memory here"),
    "limit_all_gathers": "bounds the weights gathered ahead, two layers here",
    "pack_sample_into_one": "packing of samples",
    "post_validation": "schedules are priced without a wait of all ranks before the optimizer step",
    "quantization": "the precision says what is computed",
    "fsdp_transpose": "order of the mesh axes",
    "slices": "scale_up_size is the slice",
    "stack": "chosen",
    "weights": "the fp32 copy is the optimizer's",
}
"""Known keys without effect, and why."""

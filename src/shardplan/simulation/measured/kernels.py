"""Which term of the estimate a kernel belongs to, by its name and by the group of ranks it communicates in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from shardplan.estimation.parts.terms import keys_of

MATMUL: Final = "matmul"
ATTENTION: Final = "attention"
MEMORY_BOUND: Final = "memory_bound"
OPTIMIZER: Final = "optimizer"
OFFLOAD: Final = "offload"
COMMUNICATION: Final = "communication"
"""Of a group of ranks that the trace does not name."""
IDLE: Final = "idle"
DIMENSIONS: Final = keys_of("communication")
COMPUTATION: Final = (MATMUL, ATTENTION, MEMORY_BOUND, OPTIMIZER)
"""Kernels that hide others: where two run at once, the time is of the first in this order."""
CLASSES: Final = (*COMPUTATION, OFFLOAD, *DIMENSIONS, COMMUNICATION)
"""All kinds of work of an accelerator, in the order in which a moment with several is counted."""

NAMES: Final = (
    (MEMORY_BOUND, re.compile(r"^triton_(?:poi|per|red)_")),
    (COMMUNICATION, re.compile(r"nccl|rccl|nvshmem|deep_ep|symm_mem|two_shot_all_reduce|one_shot_all_reduce")),
    (ATTENTION, re.compile(r"flash|fmha|sdpa|attn|attention|cudnn::fusion|_dkdv|dq_dk_dv|mha_(?:fwd|bwd)")),
    (OPTIMIZER, re.compile(r"adam|multi_tensor_apply|multi_tensor_l2norm|lpnorm_cleanup|lamb_|muon|fused_?sgd")),
    (
        MATMUL,
        re.compile(r"gemm|gemv|nvjet|cutlass|cublas|splitk|xmma|cijk_|matmul|\bmm_|_mm_|tensorop|wgmma|grouped_mm"),
    ),
)
"""By lower-case name, in the order in which they are tried; all others are limited by memory. Pointwise passes and
reductions of Inductor (triton_poi, per and red) are named after what they are fused with, and come first. cuBLAS and
cuBLASLt (gemm, nvjet, xmma, splitK), CUTLASS, rocBLAS and hipBLASLt (Cijk), FlashAttention, cuDNN and PyTorch's
memory-efficient attention (fmha, sdpa), NCCL and RCCL (nccl), NVSHMEM and DeepEP."""

GROUPS: Final = (
    ("pp_communication", re.compile(r"pipeline|(?:^|_)pp(?:_|$)")),
    ("ep_communication", re.compile(r"expert_model|(?:^|_)ep(?:_|$)")),
    ("dp_communication", re.compile(r"data_parallel|(?:^|_)(?:dp|fsdp|efsdp)(?:_|$)|dp_shard|dp_replicate")),
    ("cp_communication", re.compile(r"context_parallel|(?:^|_)cp(?:_|$)")),
    ("tp_communication", re.compile(r"tensor|(?:^|_)e?tp(?:_|$)")),
)
"""Of the description of a process group, lower case: Megatron's (TENSOR_MODEL_PARALLEL_GROUP) and the names of a
device mesh (mesh_dp_shard_cp)."""
SENDS: Final = re.compile(r"sendrecv|ncclsend|ncclrecv|(?:^|_)(?:send|recv)(?:$|_)")
COLLECTIVES: Final = (
    ("all-reduce", re.compile(r"all_?reduce")),
    ("all-gather", re.compile(r"all_?gather")),
    ("reduce-scatter", re.compile(r"reduce_?scatter")),
    ("all-to-all", re.compile(r"all_?to_?all|dispatch|combine")),
    ("broadcast", re.compile(r"broadcast")),
    ("reduce", re.compile(r"reduce")),
    ("send and receive", SENDS),
)
HOST_COPIES: Final = re.compile(r"htod|dtoh|host")


@lru_cache(maxsize=65_536)
def kind_of_kernel(name: str, category: str) -> str:
    """The class of a kernel, copy or fill of memory; all communication is ``communication``."""
    lower = name.lower()
    if category == "gpu_memcpy":
        return OFFLOAD if HOST_COPIES.search(lower) else MEMORY_BOUND
    if category == "gpu_memset":
        return MEMORY_BOUND
    return next((kind for kind, pattern in NAMES if pattern.search(lower)), MEMORY_BOUND)


def group_of(name: str, details: Mapping[str, Any]) -> tuple[str, str]:
    """Dimension and collective of a communication kernel, by its name and what the trace notes of it."""
    collective = f"{details.get('Collective name', '')} {name}".lower()
    kind = next((kind for kind, pattern in COLLECTIVES if pattern.search(collective)), "other")
    group = str(details.get("Process Group Description", "")).lower()
    dimension = next((dimension for dimension, pattern in GROUPS if pattern.search(group)), COMMUNICATION)
    if dimension == COMMUNICATION and SENDS.search(str(details.get("Collective name", "")).lower()):
        dimension = "pp_communication"
    return dimension, kind

"""Words of measured runs: one reading for cells and options, whatever the case, with the names that frameworks use.

A table holds each value with its names. Letters' case, hyphens, underscores and spaces make no difference:
``Interleaved1F1B``, ``interleaved_1f1b`` and ``interleaved-1f1b`` are one word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from shardplan.errors import nearest_names

T = TypeVar("T")


def folded(text: str) -> str:
    """The word in lower case, without hyphens, underscores and spaces."""
    return re.sub(r"[-_\s]+", "", text.lower())


def words(names: Mapping[T, str]) -> dict[str, T]:
    """Values by their folded names; ``names`` holds those of each, between spaces."""
    return {folded(name): value for value, listed in names.items() for name in listed.split()}


def one_of(values: Iterable[object]) -> str:
    """What a person reads about a table: its values, each once."""
    return f"one of {', '.join(dict.fromkeys(map(str, values)))}"


def guess(text: str, table: Mapping[str, object]) -> str:
    """The value that was probably meant, as a question; empty where none is near."""
    near = nearest_names(folded(text), table, most=1)
    return f" (did you mean {table[near[0]]}?)" if near else ""


FLAGS: Final[Mapping[str, bool]] = words(
    {True: "yes true 1 on enabled enable y", False: "no false 0 off disabled disable n"}
)
DTYPES: Final[Mapping[str, str]] = words(
    {
        "bf16": "bf16 bfloat16 torch.bfloat16",
        "fp16": "fp16 float16 half torch.float16",
        "fp32": "fp32 float32 float torch.float32",
    }
)
"""Number formats of gradients and optimizer moments."""

PRECISIONS: Final[Mapping[str, str]] = words(
    {
        "bf16": "bf16 bfloat16 torch.bfloat16 bf16-mixed mixed-bf16 amp-bf16",
        "fp16": "fp16 float16 half torch.float16 fp16-mixed mixed-fp16 amp-fp16",
        "fp8": "fp8 float8 fp8-hybrid hybrid-fp8 fp8-cs fp8-ds fp8-sc fp8-mixed amp-fp8 fp8-e4m3",
        "mxfp8": "mxfp8 fp8-mx mx-fp8",
        "nvfp4": "nvfp4 nv-fp4 fp4-nv",
        "fp32": "fp32 float32 torch.float32 fp32-true",
    }
)
"""NeMo's recipes write ``fp8_cs``, ``fp8_ds`` and ``fp8_sc`` for scalings of fp8, and ``fp8_mx`` for mxfp8."""

ATTENTIONS: Final[Mapping[str, str]] = words(
    {
        "flash": "flash flash-attn flash-attention fused sdpa flex flex-attention cudnn cudnn-attention splash "
        "fa1 fa2 fa3 fa4 flash1 flash2 flash3 flash4 flash-attn-1 flash-attn-2 flash-attn-3 flash-attn-4 "
        "flash-attention-1 flash-attention-2 flash-attention-3 flash-attention-4 flash-sdpa",
        "unfused": "unfused eager math naive",
    }
)
ATTENTION_GENERATIONS: Final[Mapping[str, str]] = words(
    {
        "current": "current fa3 fa4 flash3 flash4 flash-attn-3 flash-attn-4 flash-attention-3 flash-attention-4 "
        "cudnn cudnn-attention",
        "flash2": "flash2 fa2 flash-attn-2 flash-attention-2",
        "flash1": "flash1 fa1 flash-attn-1 flash-attention-1",
    }
)
"""Kernels whose generation their name tells; that of ``sdpa`` and ``flex`` is the stack's."""

SHARDINGS: Final[Mapping[str, str]] = words(
    {
        "ddp": "ddp none no replicate replicated no-shard zero-0 zero-stage-0",
        "zero1": "zero-1 zero-stage-1 stage-1 distributed-optimizer",
        "zero2": "zero-2 zero-stage-2 stage-2 shard-grad-op",
        "zero3": "zero-3 zero-stage-3 stage-3 fsdp fsdp1 fsdp2 full-shard fully-shard",
        "hsdp": "hsdp hybrid-shard fsdp-hybrid mics",
        "hpz": "hpz zero++ zeropp",
    }
)
RECOMPUTE_WORDS: Final[Mapping[str, str]] = words(
    {
        "none": "none no off false 0 disabled",
        "selective": "selective",
        "full": "full block uniform all full-block",
        "op_sac": "op-sac op sac selective-op selective:op selective/op",
        "minimal": "minimal",
        "core_attn": "core-attn core-attention attn attention",
        "layernorm": "layernorm norm norms rmsnorm",
        "activation": "activation activation-func act moe-act",
        "mla_up_proj": "mla-up-proj",
        "mlp": "mlp ffn",
        "moe": "moe",
        "shared_experts": "shared-experts shared-expert",
    }
)
"""Policies, then modules. ``block`` and ``uniform`` are methods of Megatron's full recomputation, and elsewhere
a block is a whole layer too; ``op`` is torchtitan's ``selective_ac_option``."""

OFFLOADS: Final[Mapping[str, str]] = words(
    {
        "none": "none no off false 0 disabled",
        "optimizer": "optimizer optimizer-states optim cpu-adam",
        "activations": "activations activation act",
    }
)
STEP_TIMES: Final[Mapping[str, str]] = words(
    {"step": "step step-time iteration", "tokens": "tokens tokens/s token throughput", "flops": "flops tflops mfu"}
)
MEMORY_KINDS: Final[Mapping[str, str]] = words(
    {
        "allocated": "allocated max-allocated max-memory-allocated",
        "reserved": "reserved max-reserved max-memory-reserved",
        "process": "process nvidia-smi nvml rocm-smi",
    }
)
RESULTS: Final[Mapping[str, str]] = words(
    {
        "ran": "ran run ok yes success succeeded completed finished",
        "oom": "oom out-of-memory cuda-oom cuda-out-of-memory oom-error out-of-memory-error torch.OutOfMemoryError "
        "torch.cuda.OutOfMemoryError resource-exhausted hip-out-of-memory",
    }
)
"""How a run ended; JAX calls a full memory ``RESOURCE_EXHAUSTED``."""
TIERS: Final[Mapping[str, str]] = {"a": "A", "a-": "A-", "b": "B"}

"""How a training framework runs a job: what it fuses, what its host must issue, what it keeps.

These inputs decide step times as much as degrees do: the same plan may take half or twice the time under another stack.
A stack (``data/stacks``) is a documented set of them, so that a user of a framework gets its behaviour by naming it.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

from shardplan.errors import InputError, UnknownNameError
from shardplan.fields import dataclass

AttentionGeneration = Literal["current", "flash2", "flash1"]
Kernels = Literal["fused", "eager"]
CudaGraphs = Literal["none", "partial", "full"]
MoeDispatcher = Literal["alltoall", "deepep", "hybridep"]
LossKernel = Literal["in_place", "autograd", "loss_parallel", "single"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Software:
    """Behaviour of a framework."""

    attention_generation: AttentionGeneration = "current"
    """Fused attention kernels: the best for the part (FlashAttention-3, cuDNN), FlashAttention-2, or the first and
    its port to Triton."""
    kernels: Kernels = "fused"
    """``fused``: norms, rotations and activations in few kernels (Transformer Engine, compilers); ``eager``: one kernel
    for every operation, more passes over memory, more kept tensors, more work for the host."""
    cuda_graphs: CudaGraphs = "partial"
    """Kernels replayed without the host: none, those of parts of a layer, or those of the whole iteration."""
    blocking_launches: bool = False
    """Whether the host waits for every kernel before it issues the next (``CUDA_LAUNCH_BLOCKING=1``)."""
    moe_dispatcher: MoeDispatcher = "deepep"
    """``alltoall``: a copy of a token for every expert; ``deepep``, ``hybridep``: one copy for each node."""
    moe_capacity: bool = False
    """Whether experts take a fixed number of tokens (dropped or padded), so that the host need not wait for counts."""
    fused_loss: bool = False
    """Whether the loss is computed in pieces without keeping the logits (Liger kernels, vocabulary tiling)."""
    loss_kernel: LossKernel = "in_place"
    """What a loss over whole logits writes: ``in_place``, one fp32 copy that becomes softmax and gradient (Megatron);
    ``autograd``, fp32 logarithms and fp32 gradients (PyTorch); ``loss_parallel``, the same, and where tensor-parallel
    ranks share the vocabulary more, since each step is a kernel of its own (PyTorch's DTensor); ``single``, one kernel
    from 16-bit logits to 16-bit gradients (flash-attn, Transformer Engine, XLA)."""
    fused_accumulation: bool = True
    """Whether weight-gradient products add to the gradient in place; otherwise a micro-batch passes over all of it."""
    quantised_weights: bool = False
    """Whether the weights are kept in the recipe's low-precision format alone, without a 16-bit copy."""
    quantised_copies: bool = True
    """Whether low precision keeps quantised weights and inputs of linear layers (Transformer Engine); otherwise the
    16-bit ones are kept and cast again (torchao)."""
    gradient_copy: bool = False
    """Whether 16-bit gradients live beside their fp32 accumulation buffer (DeepSpeed's bf16 optimizer)."""
    packed_projection: bool = False
    """Whether queries, keys and values are cut out of one product's output, which then stays whole beside what rotation
    writes (Megatron, Transformer Engine); otherwise rotation replaces them."""
    gathered_inputs: bool = False
    """Whether tensor-parallel layers keep their input as gathered (PyTorch's DTensor); otherwise each rank keeps its
    part and gathers it again in the backward pass (Megatron)."""
    stage_outputs: bool = False
    """Whether a stage keeps the outputs of all micro-batches in flight (DeepSpeed, torch.distributed.pipelining);
    Megatron frees them once they are sent."""
    fixed_bucket: bool = False
    """Whether sharded gradients are collected in a buffer of 5e8 elements before they are reduced (DeepSpeed's
    ``reduce_bucket_size``)."""
    reduces_whole: bool = False
    """Whether every rank gets the whole sum of the gradients though it updates a shard (zero1 of DeepSpeed's bf16
    optimizer, ``_bf16_reduce_grads``); otherwise sums are scattered."""
    gathers_ahead: bool = True
    """Whether fully sharded weights of the next layer are gathered while one computes (PyTorch FSDP, DeepSpeed);
    compilers gather each weight where it is used (XLA)."""
    split_transfers: bool = False
    """Whether tensor-parallel ranks each send a part of a stage's output and gather it behind, where sequence
    parallelism does not split it anyway (arXiv 2104.04473, section 4.1; DeepSpeed)."""
    async_tp_backward: bool = True
    """Whether tensor-parallel linear layers gather their input again (where they do not keep it) and reduce its
    gradient beside their backward products even where the plan does not overlap it (Megatron-LM since 2022,
    Transformer Engine); otherwise they wait for every exchange (PyTorch's DTensor)."""
    fp32_weights: bool = False
    """Whether fully sharded weights are kept in fp32 alone and cast as they are gathered (PyTorch FSDP, MaxText);
    otherwise a 16-bit shard lives beside the optimizer's fp32 one."""

    def __post_init__(self) -> None:
        """Checks every field. Raises ``InputError``."""
        hints = get_type_hints(type(self))
        for field in fields(self):
            _check(field.name, getattr(self, field.name), hints[field.name])


def _check(name: str, value: object, hint: Any) -> None:
    if get_origin(hint) is Literal:
        if not isinstance(value, str) or value not in get_args(hint):
            raise UnknownNameError(name, str(value), get_args(hint), hint=f"one of {', '.join(get_args(hint))}")
    elif not isinstance(value, bool):
        raise InputError(f"{name} is {value!r}; it must be true or false", rule=f"{name} is true or false")

"""How a training framework runs a job: what it fuses, what its host must launch, what it saves.

These inputs affect step times as much as degrees do: the same plan may take half or twice the time under another stack.
A stack (``data/stacks``) is a documented set of them, so that a user of a framework gets its settings by naming it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final, Literal, get_args, get_type_hints

from shardplan.base.errors import NotRunnableError
from shardplan.base.fields import asked, check, dataclass
from shardplan.inputs.words import (
    ATTENTION_GENERATIONS,
    DISPATCH_FORMATS,
    DISPATCHERS,
    EXPERT_SCORES,
    FP8_SCALINGS,
    GRAPHS,
    KERNELS,
    NORM_KERNELS,
    SHARDED_ACCUMULATIONS,
    SOFTMAX_KERNELS,
    TP_OVERLAPS,
)

AttentionGeneration = Literal["current", "flash2", "flash1"]
Kernels = Literal["fused", "eager"]
CudaGraphs = Literal["none", "router", "partial", "full"]
MoeDispatcher = Literal["alltoall", "deepep", "hybridep"]
KeptFormat = Literal["activation", "fp8"]
Fp8Scaling = Literal["tensor", "row"]
TpOverlaps = Literal["all", "one_product"]
ShardedAccumulation = Literal["none", "flat", "parameters"]
LossKernel = Literal["in_place", "native", "autograd", "loss_parallel", "compiled", "gathered", "single"]
KeepsWhole = Literal["never", "pipelines", "always"]
Exchanged = Literal["step", "microbatch"]


@dataclass(frozen=True, kw_only=True)
class Software:
    """Settings of a framework."""

    SHARED_FLAG: ClassVar[str] = "--software"
    """The flag for any of these fields, as ``NAME=VALUE``."""

    attention_generation: AttentionGeneration = asked(
        "Fused attention kernels:", default="current", words=ATTENTION_GENERATIONS
    )
    """Fused attention kernels: the best for the accelerator (FlashAttention-3, cuDNN), FlashAttention-2, or the first
    and its port to Triton.
    """
    kernels: Kernels = asked("Norms, rotations and activations in few kernels or many:", default="fused", words=KERNELS)
    """``fused``: norms, rotations and activations in few kernels (Transformer Engine, compilers); ``eager``: one kernel
    for every operation, more passes over memory, more saved activations, more launches by the host.
    """
    norm_kernel: Kernels = asked("Norms in one kernel or operation by operation:", default="fused", words=NORM_KERNELS)
    """Norms in one kernel (LayerNorm of PyTorch, RMSNorm of Triton, Apex or Transformer Engine), or ``eager``: RMSNorm
    operation by operation in fp32, which keeps an fp32 copy of its input and what the weight multiplies."""
    softmax_kernel: Kernels = asked(
        "Softmax of unfused attention in one kernel or several:", default="fused", words=SOFTMAX_KERNELS
    )
    """Mask and softmax of unfused attention in one kernel (Megatron-LM), or ``eager``: operation by operation, with
    more passes over the scores.
    """
    expert_scores: Kernels = asked(
        "Scores of the router applied to experts' outputs in one kernel or several:",
        default="fused",
        words=EXPERT_SCORES,
    )
    """The router's scores times the outputs of experts within another kernel (Transformer Engine, torch.compile), or
    ``eager``: operation by operation in fp32, which keeps an fp32 copy of the outputs (prime-rl with adapters on
    experts, which break the compiled graph)."""
    cuda_graphs: CudaGraphs = asked("Kernels replayed without the host:", default="partial", words=GRAPHS)
    """Kernels replayed without the host: none, those of the expert router, those of all parts of a layer whose
    shapes do not change (all but experts), or those of the whole iteration. A graph of the whole iteration runs experts
    with kernels that read their sizes on the device.
    """
    blocking_launches: bool = asked("The host waits for every kernel (CUDA_LAUNCH_BLOCKING=1).", default=False)
    """Whether the host waits for every kernel before it launches the next (``CUDA_LAUNCH_BLOCKING=1``)."""
    moe_dispatcher: MoeDispatcher = asked("How tokens reach their experts:", default="deepep", words=DISPATCHERS)
    """``alltoall``: a copy of a token for every expert; ``deepep``, ``hybridep``: one copy for each node."""
    moe_dispatch_format: KeptFormat = asked(
        "Number format in which tokens travel to experts:", default="activation", words=DISPATCH_FORMATS
    )
    """Number format in which tokens are sent to their experts, and gradients of the outputs in the backward pass: that
    of activations, or ``fp8`` with an fp32 scale for every 128 channels (DeepSeek-V3, arXiv 2412.19437, section
    3.3.3), which needs as many bytes as MXFP8 (Megatron Core, ``moe_dispatch_fwd_dtype``,
    ``moe_combine_bwd_dtype``). The outputs of experts are sent in the format of activations.
    """
    fp8_scaling: Fp8Scaling = asked(
        "Scales of 8-bit products, of a tensor or each row:", default="tensor", words=FP8_SCALINGS
    )
    """Scales of 8-bit products: one for a whole ``tensor`` (delayed or current), or one for each ``row`` of the first
    factor and each column of the second (torchao's ``rowwise``). With the latter, separate passes scale the operands of
    the gradients' products the other way, and tensor-parallel ranks exchange 16 bits (torchtitan).
    """
    gate_input_format: KeptFormat = asked(
        "Number format in which inputs of activation functions are kept:", default="activation"
    )
    """Number format in which the inputs of activation functions are saved for the backward pass: that of activations,
    or ``fp8`` (DeepSeek-V3, arXiv 2412.19437, section 3.3.3).
    """
    moe_capacity: bool = asked("Experts take a fixed number of tokens: the host need not wait.", default=False)
    """Whether experts take a fixed number of tokens (dropped or padded), so that the host need not wait for counts."""
    fused_loss: bool = asked("Compute the loss in pieces, without keeping the logits.", default=False)
    """Whether the loss is computed in pieces without storing the logits (Liger kernels, vocabulary tiling)."""
    loss_kernel: LossKernel = asked("What a loss over whole logits writes:", default="in_place")
    """What a loss over whole logits writes: ``in_place``, one fp32 copy that becomes softmax and gradient (Megatron);
    ``native``, an fp32 copy and the exponentials next to it, since steps are compiled one by one (Megatron Core,
    ``cross_entropy_fusion_impl`` native); ``autograd``, fp32 logarithms and fp32 gradients (PyTorch);
    ``loss_parallel``, the same, and more if tensor-parallel ranks share the vocabulary, since each step is a separate
    kernel (PyTorch's DTensor); ``compiled``, like ``single``, and if tensor-parallel ranks share the vocabulary
    with logits, softmax and gradient in fp32 next to the 16-bit ones (torch.compile); with eager kernels like
    ``loss_parallel``; ``gathered``, like ``autograd`` over the whole vocabulary, which every tensor-parallel rank
    gathers, while the pipeline's buffers keep the 16-bit logits of this micro-batch and the one before (Aleph Alpha
    Scaling); ``single``, one kernel from 16-bit logits to 16-bit gradients (flash-attn, Transformer Engine, XLA).
    """
    fused_accumulation: bool = asked("Weight-gradient products add to the gradient in place.", default=True)
    """Whether weight-gradient products add to the gradient in place; otherwise each micro-batch passes over it."""
    sharded_accumulation: ShardedAccumulation = asked(
        "What a micro-batch copies to add up shards of gradients:", default="none", words=SHARDED_ACCUMULATIONS
    )
    """How a micro-batch accumulates shards of its gradients: ``parameters``, copied into the reduction buffer, with
    weights copied out of the gather buffer (PyTorch's FSDP2); ``flat``, concatenated to the gradient of a flat
    parameter of which all weights of a layer are views, including frozen ones under adapters, and cast if they are
    summed in a wider format (FullyShardedDataParallel); ``none``: unless products add in place, a separate pass adds
    up whole gradients.
    """
    quantised_gathers: bool = asked("Gather weights of 8-bit products in 8 bits.", default=False)
    """Whether ranks gather the weights of linear layers in 8 bits, cast from shards in a wider format (torchao,
    ``enable_fsdp_float8_all_gather``).
    """
    quantised_weights: bool = asked("Keep the weights in the low-precision format alone.", default=False)
    """Whether the weights are stored only in the recipe's low-precision format, without a 16-bit copy."""
    quantised_copies: bool = asked("Low precision keeps quantised weights and inputs of products.", default=True)
    """Whether low precision saves quantised weights and inputs of linear layers (Transformer Engine); otherwise the
    16-bit ones are saved and cast again (torchao).
    """
    gradient_copy: bool = asked("Keep 16-bit gradients next to their fp32 accumulation buffer.", default=False)
    """Whether 16-bit gradients are kept next to their fp32 accumulation buffer (DeepSpeed's bf16 optimizer)."""
    packed_projection: bool = asked("Cut queries, keys and values out of one output that stays whole.", default=False)
    """Whether queries, keys and values are views of one product's output, which then stays whole next to the rotated
    tensors (attention that takes views of it); otherwise rotation replaces them, or attention copies the values
    and the output is freed (Transformer Engine).
    """
    dense_masks: bool = asked("Batches carry an attention mask, a byte for each pair of tokens.", default=False)
    """Whether batches carry an attention mask, a byte for each pair of tokens of a sequence, for every model chunk
    (Megatron-LM's data loader, unless a script says --no-create-attention-mask-in-dataloader)."""
    gathered_inputs: bool = asked("Tensor-parallel layers keep their input as gathered.", default=False)
    """Whether tensor-parallel layers save their gathered input (PyTorch's DTensor); otherwise each rank saves its
    part and gathers it again in the backward pass (Megatron).
    """
    stage_outputs: bool = asked("Pipeline stages keep the outputs of all micro-batches in flight.", default=False)
    """Whether a stage keeps the outputs of all micro-batches in flight (DeepSpeed, torch.distributed.pipelining);
    Megatron frees them once they are sent.
    """
    fixed_bucket: bool = asked("Collect sharded gradients in a buffer of 5e8 elements.", default=False)
    """Whether sharded gradients are collected in a buffer of 5e8 elements before they are reduced (DeepSpeed's
    ``reduce_bucket_size``)."""
    reduces_whole: bool = asked("Every rank gets the whole sum of the gradients (zero1).", default=False)
    """Whether every rank gets the whole sum of the gradients though it updates only a shard (zero1 of DeepSpeed's bf16
    optimizer, ``_bf16_reduce_grads``); otherwise sums are scattered.
    """
    reduces_fp32: bool = asked("Cast 16-bit gradients to fp32 before they are reduced.", default=False)
    """Whether gradients that are stored in 16 bits are cast to fp32 before ranks sum them (Aleph Alpha Scaling);
    otherwise they are reduced in their own format.
    """
    gathers_ahead: bool = asked("Gather the next layer's weights while one computes.", default=True)
    """Whether fully sharded weights of the next layer are gathered while one computes (PyTorch FSDP, DeepSpeed);
    compilers gather each weight where it is used (XLA).
    """
    pruned_recompute: bool = asked(
        "Recompute only what a backward pass reads, not a layer's last product.", default=False
    )
    """Whether recomputation of a layer leaves out its last product, whose output no backward pass reads (XLA and other
    compilers drop it; PyTorch's ``checkpoint`` stops early since 2.1); otherwise the whole layer runs again."""
    split_transfers: bool = asked("Tensor-parallel ranks each send a part of a stage's output.", default=False)
    """Whether tensor-parallel ranks each send a part of a stage's output and gather it on arrival, unless sequence
    parallelism splits it anyway (arXiv 2104.04473, section 4.1; DeepSpeed).
    """
    async_tp_backward: bool = asked("Overlap backward tensor-parallel communication with the products.", default=True)
    """Whether tensor-parallel linear layers gather their input again (if they do not save it) and reduce its
    gradient overlapped with their backward products even if the plan does not overlap it (Megatron-LM since 2022,
    Transformer Engine); otherwise they wait for every exchange (PyTorch's DTensor).
    """
    tp_overlaps: TpOverlaps = asked(
        "Exchanges that overlap of tensor parallelism pipelines:", default="all", words=TP_OVERLAPS
    )
    """Exchanges that ``overlap_tp`` cuts into panels: ``all`` of them (user buffers of Transformer Engine), or those
    next to ``one_product`` that reads gathered data as it arrives or produces all of what is scattered (asynchronous
    tensor parallelism of PyTorch, ``torch/_inductor/fx_passes/micro_pipeline_tp.py``). The gradient of an input that
    several products share is a sum, so its scatter is not overlapped, nor are 16-bit tensors that are gathered to be
    scaled by row.
    """
    ring_kernels: Kernels = asked(
        "Ring attention in fused kernels or operation by operation:", default="fused", words=KERNELS
    )
    """How ranks that share a sequence compute: with kernels that merge partial outputs on the fly (Transformer Engine),
    or ``eager``, PyTorch's context parallelism up to 2.9 (``torch/distributed/tensor/experimental/_attention.py``):
    one kernel for the keys of each rank, even if these are gathered at once, partial outputs and gradients summed in
    fp32 operation by operation, gradients of keys and values sent in fp32, and keys and values of as many heads as
    there are queries (``repeat_kv``).
    """
    one_queue: bool = asked("Overlaps of tensor and context parallelism need one hardware queue.", default=False)
    """Whether exchanges of tensor- and context-parallel ranks overlap with computation only if all kernels start in
    order, from one hardware queue (``CUDA_DEVICE_MAX_CONNECTIONS=1``), on NVIDIA accelerators before Blackwell. The
    overlap of experts' exchanges needs several queues, so only one of the two is possible (Megatron Core,
    megatron/training/arguments.py).
    """
    fp32_weights: bool = asked("Keep weights in fp32 alone and cast what is gathered or used.", default=False)
    """Whether weights are stored only in fp32 and cast when they are gathered (PyTorch FSDP, MaxText), or if they are
    whole, when they are used (autocast); otherwise 16-bit weights are stored next to the optimizer's fp32 ones.
    """

    keeps_weights: KeepsWhole = asked("Keep gathered weights through the micro-batches of a step:", default="never")
    """When fully sharded weights that were gathered stay whole from their first use in a step to the last: never
    (gathered for each pass of each micro-batch), in ``pipelines`` (torch.distributed.pipelining), or always.
    """
    keeps_gradients: KeepsWhole = asked("Keep gradients whole till the last micro-batch:", default="never")
    """When sharded gradients stay whole to the last micro-batch and are reduced once: never (every
    micro-batch reduces them), in ``pipelines`` (torch.distributed.pipelining), or always (``no_sync`` of PyTorch).
    """
    frees_gradients: bool = asked(
        "Free gradients after the update, so that they come as activations go.", default=False
    )
    """Whether gradients are freed after the update (``zero_grad`` of PyTorch), so that they appear as activations are
    freed if all micro-batches run forward before any runs backward; otherwise their buffers exist all the time
    (Megatron, DeepSpeed and PyTorch's DistributedDataParallel).
    """
    keeps_packed_inputs: bool = asked(
        "Products with weights in 4 bits keep their inputs (bitsandbytes before 0.43.2).", default=False
    )
    """Whether products of 4-bit weights save their inputs for the backward pass, which does not read them
    (bitsandbytes before 0.43.2, ``MatMul4Bit``).
    """
    zero2_gathers: Exchanged = asked("How often zero2 gathers weights:", default="step")
    """How often zero2 gathers weights: once a step, after the update (DeepSpeed), or in every micro-batch, to keep them
    until its backward pass (PyTorch FSDP that does not reshard after the forward pass).
    """
    reduces_replicas: Exchanged = asked("How often groups of hybrid sharding sum their gradients:", default="step")
    """How often groups of hybrid sharding add up their shards of the gradients: once a step (MiCS), or in every
    micro-batch that reduces gradients (PyTorch FSDP)."""

    def __post_init__(self) -> None:
        """Checks every field. Raises ``InputError``."""
        check(self)


OF_EXPERTS: Final = ("moe_dispatcher", "moe_dispatch_format", "moe_capacity")
"""Fields that have no effect without experts."""

CHOSEN: Final[Mapping[str, str | bool]] = {"moe_dispatcher": "alltoall", "cuda_graphs": "none", "fused_loss": False}
"""Fields that a plan may state instead of the job's, so that a search chooses them; each with its plain value."""


def _names(kind: Any) -> tuple[str, ...]:
    return tuple(value for value in get_args(kind) if isinstance(value, str))


CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    name: _names(kind) for name, kind in get_type_hints(Software).items() if _names(kind)
}
"""Values of every field with named ones."""


def check_experts(names: Iterable[str], model: str, *, is_moe: bool) -> None:
    """Raises ``NotRunnableError`` if a stated field has no effect without experts."""
    for name in () if is_moe else names:
        if name in OF_EXPERTS:
            raise NotRunnableError(
                f"{model} has no experts, so that {name} makes no difference",
                rule=f"{name} is for models with experts",
                hint=f"leave {name} out",
            )

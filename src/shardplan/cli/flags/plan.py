"""Flags of the commands, in groups that commands share.

A group is a dataclass whose fields are annotated as typer options (:mod:`shardplan.cli.flags.option_groups`). A flag
that is not given is None; numbers arrive as text, since :mod:`shardplan.cli.numbers` says better than typer what is
wrong with one.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from shardplan.cli.flags.options import completed, field_option, named
from shardplan.fields import dataclass
from shardplan.inputs.job import AttentionKernel, GradDtype, Job, Optimizer, Precision
from shardplan.inputs.plan import CpComm, Offload, Plan, Schedule, Sharding, TpKind
from shardplan.inputs.software import (
    AttentionGeneration,
    CudaGraphs,
    Kernels,
    LossKernel,
    MoeDispatcher,
    Software,
)


def _job(name: str, text: str, **more: Any) -> Any:
    return field_option(Job, name, text, rich_help_panel="Job", **more)


def _plan(name: str, text: str, **more: Any) -> Any:
    return field_option(Plan, name, text, rich_help_panel="Plan", **more)


def _software(name: str, text: str, **more: Any) -> Any:
    return field_option(Software, name, text, rich_help_panel="Software", **more)


def _search(text: str, **more: Any) -> Any:
    return typer.Option(help=text, rich_help_panel="Search", **more)


def _cluster(text: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=text, rich_help_panel="Cluster", **more)


def _override(text: str, **more: Any) -> Any:
    return typer.Option(help=text, rich_help_panel="Values of the cluster", metavar="VALUE", **more)


ModelArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="MODEL",
        show_default=False,
        help="A built-in name (see `shardplan models`), or the path of a config.json or its folder.",
        autocompletion=named("models"),
    ),
]
StackFlag = Annotated[
    str | None,
    typer.Option(
        "--stack",
        metavar="NAME|FILE",
        help="Training framework whose defaults fill what is not given (see `shardplan stacks`).",
        rich_help_panel="Software",
        autocompletion=lambda incomplete: completed("frameworks.stack", "list_stacks", incomplete),
    ),
]
ProfileFlag = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="FILE|GENERATION",
        help="Constants in place of those of the accelerator's generation (see `shardplan profiles` and `calibrate`).",
        rich_help_panel="Constants",
        autocompletion=lambda incomplete: completed("inputs.profile", "generations", incomplete),
    ),
]
PickFlag = Annotated[
    str,
    typer.Option(metavar="N", help="Which plan of the file, from 1, or `recommended`.", rich_help_panel="Plan file"),
]


@dataclass(frozen=True, kw_only=True)
class ClusterFlags:
    """Which accelerators, and how many."""

    cluster: Annotated[
        str | None,
        _cluster(
            "A built-in name (see `shardplan clusters`), or the path of a file.",
            metavar="NAME|FILE",
            autocompletion=named("clusters"),
        ),
    ] = None
    accelerator: Annotated[
        str | None,
        _cluster(
            "Instead of a cluster: this part in its usual node and network. With one: this part in that network.",
            metavar="NAME|FILE",
            autocompletion=named("accelerators"),
        ),
    ] = None
    num_accelerators: Annotated[
        str | None, _cluster("Number of accelerators.", "--gpus", "--num-accelerators", metavar="N")
    ] = None


@dataclass(frozen=True, kw_only=True)
class OverrideFlags:
    """Single values of the cluster, replaced."""

    intra_node_bandwidth: Annotated[
        str | None, _override("Inside the innermost tier, per accelerator and direction: 450, 450GB/s.")
    ] = None
    inter_node_bandwidth: Annotated[
        str | None, _override("Around it; tiers further out keep their ratio: 25, 25GB/s, 200Gb/s.")
    ] = None
    intra_node_latency: Annotated[str | None, _override("Of one hop inside the innermost tier: 1us.")] = None
    inter_node_latency: Annotated[str | None, _override("Of one hop around it: 5us.")] = None
    node_size: Annotated[str | None, _override("Accelerators in one domain of the innermost tier.")] = None
    memory: Annotated[str | None, _override("Of one accelerator: 141, 141GB, 80GiB.")] = None
    memory_bandwidth: Annotated[str | None, _override("Of its memory: 3350, 3.35TB/s.")] = None
    peak_flops: Annotated[
        str | None, _override("Dense peaks by number format: bf16=989,fp8=1979 (TFLOP/s) or bf16=1.2PFLOP/s.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class JobFlags:
    """What one step computes."""

    sequence_length: Annotated[
        str | None,
        _job("sequence_length", "Tokens of a sequence. Default: the model's own, 8192 at most.", metavar="N"),
    ] = None
    global_batch_size: Annotated[
        str | None,
        _job(
            "global_batch_size",
            "Sequences of a step. Default: about 4 M tokens, 16 M from 4,096 accelerators on.",
            metavar="N",
        ),
    ] = None
    precision: Annotated[str | None, _job("precision", "Number format of the matrix products:", choices=Precision)] = (
        None
    )
    optimizer: Annotated[str | None, _job("optimizer", "Optimizer:", choices=Optimizer)] = None
    attention: Annotated[str | None, _job("attention", "Attention kernel:", choices=AttentionKernel)] = None
    grad_dtype: Annotated[
        str | None, _job("grad_dtype", "Format in which gradients accumulate:", choices=GradDtype)
    ] = None
    moment_dtype: Annotated[
        str | None, _job("moment_dtype", "Format of the optimizer's moments:", choices=GradDtype)
    ] = None
    dropout: Annotated[bool | None, _job("dropout", "Whether dropout runs.")] = None
    tokens: Annotated[
        str | None, _job("tokens", "Tokens to train on, for the time to train: 15.6e12, 15.6T.", metavar="N")
    ] = None


@dataclass(frozen=True, kw_only=True)
class SoftwareFlags:
    """How the training framework runs the job."""

    attention_generation: Annotated[
        str | None, _software("attention_generation", "Fused attention kernels:", choices=AttentionGeneration)
    ] = None
    kernels: Annotated[
        str | None, _software("kernels", "Norms, rotations and activations in few kernels or many:", choices=Kernels)
    ] = None
    cuda_graphs: Annotated[
        str | None, _software("cuda_graphs", "Kernels replayed without the host:", choices=CudaGraphs)
    ] = None
    blocking_launches: Annotated[
        bool | None, _software("blocking_launches", "The host waits for every kernel (CUDA_LAUNCH_BLOCKING=1).")
    ] = None
    moe_dispatcher: Annotated[
        str | None, _software("moe_dispatcher", "How tokens reach their experts:", choices=MoeDispatcher)
    ] = None
    moe_capacity: Annotated[
        bool | None, _software("moe_capacity", "Experts take a fixed number of tokens: the host need not wait.")
    ] = None
    fused_loss: Annotated[
        bool | None, _software("fused_loss", "Compute the loss in pieces, without keeping the logits.")
    ] = None
    loss_kernel: Annotated[
        str | None, _software("loss_kernel", "What a loss over whole logits writes:", choices=LossKernel)
    ] = None
    fused_accumulation: Annotated[
        bool | None, _software("fused_accumulation", "Weight-gradient products add to the gradient in place.")
    ] = None
    quantised_weights: Annotated[
        bool | None, _software("quantised_weights", "Keep the weights in the low-precision format alone.")
    ] = None
    quantised_copies: Annotated[
        bool | None, _software("quantised_copies", "Low precision keeps quantised weights and inputs of products.")
    ] = None
    gradient_copy: Annotated[
        bool | None, _software("gradient_copy", "Keep 16-bit gradients beside their fp32 accumulation buffer.")
    ] = None
    packed_projection: Annotated[
        bool | None,
        _software("packed_projection", "Cut queries, keys and values out of one output that stays whole."),
    ] = None
    gathered_inputs: Annotated[
        bool | None, _software("gathered_inputs", "Tensor-parallel layers keep their input as gathered.")
    ] = None
    stage_outputs: Annotated[
        bool | None, _software("stage_outputs", "Pipeline stages keep the outputs of all micro-batches in flight.")
    ] = None
    fixed_bucket: Annotated[
        bool | None, _software("fixed_bucket", "Collect sharded gradients in a buffer of 5e8 elements.")
    ] = None
    reduces_whole: Annotated[
        bool | None,
        _software("reduces_whole", "Every rank gets the whole sum of the gradients (zero1)."),
    ] = None
    gathers_ahead: Annotated[
        bool | None, _software("gathers_ahead", "Gather the next layer's weights while one computes.")
    ] = None
    split_transfers: Annotated[
        bool | None, _software("split_transfers", "Tensor-parallel ranks each send a part of a stage's output.")
    ] = None
    async_tp_backward: Annotated[
        bool | None, _software("async_tp_backward", "Run backward tensor-parallel communication beside the products.")
    ] = None
    fp32_weights: Annotated[
        bool | None, _software("fp32_weights", "Keep fully sharded weights in fp32 alone and cast what is gathered.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class SearchFlags:
    """The declared space of the search. All three take ``field=value[,value...]`` and can be repeated."""

    fix: Annotated[
        list[str] | None, _search("Fix a field of the plan: tp=4, recompute=full.", metavar="FIELD=VALUE")
    ] = None
    limit: Annotated[
        list[str] | None, _search("Search these values of a field only: pp=1,2,4,8.", metavar="FIELD=VALUES")
    ] = None
    exclude: Annotated[
        list[str] | None, _search("Leave these values of a field out: sharding=zero3.", metavar="FIELD=VALUES")
    ] = None
    top: Annotated[str, _search("How many different plans to answer with.", metavar="N")] = "10"


@dataclass(frozen=True, kw_only=True)
class PlanFlags:
    """Every field of a plan."""

    tp: Annotated[str | None, _plan("tp", "Tensor-parallel degree.", metavar="N")] = None
    cp: Annotated[str | None, _plan("cp", "Context-parallel degree.", metavar="N")] = None
    pp: Annotated[str | None, _plan("pp", "Pipeline stages.", metavar="N")] = None
    vp: Annotated[str | None, _plan("vp", "Virtual stages (model chunks) per pipeline rank.", metavar="N")] = None
    ep: Annotated[str | None, _plan("ep", "Expert-parallel degree.", metavar="N")] = None
    etp: Annotated[str | None, _plan("etp", "Expert-tensor-parallel degree.", metavar="N")] = None
    micro_batch_size: Annotated[str | None, _plan("micro_batch_size", "Sequences of a micro-batch.", metavar="N")] = (
        None
    )
    sequence_parallel: Annotated[
        bool | None, _plan("sequence_parallel", "Split norms and residuals over the tensor-parallel ranks.")
    ] = None
    sharding: Annotated[
        str | None, _plan("sharding", "What data parallelism shards (zero3 is FSDP):", choices=Sharding)
    ] = None
    sharding_degree: Annotated[
        str | None, _plan("sharding_degree", "Ranks over which it shards. Default: all replicas.", metavar="N")
    ] = None
    schedule: Annotated[
        str | None, _plan("schedule", "Pipeline schedule, which follows from vp where not given:", choices=Schedule)
    ] = None
    microbatch_group_size: Annotated[
        str | None,
        _plan("microbatch_group_size", "Micro-batches a virtual stage runs in a row. Default: pp.", metavar="N"),
    ] = None
    recompute: Annotated[
        str | None,
        _plan("recompute", "none, selective, op_sac, full, or modules such as layernorm,activation.", metavar="POLICY"),
    ] = None
    recompute_num_layers: Annotated[
        str | None, _plan("recompute_num_layers", "Layers of a stage it applies to. Default: all.", metavar="N")
    ] = None
    offload: Annotated[str | None, _plan("offload", "What lives in host memory:", choices=Offload)] = None
    offload_num_layers: Annotated[
        str | None,
        _plan("offload_num_layers", "Layers of a stage whose activations are offloaded. Default: all.", metavar="N"),
    ] = None
    tp_kind: Annotated[
        str | None, _plan("tp_kind", "Tensor parallelism along one dimension or two:", choices=TpKind)
    ] = None
    tp_rows: Annotated[str | None, _plan("tp_rows", "Rows of the SUMMA grid.", metavar="N")] = None
    cp_comm: Annotated[
        str | None, _plan("cp_comm", "How context-parallel ranks exchange keys and values:", choices=CpComm)
    ] = None
    overlap_tp: Annotated[
        bool | None, _plan("overlap_tp", "Pipeline tensor-parallel collectives with their products.")
    ] = None
    overlap_dp: Annotated[
        bool | None, _plan("overlap_dp", "Reduce gradients and gather parameters beside computation.")
    ] = None
    overlap_pp: Annotated[
        bool | None, _plan("overlap_pp", "Send between stages beside computation. Default: where interleaved.")
    ] = None
    overlap_ep: Annotated[
        bool | None, _plan("overlap_ep", "Dispatch to experts beside another micro-batch's computation.")
    ] = None
    placement: Annotated[
        str | None, _plan("placement", "Order of the dimensions from the fastest network outward.", metavar="ORDER")
    ] = None
    stage_layers: Annotated[
        str | None,
        _plan("stage_layers", "Layers of every virtual stage: 3,4,4,3. Default: shared evenly.", metavar="N,N,..."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class OutputFlags:
    """Where the answer goes."""

    json: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|-",
            help="Write the answer as JSON to this file, or to standard output (-) in place of the text.",
            rich_help_panel="Output",
        ),
    ] = None

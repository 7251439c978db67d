"""Norms and dense MLPs under a plan."""

from __future__ import annotations

from shardplan.arrays import Numbers
from shardplan.fields import replace
from shardplan.inputs.layers import MLP
from shardplan.workload.communication import summa_exchange, tensor_exchange
from shardplan.workload.ops import Block, Collective, Matmul, Operator, Saved, StreamPass
from shardplan.workload.passes import TRAFFIC
from shardplan.workload.shard import Shard

NORM = ("layernorm",)
FP32_BYTES = 4.0


def norm(
    shard: Shard,
    *,
    linear_input: bool = True,
    layer_input: bool = False,
    own_input: bool = True,
    residual: bool = True,
) -> Block:
    """A norm with the residual addition around its block, on split tokens.

    Kept: its input, and its output, which is the next linear layer's input. ``linear_input``: whether a quantised copy
    is what is kept. ``own_input``: whether no other norm keeps its input, as that of a mixer next to the MLP does.
    """
    moved = shard.split_tokens * shard.hidden_size
    kept = shard.linear_input if linear_input else shard.element
    saved = [
        Saved(
            name="norm_output",
            modules=NORM,
            bytes=_input_tokens(shard, linear_input=linear_input) * shard.hidden_size * kept,
        ),
        *(_dropout_mask(shard) if residual else ()),
    ]
    if own_input:
        saved.append(Saved(name="norm_input", modules=(), bytes=moved * shard.element, layer_input=layer_input))
    is_eager = shard.job.software.norm_kernel == "eager"
    if is_eager:  # the input in fp32, and x / rms(x), which the weight multiplies, in 16 bits
        saved.append(Saved(name="norm_scaled", modules=NORM, bytes=moved * (FP32_BYTES + shard.element)))
    passes = TRAFFIC["norm of several kernels" if is_eager else "norm"].at("norm", NORM, moved, shard.element)
    statistics: tuple[Collective, ...] = ()
    if shard.summa:  # the channels of a token lie on several ranks: mean and variance are reduced
        size = 2 * shard.tokens * shard.element
        reduced = Collective(name="norm_statistics", modules=NORM, kind="all_reduce", dimension="tp", bytes=size)
        statistics = (reduced, replace(reduced, name="norm_statistics_back", direction="backward"))
    return Block(operators=(passes,), collectives=statistics, saved=tuple(saved))


def addition(shard: Shard) -> Block:
    """The residual addition of an MLP that reads the output of the mixer's norm, on split tokens.

    Backward the gradients of what mixer and MLP read are added. The norm itself is the mixer's.
    """
    added = shard.split_tokens * shard.hidden_size
    return Block(operators=(TRAFFIC["addition"].at("addition", (), added, shard.element),), saved=_dropout_mask(shard))


def _dropout_mask(shard: Shard) -> tuple[Saved, ...]:
    """What dropout in front of a residual addition keeps: a byte per channel."""
    size = shard.split_tokens * shard.hidden_size * 1.0
    return (Saved(name="dropout_mask", modules=(), bytes=size),) if shard.job.dropout else ()


def channel_scale(shard: Shard) -> Block:
    """A learned scale per channel of a block's output, on split tokens (LayerScale, Touvron et al. 2021).

    Kept: the output before it, which the gradient of the scale reads.
    """
    scaled = shard.split_tokens * shard.hidden_size
    return Block(
        operators=(TRAFFIC["scale"].at("layer_scale", (), scaled, shard.element),),
        saved=(Saved(name="scaled", modules=(), bytes=scaled * shard.element),),
    )


def _input_tokens(shard: Shard, *, linear_input: bool) -> Numbers:
    """Tokens of a norm's output as it is kept."""
    return shard.tokens if linear_input and shard.job.software.gathered_inputs else shard.split_tokens


def mlp(config: MLP, shard: Shard) -> Block:
    """Column-parallel product, activation, row-parallel product, with their collectives."""
    width = config.intermediate_size / shard.columns
    inner = feed_forward(
        "mlp", ("mlp",), shard, gated=config.gated, rows=shard.tokens, channels=shard.hidden_size, width=width
    )
    exchange = tensor_exchange(shard, "mlp", ("mlp",), shard.hidden_size)
    return inner + Block(collectives=(*exchange, *summa_exchange(shard, inner.operators)))


def feed_forward(
    name: str,
    modules: tuple[str, ...],
    shard: Shard,
    *,
    gated: bool,
    rows: Numbers,
    channels: int,
    width: Numbers,
    experts: Numbers | None = None,
    load: Numbers = 1.0,
) -> Block:
    """Two products with an activation between, on ``rows`` tokens, which ``experts`` groups share where given.

    ``load``: the rows relative to those of the average rank. Kernels that run the products of all experts
    (``Job.whole_experts``) may take the activation function and the quantisation behind it, forward and backward, into
    their epilogues (``Job.fused_experts``).
    """
    grouped = experts is not None
    job = shard.job
    whole, fused = grouped and job.whole_experts, grouped and job.fused_experts
    count = experts if experts is not None else 1
    each = rows / count
    columns = width * (2 if gated else 1)
    operators: tuple[Operator, ...] = (
        Matmul(
            name=f"{name}_fc1", modules=modules, m=each, k=channels, n=columns, count=count, grouped=grouped, load=load,
            parts=(1, 1) if gated else (1,), in_one=whole, casts_gradient=not fused,
        ),
        *(() if fused else (activation(name, modules, shard, rows * width, gated=gated),)),
        Matmul(
            name=f"{name}_fc2", modules=modules, m=each, k=width, n=channels, count=count, grouped=grouped,
            load=load, in_one=whole, casts_input=not fused,
        ),
    )  # fmt: skip
    saved = (
        Saved(name=f"{name}_fc1_output", modules=modules, bytes=rows * columns * shard.gate_input),
        Saved(name=f"{name}_fc2_input", modules=("activation", *modules), bytes=rows * width * shard.linear_input),
        *_unfused_gate(name, modules, shard, rows * width, gated=gated),
    )
    return Block(operators=operators, saved=saved)


def _unfused_gate(
    name: str, modules: tuple[str, ...], shard: Shard, elements: Numbers, *, gated: bool
) -> tuple[Saved, ...]:
    """The activated gate, which eager kernels keep for the product with its other half."""
    if not gated or shard.job.software.kernels == "fused":
        return ()
    return (Saved(name=f"{name}_gate", modules=("activation", *modules), bytes=elements * shard.element),)


def activation(name: str, modules: tuple[str, ...], shard: Shard, elements: Numbers, *, gated: bool) -> StreamPass:
    """Activation function: reads one or two elements and writes one; backward reads its gradient too."""
    traffic = TRAFFIC["gated activation" if gated else "activation"]
    return traffic.at(f"{name}_activation", ("activation", *modules), elements, shard.element)

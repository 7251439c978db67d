"""Norms, dense MLPs and mixtures of experts under a plan.

A mixture of experts has a router, the dispatch of tokens, grouped products and shared experts.
"""

from __future__ import annotations

import numpy as np

from shardplan.base.arrays import Numbers, where
from shardplan.base.fields import replace
from shardplan.inputs.layers import MLP, MixtureOfExperts
from shardplan.physics.workload.communication import Shard, expert_exchange, sent_once, summa_exchange, tensor_exchange
from shardplan.physics.workload.ops import ONE_BY_ONE, Block, Collective, Copies, Matmul, Operator, Saved, StreamPass
from shardplan.physics.workload.passes import TRAFFIC
from shardplan.physics.workload.routing import most_loaded

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


MOE = ("moe",)


def mixture_of_experts(config: MixtureOfExperts, shard: Shard) -> Block:
    r"""Every rank sends :math:`T k` token copies and works on :math:`T k\,etp` of them, shared by :math:`E/ep` experts.

    Token copies are permuted before and after. All counts are of the most loaded rank, for which the others wait in the
    exchange (:func:`~shardplan.physics.workload.routing.most_loaded`); it is taken to be the same one in all layers,
    which is the most that memory must hold.
    """
    numbers = shard.numbers
    load = most_loaded(config, shard.job, numbers.ep)
    assignments = shard.split_tokens * config.top_k * load
    rows = assignments * numbers.etp
    channels = config.latent_size or shard.hidden_size
    operators: tuple[Operator, ...] = (
        Matmul(
            name="router", modules=MOE, m=shard.split_tokens, k=shard.hidden_size, n=config.num_experts,
            low_precision=False,
        ),
        TRAFFIC["routing"].at("routing", MOE, shard.split_tokens * config.num_experts, shard.element),
        TRAFFIC["permute"].at("permute", MOE, permuted_rows(config, shard, assignments) * channels, shard.element),
        *_latent_projections(config, shard),
    )  # fmt: skip
    saved = (
        Saved(name="routing", modules=MOE, bytes=shard.split_tokens * config.num_experts * 4.0),
        Saved(name="dispatched", modules=MOE, bytes=rows * channels * shard.linear_input),
    )
    experts = feed_forward(
        "expert", MOE, shard, gated=config.gated, rows=rows, channels=channels,
        width=config.intermediate_size / numbers.etp, experts=config.num_experts / numbers.ep, load=load,
    )  # fmt: skip
    exchange = expert_exchange(shard, MOE, assignments, channels, copies=_copies(config, shard))
    block = Block(operators=operators, collectives=exchange, saved=saved) + experts
    added = (*_biases(config, shard, rows * channels), *stashed(shard, (*saved[1:], *experts.saved)))
    return block + Block(operators=added) + _scored(shard, rows * channels) + _shared_experts(config, shard)


SCORED_GRADIENTS = 3.5
"""What lives at once, relative to the fp32 copy of the outputs, when scores are applied operation by operation: their
gradient in 16 bits and in fp32, its products with the scores and with the outputs (2 + 4 + 4 + 4 bytes of 4)."""


def _scored(shard: Shard, elements: Numbers) -> Block:
    """Outputs of experts times the router's scores operation by operation; nothing where another kernel does it."""
    if shard.job.software.expert_scores == "fused":
        return Block()
    passes = TRAFFIC["expert scores of several kernels"].at("expert_scores", MOE, elements, shard.element)
    copy = Saved(name="expert_output", modules=MOE, bytes=elements * FP32_BYTES, gradients=SCORED_GRADIENTS)
    return Block(operators=(passes,), saved=(copy,))


def permuted_rows(config: MixtureOfExperts, shard: Shard, assignments: Numbers) -> Numbers:
    r"""Rows of tokens that permutations read and write around the experts, there and back.

    The framework's all-to-all sends a row for each of a token's k copies: the token is read once and its copies are
    written, which the receiving rank sorts by its experts, where it has several; the same on the way back,
    :math:`2 (1 + 1/k) + 4\,etp` of each copy (Megatron Core, ``MoEAlltoAllTokenDispatcher``; ``sort_chunks_by_idxs`` of
    Transformer Engine). DeepEP and HybridEP send a row to each of the c ranks that a token reaches, which reads it and
    writes it for each of its experts, and sums these on the way back, :math:`2 (1 + c/k)\,etp`. In low precision the
    rows of each expert are filled up to a multiple of 16 or 32, which copies all of them there and back,
    :math:`4\,etp` (``Fp8Padding`` of Transformer Engine); HybridEP does so as it writes them.
    """
    numbers, k, recipe = shard.numbers, config.top_k, shard.job.recipe
    dispatcher = shard.job.software.moe_dispatcher
    filled: Numbers = 4.0 if recipe.matmul != recipe.dense_math else 0.0
    if dispatcher == "hybridep":
        filled = where(numbers.exchanges_tokens, 0.0, filled)
    if dispatcher == "alltoall":
        sorts = np.where(np.greater(numbers.ep, 1) & (config.num_experts / numbers.ep > 1), 4.0, 0.0)
        return assignments * (2 * (1 + 1 / k) + (sorts + filled) * numbers.etp)
    return assignments * (2 * (1 + sent_once(_copies(config, shard), numbers.ep)) + filled) * numbers.etp


def _biases(config: MixtureOfExperts, shard: Shard, elements: Numbers) -> tuple[Operator, ...]:
    """Biases of the second products, which kernels of their own add; one kernel for all experts does so itself."""
    if not config.bias or shard.job.whole_experts:
        return ()
    return (TRAFFIC["expert bias"].at("expert_bias", MOE, elements, shard.element),)


def stashed(shard: Shard, kept: tuple[Saved, ...]) -> tuple[Operator, ...]:
    """Copies of what experts keep for the backward pass, to pages and back.

    Where one kernel runs all experts and HybridEP brings their tokens, these lie in buffers for the most that may come.
    What came is copied to pages, and back (Megatron Core, ``moe_paged_stash``).
    """
    if not shard.job.whole_experts or shard.job.software.moe_dispatcher != "hybridep":
        return ()
    return (TRAFFIC["stash"].at("stash", MOE, sum((each.bytes for each in kept), start=0.0), shard.element),)


def _copies(config: MixtureOfExperts, shard: Shard) -> Copies:
    """Those of a token; the framework's all-to-all knows nothing of what they share."""
    if shard.job.software.moe_dispatcher == "alltoall":
        return ONE_BY_ONE
    if config.topk_group == config.n_group:
        return Copies(config.top_k)
    return Copies(config.top_k, config.n_group, config.topk_group)


def _latent_projections(config: MixtureOfExperts, shard: Shard) -> tuple[Operator, ...]:
    if config.latent_size is None:
        return ()
    h, latent = shard.hidden_size, config.latent_size
    return (
        Matmul(name="latent_down", modules=MOE, m=shard.split_tokens, k=h, n=latent),
        Matmul(name="latent_up", modules=MOE, m=shard.split_tokens, k=latent, n=h),
    )


def _shared_experts(config: MixtureOfExperts, shard: Shard) -> Block:
    if not config.shared_intermediate_size:
        return Block()
    modules = ("shared_experts",)
    width = config.shared_intermediate_size / shard.columns
    inner = feed_forward(
        "shared", modules, shard, gated=config.gated, rows=shard.tokens, channels=shard.hidden_size, width=width
    )
    return inner + Block(collectives=tensor_exchange(shard, "shared", modules, shard.hidden_size))

"""Mixture of experts under a plan: router, dispatch, grouped products, shared experts."""

from __future__ import annotations

import numpy as np

from shardplan.arrays import Numbers, where
from shardplan.inputs.job import Job
from shardplan.inputs.layers import MixtureOfExperts
from shardplan.workload.communication import expert_exchange, sent_once, tensor_exchange
from shardplan.workload.mlp import feed_forward
from shardplan.workload.ops import ONE_BY_ONE, Block, Copies, Matmul, Operator, Saved
from shardplan.workload.passes import TRAFFIC
from shardplan.workload.shard import Shard

MOE = ("moe",)


def mixture_of_experts(config: MixtureOfExperts, shard: Shard) -> Block:
    r"""Every rank sends :math:`T k` token copies and works on :math:`T k\,etp` of them, shared by :math:`E/ep` experts.

    Token copies are permuted before and after. All counts are of the most loaded rank, for which the others wait in the
    exchange (:func:`most_loaded`); it is taken to be the same one in all layers, which is the most that memory must
    hold.
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
    return block + Block(operators=added) + _shared_experts(config, shard)


def most_loaded(config: MixtureOfExperts, job: Job, ep: Numbers) -> Numbers:
    r"""Token copies of the most loaded expert-parallel rank relative to the mean: the job's ``moe_imbalance``.

    At most :math:`\min(ep, E / k)`: every token sends all of its k copies to the :math:`E/ep` experts of one rank, or
    one to each where they are fewer. One where a single rank has all experts, and where experts take a fixed number of
    tokens (``moe_capacity``).
    """
    if job.moe_imbalance == 1 or job.software.moe_capacity:
        return 1.0
    return np.minimum(job.moe_imbalance, np.minimum(ep, config.num_experts / config.top_k))


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

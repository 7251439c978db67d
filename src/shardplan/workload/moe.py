"""Mixture of experts under a plan: router, dispatch, grouped products, shared experts. Routing is taken as balanced."""

from __future__ import annotations

from shardplan.inputs.layers import MixtureOfExperts
from shardplan.workload.communication import expert_exchange, tensor_exchange
from shardplan.workload.mlp import feed_forward
from shardplan.workload.ops import Block, Matmul, Operator, Saved
from shardplan.workload.passes import TRAFFIC
from shardplan.workload.shard import Shard

MOE = ("moe",)


def mixture_of_experts(config: MixtureOfExperts, shard: Shard) -> Block:
    r"""Every rank sends :math:`T k` token copies and works on :math:`T k\,etp` of them, shared by :math:`E/ep` experts.

    Token copies are permuted before and after.
    """
    batch = shard.batch
    assignments = shard.split_tokens * config.top_k
    rows = assignments * batch.etp
    channels = config.latent_size or shard.hidden_size
    operators: tuple[Operator, ...] = (
        Matmul(
            name="router", modules=MOE, m=shard.split_tokens, k=shard.hidden_size, n=config.num_experts,
            low_precision=False,
        ),
        TRAFFIC["routing"].at("routing", MOE, shard.split_tokens * config.num_experts, shard.element),
        TRAFFIC["permute"].at("permute", MOE, assignments * channels, shard.element),
        *_latent_projections(config, shard),
    )  # fmt: skip
    saved = (
        Saved(name="routing", modules=MOE, bytes=shard.split_tokens * config.num_experts * 4.0),
        Saved(name="dispatched", modules=MOE, bytes=rows * channels * shard.linear_input),
    )
    experts = feed_forward(
        "expert", MOE, shard, gated=config.gated, rows=rows, channels=channels,
        width=config.intermediate_size / batch.etp, experts=config.num_experts / batch.ep,
    )  # fmt: skip
    copies = 1 if shard.job.software.moe_dispatcher == "alltoall" else config.top_k
    exchange = expert_exchange(shard, MOE, assignments, channels, copies=copies)
    return Block(operators=operators, collectives=exchange, saved=saved) + experts + _shared_experts(config, shard)


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

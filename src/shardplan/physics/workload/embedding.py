"""What stands before the first and behind the last layer: embeddings, head and loss, multi-token prediction."""

from __future__ import annotations

import numpy as np

from shardplan.base.arrays import Numbers, where
from shardplan.base.fields import replace
from shardplan.inputs.model import ModelConfig
from shardplan.physics.workload.communication import Shard, tensor_exchange
from shardplan.physics.workload.compressed import collapse
from shardplan.physics.workload.mlp import norm
from shardplan.physics.workload.ops import Block, Collective, Matmul, Operator, Saved, StreamPass
from shardplan.physics.workload.passes import TRAFFIC


def embedding(model: ModelConfig, shard: Shard) -> Block:
    """Rows of the table gathered forward, gradients added backward; patches are a matrix product."""
    operators: list[Operator] = [
        TRAFFIC["embedding"].at("embedding", (), shard.tokens * shard.hidden_size, shard.element)
    ]
    if model.patch is not None:
        pixels = model.patch.num_channels * model.patch.patch_size**2
        width = shard.hidden_size / shard.columns
        operators.append(Matmul(name="patches", modules=(), m=shard.tokens, k=pixels, n=width, low_precision=False))
    mask = (Saved(name="dropout_mask", modules=(), bytes=shard.split_tokens * shard.hidden_size),)
    return Block(operators=tuple(operators), saved=mask if shard.job.dropout else ()).outside_layers()


def head(model: ModelConfig, shard: Shard) -> Block:
    """Final norm, output product and cross-entropy over a vocabulary shared by tensor-parallel ranks."""
    h, tokens, columns = shard.hidden_size, shard.tokens, shard.columns
    block = norm(shard, linear_input=False, residual=False) if model.has_final_norm else Block()
    if model.streams > 1:
        block = collapse(shard, model.streams, weighed=not model.averages_streams) + block
    operators: list[Operator] = []
    if model.has_head_transform:
        operators.append(Matmul(name="head_transform", modules=(), m=tokens, k=h, n=h / columns, low_precision=False))
    if model.vocab_size:
        num_logits = logits(model, shard)
        operators += [
            Matmul(name="head", modules=(), m=tokens, k=h, n=model.vocab_size / columns, low_precision=False),
            _loss(num_logits, shard),
        ]
    elif model.num_labels:
        rows = shard.numbers.micro_batch_size
        operators.append(
            Matmul(
                name="classifier",
                modules=(),
                m=rows,
                k=model.num_label_inputs * h,
                n=model.num_labels,
                low_precision=False,
            )
        )
    exchange: tuple[Collective, ...] = ()
    saved: tuple[Saved, ...] = ()
    if model.vocab_size:  # the head's input gathered, the embedding's output scattered: both in 16 bits
        exchange = tensor_exchange(shard, "head", (), h, quantised_inputs=False, quantised_gradients=False)
        if _gathers(shard):
            whole = logits(model, shard) * shard.element
            exchange += (Collective(name="logits", modules=(), kind="all_gather", dimension="tp", bytes=whole),)
    if model.vocab_size and shard.job.software.gathered_inputs:
        saved = (Saved(name="gathered_input", modules=(), bytes=(tokens - shard.split_tokens) * h * shard.element),)
    return (block + Block(operators=tuple(operators), collectives=exchange, saved=saved)).outside_layers()


def _loss(num_logits: Numbers, shard: Shard) -> StreamPass:
    """Cross-entropy: one kernel that reads 16-bit logits and writes their gradient, or fp32 copies and a softmax."""
    software = shard.job.software
    several, one = (TRAFFIC[name].at("loss", (), num_logits, shard.element) for name in ("loss", "loss in one kernel"))
    if software.fused_loss or software.loss_kernel == "single":
        return one
    if software.loss_kernel != "compiled" or software.kernels == "eager":
        return several
    shared = np.asarray(shard.columns) > 1
    return replace(
        one,
        forward_bytes=where(shared, several.forward_bytes, one.forward_bytes),
        backward_bytes=where(shared, several.backward_bytes, one.backward_bytes),
    )


def logits(model: ModelConfig, shard: Shard) -> Numbers:
    """Logits of one micro-batch on this rank, of its part of the vocabulary or of all of it."""
    whole = shard.tokens * model.vocab_size
    return whole if _gathers(shard) else whole / shard.columns


def _gathers(shard: Shard) -> bool:
    """Whether every tensor-parallel rank gets the logits of the whole vocabulary."""
    return shard.job.software.loss_kernel == "gathered" and not shard.job.software.fused_loss


def mtp_projection(shard: Shard, streams: int = 1) -> Block:
    """Two hidden states joined to one, which begins a multi-token-prediction block (arXiv 2412.19437, section 2.2).

    Of several residual streams each is projected, and the embedding once.
    """
    h, rows = shard.hidden_size, shard.split_tokens * (1 + streams) / 2
    joined = Matmul(name="mtp_projection", modules=(), m=rows, k=2 * h, n=h, low_precision=False)
    return norm(shard) + norm(shard) + Block(operators=(joined,))

"""Model FLOP per token: what training a token takes, whatever the plan."""

from __future__ import annotations

from functools import lru_cache

from shardplan.inputs.batch import Batch
from shardplan.inputs.job import Job
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.plan import Plan
from shardplan.workload.embedding import embedding, head, mtp_projection
from shardplan.workload.layer import layer_block
from shardplan.workload.ops import Block
from shardplan.workload.shard import Shard

__all__ = ["FLOPS_CONVENTION", "model_flops_per_token"]

FLOPS_CONVENTION = (
    "forward and backward (3 x forward), a multiply-add is 2 FLOP; matrix products of layers and output head, "
    "attention over the keys that the mask admits (causal: half the sequence); no embedding lookup, no recomputation, "
    "no softmax or norms; multi-token-prediction blocks included"
)


@lru_cache(maxsize=256)
def model_flops_per_token(model: ModelConfig, sequence_length: int) -> float:
    """FLOP per token of a forward and a backward pass at this sequence length."""
    job = Job(sequence_length=sequence_length, global_batch_size=1)
    shard = Shard.of(model.hidden_size, job, Batch.of(Plan(), 1, job))
    kinds = [_flops(layer_block(kind, shard)) for kind in model.layer_kinds]
    forward = sum(kinds[index] for index in model.layer_pattern)
    ends = _flops(head(model, shard))
    forward += _flops(embedding(model, shard)) + ends
    if model.num_mtp_layers:
        block = layer_block(model.mtp_layer, shard) + mtp_projection(shard)
        forward += model.num_mtp_layers * (_flops(block) + ends)
    return 3.0 * forward / sequence_length


def _flops(block: Block) -> float:
    return float(sum(float(operator.flops) for operator in block.operators))

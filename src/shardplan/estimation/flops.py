"""Model FLOP per token: what training a token takes, whatever the plan."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from shardplan.fields import dataclass
from shardplan.inputs.job import Job
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.workload.embedding import embedding, head, mtp_projection
from shardplan.workload.layer import layer_block
from shardplan.workload.ops import Block
from shardplan.workload.shard import Shard

FLOPS_CONVENTION = (
    "forward and backward (3 x forward), a multiply-add is 2 FLOP; matrix products of layers and output head, "
    "attention over the keys that the mask admits (causal: half the sequence); no embedding lookup, no recomputation, "
    "no softmax or norms; multi-token-prediction blocks included"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class PartFlops:
    """FLOP of a forward pass of one sequence through the parts of a model."""

    layers: tuple[float, ...]
    """A layer of every kind."""
    embedding: float
    head: float
    """The head, and prediction blocks with theirs."""

    def of_chunks(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """Of every chunk with these numbers of layers: kinds x chunks per rank x ranks; chunks per rank x ranks."""
        work: NDArray[np.float64] = np.tensordot(np.asarray(self.layers), counts, axes=1)
        work[0, 0] += self.embedding
        work[-1, -1] += self.head
        return work


@lru_cache(maxsize=256)
def part_flops(model: ModelConfig, sequence_length: int) -> PartFlops:
    """FLOP of the parts of ``model`` at this sequence length."""
    job = Job(sequence_length=sequence_length, global_batch_size=1)
    shard = Shard.of(model.hidden_size, job, PlanNumbers.of(Plan(), 1, job))
    one_head = ends = _flops(head(model, shard))
    if model.num_mtp_layers:
        block = layer_block(model.mtp_layer, shard) + mtp_projection(shard)
        ends += model.num_mtp_layers * (_flops(block) + one_head)
    return PartFlops(
        layers=tuple(_flops(layer_block(kind, shard)) for kind in model.layer_kinds),
        embedding=_flops(embedding(model, shard)),
        head=ends,
    )


@lru_cache(maxsize=256)
def model_flops_per_token(model: ModelConfig, sequence_length: int) -> float:
    """FLOP per token of a forward and a backward pass at this sequence length."""
    parts = part_flops(model, sequence_length)
    forward = sum(parts.layers[kind] for kind in model.layer_pattern)
    return 3.0 * (forward + parts.embedding + parts.head) / sequence_length


def _flops(block: Block) -> float:
    return float(sum(float(operator.flops) for operator in block.operators))

"""Model FLOP per token: what training a token takes, whatever the plan."""

from __future__ import annotations

from functools import lru_cache

from shardplan.estimation.pricing import embedding_block, head_block, mtp_block
from shardplan.estimation.question import Question
from shardplan.inputs.job import Job
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.inputs.trained import trained_model
from shardplan.workload.layer import layer_block
from shardplan.workload.ops import Block
from shardplan.workload.shard import Shard

FLOPS_CONVENTION = (
    "forward and backward (3 x forward), a multiply-add is 2 FLOP; matrix products of layers and output head, "
    "attention over the keys that the mask admits (causal: half the sequence); no embedding lookup, no recomputation, "
    "no softmax or norms; multi-token-prediction blocks included"
)
FROZEN_CONVENTION = (
    f"{FLOPS_CONVENTION}; products of frozen weights without the gradient of the weight (2 x forward), what stands "
    "before all that is trained forward alone, adapters included"
)
PACKED_CONVENTION = "; no keys of other documents in the sequence"
COUNTED = ("train", "lora_rank", "lora_targets", "freeze", "documents")
"""Fields of a job that the count depends on."""


def flops_convention(job: Job) -> str:
    """How FLOP are counted for a job."""
    masked = "" if job.packed is None else PACKED_CONVENTION
    return (FLOPS_CONVENTION if job.trains_all else FROZEN_CONVENTION) + masked


def model_flops_per_token(model: ModelConfig, sequence_length: int, job: Job | None = None) -> float:
    """FLOP per token of a forward and a backward pass at this sequence length, with gradients and documents of ``job``.

    Without a job all weights are trained, and one document fills the sequence.
    """
    of_job = {} if job is None else {name: getattr(job, name) for name in COUNTED}
    return _flops_per_token(model, Job(sequence_length=sequence_length, global_batch_size=1, **of_job))


def step_flops(question: Question) -> float:
    """FLOP of a whole step on all accelerators, recomputed ones left out."""
    job = question.job
    return model_flops_per_token(question.model, job.sequence_length, job) * job.tokens_per_step


@lru_cache(maxsize=256)
def _flops_per_token(model: ModelConfig, job: Job) -> float:
    model = trained_model(model, lora=job.train == "lora", freeze=job.freeze)
    shard = Shard.of(model.hidden_size, job, PlanNumbers.of(Plan(), 1, job))
    layers = [_flops(layer_block(kind, shard)) for kind in model.layer_kinds]
    ends = _flops(embedding_block(model, shard)) + _flops(head_block(model, shard))
    if model.num_mtp_layers:
        ends += model.num_mtp_layers * _flops(mtp_block(model, shard))
    return (sum(layers[kind] for kind in model.layer_pattern) + ends) / job.sequence_length


def _flops(block: Block) -> float:
    return float(block.training_flops)

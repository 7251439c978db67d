r"""What a frozen companion adds to the blocks and states of the model beside which it runs.

It is split as the plan splits the model: a model of L layers carries :math:`L_c / L` layers of a companion with each
of its own, embeddings and heads lie together. So whatever is summed over the layers of a stage counts it too, for one
plan or for an array. Before the forward pass of a micro-batch the companion's runs, without a backward pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter
from typing import TypeVar

import numpy as np

from shardplan.base.arrays import Numbers, largest
from shardplan.estimation.question import Question
from shardplan.inputs.companions import SELF, Companion
from shardplan.inputs.job import Job
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.physics.costs.block import BlockCost, CompanionPass
from shardplan.physics.workload.layer import Parameters
from shardplan.physics.workload.stage import Parts

Own = TypeVar("Own")
Added = TypeVar("Added")
Found = TypeVar("Found")
INDEX_BYTES = 8.0
"""Of a kept logit (``torch.topk`` gives 64-bit indices)."""


def joined_parts(own: Parts[Own], added: Parts[Added], join: Callable[[Own, Added], Found]) -> Parts[Found]:
    """Two values of each part as one."""
    return Parts(
        layers=tuple(map(join, own.layers, added.layers)),
        embedding=join(own.embedding, added.embedding),
        head=join(own.head, added.head),
        mtp=join(own.mtp, added.mtp),
    )


def companion_passes(
    companion: Companion, config: ModelConfig, model: ModelConfig, blocks: Parts[BlockCost]
) -> Parts[CompanionPass]:
    """The forward pass of a companion with these ``blocks``, by parts of the model; a reward has no vocabulary."""
    held = largest([block.kept_bytes for block in blocks.layers])

    def passed(count: float, block: BlockCost) -> CompanionPass:
        return CompanionPass(count * block.forward.total, count * block.forward.free, count * block.flops, held)

    def layer(value: Callable[[BlockCost], Numbers]) -> Numbers:
        return _share(config, model, tuple(value(block) for block in blocks.layers))

    times, free = layer(attrgetter("forward.total")), layer(attrgetter("forward.free"))
    each = CompanionPass(times, free, layer(attrgetter("flops")), held)
    return Parts(
        layers=(each,) * len(model.layer_kinds),
        embedding=passed(1.0, blocks.embedding),
        head=CompanionPass() if companion.role == "reward" else passed(1.0, blocks.head),
        mtp=CompanionPass(),
    )


def companion_parameters(
    companion: Companion, config: ModelConfig, question: Question, held: Parts[Parameters]
) -> Parts[Parameters]:
    """Its weights on a rank by parts of the model, ``held`` by its own; none where it borrows those of the model."""
    model = question.model
    none = Parameters()
    if borrows_weights(companion, question.job):
        return Parts(layers=(none,) * len(model.layer_kinds), embedding=none, head=none, mtp=none)
    dense, experts = (
        _share(config, model, tuple(getattr(each, name) for each in held.layers)) for name in ("dense", "experts")
    )
    return Parts(
        layers=(Parameters(dense, experts),) * len(model.layer_kinds),
        embedding=Parameters(held.embedding.dense),
        head=none if companion.role == "reward" else Parameters(held.head.dense),
        mtp=none,
    )


def borrows_weights(companion: Companion, job: Job) -> bool:
    """Whether it is the model without its adapters, whose weights are there already."""
    return companion.model == SELF and job.train == "lora"


def forward_numbers(numbers: PlanNumbers) -> PlanNumbers:
    """The same plans as a forward pass alone reads them: weights are gathered once, none from a second copy."""
    return replace(numbers, weight_gathers=np.minimum(numbers.weight_gathers, 1), second_degree=None)


def teacher_bytes(question: Question, numbers: PlanNumbers, logits: Numbers) -> Numbers:
    """Logits of teachers that wait for the loss of a micro-batch, on a rank with the head. [bytes]

    All of them need those of the model too, where its own loss keeps none (fused); of the top k values and indices.
    """
    job = question.job
    total: Numbers = 0.0
    each = job.recipe.activation_bytes
    for companion, _ in question.companions:
        if companion.role == "teacher" and companion.top_k is None:
            total = total + (2 if job.software.fused_loss else 1) * each * logits
        elif companion.top_k is not None:
            tokens = numbers.micro_batch_size * (job.sequence_length / np.asarray(numbers.cp))
            total = total + tokens * companion.top_k * (each + INDEX_BYTES)
    return total


def _share(config: ModelConfig, model: ModelConfig, values: tuple[Numbers, ...]) -> Numbers:
    """What a layer of the model carries, of values for every kind of layer of the companion."""
    counts = np.bincount(config.layer_pattern, minlength=len(values)) / model.num_hidden_layers
    return sum((float(count) * value for count, value in zip(counts, values, strict=True)), start=0.0)

"""What the parts of a model put on the rank that holds them, summed over a pipeline stage."""

from __future__ import annotations

from dataclasses import fields
from operator import attrgetter

from shardplan.base.arrays import Numbers, any_holds, is_zero, scaled
from shardplan.base.fields import dataclass, replace
from shardplan.estimation.pricing import HeldStates, Prices, num_logits, output_bytes
from shardplan.estimation.question import Question
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.physics.costs.block import BlockCost
from shardplan.physics.workload.layer import Parameters
from shardplan.physics.workload.stage import Parts, Stage, largest


@dataclass(frozen=True, kw_only=True)
class BlockLoad:
    """Work and activations of one micro-batch."""

    forward: Numbers
    """Exposed communication included. [s]"""
    backward: Numbers
    """The same, without recomputation. [s]"""
    weight_gradient: Numbers
    """The part of the backward pass that only the optimizer waits for. [s]"""
    recomputed: Numbers
    """Forward work that recomputation repeats. [s]"""
    free_forward: Numbers
    """Computation of the forward pass that hides none of its communication, and so can hide other. [s]"""
    free_backward: Numbers
    """The same of the backward pass. [s]"""
    free_recomputed: Numbers
    """The same of what recomputation repeats. [s]"""
    kept_bytes: Numbers
    """Tensors kept for the backward pass, without recomputation."""
    freed_bytes: Numbers
    """The part of them that recomputation frees."""
    core_gradient_bytes: Numbers
    """Gradients that live at once in the backward pass of unfused attention."""
    fleeting_bytes: Numbers = 0.0
    """What exists while one of its passes runs alone."""

    @property
    def memory(self) -> BlockLoad:
        """The same without times, for who reads none of them."""
        return replace(self, **dict.fromkeys(BLOCK_TIMES, 0.0))

    @classmethod
    def of(cls, cost: BlockCost) -> BlockLoad:
        """Load of one part."""
        return cls(
            forward=cost.forward.total,
            backward=cost.backward.total,
            weight_gradient=cost.weight_gradient,
            recomputed=cost.recomputed.total,
            free_forward=cost.forward.free,
            free_backward=cost.backward.free,
            free_recomputed=cost.recomputed.free,
            kept_bytes=cost.kept_bytes,
            freed_bytes=cost.freed_bytes,
            fleeting_bytes=cost.fleeting_bytes,
            core_gradient_bytes=cost.core_gradient_bytes,
        )


@dataclass(frozen=True, kw_only=True)
class Computing:
    """What is left of one micro-batch under any software that a search chooses, and what may be hidden.

    Without the host, and without passes that the dispatcher of experts decides. Forward and backward, and what
    recomputation repeats. [s]
    """

    alone: Numbers
    """Computation, and exchanges of context parallelism."""
    tp: Numbers
    """Exchanges of tensor parallelism, as far as they are exposed."""
    ep: Numbers
    """Those of experts."""
    alone_again: Numbers
    tp_again: Numbers
    ep_again: Numbers

    @classmethod
    def of(cls, cost: BlockCost) -> Computing:
        """Those of one part."""
        there, back, again = cost.forward, cost.backward, cost.recomputed
        dispatching, dispatching_again = cost.dispatching
        return cls(
            alone=there.compute + back.compute + there.cp + back.cp - dispatching,
            tp=there.tp + back.tp,
            ep=there.ep + back.ep,
            alone_again=again.compute + again.cp - dispatching_again,
            tp_again=again.tp,
            ep_again=again.ep,
        )


@dataclass(frozen=True, kw_only=True)
class StateLoad(Parameters):
    """Parameters, the work of Muon on them and their traffic."""

    orthogonal_dense: Numbers
    """FLOP of Muon on its matrices, before ranks share them."""
    orthogonal_experts: Numbers
    orthogonal_largest: Numbers
    """Of one matrix, at most."""
    sharding_time: Numbers
    """Weights gathered and gradients reduced in every micro-batch. [s]"""
    copied_bytes: Numbers
    """Weights copied in every micro-batch."""
    reduce_time: Numbers
    """Gradients reduced once per step. [s]"""
    gather_time: Numbers
    """Parameters gathered once per step. [s]"""

    @classmethod
    def of(cls, states: HeldStates) -> StateLoad:
        """Load of one part."""
        return cls(
            **vars(states.parameters),
            orthogonal_dense=states.orthogonal.dense,
            orthogonal_experts=states.orthogonal.experts,
            orthogonal_largest=states.orthogonal.largest,
            sharding_time=states.traffic.microbatch_time,
            copied_bytes=states.traffic.copied_bytes,
            reduce_time=states.traffic.reduce_time,
            gather_time=states.traffic.gather_time,
        )


BLOCK_FIELDS = tuple(each.name for each in fields(BlockLoad))
BLOCK_BYTES = tuple(name for name in BLOCK_FIELDS if name.endswith("_bytes"))
BLOCK_TIMES = tuple(name for name in BLOCK_FIELDS if name not in BLOCK_BYTES)
STATE_FIELDS = tuple(each.name for each in fields(StateLoad))


@dataclass(frozen=True, kw_only=True)
class StageWork:
    """Work and activations of one micro-batch on a whole stage."""

    sum: BlockLoad
    kept_of_layer: Numbers
    """Bytes that one layer keeps without recomputation, at most."""
    freed_of_part: Numbers
    """Bytes that recomputation brings back for one part, at most."""
    fleeting_of_layer: Numbers = 0.0
    """Bytes that exist while one pass of a layer runs alone, at most."""
    gradients_of_core: Numbers = 0.0
    """Gradients of the scores of one layer, at most. [bytes]"""
    kept_of_ends: Numbers = 0.0
    """Bytes that head and multi-token prediction keep without recomputation, and the part that it frees."""
    freed_of_ends: Numbers = 0.0

    @property
    def memory(self) -> StageWork:
        """The same without times, for who reads none of them."""
        return replace(self, sum=self.sum.memory)

    @property
    def times(self) -> StageWork:
        """The same without bytes, for who reads none of them."""
        return StageWork(sum=replace(self.sum, **dict.fromkeys(BLOCK_BYTES, 0.0)), kept_of_layer=0.0, freed_of_part=0.0)

    @classmethod
    def of(cls, stage: Stage, parts: Parts[BlockLoad]) -> StageWork:
        """The sum over everything that a stage holds, and the largest of it."""
        return cls(
            sum=BlockLoad(**{name: parts.total(stage, attrgetter(name)) for name in BLOCK_FIELDS}),
            kept_of_layer=largest([*parts.held_layers(stage)], "kept_bytes"),
            freed_of_part=largest(parts.held(stage), "freed_bytes"),
            fleeting_of_layer=largest([*parts.held_layers(stage)], "fleeting_bytes"),
            gradients_of_core=largest([*parts.held_layers(stage)], "core_gradient_bytes"),
            kept_of_ends=_of_ends(stage, parts, "kept_bytes"),
            freed_of_ends=_of_ends(stage, parts, "freed_bytes"),
        )


def _of_ends(stage: Stage, parts: Parts[BlockLoad], name: str) -> Numbers:
    """Sum of a number over head and multi-token-prediction blocks of a stage."""
    ends = ((stage.has_head, parts.head), (stage.num_mtp_layers, parts.mtp))
    return sum((scaled(count, getattr(part, name)) for count, part in ends if any_holds(count)), start=0.0)


@dataclass(frozen=True, kw_only=True)
class StageStates:
    """Parameters of a whole stage, and their traffic."""

    sum: StateLoad
    layer: Parameters
    """Parameters of one layer, at most, and trained ones, at most."""
    part: Parameters
    """The same of one part."""
    largest_matrix: Numbers
    """FLOP of Muon on one matrix, at most."""

    @classmethod
    def of(cls, stage: Stage, parts: Parts[StateLoad]) -> StageStates:
        """The sum over everything that a stage holds, and the largest of it."""
        held, layers = parts.held(stage), [*parts.held_layers(stage)]
        return cls(
            sum=StateLoad(**{name: parts.total(stage, attrgetter(name)) for name in STATE_FIELDS}),
            layer=_largest(layers),
            part=_largest(held),
            largest_matrix=largest(held, "orthogonal_largest"),
        )

    def times(self, copies: int) -> StageStates:
        """States of a rank that holds several stages as large."""
        if copies == 1:
            return self
        values = {name: copies * getattr(self.sum, name) for name in STATE_FIELDS}
        return replace(self, sum=StateLoad(**values))


def _largest(held: list[tuple[Numbers, StateLoad]]) -> Parameters:
    """Most parameters, most trained ones and most that are not kept in few bits of a part."""
    dense, experts = largest(held, "dense"), largest(held, "experts")
    if all(is_zero(part.frozen_dense) and is_zero(part.frozen_experts) for _, part in held):
        return Parameters(dense, experts)
    trained = [(count, part.trained) for count, part in held]
    whole = [(count, part.unpacked) for count, part in held]
    return Parameters(
        dense,
        experts,
        dense - largest(trained, "dense"),
        experts - largest(trained, "experts"),
        packed_dense=dense - largest(whole, "dense"),
        packed_experts=experts - largest(whole, "experts"),
    )


@dataclass(frozen=True, kw_only=True)
class Loads:
    """Loads of all parts of a model."""

    blocks: Parts[BlockLoad]
    states: Parts[StateLoad]

    @classmethod
    def of(cls, prices: Prices) -> Loads:
        """Loads of everything that was priced."""
        return cls(blocks=prices.blocks.map(BlockLoad.of), states=prices.states.map(StateLoad.of))


@dataclass(frozen=True, kw_only=True)
class Around:
    """What the work of every stage of a plan has in common."""

    handover_time: Numbers
    """One micro-batch from one stage to the next, one way. [s]"""
    output_bytes: Numbers
    """Output of a stage for one micro-batch."""
    logits: Numbers
    """Logits of one micro-batch on the last stage."""

    @classmethod
    def of(cls, question: Question, numbers: PlanNumbers, prices: Prices) -> Around:
        """Of plans that have been priced."""
        return cls(
            handover_time=prices.handover.time,
            output_bytes=output_bytes(question, numbers),
            logits=num_logits(question, numbers),
        )

"""What a stage computes and sends, summed over its blocks and states: numbers, or an element for each plan."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter

from shardplan.base.arrays import Numbers
from shardplan.estimation.parts.terms import OF_BLOCKS
from shardplan.estimation.pricing import HeldStates
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.physics.costs.block import BlockCost
from shardplan.physics.memory import applied_share
from shardplan.physics.workload.stage import Parts, Stage


def work_terms(blocks: Parts[BlockCost], stage: Stage, numbers: PlanNumbers) -> dict[str, Numbers]:
    """What all micro-batches of a step take in the blocks of a stage, by term of the step. [s]"""
    m, share = numbers.num_microbatches, applied_share(stage.num_layers, numbers)

    def both(name: str) -> Callable[[BlockCost], Numbers]:
        return lambda cost: getattr(cost.forward, name) + getattr(cost.backward, name)

    terms = {term.key: m * blocks.total(stage, both(term.times)) for term in OF_BLOCKS}
    return terms | {"recompute": m * share * blocks.total(stage, attrgetter("recomputed.total"))}


def sent_in_layers(blocks: Parts[BlockCost], stage: Stage, numbers: PlanNumbers, dimension: str, tier: int) -> Numbers:
    """What a micro-batch sends in the layers and ends of a stage over one dimension and tier. [bytes]"""
    share = applied_share(stage.num_layers, numbers)

    def sent(cost: BlockCost) -> Numbers:
        passes, again = (each.get(dimension) for each in (cost.sent_bytes, cost.resent_bytes))
        return (passes[tier] if passes else 0.0) + share * (again[tier] if again else 0.0)

    return blocks.total(stage, sent)


def sent_for_states(
    states: Parts[HeldStates], stage: Stage, numbers: PlanNumbers, tier: int, copies: int = 1
) -> Numbers:
    """What a step sends for the states of a stage over one tier, of which a micro-batch reads one copy. [bytes]"""
    m = numbers.num_microbatches

    def sent(held: HeldStates) -> Numbers:
        return copies * held.traffic.step_bytes[tier] + m * held.traffic.microbatch_bytes[tier]

    return states.total(stage, sent)

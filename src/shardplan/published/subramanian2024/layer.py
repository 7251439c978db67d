r"""Time of a layer: every operator by the roofline, its collectives behind it.

.. math:: t = \max(t_{comp}, t_{mem}) + t_{comm}, \quad
    t_{comp} = 20\,\mu s + F / (0.8 P), \quad t_{mem} = M / B
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from shardplan.arrays import Numbers
from shardplan.fields import dataclass
from shardplan.published.subramanian2024.communication import collective_time
from shardplan.published.subramanian2024.corrections import Corrections
from shardplan.published.subramanian2024.inputs import System, Transformer
from shardplan.published.subramanian2024.operators import Operator, VectorPass
from shardplan.published.subramanian2024.strategies import Split, Strategy

LAUNCH_TIME = 20e-6
"""Constant part of every operator and direction. [s]"""
EFFICIENCY = 0.8
"""Achieved share of the peak rate."""


@dataclass(frozen=True)
class PassTime:
    """Time of one direction of an operator, or of all operators of a layer. [s]"""

    compute: Numbers
    memory: Numbers
    """What memory traffic takes beyond computation."""
    communication: Numbers

    @property
    def total(self) -> Numbers:
        """All three, one after the other."""
        return self.compute + self.memory + self.communication


@dataclass(frozen=True, kw_only=True)
class LayerCost:
    """One layer and one micro-batch."""

    forward: PassTime
    backward: PassTime
    flops: Numbers
    """Forward and backward, vector work at the ratio of the rates (Q13). [FLOP]"""
    weight_bytes: Numbers
    kept_bytes: Numbers
    boundary_bytes: Numbers
    """What a pipeline stage sends to the next: what the norm of the MLP block keeps."""


def pass_time(operator: Operator, work: VectorPass, system: System, corrected: Corrections) -> PassTime:
    """Time of one direction of an operator."""
    rate = system.matrix_flops if operator.engine == "matrix" else system.vector_flops
    compute = LAUNCH_TIME + work.flops / (EFFICIENCY * rate)
    memory = work.traffic / system.hbm_bandwidth
    if operator.blocks is None:
        exposed = _sum(collective_time(call, system, corrected) for call in work.calls)
    else:
        n = operator.blocks
        one = _sum(collective_time(call, system, corrected, blocks=n) for call in work.calls)
        exposed = summa_time(one, np.maximum(compute, memory), n - 1 if "Q5" in corrected else n)
    return PassTime(compute, np.maximum(memory - compute, 0), exposed)


def summa_time(one: Numbers, product: Numbers, rounds: Numbers) -> Numbers:
    """Exposed communication: a first round, and of ``rounds`` more what the product does not hide. [s]

    As published, ``rounds`` are as many as there are blocks, so that one round too many counts (Q5).
    """
    return one + np.maximum(rounds * one - product, 0)


def layer_cost(
    model: Transformer, system: System, strategy: Strategy, split: Split, corrected: Corrections
) -> LayerCost:
    """Sums over the operators of a layer, for one division or for many."""
    operators = strategy.operators(model, system, split, corrected)
    forward = [pass_time(each, each.forward, system, corrected) for each in operators]
    backward = [pass_time(each, each.backward, system, corrected) for each in operators]
    return LayerCost(
        forward=_sum_of_passes(forward),
        backward=_sum_of_passes(backward),
        flops=_sum(each.forward.flops + each.backward.flops for each in operators),
        weight_bytes=_sum(each.weight_bytes for each in operators),
        kept_bytes=_sum(each.kept_bytes for each in operators),
        boundary_bytes=next(each.kept_bytes for each in operators if each.name == "mlp_norm"),
    )


def _sum_of_passes(times: list[PassTime]) -> PassTime:
    return PassTime(
        _sum(each.compute for each in times),
        _sum(each.memory for each in times),
        _sum(each.communication for each in times),
    )


def _sum(terms: Iterable[Numbers]) -> Numbers:
    """Sum, small arrays first: what varies over few axes is added up before it is spread over many."""
    total: Numbers = 0.0
    for term in sorted(terms, key=np.size):
        total = total + term
    return total

r"""The operators of one layer of a priced plan: what each takes, what limits it, and where it lies under the roofline.

S. Williams, A. Waterman and D. Patterson, Roofline: an insightful visual performance model, CACM 52(4), 2009,
doi:10.1145/1498765.1498785.

A matrix product reads both matrices and writes the third. Fused attention reads queries, keys and values and writes its
output, as its scores stay on the chip (FlashAttention, arXiv 2205.14135); unfused attention also writes and reads every
score. Of norms, activations and other element-wise passes the bytes are known, and hardly any FLOP: a pass counts one
for each element that it moves, so that its distance from the roof is what it leaves of the memory bandwidth.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Final, Literal

import numpy as np

from shardplan.base.arrays import Numbers, first_number
from shardplan.base.fields import dataclass, in_files, replace
from shardplan.estimation.pricing import Prices
from shardplan.estimation.question import Question
from shardplan.inputs.layers import Attention, Layer
from shardplan.physics.costs.block import FIELD, BlockCost, Times, time_of_collective
from shardplan.physics.costs.roofline import Machine, OperatorTimes, operator_times, pass_bytes, product_bytes
from shardplan.physics.workload.ops import AttentionCore, Matmul, Operator

FASTER: Final = 1.01
"""By how much a resource is raised to see whether an operator waits for it."""
NETWORK, LAUNCH, RATE, MEMORY = "network", "launch", "matmul rate", "memory"
HOST: Final = "waiting for the host"


@dataclass(frozen=True, kw_only=True)
class LayerOperator:
    """An operator or an exchange of one layer, for one micro-batch."""

    name: str
    direction: str
    """``forward`` or ``backward``."""
    time: float = field(metadata=in_files("time_s"))
    """What it takes alone. [s]"""
    exposed_time: float = field(metadata=in_files("exposed_time_s"))
    """What it adds to the pass: of an exchange what no computation hides. [s]"""
    bound: str
    """What limits it: ``matmul rate``, ``memory``, ``network`` or ``launch``."""


def layer_operators(question: Question, prices: Prices) -> tuple[LayerOperator, ...]:
    """Operators and exchanges of the model's most frequent kind of layer; the exposed times of a pass sum to its price.

    What is hidden of the exchanges of a dimension is shared among them by their times. The device's wait for the host
    is a row of its own.
    """
    ((kind, _),) = Counter(question.model.layer_pattern).most_common(1)
    cost = prices.blocks.layers[kind]
    machine = question.machine
    priced = [(operator, operator_times(operator, machine)) for operator in cost.block.operators]
    backward = () if cost.block.forward_alone else _pass("backward", priced, cost, cost.backward, machine)
    return (*_pass("forward", priced, cost, cost.forward, machine), *backward)


def _pass(
    direction: str, priced: list[tuple[Operator, OperatorTimes]], cost: BlockCost, total: Times, machine: Machine
) -> Iterator[LayerOperator]:
    """The rows of one direction."""
    for operator, times in priced:
        time = first_number(getattr(times, direction))
        yield LayerOperator(
            name=operator.name,
            direction=direction,
            time=time,
            exposed_time=time,
            bound=_bound(operator, direction, machine),
        )
    exchanges = [
        (item, first_number(time_of_collective(item, cost.groups, cost.network)))
        for item in cost.block.collectives
        if item.direction == direction
    ]
    whole: Mapping[str, float] = _sums((FIELD[item.dimension], time) for item, time in exchanges)
    for item, time in exchanges:
        field = FIELD[item.dimension]
        if time:
            shown = time / whole[field] * first_number(getattr(total, field))
            yield LayerOperator(name=item.name, direction=direction, time=time, exposed_time=shown, bound=NETWORK)
    host = first_number(total.host)
    if host:
        yield LayerOperator(name=HOST, direction=direction, time=host, exposed_time=host, bound=LAUNCH)


def _bound(operator: Operator, direction: str, machine: Machine) -> str:
    """The resource of which a little more would save most of the operator's time."""
    part, profile = machine.accelerator, machine.profile
    peaks = {name: FASTER * peak for name, peak in part.peak_flops.items()}
    faster = {
        RATE: replace(machine, accelerator=replace(part, peak_flops=peaks)),
        MEMORY: replace(machine, accelerator=replace(part, memory_bandwidth=FASTER * part.memory_bandwidth)),
        LAUNCH: replace(
            machine,
            profile=replace(
                profile,
                matmul_launch_time=profile.matmul_launch_time / FASTER,
                memory_pass_latency=profile.memory_pass_latency / FASTER,
            ),
        ),
    }
    times = {
        name: first_number(getattr(operator_times(operator, better), direction)) for name, better in faster.items()
    }
    return min(times, key=lambda name: times[name])


def _sums(amounts: Iterator[tuple[str, float]]) -> dict[str, float]:
    """Sum of the amounts of every name."""
    sums: Counter[str] = Counter()
    for name, amount in amounts:
        sums[name] += amount  # type: ignore[assignment]  # counts of any kind of number
    return dict(sums)


OperatorKind = Literal["matrix product", "attention", "memory-bound pass"]


@dataclass(frozen=True, kw_only=True)
class RooflinePoint:
    """An operator."""

    name: str
    kind: OperatorKind
    flops: float
    """Of one micro-batch, forward; of a memory-bound pass one for each element that it moves."""
    num_bytes: float
    """Read from the device memory and written to it. [bytes]"""
    time: float
    """With its launch. [s]"""

    @property
    def intensity(self) -> float:
        """Arithmetic intensity. [FLOP/byte]"""
        return self.flops / self.num_bytes

    @property
    def rate(self) -> float:
        """Achieved. [FLOP/s]"""
        return self.flops / self.time

    @property
    def bandwidth(self) -> float:
        """Achieved. [bytes/s]"""
        return self.num_bytes / self.time


@dataclass(frozen=True, kw_only=True)
class LayerRoofline:
    """Points and roof."""

    points: tuple[RooflinePoint, ...]
    peak: float
    """Dense peak of the number format that matrix products run in. [FLOP/s]"""
    peak_format: str
    memory_bandwidth: float
    """Of the device memory. [bytes/s]"""

    @property
    def ridge(self) -> float:
        """Intensity from which arithmetic limits. [FLOP/byte]"""
        return self.peak / self.memory_bandwidth


def layer_roofline(question: Question, prices: Prices) -> LayerRoofline:
    """Of the model's most frequent kind of layer."""
    ((number, _),) = Counter(question.model.layer_pattern).most_common(1)
    part, wide = question.cluster.accelerator, question.job.recipe.matmul
    operators = prices.blocks.layers[number].block.operators
    points = _points(operators, question.model.layer_kinds[number], question.machine)
    return LayerRoofline(
        points=tuple(points), peak=part.peak(wide), peak_format=wide, memory_bandwidth=part.memory_bandwidth
    )


def _points(operators: tuple[Operator, ...], kind: Layer, machine: Machine) -> Iterator[RooflinePoint]:
    for each in operators:
        flops, moved, name = _counted(each, kind, machine)
        if first_number(moved):
            time = first_number(operator_times(each, machine).forward)
            yield RooflinePoint(
                name=each.name, kind=name, flops=first_number(flops), num_bytes=first_number(moved), time=time
            )


def _counted(operator: Operator, kind: Layer, machine: Machine) -> tuple[Numbers, Numbers, OperatorKind]:
    """FLOP, bytes and kind of an operator, forward."""
    if isinstance(operator, Matmul):
        moved = product_bytes(operator, machine, m=operator.m, k=operator.k, n=operator.n)
        return operator.flops, moved, "matrix product"
    if isinstance(operator, AttentionCore):
        return operator.flops, _attention_bytes(operator, kind, machine), "attention"
    moved = pass_bytes(operator, machine)
    return operator.flops or moved / machine.recipe.activation_bytes, moved, "memory-bound pass"


def _attention_bytes(op: AttentionCore, kind: Layer, machine: Machine) -> Numbers:
    r"""What attention reads and writes once. [bytes]

    .. math:: c\,(d_{qk} + d_v)\,(T H + T_k H_k) + \underbrace{2 c\,T H s}_\text{unfused}

    with queries T, heads H, keys :math:`T_k` (of all ranks of a ring), heads of keys :math:`H_k`, scored keys s.
    """
    config = next((each for each in kind.mixers if isinstance(each, Attention)), None)
    shared = 1.0 if config is None else config.num_kv_heads / config.num_heads
    key_heads = np.maximum(op.num_heads * shared, 1.0)
    queries, keys = op.tokens * op.num_heads, op.tokens * op.steps * key_heads
    scores = 0.0 if op.fused else 2.0 * queries * op.scored_keys
    return machine.recipe.activation_bytes * ((op.qk_head_dim + op.v_head_dim) * (queries + keys) + scores)

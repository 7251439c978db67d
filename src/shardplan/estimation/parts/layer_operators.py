"""The operators of one layer of a priced plan: what each takes, what of that shows, and what limits it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Final

from shardplan.arrays import first_number
from shardplan.costs.block import FIELD, BlockCost, Times, time_of_collective
from shardplan.costs.roofline import Machine, OperatorTimes, operator_times
from shardplan.estimation.pricing import Prices
from shardplan.estimation.question import Question
from shardplan.fields import dataclass, in_files, replace
from shardplan.workload.ops import Operator

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

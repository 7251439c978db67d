"""Time of the host: the calls by which it issues a block's kernels, and its dispatcher of experts."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from shardplan.arrays import Numbers, where
from shardplan.costs.groups import Group
from shardplan.costs.roofline import Machine
from shardplan.fields import dataclass
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.workload.ops import AttentionCore, Block, Collective, Matmul, Operator

Item: TypeAlias = Operator | Collective
DISPATCH = "dispatch"
"""The exchange that the dispatcher issues: where it runs again, so does the dispatcher."""
ROUTER = ("router", "routing")
"""Operators of the router."""


@dataclass(frozen=True, kw_only=True)
class HostWork:
    """Seconds of the host per micro-batch of a block."""

    forward: tuple[tuple[Item, Numbers], ...]
    """Issuing each item of the forward pass; recomputation repeats those that it runs again."""
    backward: Numbers
    waiting: tuple[tuple[Item, Numbers], ...]
    """The device stands idle, forward, until the host has learnt how many tokens each expert got."""


def host_work(
    block: Block, machine: Machine, groups: dict[str, Group], numbers: PlanNumbers, *, routed: bool
) -> HostWork:
    """A call for every kernel and every collective of more than one rank; graphs replay what they captured.

    ``routed``: whether a host-side dispatcher of experts runs in the block.
    """
    forward: list[tuple[Item, Numbers]] = []
    backward: Numbers = 0.0
    for operator in block.operators:
        there, back = _issue_times(operator, machine)
        left = _left_by_graphs(operator, machine)
        forward.append((operator, left * there))
        backward = backward + left * back
    launch = machine.profile.kernel_launch_time[machine.software.kernels]
    for item in block.collectives:
        ranks = np.asarray(groups[item.dimension].size)
        if np.all(ranks == 1):
            continue
        time = np.where(ranks > 1, _left_by_graphs(item, machine) * launch * item.count, 0.0)
        if item.direction == "forward":
            forward.append((item, time))
        else:
            backward = backward + time
    if not routed:
        return HostWork(forward=tuple(forward), backward=backward, waiting=())
    dispatch = next(item for item in block.collectives if item.name == DISPATCH)
    moe = _share_of_dispatcher(machine, numbers) * _dispatcher_time(machine)
    forward.append((dispatch, moe))
    backward = backward + moe * machine.profile.moe_host_backward_ratio
    return HostWork(forward=tuple(forward), backward=backward, waiting=((dispatch, _waiting_time(machine, numbers)),))


def _left_by_graphs(item: Item, machine: Machine) -> Numbers:
    """Share of the calls of ``item`` that graphs leave to the host: little of what they captured, all of the rest.

    Graphs of parts of a layer hold no experts and none of their exchange, whose shapes change (Megatron Core,
    ``cuda_graph_modules``); those of the router hold nothing else.
    """
    kind, shares = machine.software.cuda_graphs, machine.profile.graph_host_share
    if kind in ("none", "full"):
        return shares[kind]
    captured = item.name in ROUTER or (kind == "partial" and "moe" not in item.modules)
    return shares["full" if captured else "none"]


def _issue_times(operator: Operator, machine: Machine) -> tuple[Numbers, Numbers]:
    """Host time of an operator, forward and backward. [s]

    Grouped products are queued for one expert after the other, by a loop below the framework's calls (GroupedLinear of
    Transformer Engine).
    """
    forward, backward = _calls(operator, machine)
    call = machine.profile.kernel_launch_time[machine.software.kernels]
    if isinstance(operator, Matmul) and operator.grouped:
        call = call + operator.starts * machine.profile.matmul_launch_time
    return forward * call, backward * call


def _calls(operator: Operator, machine: Machine) -> tuple[Numbers, Numbers]:
    """Calls of an operator, forward and backward.

    A product has two backward, and a quantisation each way in low precision, or kernels that write out its weight;
    unfused attention is two products. A ring
    calls its kernel for the keys of every rank.
    """
    if isinstance(operator, Matmul):
        recipe = machine.recipe
        casts = int(operator.low_precision and recipe.matmul != recipe.dense_math)
        casts += 0 if operator.packed is None else operator.packed.kernels
        return 1 + casts, 1 + operator.wgrad + casts
    if isinstance(operator, AttentionCore):
        return (operator.steps, operator.steps) if operator.fused else (2 * operator.steps, 4 * operator.steps)
    return 1, 1


def _dispatcher_time(machine: Machine) -> Numbers:
    """Host time of one mixture-of-experts layer beyond the calls of its operators, forward, by all-to-all.

    Graphs of parts of a layer hold its preparations, those of the router as well.
    """
    profile, software = machine.profile, machine.software
    capacity = profile.capacity_host_share if software.moe_capacity else 1.0
    graphs = "partial" if software.cuda_graphs == "router" else software.cuda_graphs
    return profile.moe_host_time * capacity * profile.graph_host_share[graphs]


def _share_of_dispatcher(machine: Machine, numbers: PlanNumbers) -> Numbers:
    """Host time of the dispatcher relative to the framework's all-to-all.

    One where the exchange overlaps with another micro-batch: layers then run as nodes of two streams that wait for each
    other, and the dispatchers take the same time (Qwen3-235B on 256 H100, Megatron-Bridge 26.02: 80.3 s with
    all-to-all, 81.4 s with DeepEP).
    """
    return where(numbers.overlaps_experts, 1.0, _share_alone(machine, numbers))


def _share_alone(machine: Machine, numbers: PlanNumbers) -> Numbers:
    """The same without overlap. One where no token leaves its rank: other dispatchers exchange nothing there."""
    shares, dispatcher = machine.profile.dispatcher_host_share, machine.software.moe_dispatcher
    return where(numbers.exchanges_tokens, shares[dispatcher], shares["alltoall"])


def _waiting_time(machine: Machine, numbers: PlanNumbers) -> Numbers:
    """None where experts take a fixed number of tokens, or where a graph holds the whole iteration.

    Nor where the exchange overlaps with another micro-batch, whose kernels run meanwhile.
    """
    profile, software = machine.profile, machine.software
    if software.moe_capacity or software.cuda_graphs == "full":
        return 0.0
    return where(numbers.overlaps_experts, 0.0, profile.moe_wait_time * _share_alone(machine, numbers))

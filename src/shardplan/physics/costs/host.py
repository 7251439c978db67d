"""Time of the host: the calls by which it issues a block's kernels, and its dispatcher of experts.

How much of a communication shows in the step time: what the work that runs at the same time cannot hide.

Every dimension has a window: a share of the work that can run at the same time. Work is spent once: what hides the
exchange of one dimension hides that of no other, so all dimensions together hide at most the work that there is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from shardplan.base.arrays import Numbers, where
from shardplan.base.fields import dataclass
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.inputs.profile import Profile
from shardplan.physics.costs.collectives import Group
from shardplan.physics.costs.roofline import Machine
from shardplan.physics.workload.ops import AttentionCore, Block, Collective, Matmul, Operator

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


def exposed(time: Numbers, window: Numbers, profile: Profile) -> Numbers:
    r"""What a communication costs when ``window`` seconds of computation can hide it: :math:`\max(t - w, c\,t)`.

    At least the share c of its time: hidden communication takes cores and memory bandwidth from the computation. So it
    costs never less than what is longer than the window, and never more than all of its time.
    """
    return np.maximum(time - window, profile.hidden_slowdown * time)


def exposed_with_chunks(
    time: Numbers, own: Numbers, all_chunks: Callable[[], Numbers], chunks: Numbers, profile: Profile
) -> Numbers:
    r"""The same for the reduction (or gathering) of all v chunks of a pipeline rank, once per step.

    .. math:: \max\left(\frac{t}{v} - w,\; t - w (1 + g (v - 1)),\; c\,t\right)

    ``own``: the window w of one micro-batch in one chunk; ``all_chunks``: that of the whole step (``all_windows``). The
    last of g micro-batches that a chunk runs in turn completes its gradients; they travel while the g run in the next
    chunk. The last chunk has its own last pass alone (Megatron Core, pipeline_parallel/schedules.py: gradients of a
    chunk are synchronised after its last micro-batch).
    """
    if np.all(np.asarray(chunks) == 1):
        return exposed(time, own, profile)
    longest = np.maximum(time / chunks - own, time - all_chunks())
    return np.maximum(longest, profile.hidden_slowdown * time)


def all_windows(own: Numbers, chunks: Numbers, group: Numbers) -> Numbers:
    r"""Window of all chunks in one step, :math:`w (1 + g (v - 1))`."""
    return own * (1 + group * (chunks - 1))


def exposed_with_products(time: Numbers, products: Numbers, profile: Profile) -> Numbers:
    r"""Exposed exchanges of tensor-parallel ranks that run in panels overlapped with matrix products.

    .. math:: f\,t + \max\left((1 - f)\,t - w\,t_{products},\; c\,(1 - f)\,t\right)

    The share f, one panel, comes before the first product or after the last (user buffers of Transformer Engine cut
    products into four). The window is the share w of the products.
    """
    panel = profile.tp_fill * time
    return panel + exposed(time - panel, profile.tp_window * products, profile)


def exposed_with_ring(time: Numbers, attention: Numbers, ranks: Numbers, profile: Profile) -> Numbers:
    r"""Exposed transfers of a ring of n ranks, each behind the attention of its own step.

    .. math:: \sum_{i=1}^{n-1} \max(t_i - w\,a_i,\; c\,t_i) = \max\left(t - w\,a\,\frac{n-1}{n},\; c\,t\right)

    All n steps attend alike (a balanced causal mask gives each of them half of its products) and all n - 1 transfers
    are alike. The last step's attention has no transfer to hide. The window is the share w of a step.
    """
    return exposed(time, profile.cp_window * attention * (1 - 1 / ranks), profile)


def pipelined_products(time: Numbers, products: Numbers, profile: Profile) -> Numbers:
    r"""Exposed broadcasts of two-dimensional products cut into P panels: the first, and what the products cannot hide.

    .. math:: t/P + \max(t (1 - 1/P) - t_{products}, 0)
    """
    first = time / profile.summa_panels
    return first + np.maximum(time - first - products, 0.0)

"""Price of a block: what one micro-batch of it costs a rank, forward, backward and recomputed."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import fields
from functools import cached_property
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from shardplan.base.arrays import Flags, Numbers, any_holds, is_zero, smooth_maximum
from shardplan.base.fields import dataclass, replace
from shardplan.inputs.plan import OP_SAC
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.inputs.profile import Profile
from shardplan.physics.costs.collectives import Group, add_tiers, collective_bytes, collective_time
from shardplan.physics.costs.host import (
    exposed,
    exposed_with_products,
    exposed_with_ring,
    host_work,
    pipelined_products,
)
from shardplan.physics.costs.network import Network
from shardplan.physics.costs.roofline import Machine, OperatorTimes, operator_times
from shardplan.physics.workload.copies import CopiedBytes, copied_bytes
from shardplan.physics.workload.ops import (
    OUTSIDE,
    AttentionCore,
    Block,
    Collective,
    CollectiveKind,
    Copies,
    Dimension,
    Matmul,
    Operator,
    Saved,
    StreamPass,
)

Item: TypeAlias = Operator | Collective | Saved


@dataclass(frozen=True, kw_only=True)
class Times:
    """Seconds of one micro-batch by what they are spent on; communication as far as it is exposed."""

    matmul: Numbers = 0.0
    attention: Numbers = 0.0
    memory: Numbers = 0.0
    tp: Numbers = 0.0
    cp: Numbers = 0.0
    ep: Numbers = 0.0
    host: Numbers = 0.0
    companion: Numbers = 0.0
    """Forward passes of frozen companions, exposed communication included."""
    free: Numbers = 0.0
    """Computation that hides none of this communication, and so can hide other; with the time for which kernels wait
    for their launch."""

    @property
    def compute(self) -> Numbers:
        """Arithmetic and memory-bound passes."""
        return self.matmul + self.attention + self.memory

    @property
    def total(self) -> Numbers:
        """All of it."""
        own = self.compute + self.tp + self.cp + self.ep + self.host
        return own if is_zero(self.companion) else own + self.companion

    def __add__(self, other: Times) -> Times:
        return Times(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})

    def __mul__(self, factor: Numbers) -> Times:
        return Times(**{f.name: getattr(self, f.name) * factor for f in fields(self)})


class CompanionPass(NamedTuple):
    """A companion's forward pass for one micro-batch, as much as falls to one block of the model."""

    time: Numbers = 0.0
    free: Numbers = 0.0
    """See ``Times.free``. [s]"""
    flops: Numbers = 0.0
    held_bytes: Numbers = 0.0
    """Activations of one of its layers."""


@dataclass(frozen=True, kw_only=True)
class BlockCost:
    """Price of a block per micro-batch and rank; what only full answers show is computed when read."""

    forward: Times
    backward: Times
    recomputed: Times
    """Forward work done again in the backward pass under the plan's recomputation."""
    weight_gradient: Numbers
    """The part of the backward pass that only the optimizer waits for. [s]"""
    dispatching: tuple[Numbers, Numbers]
    """Memory-bound passes that the dispatcher of experts decides: both passes, and what is repeated of them. [s]"""
    kept_bytes: Numbers
    """Tensors kept for the backward pass without recomputation."""
    freed_bytes: Numbers
    """The part of them that recomputation frees."""
    fleeting_bytes: Numbers
    """What exists while one of its passes runs alone."""
    core_gradient_bytes: Numbers
    """Gradients that live at once in the backward pass of unfused attention."""
    block: Block
    """Its tensors left out."""
    network: Network
    groups: dict[str, Group]
    repeats: _Repeats
    companion_flops: Numbers = 0.0
    """Of forward passes of companions."""

    @cached_property
    def flops(self) -> Numbers:
        """Forward FLOP."""
        return _sum(operator.flops for operator in self.block.operators)

    @cached_property
    def training_flops(self) -> Numbers:
        """FLOP of both passes, without recomputation."""
        return self.block.training_flops

    @cached_property
    def recomputed_flops(self) -> Numbers:
        """Those of them that are done again."""
        return self.repeats.part((operator, operator.flops) for operator in self.block.operators)

    @cached_property
    def sent_bytes(self) -> dict[str, tuple[Numbers, ...]]:
        """Bytes sent per tier by parallel dimension, forward and backward, without recomputation."""
        return self._sent((item, 1.0) for item in self.block.collectives)

    @cached_property
    def resent_bytes(self) -> dict[str, tuple[Numbers, ...]]:
        """Bytes sent again when recomputing."""
        forward = (item for item in self.block.collectives if item.direction == "forward")
        return self._sent((item, self.repeats.share_of(item)) for item in forward)

    def beside(self, companion: CompanionPass) -> BlockCost:
        """The same with a companion's forward pass in front, whose activations are gone before this one runs."""
        forward = replace(
            self.forward,
            companion=self.forward.companion + companion.time,
            free=self.forward.free + companion.free,
        )
        return replace(
            self,
            forward=forward,
            fleeting_bytes=np.maximum(self.fleeting_bytes, companion.held_bytes),
            companion_flops=self.companion_flops + companion.flops,
        )

    def _sent(self, items: Iterable[tuple[Collective, Numbers]]) -> dict[str, tuple[Numbers, ...]]:
        """Bytes per tier by parallel dimension; collectives of a kind are added first, on their fewer axes."""
        together: dict[tuple[Dimension, CollectiveKind, Copies], Numbers] = {}
        for item, share in items:
            if not _single(self.groups[item.dimension]):
                key = item.dimension, item.kind, item.copies
                together[key] = together.get(key, 0.0) + item.count * share * item.bytes
        sent: dict[str, tuple[Numbers, ...]] = {}
        for (dimension, kind, copies), size in together.items():
            moved = collective_bytes(kind, size, self.groups[dimension], copies=copies)
            name = dimension.removesuffix("_rows")
            sent[name] = add_tiers(sent[name], moved) if name in sent else moved
        return sent


def price_block(
    block: Block,
    machine: Machine,
    network: Network,
    groups: dict[str, Group],
    numbers: PlanNumbers,
    *,
    routed: bool = False,
) -> BlockCost:
    """Price of ``block`` under ``numbers``. ``routed``: whether a host-side dispatcher of experts runs in it."""
    repeats = _Repeats.of(numbers) if not block.forward_alone else _Repeats({}, full=False, by_operator=None)
    apart = apart_from_experts(machine, numbers)
    talk = _communication(block, network, groups, repeats, apart, copies=_copy_times(block, machine, numbers))
    block, operators = _timed(block, machine, numbers)
    compute = _compute_times(operators, repeats)
    forward, backward, again = (_join(c, t, machine, numbers, apart) for c, t in zip(compute, talk, strict=True))
    host = host_work(block, machine, groups, numbers, routed=routed)
    if block.forward_alone:
        backward = Times()
    freed = ((tensor, tensor.bytes) for tensor in block.saved if not tensor.layer_input)
    dispatching = [(operator, times) for operator, times in operators if operator.name in DISPATCHING]
    return BlockCost(
        forward=_beside_host(
            forward, _sum(time for _, time in host.forward), _sum(time for _, time in host.waiting), machine
        ),
        backward=backward if block.forward_alone else _beside_host(backward, host.backward, 0.0, machine),
        recomputed=_beside_host(again, repeats.part(host.forward), repeats.part(host.waiting), machine),
        weight_gradient=0.0 if block.forward_alone else _sum(times.weight_gradient for _, times in operators),
        dispatching=(
            _sum(times.forward + times.backward for _, times in dispatching),
            repeats.part((operator, times.forward) for operator, times in dispatching),
        ),
        kept_bytes=_sum(tensor.bytes for tensor in block.saved),
        freed_bytes=repeats.part(freed),
        fleeting_bytes=_sum(operator.held for operator in block.operators if isinstance(operator, StreamPass)),
        core_gradient_bytes=_sum(tensor.gradients * tensor.bytes for tensor in block.saved if tensor.gradients),
        block=replace(block, saved=()),
        network=network,
        groups=groups,
        repeats=repeats,
    )


def _timed(block: Block, machine: Machine, numbers: PlanNumbers) -> tuple[Block, list[tuple[Operator, OperatorTimes]]]:
    """The block as its operators run, and what each of these takes."""
    block = _in_panels(block, numbers)
    return block, [(operator, operator_times(operator, machine)) for operator in block.operators]


def computing_time(block: Block, machine: Machine, numbers: PlanNumbers) -> Numbers:
    """Both passes of ``block`` without communication, host and recomputation, which only add to them. [s]"""
    _, operators = _timed(block, machine, numbers)
    return _sum(times.forward if block.forward_alone else times.forward + times.backward for _, times in operators)


QUEUES: Final = ("volta", "turing", "ampere", "ada", "hopper")
"""Generations on which the order of kernels decides what overlaps (``Software.one_queue``)."""


def needs_one_queue(machine: Machine) -> bool:
    """Whether exchanges of tensor and context parallelism overlap only if all kernels start in order."""
    return machine.software.one_queue and machine.accelerator.generation in QUEUES


def apart_from_experts(machine: Machine, numbers: PlanNumbers) -> Flags:
    """Where the overlap of experts' exchanges leaves those of tensor and context parallelism none."""
    if not needs_one_queue(machine):
        return False
    return numbers.overlaps_experts


def _in_panels(block: Block, numbers: PlanNumbers) -> Block:
    """The block with its linear layers in as many panels as tensor-parallel ranks, where their exchange overlaps."""
    if numbers.tp_kind == "summa" or not any_holds(numbers.overlap_tp):
        return block
    panels = np.where(numbers.overlap_tp, numbers.tp, 1)
    cut = [
        replace(each, panels=panels) if isinstance(each, Matmul) and each.low_precision and not each.grouped else each
        for each in block.operators
    ]
    return replace(block, operators=tuple(cut))


@dataclass(frozen=True)
class _Repeats:
    """What recomputation runs again (of saved activations: frees) under a plan. Full recomputation: all of a layer."""

    modules: dict[str, Flags]
    full: Flags
    by_operator: Flags | None
    """Where it is chosen operator by operator; None where no plan does so."""

    @classmethod
    def of(cls, numbers: PlanNumbers) -> _Repeats:
        """Recomputation of plans."""
        by_operator = numbers.recompute[OP_SAC]
        return cls(numbers.recompute, numbers.recompute_full, by_operator if any_holds(by_operator) else None)

    def share_of(self, item: Item) -> Numbers:
        """Share of ``item`` that is run again."""
        if item.modules == OUTSIDE:
            return 0.0
        again: Flags = self.full
        for module in item.modules:
            again = np.logical_or(again, self.modules.get(module, False))
        return again if self.by_operator is None else np.where(self.by_operator, item.op_sac, again)

    def part(self, amounts: Iterable[tuple[Item, Numbers]]) -> Numbers:
        """The part of a sum that is run again. Items that are so together are added first, on their fewer axes."""
        together: dict[Hashable, tuple[Item, Numbers]] = {}
        for item, amount in amounts:
            key = item.modules if self.by_operator is None else id(item)
            before = together.get(key)
            together[key] = item, amount if before is None else before[1] + amount
        return _sum(amount * self.share_of(item) for item, amount in together.values())


def _sum(amounts: Iterable[Numbers]) -> Numbers:
    return sum(amounts, start=0.0)


def _compute_times(operators: list[tuple[Operator, OperatorTimes]], repeats: _Repeats) -> tuple[Times, Times, Times]:
    kinds: dict[str, list[tuple[Operator, OperatorTimes]]] = {}
    for operator, times in operators:
        name = {Matmul: "matmul", AttentionCore: "attention", StreamPass: "memory"}[type(operator)]
        kinds.setdefault(name, []).append((operator, times))
    return (
        Times(**{name: _sum(times.forward for _, times in each) for name, each in kinds.items()}),
        Times(**{name: _sum(times.backward for _, times in each) for name, each in kinds.items()}),
        Times(**{name: repeats.part((op, times.forward) for op, times in each) for name, each in kinds.items()}),
    )


DISPATCHING = ("permute", "stash")
"""Memory-bound passes that depend on the dispatcher of experts."""
FIELD = {"tp": "tp", "tp_rows": "tp", "cp": "cp", "ep": "ep", "etp": "ep"}
"""Under which name the communication of a dimension appears in a step."""
RING, OVERLAPPED, ALONE = "ring", "overlapped", "alone"
"""The ring of context parallelism, and exchanges of tensor parallelism that overlap with backward products or that no
overlap reaches."""


def _communication(
    block: Block,
    network: Network,
    groups: dict[str, Group],
    repeats: _Repeats,
    apart: Flags,
    *,
    copies: dict[str, CopiedBytes],
) -> tuple[dict[str, Numbers], ...]:
    """Seconds of communication by field: forward, backward, and forward again where recomputed.

    ``apart``: where tensor and context parallelism overlap with nothing. ``copies``: seconds around an exchange.
    """
    forward: dict[str, list[tuple[Collective, Numbers]]] = {}
    backward: dict[str, Numbers] = {}
    for item in block.collectives:
        if _single(groups[item.dimension]):
            continue
        time = time_of_collective(item, groups, network)
        now, late = copies.get(item.name, (0.0, 0.0))
        if item.direction == "backward":
            late = now + late
        elif any_holds(now):
            forward.setdefault(ALONE, []).append((item, now))
        if any_holds(late):
            backward[ALONE] = backward.get(ALONE, 0.0) + late
        hidden = RING if item.dimension == "cp" and item.kind == "p2p" else OVERLAPPED
        shown = FIELD[item.dimension] if item.pipelined else ALONE
        hides: Flags = (
            np.logical_not(apart) if hidden == RING else np.logical_and(item.asynchronous, np.logical_not(apart))
        )
        if item.direction == "forward":
            hides = hides if hidden == RING else False
            for name, share in ((hidden, hides), (shown, np.logical_not(hides))):
                if any_holds(share):
                    forward.setdefault(name, []).append((item, time * share))
            continue
        for name, share in ((hidden, hides), (shown, np.logical_not(hides))):
            if any_holds(share):
                backward[name] = backward.get(name, 0.0) + time * share
    once = {name: _sum(time for _, time in items) for name, items in forward.items()}
    return once, backward, {name: repeats.part(items) for name, items in forward.items()}


def _copy_times(block: Block, machine: Machine, numbers: PlanNumbers) -> dict[str, CopiedBytes]:
    """What the copies around exchanges take, by name. [s]"""
    moved = ((each.name, copied_bytes(each, machine.recipe, machine.software, numbers)) for each in block.collectives)
    return {
        name: CopiedBytes(*(each / machine.memory_rate for each in both))
        for name, both in moved
        if any(any_holds(each) for each in both)
    }


def time_of_collective(item: Collective, groups: dict[str, Group], network: Network) -> Numbers:
    """What the collectives of a micro-batch take alone. [s]"""
    group = groups[item.dimension]
    return item.count * collective_time(item.kind, item.bytes, group, network, copies=item.copies)


def _single(group: Group) -> bool:
    return bool(np.all(np.asarray(group.size) == 1))


def _join(compute: Times, talk: dict[str, Numbers], machine: Machine, numbers: PlanNumbers, apart: Flags) -> Times:
    """Computation with what shows of its communication.

    Work is spent in this order, each part of it once: matrix products hide tensor-parallel exchanges, the attention
    core hides the ring, and what is left of all computation hides the exchange of experts, where another micro-batch
    runs meanwhile (``overlap_ep``). What is left then is ``free``.
    """
    tp = _exposed_tp(talk, compute.matmul, machine.profile, numbers, apart)
    ring, waited = talk.get(RING, 0.0), talk.get("cp", 0.0)
    ring_shown = exposed_with_ring(ring, compute.attention, numbers.cp, machine.profile)
    left = compute.compute - ((talk.get("tp", 0.0) + talk.get(OVERLAPPED, 0.0) - tp) + (ring - ring_shown))
    experts = talk.get("ep", 0.0)
    ep = _exposed_ep(experts, left, machine.profile, numbers)
    return replace(compute, tp=tp + talk.get(ALONE, 0.0), cp=waited + ring_shown, ep=ep, free=left - (experts - ep))


def _exposed_tp(
    talk: dict[str, Numbers], products: Numbers, profile: Profile, numbers: PlanNumbers, apart: Flags
) -> Numbers:
    """Exchanges of tensor-parallel ranks that the block's products do not hide.

    ``overlap_tp``: all but those that it reaches not (``ALONE``) are pipelined with products. Else those of
    asynchronous linear layers overlap with products.
    """
    waited = talk.get("tp", 0.0)
    if numbers.tp_kind == "summa":
        return pipelined_products(waited, products, profile)
    if not talk.keys() & {"tp", OVERLAPPED}:
        return 0.0
    pipelined = np.where(np.logical_and(numbers.overlap_tp, np.logical_not(apart)), waited, 0.0)
    return (waited - pipelined) + exposed_with_products(pipelined + talk.get(OVERLAPPED, 0.0), products, profile)


def _exposed_ep(time: Numbers, work: Numbers, profile: Profile, numbers: PlanNumbers) -> Numbers:
    """Exchange of experts that the work of another micro-batch does not hide."""
    overlaps = numbers.overlaps_experts
    if not (any_holds(overlaps) and any_holds(time)):
        return time
    return np.where(overlaps, exposed(time, profile.ep_window * work, profile), time)


def _beside_host(times: Times, issuing: Numbers, waiting: Numbers, machine: Machine) -> Times:
    """The device waits where the host issues kernels more slowly than it runs them, and for the host's knowledge.

    Where launches block, it waits for every call.
    """
    if machine.software.blocking_launches:
        return replace(times, host=issuing + waiting)
    device = times.total
    # While kernels wait for their launch, what was sent before goes on.
    behind = smooth_maximum(device, issuing) - device
    return replace(times, host=behind + waiting, free=times.free + behind)

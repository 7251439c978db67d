"""Price of a block: what one micro-batch of it costs a rank, forward, backward and recomputed."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import fields, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np

from shardplan.arrays import Flags, Numbers, any_holds, smooth_maximum
from shardplan.costs.collectives import Group, Network, collective_bytes, collective_time
from shardplan.costs.host import host_work
from shardplan.costs.overlap import beside, exposed, hidden_share, pipelined_products
from shardplan.costs.roofline import Machine, operator_times
from shardplan.fields import dataclass
from shardplan.inputs.batch import Batch
from shardplan.inputs.plan import OP_SAC
from shardplan.workload.ops import OUTSIDE, AttentionCore, Block, Collective, Matmul, Operator, Pass, Saved

Item: TypeAlias = Operator | Collective | Saved


@dataclass(frozen=True, kw_only=True, slots=True)
class Times:
    """Seconds of one micro-batch by what they are spent on; communication as far as it is exposed."""

    matmul: Numbers = 0.0
    attention: Numbers = 0.0
    memory: Numbers = 0.0
    tp: Numbers = 0.0
    cp: Numbers = 0.0
    ep: Numbers = 0.0
    host: Numbers = 0.0

    @property
    def compute(self) -> Numbers:
        """Arithmetic and memory-bound passes."""
        return self.matmul + self.attention + self.memory

    @property
    def total(self) -> Numbers:
        """All of it."""
        return self.compute + self.tp + self.cp + self.ep + self.host

    def __add__(self, other: Times) -> Times:
        return Times(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})

    def __mul__(self, factor: Numbers) -> Times:
        return Times(**{f.name: getattr(self, f.name) * factor for f in fields(self)})


@dataclass(frozen=True, kw_only=True)
class BlockCost:
    """Price of a block per micro-batch and rank; what only full answers show is computed when read."""

    forward: Times
    backward: Times
    recomputed: Times
    """Forward work done again in the backward pass under the plan's recomputation."""
    kept_bytes: Numbers
    """Tensors kept for the backward pass without recomputation."""
    freed_bytes: Numbers
    """The part of them that recomputation frees."""
    block: Block
    groups: dict[str, Group]
    repeats: _Repeats

    @property
    def flops(self) -> Numbers:
        """Forward FLOP."""
        return _sum(operator.flops for operator in self.block.operators)

    @property
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

    def _sent(self, items: Iterable[tuple[Collective, Numbers]]) -> dict[str, tuple[Numbers, ...]]:
        sent: dict[str, tuple[Numbers, ...]] = {}
        for item, share in items:
            group = self.groups[item.dimension]
            if _single(group):
                continue
            sizes = collective_bytes(item.kind, item.bytes, group, copies=item.copies)
            moved = tuple(item.count * share * size for size in sizes)
            name = item.dimension.removesuffix("_rows")
            before = sent.get(name)
            sent[name] = moved if before is None else tuple(a + b for a, b in zip(before, moved, strict=True))
        return sent


def price_block(
    block: Block, machine: Machine, network: Network, groups: dict[str, Group], batch: Batch, *, routed: bool = False
) -> BlockCost:
    """Price of ``block`` under ``batch``. ``routed``: whether a host-side dispatcher of experts runs in it."""
    repeats = _Repeats(batch)
    talk = _communication(block, network, groups, repeats)
    compute = _compute_times(block, machine, repeats)
    forward, backward, again = (_join(c, t, machine, batch) for c, t in zip(compute, talk, strict=True))
    host = host_work(block, machine, groups, routed=routed)
    freed = ((tensor, tensor.bytes) for tensor in block.saved if not tensor.layer_input)
    return BlockCost(
        forward=_beside_host(
            forward, _sum(time for _, time in host.forward), _sum(time for _, time in host.waiting), machine
        ),
        backward=_beside_host(backward, host.backward, 0.0, machine),
        recomputed=_beside_host(again, repeats.part(host.forward), repeats.part(host.waiting), machine),
        kept_bytes=_sum(tensor.bytes for tensor in block.saved),
        freed_bytes=repeats.part(freed),
        block=block,
        groups=groups,
        repeats=repeats,
    )


class _Repeats:
    """What recomputation runs again (of kept tensors: frees) under a batch. Full recomputation: all of a layer."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        by_operator = batch.recompute.get(OP_SAC, False)
        self._by_operator = by_operator if any_holds(by_operator) else None

    def share_of(self, item: Item) -> Numbers:
        """Share of ``item`` that is run again."""
        if item.modules == OUTSIDE:
            return 0.0
        again: Flags = self._batch.recompute_full
        for module in item.modules:
            again = np.logical_or(again, self._batch.recompute.get(module, False))
        return again if self._by_operator is None else np.where(self._by_operator, item.op_sac, again)

    def part(self, amounts: Iterable[tuple[Item, Numbers]]) -> Numbers:
        """The part of a sum that is run again. Items that are so together are added first, on their fewer axes."""
        together: dict[Hashable, tuple[Item, Numbers]] = {}
        for item, amount in amounts:
            key = item.modules if self._by_operator is None else id(item)
            before = together.get(key)
            together[key] = item, amount if before is None else before[1] + amount
        return _sum(amount * self.share_of(item) for item, amount in together.values())


def _sum(amounts: Iterable[Numbers]) -> Numbers:
    return sum(amounts, start=0.0)


def _compute_times(block: Block, machine: Machine, repeats: _Repeats) -> tuple[Times, Times, Times]:
    kinds: dict[str, list[tuple[Operator, Numbers, Numbers]]] = {}
    for operator in block.operators:
        name = {Matmul: "matmul", AttentionCore: "attention", Pass: "memory"}[type(operator)]
        kinds.setdefault(name, []).append((operator, *operator_times(operator, machine)))
    return (
        Times(**{name: _sum(forward for _, forward, _ in times) for name, times in kinds.items()}),
        Times(**{name: _sum(backward for _, _, backward in times) for name, times in kinds.items()}),
        Times(**{name: repeats.part((each, time) for each, time, _ in times) for name, times in kinds.items()}),
    )


FIELD = {"tp": "tp", "tp_rows": "tp", "cp": "cp", "ep": "ep", "etp": "ep"}
"""Under which name the communication of a dimension appears in a step."""
RING, BESIDE = "ring", "beside"
"""The ring of context parallelism, and tensor-parallel exchanges that run beside a linear layer's backward products."""


def _communication(
    block: Block, network: Network, groups: dict[str, Group], repeats: _Repeats
) -> tuple[dict[str, Numbers], ...]:
    """Seconds of communication by field: forward, backward, and forward again where recomputed."""
    forward: dict[str, list[tuple[Collective, Numbers]]] = {}
    backward: dict[str, Numbers] = {}
    for item in block.collectives:
        group = groups[item.dimension]
        if _single(group):
            continue
        time = item.count * collective_time(item.kind, item.bytes, group, network, copies=item.copies)
        name = RING if item.dimension == "cp" and item.kind == "p2p" else FIELD[item.dimension]
        if item.direction == "forward":
            forward.setdefault(name, []).append((item, time))
            continue
        if any_holds(item.asynchronous):
            backward[BESIDE] = backward.get(BESIDE, 0.0) + time * item.asynchronous
            time = time * np.logical_not(item.asynchronous)
        backward[name] = backward.get(name, 0.0) + time
    once = {name: _sum(time for _, time in items) for name, items in forward.items()}
    return once, backward, {name: repeats.part(items) for name, items in forward.items()}


def _single(group: Group) -> bool:
    return bool(np.all(np.asarray(group.size) == 1))


def _join(compute: Times, talk: dict[str, Numbers], machine: Machine, batch: Batch) -> Times:
    """Computation with what shows of its communication."""
    profile = machine.profile
    share_ep = hidden_share(batch.overlap_ep, profile.hidden_ep_overlapped, 0.0)
    if batch.tp_kind == "summa":
        tp = pipelined_products(talk.get("tp", 0.0), compute.matmul)
    else:
        share_tp = hidden_share(batch.overlap_tp, profile.hidden_tp_overlapped, 0.0)
        share_beside = hidden_share(batch.overlap_tp, profile.hidden_tp_overlapped, profile.hidden_tp)
        tp = exposed(talk.get("tp", 0.0), share_tp, profile) + exposed(talk.get(BESIDE, 0.0), share_beside, profile)
    ring = talk.get(RING, 0.0)
    return Times(
        matmul=compute.matmul,
        attention=compute.attention,
        memory=compute.memory,
        tp=tp,
        cp=talk.get("cp", 0.0) + beside(ring, profile.cp_window * compute.attention, profile),
        ep=exposed(talk.get("ep", 0.0), share_ep, profile),
    )


def _beside_host(times: Times, issuing: Numbers, waiting: Numbers, machine: Machine) -> Times:
    """The device waits where the host issues kernels more slowly than it runs them, and for the host's knowledge.

    Where launches block, it waits for every call.
    """
    if machine.software.blocking_launches:
        return replace(times, host=issuing + waiting)
    device = times.total
    return replace(times, host=smooth_maximum(device, issuing) - device + waiting)

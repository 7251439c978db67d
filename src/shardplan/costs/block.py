"""Price of a block: what one micro-batch of it costs a rank, forward, backward and recomputed."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from shardplan.arrays import Flags, Numbers, smooth_maximum
from shardplan.costs.collectives import Group, Network, collective_bytes, collective_time
from shardplan.costs.host import host_work
from shardplan.costs.overlap import beside, exposed, hidden_share, pipelined_products
from shardplan.costs.roofline import Machine, operator_times
from shardplan.inputs.batch import Batch
from shardplan.inputs.plan import OP_SAC
from shardplan.workload.ops import OUTSIDE, AttentionCore, Block, Collective, Matmul, Operator, Pass, Saved

__all__ = ["BlockCost", "Times", "price_block"]


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


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockCost:
    """Price of a block per micro-batch and rank."""

    forward: Times
    backward: Times
    recomputed: Times
    """Forward work done again in the backward pass under the plan's recomputation."""
    flops: Numbers
    """Forward FLOP."""
    recomputed_flops: Numbers
    kept_bytes: Numbers
    """Tensors kept for the backward pass without recomputation."""
    freed_bytes: Numbers
    """The part of them that recomputation frees."""
    sent_bytes: dict[str, tuple[Numbers, ...]]
    """Bytes sent per tier by parallel dimension, forward and backward, without recomputation."""
    resent_bytes: dict[str, tuple[Numbers, ...]]
    """Bytes sent again when recomputing."""


def price_block(
    block: Block, machine: Machine, network: Network, groups: dict[str, Group], batch: Batch, *, routed: bool = False
) -> BlockCost:
    """Price of ``block`` under ``batch``. ``routed``: whether a host-side dispatcher of experts runs in it."""
    talk = _communication(block, network, groups, batch)
    compute = _compute_times(block, machine, batch)
    forward, backward, again = (_join(c, t, machine, batch) for c, t in zip(compute, talk, strict=True))
    host = host_work(block, machine, groups, routed=routed)
    waiting, waiting_again = _once_and_again(host.waiting, batch)
    issuing, issuing_again = _once_and_again(host.forward, batch)
    flops, recomputed_flops = _flops(block, batch)
    kept, freed = _kept(block, batch)
    sent, resent = _sent_bytes(block, groups, batch)
    return BlockCost(
        forward=_beside_host(forward, issuing, waiting, machine),
        backward=_beside_host(backward, host.backward, 0.0, machine),
        recomputed=_beside_host(again, issuing_again, waiting_again, machine),
        flops=flops,
        recomputed_flops=recomputed_flops,
        kept_bytes=kept,
        freed_bytes=freed,
        sent_bytes=sent,
        resent_bytes=resent,
    )


def _repeats(item: Operator | Collective | Saved, batch: Batch) -> Numbers:
    """Share of ``item`` that recomputation runs again (of a kept tensor: frees)."""
    if item.modules == OUTSIDE:
        return False
    again: Flags = batch.recompute_full
    for module in item.modules:
        again = np.logical_or(again, batch.recompute.get(module, False))
    by_operator = batch.recompute.get(OP_SAC, False)
    return np.where(by_operator, item.op_sac, again) if np.any(by_operator) else again


def _compute_times(block: Block, machine: Machine, batch: Batch) -> tuple[Times, Times, Times]:
    totals: list[dict[str, Numbers]] = [{}, {}, {}]
    for operator in block.operators:
        name = {Matmul: "matmul", AttentionCore: "attention", Pass: "memory"}[type(operator)]
        forward, backward = operator_times(operator, machine)
        again = forward * _repeats(operator, batch)
        for total, time in zip(totals, (forward, backward, again), strict=True):
            total[name] = total.get(name, 0.0) + time
    forward_times, backward_times, again_times = (Times(**total) for total in totals)
    return forward_times, backward_times, again_times


FIELD = {"tp": "tp", "tp_rows": "tp", "cp": "cp", "ep": "ep", "etp": "ep"}
"""Under which name the communication of a dimension appears in a step."""
RING, BESIDE = "ring", "beside"
"""The ring of context parallelism, and tensor-parallel exchanges that run beside a linear layer's backward products."""


def _communication(block: Block, network: Network, groups: dict[str, Group], batch: Batch) -> list[dict[str, Numbers]]:
    """Seconds of communication by field: forward, backward, and forward again where recomputed."""
    totals: list[dict[str, Numbers]] = [{}, {}, {}]
    for item in block.collectives:
        group = groups[item.dimension]
        if _single(group):
            continue
        time = item.count * collective_time(item.kind, item.bytes, group, network, copies=item.copies)
        name = RING if item.dimension == "cp" and item.kind == "p2p" else FIELD[item.dimension]
        where = totals[0] if item.direction == "forward" else totals[1]
        if np.any(item.asynchronous):
            where[BESIDE] = where.get(BESIDE, 0.0) + time * item.asynchronous
            time = time * np.logical_not(item.asynchronous)
        where[name] = where.get(name, 0.0) + time
        if item.direction == "forward":
            totals[2][name] = totals[2].get(name, 0.0) + time * _repeats(item, batch)
    return totals


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


def _once_and_again(times: tuple[tuple[Operator | Collective, Numbers], ...], batch: Batch) -> tuple[Numbers, Numbers]:
    """Sum of the times of items, and the part of it that recomputation repeats."""
    once: Numbers = 0.0
    again: Numbers = 0.0
    for item, time in times:
        once = once + time
        again = again + time * _repeats(item, batch)
    return once, again


def _beside_host(times: Times, issuing: Numbers, waiting: Numbers, machine: Machine) -> Times:
    """The device waits where the host issues kernels more slowly than it runs them, and for the host's knowledge.

    Where launches block, it waits for every call.
    """
    if machine.software.blocking_launches:
        return replace(times, host=issuing + waiting)
    device = times.total
    return replace(times, host=smooth_maximum(device, issuing) - device + waiting)


def _flops(block: Block, batch: Batch) -> tuple[Numbers, Numbers]:
    flops: Numbers = 0.0
    again: Numbers = 0.0
    for operator in block.operators:
        flops = flops + operator.flops
        again = again + operator.flops * _repeats(operator, batch)
    return flops, again


def _kept(block: Block, batch: Batch) -> tuple[Numbers, Numbers]:
    """Kept tensors, and those that recomputation frees: full recomputation keeps the layer's input alone."""
    kept: Numbers = 0.0
    freed: Numbers = 0.0
    for tensor in block.saved:
        kept = kept + tensor.bytes
        if not tensor.layer_input:
            freed = freed + tensor.bytes * _repeats(tensor, batch)
    return kept, freed


def _sent_bytes(
    block: Block, groups: dict[str, Group], batch: Batch
) -> tuple[dict[str, tuple[Numbers, ...]], dict[str, tuple[Numbers, ...]]]:
    sent: dict[str, tuple[Numbers, ...]] = {}
    resent: dict[str, tuple[Numbers, ...]] = {}
    for item in block.collectives:
        group = groups[item.dimension]
        if _single(group):
            continue
        sizes = collective_bytes(item.kind, item.bytes, group, copies=item.copies)
        moved = tuple(item.count * size for size in sizes)
        _accumulate(sent, item, moved)
        if item.direction == "forward":
            again = _repeats(item, batch)
            _accumulate(resent, item, tuple(size * again for size in moved))
    return sent, resent


def _accumulate(totals: dict[str, tuple[Numbers, ...]], item: Collective, moved: tuple[Numbers, ...]) -> None:
    name = item.dimension.removesuffix("_rows")
    before = totals.get(name)
    totals[name] = moved if before is None else tuple(a + b for a, b in zip(before, moved, strict=True))

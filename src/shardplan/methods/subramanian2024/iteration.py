r"""From operators to an iteration: a layer, then pipeline, bubble, data parallelism and memory.

The formulas take numbers or arrays: a search passes gathered tables, ``price`` all configurations at once. A
layer prices every operator by the roofline, followed by its collectives:

.. math:: t = \max(t_{comp}, t_{mem}) + t_{comm}, \quad
    t_{comp} = 20\,\mu s + F / (0.8 P), \quad t_{mem} = M / B
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Final

import numpy as np

from shardplan.base.arrays import Numbers
from shardplan.base.fields import dataclass
from shardplan.methods.subramanian2024.inputs import FAITHFUL, GLOBAL_BATCH_SIZE, Corrections, System, Transformer
from shardplan.methods.subramanian2024.operators import (
    Operator,
    PaperCollective,
    VectorPass,
    collective_time,
    transfer_times,
)
from shardplan.methods.subramanian2024.strategies import Split, Strategy

LAUNCH_TIME = 20e-6
"""Constant part of every operator and direction. [s]"""
EFFICIENCY = 0.8
"""Achieved share of the peak rate."""


@dataclass(frozen=True)
class PassTime:
    """Time of one direction of an operator, or of all operators of a layer. [s]"""

    compute: Numbers
    memory: Numbers
    """Memory traffic beyond the time of computation."""
    communication: Numbers

    @property
    def total(self) -> Numbers:
        """Sum of the three."""
        return self.compute + self.memory + self.communication

    @classmethod
    def sum_of(cls, times: list[PassTime]) -> PassTime:
        """Sum over several operators."""
        return cls(*(_sum(getattr(each, name) for each in times) for name in ("compute", "memory", "communication")))


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
    """Bytes that a pipeline stage sends to the next: what the norm of the MLP block saves."""


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
    """Exposed communication: a first round, and the part of ``rounds`` more that the product does not hide. [s]

    As published, ``rounds`` equals the number of blocks, which counts one round too many (Q5).
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
        forward=PassTime.sum_of(forward),
        backward=PassTime.sum_of(backward),
        flops=_sum(each.forward.flops + each.backward.flops for each in operators),
        weight_bytes=_sum(each.weight_bytes for each in operators),
        kept_bytes=_sum(each.kept_bytes for each in operators),
        boundary_bytes=next(each.kept_bytes for each in operators if each.name == "mlp_norm"),
    )


def _sum(terms: Iterable[Numbers]) -> Numbers:
    """Sum, small arrays first: terms that vary over few axes are added before they are broadcast."""
    total: Numbers = 0.0
    for term in sorted(terms, key=np.size):
        total = total + term
    return total


STATISTICS: Final = (
    "acts_mem", "bubble_frac", "comp_frac", "dp_comm_frac", "flops_per_gpu", "mem", "mem_frac", "pp_comm_frac", "t",
    "t_bubble", "t_comp", "t_dp_comm", "t_mem", "t_pp_comm", "t_tp_comm", "tp_comm_frac", "wts_grad_mem", "wts_mem",
    "wts_optimizer_states_mem",
)  # fmt: skip
"""The statistics of a published configuration: times in s, memory in GB, TFLOP, shares of the time."""


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """Degrees of a plan, and how many ranks of each lie inside one scale-up domain."""

    dp: int
    tp1: int
    pp: int
    tp2: int = 1
    mbs: int = 1
    """Micro-batch size. [sequences]"""
    nb: int = 1
    """Blocks of SUMMA."""
    nv_tp1: int = 1
    nv_tp2: int = 1
    nv_dp: int = 1
    nv_pp: int = 1

    @property
    def tp(self) -> int:
        """Ranks that share a layer."""
        return self.tp1 * self.tp2

    @property
    def num_gpus(self) -> int:
        """All ranks."""
        return self.dp * self.tp * self.pp


@dataclass(frozen=True, kw_only=True)
class PaperSetting:
    """What configurations are priced for: a model on a system, with a form of tensor parallelism."""

    model: Transformer
    system: System
    strategy: Strategy
    global_batch_size: int = GLOBAL_BATCH_SIZE
    corrected: Corrections = FAITHFUL


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Memory of one accelerator. [bytes]"""

    weights: Numbers
    gradients: Numbers
    optimizer: Numbers
    """12 bytes a parameter, divided over the data-parallel ranks (ZeRO-1)."""
    activations: Numbers

    @property
    def total(self) -> Numbers:
        """Sum of the four; nothing is reserved."""
        return self.weights + self.gradients + self.optimizer + self.activations


@dataclass(frozen=True, kw_only=True)
class Price:
    """One iteration of one configuration, or of an array of them."""

    compute: Numbers
    memory_time: Numbers
    tp_communication: Numbers
    pp_communication: Numbers
    dp_communication: Numbers
    bubble: Numbers
    time: Numbers
    """Sum of the six parts. [s]"""
    throughput: Numbers
    """Samples per second."""
    flops: Numbers
    """Work of one accelerator as the method counts it (Q13). [FLOP]"""
    memory: Memory

    def statistics(self) -> dict[str, Numbers]:
        """The published statistics, in their units."""
        t, memory = self.time, self.memory
        times = {
            "bubble": self.bubble,
            "comp": self.compute,
            "dp_comm": self.dp_communication,
            "mem": self.memory_time,
            "pp_comm": self.pp_communication,
            "tp_comm": self.tp_communication,
        }
        found = {
            "t": t,
            "flops_per_gpu": self.flops / 1e12,
            "mem": memory.total / 1e9,
            "acts_mem": memory.activations / 1e9,
            "wts_mem": memory.weights / 1e9,
            "wts_grad_mem": memory.gradients / 1e9,
            "wts_optimizer_states_mem": memory.optimizer / 1e9,
            **{f"t_{name}": part for name, part in times.items()},
            **{f"{name}_frac": part / t for name, part in times.items()},
        }
        return {name: found[name] for name in STATISTICS}


def stage_link_shares(pp: Numbers, t_pp: Numbers, corrected: Corrections) -> tuple[Numbers, Numbers]:
    """Shares of the links between stages that count as slow and as fast.

    As published those that leave a domain with several stages are free (Q1).
    """
    links = np.maximum(pp - 1, 1)
    leaving = np.floor_divide(pp, t_pp) - 1
    is_alone = np.equal(t_pp, 1)
    slow = np.where(is_alone, 1.0, leaving / links if "Q1" in corrected else 0.0)
    fast = np.where(is_alone, 0.0, (links - leaving) / links)
    has_links = np.greater(pp, 1)
    return np.where(has_links, slow, 0.0), np.where(has_links, fast, 0.0)


def iteration_time(
    *,
    forward: Numbers,
    backward: Numbers,
    transfer: Numbers,
    gradients: Numbers,
    num_microbatches: Numbers,
    num_layers: Numbers,
    pp: Numbers,
) -> Numbers:
    r"""Time of an iteration under 1F1B. [s]

    With times of a layer :math:`t_f, t_b`, of a transfer between stages :math:`p` and of data parallelism
    :math:`t_{dp}`, :math:`m` micro-batches and :math:`n` layers a stage:

    .. math:: T = m n (t_f + t_b) + 2 m p, \quad t = T + (pp - 1) T / m + t_{dp}
    """
    m = num_microbatches
    work = (forward + backward) * (m * num_layers) + 2 * m * transfer
    return work + (pp - 1) * work / m + gradients


def gradient_time(*, one: Numbers, forward: Numbers, backward: Numbers, num_layers: Numbers) -> Numbers:
    """Reduce-scatter of gradients and all-gather of weights, layer by layer, each taking ``one``. [s]

    The collective of one layer is exposed; the others hide behind the backward (forward) pass of one layer and one
    micro-batch.
    """
    hidden = num_layers - 1
    return 2 * one + (np.maximum(one - backward, 0) + np.maximum(one - forward, 0)) * hidden


def memory_of(
    *,
    weight_bytes: Numbers,
    kept_bytes: Numbers,
    num_layers: Numbers,
    num_microbatches: Numbers,
    pp: Numbers,
    state_shards: Numbers,
) -> Memory:
    """Memory of a rank of the first stage, which saves most. ``state_shards`` ranks share the optimizer states."""
    weights = weight_bytes * num_layers
    return Memory(
        weights=weights,
        gradients=weights,
        optimizer=6 * weights / state_shards,
        activations=kept_bytes * num_layers * np.minimum(pp, num_microbatches),
    )


def price(setting: PaperSetting, configurations: Sequence[Configuration]) -> Price:
    """Every part of an iteration; arrays with an element for each configuration."""
    model, system, strategy, corrected = setting.model, setting.system, setting.strategy, setting.corrected
    global_batch_size, names = setting.global_batch_size, [field.name for field in fields(Configuration)]
    c = {name: np.asarray([getattr(each, name) for each in configurations], dtype=np.int64) for name in names}
    split = Split(m1=c["tp1"], m2=c["tp2"], b=c["mbs"] * 1.0, blocks=c["nb"], t1=c["nv_tp1"], t2=c["nv_tp2"])
    layer = layer_cost(model, system, strategy, split, corrected)
    pp, m = c["pp"], global_batch_size // c["dp"] // c["mbs"]
    layers = model.depth // pp
    shards = strategy.gradient_shards(c["tp2"])
    inside = c["nv_dp"] * strategy.gradient_shards(c["nv_tp2"])
    exchange = PaperCollective("reduce_scatter", layer.weight_bytes, c["dp"] * shards, inside, "dp")
    one = collective_time(exchange, system, corrected)
    layer_times = {"forward": layer.forward.total, "backward": layer.backward.total, "num_layers": layers}
    gradients = gradient_time(one=one, **layer_times)
    slow, fast = stage_link_shares(pp, c["nv_pp"], corrected)
    slow_time, fast_time = transfer_times(layer.boundary_bytes, system)
    transfer = slow * slow_time + fast * fast_time
    time = iteration_time(**layer_times, transfer=transfer, gradients=gradients, num_microbatches=m, pp=pp)
    passes, count = (layer.forward, layer.backward), m * layers
    parts = {
        "compute": sum(each.compute for each in passes) * count,
        "memory_time": sum(each.memory for each in passes) * count,
        "tp_communication": sum(each.communication for each in passes) * count,
        "pp_communication": 2 * m * transfer,
        "dp_communication": gradients,
    }
    return Price(
        **parts,
        bubble=(pp - 1) * (sum(parts.values()) - gradients) / m,
        time=time,
        throughput=global_batch_size / time,
        flops=layer.flops * count,
        memory=memory_of(
            weight_bytes=layer.weight_bytes,
            kept_bytes=layer.kept_bytes,
            num_layers=layers,
            num_microbatches=m,
            pp=pp,
            state_shards=c["dp"] * shards,
        ),
    )

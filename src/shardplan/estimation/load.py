"""What the parts of a model put on the rank that holds them, and the sum of it over a pipeline stage."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import reduce
from operator import add

import numpy as np

from shardplan.arrays import Numbers, any_holds
from shardplan.estimation.pricing import Part, Prices
from shardplan.workload.layer import Parameters
from shardplan.workload.stage import Stage


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """Load of a part of a model, or of a whole stage: all of it adds up."""

    forward: Numbers
    """One micro-batch, exposed communication included. [s]"""
    backward: Numbers
    """The same, without recomputation. [s]"""
    recomputed: Numbers
    """Forward work that recomputation repeats. [s]"""
    kept_bytes: Numbers
    """Tensors kept for the backward pass of one micro-batch, without recomputation."""
    freed_bytes: Numbers
    """The part of them that recomputation frees."""
    dense: Numbers
    """Parameters replicated over data- and context-parallel ranks."""
    experts: Numbers
    """Parameters of experts."""
    sharding_time: Numbers
    """Weights gathered and gradients reduced in every micro-batch. [s]"""
    reduce_time: Numbers
    """Gradients reduced once per step. [s]"""
    gather_time: Numbers
    """Parameters gathered once per step. [s]"""

    @classmethod
    def of(cls, part: Part) -> Load:
        """Load of one part."""
        return cls(
            forward=part.cost.forward.total,
            backward=part.cost.backward.total,
            recomputed=part.cost.recomputed.total,
            kept_bytes=part.cost.kept_bytes,
            freed_bytes=part.cost.freed_bytes,
            dense=part.parameters.dense,
            experts=part.parameters.experts,
            sharding_time=part.traffic.microbatch_time,
            reduce_time=part.traffic.reduce_time,
            gather_time=part.traffic.gather_time,
        )

    @property
    def parameters(self) -> Parameters:
        """What one rank holds."""
        return Parameters(self.dense, self.experts)


@dataclass(frozen=True, kw_only=True, slots=True)
class Loads:
    """Loads of all parts, and what a stage boundary costs."""

    layers: tuple[Load, ...]
    embedding: Load
    head: Load
    mtp: Load
    transfer_time: Numbers
    """One micro-batch from one stage to the next, one way. [s]"""
    logits: Numbers
    """Logits of one micro-batch on the last stage."""
    output_bytes: Numbers
    """Output of a stage for one micro-batch. [bytes]"""

    def on(self, stage: Stage) -> Load:
        """Load of a stage: the sum over everything that it holds."""
        held = sorted(stage.holds(self.layers, self.embedding, self.head, self.mtp), key=_varies)
        return Load(**{name: _weighted_sum(name, held) for name in NAMES})

    def largest_layer(self, stage: Stage) -> tuple[Numbers, Parameters]:
        """Bytes that one layer of a stage keeps without recomputation, and parameters of one, at most."""
        held = [(count, load) for count, load in zip(stage.counts, self.layers, strict=True) if any_holds(count)]
        kept, dense, experts = (_largest(held, name) for name in ("kept_bytes", "dense", "experts"))
        return kept, Parameters(dense, experts)

    def largest_part(self, stage: Stage) -> tuple[Numbers, Parameters]:
        """Bytes that recomputation brings back for one part of a stage, and the parameters of one part, at most."""
        held = stage.holds(self.layers, self.embedding, self.head, self.mtp)
        freed, dense, experts = (_largest(held, name) for name in ("freed_bytes", "dense", "experts"))
        return freed, Parameters(dense, experts)


NAMES = tuple(field.name for field in fields(Load))


def loads_of(prices: Prices) -> Loads:
    """Loads of everything that was priced."""
    return Loads(
        layers=tuple(Load.of(part) for part in prices.layers),
        embedding=Load.of(prices.embedding),
        head=Load.of(prices.head),
        mtp=Load.of(prices.mtp),
        transfer_time=prices.transfer_time,
        logits=prices.logits,
        output_bytes=prices.output_bytes,
    )


def _weighted_sum(name: str, held: list[tuple[Numbers, Load]]) -> Numbers:
    return reduce(add, (count * getattr(load, name) for count, load in held))


def _varies(counted: tuple[Numbers, Load]) -> bool:
    """Whether a stage holds more of a part under one plan than under another: such sums have more axes."""
    return isinstance(counted[0], np.ndarray)


def _largest(held: list[tuple[Numbers, Load]], name: str) -> Numbers:
    """The largest value of a field among parts that a stage holds."""
    largest: Numbers = 0.0
    for count, load in held:
        value = getattr(load, name)
        if any_holds(value):
            present = np.asarray(count) > 0
            largest = np.maximum(largest, value if present.all() else np.where(present, value, 0.0))
    return largest

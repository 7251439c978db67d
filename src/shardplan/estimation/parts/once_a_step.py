"""What a step takes besides its micro-batches, rank by rank: exchanges of states, the optimizer, fixed time."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from shardplan.fields import dataclass

Column = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class OnceAStep:
    r"""Seconds that come once a step; arrays have an element for every rank.

    A rank that its micro-batches keep for b seconds takes :math:`(b + g + r + u + t_0) \cdot f`.
    """

    gather: Column
    """Parameters gathered, as far as no computation hides it: g."""
    reduce: Column
    """Gradients reduced, as far as no computation hides it: r."""
    update: Column
    """Optimizer: u."""
    fixed: Mapping[str, float]
    """Fixed time of a step by term; together t_0."""
    straggler_factor: float
    """By how much the slowest of many accelerators lengthens a step: f."""

    def after(self, busy: Column) -> Column:
        """The step of every rank that its micro-batches keep for ``busy`` seconds. [s]"""
        return (busy + (self.update + self.gather + self.reduce) + sum(self.fixed.values())) * self.straggler_factor

    def stragglers(self, busy: Column) -> Column:
        """The part of that by which stragglers lengthen it. [s]"""
        whole = self.after(busy)
        return whole - whole / self.straggler_factor

    def after_passes(self, busy: Column) -> dict[str, Column]:
        """What comes after the last pass and the reduction of gradients, by term of the step. [s]"""
        fixed = {key: np.full(len(busy), time) for key, time in self.fixed.items()}
        return {"optimizer": self.update, **fixed, "stragglers": self.stragglers(busy)}


@dataclass(frozen=True, kw_only=True)
class StepTraffic:
    """What states exchange once a step, before any computation hides it; arrays have an element for every rank."""

    gather_time: Column
    """Parameters gathered. [s]"""
    reduce_time: Column
    """Gradients reduced. [s]"""
    gather_window: Column
    """The work of a chunk's forward pass of one micro-batch behind which this traffic can travel. [s]"""
    reduce_window: Column
    """The same of its backward pass. [s]"""
    least_share: float
    """Share of the traffic that costs time however much computation there is."""
    shares_card: bool
    """Whether transfers between stages use a network tier that this traffic uses too."""

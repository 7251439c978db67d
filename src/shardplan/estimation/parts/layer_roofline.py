"""The matrix products of one layer under the roofline of the accelerator: forward, one micro-batch.

S. Williams, A. Waterman and D. Patterson, Roofline: an insightful visual performance model, CACM 52(4), 2009,
doi:10.1145/1498765.1498785. Attention kernels keep their scores on the chip and memory-bound passes have no products,
so neither is a point here.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from shardplan.arrays import Numbers
from shardplan.costs.roofline import operator_times, product_bytes
from shardplan.estimation.pricing import Prices
from shardplan.estimation.question import Question
from shardplan.fields import dataclass
from shardplan.workload.ops import Matmul


@dataclass(frozen=True, kw_only=True, slots=True)
class RooflinePoint:
    """A matrix product."""

    name: str
    intensity: float
    """Arithmetic intensity. [FLOP/byte]"""
    rate: float
    """Achieved, with its launch. [FLOP/s]"""


@dataclass(frozen=True, kw_only=True, slots=True)
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
    ((kind, _),) = Counter(question.model.layer_pattern).most_common(1)
    machine, part = question.machine, question.cluster.accelerator
    products = [each for each in prices.blocks.layers[kind].block.operators if isinstance(each, Matmul)]
    points = [
        RooflinePoint(
            name=each.name,
            intensity=_number(each.flops / product_bytes(each, machine, m=each.m, k=each.k, n=each.n)),
            rate=_number(each.flops / operator_times(each, machine).forward),
        )
        for each in products
    ]
    wide = question.job.recipe.matmul
    return LayerRoofline(
        points=tuple(points), peak=part.peak(wide), peak_format=wide, memory_bandwidth=part.memory_bandwidth
    )


def _number(value: Numbers) -> float:
    """The one number of a single plan."""
    return float(np.asarray(value, dtype=np.float64).reshape(-1)[0])

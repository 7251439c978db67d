"""What a form of tensor parallelism decides: its degrees, its micro-batches, its operators."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from shardplan.arrays import Flags, Numbers
from shardplan.fields import dataclass
from shardplan.published.subramanian2024.corrections import Corrections
from shardplan.published.subramanian2024.inputs import System, Transformer
from shardplan.published.subramanian2024.operators import Operator

SMALLEST_PART = 128
"""Fewest channels or tokens that a rank holds of a divided dimension."""


@dataclass(frozen=True, kw_only=True)
class Split:
    """How a layer is divided: numbers, or arrays over candidates that broadcast against each other."""

    m1: Numbers
    """Ranks that share heads and width."""
    m2: Numbers = 1
    """Ranks that share the sequence (and, under SUMMA, the rows of the weights)."""
    b: Numbers = 1.0
    """Micro-batch size, as a float so that large products do not overflow. [sequences]"""
    blocks: Numbers = 1
    """Rounds of SUMMA."""
    t1: Numbers = 1
    """Ranks of ``m1`` inside one scale-up domain."""
    t2: Numbers = 1
    """Ranks of ``m2`` inside one scale-up domain."""


class Strategy(ABC):
    """A form of tensor parallelism."""

    name: ClassVar[str]
    """Word for it, as in the published files."""
    title: ClassVar[str]
    """What it is."""
    has_second_degree: ClassVar[bool] = True
    has_blocks: ClassVar[bool] = False

    @abstractmethod
    def divides(self, model: Transformer, m1: Numbers, m2: Numbers) -> Flags:
        """Whether these tensor degrees are candidates."""

    @abstractmethod
    def sequence_divisor(self, m1: Numbers, m2: Numbers) -> Numbers:
        """What must divide micro-batch size times sequence length."""

    @abstractmethod
    def operators(self, model: Transformer, system: System, split: Split, corrected: Corrections) -> list[Operator]:
        """The 14 operators of a layer: MLP block, then attention block."""

    def gradient_shards(self, m2: Numbers) -> Numbers:
        """Ranks other than the data-parallel ones that hold the same weights."""
        del m2
        return 1


def heads_divide(model: Transformer, m1: Numbers) -> Flags:
    """``m1`` divides the heads and the width."""
    return np.logical_and(np.mod(model.h, m1) == 0, np.mod(model.e, m1) == 0)


def parts_are_large(model: Transformer, m1: Numbers, m2: Numbers) -> Flags:
    """Every rank holds enough channels and enough tokens."""
    return np.logical_and(np.floor_divide(model.e, m1) >= SMALLEST_PART, np.floor_divide(model.l, m2) >= SMALLEST_PART)

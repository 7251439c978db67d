"""Tensor parallelism along heads and width, context parallelism along the sequence."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from shardplan.arrays import Flags, Numbers
from shardplan.published.subramanian2024.inputs import Transformer
from shardplan.published.subramanian2024.operators import Operator, bias
from shardplan.published.subramanian2024.strategies.base import Split, heads_divide, parts_are_large
from shardplan.published.subramanian2024.strategies.row_column import RowColumn


class ContextParallel(RowColumn):
    """Heads and width over m1 ranks, the sequence over m2, which hold the same weights."""

    name: ClassVar[str] = "2d-seqp"
    title: ClassVar[str] = "two-dimensional: tensor and context parallelism"

    def divides(self, model: Transformer, m1: Numbers, m2: Numbers) -> Flags:
        """Degrees m1 that divide h and e, with e // m1 and l // m2 at least 128."""
        return np.logical_and(heads_divide(model, m1), parts_are_large(model, m1, m2))

    def sequence_divisor(self, m1: Numbers, m2: Numbers) -> Numbers:
        """All ranks share the sequence."""
        return m1 * m2

    def gradient_shards(self, m2: Numbers) -> Numbers:
        """Ranks that share a sequence hold the same weights."""
        return m2

    def output_biases(self, model: Transformer, split: Split) -> tuple[Operator, Operator]:
        """One on the scattered sequence, the other on scattered channels."""
        sequence = np.floor_divide(model.l, split.m2)
        scattered = split.b * np.floor_divide(sequence, split.m1)
        return (
            bias("fc2_bias", rows=scattered, n=model.e),
            bias("vproj_bias", rows=split.b * sequence, n=np.floor_divide(model.e, split.m1)),
        )

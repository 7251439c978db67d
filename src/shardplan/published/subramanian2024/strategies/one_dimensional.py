"""Tensor parallelism along one dimension."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from shardplan.arrays import Flags, Numbers
from shardplan.published.subramanian2024.inputs import Transformer
from shardplan.published.subramanian2024.operators import Operator, bias
from shardplan.published.subramanian2024.strategies.base import SMALLEST_PART, Split, heads_divide
from shardplan.published.subramanian2024.strategies.row_column import RowColumn


class OneDimensional(RowColumn):
    """Heads and width are divided over m ranks; between the products the sequence is."""

    name: ClassVar[str] = "1d"
    title: ClassVar[str] = "one-dimensional tensor parallelism with sequence parallelism"
    has_second_degree: ClassVar[bool] = False

    def divides(self, model: Transformer, m1: Numbers, m2: Numbers) -> Flags:
        """Degrees that divide h and e and leave 3 e // m at least 128."""
        is_large = np.floor_divide(3 * model.e, m1) >= SMALLEST_PART
        return np.logical_and(np.equal(m2, 1), np.logical_and(heads_divide(model, m1), is_large))

    def sequence_divisor(self, m1: Numbers, m2: Numbers) -> Numbers:
        """All ranks share the sequence."""
        del m2
        return m1

    def output_biases(self, model: Transformer, split: Split) -> tuple[Operator, Operator]:
        """They run on the whole sequence, although it is scattered (Q4)."""
        rows = split.b * model.l
        return bias("fc2_bias", rows=rows, n=model.e), bias("vproj_bias", rows=rows, n=model.e)

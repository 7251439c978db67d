"""SUMMA: every matrix is divided along both dimensions (van de Geijn and Watts 1997)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from shardplan.arrays import Flags, Numbers
from shardplan.published.subramanian2024.communication import PaperCollective
from shardplan.published.subramanian2024.corrections import Corrections
from shardplan.published.subramanian2024.inputs import System, Transformer
from shardplan.published.subramanian2024.operators import (
    Operator,
    W,
    activation,
    bias,
    dropout,
    layer_norm,
    summa_linear,
)
from shardplan.published.subramanian2024.strategies.base import Split, Strategy, heads_divide, parts_are_large
from shardplan.published.subramanian2024.strategies.row_column import context_parallel_attention


class Summa(Strategy):
    """Activations: sequence over m2, channels over m1; weights: rows over m2, columns over m1."""

    name: ClassVar[str] = "2d"
    title: ClassVar[str] = "two-dimensional: SUMMA"
    has_blocks: ClassVar[bool] = True

    def divides(self, model: Transformer, m1: Numbers, m2: Numbers) -> Flags:
        """As context parallelism, and m2 divides e."""
        grid = np.logical_and(heads_divide(model, m1), parts_are_large(model, m1, m2))
        return np.logical_and(grid, np.mod(model.e, m2) == 0)

    def sequence_divisor(self, m1: Numbers, m2: Numbers) -> Numbers:
        """Only m2 ranks share the sequence."""
        del m1
        return m2

    def operators(self, model: Transformer, system: System, split: Split, corrected: Corrections) -> list[Operator]:
        """Attention runs as under context parallelism."""
        e, f, m1 = model.e, model.f, split.m1
        rows = split.b * np.floor_divide(model.l, split.m2)
        width, channels = np.floor_divide(f, m1), np.floor_divide(e, m1)
        hidden = split.b * (model.l / split.m2) * width
        return [
            _linear("fc1", model, split, e, f),
            bias("fc1_bias", rows=rows, n=width),
            activation("activation", elements=hidden),
            dropout("activation_dropout", elements=hidden),
            _linear("fc2", model, split, f, e),
            bias("fc2_bias", rows=rows, n=channels),
            dropout("mlp_dropout", elements=rows * channels),
            _norm("mlp_norm", model, split, corrected),
            _linear("qkv", model, split, e, 3 * e),
            context_parallel_attention(model, system, split),
            _linear("vproj", model, split, e, e),
            bias("vproj_bias", rows=rows, n=channels),
            dropout("attention_dropout", elements=rows * channels),
            _norm("attention_norm", model, split, corrected),
        ]


def _linear(name: str, model: Transformer, split: Split, k: int, n: int) -> Operator:
    return summa_linear(
        name,
        rows=split.b * np.floor_divide(model.l, split.m2),
        k=k,
        n=np.floor_divide(n, split.m1),
        kept_columns=np.floor_divide(k, split.m1),
        weight_rows=np.floor_divide(k, split.m2),
        blocks=split.blocks,
        along=((split.m1, split.t1), (split.m2, split.t2)),
    )


def _norm(name: str, model: Transformer, split: Split, corrected: Corrections) -> Operator:
    """The statistics of a row are summed over m1. As published its width is l // m1 (Q2)."""
    rows = split.b * np.floor_divide(model.l, split.m2)
    parameters, tokens = np.floor_divide(2 * model.e, split.m1), np.floor_divide(2 * split.b * model.l, split.m2)
    return layer_norm(
        name,
        rows=rows,
        n=np.floor_divide(model.e if "Q2" in corrected else model.l, split.m1),
        forward=(PaperCollective("all_reduce", 2 * rows * W, split.m1, split.t1, "tp1"),),
        backward=(PaperCollective("all_reduce", (parameters + tokens) * W, split.m1, split.t1, "tp1"),),
    )

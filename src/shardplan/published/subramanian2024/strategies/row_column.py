"""Layers whose first product is divided by columns and whose second by rows, one- and two-dimensional."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from shardplan.arrays import Numbers
from shardplan.published.subramanian2024.communication import PaperCollective
from shardplan.published.subramanian2024.corrections import Corrections
from shardplan.published.subramanian2024.inputs import System, Transformer
from shardplan.published.subramanian2024.operators import (
    Operator,
    W,
    activation,
    bias,
    dropout,
    fused_attention,
    layer_norm,
    linear,
)
from shardplan.published.subramanian2024.strategies.base import Split, Strategy


class RowColumn(Strategy):
    """Tensor parallelism of Megatron-LM (arXiv 1909.08053) with sequence parallelism (arXiv 2205.05198)."""

    @abstractmethod
    def output_biases(self, model: Transformer, split: Split) -> tuple[Operator, Operator]:
        """Biases behind the two row-parallel products, fc2 and vproj."""

    def operators(self, model: Transformer, system: System, split: Split, corrected: Corrections) -> list[Operator]:
        """The inputs of fc1 and qkv are gathered by the norm before them and kept at full width (Q11)."""
        e, f, m1, b = model.e, model.f, split.m1, split.b
        width = np.floor_divide(f, m1)
        hidden = b * (model.l / split.m2) * width
        shard = b * np.floor_divide(model.l, split.m1 * split.m2)
        fc2_bias, vproj_bias = self.output_biases(model, split)
        return [
            _column_parallel("fc1", model, split, f, corrected),
            bias("fc1_bias", rows=b * np.floor_divide(model.l, split.m2), n=width),
            activation("activation", elements=hidden),
            dropout("activation_dropout", elements=hidden),
            _row_parallel("fc2", model, split, f),
            fc2_bias,
            dropout("mlp_dropout", elements=shard * e),
            _norm("mlp_norm", model, split),
            _column_parallel("qkv", model, split, 3 * e, corrected),
            context_parallel_attention(model, system, split),
            _row_parallel("vproj", model, split, e),
            vproj_bias,
            dropout("attention_dropout", elements=shard * e),
            _norm("attention_norm", model, split),
        ]


def context_parallel_attention(model: Transformer, system: System, split: Split) -> Operator:
    """Every rank gathers the keys and values of its sequence, and scatters their gradients."""
    z = split.b * np.floor_divide(model.h, split.m1)
    volume = 2 * z * model.l * model.q * W
    gather = PaperCollective("all_gather", volume, split.m2, split.t2, "tp2")
    scatter = PaperCollective("reduce_scatter", volume, split.m2, split.t2, "tp2")
    return fused_attention(
        "attention",
        heads=z,
        queries=np.floor_divide(model.l, split.m2),
        keys=model.l,
        q=model.q,
        rate_ratio=system.matrix_flops / system.vector_flops,
        forward=(gather,),
        backward=(gather, scatter),
    )


def _rows(model: Transformer, split: Split) -> Numbers:
    return split.b * np.floor_divide(model.l, split.m2)


def _column_parallel(name: str, model: Transformer, split: Split, n: int, corrected: Corrections) -> Operator:
    rows, k = _rows(model, split), model.e
    whole = rows * k * W
    scatter = PaperCollective("reduce_scatter", whole, split.m1, split.t1, "tp1")
    if "Q11" not in corrected:
        return linear(name, rows=rows, k=k, n=np.floor_divide(n, split.m1), backward=(scatter,))
    again = PaperCollective("all_gather", whole, split.m1, split.t1, "tp1")
    return linear(
        name,
        rows=rows,
        k=k,
        n=np.floor_divide(n, split.m1),
        backward=(again, scatter),
        kept_bytes=whole / split.m1,
    )


def _row_parallel(name: str, model: Transformer, split: Split, k: int) -> Operator:
    rows, n = _rows(model, split), model.e
    scatter = PaperCollective("reduce_scatter", rows * n * W, split.m1, split.t1, "tp1")
    return linear(name, rows=rows, k=np.floor_divide(k, split.m1), n=n, forward=(scatter,))


def _norm(name: str, model: Transformer, split: Split) -> Operator:
    sequence = np.floor_divide(model.l, split.m2)
    volume = split.b * sequence * model.e * W
    return layer_norm(
        name,
        rows=split.b * np.floor_divide(sequence, split.m1),
        n=model.e,
        forward=(PaperCollective("all_gather", volume, split.m1, split.t1, "tp1"),),
        backward=(PaperCollective("reduce_scatter", volume, split.m1, split.t1, "tp1"),),
    )

"""The paper's three forms of tensor parallelism: their rules for degrees and micro-batches, and their operators."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Final

import numpy as np

from shardplan.base.arrays import Flags, Numbers
from shardplan.base.errors import UnknownNameError
from shardplan.base.fields import dataclass
from shardplan.methods.subramanian2024 import operators
from shardplan.methods.subramanian2024.inputs import Corrections, System, Transformer
from shardplan.methods.subramanian2024.operators import Operator, PaperCollective, W

SMALLEST_PART: Final = 128
"""Fewest channels or tokens of a divided dimension on one rank."""


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

    def rows(self, model: Transformer) -> Numbers:
        """Tokens of a micro-batch on a rank that shares the sequence over ``m2``."""
        return self.b * np.floor_divide(model.l, self.m2)


class Strategy(ABC):
    """A form of tensor parallelism."""

    name: ClassVar[str]
    """Name, as in the published files."""
    title: ClassVar[str]
    """Description."""
    has_second_degree: ClassVar[bool] = True
    has_blocks: ClassVar[bool] = False

    @abstractmethod
    def divides(self, model: Transformer, m1: Numbers, m2: Numbers) -> Flags:
        """Whether these tensor degrees are candidates."""

    def sequence_divisor(self, m1: Numbers, m2: Numbers) -> Numbers:
        """What must divide micro-batch size times sequence length: the number of ranks that share a sequence."""
        return m1 * m2

    def gradient_shards(self, m2: Numbers) -> Numbers:
        """Ranks other than the data-parallel ones that hold the same weights: those that share a sequence."""
        return m2

    def operators(self, model: Transformer, system: System, split: Split, corrected: Corrections) -> list[Operator]:
        """The 14 operators of a layer: MLP block, then attention block."""
        e, f = model.e, model.f
        width = np.floor_divide(f, split.m1)
        hidden = split.b * (model.l / split.m2) * width
        between = self.elements_between(model, split)
        fc2_bias, vproj_bias = self.output_biases(model, split)
        return [
            self.product("fc1", (e, f), model, split, corrected),
            operators.bias("fc1_bias", rows=split.rows(model), n=width),
            operators.activation("activation", elements=hidden),
            operators.dropout("activation_dropout", elements=hidden),
            self.product("fc2", (f, e), model, split, corrected),
            fc2_bias,
            operators.dropout("mlp_dropout", elements=between),
            self.norm("mlp_norm", model, split, corrected),
            self.product("qkv", (e, 3 * e), model, split, corrected),
            context_parallel_attention(model, system, split),
            self.product("vproj", (e, e), model, split, corrected),
            vproj_bias,
            operators.dropout("attention_dropout", elements=between),
            self.norm("attention_norm", model, split, corrected),
        ]

    @abstractmethod
    def product(
        self, name: str, size: tuple[int, int], model: Transformer, split: Split, corrected: Corrections
    ) -> Operator:
        """A product with a weight of ``size``, k by n: fc1 and qkv open their block, fc2 and vproj close it."""

    @abstractmethod
    def norm(self, name: str, model: Transformer, split: Split, corrected: Corrections) -> Operator:
        """The layer norm after a block, with what it exchanges for the next one."""

    @abstractmethod
    def output_biases(self, model: Transformer, split: Split) -> tuple[Operator, Operator]:
        """Biases after the products that close their blocks, fc2 and vproj."""

    @abstractmethod
    def elements_between(self, model: Transformer, split: Split) -> Numbers:
        """Elements of the activations between blocks that a rank holds."""


def context_parallel_attention(model: Transformer, system: System, split: Split) -> Operator:
    """Every rank gathers the keys and values of its sequence, and scatters their gradients."""
    z = split.b * np.floor_divide(model.h, split.m1)
    volume = 2 * z * model.l * model.q * W
    gather = PaperCollective("all_gather", volume, split.m2, split.t2, "tp2")
    scatter = PaperCollective("reduce_scatter", volume, split.m2, split.t2, "tp2")
    return operators.fused_attention(
        "attention",
        heads=z,
        queries=np.floor_divide(model.l, split.m2),
        keys=model.l,
        q=model.q,
        rate_ratio=system.matrix_flops / system.vector_flops,
        forward=(gather,),
        backward=(gather, scatter),
    )


class RowColumn(Strategy):
    """Tensor parallelism of Megatron-LM (arXiv 1909.08053) with sequence parallelism (arXiv 2205.05198).

    The product that opens a block is divided by columns, the one that closes it by rows. The inputs of the first are
    gathered by the norm before it and saved at full width (Q11).
    """

    def product(
        self, name: str, size: tuple[int, int], model: Transformer, split: Split, corrected: Corrections
    ) -> Operator:
        """Opening: gradients of the input are scattered; closing: the output is."""
        (k, n), rows, m1 = size, split.rows(model), split.m1
        scatter = PaperCollective("reduce_scatter", rows * model.e * W, m1, split.t1, "tp1")
        if name in ("fc2", "vproj"):
            return operators.linear(name, rows=rows, k=np.floor_divide(k, m1), n=n, forward=(scatter,))
        columns = np.floor_divide(n, m1)
        if "Q11" not in corrected:
            return operators.linear(name, rows=rows, k=k, n=columns, backward=(scatter,))
        again = PaperCollective("all_gather", scatter.volume, m1, split.t1, "tp1")
        kept = scatter.volume / m1
        return operators.linear(name, rows=rows, k=k, n=columns, backward=(again, scatter), kept_bytes=kept)

    def norm(self, name: str, model: Transformer, split: Split, corrected: Corrections) -> Operator:
        """It runs on the scattered sequence and gathers it."""
        del corrected
        sequence = np.floor_divide(model.l, split.m2)
        volume = split.b * sequence * model.e * W
        return operators.layer_norm(
            name,
            rows=split.b * np.floor_divide(sequence, split.m1),
            n=model.e,
            forward=(PaperCollective("all_gather", volume, split.m1, split.t1, "tp1"),),
            backward=(PaperCollective("reduce_scatter", volume, split.m1, split.t1, "tp1"),),
        )

    def elements_between(self, model: Transformer, split: Split) -> Numbers:
        """The sequence is divided over all ranks."""
        return split.b * np.floor_divide(model.l, split.m1 * split.m2) * model.e


class OneDimensional(RowColumn):
    """Heads and width divided over m ranks; between the products the sequence is divided."""

    name: ClassVar[str] = "1d"
    title: ClassVar[str] = "one-dimensional tensor parallelism with sequence parallelism"
    has_second_degree: ClassVar[bool] = False

    def divides(self, model: Transformer, m1: Numbers, m2: Numbers) -> Flags:
        """Degrees that divide h and e and leave 3 e // m at least 128."""
        is_large = np.floor_divide(3 * model.e, m1) >= SMALLEST_PART
        return np.logical_and(np.equal(m2, 1), np.logical_and(_heads_divide(model, m1), is_large))

    def output_biases(self, model: Transformer, split: Split) -> tuple[Operator, Operator]:
        """They run on the whole sequence, although it is scattered (Q4)."""
        rows = split.b * model.l
        return operators.bias("fc2_bias", rows=rows, n=model.e), operators.bias("vproj_bias", rows=rows, n=model.e)


class ContextParallel(RowColumn):
    """Heads and width over m1 ranks, the sequence over m2, which hold the same weights."""

    name: ClassVar[str] = "2d-seqp"
    title: ClassVar[str] = "two-dimensional: tensor and context parallelism"

    def divides(self, model: Transformer, m1: Numbers, m2: Numbers) -> Flags:
        """Degrees m1 that divide h and e, with e // m1 and l // m2 at least 128."""
        return np.logical_and(_heads_divide(model, m1), _parts_are_large(model, m1, m2))

    def output_biases(self, model: Transformer, split: Split) -> tuple[Operator, Operator]:
        """One on the scattered sequence, the other on scattered channels."""
        scattered = split.b * np.floor_divide(np.floor_divide(model.l, split.m2), split.m1)
        return (
            operators.bias("fc2_bias", rows=scattered, n=model.e),
            operators.bias("vproj_bias", rows=split.rows(model), n=np.floor_divide(model.e, split.m1)),
        )


class Summa(Strategy):
    """SUMMA (van de Geijn and Watts 1997): every matrix is divided along both dimensions.

    Activations: sequence over m2, channels over m1; weights: rows over m2, columns over m1. Attention runs as under
    context parallelism.
    """

    name: ClassVar[str] = "2d"
    title: ClassVar[str] = "two-dimensional: SUMMA"
    has_blocks: ClassVar[bool] = True

    def divides(self, model: Transformer, m1: Numbers, m2: Numbers) -> Flags:
        """Like context parallelism, and m2 divides e."""
        grid = np.logical_and(_heads_divide(model, m1), _parts_are_large(model, m1, m2))
        return np.logical_and(grid, np.mod(model.e, m2) == 0)

    def sequence_divisor(self, m1: Numbers, m2: Numbers) -> Numbers:
        """Only m2 ranks share the sequence."""
        del m1
        return m2

    def gradient_shards(self, m2: Numbers) -> Numbers:
        """Weights are divided along both dimensions."""
        del m2
        return 1

    def product(
        self, name: str, size: tuple[int, int], model: Transformer, split: Split, corrected: Corrections
    ) -> Operator:
        """Rounds of broadcasts along both degrees."""
        del corrected
        k, n = size
        return operators.summa_linear(
            name,
            rows=split.rows(model),
            k=k,
            n=np.floor_divide(n, split.m1),
            kept_columns=np.floor_divide(k, split.m1),
            weight_rows=np.floor_divide(k, split.m2),
            blocks=split.blocks,
            along=((split.m1, split.t1), (split.m2, split.t2)),
        )

    def norm(self, name: str, model: Transformer, split: Split, corrected: Corrections) -> Operator:
        """The statistics of a row are summed over m1. As published its width is l // m1 (Q2)."""
        rows, m1 = split.rows(model), split.m1
        parameters, tokens = np.floor_divide(2 * model.e, m1), np.floor_divide(2 * split.b * model.l, split.m2)
        return operators.layer_norm(
            name,
            rows=rows,
            n=np.floor_divide(model.e if "Q2" in corrected else model.l, m1),
            forward=(PaperCollective("all_reduce", 2 * rows * W, m1, split.t1, "tp1"),),
            backward=(PaperCollective("all_reduce", (parameters + tokens) * W, m1, split.t1, "tp1"),),
        )

    def output_biases(self, model: Transformer, split: Split) -> tuple[Operator, Operator]:
        """Both on the sequence and the channels of the rank."""
        rows, channels = split.rows(model), np.floor_divide(model.e, split.m1)
        return operators.bias("fc2_bias", rows=rows, n=channels), operators.bias("vproj_bias", rows=rows, n=channels)

    def elements_between(self, model: Transformer, split: Split) -> Numbers:
        """Sequence and channels are divided."""
        return split.rows(model) * np.floor_divide(model.e, split.m1)


def _heads_divide(model: Transformer, m1: Numbers) -> Flags:
    """Whether ``m1`` divides the heads and the width."""
    return np.logical_and(np.mod(model.h, m1) == 0, np.mod(model.e, m1) == 0)


def _parts_are_large(model: Transformer, m1: Numbers, m2: Numbers) -> Flags:
    """Whether every rank holds enough channels and enough tokens."""
    return np.logical_and(np.floor_divide(model.e, m1) >= SMALLEST_PART, np.floor_divide(model.l, m2) >= SMALLEST_PART)


STRATEGIES: Final[dict[str, Strategy]] = {
    strategy.name: strategy for strategy in (OneDimensional(), ContextParallel(), Summa())
}
"""Strategies by name, in the order of the paper."""


def strategy_of(name: object) -> Strategy:
    """The strategy called ``name``. Raises ``UnknownNameError``."""
    if not isinstance(name, str) or name.lower() not in STRATEGIES:
        raise UnknownNameError("strategy", f"{name!s:.40}", STRATEGIES, hint=f"one of {', '.join(STRATEGIES)}")
    return STRATEGIES[name.lower()]

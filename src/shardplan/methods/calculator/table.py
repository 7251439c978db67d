"""The rule-of-thumb calculator: memory and traffic of tensor, pipeline and data parallelism, and a recommendation.

Every (tp, pp) of a fixed grid is one element of the arrays below. GB are decimal, as on its page.
"""

from __future__ import annotations

from typing import Annotated, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from shardplan.base.errors import InputError
from shardplan.base.fields import dataclass
from shardplan.methods.fields import Count, Positive, StrictFields, Whole

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

GB: Final = 1e9
TP_DEGREES: Final = (1, 2, 4, 8)
PP_DEGREES: Final = (1, 2, 4, 8, 16)
FILLED: Final = 0.9
"""Share of a GPU's memory below which a configuration fits."""
ADAM_BYTES: Final = 8
"""Two fp32 moments without a master copy. [bytes per parameter]"""


class CalculatorModel(StrictFields):
    """The model in the calculator's words."""

    params_billions: Positive
    """Stated parameters: used for gradient traffic only."""
    hidden_size: Annotated[Whole, Field(ge=1, le=10_000_000)] = 8192
    num_layers: Annotated[Whole, Field(ge=1, le=1_000_000)] = 80
    num_heads: Count = 64
    """Required by the form but not used."""
    vocab_size: Annotated[Whole, Field(ge=0, le=1_000_000_000)] = 128000
    intermediate_ratio: Positive = 4.0
    """Width of the MLP over the hidden size."""
    is_moe: bool = False
    num_experts: Count = 1
    top_k: Count = 1
    """Required by the form but not used."""

    @property
    def num_parameters(self) -> int:
        r"""Counted parameters, :math:`V h + L (4 h^2 + 2 h f E)`: used for memory."""
        h = self.hidden_size
        mlp = 2 * h * int(h * self.intermediate_ratio) * (self.num_experts if self.is_moe else 1)
        return self.vocab_size * h + self.num_layers * (4 * h**2 + mlp)


class CalculatorHardware(StrictFields):
    """The GPUs."""

    num_gpus: Count
    memory_per_gpu_gb: Positive
    intra_node_bandwidth_gbps: Positive = 900.0
    """Required by the form but not used."""
    inter_node_bandwidth_gbps: Positive = 50.0
    """Required by the form but not used."""
    gpus_per_node: Count = 8


class CalculatorTraining(StrictFields):
    """The training step."""

    batch_size: Count = 1024
    sequence_length: Count = 4096
    dtype_bytes: Annotated[Whole, Field(ge=1, le=8)] = 2
    num_microbatches: Count | None = None
    """Micro-batches of one replica, for the bubble; by default batch_size / dp micro-batches of one sequence."""


class CalculatorCase(StrictFields):
    """One question to the calculator."""

    model: CalculatorModel
    hardware: CalculatorHardware
    training: CalculatorTraining = CalculatorTraining()


@dataclass(frozen=True, kw_only=True)
class MemoryTable:
    """The page's table, an element per configuration, with the bubble that its text promises."""

    tp: Ints
    pp: Ints
    dp: Ints
    memory_gb: Floats
    """Memory of one GPU."""
    fits: NDArray[np.bool_]
    tp_gb: Floats
    """Tensor-parallel traffic of a step."""
    pp_gb: Floats
    dp_gb: Floats
    num_microbatches: Ints
    """Micro-batches of one replica and step."""
    bubble_fraction: Floats
    """Share of a step in which a pipeline stage waits."""

    @property
    def total_gb(self) -> Floats:
        """All traffic of a step, by which the recommendation is ranked."""
        return self.tp_gb + self.pp_gb + self.dp_gb

    @property
    def order(self) -> Ints:
        """Indices, the recommended one first: those that fit before the others, less traffic before more."""
        return np.lexsort((self.total_gb, ~self.fits))


def table(case: CalculatorCase) -> MemoryTable:
    """Every configuration, in the page's order. Raises ``InputError`` if the batch is smaller than a pipeline."""
    tp, pp = (degrees.ravel() for degrees in np.meshgrid(TP_DEGREES, PP_DEGREES, indexing="ij"))
    tried = (tp <= case.hardware.gpus_per_node) & (tp * pp <= case.hardware.num_gpus)
    tp, pp = tp[tried], pp[tried]
    dp = case.hardware.num_gpus // (tp * pp)
    batch_size, deepest = case.training.batch_size, int(pp.max())
    if batch_size < deepest:
        raise InputError(
            f"calculator: training.batch_size is {batch_size}, less than the deepest pipeline it tries, {deepest}",
            rule="the calculator divides by batch_size // pp",
            hint=f"raise training.batch_size to {deepest} or more",
        )
    memory = _state_gb(case, tp, pp, dp) + _activation_gb(case, tp, pp)
    sequences = case.training.num_microbatches
    num_microbatches = np.maximum(batch_size // dp, 1) if sequences is None else dp * 0 + sequences
    return MemoryTable(
        tp=tp,
        pp=pp,
        dp=dp,
        memory_gb=memory,
        fits=memory < FILLED * case.hardware.memory_per_gpu_gb,
        **_traffic_gb(case, tp, pp, dp),
        num_microbatches=num_microbatches,
        bubble_fraction=bubble_fraction(pp, num_microbatches),
    )


def bubble_fraction(num_stages: Ints, num_microbatches: Ints) -> Floats:
    r"""Idle share of a step of a pipeline of equal stages, :math:`(p - 1) / (m + p - 1)`.

    The page describes it, its code lacks it. Huang et al., GPipe, arXiv 1811.06965, section 2.3.
    """
    return (num_stages - 1) / (num_microbatches + num_stages - 1)


def _state_gb(case: CalculatorCase, tp: Ints, pp: Ints, dp: Ints) -> Floats:
    """Weights and gradients divided by tp and pp; optimizer states also by dp."""
    parameters = case.model.num_parameters / GB / (tp * pp)
    return parameters * 2 * case.training.dtype_bytes + parameters * ADAM_BYTES / dp


def _activation_gb(case: CalculatorCase, tp: Ints, pp: Ints) -> Floats:
    """Ten values per token and channel of a layer, for batch // (batch // pp) sequences."""
    model, training = case.model, case.training
    sequences = training.batch_size // (training.batch_size // pp)
    per_layer = (10 * sequences * training.sequence_length * model.hidden_size) // tp
    return per_layer * (model.num_layers // pp).astype(np.float64) * training.dtype_bytes / GB


def _traffic_gb(case: CalculatorCase, tp: Ints, pp: Ints, dp: Ints) -> dict[str, Floats]:
    """Bytes of a step by dimension, from the whole batch for any dp."""
    training, model = case.training, case.model
    batch_gb = float(training.batch_size) * training.sequence_length * model.hidden_size * training.dtype_bytes / GB
    return {
        "tp_gb": 4 * batch_gb * (tp - 1) / tp * model.num_layers / pp,
        "pp_gb": 2 * batch_gb * np.ones(len(pp)),
        "dp_gb": 2 * model.params_billions / pp * training.dtype_bytes * (dp - 1) / dp,
    }

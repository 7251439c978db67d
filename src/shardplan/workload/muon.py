"""Muon: what it takes to orthogonalise the update of every matrix.

Five Newton-Schulz iterations run on each whole matrix (K. Jordan et al., "Muon", 2024; Moonlight, arXiv 2502.16982).
Ranks that share optimizer states own whole matrices, as Megatron Core's layer-wise optimizer and torchtitan's DistMuon
share them out, so that no rank is done before the largest matrix is. Tensor-parallel ranks share the products of their
matrix. Tables and norms are updated by Adam, adapters too.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from shardplan.arrays import Numbers
from shardplan.fields import dataclass
from shardplan.inputs.job import Job
from shardplan.inputs.layers import Layer
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.workload.layer import layer_block
from shardplan.workload.ops import Matmul
from shardplan.workload.shard import Shard

ITERATIONS = 5


@dataclass(frozen=True)
class Orthogonal:
    """FLOP of Newton-Schulz iterations on the matrices of one rank, before ranks share them."""

    dense: Numbers = 0.0
    experts: Numbers = 0.0
    largest: Numbers = 0.0
    """Of one matrix, at most."""


def newton_schulz_flops(rows: float, columns: float) -> float:
    r"""FLOP of five iterations on a matrix of m x n, m the smaller side.

    .. math:: 5 (4 m^2 n + 2 m^3)

    Each iteration forms :math:`A = X X^T`, :math:`B = b A + c A^2` and :math:`a X + B X`.
    """
    m, n = sorted((rows, columns))
    return ITERATIONS * (4 * m * m * n + 2 * m**3)


def orthogonalised(model: ModelConfig, layer: Layer, job: Job, numbers: PlanNumbers) -> Orthogonal:
    """What a layer takes on one rank; nothing under another optimizer, or where the layer is frozen."""
    if job.optimizer != "muon" or job.train == "lora" or layer.gradients != "all":
        return Orthogonal()
    one = Shard.of(model.hidden_size, job, PlanNumbers.of(Plan(), 1, job))
    products = [each for each in layer_block(layer, one).operators if isinstance(each, Matmul) and each.weight]
    dense = sum(size for each in products if not each.grouped for size in _sizes(each))
    experts = sum(size for each in products if each.grouped for size in _sizes(each))
    largest = max((size / float(each.count) for each in products for size in _sizes(each)), default=0.0)
    return Orthogonal(dense / numbers.tp, experts / (numbers.ep * numbers.etp), largest / np.asarray(numbers.tp))


def _sizes(product: Matmul) -> Iterator[float]:
    """FLOP of each matrix of a product: queries, keys and values apart, gate and up apart."""
    whole = float(sum(product.parts))
    for part in product.parts:
        yield float(product.count) * newton_schulz_flops(float(product.k), float(product.n) * float(part) / whole)

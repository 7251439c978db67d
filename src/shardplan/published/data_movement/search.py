"""The best (tp_in, tp_out, dp) of linear layers on a number of devices: every choice priced at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from shardplan.arrays import divisors
from shardplan.errors import InputError
from shardplan.fields import dataclass
from shardplan.published.data_movement.layer import Device, LinearLayer, end_of_batch, forward_backward

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """Linear layers of one shape in a model."""

    d_in: float
    d_out: float
    count: int = 1
    """How many there are."""
    reads_split_outputs: bool = False
    """Whether its inputs are the outputs of such a layer, so that tp_out splits its inputs and tp_in its outputs."""

    def placed(self, tp_in: Ints, tp_out: Ints, dp: Ints, bytewidth: float) -> LinearLayer:
        """One of them over arrays of degrees."""
        by_in, by_out = (tp_out, tp_in) if self.reads_split_outputs else (tp_in, tp_out)
        return LinearLayer(d_in=self.d_in, d_out=self.d_out, tp_in=by_in, tp_out=by_out, dp=dp, bytewidth=bytewidth)


@dataclass(frozen=True, kw_only=True)
class LayerSearch:
    """Every configuration, an element each, and what a batch costs in it."""

    tp_in: Ints
    tp_out: Ints
    dp: Ints
    compute_time: Floats
    """Forward and backward passes of all micro-batches. [s]"""
    gradient_time: Floats
    """All-reduce at the end of the batch. [s]"""
    utilisation: Floats
    """FLOP of the batch over time, devices and peak."""

    @property
    def total_time(self) -> Floats:
        """One batch. [s]"""
        return self.compute_time + self.gradient_time

    @property
    def order(self) -> Ints:
        """Indices, fastest first; of equally fast ones that with fewer tensor-parallel devices."""
        return np.lexsort((self.tp_in * self.tp_out, self.total_time))


def search_layers(
    device: Device,
    matrices: Sequence[Matrix],
    tokens: float,
    num_devices: int,
    *,
    bytewidth: float = 2,
    num_microbatches: int = 1,
) -> LayerSearch:
    """Every way to share ``num_devices`` among tp_in, tp_out and dp. ``tokens``: of one micro-batch, all replicas.

    Degrees need not divide the matrices, but each device has an input, an output and a token. Raises ``InputError``
    where that cannot be.
    """
    tp_in, tp_out, dp = _degrees(matrices, tokens, num_devices)
    compute, gradients, flop = np.zeros(len(dp)), np.zeros(len(dp)), 0.0
    for matrix in matrices:
        layer = matrix.placed(tp_in, tp_out, dp, bytewidth)
        compute = compute + matrix.count * num_microbatches * forward_backward(device, layer, tokens).total
        gradients = gradients + matrix.count * end_of_batch(device, layer).total
        flop += matrix.count * num_microbatches * 6 * matrix.d_in * matrix.d_out * tokens
    peak = num_devices * device.flops_8bit / bytewidth
    return LayerSearch(
        tp_in=tp_in,
        tp_out=tp_out,
        dp=dp,
        compute_time=compute,
        gradient_time=gradients,
        utilisation=flop / (peak * (compute + gradients)),
    )


def _degrees(matrices: Sequence[Matrix], tokens: float, num_devices: int) -> tuple[Ints, Ints, Ints]:
    """All (tp_in, tp_out, dp) with that product under which no device is left without work."""
    tp_in, tp_out = (grid.ravel() for grid in np.meshgrid(*[divisors(num_devices)] * 2, indexing="ij"))
    possible = num_devices % (tp_in * tp_out) == 0
    possible &= num_devices <= tokens * tp_in * tp_out
    for matrix in matrices:
        layer = matrix.placed(tp_in, tp_out, tp_in, bytewidth=1)
        possible &= (layer.tp_in <= layer.d_in) & (layer.tp_out <= layer.d_out)
    if not possible.any():
        raise InputError(
            f"data-movement: {num_devices:,} devices are too many for {tokens:g} tokens and layers of this size",
            rule="every device has an input, an output and a token",
            hint="take fewer devices or more tokens",
        )
    tp_in, tp_out = tp_in[possible], tp_out[possible]
    return tp_in, tp_out, num_devices // (tp_in * tp_out)

"""A linear layer with tensor parallelism over both of its dimensions: arithmetic, memory and network time.

Erdil and Schneider-Joseph, arXiv 2411.01137, and its notebook. Numbers of a layer may be arrays over configurations.

Assumptions (each makes the device look better): data movement and arithmetic overlap fully, since several micro-batches
are in flight; stage transfers, pointwise passes and attention cost nothing; activations stay in the cache except for
one reload in the backward pass; the second half of an all-reduce is a free multicast; degrees need not divide sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from shardplan.base.arrays import Numbers, divisors
from shardplan.base.errors import InputError, UnknownNameError
from shardplan.base.fields import dataclass
from shardplan.base.files import DATA, shipped_document
from shardplan.inputs.cluster import Accelerator
from shardplan.inputs.readers.catalog import cluster_of_accelerator, list_accelerators


@dataclass(frozen=True, kw_only=True)
class Device:
    """An accelerator and its one network link."""

    name: str
    flops_8bit: float
    """Peak with 8-bit numbers; that of wider ones falls in proportion. [FLOP/s]"""
    memory_bandwidth: float
    """Bandwidth of the device memory. [bytes/s]"""
    network_bandwidth: float
    """Link to the other devices, both directions together. [bytes/s]"""
    base_utilisation: float = 0.8
    """Share of the arithmetic and memory rates that is left under throttling; the network is not throttled."""


@dataclass(frozen=True, kw_only=True)
class LinearLayer:
    """A matrix of ``d_in`` by ``d_out`` over tp_in x tp_out devices, in ``dp`` replicas."""

    d_in: Numbers
    d_out: Numbers
    tp_in: Numbers = 1
    tp_out: Numbers = 1
    dp: Numbers = 1
    bytewidth: float = 2
    """Bytes per number, for weights, activations and gradients."""

    @property
    def d_in_local(self) -> Numbers:
        """Inputs of one device."""
        return self.d_in / self.tp_in

    @property
    def d_out_local(self) -> Numbers:
        """Outputs of one device."""
        return self.d_out / self.tp_out

    @property
    def num_local_parameters(self) -> Numbers:
        """Weights of one device."""
        return self.d_in_local * self.d_out_local


@dataclass(frozen=True, kw_only=True)
class LayerTime:
    """Busy time of each resource; all of them work at once. [s]"""

    flop: Numbers
    memory: Numbers
    network: Numbers

    @property
    def total(self) -> Numbers:
        """Time of the busiest resource. [s]"""
        return np.maximum(self.flop, np.maximum(self.memory, self.network))

    @property
    def bound(self) -> str:
        """The busiest resource of one layer: ``flop``, ``hbm``, ``network``; ``none`` if none has work."""
        times = {"flop": float(self.flop), "hbm": float(self.memory), "network": float(self.network)}
        busiest = max(times, key=lambda name: times[name])
        return busiest if times[busiest] > 0 else "none"


def all_reduce_words(num_words: Numbers, num_devices: Numbers) -> Numbers:
    r"""Words that a device sends or receives to all-reduce ``num_words``, :math:`3 (p - 1) n / p`.

    It sends p - 1 parts to be reduced elsewhere, receives as many to reduce, and receives as many that are reduced;
    sending its own reduced part to all others is one multicast, which is free.
    """
    return 3 * (num_devices - 1) * num_words / num_devices


def messages(layer: LinearLayer, tokens: Numbers) -> tuple[tuple[Numbers, Numbers], tuple[Numbers, Numbers]]:
    """All-reduced words and devices of a micro-batch: outputs over tp_in, input gradients over tp_out."""
    b = tokens / layer.dp
    return (layer.d_out_local * b, layer.tp_in), (layer.d_in_local * b, layer.tp_out)


def forward_backward(device: Device, layer: LinearLayer, tokens: Numbers) -> LayerTime:
    r"""Forward and backward pass of ``tokens``, over all replicas.

    Words to the network: :math:`A(n_{out} b, t_{in}) + A(n_{in} b, t_{out})` with A those of an all-reduce.
    """
    words = sum(all_reduce_words(size, ranks) for size, ranks in messages(layer, tokens))
    return passes(device, layer, tokens, network=words, reduced=words)


def passes(device: Device, layer: LinearLayer, tokens: Numbers, *, network: Numbers, reduced: Numbers) -> LayerTime:
    r"""Like ``forward_backward``, with ``network`` words on the link and ``reduced`` ones through memory.

    Per device, with :math:`b` tokens of its replica and :math:`N = n_{in} n_{out}` weights: :math:`6 N b` FLOP; words
    to memory :math:`4 N` for weights (read twice) and their gradients (read, written), :math:`n_{in} b` reloaded in
    the backward pass, and those that are reduced.
    """
    weights, b = layer.num_local_parameters, tokens / layer.dp
    memory = 4 * weights + layer.d_in_local * b + reduced
    return busy_times(device, layer.bytewidth, flop=6 * weights * b, memory=memory, network=network)


def end_of_batch(device: Device, layer: LinearLayer) -> LayerTime:
    """Gradients all-reduced over the replicas; the optimizer step costs nothing."""
    words = all_reduce_words(layer.num_local_parameters, layer.dp)
    return busy_times(device, layer.bytewidth, flop=0.0, memory=words, network=words)


def busy_times(device: Device, bytewidth: float, *, flop: Numbers, memory: Numbers, network: Numbers) -> LayerTime:
    """Time of some arithmetic and a number of words; arithmetic and memory are throttled, the network is not."""
    achieved = device.base_utilisation
    return LayerTime(
        flop=flop * bytewidth / (achieved * device.flops_8bit),
        memory=memory * bytewidth / (achieved * device.memory_bandwidth),
        network=network * bytewidth / device.network_bandwidth,
    )


DEFAULT_DEVICE: Final = "H100 SXM5"
TABLE: Final = DATA / "published" / "data-movement-devices.yaml"
FIELDS: Final = {
    "flop_per_sec_8bit": "flops_8bit",
    "global_Bps": "memory_bandwidth",
    "net_Bps": "network_bandwidth",
    "base_util": "base_utilisation",
}
"""The notebook's names and ours."""


def list_devices() -> list[str]:
    """Names of the devices, the notebook's own first."""
    return [*notebook_devices(), *list_accelerators()]


@cache
def notebook_devices() -> dict[str, dict[str, dict[str, Any]]]:
    """The notebook's table: for every device each value with its unit and source."""
    return shipped_document(TABLE)


def device_called(name: str) -> Device:
    """A device by the notebook's name, or an accelerator by its name in the catalogue. Raises ``UnknownNameError``."""
    for known, values in notebook_devices().items():
        if name.strip().lower() == known.lower():
            return Device(name=known, **{ours: float(values[theirs]["value"]) for theirs, ours in FIELDS.items()})
    if name.lower() not in (known.lower() for known in list_accelerators()):
        raise UnknownNameError("device", f"{name:.60}", list_devices(), hint="see `shardplan accelerators`")
    cluster = cluster_of_accelerator(name)
    return device_of(cluster.accelerator, cluster.innermost.bandwidth)


def device_of(accelerator: Accelerator, link_bandwidth: float) -> Device:
    """An accelerator in the notebook's terms; ``link_bandwidth`` is of one direction, of which the notebook adds both.

    The 8-bit peak is twice that of 16-bit numbers if the accelerator has no fp8.
    """
    peaks = accelerator.peak_flops
    wide = max((peaks[name] for name in ("bf16", "fp16") if name in peaks), default=2 * peaks.get("fp32", 0.0))
    return Device(
        name=accelerator.name,
        flops_8bit=peaks.get("fp8", 2 * wide),
        memory_bandwidth=accelerator.memory_bandwidth,
        network_bandwidth=2 * link_bandwidth,
    )


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
    """Whether its inputs are the split outputs of another layer: tp_out splits its inputs and tp_in its outputs."""

    def placed(self, tp_in: Ints, tp_out: Ints, dp: Ints, bytewidth: float) -> LinearLayer:
        """One of them over arrays of degrees."""
        by_in, by_out = (tp_out, tp_in) if self.reads_split_outputs else (tp_in, tp_out)
        return LinearLayer(d_in=self.d_in, d_out=self.d_out, tp_in=by_in, tp_out=by_out, dp=dp, bytewidth=bytewidth)


@dataclass(frozen=True, kw_only=True)
class LayerSearch:
    """Every configuration, an element each, and the cost of a batch in it."""

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
        """Indices, fastest first; among equally fast ones, fewer tensor-parallel devices first."""
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
    """Every way to divide ``num_devices`` into tp_in, tp_out and dp; ``tokens`` of a micro-batch over all replicas.

    Degrees need not divide the matrices, but each device has an input, an output and a token. Raises ``InputError``
    if that is impossible.
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
    """All (tp_in, tp_out, dp) with that product in which every device has work."""
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

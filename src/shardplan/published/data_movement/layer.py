"""A linear layer with tensor parallelism over both of its dimensions: arithmetic, memory and network time.

Erdil and Schneider-Joseph, arXiv 2411.01137, and its notebook. Numbers of a layer may be arrays over configurations.

Taken for granted (each makes the device look better): data movement and arithmetic overlap fully, since several
micro-batches are in flight; stage transfers, pointwise passes and attention cost nothing; activations stay in the cache
but for one reload in the backward pass; the second half of an all-reduce is a free multicast; nothing need divide.
"""

from __future__ import annotations

import numpy as np

from shardplan.arrays import Numbers
from shardplan.fields import dataclass


@dataclass(frozen=True, kw_only=True)
class Device:
    """An accelerator and its one network link."""

    name: str
    flops_8bit: float
    """Peak with 8-bit numbers; that of wider ones falls in proportion. [FLOP/s]"""
    memory_bandwidth: float
    """Device memory. [bytes/s]"""
    network_bandwidth: float
    """Link to the other devices, both directions together. [bytes/s]"""
    base_utilisation: float = 0.8
    """Share of arithmetic and memory rate that throttling leaves; the network is not throttled."""


@dataclass(frozen=True, kw_only=True)
class LinearLayer:
    """A matrix of ``d_in`` by ``d_out`` over tp_in x tp_out devices, in ``dp`` replicas."""

    d_in: Numbers
    d_out: Numbers
    tp_in: Numbers = 1
    tp_out: Numbers = 1
    dp: Numbers = 1
    bytewidth: float = 2
    """Bytes per number, weights, activations and gradients alike."""

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
    """Seconds that each resource is busy; all of them work at once."""

    flop: Numbers
    memory: Numbers
    network: Numbers

    @property
    def total(self) -> Numbers:
        """The busiest resource's. [s]"""
        return np.maximum(self.flop, np.maximum(self.memory, self.network))

    @property
    def bound(self) -> str:
        """Which resource that is for one layer: ``flop``, ``hbm``, ``network``; ``none`` where none has work."""
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
    """What is all-reduced for a micro-batch: outputs over tp_in, input gradients over tp_out; words and devices."""
    b = tokens / layer.dp
    return (layer.d_out_local * b, layer.tp_in), (layer.d_in_local * b, layer.tp_out)


def forward_backward(device: Device, layer: LinearLayer, tokens: Numbers) -> LayerTime:
    r"""Forward and backward pass of ``tokens``, over all replicas.

    Words to the network: :math:`A(n_{out} b, t_{in}) + A(n_{in} b, t_{out})` with A those of an all-reduce.
    """
    words = sum(all_reduce_words(size, ranks) for size, ranks in messages(layer, tokens))
    return passes(device, layer, tokens, network=words, reduced=words)


def passes(device: Device, layer: LinearLayer, tokens: Numbers, *, network: Numbers, reduced: Numbers) -> LayerTime:
    r"""As ``forward_backward``, with ``network`` words on the link and ``reduced`` ones through memory.

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

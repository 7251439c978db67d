"""Which shapes are timed: those of training, small enough for the device."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Final, Literal, cast, get_args

from shardplan.calibration.microbench.records import (
    Case,
    Exchange,
    Exchanged,
    Host,
    MemoryPass,
    Product,
    TimedAttention,
    TimedDevice,
)
from shardplan.fields import dataclass
from shardplan.inputs.cluster import Precision

Sizes = Literal["small", "full"]
KI, MI = 1024, 1024**2
EXCHANGES: Final[tuple[Exchanged, ...]] = get_args(Exchanged)


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """Processes that take part, a node's side by side."""

    total: int = 1
    per_node: int = 1

    @property
    def groups(self) -> tuple[tuple[int, int], ...]:
        """Size and stride of the groups worth timing: a pair, a node, one rank of every node, all."""
        nodes = self.total // self.per_node
        asked = ((2, 1), (self.per_node, 1), (nodes, self.per_node), (self.total, 1))
        fitting = (group for group in asked if group[0] > 1 and self.total % (group[0] * group[1]) == 0)
        return tuple(dict.fromkeys(fitting))


def cases_of(
    device: TimedDevice, sizes: Sizes, precisions: Sequence[str], ranks: Ranks, *, available: Sequence[str] = ()
) -> list[Case]:
    """Cases to be timed, those that decide most first. ``available``: all formats that the device has."""
    is_cpu = device.kind == "cpu"
    full = sizes == "full"
    cases: list[Case] = [
        *_passes(is_cpu=is_cpu, full=full),
        *_products(precisions, is_cpu=is_cpu, full=full),
        *_attentions(_attention_precision(device, available or precisions), is_cpu=is_cpu, full=full),
        Host(operation="launch"),
        Host(operation="layer"),
        *_exchanges(ranks, is_cpu=is_cpu, full=full),
    ]
    return list(dict.fromkeys(cases))


def _passes(*, is_cpu: bool, full: bool) -> list[Case]:
    """Tiny ones for the latency, and ones that no cache holds for the rate."""
    large = (128 * MI,) if is_cpu else (512 * MI, 2048 * MI)
    operations: tuple[Literal["copy", "add", "norm"], ...] = ("copy", "add", "norm")
    chosen = [8 * KI, 64 * KI, *(large if full or is_cpu else large[:1])]
    return [MemoryPass(operation=name, bytes=size) for size, name in product(chosen, operations)]


def _products(precisions: Sequence[str], *, is_cpu: bool, full: bool) -> list[Case]:
    known = [cast(Precision, name) for name in get_args(Precision) if name in precisions]
    shapes = product(known, *_product_shapes(is_cpu=is_cpu, full=full))
    return [Product(precision=name, m=m, k=k, n=n) for name, m, (k, n) in shapes]


def _product_shapes(*, is_cpu: bool, full: bool) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...]]:
    """Rows, and inner dimensions with columns: shallow, square and wide."""
    if is_cpu:
        few = ((64, 512), (256, 256), (512, 512), (512, 1024))
        return ((64, 256, 1024), (*few, (1024, 1024), (2048, 2048))) if full else ((64, 256), few)
    wide = ((256, 256), (64, 8192), (256, 8192), (1024, 8192), (4096, 4096), (4096, 14336), (8192, 8192))
    more = ((128, 8192), (512, 8192), (2048, 8192), (2048, 2048), (14336, 4096), (8192, 28672), (4096, 4608))
    return ((256, 1024, 4096, 8192), (*wide, *more)) if full else ((256, 4096), wide)


def _attention_precision(device: TimedDevice, available: Sequence[str]) -> Precision:
    if device.kind == "cpu":
        return "fp32"
    return "bf16" if "bf16" in available else "fp16"


def _attentions(precision: Precision, *, is_cpu: bool, full: bool) -> list[Case]:
    """The same number of tokens at every length, as in training."""
    heads, tokens = (2, 512) if is_cpu else (16, 8192)
    if full:
        tokens *= 2
    directions: tuple[Literal["forward", "backward"], ...] = ("forward", "backward")
    return [
        TimedAttention(
            precision=precision,
            direction=way,
            head_dim=dim,
            num_heads=heads,
            sequence_length=length,
            batch_size=tokens // length,
        )
        for dim, length, way in product(*_attention_shapes(is_cpu=is_cpu, full=full), directions)
    ]


def _attention_shapes(*, is_cpu: bool, full: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Head dimensions and sequence lengths."""
    if is_cpu:
        return (64, 128), (128, 256, 512, 1024) if full else (128, 256, 512)
    if full:
        return (64, 96, 128, 256), (512, 1024, 2048, 4096, 8192, 16384)
    return (64, 128), (512, 2048, 8192)


def _exchanges(ranks: Ranks, *, is_cpu: bool, full: bool) -> list[Case]:
    largest = 4 * MI if is_cpu else 256 * MI
    few = [16 * KI, largest // 4, largest]
    chosen = [*few, MI, largest // 16, 2 * largest] if full else few
    return [
        Exchange(operation=name, size=size, stride=stride, bytes=volume)
        for (size, stride), name, volume in product(ranks.groups, EXCHANGES, chosen)
    ]

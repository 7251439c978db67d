"""What was timed, on what, and how long it took: the raw record of a micro-benchmark."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import field
from typing import Any, Final, Literal, NamedTuple, NoReturn, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

from shardplan.base.errors import InputError, shown
from shardplan.base.fields import dataclass, in_files
from shardplan.base.records import Record, keys, plain
from shardplan.inputs.cluster import Precision
from shardplan.physics.workload.ops import AttentionCore, Matmul, StreamPass

Kind = TypeVar("Kind")
Sizes = Literal["small", "full"]
MOST_SPREAD: Final = 0.3
"""Distance of the quartiles of a case's series, relative to its time, above which something else ran on the machine."""
Exchanged = Literal["all_gather", "reduce_scatter", "all_reduce", "all_to_all", "p2p"]


@dataclass(frozen=True, kw_only=True)
class MemoryPass:
    """A kernel that streams memory."""

    operation: Literal["copy", "add", "norm"]
    bytes: int
    """Read and written."""

    @property
    def operator(self) -> StreamPass:
        """The operator of the estimate that it times."""
        return StreamPass(name=self.operation, modules=(), forward_bytes=self.bytes, backward_bytes=0)

    @property
    def work(self) -> float:
        """FLOP or bytes."""
        return float(self.bytes)


@dataclass(frozen=True, kw_only=True)
class Product:
    """An (m, k) by (k, n) matrix product."""

    precision: Precision
    m: int
    k: int
    n: int

    @property
    def operator(self) -> Matmul:
        """The operator of the estimate that it times."""
        return Matmul(name="product", modules=(), m=self.m, k=self.k, n=self.n, casts_input=False)

    @property
    def work(self) -> float:
        """FLOP or bytes."""
        return 2.0 * self.m * self.k * self.n


@dataclass(frozen=True, kw_only=True)
class TimedAttention:
    """Fused causal attention, every head with its own keys."""

    precision: Precision
    direction: Literal["forward", "backward"]
    head_dim: int
    num_heads: int
    sequence_length: int
    batch_size: int

    @property
    def operator(self) -> AttentionCore:
        """The operator of the estimate that it times."""
        length = float(self.sequence_length)
        return AttentionCore(
            name="attention",
            modules=(),
            tokens=self.batch_size * length,
            num_heads=self.num_heads,
            qk_head_dim=self.head_dim,
            v_head_dim=self.head_dim,
            keys=length / 2,
            scored_keys=length,
            rate_length=length,
        )

    @property
    def work(self) -> float:
        """FLOP or bytes."""
        return float(self.operator.flops)


@dataclass(frozen=True, kw_only=True)
class Host:
    """Work of the host: the ``launch`` of one tiny kernel, or forward and backward of one tiny, eager ``layer``."""

    operation: Literal["launch", "layer"]


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """A collective over ``size`` ranks that lie ``stride`` apart."""

    operation: Exchanged
    size: int
    stride: int
    bytes: int
    """The gathered, unscattered tensor; for all-to-all and p2p what one rank holds."""

    @property
    def work(self) -> float:
        """FLOP or bytes."""
        return float(self.bytes)


Kernel: TypeAlias = MemoryPass | Product | TimedAttention
Case: TypeAlias = Kernel | Host | Exchange


class CaseKind(NamedTuple):
    """What is known of all cases of a class."""

    of: type[Case]
    label: str
    """A case in a few words, with its fields."""
    alike: tuple[str, ...]
    """Fields that cases share which differ in their work alone."""


CASES: Final[Mapping[str, CaseKind]] = {
    "memory_pass": CaseKind(MemoryPass, "{operation} of {bytes} bytes", ("operation",)),
    "product": CaseKind(Product, "{precision} product {m}x{k}x{n}", ("precision",)),
    "attention": CaseKind(
        TimedAttention, "{direction} attention {sequence_length}x{head_dim}", ("precision", "direction")
    ),
    "host": CaseKind(Host, "host {operation}", ("operation",)),
    "exchange": CaseKind(Exchange, "{operation} of {bytes} bytes between {size}", ("operation", "size", "stride")),
}
"""By name in the record."""


def name_of(case: Case) -> str:
    """What the record calls its kind."""
    return next(name for name, kind in CASES.items() if isinstance(case, kind.of))


def label_of(case: Case) -> str:
    """The case in a few words."""
    return CASES[name_of(case)].label.format_map(vars(case))


def alike_of(case: Case) -> Hashable:
    """What it shares with cases that differ in their work alone."""
    return tuple(getattr(case, name) for name in CASES[name_of(case)].alike)


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Time of one call, from several series of calls."""

    time: float = field(metadata=in_files("time_s"))
    """20th percentile: what else runs on the machine only adds time. [s]"""
    spread: float
    """Distance of the quartiles, relative to that."""
    num_series: int
    """Series of calls that were timed."""

    @property
    def is_scattered(self) -> bool:
        """Whether the series of the case differ too much."""
        return self.spread > MOST_SPREAD

    def __post_init__(self) -> None:
        for name in ("time", "spread"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
                _refuse(f"{name} is {shown(value)}; it must be a positive number")
        if self.time == 0:
            _refuse("time is 0; it must be a positive number")


@dataclass(frozen=True)
class Sample:
    """A case and its time."""

    case: Case
    timing: Timing


@dataclass(frozen=True)
class SkippedCase:
    """A case that could not be timed."""

    case: Case
    reason: str


@dataclass(frozen=True, kw_only=True)
class TimedDevice:
    """The device as the driver describes it."""

    kind: Literal["cuda", "cpu"]
    name: str
    memory_bytes: int
    num_cores: int


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


@dataclass(frozen=True, kw_only=True)
class Measurements:
    """Everything a run of the micro-benchmark saw."""

    device: TimedDevice
    accelerator: str | None
    """Name or path of the catalogue's accelerator; None where the device is not in the catalogue."""
    software: str
    """Version of the library that ran the kernels."""
    date: str
    num_ranks: int
    """Processes that took part."""
    rank: int
    """Which of them this is; the first one's record is kept."""
    is_complete: bool
    """Whether every case had its turn (an interrupt keeps what there is)."""
    samples: tuple[Sample, ...]
    skipped: tuple[SkippedCase, ...]

    def of(self, kind: type[Kind]) -> list[tuple[Kind, Timing]]:
        """Samples of one kind of case."""
        return [(sample.case, sample.timing) for sample in self.samples if isinstance(sample.case, kind)]

    def to_record(self) -> Record:
        """The record as it is written to JSON."""
        return {
            "format": "shardplan microbenchmark 1",
            **plain(self),
            "samples": [_case_record(each.case) | plain(each.timing) for each in self.samples],
            "skipped": [_case_record(each.case) | {"reason": each.reason} for each in self.skipped],
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Measurements:
        """The measurements that ``to_record`` wrote. Raises ``InputError``."""
        samples, skipped = (_items(record, name) for name in ("samples", "skipped"))
        accelerator = record.get("accelerator")
        return cls(
            device=_checked(TimedDevice, _mapping(record.get("device"), "device")),
            accelerator=None if accelerator is None else _text(accelerator, "accelerator"),
            software=_text(record.get("software"), "software"),
            date=_text(record.get("date"), "date"),
            num_ranks=_count(record.get("num_ranks"), "num_ranks"),
            rank=_count(record.get("rank"), "rank", least=0),
            is_complete=record.get("is_complete") is True,
            samples=tuple(Sample(_case(item), _timing(item)) for item in samples),
            skipped=tuple(SkippedCase(_case(item), _text(item.get("reason"), "reason")) for item in skipped),
        )


def _case_record(case: Case) -> Record:
    return {"case": name_of(case)} | plain(case)


def _case(item: Mapping[str, Any]) -> Case:
    kind = CASES.get(str(item.get("case")))
    if kind is None:
        _refuse(f"case is {item.get('case')!r:.60}; it must be one of {', '.join(CASES)}")
    return _checked(kind.of, item)


def _timing(item: Mapping[str, Any]) -> Timing:
    number = _count(item.get("num_series"), "num_series")
    return Timing(time=item.get("time_s", 0), spread=item.get("spread", -1), num_series=number)


def _checked(kind: type[Kind], item: Mapping[str, Any]) -> Kind:
    """An object of ``kind`` (a dataclass of texts, choices and counts) from its fields."""
    hints = get_type_hints(kind)
    values: Record = {}
    for name in keys(kind):
        value, hint = item.get(name), hints[name]
        if get_origin(hint) is Literal:
            if value not in get_args(hint):
                _refuse(f"{name} is {value!r:.60}; it must be one of {', '.join(get_args(hint))}")
            values[name] = value
        else:
            values[name] = _count(value, name) if hint is int else _text(value, name)
    return kind(**values)


def _items(record: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    items = record.get(name)
    if not isinstance(items, list):
        _refuse(f"{name} is {items!r:.60}; it must be a list")
    return [_mapping(item, name) for item in items]


def _mapping(value: object, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        _refuse(f"{name} holds {value!r:.60}; it must be a set of fields")
    return value


def _text(value: object, name: str) -> str:
    if not isinstance(value, str) or not value:
        _refuse(f"{name} is {value!r:.60}; it must be a text")
    return value


def _count(value: object, name: str, *, least: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        _refuse(f"{name} is {value!r:.60}; it must be a whole number of at least {least}")
    return value


def _refuse(message: str) -> NoReturn:
    raise InputError(
        f"measurements: {message}",
        rule="measurements are those that the micro-benchmark wrote",
        hint="run the micro-benchmark again",
    )

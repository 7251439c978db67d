"""The method's models and systems, those of the paper and a user's own; and its known errors.

Field names of a model are the paper's letters. A user's record may start from one of the paper's (``base: B200``) and
change values. Q numbers of flaws and corrections are those of the documentation.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, cast

from shardplan.base.errors import InputError, UnknownNameError, shown
from shardplan.base.fields import dataclass
from shardplan.base.files import DATA, read_document, shipped_document
from shardplan.base.units import Kind, parse_quantity, to_si

Correction = Literal["Q1", "Q2", "Q3", "Q5", "Q11"]
Corrections = frozenset[Correction]

FAITHFUL: Final[Corrections] = frozenset()
"""The method as published."""

CORRECTIONS: Final[dict[Correction, str]] = {
    "Q1": "transfers between pipeline stages in different scale-up domains take time",
    "Q2": "the layer norm of SUMMA normalises channels, not tokens",
    "Q3": "an all-reduce sends everything twice on every network, not only across domains",
    "Q5": "SUMMA has one round of communication for each block, not one more",
    "Q11": "the inputs of column-parallel layers are kept in shards and gathered again in the backward pass",
}
"""What each correction does."""

FLAWS: Final[dict[str, str]] = {
    "Q1": "transfers between pipeline stages are free where they leave a scale-up domain that holds several stages",
    "Q2": "the layer norm of SUMMA has the width of the sequence instead of the embedding",
    "Q3": "an all-reduce inside a domain, or with one rank in each, sends everything once instead of twice",
    "Q4": "two biases of 1D tensor parallelism run on the whole sequence, although it is scattered",
    "Q5": "SUMMA communicates one round more than it has blocks where communication dominates",
    "Q6": "a bias reads or writes the activation, not both",
    "Q7": "rounding down loses a part of sequences that do not divide evenly",
    "Q8": "every operator costs 20 us, but the rounds of SUMMA cost it once",
    "Q9": "the bandwidth of a scale-up domain does not depend on the ranks that use it",
    "Q10": "a group with one rank in each domain uses one network adapter, however many there are",
    "Q11": "the inputs of column-parallel layers are kept whole on every tensor-parallel rank, but not under SUMMA",
    "Q12": "no embedding, output head, residual, optimizer step or framework memory; gradients in 16 bits",
    "Q13": "its FLOP count holds vector work at the ratio of the matrix and vector rates: no base for an MFU",
    "Q14": "gradients of norm parameters are not reduced over the ranks that share the sequence",
    "Q15": "gradient communication hides behind one layer of one micro-batch only",
    "Q16": "stages are uniform, and the pipeline bubble contains the transfers between them",
    "Q17": "its search fills scale-up domains exactly, and the depth of the pipeline divides the number of layers",
}
"""Known errors and omissions of the method, by number."""


def corrections_of(given: object) -> Corrections:
    """None, all (``True`` or ``all``) or those named. Raises ``InputError``."""
    if given is None or given is False:
        return FAITHFUL
    if given is True:
        return frozenset(CORRECTIONS)
    names = given.replace("+", ",").split(",") if isinstance(given, str) else given
    if not isinstance(names, Iterable) or not all(isinstance(name, str) for name in names):
        raise InputError(
            f"corrected is {given!r:.80}",
            rule="corrected is true, false or a list of names",
            hint=f"names: {', '.join(CORRECTIONS)}",
        )
    return _named_corrections([name.strip().upper() for name in names if name.strip()])


def _named_corrections(names: list[str]) -> Corrections:
    if names == ["ALL"]:
        return frozenset(CORRECTIONS)
    for name in names:
        if name not in CORRECTIONS:
            raise UnknownNameError("correction", f"{name:.40}", CORRECTIONS, hint=f"one of {', '.join(CORRECTIONS)}")
    return frozenset(cast("list[Correction]", names))


MAX_COUNT: Final = 10**7
"""Largest sequence length, width, depth, batch or number of accelerators accepted."""

GLOBAL_BATCH_SIZE: Final = 4096
"""Sequences of a step, throughout the paper."""
MAX_DOMAIN: Final = 100_000
"""Largest scale-up domain accepted."""

_DATA: Final = DATA / "published" / "subramanian2024.yaml"
_SUFFIXES: Final = (".yaml", ".yml", ".json")


@dataclass(frozen=True, kw_only=True)
class Transformer:
    """A stack of equal transformer layers: full attention, a plain MLP of width 4 e, no embedding and no head."""

    name: str
    """Display name."""
    l: int  # noqa: E741 - the paper's letter
    """Sequence length. [tokens]"""
    e: int
    """Embedding width."""
    h: int
    """Attention heads."""
    depth: int
    """Layers."""
    num_samples: float | None = None
    """Sequences of a whole training; gives the days to train."""

    def __post_init__(self) -> None:
        for name in ("l", "e", "h", "depth"):
            count_of(getattr(self, name), f"model {self.name!r}: {name}")
        if self.h > self.e:
            raise InputError(
                f"model {self.name!r} has {self.h} heads on a width of {self.e}",
                rule="a head has a channel or more",
                hint="lower h or raise e",
            )

    @property
    def f(self) -> int:
        """Hidden width of the MLP, 4 e."""
        return 4 * self.e

    @property
    def q(self) -> int:
        """Channels of one head."""
        return self.e // self.h


@dataclass(frozen=True, kw_only=True)
class System:
    """Accelerators in scale-up domains of equal size, joined by a slower network."""

    name: str
    """Display name."""
    matrix_flops: float
    """Peak of the matrix units. [FLOP/s]"""
    vector_flops: float
    """Peak of the vector units. [FLOP/s]"""
    hbm_bandwidth: float
    """Peak memory bandwidth. [bytes/s]"""
    hbm_capacity: float
    """Device memory. [bytes]"""
    nvlink_bandwidth: float
    """Bandwidth inside a scale-up domain, per accelerator and direction. [bytes/s]"""
    ib_bandwidth: float
    """Bandwidth between scale-up domains, per network adapter and direction. [bytes/s]"""
    nvlink_latency: float
    """Latency of a step inside a scale-up domain. [s]"""
    ib_latency: float
    """Latency of a step between scale-up domains. [s]"""
    nvlink_efficiency: float = 0.7
    """Achieved share of ``nvlink_bandwidth``."""
    ib_efficiency: float = 0.7
    """Achieved share of ``ib_bandwidth``."""
    nic_factor: float = 1.0
    """Network adapters per accelerator."""
    nvlink_size: int = 8
    """Accelerators of a scale-up domain."""

    def __post_init__(self) -> None:
        for name in KINDS:
            value = getattr(self, name)
            least_allowed = name.endswith("latency")
            if not (math.isfinite(value) and (value >= 0 if least_allowed else value > 0)):
                raise InputError(
                    f"system {self.name!r}: {name} is {shown(value)}",
                    rule=f"{name} is a number {'0 or more' if least_allowed else 'above 0'}",
                    hint=f"correct {name}",
                )
        count_of(self.nvlink_size, "nvs", most=MAX_DOMAIN)

    @property
    def fast_bandwidth(self) -> float:
        """Achieved bandwidth inside a scale-up domain. [bytes/s]"""
        return self.nvlink_bandwidth * self.nvlink_efficiency

    @property
    def slow_bandwidth(self) -> float:
        """Achieved bandwidth of one adapter between scale-up domains. [bytes/s]"""
        return self.ib_bandwidth * self.ib_efficiency


KINDS: Final[Mapping[str, Kind]] = {
    "matrix_flops": "flop rate",
    "vector_flops": "flop rate",
    "hbm_bandwidth": "bandwidth",
    "hbm_capacity": "bytes",
    "nvlink_bandwidth": "bandwidth",
    "ib_bandwidth": "bandwidth",
    "nvlink_latency": "time",
    "ib_latency": "time",
    "nvlink_efficiency": "fraction",
    "ib_efficiency": "fraction",
    "nic_factor": "count",
}
"""What each value of a system measures."""


def list_models() -> list[str]:
    """Names of the paper's models."""
    return list(_catalogue()["models"])


def load_model(given: object) -> Transformer:
    """A model of the paper by name, or a user's own from a file or a mapping. Raises ``InputError``."""
    if isinstance(given, Transformer):
        return given
    name, record = record_of("model", given, _catalogue()["models"])
    _check_fields("model", record, ("l", "e", "h", "depth"), optional=("num_samples",))
    counts = {key: count_of(record[key], f"model: {key}") for key in ("l", "e", "h", "depth")}
    raw = record.get("num_samples")
    samples: Any = raw.get("value") if isinstance(raw, Mapping) else raw
    num_samples = None if samples is None else parse_quantity(samples, "count", field="model: num_samples")
    return Transformer(name=name, **counts, num_samples=num_samples)


def load_system(given: object, nvlink_size: int | None = None) -> System:
    """A system of the paper by name or a user's own, scale-up domains of ``nvlink_size``. Raises ``InputError``."""
    if isinstance(given, System):
        size = given.nvlink_size if nvlink_size is None else count_of(nvlink_size, "nvs", most=MAX_DOMAIN)
        return replace(given, nvlink_size=size)
    name, record = record_of("system", given, _catalogue()["systems"])
    needed = tuple(key for key in KINDS if key not in _DEFAULTED)
    _check_fields("system", record, needed, optional=("nvlink_size", *_DEFAULTED))
    values = {key: _quantity(record[key], kind, f"system: {key}") for key, kind in KINDS.items() if key in record}
    size = nvlink_size if nvlink_size is not None else record.get("nvlink_size", 8)
    return System(name=name, **values, nvlink_size=count_of(size, "nvs", most=MAX_DOMAIN))


_DEFAULTED: Final = ("nvlink_efficiency", "ib_efficiency", "nic_factor")


def record_of(what: str, given: object, known: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Name and fields of a record given by name, by path or as a mapping. Raises ``InputError``."""
    if isinstance(given, str):
        folded = {name.lower(): name for name in known}
        if given.lower() in folded:
            return folded[given.lower()], known[folded[given.lower()]]
        if not given.lower().endswith(_SUFFIXES):
            raise UnknownNameError(what, f"{given!r:.80}"[1:-1], known, hint=f"one of {', '.join(known)}, or a file")
        given = read_document(Path(given))
    if not isinstance(given, Mapping):
        raise InputError(
            f"{what} is {given!r:.80}",
            rule=f"a {what} is a name or a record of its fields",
            hint=f"one of {', '.join(known)}",
        )
    record = {key: value for key, value in given.items() if key not in ("name", "base", "date", "sources")}
    base: Mapping[str, Any] = {}
    if "base" in given:
        _, base = record_of(what, str(given["base"]), known)
    name = f"{given.get('name', 'custom')!s:.80}"
    return name if name.isprintable() else repr(name), {**base, **record}


def count_of(value: object, field: str, *, least: int = 1, most: int = MAX_COUNT) -> int:
    """A whole number in range; 8.0 counts as 8. Raises ``InputError``."""
    is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if isinstance(value, bool) or not is_whole or not least <= value <= most:  # type: ignore[operator]  # a number
        raise InputError(
            f"{field} is {value!r:.80}",
            rule=f"{field} is a whole number from {least:,} to {most:,}",
            hint=f"correct {field}",
        )
    return int(value)  # type: ignore[call-overload]  # a number


def _quantity(raw: object, kind: Kind, field: str) -> float:
    """A value in SI units: with its unit as in data files, or a bare number in the default unit of its kind."""
    if isinstance(raw, Mapping):
        return to_si(raw.get("value"), str(raw.get("unit", "")), kind, field=field)  # type: ignore[arg-type]  # checked
    return parse_quantity(raw, kind, field=field)  # type: ignore[arg-type]  # checked there


def _check_fields(
    what: str, record: Mapping[str, Any], needed: tuple[str, ...], *, optional: tuple[str, ...] = ()
) -> None:
    for key in record:
        if key not in (*needed, *optional):
            raise UnknownNameError(
                f"field of a {what}", f"{key!s:.60}", (*needed, *optional), hint=f"fields: {', '.join(needed)}"
            )
    missing = [key for key in needed if key not in record]
    if missing:
        raise InputError(
            f"{what} has no {', '.join(missing)}",
            rule=f"a {what} has {', '.join(needed)}",
            hint=f"give {missing[0]}, or start from a known one with base",
        )


@cache
def _catalogue() -> dict[str, Any]:
    return shipped_document(_DATA)

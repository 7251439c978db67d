"""How a cluster is run for weeks: failures, restarts, checkpoints, price, energy and carbon; the defaults are data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, fields
from functools import cache
from typing import Any, Final, NamedTuple

from shardplan.base.errors import InputError
from shardplan.base.fields import about, check, dataclass, described
from shardplan.base.files import DATA, Document, shipped_document
from shardplan.base.units import format_bytes, format_time
from shardplan.inputs.cluster import Cluster
from shardplan.inputs.readers.overrides import GIVEN_BY_USER

MOST_TIME: Final = 1e8
LEAST_FAILURE_RATE: Final = 1e-6
"""Failures of 1,000 accelerators in a day below which they are ignored."""
FAR: Final = 1.25
"""Multiple of the largest published run above which its failure rate says little."""
UNITS: Final = {"GB/s": 1e9, "s": 1.0, "1": 1.0, "kg/kWh": 1.0}
"""SI units of the values in ``data/operations.yaml``; carbon stays in kg per kWh."""


@cache
def _shipped() -> Document:
    return shipped_document(DATA / "operations.yaml")


def _default(name: str) -> float:
    stated = _shipped()["values"][name]
    return float(stated["value"]) * UNITS[stated["unit"]]


def _default_of_data(text: str, **known: Any) -> Any:
    """A field whose default is in ``data/operations.yaml``, or follows from the run."""
    return field(default=None, metadata=about(text, **known))


_TIME: Final[dict[str, Any]] = {"least": 0, "most": MOST_TIME, "unit": "s", "metavar": "TIME", "is_rare": True}
_FACTOR: Final[dict[str, Any]] = {"least": 1, "most": 10, "includes_least": True, "is_rare": True}


@dataclass(frozen=True, kw_only=True)
class Operations:
    """How the cluster is run. None is the default of ``data/operations.yaml``, or follows from the run."""

    failure_rate: float | None = _default_of_data(
        "Unexpected interruptions per 1,000 accelerators and day, at any size; 0 for none. Default: by size, from two "
        "published runs.",
        least=0, most=1e6, includes_least=True,
    )  # fmt: skip
    """Unexpected interruptions per 1,000 accelerators and day."""
    detection_time: float | None = _default_of_data(
        "From a failure to the restart: 7min.", **_TIME, includes_least=True
    )
    """From a failure to the restart. [s]"""
    start_up_time: float | None = _default_of_data(
        "From launch to the first step, without reading the checkpoint: 8min.", **_TIME, includes_least=True
    )
    """From launch to the first step. [s]"""
    checkpoint_interval: float | None = _default_of_data(
        "Training time between two checkpoints: 30min. Default: the best, at least 5min.", **_TIME
    )
    """Training between two checkpoints. [s]"""
    checkpoint_bandwidth: float | None = _default_of_data(
        "Bandwidth of checkpoints, written and read, per accelerator: 0.15GB/s.",
        least=0, most=1e15, unit="bytes/s", metavar="VALUE", is_rare=True,
    )  # fmt: skip
    """Bandwidth for writing and reading checkpoints, per accelerator. [bytes/s]"""
    spares: int | None = _default_of_data(
        "Spare accelerators, which are paid for and replace failed ones. Default: 0 (the answer names a number).",
        least=0, most=10**7,
    )  # fmt: skip
    """Accelerators that wait to replace failed ones."""
    repair_time: float | None = _default_of_data("Time until a failed node is back: 24h.", **_TIME, includes_least=True)
    """Time until a failed node is back. [s]"""
    currency: str = field(
        default="USD", metadata=about("Currency of the price and of --money.", metavar="NAME", is_rare=True)
    )
    """Currency of the price, if it is given; public quotes are in USD."""
    power_share: float | None = _default_of_data(
        "Power of an accelerator under load over its limit.", least=0, most=2, is_rare=True
    )
    """Power of an accelerator under load over its limit."""
    node_overhead: float | None = _default_of_data("Power of a node over that of its accelerators.", **_FACTOR)
    """Power of a node over that of its accelerators."""
    pue: float | None = _default_of_data("Power of the data centre over that of its nodes.", **_FACTOR)
    """Power of the data centre over that of its nodes."""
    carbon: float | None = _default_of_data(
        "Carbon intensity of the grid. [kg/kWh]", least=0, most=10, includes_least=True
    )
    """Carbon dioxide of a kilowatt hour. [kg/kWh]"""

    def __post_init__(self) -> None:
        """Checks every value. Raises InputError."""
        check(self)
        if self.failure_rate and self.failure_rate < LEAST_FAILURE_RATE:
            raise InputError(
                f"--failure-rate is {self.failure_rate:g}",
                rule=f"--failure-rate is 0, or {LEAST_FAILURE_RATE:g} at least",
                hint=f"set --failure-rate to 0 if nothing fails, or to {LEAST_FAILURE_RATE:g} at least",
            )

    def value(self, name: str) -> float:
        """A field, or its default if there is one."""
        given = getattr(self, name)
        return _default(name) if given is None else float(given)

    def extrapolation(self, num_accelerators: int) -> str | None:
        """A warning if far more accelerators run than in any published run that failure rates come from."""
        largest = interruptions()[-1].num_accelerators
        if self.failure_rate is not None or num_accelerators <= FAR * largest:
            return None
        highest = _shipped()["highest_failure_rate"]
        return (
            f"the failure rate is extrapolated from runs of at most {largest:,} accelerators; the highest published "
            f"rate is {highest['value']:g} {highest['unit']} ({highest['source']})"
        )

    def assumptions(self) -> Iterator[str]:
        """Every default that is used, with its source."""
        if self.failure_rate is None:
            points = "; ".join(f"{each.source}" for each in interruptions())
            yield f"failures by the number of accelerators, from two runs ({points})"
        for each in fields(self):
            if getattr(self, each.name) is None and each.name in _shipped()["values"]:
                stated = _shipped()["values"][each.name]
                mark = f", {stated['mark']}" if "mark" in stated else ""
                yield f"{each.name.replace('_', ' ')} {_text(each.name)}: {stated['source']}{mark}"


def _text(name: str) -> str:
    value = _default(name)
    match described(Operations)[name].about.unit:
        case "s":
            return format_time(value)
        case "bytes/s":
            return f"{format_bytes(value)}/s"
    return f"{value:g}"


class Interruptions(NamedTuple):
    """How often a published run was interrupted."""

    num_accelerators: int
    per_second: float
    source: str


@cache
def interruptions() -> tuple[Interruptions, ...]:
    """The published runs that failure rates come from, in order of size."""
    return tuple(
        Interruptions(each["accelerators"], each["count"] / (each["days"] * 86400), each["source"])
        for each in _shipped()["interruptions"]
    )


JOULES_PER_KWH: Final = 3.6e6
CURRENCY: Final = "USD"
"""Currency of the public quotes."""


class HourlyPrice(NamedTuple):
    """Price of one accelerator for an hour."""

    per_hour: float
    currency: str
    source: str
    """Its source, for the assumptions; empty if the user gave it."""


def price_of(cluster: Cluster, operations: Operations) -> HourlyPrice | None:
    """The given price, or a public quote for the node or else the accelerator; None if none is known."""
    price = cluster.accelerator_price
    if price is None:
        return None
    if cluster.price_source == GIVEN_BY_USER:
        return HourlyPrice(price, operations.currency, "")
    return HourlyPrice(price, CURRENCY, cluster.price_source)


def needed_price(cluster: Cluster, operations: Operations) -> HourlyPrice:
    """The price. Raises InputError if none is given or known."""
    price = price_of(cluster, operations)
    if price is None:
        raise InputError(
            f"no price of {cluster.accelerator.name} is known",
            rule="money is counted with a price",
            hint="give the price of one accelerator for an hour with --price",
        )
    return price


class Energy(NamedTuple):
    """Energy of a run."""

    total: float
    """Energy of the data centre. [kWh]"""
    accelerators: float
    """Energy of the accelerators alone, which model cards state. [kWh]"""


def energy_of(cluster: Cluster, num_accelerators: int, wall_time: float, operations: Operations) -> Energy | None:
    r"""Energy of working accelerators: :math:`N\,t\,P\,f`, for the data centre times node overhead and PUE. [kWh]

    None if the power of the accelerator is not known. Spare accelerators and storage are not counted.
    """
    power = cluster.accelerator.power
    if power is None:
        return None
    alone = num_accelerators * wall_time * power * operations.value("power_share") / JOULES_PER_KWH
    overhead = operations.value("node_overhead") * operations.value("pue")
    return Energy(alone * overhead, alone)


def carbon_of(energy: float, operations: Operations) -> float:
    """Carbon dioxide of an amount of energy in kWh. [t]"""
    return energy * operations.value("carbon") / 1000

"""Price, energy and carbon of accelerators that run for a time."""

from __future__ import annotations

from typing import Final, NamedTuple

from shardplan.decisions.operations import Operations
from shardplan.errors import InputError
from shardplan.inputs.cluster import Cluster
from shardplan.inputs.readers.overrides import GIVEN_BY_USER

JOULES_PER_KWH: Final = 3.6e6
CURRENCY: Final = "USD"
"""Of the public quotes."""


class HourlyPrice(NamedTuple):
    """Of one accelerator for an hour."""

    per_hour: float
    currency: str
    source: str
    """Where it comes from, for the assumptions; empty where the user gave it."""


def price_of(cluster: Cluster, operations: Operations) -> HourlyPrice | None:
    """The price that was given, or a public quote of the node or else of the accelerator; None where none is known."""
    price = cluster.accelerator_price
    if price is None:
        return None
    if cluster.price_source == GIVEN_BY_USER:
        return HourlyPrice(price, operations.currency, "")
    return HourlyPrice(price, CURRENCY, cluster.price_source)


def needed_price(cluster: Cluster, operations: Operations) -> HourlyPrice:
    """The price. Raises InputError where none is given or known."""
    price = price_of(cluster, operations)
    if price is None:
        raise InputError(
            f"no price of {cluster.accelerator.name} is known",
            rule="money is counted with a price",
            hint="give the price of one accelerator for an hour with --price",
        )
    return price


class Energy(NamedTuple):
    """What a run takes."""

    total: float
    """Of the data centre. [kWh]"""
    accelerators: float
    """Of the accelerators alone, which is what model cards state. [kWh]"""


def energy_of(cluster: Cluster, num_accelerators: int, wall_time: float, operations: Operations) -> Energy | None:
    r"""Energy of accelerators at work: :math:`N\,t\,P\,f`, for the data centre times node overhead and PUE. [kWh]

    None where the power of the accelerator is not known. Spare accelerators and the storage are not counted.
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

"""Money, energy and carbon by hand, and what model cards state."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shardplan.base.errors import InputError
from shardplan.decide.operations import Operations, carbon_of, energy_of, needed_price, price_of
from shardplan.inputs.readers.catalog import load_cluster
from shardplan.inputs.readers.overrides import override

CLUSTER = load_cluster("dgx-h100")
HOUR = 3600.0
CARD = Operations(node_overhead=1, pue=1)
"""As model cards count: the power limit of the accelerators alone."""


@pytest.mark.parametrize(
    ("hours", "power", "megawatt_hours"),
    [(30.84e6, 700, 21588), (1720320, 400, 688.1), (1082990, 400, 433)],
    ids=["Llama 3.1 405B, model card", "Llama 2 70B, model card", "BLOOM 176B, arXiv 2211.02001"],
)
def test_published_energy_follows_from_hours_and_power(hours: float, power: float, megawatt_hours: float) -> None:
    cluster = replace(CLUSTER, accelerator=replace(CLUSTER.accelerator, power=power))
    found = energy_of(cluster, 1, hours * HOUR, CARD)
    assert found is not None
    assert found.total / 1000 == pytest.approx(megawatt_hours, rel=0.001)


def test_the_data_centre_takes_more_than_its_accelerators() -> None:
    found = energy_of(CLUSTER, 8, HOUR, Operations(node_overhead=1.5, pue=1.2, power_share=0.5))
    assert found is not None
    assert found.accelerators == pytest.approx(8 * 0.7 * 0.5)
    assert found.total == pytest.approx(found.accelerators * 1.8)


def test_carbon_of_llama_31_405b_is_that_of_its_card() -> None:
    assert carbon_of(30.84e6 * 0.7, Operations()) == pytest.approx(8930, rel=0.002)
    assert carbon_of(433e3, Operations(carbon=0.057)) == pytest.approx(25, rel=0.02)  # BLOOM, in France


def test_no_power_no_energy() -> None:
    assert energy_of(replace(CLUSTER, accelerator=replace(CLUSTER.accelerator, power=None)), 8, HOUR, CARD) is None


def test_a_price_that_is_given_wins_then_the_nodes_then_the_accelerators() -> None:
    given = override(replace(CLUSTER, price_per_hour=80.0), {"price": 2.0})
    assert price_of(given, Operations(currency="EUR")) == (2, "EUR", "")
    of_node = price_of(replace(CLUSTER, price_per_hour=80.0), Operations())
    assert of_node is not None
    assert of_node[:2] == (10.0, "USD")
    of_part = price_of(CLUSTER, Operations())
    assert of_part is not None
    assert of_part.per_hour == CLUSTER.accelerator.price_per_hour
    assert of_part.source


def test_money_without_a_price_is_refused() -> None:
    unpriced = replace(CLUSTER, price_per_hour=None, accelerator=replace(CLUSTER.accelerator, price_per_hour=None))
    assert price_of(unpriced, Operations()) is None
    with pytest.raises(InputError, match="no price of h100-sxm-80gb is known"):
        needed_price(unpriced, Operations())

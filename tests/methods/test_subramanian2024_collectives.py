"""The network model of arXiv 2410.00273 beside collectives measured on Perlmutter (its ``comm_validation``)."""

from __future__ import annotations

import pytest

from shardplan.methods.subramanian2024.figures import figure, measured_collectives, model_over_measured
from shardplan.methods.subramanian2024.inputs import corrections_of

MEDIANS = {
    (row["collective"], row["gpus_per_node"], row["nodes"], row["size"]): row["median"]
    for row in model_over_measured(list(measured_collectives()))
}
LARGE = "from 256 MiB"


def test_every_measurement_has_its_modelled_time() -> None:
    rows = figure("F8").rows
    assert len(rows) == 1329
    assert {row["num_nodes"] for row in rows} == {2**power for power in range(9)}
    for row in rows:
        assert row["num_gpus"] == row["num_nodes"] * row["gpus_per_node"]
        assert row["model_over_measured"] == pytest.approx(row["model_s"] / row["measured_s"], rel=1e-12)
        assert 32 * 1024 <= row["size_bytes"] <= 8 * 1024**3
        assert 1e-6 < row["measured_s"] < 10


def test_one_measurement_by_hand() -> None:
    """All-gather of 8 GiB over 8 nodes of 4: nodes - 1 slow steps, 24 fast ones, 31/32 of the volume on 4 adapters."""
    wanted = {"collective": "all_gather", "num_nodes": 8, "gpus_per_node": 4, "size_bytes": 8 * 1024**3}
    (row,) = (row for row in figure("F8").rows if wanted.items() <= row.items())
    expected = 7 * 5e-6 + 24 * 2.5e-6 + 31 / 32 * 8 * 1024**3 / (4 * 0.7 * 25e9)
    assert row["model_s"] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("collective", ["all_gather", "reduce_scatter"])
def test_large_messages_are_predicted_where_the_network_is_full(collective: str) -> None:
    assert 0.92 <= MEDIANS[collective, 4, "several", LARGE] <= 1.02
    assert 0.95 <= MEDIANS[collective, 2, "several", LARGE] <= 0.97
    assert 0.78 <= MEDIANS[collective, 1, "several", LARGE] <= 0.88
    assert 0.45 <= MEDIANS[collective, 4, "several", "2 to 128 MiB"] <= 0.85  # the model is too fast in the middle


def test_the_measurements_show_the_missing_factor_of_an_all_reduce() -> None:
    corrected = {
        (row["gpus_per_node"], row["nodes"]): row["median"]
        for row in model_over_measured(list(measured_collectives(corrected=corrections_of("Q3"))))
        if (row["collective"], row["size"]) == ("all_reduce", LARGE)
    }
    assert MEDIANS["all_reduce", 4, "one", LARGE] == pytest.approx(0.53, abs=0.005)
    assert corrected[4, "one"] == pytest.approx(1.06, abs=0.01)
    assert MEDIANS["all_reduce", 1, "several", LARGE] == pytest.approx(0.40, abs=0.005)
    assert corrected[1, "several"] == pytest.approx(0.80, abs=0.01)
    assert corrected[4, "several"] == MEDIANS["all_reduce", 4, "several", LARGE]


def test_a_mesh_of_links_is_slower_than_the_model_where_two_of_a_node_talk() -> None:
    for collective in ("all_gather", "reduce_scatter"):
        assert MEDIANS[collective, 2, "one", LARGE] == pytest.approx(0.28, abs=0.03)

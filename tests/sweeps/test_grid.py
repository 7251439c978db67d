"""Grids: what a file may say, how many questions it makes, and what is refused before anything is asked."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardplan.base.errors import InputError
from shardplan.decide.sweeps.fields import values_of
from shardplan.decide.sweeps.grid import SweepGrid, check_names, grid_of, question_at

LEAST: dict[str, Any] = {"model": "llama-3.2-1b", "cluster": "dgx-h100", "gpus": 8}


@pytest.mark.parametrize(
    ("given", "values"),
    [
        (8, (8,)),
        ([8, 16], (8, 16)),
        ({"from": 64, "to": 4096, "factor": 4}, (64, 256, 1024, 4096)),
        ({"from": 8, "to": 20, "step": 4}, (8, 12, 16, 20)),
        ({"from": 1, "to": 100, "points": 3, "scale": "log"}, (1, 10, 100)),
        ({"from": 25, "to": 75, "points": 3, "unit": "GB/s"}, ("25 GB/s", "50 GB/s", "75 GB/s")),
    ],
)
def test_values_of_a_field(given: object, values: tuple[object, ...]) -> None:
    assert values_of("gpus", given) == values


@given(first=st.integers(1, 1000), factor=st.integers(2, 9), steps=st.integers(0, 9), points=st.integers(2, 50))
def test_ranges_hold_both_ends(first: int, factor: int, steps: int, points: int) -> None:
    last = first * factor**steps
    assert values_of("gpus", {"from": first, "to": last, "factor": factor})[-1] == last
    numbers = values_of("gpus", {"from": first, "to": last, "points": points, "scale": "log"})
    assert (len(numbers), numbers[0], numbers[-1]) == (points, first, last)


def test_a_grid_is_the_product_of_its_axes_and_the_last_changes_fastest() -> None:
    grid = grid_of(
        {"grid": LEAST | {"gpus": [8, 16]}, "zip": {"sequence_length": ["1k", 2048], "precision": ["bf16", "fp8"]}}
    )
    assert grid.num_questions == 4
    jobs = [
        (point["num_accelerators"], point["sequence_length"], point["precision"]) for point in map(grid.point, range(4))
    ]
    assert jobs == [(8, 1024, "bf16"), (8, 2048, "fp8"), (16, 1024, "bf16"), (16, 2048, "fp8")]


def test_quantities_are_in_the_units_of_the_command_line() -> None:
    point = grid_of(LEAST | {"inter_node_bandwidth": 25, "memory": "141GB", "inter_node_latency": "5us"}).point(0)
    assert (point["inter_node_bandwidth"], point["memory"], point["inter_node_latency"]) == (25e9, 141e9, 5e-6)
    assert question_at(point).question.cluster.accelerator.memory_bytes == 141e9


def test_every_question_is_asked_once_and_those_that_share_most_follow_each_other() -> None:
    grid = grid_of(LEAST | {"memory": [40, 80], "gpus": [8, 16], "model": ["llama-3.2-1b", "llama-3.1-8b"]})
    order = [int(number) for number in grid.work_order()]
    assert sorted(order) == list(range(8))
    points = [grid.point(number) for number in order]
    assert [point["model"] for point in points] == ["llama-3.2-1b"] * 4 + ["llama-3.1-8b"] * 4
    assert [point["memory"] for point in points] == [40e9, 80e9] * 4
    assert grid.group_size == 2


def test_a_grid_is_what_its_record_says() -> None:
    grid = grid_of(LEAST | {"limit.pp": [[1, 2], [4]], "software.kernels": "eager", "memory": [40, 80]})
    assert SweepGrid.from_record(grid.record()) == grid
    assert pickle.loads(pickle.dumps(grid)).fields == grid.fields  # noqa: S301  # our own


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"zebra": 3}, "unknown field of a grid"),
        ({"inter_node_bandwith": 3}, "did you mean inter_node_bandwidth"),
        ({"tp": [1, 2]}, "field of the plan"),
        ({"plan": "best"}, "fastest or recommended"),
        ({"peak_flops": "989"}, "peaks by number format"),
        ({"limit.tpp": [1]}, "unknown field of the plan"),
        ({"software.kernel": "eager"}, "did you mean kernels"),
        ({"gpus": []}, "no values"),
        ({"gpus": [0]}, "num_accelerators is 0"),
        ({"gpus": {"from": 8, "to": 4, "step": 1}}, "from"),
        ({"gpus": {"from": 8, "too": 4, "step": 1}}, "unknown key"),
        ({"precision": "bf61"}, "unknown precision"),
        ({"memory": [True]}, "memory is True"),
        ({"inter_node_bandwidth": "25 GB"}, "inter_node_bandwidth"),
        ({"num_accelerators": 8}, "twice"),
        ({"nodes": 1}, "gpus and nodes"),
        ({"gpus": {"from": 1, "to": 1e12, "step": 1}}, "at most"),
    ],
)
def test_wrong_grids_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        grid_of(LEAST | changes)


def test_a_grid_of_a_million_millions_is_counted_and_refused() -> None:
    many = {"from": 1, "to": 1000, "step": 1}
    with pytest.raises(InputError, match="1,000,000,000,000 questions"):
        grid_of(LEAST | {"gpus": many, "memory": many, "inter_node_bandwidth": many, "memory_bandwidth": many})


@pytest.mark.parametrize("wanting", ["model", "cluster", "gpus"])
def test_what_every_question_needs_is_asked_for(wanting: str) -> None:
    with pytest.raises(InputError, match=wanting):
        grid_of({name: value for name, value in LEAST.items() if name != wanting})


@pytest.mark.parametrize(
    "document", [{}, {"grid": 3}, {"grid": LEAST, "zap": 1}, {"zip": {"gpus": [1, 2], "memory": [1, 2, 3]}}]
)
def test_other_documents_are_refused(document: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        grid_of(document)


@pytest.mark.parametrize("field", ["model", "cluster", "stack", "profile", "accelerator"])
def test_unknown_names_are_found_before_anything_is_asked(field: str) -> None:
    known = [LEAST[field]] if field in LEAST else []
    with pytest.raises(InputError, match="zebra"):
        check_names(grid_of(LEAST | {field: [*known, "zebra"]}))

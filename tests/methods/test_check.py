"""Reference files recomputed: what counts as a difference, and what is no reference file."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shardplan.base.errors import InputError
from shardplan.methods.base import Case
from shardplan.methods.calculator.method import Calculator
from shardplan.methods.catalogue import load_method
from shardplan.methods.check import TOLERANCE, ZERO_TOLERANCE, CaseCheck, check_file, check_text, compare

DATA = Path(__file__).parent / "data"


def checked(expected: dict[str, Any], computed: dict[str, Any]) -> CaseCheck:
    return compare(Case(name="case", expected=expected, computed=computed))


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("calculator.json", "calculator"),
        ("searcher.json", "searcher"),
        ("data_movement.json", "data-movement"),
    ],
)
def test_each_reference_file_finds_its_method_and_passes(name: str, method: str) -> None:
    found = check_file(DATA / name)
    assert (found.method, found.passed, found.differing) == (method, True, ())
    assert found.worst_relative <= 1e-15
    assert found.label.endswith(name)
    assert found.worst_case in found.cases


def test_what_agrees_is_counted() -> None:
    case = checked({"a": 1.5, "b": {"c": [0, "word", None, True]}}, {"a": 1.5, "b": {"c": [0.0, "word", None, True]}})
    assert (case.num_values, case.passed, case.worst_relative_at) == (5, True, "")


def test_the_worst_relative_difference_says_where_it_is() -> None:
    case = checked({"rows": [{"t": 2.0}, {"t": -4.0}]}, {"rows": [{"t": 2.0 * (1 + 1e-12)}, {"t": -4.0 - 1e-11}]})
    assert case.worst_relative == pytest.approx(2.5e-12, rel=1e-3)
    assert case.worst_relative_at == "rows[1].t"
    assert case.passed


@pytest.mark.parametrize("factor", [0.99, 1.01])
def test_the_tolerance_is_relative_and_absolute_where_the_reference_is_zero(factor: float) -> None:
    assert checked({"t": 1e6}, {"t": 1e6 * (1 + TOLERANCE * factor)}).passed == (factor < 1)
    case = checked({"t": 0.0}, {"t": ZERO_TOLERANCE * factor})
    assert case.passed == (factor < 1)
    assert (case.worst_relative, case.worst_at_zero) == (0.0, ZERO_TOLERANCE * factor)


@pytest.mark.parametrize(
    ("expected", "computed"),
    [
        ({"best": {"tp": 2}}, {"best": {"tp": 4}}),  # degrees are the same or they are not
        ({"best": None}, {"best": {"tp": 4}}),
        ({"best": {"tp": 4}}, {"best": None}),
        ({"fits": True}, {"fits": False}),
        ({"fits": True}, {"fits": 1}),
        ({"bound": "flop"}, {"bound": "hbm"}),
        ({"rows": [1.0, 2.0]}, {"rows": [1.0]}),
        ({"t": 1.0}, {}),
        ({"t": 1.0}, {"t": "1.0"}),
    ],
)
def test_another_recommendation_or_word_differs(expected: dict[str, Any], computed: dict[str, Any]) -> None:
    case = checked(expected, computed)
    assert not case.passed
    assert len(case.differing) == 1


@pytest.mark.parametrize(
    ("expected", "computed"),
    [(1.0, math.nan), (math.nan, 1.0), (math.nan, math.nan), (0.0, math.nan), (1.0, math.inf), (10**400, 1.0)],
)
def test_what_is_no_number_never_passes(expected: float, computed: float) -> None:
    assert not checked({"t": expected}, {"t": computed}).passed


def test_a_changed_figure_and_another_recommendation_are_found(tmp_path: Path) -> None:
    document = json.loads((DATA / "calculator.json").read_text())
    document["cases"][0]["rows"][3]["memory_per_gpu"] *= 1 + 1e-8
    document["cases"][1]["recommended"]["pp"] = 8
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(document))
    found = check_file(path)
    assert not found.passed
    assert found.cases[0].worst_relative == pytest.approx(1e-8, rel=1e-6)
    assert found.cases[0].worst_relative_at == "rows[3].memory_per_gpu"
    assert found.differing == (f"{document['cases'][1]['name']}: recommended.pp is 8, computed 16",)
    assert found.worst_case == found.cases[1]
    assert found.cases[2].passed


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "is empty"),
        ("{", "is not JSON"),
        ("[1]", "holds a list"),
        ('{"a": 1, "a": 2}', "repeats the field"),
        ('{"cases": []}', "not a reference file"),
        ('{"cases": [{"hardware": 3}]}', "model is missing"),
        ('{"cases": [{"cluster": {}, "model": {}}]}', "cluster.n_node is missing"),
        (b"\xff\xfe\x00", "UTF-8"),
    ],
)
def test_what_is_no_reference_file_is_refused(tmp_path: Path, content: str | bytes, why: str) -> None:
    path = tmp_path / "case.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=why):
        check_file(path)


def test_paths_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        check_file(tmp_path / "none.csv")
    with pytest.raises(InputError, match="it is a directory"):
        check_file(tmp_path)
    with pytest.raises(InputError, match="no null characters"):
        check_file(Path("a\0b"))


def test_cases_without_results_are_no_reference() -> None:
    case = {"model": {"params_billions": 1}, "hardware": {"num_gpus": 1, "memory_per_gpu_gb": 80}}
    with pytest.raises(InputError, match="no published figure"):
        check_text(json.dumps({"cases": [case]}), "mine")


def test_a_case_is_the_method_s_own_answer() -> None:
    cases = load_method("searcher").cases((DATA / "searcher.json").read_text())
    assert isinstance(cases, Iterator)
    for case in cases:
        assert set(case.expected) <= set(case.computed)


def test_only_the_given_methods_are_asked() -> None:
    with pytest.raises(InputError, match="any method"):
        check_file(DATA / "searcher.json", [Calculator()])

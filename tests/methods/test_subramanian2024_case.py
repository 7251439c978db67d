"""Cases in the method's own terms: searches, single configurations, operators, and what is refused."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from shardplan.base.errors import InputError, ShardplanError
from shardplan.methods.subramanian2024.inputs import load_model, load_system
from shardplan.methods.subramanian2024.iteration import STATISTICS
from shardplan.methods.subramanian2024.method import Subramanian2024

METHOD = Subramanian2024()
SEARCH = {"strategy": "1d", "model": "gpt3_1T", "system": "H200", "nvs": 4, "gpus": 2048}
OWN_MODEL = {"l": 4096, "e": 8192, "h": 64, "depth": 80}
OWN_SYSTEM = {
    "name": "mine",
    "matrix_flops": 989.4,
    "vector_flops": "133.8 TFLOP/s",
    "hbm_bandwidth": {"value": 4800, "unit": "GB/s", "source": "data sheet"},
    "hbm_capacity": 141,
    "nvlink_bandwidth": 450,
    "ib_bandwidth": "400 Gb/s",
    "nvlink_latency": "2.5us",
    "ib_latency": "5us",
}


def test_a_search_gives_what_the_notebook_prints() -> None:
    """stats.ipynb: gpt3_1T on 2,048 H200 in domains of four, 1D."""
    found = METHOD.answer(SEARCH)
    best = found["configurations"][0]
    assert (best["dp"], best["tp"], best["pp"], best["mbs"]) == (16, 4, 32, 1)
    assert (best["nv_tp"], best["nv_dp"], best["nv_pp"]) == (4, 1, 1)
    assert best["throughput"] == pytest.approx(102.463805377367, rel=1e-12)
    assert best["memory_GB"] == pytest.approx(124.64239104, rel=1e-12)
    assert best["t"] == pytest.approx(39.97509154490915, rel=1e-12)
    assert best["training_days"] == pytest.approx(488_281_250 / 102.463805377367 / 86400)
    assert [one["rank"] for one in found["configurations"]] == list(range(1, 11))
    assert set(STATISTICS) < set(best)
    assert json.loads(json.dumps(found)) == found


@pytest.mark.parametrize("strategy", ["1d", "2d-seqp", "2d"])
@pytest.mark.parametrize("corrected", [False, True])
def test_operators_add_up_to_the_statistics(strategy: str, *, corrected: bool) -> None:
    found = METHOD.answer({**SEARCH, "strategy": strategy, "explain": True, "corrected": corrected, "gpus": 512})
    best, passes = found["configurations"][0], ("forward", "backward")
    count = 4096 // best["dp"] // best["mbs"] * 128 // best["pp"]
    for name, part, unit in (
        ("t_comp", "compute_s", 1),
        ("t_mem", "exposed_memory_s", 1),
        ("t_tp_comm", "communication_s", 1),
        ("flops_per_gpu", "flops", 1e12),
    ):
        total = math.fsum(operator[direction][part] for operator in found["operators"] for direction in passes)
        assert total * count / unit == pytest.approx(best[name], rel=1e-12)
    assert len(found["operators"]) == 14
    weights = sum(operator["weight_bytes"] for operator in found["operators"]) * 128 // best["pp"]
    assert weights / 1e9 == pytest.approx(best["wts_mem"], rel=1e-9)
    fc1 = found["operators"][0]
    assert fc1["forward"]["time_s"] == pytest.approx(
        sum(fc1["forward"][part] for part in ("compute_s", "exposed_memory_s", "communication_s"))
    )


def test_collectives_of_an_operator_are_named() -> None:
    fields = {"model": "gpt3_1T", "system": "B200", "nvs": 8, "tp1": 8, "tp2": 4, "pp": 1, "dp": 512, "mbs": 8, "nb": 8}
    found = METHOD.answer({**fields, "strategy": "2d", "explain": True})
    calls = found["operators"][0]["backward"]["collectives"]
    assert [(call["kind"], call["group"], call["size"]) for call in calls] == [
        ("broadcast", "tp2", 4), ("reduce", "tp1", 8), ("broadcast", "tp1", 8), ("reduce", "tp2", 4),
    ]  # fmt: skip
    assert {call["rounds"] for call in calls} == {8}
    assert found["configurations"][0]["t"] == pytest.approx(6.54, abs=0.005)  # figure F5, B


def test_a_published_row_is_a_case() -> None:
    path = Path(__file__).parent / "data" / "subramanian2024_top1.csv"
    header, first, *_ = path.read_text().splitlines()
    row: dict[str, Any] = {}
    for name, text in zip(header.split(","), first.split(","), strict=True):
        row[name] = text if name in ("strategy", "model", "gpu") else json.loads(text or "null")
    (priced,) = METHOD.answer(row)["configurations"]
    assert priced["throughput"] == pytest.approx(row["throughput"], rel=1e-14)
    for name in STATISTICS:
        assert priced[name] == pytest.approx(row[name], rel=1e-14, abs=1e-12)


def test_a_configuration_without_a_place_gets_its_best_one() -> None:
    best = METHOD.answer(SEARCH)["configurations"][0]
    degrees = {name: best[name] for name in ("tp", "pp", "mbs")}
    found = METHOD.answer({**SEARCH, **degrees})
    assert found["configurations"] == [best]


def test_where_nothing_fits_the_least_memory_is_shown() -> None:
    found = METHOD.answer({"strategy": "1d", "model": "vit_era5", "system": "B200", "nvs": 8, "gpus": 16384})
    (only,) = found["configurations"]
    assert found["num_fitting"] == 0
    assert found["num_candidates"] > 0
    assert not only["fits"]
    assert only["memory_GB"] == pytest.approx(196.65, abs=0.005)


def test_models_and_systems_of_ones_own(tmp_path: Path) -> None:
    found = METHOD.answer(
        {**SEARCH, "model": OWN_MODEL, "system": OWN_SYSTEM, "gpus": 96, "nvs": 12, "global_batch_size": 768}
    )
    assert found["gpu"] == "mine"
    assert found["nvs"] == 12
    assert "training_days" not in found["configurations"][0]
    path = tmp_path / "model.yaml"
    path.write_text("l: 4096\ne: 8192\nh: 64\ndepth: 80\nname: custom\n")
    again = METHOD.answer(
        {**SEARCH, "model": str(path), "system": OWN_SYSTEM, "gpus": 96, "nvs": 12, "global_batch_size": 768}
    )
    assert again == found


def test_a_system_may_start_from_a_published_one() -> None:
    known, own = load_system("B200", 8), load_system({"base": "B200", "hbm_capacity": "384 GB", "nvlink_size": 16})
    assert own.hbm_capacity == 2 * known.hbm_capacity
    assert own.nvlink_size == 16
    assert own.matrix_flops == known.matrix_flops
    assert load_system(known, 64).nvlink_size == 64
    assert load_model({"base": "gpt3", "depth": 48}).depth == 48


def test_values_of_a_user_mean_what_they_mean_in_the_paper() -> None:
    own = load_system(OWN_SYSTEM, 8)
    assert own == load_system({"base": "H200", "name": "mine"}, 8)


def test_systems_of_the_paper_by_any_case_of_letters() -> None:
    assert load_system("b200-NEXT").hbm_capacity == 384e9
    assert load_model("GPT3_1t").name == "gpt3_1T"


HOSTILE: list[dict[str, Any]] = [
    {},
    {"strategy": "3d"},
    {"strategy": None},
    {"strategy": 1},
    {"model": "gpt5"},
    {"model": 3},
    {"model": None},
    {"model": []},
    {"model": {}},
    {"model": {**OWN_MODEL, "e": 0}},
    {"model": {**OWN_MODEL, "e": -8}},
    {"model": {**OWN_MODEL, "e": 1e300}},
    {"model": {**OWN_MODEL, "l": float("nan")}},
    {"model": {**OWN_MODEL, "h": "64"}},
    {"model": {**OWN_MODEL, "h": 9000}},
    {"model": {**OWN_MODEL, "depth": True}},
    {"model": {**OWN_MODEL, "layers": 3}},
    {"model": {**OWN_MODEL, "num_samples": "many"}},
    {"model": {"base": "gpt9"}},
    {"model": "missing.yaml"},
    {"model": "\x00.json"},
    {"system": "H300"},
    {"system": {}},
    {"system": {**OWN_SYSTEM, "hbm_capacity": 0}},
    {"system": {**OWN_SYSTEM, "hbm_capacity": -1}},
    {"system": {**OWN_SYSTEM, "hbm_capacity": "80 GB/s"}},
    {"system": {**OWN_SYSTEM, "matrix_flops": float("inf")}},
    {"system": {**OWN_SYSTEM, "ib_latency": 5}},
    {"system": {**OWN_SYSTEM, "nvlink_efficiency": 1.5}},
    {"system": {**OWN_SYSTEM, "nvlink_efficiency": 0}},
    {"system": {**OWN_SYSTEM, "nvlink_size": 0}, "nvs": None},
    {"system": {**OWN_SYSTEM, "nic_factor": 0}},
    {"system": {**OWN_SYSTEM, "hbm_bandwidth": {"unit": "GB/s"}}},
    {"system": {**OWN_SYSTEM, "hbm_bandwidth": [1]}},
    {"system": {**OWN_SYSTEM, "color": "red"}},
    {"nvs": 0},
    {"nvs": 2.5},
    {"nvs": "8"},
    {"nvs": 10**30},
    {"gpus": 0},
    {"gpus": None},
    {"gpus": True},
    {"gpus": 10**9},
    {"gpus": float("nan")},
    {"gpus": 4, "n_gpus": 8},
    {"gpus": 7},
    {"global_batch_size": 0},
    {"global_batch_size": -4096},
    {"top": 0},
    {"top": 10**9},
    {"corrected": "Q4"},
    {"corrected": 7},
    {"corrected": [1]},
    {"explain": "yes"},
    {"unknown": 1},
    {"dp": 3},
    {"dp": 0},
    {"tp": 7},
    {"tp": 4, "pp": 3},
    {"tp": 4, "pp": 32, "mbs": 3},
    {"tp": 4, "pp": 32, "nb": 4},
    {"tp": 4, "tp2": 2},
    {"tp": 4, "pp": 32, "nv_tp": 3},
    {"tp": 16, "pp": 32, "nv_tp": 16},
    {"tp": 4, "pp": 32, "dp": 8},
    {"strategy": "2d", "tp": 8},
    {"strategy": "2d", "tp": 8, "tp1": 2, "tp2": 2},
    {"strategy": "2d", "tp1": 2, "tp2": 4096, "gpus": 8192},
    {"strategy": "2d", "tp1": 2, "nb": 10**6},
]


@pytest.mark.parametrize("changed", HOSTILE, ids=range(len(HOSTILE)))
def test_a_wrong_case_is_refused_with_a_reason(changed: dict[str, Any]) -> None:
    case = {**SEARCH, **changed} if changed else {}
    with pytest.raises(InputError) as caught:
        METHOD.answer(case)
    error: ShardplanError = caught.value
    assert error.message
    assert error.rule
    assert len(error.message) < 600


def test_degrees_without_a_micro_batch_are_no_candidates() -> None:
    """257 tokens divide among no ranks."""
    model = {"l": 257, "e": 6720, "h": 42, "depth": 1}
    case = {**SEARCH, "model": model, "gpus": 24, "global_batch_size": 1024}
    with pytest.raises(InputError, match="no configuration"):
        METHOD.answer(case)
    found = METHOD.answer({**case, "gpus": 8})
    assert {one["tp"] for one in found["configurations"]} == {1, 2}


@pytest.mark.parametrize("case", [None, 3, "text", [], ["strategy"]])
def test_a_case_that_is_no_set_of_fields_is_refused(case: Any) -> None:
    with pytest.raises(InputError):
        METHOD.answer(case)

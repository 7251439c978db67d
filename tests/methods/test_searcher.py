"""The searcher against its reference results, sums by hand, and the same search in parts."""

from __future__ import annotations

import copy
import json
import multiprocessing
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import GPT3_175B, LLAMA_70B, cluster, deepseek_v3, tier

from shardplan.base.errors import InputError
from shardplan.estimation.charge import model_flops_per_token
from shardplan.inputs.job import Job
from shardplan.methods.base import MethodError
from shardplan.methods.check import check_file
from shardplan.methods.fields import read_fields
from shardplan.methods.mapping import even_nodes
from shardplan.methods.searcher.method import Searcher, SearcherCase, result_file, search

REFERENCE = Path(__file__).parent / "data" / "searcher.json"
METHOD = Searcher()
CASE: dict[str, Any] = {
    "cluster": {"n_node": 2, "n_gpu_per_node": 6, "gpu_gflops": 1e5, "bw_gpu_to_gpu": 100, "bw_inter_node": 10},
    "model": {
        "layer_tflops": [0.5, 0.25, 0.25],
        "dp_sum_gradient_MB": 1000,
        "tp_comm_sum_MB": 500,
        "layer_activation_MB": [3, 7, 5],
        "num_layers": 3,
    },
}


def case(**changes: Any) -> dict[str, Any]:
    """The case above with ``cluster__n_node=...`` replaced."""
    changed = copy.deepcopy(CASE)
    for name, value in changes.items():
        part, field = name.split("__", 1)
        changed[part][field] = value
    return changed


def read(**changes: Any) -> SearcherCase:
    return read_fields(SearcherCase, case(**changes), owner="searcher")


def test_the_reference_results_are_met_to_rounding() -> None:
    checked = check_file(REFERENCE, [METHOD])
    assert checked.passed
    assert (checked.method, len(checked.cases), checked.worst_at_zero) == ("searcher", 2, 0.0)
    assert checked.worst_relative < 1e-15


@given(n_node=st.integers(1, 40), n_gpu_per_node=st.integers(1, 16), deepest=st.integers(1, 200))
def test_every_part_is_the_sum_by_hand(n_node: int, n_gpu_per_node: int, deepest: int) -> None:
    answer = METHOD.answer(
        case(cluster__n_node=n_node, cluster__n_gpu_per_node=n_gpu_per_node, model__num_layers=deepest)
    )
    gpus = n_node * n_gpu_per_node
    degrees = [
        (dp, tp, gpus // (dp * tp))
        for dp in range(1, gpus + 1)
        for tp in range(1, gpus + 1)
        if gpus % (dp * tp) == 0 and gpus // (dp * tp) <= deepest
    ]
    assert [(c["dp"], c["tp"], c["pp"]) for c in answer["configs"]] == degrees
    assert answer["n_configs"] == len(degrees)
    for found in answer["configs"]:
        dp, tp, pp = found["dp"], found["tp"], found["pp"]
        efficiency = 0.35 / (1 + (dp - 1) / 5) / (1 + (tp - 1) / 4) / (1 + abs(dp - tp) / 10)
        compute = 3 * 1.0 / (100 * dp * tp * efficiency) * (1 if pp == 1 else 1 / 0.6)
        link = (100 if dp <= n_gpu_per_node else 10) * 1024
        assert found["eff"] == pytest.approx(efficiency, rel=1e-12)
        assert found["compute_ms"] == pytest.approx(1e3 * compute, rel=1e-12)
        assert found["dp_ms"] == pytest.approx(1e3 * 1000 * 2 * (dp - 1) / dp / link, rel=1e-12)
        assert found["tp_ms"] == pytest.approx(1e3 * 500 / tp * 2 * (tp - 1) / tp / 102400, rel=1e-12)
        assert found["pp_ms"] == pytest.approx(1e3 * (pp - 1) * 2 * 7 / 102400, rel=1e-12)
        parts = sum(found[f"{name}_ms"] for name in ("compute", "dp", "tp", "pp"))
        assert found["total_ms"] == pytest.approx(parts, rel=1e-12)
    assert answer["best"] == min(answer["configs"], key=lambda c: c["total_ms"])


def test_the_first_of_equally_fast_ones_wins() -> None:
    answer = METHOD.answer(case(model__layer_tflops=[0], model__dp_sum_gradient_MB=0, model__tp_comm_sum_MB=0,
                                model__layer_activation_MB=[0], model__num_layers=12))  # fmt: skip
    assert {c["total_ms"] for c in answer["configs"]} == {0.0}
    assert (answer["best"]["dp"], answer["best"]["tp"]) == (1, 1)


def _processes() -> Executor:
    return ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn"))


@pytest.mark.parametrize("pool", [lambda: ThreadPoolExecutor(3), _processes])
def test_an_executor_changes_nothing(pool: Any) -> None:
    asked = read(cluster__n_node=8)
    with pool() as executor:
        parts = search(asked, executor=executor, num_chunks=5)
        assert METHOD.answer(case(), executor=executor) == METHOD.answer(case())
    whole = search(asked)
    for name in ("dp", "tp", "pp", "eff", "compute_ms", "dp_ms", "tp_ms", "pp_ms", "total_ms"):
        np.testing.assert_array_equal(getattr(parts, name), getattr(whole, name))


def test_the_result_file_holds_each_configuration_in_milliseconds() -> None:
    found = search(read())
    written = json.loads(result_file(found))
    assert len(written) == len(found.dp)
    best = found.row(found.best)
    assert written[f"{best['dp']}, {best['tp']}, {best['pp']}"] == f"{best['total_ms']:.4f}ms/iter"
    assert next(iter(written)) == "1, 4, 3"  # the order of the search


def test_ten_million_gpus_are_searched_at_once() -> None:
    answer = METHOD.answer(case(cluster__n_node=1_000_000, cluster__n_gpu_per_node=8, model__num_layers=100))
    assert answer["n_configs"] > 300


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"cluster__n_node": 0}, "cluster.n_node"),
        ({"cluster__n_node": 10**7}, "cluster.n_gpu_per_node"),
        ({"cluster__gpu_gflops": float("inf")}, "cluster.gpu_gflops"),
        ({"cluster__bw_inter_node": "10"}, "cluster.bw_inter_node"),
        ({"cluster__bw_inter_nod": 10}, "bw_inter_node"),
        ({"model__layer_tflops": []}, "model.layer_tflops"),
        ({"model__layer_tflops": [1, "x"]}, "model.layer_tflops.1"),
        ({"model__layer_activation_MB": 7}, "model.layer_activation_MB"),
        ({"model__tp_comm_sum_MB": -1}, "model.tp_comm_sum_MB"),
        ({"model__num_layers": 1.5}, "model.num_layers"),
    ],
)
def test_wrong_fields_are_named(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError) as caught:
        METHOD.answer(case(**changes))
    assert named in caught.value.message + caught.value.hint


def test_a_question_takes_its_work_from_our_own_layers() -> None:
    job = Job(sequence_length=2048, global_batch_size=1536)
    answer = METHOD.plan(GPT3_175B, cluster(), 1024, job, top=4)
    tflops = model_flops_per_token(GPT3_175B, 2048) / 3 * job.tokens_per_step / 1e12
    assert answer.mapped[0].startswith(f"{tflops:.4g} TFLOP")
    messages = (96 * 4 + 2) * job.tokens_per_step * 12288 * 2  # two all-reduces a layer and way; the head's exchange
    assert answer.mapped[2].startswith(f"{messages / 1e9:.4g} GB")
    assert "128 nodes of 8: 450 GB/s inside, 50 GB/s beyond" in answer.mapped
    times = [row.step_time or 0 for row in answer.rows]
    assert times == sorted(times)
    best = answer.rows[0]
    assert sum(value for name, value in best.parts.items() if name.endswith("_s")) == pytest.approx(times[0])
    degrees = best.degrees
    assert degrees["dp"] * degrees["tp"] * degrees["pp"] == 1024
    flops = 3 * tflops * 1e12 / (degrees["dp"] * degrees["tp"] * 1e15 * best.parts["efficiency"])
    assert best.parts["compute_s"] == pytest.approx(flops / (0.6 if degrees["pp"] > 1 else 1), rel=1e-9)
    replicas = degrees["dp"]
    gradients = GPT3_175B.num_parameters * 4 * 2 * (replicas - 1) / replicas
    assert best.parts["dp_s"] == pytest.approx(gradients / (450e9 if replicas <= 8 else 50e9), rel=1e-9)


def test_nodes_are_used_as_far_as_they_divide_and_experts_are_said() -> None:
    racks = cluster(tier("rack", 72, 900), tier("network", None, 50))
    answer = METHOD.plan(deepseek_v3(num_mtp_layers=1), racks, 1000, Job(sequence_length=4096, global_batch_size=1000))
    assert "20 nodes of 50: 900 GB/s inside, 50 GB/s beyond" in answer.mapped
    assert even_nodes(racks, 512) == (8, 64)
    assert any("experts" in line for line in answer.ignored)
    one_tier = METHOD.plan(
        LLAMA_70B, cluster(tier("pod", None, 100)), 16, Job(sequence_length=4096, global_batch_size=16)
    )
    assert "2 nodes of 8: 100 GB/s inside, 100 GB/s beyond" in one_tier.mapped


def test_a_question_beyond_its_range_is_refused() -> None:
    with pytest.raises(MethodError, match="at most 10,000,000"):
        METHOD.plan(LLAMA_70B, cluster(), 80_000_000, Job(sequence_length=4096, global_batch_size=16))


def test_other_files_are_not_its_own() -> None:
    assert METHOD.cases('{"cases": [{"hardware": {}}]}') is None
    assert METHOD.cases("not json") is None

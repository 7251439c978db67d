"""The data-movement model against its notebook, its layer by hand, and the claims of its paper."""

from __future__ import annotations

import copy
import itertools
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import GPT3_175B, LLAMA_70B, cluster, llama, mixtral, tier

from shardplan.base.errors import InputError, UnknownNameError
from shardplan.inputs.job import Job
from shardplan.methods.base import MethodError
from shardplan.methods.check import check_file
from shardplan.methods.data_movement.layer import (
    Device,
    LinearLayer,
    Matrix,
    all_reduce_words,
    device_called,
    end_of_batch,
    forward_backward,
    list_devices,
    notebook_devices,
    search_layers,
)
from shardplan.methods.data_movement.limits import (
    CLAIMS,
    ONE_NETWORK,
    best_configuration,
    cliffs,
    limits_curve,
    variants,
)
from shardplan.methods.data_movement.method import DataMovement
from shardplan.methods.data_movement.training_step import TENSOR_DEGREES, Assumptions, configurations, price_blocks

REFERENCE = Path(__file__).parent / "data" / "data_movement.json"
METHOD = DataMovement()
H100 = device_called("H100 SXM5")
BASE = Assumptions()
CASE: dict[str, Any] = {
    "device": "H100 SXM5",
    "layer": {"d_in": 16384, "d_out": 81920, "tp_in": 8, "tp_out": 40, "dp": 32, "bytewidth": 2},
    "b": 2048**2 / 128,
}


def test_the_value_printed_in_the_notebook() -> None:
    assert METHOD.answer(CASE)["result_secs"] == 3.2554072481051035e-05


def test_the_reference_values_are_met_to_the_last_bit() -> None:
    checked = check_file(REFERENCE, [METHOD])
    assert checked.passed
    assert (checked.method, checked.worst_relative, checked.worst_at_zero) == ("data-movement", 0.0, 0.0)
    assert len(checked.cases) == 10


degrees = st.integers(1, 300)


@given(st.builds(LinearLayer, d_in=st.integers(1, 10**6), d_out=st.integers(1, 10**6), tp_in=degrees, tp_out=degrees,
                 dp=degrees, bytewidth=st.sampled_from((0.5, 1, 2, 4))), st.floats(1e-3, 1e9))  # fmt: skip
def test_a_layer_is_the_sum_by_hand(layer: LinearLayer, tokens: float) -> None:
    time, gradients, size = forward_backward(H100, layer, tokens), end_of_batch(H100, layer), layer.bytewidth
    inputs, outputs, b = layer.d_in / layer.tp_in, layer.d_out / layer.tp_out, tokens / layer.dp
    words = 3 * (1 - 1 / layer.tp_in) * outputs * b + 3 * (1 - 1 / layer.tp_out) * inputs * b
    assert time.flop == pytest.approx(6 * inputs * outputs * b * size / (0.8 * 1979e12))
    assert time.network == pytest.approx(words * size / 900e9)
    assert time.memory == pytest.approx((4 * inputs * outputs + inputs * b + words) * size / (0.8 * 3352e9))
    assert time.total == max(time.flop, time.memory, time.network)
    assert gradients.network == pytest.approx(3 * (1 - 1 / layer.dp) * inputs * outputs * size / 900e9)
    assert gradients.flop == 0


def test_limits_of_the_all_reduce() -> None:
    assert all_reduce_words(100.0, 1) == 0
    assert all_reduce_words(100.0, 1e12) == pytest.approx(300)
    np.testing.assert_allclose(all_reduce_words(100.0, np.array([1, 2, 4])), [0, 150, 225])


def test_one_device_moves_nothing_over_the_network() -> None:
    alone = METHOD.answer(CASE | {"layer": {"d_in": 16384, "d_out": 65536}, "b": 4096})
    assert alone["net_secs"] == 0
    assert alone["end_of_batch"]["bound"] == "none"
    assert METHOD.answer(CASE | {"b": 1e-3})["bound"] == "hbm"


def test_the_search_tries_each_product_once_and_ranks_by_time() -> None:
    answer = METHOD.answer({"layer": {"d_in": 4096, "d_out": 100}, "b": 65536, "num_devices": 96})
    divisors = [d for d in range(1, 97) if 96 % d == 0]
    tried = {(i, o, 96 // (i * o)) for i in divisors for o in divisors if 96 % (i * o) == 0}
    assert {(c["tp_in"], c["tp_out"], c["dp"]) for c in answer["configs"]} == tried
    assert answer["n_configs"] == len(tried)
    times = [c["total_secs"] for c in answer["configs"]]
    assert times == sorted(times)
    for found in answer["configs"]:
        layer = {"d_in": 4096, "d_out": 100} | {name: found[name] for name in ("tp_in", "tp_out", "dp")}
        alone = METHOD.answer({"layer": layer, "b": 65536})
        assert found["fwd_bwd_secs"] == alone["result_secs"]
        assert found["end_of_batch_secs"] == alone["end_of_batch"]["result_secs"]
        useful = 6 * 4096 * 100 * 65536 * 2 / (96 * 1979e12)
        assert found["utilisation"] == pytest.approx(useful / found["total_secs"])
    assert answer["best"] == answer["configs"][0]


def test_no_device_is_left_without_work() -> None:
    found = search_layers(H100, [Matrix(d_in=8, d_out=4)], 16, 128)
    assert (found.tp_in <= 8).all()
    assert (found.tp_out <= 4).all()
    assert (found.dp <= 16).all()
    with pytest.raises(InputError, match="too many"):
        search_layers(H100, [Matrix(d_in=8, d_out=4)], 16, 1024)


def test_a_layer_behind_another_is_split_the_other_way() -> None:
    there = search_layers(H100, [Matrix(d_in=512, d_out=2048)], 4096, 16)
    back = search_layers(H100, [Matrix(d_in=512, d_out=2048, reads_split_outputs=True)], 4096, 16)
    swapped = {(i, o): t for i, o, t in zip(back.tp_out, back.tp_in, back.total_time, strict=True)}
    for i, o, t in zip(there.tp_in, there.tp_out, there.total_time, strict=True):
        assert swapped[i, o] == t


def test_devices_are_the_notebook_s_and_every_accelerator() -> None:
    fields = {"flops_8bit": 1979e12, "memory_bandwidth": 3352e9, "network_bandwidth": 900e9, "base_utilisation": 0.8}
    assert Device(name="H100 SXM5", **fields) == H100
    assert all(value["source"] for values in notebook_devices().values() for value in values.values())
    assert list_devices()[0] == "H100 SXM5"
    part = device_called("h100-sxm-80gb")
    assert (part.flops_8bit, part.network_bandwidth) == (1979e12, 900e9)
    assert device_called("a100-sxm-80gb").flops_8bit == 2 * 312e12  # no fp8
    for name in list_devices():
        assert device_called(name).flops_8bit > 0
    with pytest.raises(UnknownNameError, match="H100 SXM5"):
        device_called("H100 SXM")


def test_runs_grow_as_assumed() -> None:
    run = BASE.run(np.array([1e24, 1e26]))
    np.testing.assert_allclose(6 * run.num_parameters * run.tokens, run.training_flop)
    np.testing.assert_allclose(run.tokens / run.num_parameters, 20)
    np.testing.assert_allclose(2 * 5 * run.num_blocks * run.hidden_size**2, run.num_parameters)
    np.testing.assert_allclose(run.hidden_size / run.num_blocks, 128)
    np.testing.assert_allclose(run.batch_tokens, 3.2e6 * (np.array([1e24, 1e26]) / 3.14e23) ** (1 / 6))
    assert BASE.run(3.14e23).batch_tokens == pytest.approx(3.2e6)
    assert BASE.run(1e4).batch_tokens == BASE.run(1e4).tokens  # no more than the training has
    fat = BASE.model_copy(update={"depth_exponent": 0.0}).run(np.array([1e24, 1e30]))
    np.testing.assert_allclose(fat.num_blocks, (175e9 / (10 * 128**2)) ** (1 / 3))


def test_on_one_network_a_block_is_two_layers_of_the_notebook() -> None:
    taken = BASE.model_copy(
        update={"fast_domain": ONE_NETWORK, "link_latency_s": 0.0, "outer_latency_s": 0.0, "kernel_latency_s": 0.0}
    )
    run = taken.run(1e26)
    tokens = configurations(run).tokens[::7]
    blocks = price_blocks(H100, taken, run, tokens)
    wide, narrow = 5 * run.hidden_size, run.hidden_size
    for row in (0, 3, 9):
        tp = TENSOR_DEGREES[row]
        splits = [(i, tp / i) for i in 2.0 ** np.arange(20) if i <= tp and i <= narrow and tp / i <= wide]
        for column, b in enumerate(tokens):
            best = min(
                forward_backward(H100, LinearLayer(d_in=narrow, d_out=wide, tp_in=i, tp_out=o), b).total
                + forward_backward(H100, LinearLayer(d_in=wide, d_out=narrow, tp_in=o, tp_out=i), b).total
                for i, o in splits
            )
            assert blocks.time[row, column] == pytest.approx(float(best), rel=1e-12)


def test_a_small_run_is_one_device_at_its_base_utilisation() -> None:
    point = best_configuration(H100, 1e20, BASE)
    assert point.utilisation == pytest.approx(0.8)
    assert (point.num_devices, point.tp_in * point.tp_out, point.dp, point.pp) == (1, 1, 1, 1)
    assert point.bound == "flop"
    assert point.training_time == pytest.approx(1e20 / (0.8 * 1979e12 / 2))


def test_each_point_ends_in_time_and_its_utilisation_is_its_own_time() -> None:
    curve = limits_curve(H100, np.logspace(20, 33, 27))
    for point in curve:
        if point.utilisation == 0:
            assert point.num_devices == 0
            continue
        assert point.training_time <= BASE.training_time_s
        assert point.num_devices == point.tp_in * point.tp_out * point.dp * point.pp
        peak = 1979e12 / 2 * point.num_devices
        assert point.utilisation == pytest.approx(point.run.training_flop / (peak * point.training_time), rel=1e-9)
        assert point.utilisation <= 0.8 * (1 + 1e-9)
    utilisations = [point.utilisation for point in curve]
    assert utilisations[-1] == 0  # 1e33 cannot end in three months
    assert all(later <= earlier + 0.02 for earlier, later in itertools.pairwise(utilisations))
    assert {point.bound for point in curve if point.utilisation > 0.79} == {"flop"}
    assert curve[22].bound == "latency"  # 1e31, as the paper says


@pytest.fixture(scope="module")
def baseline() -> dict[float, float]:
    return {cliff.level: cliff.training_flop or 0.0 for cliff in cliffs(H100)}


def test_the_cliffs_lie_where_the_paper_claims(baseline: dict[float, float]) -> None:
    """arXiv 2411.01137: about 1e28 and 1e31 FLOP in the abstract, 2e28 and 2e31 in the authors' article."""
    for claim in CLAIMS:
        assert claim.abstract_flop < baseline[claim.level] < 2 * claim.article_flop
    assert baseline[0.9] == pytest.approx(2.4e28, rel=0.02)
    assert baseline[0.5] == pytest.approx(8.7e29, rel=0.02)
    assert baseline[0.0] == pytest.approx(2.23e31, rel=0.02)


def test_a_cliff_is_where_utilisation_falls(baseline: dict[float, float]) -> None:
    for level in (0.9, 0.5, 0.1):
        kept = best_configuration(H100, baseline[level], BASE).utilisation
        beyond = best_configuration(H100, baseline[level] * 1.02, BASE).utilisation
        assert beyond < level * 0.8 <= kept < 1.3 * level * 0.8  # degrees are powers of two: the curve has steps
    assert best_configuration(H100, baseline[0.0], BASE).utilisation > 0
    assert best_configuration(H100, baseline[0.0] * 1.02, BASE).utilisation == 0


def test_what_moves_the_cliffs(baseline: dict[float, float]) -> None:
    """Larger batches and fatter models permit much larger runs, as the paper says; so do links, memory and time."""
    tried = {variant.name: variant for variant in variants(H100, BASE)}

    def moved(name: str) -> dict[float, float]:
        variant = tried[name]
        return {cliff.level: cliff.training_flop or 0.0 for cliff in cliffs(variant.device, variant.assumptions)}

    constant = moved("one batch size for all runs")
    assert all(constant[level] < baseline[level] / 10 for level in baseline)
    for name in ("batch 10 times as large", "4 times as fat for its depth", "a year"):
        assert all(value > 2 * baseline[level] for level, value in moved(name).items()), name
    faster = moved("outer network 10 times as fast")
    assert faster[0.9] > 100 * baseline[0.9]
    assert faster[0.0] < 1.5 * baseline[0.0]  # latency, not bandwidth, ends it
    assert moved("memory 10 times as fast")[0.5] > 2 * baseline[0.5]
    assert moved("no latency")[0.0] > 1e5 * baseline[0.0]


def test_without_any_limit_of_movement_nothing_falls() -> None:
    ideal = replace(H100, memory_bandwidth=1e30, network_bandwidth=1e30)
    free = BASE.model_copy(
        update={"outer_bandwidth": 1e30, "link_latency_s": 0.0, "outer_latency_s": 0.0, "kernel_latency_s": 0.0}
    )
    for flop in (1e24, 1e28, 1e32):
        assert best_configuration(ideal, flop, free).utilisation == pytest.approx(0.8, rel=2e-2)


def test_levels_that_no_run_reaches_or_every_run_keeps() -> None:
    slow = replace(H100, memory_bandwidth=1e3)
    assert cliffs(slow, BASE, levels=(0.9,))[0].training_flop is None
    endless = BASE.model_copy(update={"training_time_s": 1e30})
    assert cliffs(H100, endless, levels=(0.0,))[0].training_flop == math.inf


def test_limits_as_a_case_are_plain_json() -> None:
    answer = METHOD.answer({"limits": {"min_flop": 1e27, "max_flop": 1e29, "points_per_decade": 2, "bytewidth": 1}})
    assert [round(math.log10(point["training_flop"]), 9) for point in answer["points"]] == [27, 27.5, 28, 28.5, 29]
    assert answer["assumptions"]["bytewidth"] == 1
    assert answer["device"]["net_Bps"] == 900e9
    assert {claim["level"] for claim in answer["claims"]} == {0.9, 0.0}
    assert all(claim["computed_flop"] > 0 for claim in answer["claims"])
    assert json.loads(json.dumps(answer, allow_nan=False)) == answer
    endless = METHOD.answer({"limits": {"max_flop": 1e20, "training_time_s": 1e30}})
    assert endless["cliffs"][-1]["training_flop"] is None
    assert "every run" in endless["cliffs"][-1]["remark"]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"device": "H100"}, "H100 SXM5"),
        ({"device": {"flop_per_sec_8bit": 1e15, "global_Bps": 1e12}}, "device.net_Bps"),
        (
            {"device": {"flop_per_sec_8bit": 1e15, "global_Bps": 1e12, "net_Bps": 1, "base_util": 1.5}},
            "device.base_util",
        ),
        ({"layer": {"d_in": 0, "d_out": 10}}, "layer.d_in"),
        ({"layer": {"d_in": 1, "d_out": 10, "tp_inn": 2}}, "tp_in"),
        ({"layer": {"d_in": 1, "d_out": 10, "bytewidth": float("nan")}}, "layer.bytewidth"),
        ({"b": -1}, "b is -1"),
        ({"num_devices": 8}, "num_devices searches the degrees"),
        ({"num_devices": 8, "layer": {"d_in": 1, "d_out": 10}, "b": None}, "needs b"),
        ({"num_devices": 2.5}, "num_devices"),
        ({"batch": 7}, "batch"),
        ({"limits": {"max_flop": 1e20, "min_flop": 1e21}}, "max_flop"),
        ({"limits": {"batch_exponent": -1}}, "limits.batch_exponent"),
        ({"limits": {"training_days": 90}}, "training_time_s"),
        ({"limits": 3}, "limits"),
    ],
)
def test_wrong_fields_are_named(changes: dict[str, Any], named: str) -> None:
    asked = copy.deepcopy(CASE) | changes
    if "limits" in changes:
        asked = {"device": "H100 SXM5"} | changes
    with pytest.raises(InputError) as caught:
        METHOD.answer(asked)
    assert named in caught.value.message + caught.value.hint


def test_a_question_becomes_the_matrices_of_its_layers() -> None:
    job = Job(sequence_length=2048, global_batch_size=1536)
    answer = METHOD.plan(GPT3_175B, cluster(), 1024, job, top=3)
    weights = 96 * 12 * 12288**2 + 51200 * 12288
    assert answer.mapped[0] == f"385 matrices of 5 shapes, {weights:.4g} weights"
    best = answer.rows[0]
    assert best.degrees["dp"] * best.degrees["tp"] == 1024
    assert best.degrees["tp"] == best.degrees["tp_in"] * best.degrees["tp_out"]
    assert best.step_time == pytest.approx(best.parts["layers_s"] + best.parts["gradients_s"])
    useful = 6 * weights * job.tokens_per_step
    assert best.parts["utilisation"] == pytest.approx(useful / (1024 * 1e15 * (best.step_time or 0)), rel=1e-9)


def test_a_question_on_one_device_takes_the_time_of_its_arithmetic() -> None:
    model = llama(4096, 2, 32, 32, 16384)
    answer = METHOD.plan(model, cluster(), 1, Job(sequence_length=2048, global_batch_size=64))
    weights = 2 * (4 * 4096**2 + 3 * 4096 * 16384) + 128256 * 4096
    assert answer.rows[0].step_time == pytest.approx(6 * weights * 64 * 2048 / (0.8 * 1e15))
    eight_bits = METHOD.plan(model, cluster(), 1, Job(sequence_length=2048, global_batch_size=64, precision="fp8"))
    assert eight_bits.rows[0].step_time == pytest.approx(6 * weights * 64 * 2048 / (0.8 * 2e15))


def test_the_network_of_a_question_is_the_slowest_it_spans() -> None:
    tiers = cluster(tier("node", 8, 450), tier("rail", 64, 20), tier("spine", None, 50))
    job = Job(sequence_length=2048, global_batch_size=512)

    def link(num_accelerators: int) -> str:
        return next(line for line in METHOD.plan(LLAMA_70B, tiers, num_accelerators, job).mapped if "network" in line)

    assert "the node at 450 GB/s" in link(8)
    assert "the rail at 20.0 GB/s" in link(16)
    assert "the rail at 20.0 GB/s" in link(256)


def test_a_question_it_cannot_speak_of_is_refused_with_the_reason() -> None:
    job = Job(sequence_length=128, global_batch_size=1)
    with pytest.raises(MethodError, match="attention and a dense MLP"):
        METHOD.plan(mixtral(), cluster(), 64, job)
    with pytest.raises(MethodError, match="too many"):
        METHOD.plan(llama(64, 1, 2, 2, 64), cluster(), 2**20, job)


def test_other_files_are_not_its_own() -> None:
    for text in ("", "[]", '{"cases": []}', "a,b\n1,2"):
        assert METHOD.cases(text) is None
    broken = METHOD.cases(json.dumps({"fwd_bwd": [3]}))
    assert broken is not None
    with pytest.raises(InputError):
        list(broken)

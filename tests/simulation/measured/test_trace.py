"""Traces of the PyTorch profiler: kernels counted by hand, and a stream of JSON that agrees with the whole."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.simulation.measured.files import annotation, kernel, trace

from shardplan.base.errors import InputError
from shardplan.simulation.measured.answer import read_measurement
from shardplan.simulation.measured.comparison import compare_terms
from shardplan.simulation.measured.passes import group_of, kind_of_kernel
from shardplan.simulation.measured.trace_file import JsonObject

GEMM = "nvjet_hsh_256x128_64x4_1x2_h_bz_coopA_TNT"
FLASH = "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>>(Flash_fwd_params)"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>>"
REDUCE = "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.floats(-1e6, 1e6) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


def one_step(at: float = 1000.0) -> Iterator[dict[str, object]]:
    """100 us: a product of 40, attention of 20, a sum of 10 of which 5 are hidden, and a reduction of 30."""
    yield kernel(GEMM, at, 40)
    yield kernel(FLASH, at + 40, 20)
    yield kernel(ADD, at + 55, 10, stream=9)
    yield kernel(REDUCE, at + 50, 30, stream=20, **{"Process Group Description": "mesh_dp_shard"})
    yield annotation("Optimizer.step#AdamW.step", at + 85, 10)
    yield kernel(ADD, at + 85, 10)


def written(path: Path, *events: dict[str, object], rank: int = 0) -> Path:
    path.write_text(trace(events, rank), encoding="utf-8")
    return path


def two_steps(path: Path, rank: int = 0) -> Path:
    return written(
        path,
        *one_step(1000.0),
        *one_step(1100.0),
        annotation("ProfilerStep#4", 1000, 95),
        annotation("ProfilerStep#5", 1100, 95),
        rank=rank,
    )


def test_terms_of_a_step_counted_by_hand(tmp_path: Path) -> None:
    found = read_measurement([two_steps(tmp_path / "trace.json")])
    (profile,) = found.profiles
    assert (found.step, found.num_steps, found.passes) == ("4", 2, None)  # the last one whose end is known
    assert profile.step_time == pytest.approx(100e-6)
    assert {name: round(1e6 * time, 6) for name, time in profile.terms.items()} == {
        "matmul": 40, "attention": 20, "memory_bound": 5, "optimizer": 10, "dp_communication": 15, "idle": 10,
    }  # fmt: skip
    (collective,) = profile.collectives
    assert (collective.collective, collective.count) == ("reduce-scatter", 1)
    assert collective.busy_time == pytest.approx(30e-6)
    assert collective.exposed_time == pytest.approx(15e-6)


def test_a_step_without_a_next_one_ends_with_its_last_kernel(tmp_path: Path) -> None:
    (profile,) = read_measurement([two_steps(tmp_path / "trace.json")], step="5").profiles
    assert profile.is_open
    assert profile.step_time == pytest.approx(95e-6)


def test_a_trace_in_gzip_is_the_same(tmp_path: Path) -> None:
    plain = two_steps(tmp_path / "trace.json")
    packed = tmp_path / "trace.json.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert read_measurement([packed]).profiles[0].terms == read_measurement([plain]).profiles[0].terms


@given(st.lists(st.tuples(st.sampled_from((GEMM, FLASH, ADD, REDUCE)), st.floats(0, 90), st.floats(0, 30)), min_size=1))
def test_terms_sum_to_the_step(events: list[tuple[str, float, float]]) -> None:
    from shardplan.simulation.measured.profile import profiled_step
    from shardplan.simulation.measured.trace_file import _Reading

    reading = _Reading("trace")
    for event in (kernel(name, start, duration) for name, start, duration in events):
        reading.add(event)
    reading.add(annotation("ProfilerStep#1", 0, 90))
    reading.add(annotation("ProfilerStep#2", 120, 90))
    profile = profiled_step(reading.trace(0), "1")
    assert sum(profile.terms.values()) == pytest.approx(profile.step_time)
    assert all(time >= -1e-12 for time in profile.terms.values())


def test_terms_next_to_those_of_an_estimate(tmp_path: Path) -> None:
    (profile,) = read_measurement([two_steps(tmp_path / "trace.json")]).profiles
    estimate = {"matmul": 50e-6, "attention": 20e-6, "memory_bound": 5e-6, "recompute": 4e-6, "optimizer": 8e-6,
                "dp_communication": 10e-6, "host": 2e-6, "fixed": 3e-6}  # fmt: skip
    rows = {row.name: row for row in compare_terms(profile, estimate)}
    assert rows["recompute"].measured is None
    assert rows["computation"].predicted == pytest.approx(79e-6)
    assert rows["computation"].measured == pytest.approx(65e-6)
    assert rows["idle"].predicted == pytest.approx(5e-6)
    for side, total in (("predicted", sum(estimate.values())), ("measured", profile.step_time)):
        assert sum(getattr(row, side) or 0.0 for row in rows.values() if not row.is_sum) == pytest.approx(total)


@pytest.mark.parametrize(
    ("terms", "name", "predicted"),
    [
        ({"tp_communication": 3e-6}, "tp_communication", 3e-6),  # the only one that it can be
        ({"tp_communication": 3e-6, "dp_communication": 4e-6}, "communication", 7e-6),
    ],
)
def test_communication_in_groups_without_names(
    terms: dict[str, float], name: str, predicted: float, tmp_path: Path
) -> None:
    path = written(tmp_path / "t.json", kernel(REDUCE, 0, 30), annotation("ProfilerStep#0", 0, 30))
    rows = {row.name: row for row in compare_terms(read_measurement([path]).profiles[0], terms)}
    assert (rows[name].predicted, rows[name].measured) == pytest.approx((predicted, 30e-6))


def test_passes_that_pytorch_marks(tmp_path: Path) -> None:
    """Two ranks of 1F1B with two micro-batches, each trace with a clock of its own."""
    steps = {
        0: [("PP:0F0", 0, 10), ("PP:0F1", 10, 10), ("PP:0B0", 40, 20), ("PP:0B1", 70, 20)],
        1: [("PP:1F0", 11, 10), ("PP:1B0", 21, 18), ("PP:1F1", 40, 10), ("PP:1B1", 50, 18), ("PP:1SEND_B1", 69, 1)],
    }
    paths = []
    for rank, marks in steps.items():
        events = [annotation(name, 500 * rank + start, took) for name, start, took in marks]
        kernels = [kernel(GEMM, 500 * rank + start, took) for _, start, took in marks]
        paths.append(
            written(
                tmp_path / f"rank{rank}.json",
                *events,
                *kernels,
                annotation("ProfilerStep#7", 500 * rank + marks[0][1], 100),
                rank=rank,
            )
        )
    found = read_measurement(paths).passes
    assert found is not None
    assert [[f"{one.kind}{one.microbatch}" for one in order] for order in found.schedule.orders] == [
        ["F0", "F1", "BW0", "BW1"],
        ["F0", "BW0", "F1", "BW1"],
    ]
    waits = found.pieces.after >= 0
    assert np.all(found.start[waits] >= found.end[found.pieces.after[waits]] - 1e-5)
    assert found.stage_times.input_gradient == pytest.approx([20e-6, 18e-6])


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (GEMM, "matmul"),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute", "matmul"),
        ("Cijk_Alik_Bljk_BBS_BH_Bias_HAS_SAV_UserArgs_MT256x256x64", "matmul"),
        ("void cublasLt::splitKreduce_kernel<32, 16, int, float>", "matmul"),
        (FLASH, "attention"),
        ("fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention)", "attention"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_7", "attention"),
        ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor>", "optimizer"),
        (ADD, "memory_bound"),
        ("triton_poi_fused_mul_silu_2", "memory_bound"),
        ("triton_poi_fused__scaled_dot_product_cudnn_attention__to_copy__unsafe_view_transpose_view_5", "memory_bound"),
        ("triton_tem_fused_mm_3", "matmul"),
        ("nvjet_sm90_tst_192x192_64x4_2x1_v_bz_coopB_TNN", "matmul"),
        ("void cudnn::fusion::compute_dot_do_o_specialized<true, 64>(void const*, void const*, void*)", "attention"),
        ("void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float, float>", "memory_bound"),
        (REDUCE, "communication"),
    ],
)
def test_kernels_have_the_class_of_their_name(name: str, kind: str) -> None:
    assert kind_of_kernel(name, "kernel") == kind


def test_copies_have_the_class_of_their_direction() -> None:
    assert kind_of_kernel("Memcpy HtoD (Pinned -> Device)", "gpu_memcpy") == "offload"
    assert kind_of_kernel("Memcpy DtoD (Device -> Device)", "gpu_memcpy") == "memory_bound"


@pytest.mark.parametrize(
    ("group", "dimension"),
    [
        ("TENSOR_MODEL_PARALLEL_GROUP", "tp_communication"),
        ("DATA_PARALLEL_GROUP_WITH_CP", "dp_communication"),
        ("EXPERT_MODEL_PARALLEL_GROUP", "ep_communication"),
        ("EXPERT_TENSOR_PARALLEL_GROUP", "tp_communication"),
        ("EXPERT_DATA_PARALLEL_GROUP", "dp_communication"),
        ("PIPELINE_MODEL_PARALLEL_GROUP", "pp_communication"),
        ("CONTEXT_PARALLEL_GROUP", "cp_communication"),
        ("mesh_dp_shard_cp", "dp_communication"),
        ("mesh_tp", "tp_communication"),
        ("default_pg", "communication"),
    ],
)
def test_groups_of_megatron_and_of_meshes_have_their_dimension(group: str, dimension: str) -> None:
    assert group_of(REDUCE, {"Process Group Description": group})[0] == dimension


def test_an_all_to_all_of_sends_is_one() -> None:
    """NCCL runs it with the kernel of sends."""
    details = {"Collective name": "all_to_allv", "Process Group Description": "mesh_ep"}
    assert group_of("ncclDevKernel_SendRecv", details) == ("ep_communication", "all-to-all")
    assert group_of("ncclDevKernel_SendRecv", {"Collective name": "send"})[0] == "pp_communication"


BROKEN: dict[str, tuple[Callable[[str], str], str]] = {
    "cut": (lambda text: text[: len(text) // 2], "ends early"),
    "no events": (lambda _: '{"traceEvents": []}', "no events in traceEvents"),
    "empty": (lambda _: "{}", "no events in traceEvents"),
    "no kernels": (lambda text: text.replace('"kernel"', '"cpu_op"'), "no kernels of an accelerator"),
    "our own": (lambda text: '{"schema": "shardplan/trace/1", ' + text.lstrip()[1:], "a step that shardplan predicted"),
    "another shape": (lambda _: '{"a": 1', "ends early"),
    "not JSON": (lambda text: text.replace(":", "=", 1), "where ':' belongs"),
    "negative": (lambda text: text.replace('"dur": 40', '"dur": -40'), "dur of event 1 .* is -40"),
    "no time": (lambda text: text.replace('"ts": 1000.0', '"ts": null', 1), "ts of event 1 .* is None"),
    "no steps": (lambda text: text.replace("ProfilerStep#", "Step "), "has no annotation ProfilerStep#N"),
    "rank": (lambda text: text.replace('"rank": 0', '"rank": -1'), "rank of .* is -1"),
    "devices": (lambda text: text.replace('"device": 0', '"device": 1', 1), "kernels of 2 accelerators"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_trace_is_refused(fault: str, tmp_path: Path) -> None:
    path = two_steps(tmp_path / "trace.json")
    path.write_text(BROKEN[fault][0](path.read_text(encoding="utf-8")), encoding="utf-8")
    with pytest.raises(InputError, match=BROKEN[fault][1]):
        read_measurement([path])


def test_traces_of_one_rank_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="rank 0 is there twice"):
        read_measurement([two_steps(tmp_path / "a.json"), two_steps(tmp_path / "b.json")])


def test_a_cut_gzip_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(two_steps(tmp_path / "trace.json").read_bytes())[:-20])
    with pytest.raises(InputError, match="it is not complete, or not a gzip file"):
        read_measurement([path])


@given(st.dictionaries(st.text(max_size=5), json_values, max_size=4), st.lists(json_values, max_size=5),
       st.integers(1, 40), st.sampled_from([None, 2]))  # fmt: skip
def test_a_streamed_object_is_the_object(
    members: dict[str, Any], items: list[Any], size: int, indent: int | None
) -> None:
    text = json.dumps({**members, "list": items}, indent=indent)
    pieces = (text[at : at + size] for at in range(0, len(text), size))
    found: dict[str, Any] = {}
    streamed = []
    for name, value in JsonObject(pieces, "text", "rule").members("list"):
        if name == "list":
            streamed.append(value)
        else:
            found[name] = value
    assert streamed == items
    assert found == {name: value for name, value in members.items() if name != "list"}


@given(st.lists(json_values, min_size=1, max_size=5), st.integers(1, 40), st.data())
def test_a_cut_object_is_refused(items: list[Any], size: int, data: st.DataObject) -> None:
    text = json.dumps({"list": items})
    text = text[: data.draw(st.integers(0, len(text) - 1))]
    pieces = (text[at : at + size] for at in range(0, len(text), size))
    with pytest.raises(InputError, match=r"text (ends early|is not JSON|has .* where)"):
        list(JsonObject(pieces, "text", "rule").members("list"))  # what is left of -0.5 may be 0 and a point

"""What becomes of a plan: laws of better hardware, sums of terms, and refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.commands import answer, run
from tests.few import few

import shardplan
from shardplan.answers.decisions.whatif import whatif_chart
from shardplan.base.errors import InputError, UnknownNameError
from shardplan.decide.whatif import CHANGEABLE, changed

SPACE: dict[str, Any] = {"limit": {"pp": [1, 2], "cp": [1]}}


@pytest.fixture(scope="module")
def before() -> shardplan.SearchAnswer:
    return shardplan.search("llama-3.2-1b", "dgx-h100", 16, sequence_length=2048, global_batch_size=64, **SPACE)


BETTER = st.sampled_from(
    [
        "intra_node_bandwidth",
        "inter_node_bandwidth",
        "memory",
        "memory_bandwidth",
        "intra_node_latency",
        "peak_flops.bf16",
    ]
)


@few(5)
@given(name=BETTER, factor=st.floats(1.05, 8.0))
def test_better_hardware_is_never_later(before: shardplan.SearchAnswer, name: str, factor: float) -> None:
    cluster = before.question.cluster
    values = {
        "intra_node_bandwidth": cluster.tiers[0].bandwidth * factor,
        "inter_node_bandwidth": cluster.tiers[1].bandwidth * factor,
        "memory": cluster.accelerator.memory_bytes * factor,
        "memory_bandwidth": cluster.accelerator.memory_bandwidth * factor,
        "intra_node_latency": cluster.tiers[0].latency / factor,
        "peak_flops.bf16": cluster.accelerator.peak_flops["bf16"] * factor,
    }
    found = shardplan.whatif(before, {name: values[name]}, **SPACE)
    first, last = found.steps
    assert first.answered.fastest is not None
    assert last.answered.fastest is not None
    assert last.same_plan is not None
    assert last.answered.fastest.step_time <= first.answered.fastest.step_time * (1 + 1e-9)
    assert last.answered.fastest.step_time <= last.same_plan.step_time * (1 + 1e-9)
    assert last.same_plan.step_time <= found.plan.step_time * (1 + 1e-9)


@pytest.mark.parametrize(
    ("name", "text", "now"),
    [
        ("inter_node_bandwidth", "2x", 100e9), ("memory", "+50%", 1.5 * 85e9), ("memory_bandwidth", "x2", 6.7e12),
        ("intra_node_latency", "0.5x", 0.5), ("num_accelerators", "+50%", 24), ("sequence_length", "4X", 8192),
        ("global_batch_size", "-25 %", 48), ("peak_flops", "2x", 1979e12), ("peak_flops.bf16", "2x", 1979e12),
    ],
)  # fmt: skip
def test_a_multiple_of_what_is_there(before: shardplan.SearchAnswer, name: str, text: str, now: float) -> None:
    """Of 16 H100 SXM (85.0 GB, 3.35 TB/s, 989 TFLOP/s) with 50 GB/s between nodes."""
    question = changed(before.question, name, text)
    part, tiers = question.cluster.accelerator, question.cluster.tiers
    values = {
        "inter_node_bandwidth": tiers[1].bandwidth,
        "memory": part.memory_bytes,
        "memory_bandwidth": part.memory_bandwidth,
        "intra_node_latency": tiers[0].latency / before.question.cluster.tiers[0].latency,
        "num_accelerators": question.num_accelerators,
        "sequence_length": question.job.sequence_length,
        "global_batch_size": question.job.global_batch_size,
        "peak_flops": part.peak_flops["bf16"],
        "peak_flops.bf16": part.peak_flops["bf16"],
    }
    assert values[name] == pytest.approx(now, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "text"),
    [("precision", "2x"), ("num_accelerators", "+5%"), ("dropout", "2x"), ("memory", "-100%")],
)
def test_a_multiple_of_what_has_no_such_number_is_refused(before: shardplan.SearchAnswer, name: str, text: str) -> None:
    with pytest.raises(InputError, match=name):
        changed(before.question, name, text)


@pytest.mark.parametrize("change", ["+1%", "+20%", "10x"])
def test_the_picture_shows_the_change(before: shardplan.SearchAnswer, change: str) -> None:
    """However small it is, the change takes a third of the axis or more, and both steps are on it."""
    found = shardplan.whatif(before, {"memory_bandwidth": change}, **SPACE)
    left, right = whatif_chart(found).placed[0][0], whatif_chart(found).placed[1][0]
    first, last = (step.answered.estimate.step_time for step in found.steps if step.answered.estimate is not None)
    low, high = left.y.limits or (0.0, 0.0)
    assert low <= last < first <= high
    assert first - last >= (high - low) / 3 or low == 0
    assert right.series[-1].y == pytest.approx([100 * (last / first - 1)])


def test_terms_add_up_to_the_difference(before: shardplan.SearchAnswer) -> None:
    found = shardplan.whatif(before, {"inter_node_bandwidth": "10", "precision": "fp8"}, **SPACE)
    assert found.before.estimate is not None
    assert found.after.estimate is not None
    difference = found.after.estimate.step_time - found.before.estimate.step_time
    assert sum(term.change for term in found.terms) == pytest.approx(difference, rel=1e-9, abs=1e-12)


def test_changes_are_planned_anew(before: shardplan.SearchAnswer) -> None:
    found = shardplan.whatif(before, {"num_accelerators": 32, "global_batch_size": 128}, **SPACE)
    alone = shardplan.search("llama-3.2-1b", "dgx-h100", 32, sequence_length=2048, global_batch_size=128, **SPACE)
    assert alone.recommended is not None
    assert found.after.estimate is not None
    assert found.after.estimate.plan == alone.recommended.plan
    assert found.after.estimate.step_time == pytest.approx(alone.recommended.step_time)
    assert [step.label for step in found.steps] == ["", "num accelerators 32", "global batch size 128"]


def test_the_question_as_it_was_has_the_recommended_plan(before: shardplan.SearchAnswer) -> None:
    found = shardplan.whatif(before, {"memory": "141GB"}, **SPACE)
    assert found.before.estimate is not None
    assert before.recommended is not None
    assert found.plan.plan == found.before.estimate.plan == before.recommended.plan


def test_a_plan_that_no_longer_fits_is_replaced(before: shardplan.SearchAnswer) -> None:
    found = shardplan.whatif(before, {"memory": "8GB"}, **SPACE)
    last = found.steps[-1]
    assert last.same_plan is not None
    assert not last.same_plan.feasible
    assert last.same_plan_reason
    assert last.answered.estimate is None or last.answered.estimate.feasible


def test_bandwidths_on_the_command_line_are_gigabytes(tmp_path: Path, before: shardplan.SearchAnswer) -> None:
    file = before.save(tmp_path / "plan.json")
    limits = ("--limit", "pp=1,2", "--limit", "cp=1")
    text = answer("whatif", file, "--change", "inter-node-bandwidth=100", "--change", "precision=FP8", *limits)
    number = shardplan.whatif(before, {"inter_node_bandwidth": 100e9, "precision": "fp8"}, **SPACE)
    assert number.after.estimate is not None
    assert text["steps"][-1]["step_time_s"] == pytest.approx(number.after.estimate.step_time)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("inter_node_bandwith=100", "did you mean inter_node_bandwidth"),
        ("tp=4", "--fix tp="),
        ("precision=bf16", "changes nothing"),
        ("memory=80GB", ""),
        ("memory", "name=value"),
        ("gpus=x", "whole number"),
        ("cluster=dgx-h900", "did you mean"),
        ("precision=fp9", ""),
    ],
)
def test_bad_changes_are_refused(tmp_path: Path, before: shardplan.SearchAnswer, change: str, message: str) -> None:
    file = before.save(tmp_path / "plan.json")
    if change == "memory=80GB":  # what the accelerator has, in other words
        change = f"memory={before.question.cluster.accelerator.memory_bytes:.0f}B"
        message = "changes nothing"
    result = run("whatif", file, "--change", change)
    assert result.exit_code == 2, result.output
    assert message in " ".join(result.stderr.split())


def test_a_change_is_needed_and_named_once(tmp_path: Path, before: shardplan.SearchAnswer) -> None:
    file = before.save(tmp_path / "plan.json")
    assert run("whatif", file).exit_code == 2
    assert run("whatif", file, "--change", "memory=90GB", "--change", "memory=100GB").exit_code == 2


def test_errors_of_python_are_the_same(before: shardplan.SearchAnswer) -> None:
    with pytest.raises(UnknownNameError):
        shardplan.whatif(before, {"inter_node_bandwith": 1e11})
    with pytest.raises(InputError, match="changes nothing"):
        shardplan.whatif(before, {"precision": "bf16"})
    with pytest.raises(InputError, match="no change"):
        shardplan.whatif(before, {})
    with pytest.raises(InputError, match="plan is"):
        shardplan.whatif(7, {"precision": "fp8"})  # type: ignore[arg-type]  # wrong on purpose


def test_every_name_of_a_change_is_named_once() -> None:
    assert len(CHANGEABLE) == len(set(CHANGEABLE))

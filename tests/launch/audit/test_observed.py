"""Measurements as people write them, and what explains a gap."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from shardplan.base.errors import InputError
from shardplan.estimation.estimate import Estimate, estimate_plan
from shardplan.estimation.question import Question
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.readers.catalog import load_cluster, load_model
from shardplan.launch.audit.observed import explain, parse_observed

PLAN = Plan(tp=4, pp=2, micro_batch_size=1)


@pytest.fixture(scope="module")
def question() -> Question:
    job = Job(sequence_length=4096, global_batch_size=64)
    return Question(model=load_model("llama-3.1-8b"), cluster=load_cluster("dgx-h100"), num_accelerators=16, job=job)


@pytest.fixture(scope="module")
def now(question: Question) -> Estimate:
    return estimate_plan(question, PLAN)


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("step 7.9s", "step_time", 7.9),
        ("iteration time: 850 ms", "step_time", 0.85),
        ("1,500 tokens/s", "tokens_per_second", 1500.0),
        ("12.5k tok/s/gpu", "tokens_per_second", 12500.0),
        ("120 TFLOP/s", "flops", 120e12),
        ("MFU 38%", "mfu", 0.38),
        ("mfu=0.4", "mfu", 0.4),
        ("OOM rank 3", "out_of_memory", 3.0),
        ("CUDA out of memory", "out_of_memory", -1.0),
    ],
)
def test_forms(text: str, kind: str, value: float) -> None:
    found = parse_observed(text)
    assert found.kind == kind
    assert found.value == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "slow", "step", "0 s", "-3 s", "1e999 s", "NaN s", "7 parsecs", "x" * 10_000])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"^observed is "):
        parse_observed(text)


def test_all_units_mean_the_same_step(question: Question, now: Estimate) -> None:
    tokens = 64 * 4096
    texts = [
        f"step {2 * now.step_time:.6f}s",
        f"{tokens / (2 * now.step_time):.3f} tok/s",
        f"{tokens / 16 / (2 * now.step_time):.4f} tok/s/gpu",
        f"MFU {now.mfu / 2:.6f}",
        f"{now.mfu * now.peak_flops / 2e12:.5f} TFLOP/s",
    ]
    for text in texts:
        assert explain(question, PLAN, now, parse_observed(text)).ratio == pytest.approx(2.0, rel=1e-3)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"kernels": "eager", "norm_kernel": "eager"}, "not fused"),
        ({"blocking_launches": True}, "waits for every kernel"),
    ],
)
def test_the_cause_that_was_put_in_is_found_first(
    question: Question, now: Estimate, change: dict[str, object], word: str
) -> None:
    software = replace(question.job.software, **change)  # type: ignore[arg-type]
    slow = estimate_plan(replace(question, job=replace(question.job, software=software)), PLAN)
    found = explain(question, PLAN, now, parse_observed(f"step {slow.step_time:.6f}s"))
    assert word in found.causes[0].cause
    assert found.causes[0].explains == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("ratio", [0.8, 1.05, 1.2, 1.7, 3.0])
def test_the_best_explanation_is_first_and_none_explains_more_than_all(
    question: Question, now: Estimate, ratio: float
) -> None:
    """A cause that would cost twice what was lost explains half of it; one that would cost many times is not listed."""
    found = explain(question, PLAN, now, parse_observed(f"step {ratio * now.step_time:.6f}s"))
    shares = [each.explains for each in found.causes]
    assert shares == sorted(shares, reverse=True)
    assert all(0 <= share <= 1 for share in shares)
    for each in found.causes:
        if each.step_time is not None and each.bridges > 0:
            effect = math.log(each.step_time / now.step_time) / math.log(ratio)
            assert each.explains == pytest.approx(min(effect, 1 / effect), rel=1e-4)


def test_the_sparse_peak_explains_half_the_mfu(question: Question, now: Estimate) -> None:
    found = explain(question, PLAN, now, parse_observed(f"MFU {now.mfu / 2:.6f}"))
    assert "sparsity" in found.causes[0].cause


def test_what_was_predicted_needs_no_cause(question: Question, now: Estimate) -> None:
    found = explain(question, PLAN, now, parse_observed(f"step {now.step_time:.6f}s"))
    assert found.is_in_band
    assert not found.causes


def test_memory(question: Question, now: Estimate) -> None:
    found = explain(question, PLAN, now, parse_observed("OOM rank 0"))
    assert found.ratio is None
    assert all(cause.peak_memory_bytes > now.peak_memory_bytes for cause in found.causes if cause.peak_memory_bytes)

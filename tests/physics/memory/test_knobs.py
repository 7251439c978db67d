"""Advice that a plan follows already is none; what it says makes the part smaller."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.examples import LLAMA_70B, cluster

from shardplan import estimate
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.software import Software
from shardplan.physics.memory import knobs

JOB = Job(sequence_length=8192, global_batch_size=128)


@pytest.mark.parametrize(
    ("part", "plan", "says", "says_not"),
    [
        ("optimizer", Plan(sharding="ddp"), "zero1", "more ranks"),
        ("optimizer", Plan(sharding="zero1"), "--offload optimizer", "zero1"),
        ("optimizer", Plan(sharding="zero3", sharding_degree=8, offload="optimizer"), "more ranks", "--offload"),
        ("gradients", Plan(sharding="zero1"), "zero2", "more accelerators"),
        ("gradients", Plan(sharding="zero1", pp=2), "zero2", "more accelerators"),
        ("gradients", Plan(sharding="zero3"), "--grad-dtype bf16", "raise tp"),
        ("weights", Plan(sharding="zero1"), "zero3", "more accelerators"),
        ("weights", Plan(sharding="zero3"), "more accelerators", "zero3"),
        ("activations", Plan(recompute="none", micro_batch_size=2), "lower the micro-batch", "raise tp, cp or pp"),
        ("activations", Plan(recompute="full"), "raise tp or cp", "recompute more"),
        ("activations", Plan(), "--offload activations", "--offload-num-layers"),
        ("activations", Plan(offload="activations"), "raise tp or cp", "--offload activations"),
        ("activations", Plan(offload="activations", offload_num_layers=2), "--offload-num-layers", "to the host"),
        ("activations", Plan(recompute="full", recompute_num_layers=2), "recompute more", "micro-batch"),
        ("logits", Plan(), "raise tp or cp", "micro-batch"),
        ("buffers", Plan(sharding="zero3"), "zero1", "zero3"),
        ("framework", Plan(), "more memory", ","),
    ],
)
def test_advice_fits_the_plan(part: str, plan: Plan, says: str, says_not: str) -> None:
    text = knobs(part, plan, JOB, has_replicas=True)
    assert says in text
    assert says_not not in text


@pytest.mark.parametrize(("part", "kept"), [("weights", "keeps_weights"), ("gradients", "keeps_gradients")])
def test_what_a_pipeline_keeps_whole_is_not_sharded(part: str, kept: str) -> None:
    fields: dict[str, Any] = {kept: "pipelines"}
    job = replace(JOB, software=Software(**fields))
    for sharding in ("zero1", "zero3"):
        plan = Plan(pp=2, sharding=sharding)
        assert "shard them" not in knobs(part, plan, job, has_replicas=True)
        assert "raise tp or pp" in knobs(part, plan, job, has_replicas=True)
        assert ("shard them" in knobs(part, replace(plan, pp=1), job, has_replicas=True)) == (sharding == "zero1")


@pytest.mark.parametrize("sharding", ["ddp", "zero1", "zero3"])
@pytest.mark.parametrize("part", ["weights", "gradients", "optimizer"])
def test_where_nothing_is_held_twice_nothing_can_be_sharded(part: str, sharding: Any) -> None:
    text = knobs(part, Plan(tp=8, sharding=sharding), JOB, has_replicas=False)
    assert text
    assert "shard" not in text


def peak(part: str, plan: Plan) -> float:
    answer = estimate(LLAMA_70B, cluster(), 64, plan, job=JOB)
    return max(stage[part] for stage in answer.memory)


@pytest.mark.parametrize(
    ("part", "before", "change"),
    [
        ("optimizer", Plan(tp=2, sharding="ddp"), {"sharding": "zero1"}),
        ("gradients", Plan(tp=2), {"sharding": "zero2"}),
        ("weights", Plan(tp=2), {"pp": 4}),
        ("activations", Plan(tp=2, micro_batch_size=2), {"micro_batch_size": 1}),
        ("activations", Plan(tp=2), {"cp": 2}),
        ("logits", Plan(tp=2), {"tp": 4}),
        ("buffers", Plan(tp=2, sharding="zero3"), {"sharding": "zero1"}),
    ],
)
def test_advice_helps(part: str, before: Plan, change: dict[str, Any]) -> None:
    assert peak(part, replace(before, **change)) < peak(part, before)


def test_what_is_not_advised_does_not_help() -> None:
    """Sharded states do not shrink with tp or pp, nor activations with the depth of a pipeline."""
    for changed in (Plan(tp=4, pp=1), Plan(tp=2, pp=4)):
        assert peak("optimizer", changed) > 0.99 * peak("optimizer", Plan(tp=2))
    assert peak("activations", Plan(tp=2, pp=8)) > 0.99 * peak("activations", Plan(tp=2))


@pytest.mark.parametrize(
    ("part", "field", "words"),
    [("optimizer", "moment_dtype", "--moment-dtype bf16"), ("gradients", "grad_dtype", "--grad-dtype bf16")],
)
def test_what_is_in_sixteen_bits_already_is_not_advised(part: str, field: str, words: str) -> None:
    for dtype, is_advised in ("fp32", True), ("bf16", False):
        change: dict[str, Any] = {field: dtype}
        assert (words in knobs(part, Plan(), replace(JOB, **change), has_replicas=True)) is is_advised

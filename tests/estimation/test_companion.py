"""Frozen companions: their forward pass, their weights and the logits of a teacher."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.examples import cluster, gpt, ideal_profile

import shardplan
from shardplan import InputError, PlanError
from shardplan.ask.questions import ask
from shardplan.base.files import DATA
from shardplan.estimation.estimate import estimate_plan
from shardplan.estimation.gaps import COMPANION, gap_of_companions
from shardplan.estimation.question import Question
from shardplan.inputs.companions import Companion, companions_of
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import Degrees
from shardplan.inputs.readers.catalog import load_model
from shardplan.physics.frameworks.runnable import untested
from shardplan.physics.frameworks.stack import load_stack
from shardplan.physics.schedules.registry import load_schedule
from shardplan.simulation.plan import simulate_plan

STUDENT, TEACHER = "llama-3.1-8b", "llama-3.1-70b"
PARAMETERS = {STUDENT: 8.030e9, TEACHER: 70.554e9}
VOCABULARY, LENGTH = 128256, 8192
PLAN = {"tp": 4, "pp": 2, "sharding": "zero1", "recompute": "none"}


def estimated(companion: Any = "none", plan: dict[str, Any] = PLAN, **job: Any) -> shardplan.PlanAnswer:
    return shardplan.estimate(
        STUDENT, "dgx-h100", 64, plan, global_batch_size=128, sequence_length=LENGTH, companion=companion, **job
    )


def test_a_text_and_a_mapping_name_the_same_companions() -> None:
    text = f"teacher={TEACHER}:top-k=64,reference=self"
    named = companions_of(text)
    assert named == (Companion(role="teacher", model=TEACHER, top_k=64), Companion(role="reference", model="self"))
    job = Job(sequence_length=1, global_batch_size=1, companion={"teacher": f"{TEACHER}:top-k=64", "reference": "self"})  # type: ignore[arg-type]
    assert job.companion == text
    assert Job(sequence_length=1, global_batch_size=1).companion == "none"
    assert companions_of("none") == companions_of("") == ()


def test_without_a_companion_nothing_is_added() -> None:
    alone = estimated()
    assert alone.breakdown["companion"] == 0
    assert all(stage["companion"] == 0 for stage in alone.memory)
    assert alone.hfu == pytest.approx(alone.mfu)


def test_a_reference_as_large_as_the_model_adds_a_third_of_its_computation() -> None:
    """A forward and a backward pass are three forward passes; nothing else is in a step on ideal hardware."""
    model, plan = gpt(2048, 8, 16, vocab_size=8), Plan(sharding="ddp")

    def asked(companion: str) -> Question:
        job = Job(sequence_length=2048, global_batch_size=4, companion=companion)
        return Question(model=model, cluster=cluster(), num_accelerators=1, job=job, given_profile=ideal_profile())

    alone, both = (estimate_plan(asked(companion), plan) for companion in ("none", "reference=self"))
    assert both.hfu / both.mfu == pytest.approx(4 / 3, rel=1e-9)
    assert both.step_time / alone.step_time == pytest.approx(4 / 3, rel=0.02)
    assert both.step_time - alone.step_time == pytest.approx(both.breakdown["companion"], rel=1e-6)
    added = both.memory[0]["companion"]
    assert added == 2 * model.num_parameters
    # Next to it lie the activations of one layer, where they exceed the gradients of one.
    beside = both.peak_memory_bytes - alone.peak_memory_bytes - added
    assert 0 <= beside <= alone.memory[0]["activations"] / 8 + 1e6


def test_a_larger_companion_takes_as_much_longer_as_it_has_parameters() -> None:
    own, other = (estimated({"reference": name}).breakdown["companion"] for name in (STUDENT, TEACHER))
    assert other / own == pytest.approx(PARAMETERS[TEACHER] / PARAMETERS[STUDENT], rel=0.3)


@pytest.mark.parametrize("name", [STUDENT, TEACHER])
def test_weights_are_whole_unless_the_plan_shards_weights(name: str) -> None:
    whole = estimated({"teacher": name})
    held = sum(stage["companion"] for stage in whole.memory)
    assert held == pytest.approx(2 * PARAMETERS[name] / 4, rel=0.01)  # over tp, in 16 bits
    shards = estimated({"teacher": name}, {**PLAN, "sharding": "zero3", "pp": 1}, stack="torchtitan")
    assert shards.memory[0]["companion"] == pytest.approx(2 * PARAMETERS[name] / 64, rel=0.01)


def test_ranks_gather_sharded_weights_once_for_a_pass() -> None:
    plan = {"tp": 1, "pp": 1, "sharding": "zero3", "recompute": "none", "micro_batch_size": 1}
    alone, both = (estimated(each, plan, stack="torchtitan") for each in ("none", "reference=self"))
    sent, more = (sum(each.communication["dp"].values()) for each in (alone, both))
    gathered = 2 * PARAMETERS[STUDENT] * 63 / 64 * both.num_microbatches
    assert more - sent == pytest.approx(gathered, rel=0.02)


def test_a_teacher_keeps_logits_and_a_reward_model_has_none() -> None:
    logits = LENGTH * VOCABULARY / 4 * 2

    def kept(companion: str, **job: Any) -> float:
        """Logits on the last stage."""
        return estimated(companion, **job).memory[-1]["logits"]

    reference, fused = kept("reference=self"), {"software": {"fused_loss": True}}
    assert kept("teacher=self") - reference == pytest.approx(logits)
    assert kept("teacher=self:top-k=64") - reference == pytest.approx(LENGTH * 64 * (2 + 8))
    assert kept("teacher=self", **fused) - kept("reference=self", **fused) == pytest.approx(2 * logits)
    assert kept("reward=self") == reference
    assert estimated("reward=self").step_time < estimated("reference=self").step_time


def test_the_model_without_its_adapters_is_a_reference_without_weights_of_its_own() -> None:
    kept = estimated("reference=self", train="lora")
    assert all(stage["companion"] == 0 for stage in kept.memory)
    assert kept.breakdown["companion"] > 0
    assert estimated(f"reference={STUDENT}", train="lora").memory[0]["companion"] > 0


def test_roles_add_up() -> None:
    each = [estimated(one).breakdown["companion"] for one in ("reference=self", f"teacher={TEACHER}")]
    assert estimated(f"reference=self,teacher={TEACHER}").breakdown["companion"] == pytest.approx(sum(each))


def test_a_search_prices_a_companion_as_an_estimate_does() -> None:
    asked: dict[str, Any] = {
        "global_batch_size": 64, "sequence_length": 2048, "companion": {"teacher": f"{STUDENT}:top-k=8"},
        "limit": {"pp": [1, 2], "cp": [1], "sharding": ["zero1", "zero3"]},
    }  # fmt: skip
    found = shardplan.search("llama-3.2-1b", "dgx-h100", 8, **asked)
    pruned = shardplan.search("llama-3.2-1b", "dgx-h100", 8, prune=True, **asked)
    assert len(found.estimates) > 3
    assert [each.step_time for each in pruned.estimates] == [each.step_time for each in found.estimates]
    for each in found.estimates:
        own = estimate_plan(found.question.running(vars(each.plan)), each.plan)
        assert (own.step_time, own.peak_memory_bytes) == pytest.approx((each.step_time, each.peak_memory_bytes))
        assert each.breakdown["companion"] > 0


@pytest.mark.parametrize("pp", [2, 4])
def test_a_simulated_step_has_the_companion_in_it(pp: int) -> None:
    answer = estimated({"teacher": TEACHER}, {"tp": 4, "pp": pp, "vp": 1, "sharding": "zero1", "recompute": "none"})
    plan = Plan(tp=4, pp=pp)
    simulated = simulate_plan(answer.question, plan, load_schedule(plan.effective_schedule))
    assert simulated.step_time == pytest.approx(answer.step_time, rel=0.05)


@pytest.mark.parametrize(
    ("companion", "rule"),
    [
        ("teacher=qwen3-8b", "has the vocabulary of the model"),
        ("reference=qwen3-8b", "has the vocabulary of the model"),
        ("teacher=self:top-k=200000", "at most as many logits"),
        ("teacher=self:top-k=0", "top-k is a whole number"),
        ("reward=self:top-k=4", "for a teacher"),
        ("teacher", "names roles and models"),
        ("teacher=self,teacher=self", "a role has one companion"),
        (3, "companion is text"),
    ],
)
def test_bad_companions_are_refused_with_a_rule(companion: object, rule: str) -> None:
    with pytest.raises(InputError) as raised:
        estimated(companion)
    assert rule in (raised.value.rule or "")
    assert raised.value.hint


@pytest.mark.parametrize("companion", ["judge=self", "teacher=no-such-model"])
def test_unknown_roles_and_models_are_refused(companion: str) -> None:
    with pytest.raises(shardplan.UnknownNameError):
        estimated(companion)


def test_a_reward_model_may_have_another_vocabulary() -> None:
    found = estimated("reward=qwen3-8b")
    assert found.breakdown["companion"] > 0
    assert any("reward qwen3-8b" in each and "as many as those of the model" in each for each in found.assumptions)


def config_of(name: str, **changes: Any) -> dict[str, Any]:
    """The ``config.json`` of a built-in model, changed."""
    shipped: dict[str, Any] = json.loads((DATA / "models" / f"{name}.json").read_text())
    return shipped | changes


def test_a_teacher_in_a_file_costs_what_the_built_in_one_does(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config_of(TEACHER)))
    expected = estimated({"teacher": TEACHER})
    for given in (f"teacher={file}", {"teacher": tmp_path}, {"teacher": load_model(file)}, {"teacher": str(file)}):
        found = estimated(given)
        assert found.step_time == expected.step_time
        assert found.memory == expected.memory
    assert estimated(f"teacher={file}:top-k=8").step_time == expected.step_time


def test_a_model_of_which_only_the_padding_differs_can_be_given_with_the_same_rows() -> None:
    padded = config_of(TEACHER, vocab_size=VOCABULARY + 1024)
    with pytest.raises(InputError, match="129,280") as raised:
        estimated({"teacher": padded})
    assert f"vocab_size {VOCABULARY}" in str(raised.value.hint)
    assert estimated({"teacher": config_of(TEACHER)}).breakdown["companion"] > 0


def test_files_are_read_for_those_alone_who_may_name_them(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config_of(TEACHER)))
    record = {"model": STUDENT, "cluster": "dgx-h100", "num_accelerators": 64, "companion": f"teacher={file}"}
    assert ask(record).question.companions[0][1].model.num_parameters == pytest.approx(PARAMETERS[TEACHER], rel=1e-3)
    with pytest.raises(shardplan.UnknownNameError):
        ask(record, reads_files=False)


def test_a_tiny_companion_costs_next_to_nothing() -> None:
    small = {"num_hidden_layers": 1, "hidden_size": 64, "intermediate_size": 64, "head_dim": 16}
    tiny = config_of(STUDENT, **small, num_attention_heads=4, num_key_value_heads=4)
    plan = PLAN | {"pp": 1}
    alone, both = (estimated(each, plan) for each in ("none", {"reward": tiny}))
    assert both.step_time == pytest.approx(alone.step_time, rel=0.005)
    assert both.peak_memory_bytes == pytest.approx(alone.peak_memory_bytes, rel=0.001)
    assert band(both) == pytest.approx(band(alone), rel=0.001)


def band(found: shardplan.PlanAnswer) -> tuple[float, float]:
    """Its ends over the step time."""
    return found.step_time_p10 / found.step_time, found.step_time_p90 / found.step_time


def test_the_band_is_the_wider_the_more_of_the_step_a_companion_takes() -> None:
    rows = [estimated(each) for each in ("none", "reference=self", {"reference": TEACHER})]
    lows, highs = zip(*map(band, rows), strict=True)
    assert lows[0] > lows[1] > lows[2]
    assert highs[0] < highs[1] < highs[2]
    memory = [each.peak_memory_p90_bytes / each.peak_memory_bytes for each in rows]
    assert memory[0] < memory[1] < memory[2]
    assert "companion" not in (rows[0].step_time_note or "")
    assert all("no measured run has a frozen companion" in (each.step_time_note or "") for each in rows[1:])


def test_the_gap_of_a_companion_is_that_of_independent_errors() -> None:
    question = estimated("reference=self").question
    for share, factor in ((0.0, 1.0), (1.0, math.hypot(1, COMPANION))):
        (gap,) = gap_of_companions(question, "time", share)
        assert gap.factor == pytest.approx(factor)
    assert gap_of_companions(estimated().question, "time", 0.0) == ()


@pytest.mark.parametrize(
    ("companion", "plan", "message"),
    [
        ("llama-3.1-8b", {"pp": 40}, "companion llama-3.1-8b: pp 40 for 32 layers"),
        ("qwen2.5-7b", {"tp": 8}, "companion qwen2.5-7b: tp 8"),  # 28 heads
    ],
)
def test_a_plan_that_cannot_split_a_companion_is_refused(companion: str, plan: dict[str, int], message: str) -> None:
    with pytest.raises(PlanError, match=message) as raised:
        shardplan.estimate(
            "llama-3.1-70b", "dgx-h100", 320, plan, global_batch_size=320, companion=f"reward={companion}"
        )
    assert raised.value.rule == "companions are split as the model is"
    assert raised.value.hint


def test_no_framework_is_shown_to_run_one() -> None:
    answer = estimated({"teacher": TEACHER}, stack="megatron-lm")
    assert any(f"frozen companion ({TEACHER})" in each for each in answer.untested)
    stack, setting = load_stack("megatron-lm"), answer.question.setting
    assert np.all(untested(stack, setting, Degrees.of(answer.plan)))
    assert not answer.refusals

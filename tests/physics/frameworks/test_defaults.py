"""A stack's defaults are the same on the command line, in Python and in measured runs."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.commands import FEW, SMALL, answer, run, unwrapped

from shardplan import Job, Plan, PlanError, estimate, load, load_cluster, load_model, search
from shardplan.api.answers import PlanAnswer
from shardplan.inputs.plan import StatedPlan
from shardplan.inputs.software import Software
from shardplan.physics.frameworks.defaults import job_in_stack, plan_in_stack, stated
from shardplan.physics.frameworks.stack import list_stacks, load_stack

MODEL, CLUSTER = load_model("llama-3.2-1b"), load_cluster("dgx-h100")
JOB = Job(sequence_length=2048, global_batch_size=64)


@pytest.mark.parametrize("name", ["torchtitan", "nanotron", "megatron-bridge", "megatron-deepspeed"])
def test_python_and_the_command_line_agree(name: str) -> None:
    stack, given = load_stack(name), Plan(tp=2, pp=2)
    plan, _ = plan_in_stack(given, stack, model=MODEL, job=job_in_stack(JOB, stack)[0], num_accelerators=8)
    ours = estimate(MODEL, CLUSTER, 8, plan, job=JOB, stack=name)
    theirs = answer("estimate", *SMALL, "--tp", 2, "--pp", 2, "--stack", name)["plans"][0]
    assert ours.step_time == theirs["step_time_s"]
    assert {**asdict(ours.plan), "stage_layers": None} == {**theirs["plan"], "stage_layers": None}
    assert f"stack {name}" in " ".join(ours.assumptions)


def test_a_search_in_python_is_that_of_the_command_line() -> None:
    limit = {"pp": (1, 2), "cp": (1,), "sharding": ("zero1", "zero3")}
    found = search(MODEL, CLUSTER, 8, job=JOB, limit=limit, stack=load_stack("megatron-deepspeed"))
    theirs = answer("plan", *SMALL, *FEW, "--stack", "megatron-deepspeed")
    assert found.num_plans_evaluated == theirs["num_plans_evaluated"]
    assert found.estimates[0].step_time == theirs["plans"][0]["step_time_s"]
    assert not found.estimates[0].plan.overlap_dp


def test_without_a_stack_nothing_changes() -> None:
    plan = Plan(tp=2, overlap_dp=False)
    assert job_in_stack(JOB, None) == (JOB, ())
    assert plan_in_stack(plan, None, model=MODEL, job=JOB, num_accelerators=8) == (plan, ())


@pytest.mark.parametrize("written", [{"tp": 2, "pp": 4}, Plan(tp=2, pp=4)])
@pytest.mark.parametrize("name", ["usual", "torchtitan", "deepspeed", "nemo"])
def test_the_same_words_get_the_same_answer(name: str, written: Any) -> None:
    ours = estimate(MODEL, CLUSTER, 8, written, job=JOB, stack=name)
    theirs = run("estimate", *SMALL, "--tp", 2, "--pp", 4, "--stack", name, "--json", "-")
    plan = json.loads(theirs.stdout)["plans"][0]
    assert (ours.step_time, ours.peak_memory_bytes) == (plan["step_time_s"], plan["peak_memory_bytes"])
    assert any(line.startswith("plan fields at their defaults: cp 1") for line in ours.assumptions)
    of_plan = [
        [line for line in lines if line.startswith("plan ")] for lines in (ours.assumptions, plan["assumptions"])
    ]
    assert of_plan[0] == of_plan[1]


def test_what_a_mapping_names_stays_also_at_its_default() -> None:
    filled = estimate(MODEL, CLUSTER, 8, {"tp": 2, "pp": 4}, job=JOB)
    named = estimate(MODEL, CLUSTER, 8, {"tp": 2, "pp": 4, "vp": 1, "overlap_dp": False}, job=JOB)
    assert filled.plan.vp > named.plan.vp == 1
    assert not named.plan.overlap_dp


@pytest.mark.parametrize("other", ["usual", "torchtitan", "nanotron", None])
def test_a_plan_of_an_answer_is_priced_as_it_stands(other: str | None, tmp_path: Path) -> None:
    given_ = {"tp": 2, "pp": 4, "vp": 1, "sharding": "ddp"}
    answered = estimate(MODEL, CLUSTER, 8, given_, job=JOB)
    answered.save(tmp_path / "plan.json")
    loaded = load(tmp_path / "plan.json")
    assert isinstance(loaded, PlanAnswer)
    for plan in (answered.plan, loaded.plan, replace(answered.plan, recompute="full")):
        assert estimate(MODEL, CLUSTER, 8, plan, job=JOB, stack=other).plan == plan


PLANS = st.builds(
    Plan, tp=st.sampled_from([1, 2, 4]), vp=st.integers(1, 4), recompute=st.sampled_from(["none", "full"])
)


@given(plan=PLANS, other=PLANS)
def test_a_stated_plan_is_the_plan(plan: Plan, other: Plan) -> None:
    same = StatedPlan.of(plan)
    assert StatedPlan.of(same) is same
    assert (same == plan, plan == same, hash(same), repr(same)) == (True, True, hash(plan), repr(plan))
    assert ((same == other), (other == same)) == ((plan == other),) * 2
    assert stated(same).keys() == asdict(plan).keys()
    assert same != asdict(plan)


@pytest.mark.parametrize("pp", [3, 5, 7])
def test_a_broken_rule_is_told_alike(pp: int) -> None:
    with pytest.raises(PlanError) as ours:
        estimate(MODEL, CLUSTER, 8, {"pp": pp}, job=JOB)
    theirs = run("estimate", *SMALL, "--pp", pp)
    assert theirs.exit_code == 2
    assert str(ours.value) in unwrapped(theirs.output)


@pytest.mark.parametrize("name", list_stacks())
def test_what_is_given_stays(name: str) -> None:
    job = Job(sequence_length=2048, global_batch_size=64, grad_dtype="bf16", software=Software(kernels="eager"))
    filled, words = job_in_stack(job, load_stack(name))
    assert (filled.grad_dtype, filled.software.kernels) == ("bf16", "eager")
    assert words


def test_fields_at_their_default_are_not_given() -> None:
    assert stated(Plan(tp=2, sharding="zero1")) == {"tp": 2}
    assert stated(JOB) == {}

"""A stack's defaults are the same on the command line, in Python and in measured runs."""

from __future__ import annotations

from dataclasses import asdict

import pytest
from tests.cli.commands import FEW, SMALL, answer

from shardplan import Job, Plan, estimate, load_cluster, load_model, search
from shardplan.frameworks.defaults import job_in_stack, plan_in_stack, stated
from shardplan.frameworks.stack import list_stacks, load_stack
from shardplan.inputs.software import Software

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


def test_a_plan_in_python_is_priced_as_it_stands() -> None:
    plan = Plan(tp=2, pp=2)
    for name in ("usual", "torchtitan", None):
        assert estimate(MODEL, CLUSTER, 8, plan, job=JOB, stack=name).plan == plan


@pytest.mark.parametrize("name", list_stacks())
def test_what_is_given_stays(name: str) -> None:
    job = Job(sequence_length=2048, global_batch_size=64, grad_dtype="bf16", software=Software(kernels="eager"))
    filled, words = job_in_stack(job, load_stack(name))
    assert (filled.grad_dtype, filled.software.kernels) == ("bf16", "eager")
    assert words


def test_fields_at_their_default_are_not_given() -> None:
    assert stated(Plan(tp=2, sharding="zero1")) == {"tp": 2}
    assert stated(JOB) == {}

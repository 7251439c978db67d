"""Options of a framework as a first screen groups them: nothing lost, nothing mixed up."""

from __future__ import annotations

import pytest

from shardplan import Plan, load_cluster, load_model
from shardplan.frameworks.options import OptionsOfPlan, options_of
from shardplan.frameworks.stack import load_stack
from shardplan.inputs.degrees import Setting
from shardplan.inputs.job import Job
from shardplan.reports.forms.framework_options import grouped_options


def _options(stack: str, plan: Plan) -> OptionsOfPlan:
    job = Job(sequence_length=8192, global_batch_size=64)
    found = options_of(
        load_stack(stack), Setting.of(load_model("llama-3.1-8b"), load_cluster("dgx-h100"), 64, job), plan
    )
    assert found is not None
    return found


@pytest.mark.parametrize("stack", ["megatron-lm", "nemo", "torchtitan", "deepspeed", "nanotron", "maxtext"])
def test_every_option_can_be_put_together_again(stack: str) -> None:
    options = _options(stack, Plan(tp=2, sharding="zero1")).options
    groups = grouped_options(options)
    whole = [f"{path}.{each}" if path else each for path, members in groups.items() for each in members]
    assert sorted(" ".join(whole).split()) == sorted(" ".join(options).split())
    assert all(len(members) > 1 for path, members in groups.items() if path)


def test_options_share_the_shortest_path_that_several_have() -> None:
    given = ["trainer.strategy.tp=4", "trainer.strategy.ddp.overlap=true", "--zero.stage 3", "model.a: 1 model.b: 2"]
    assert grouped_options([*given, "--zero.size 8"]) == {
        "trainer.strategy": ["tp=4", "ddp.overlap=true"],
        "": ["--zero.stage 3", "--zero.size 8"],
        "model": ["a: 1", "b: 2"],
    }


def test_flags_can_be_pasted() -> None:
    """Those of torchtitan share their paths, and each is whole."""
    groups = grouped_options(_options("torchtitan", Plan(tp=2, pp=2)).of_plan)
    assert set(groups) == {""}
    assert "--parallelism.tensor_parallel_degree 2" in groups[""]


def test_the_options_of_the_plan_leave_out_the_job_and_what_is_off() -> None:
    found = _options("nemo", Plan(tp=2, sharding="zero1"))
    assert "trainer.strategy.context_parallel_size=1" in found.options
    shown = " ".join(found.of_plan)
    for absent in ("context_parallel", "global_batch_size", "seq_length", "bf16"):
        assert absent not in shown
    for present in ("tensor_model_parallel_size=2", "use_distributed_optimizer=true", "micro_batch_size=1"):
        assert present in shown

"""What frameworks make of one question, and other software under the same plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.cli.commands import SMALL as SMALL_FLAGS
from tests.cli.commands import answer
from tests.examples import LLAMA_70B, SMALL, cluster

import shardplan
from shardplan import load_model, question, search_frameworks
from shardplan.answers.frameworks import limits_text
from shardplan.api.questions import ask
from shardplan.base.errors import InputError, NotRunnableError
from shardplan.base.units import format_time
from shardplan.estimation.estimate import estimate_plan
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.physics.frameworks.stack import load_stack
from shardplan.physics.frameworks.usual_stack import (
    Wanted,
    chosen_stack,
    published_stacks,
    stack_for,
    stack_of_label,
    usual_stack,
)
from shardplan.planner.related.frameworks import under_fastest
from shardplan.planner.software import options_for, other_software

JOB = Job(sequence_length=2048, global_batch_size=64)


def test_where_the_usual_framework_has_no_such_layers_or_adapters_another_is_chosen() -> None:
    dense, experts = load_model("llama-3.1-8b"), load_model("deepseek-v3")
    stack, assumed = chosen_stack("usual", "NVIDIA", Wanted.of(dense, {"train": "lora"}))
    assert stack is not None
    assert stack.can_run is not None
    assert stack.can_run.lora
    assert "megatron-lm, which is usual on NVIDIA, has no low-rank adapters" in assumed[0]
    stack, assumed = chosen_stack("usual", "Google", Wanted.of(load_model("nemotron-h-56b")))
    assert stack is None
    assert "has no mamba-2" in assumed[0]
    for name in ("megatron-lm", "maxtext", "megatron-bridge", "nemo", "torchtitan"):
        assert Wanted.of(experts).is_run_by(load_stack(name)), name
    assert not Wanted.of(experts).is_run_by(load_stack("nanotron"))


def test_a_framework_without_a_models_layers_is_refused_by_name() -> None:
    with pytest.raises(NotRunnableError) as caught:
        shardplan.search("deepseek-v3", "dgx-h100", 2048, stack="nanotron")
    assert "runs no plan of deepseek-v3" in caught.value.message
    assert "latent-attention, multi-token-prediction" in caught.value.hint
    with pytest.raises(NotRunnableError, match="no low-rank adapters"):
        shardplan.search("llama-3.1-8b", "dgx-h100", 8, stack="megatron-lm", train="lora")
    answer = shardplan.estimate("deepseek-v3", "dgx-h100", 2048, {"pp": 16, "ep": 64}, stack="torchtitan")
    assert any("multi-token prediction" in each.rule for each in answer.refusals)


def test_the_usual_framework_is_that_of_the_maker() -> None:
    names = {vendor: usual_stack(vendor) for vendor in ("NVIDIA", "AMD", "Google", "Huawei", "Intel")}
    assert {vendor: stack and stack.name for vendor, stack in names.items()} == {
        "NVIDIA": "megatron-lm", "AMD": "megatron-lm", "Google": "maxtext", "Huawei": "mindspeed-llm",
        "Intel": "megatron-deepspeed",
    }  # fmt: skip
    assert usual_stack("AWS") is None
    assert "no framework" in chosen_stack("usual", "AWS", Wanted(model=load_model("llama-3.1-8b")))[1][0]


def test_frameworks_that_are_compared_run_on_the_accelerator_and_are_published() -> None:
    for stack in published_stacks("Google"):
        assert stack.can_run is not None
        assert "Google" in (stack.can_run.vendors or ("Google",))
    names = [stack.name for stack in published_stacks("NVIDIA")]
    assert names[0] == "megatron-lm"
    assert not {"hai-llm", "megascale", "meta-llama-3", "megatron-lm-2021"} & {*names}
    with pytest.raises(InputError, match="no framework on record"):
        published_stacks("AWS")


def test_words_for_no_framework_and_the_usual_one() -> None:
    assert stack_for(None, "NVIDIA") is None
    assert stack_for("any", "NVIDIA") is None
    assert stack_for("usual", "Google") == load_stack("maxtext")
    assert stack_for("torchtitan", "NVIDIA") == load_stack("torchtitan")


def test_labels_name_their_framework() -> None:
    for name in ("torchtitan@0.3.0", "megatron-lm", "deepspeed"):
        stack = load_stack(name)
        assert stack_of_label(stack.label) == stack
        assert load_stack(stack.versioned_name) == stack
    for label in (None, "", "mine 1.0", "torchtitan 99"):
        assert stack_of_label(label) is None


def test_each_framework_has_the_best_plan_of_its_own_search() -> None:
    stacks = [load_stack(name) for name in ("deepspeed", "megatron-lm", "torchtitan")]
    answers = search_frameworks(SMALL, cluster(), 16, job=JOB, stacks=stacks)
    times = [each.best.step_time for each in answers if each.best is not None]
    assert times == sorted(times)
    assert len(times) == len(stacks)
    for each in answers:
        own = shardplan.search(SMALL, cluster(), 16, job=JOB, stack=each.stack, top=1)
        assert each.best is not None
        assert own.recommended is not None
        assert each.best.plan == own.recommended.plan
        assert each.fastest is not None
        assert each.fastest.plan == own.estimates[0].plan
        assert each.best.framework == each.stack.label
    assert answers[0].missing == ()


def test_what_a_framework_never_runs_is_an_answer_of_its_own() -> None:
    stacks = [load_stack(name) for name in ("megatron-lm", "deepspeed")]
    answers = search_frameworks(SMALL, cluster(), 16, job=JOB, stacks=stacks, fix={"pp": 2, "vp": 2})
    assert [each.stack.name for each in answers] == ["megatron-lm", "deepspeed"]
    assert answers[1].best is None
    assert isinstance(answers[1].refused, NotRunnableError)


def test_a_framework_refuses_accelerators_that_it_does_not_run_on() -> None:
    part = cluster()
    other = replace(part, accelerator=replace(part.accelerator, vendor="Google"))
    with pytest.raises(NotRunnableError, match="runs on accelerators of NVIDIA"):
        shardplan.search(SMALL, other, 16, job=JOB, stack="megatron-bridge")
    unknown = replace(part, accelerator=replace(part.accelerator, vendor=""))
    assert shardplan.search(SMALL, unknown, 16, job=JOB, stack="megatron-bridge", top=1).estimates


def test_a_search_without_a_framework_is_limited_by_none() -> None:
    limited = shardplan.search(SMALL, cluster(), 16, job=JOB, top=1)
    free = shardplan.search(SMALL, cluster(), 16, job=JOB, top=1, stack=None)
    assert limited.estimates[0].framework == load_stack("megatron-lm").label
    assert any("as is usual on NVIDIA" in text for text in limited.estimates[0].assumptions)
    assert free.estimates[0].framework is None
    assert free.num_plans_evaluated > limited.num_plans_evaluated


def test_large_models_are_compared_too() -> None:
    stacks = [load_stack("megatron-lm"), load_stack("llm-foundry")]
    answers = search_frameworks(LLAMA_70B, cluster(), 64, stacks=stacks)
    assert answers[0].best is not None


LORA: dict[str, Any] = {"train": "lora", "sequence_length": 2048, "global_batch_size": 64}
FEW = {"pp": [1, 2], "cp": [1]}


def test_adapters_take_the_framework_that_is_fastest_with_them() -> None:
    """Brute force: the search of every framework that has adapters, each whole."""
    found = shardplan.search("llama-3.2-1b", "dgx-h100", 8, limit=FEW, **LORA)
    wanted = Wanted.of(load_model("llama-3.2-1b"), LORA)
    stacks = [stack for stack in published_stacks("NVIDIA") if wanted.is_run_by(stack)]
    every = {
        stack.name: shardplan.search("llama-3.2-1b", "dgx-h100", 8, limit=FEW, stack=stack, **LORA).recommended
        for stack in stacks
    }
    times = {name: each.step_time for name, each in every.items() if each is not None}
    assert len(times) > 2
    assert found.recommended is not None
    assert found.recommended.step_time == min(times.values())
    assert found.recommended.framework is not None
    assert times[found.recommended.framework.partition(" ")[0]] == min(times.values())


def test_the_choice_names_both_times_and_every_other_framework() -> None:
    found = shardplan.search("llama-3.2-1b", "dgx-h100", 8, limit=FEW, **LORA)
    assert found.recommended is not None
    line = next(each for each in found.recommended.assumptions if each.startswith("framework "))
    assert "megatron-lm, which is usual on NVIDIA, has no low-rank adapters" in line
    assert f"{format_time(found.recommended.step_time)} a step" in line
    first = shardplan.search("llama-3.2-1b", "dgx-h100", 8, limit=FEW, stack="deepspeed", **LORA).recommended
    assert first is not None
    assert f"{format_time(first.step_time)} under deepspeed" in line
    wanted = Wanted.of(load_model("llama-3.2-1b"), LORA)
    assert all(each.name in line for each in published_stacks("NVIDIA") if wanted.is_run_by(each))


def test_one_answer_of_search_many_questions_budget_and_command_line() -> None:
    found = shardplan.search("llama-3.2-1b", "dgx-h100", 8, limit=FEW, **LORA).recommended
    asked = {"model": "llama-3.2-1b", "cluster": "dgx-h100", "num_accelerators": 8, **LORA}
    many = next(iter(shardplan.search_many([asked], limit=FEW))).recommended
    flags = ("--train", "lora", "--limit", "pp=1,2", "--limit", "cp=1")
    theirs = answer("plan", *SMALL_FLAGS, *flags)["recommended"]["plan"]
    assert found is not None
    assert many is not None
    assert found.step_time == many.step_time == theirs["step_time_s"]
    assert found.framework == many.framework == theirs["framework"]


def test_one_plan_takes_the_first_by_name_and_says_so() -> None:
    one = shardplan.estimate("llama-3.2-1b", "dgx-h100", 8, {}, **LORA)
    assert one.framework is not None
    assert one.framework.startswith("deepspeed ")
    assert any("the first by name of the 6 that have; a search takes the fastest" in each for each in one.assumptions)


def test_frameworks_are_compared_where_something_fits() -> None:
    """The fewest accelerators are sought from one on, where nothing of a large model fits."""
    found = shardplan.fit("llama-3.1-70b", "dgx-h100", smallest="gpus", train="lora", sequence_length=2048)
    assert found.answered.estimate is not None
    assert any("a step on " in each for each in found.assumptions)


@pytest.mark.parametrize("stack", ["deepspeed", "torchtitan", None])
def test_a_framework_that_is_named_is_kept(stack: str | None) -> None:
    posed = ask("llama-3.2-1b", "dgx-h100", 8, stack=stack, **LORA)
    assert under_fastest(posed) is posed
    assert posed.under == {}


def test_where_nothing_fits_anywhere_the_first_is_taken() -> None:
    posed = ask("llama-3.1-405b", "dgx-h100", 1, train="lora", sequence_length=131_072, global_batch_size=1)
    assert under_fastest(posed, fix={"tp": 1, "pp": 1, "cp": 1, "sharding": "ddp"}).stack == posed.stack


def test_what_no_framework_takes_is_refused_as_ever() -> None:
    with pytest.raises(InputError, match="unknown field of a plan 'tq'"):
        shardplan.search("llama-3.2-1b", "dgx-h100", 8, fix={"tq": 1}, **LORA)


def test_a_plan_with_software_that_others_lack_is_run_by_them_with_their_own() -> None:
    """MaxText computes the loss in pieces, which Megatron Core does not offer."""
    model, cluster = shardplan.load_model("llama-3.1-8b"), shardplan.load_cluster("dgx-h100")
    answers = shardplan.search_frameworks(model, cluster, 64, fix={"sharding": "zero1", "tp": 1, "pp": 1, "cp": 1})
    first, *others = answers
    assert first.best is not None
    assert first.best.plan.fused_loss
    assert first.own_software == ()
    own = {each.stack.name: each for each in others if each.own_software}
    assert {"megatron-bridge", "nemo"} <= {*own}
    for each in own.values():
        assert each.own_software == ("fused_loss",)
        assert each.missing or (each.first is not None and not each.first.plan.fused_loss)
    assert "with its own loss" in limits_text(own["nemo"])


MEGATRON = load_stack("megatron-lm")
SPLIT = Plan(ep=16, sharding="zero1")


def test_each_choice_is_priced_as_a_question_of_its_own() -> None:
    asked = question("qwen3-30b-a3b", "dgx-h100", 64, global_batch_size=512, stack="megatron-lm")
    assert asked.job.software.moe_dispatcher == "alltoall"
    found = {(each.field, each.new): each for each in other_software(asked, estimate_plan(asked, SPLIT), MEGATRON)}
    graphs = {("cuda_graphs", "partial"), ("cuda_graphs", "router")}
    assert found.keys() == {("moe_dispatcher", "deepep"), ("moe_dispatcher", "hybridep"), *graphs}
    assert found["cuda_graphs", "partial"].priced.step_time <= found["cuda_graphs", "router"].priced.step_time
    for (field, value), each in found.items():
        changed: dict[str, Any] = {field: value}
        software = replace(asked.job.software, **changed)
        alone = estimate_plan(replace(asked, job=replace(asked.job, software=software)), SPLIT)
        assert each.priced.step_time == alone.step_time
        assert each.priced.peak_memory_bytes == alone.peak_memory_bytes


def test_tokens_that_cross_to_a_node_once_take_less_time_there() -> None:
    asked = question("qwen3-30b-a3b", "dgx-h100", 64, global_batch_size=512, stack="megatron-lm")
    (deep,) = (each for each in other_software(asked, estimate_plan(asked, SPLIT), MEGATRON) if each.new == "deepep")
    assert deep.priced.step_time < estimate_plan(asked, SPLIT).step_time
    assert options_for(deep, SPLIT, MEGATRON, asked) == (
        "--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend deepep",
    )


def test_a_dense_model_has_no_dispatcher_to_choose() -> None:
    asked = question("llama-3.1-8b", "dgx-h100", 8, global_batch_size=64, stack="megatron-lm")
    assert {each.field for each in other_software(asked, estimate_plan(asked, Plan(tp=2)), MEGATRON)} == {"cuda_graphs"}

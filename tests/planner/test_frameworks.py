"""One question asked of several frameworks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.examples import LLAMA_70B, SMALL, cluster

import shardplan
from shardplan import load_model, search_frameworks
from shardplan.errors import InputError, NotRunnableError
from shardplan.frameworks.stack import load_stack
from shardplan.frameworks.usual_stack import (
    Wanted,
    chosen_stack,
    published_stacks,
    stack_for,
    stack_of_label,
    usual_stack,
)
from shardplan.inputs.job import Job

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

"""What frameworks run and refuse: published plans, known limits, and arrays of candidates like single plans."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from shardplan import load_cluster, load_model
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import Degrees, Setting
from shardplan.inputs.software import Software
from shardplan.physics.frameworks.capabilities import CONCERNED
from shardplan.physics.frameworks.defaults import plan_in_stack
from shardplan.physics.frameworks.runnable import Refusal, refusals, rules_of, runs
from shardplan.physics.frameworks.stack import list_stacks, load_stack

PLAIN = Software(moe_dispatcher="alltoall", cuda_graphs="none")
"""What frameworks do without further options."""


def _setting(model: str, num_accelerators: int, sequences: int, length: int = 4096, **job: Any) -> Setting:
    job = {"software": PLAIN} | job
    asked = Job(sequence_length=length, global_batch_size=sequences, **job)
    anywhere = load_cluster("dgx-h100")
    anywhere = replace(anywhere, accelerator=replace(anywhere.accelerator, vendor=""))
    return Setting.of(load_model(model), anywhere, num_accelerators, asked)


def _refused(stack: str, setting: Setting, given: Mapping[str, Any]) -> tuple[Refusal, ...]:
    """What the stack refuses of a plan whose other fields are its usual ones."""
    known = load_stack(stack)
    plan, _ = plan_in_stack(
        Plan(**given),
        known,
        model=setting.model,
        job=setting.job,
        num_accelerators=setting.num_accelerators,
        given=given,
    )
    return refusals(known, plan, setting)


PUBLISHED: dict[str, tuple[str, Setting, dict[str, Any]]] = {
    "Llama 3.1 405B on 16,384 GPUs (arXiv 2407.21783, table 4)": (
        "meta-llama-3",
        _setting("llama-3.1-405b", 16_384, 2048, 8192),
        {"tp": 8, "pp": 16, "vp": 8, "placement": "tp-cp-ep-pp-dp", "overlap_pp": True},
    ),
    "the same plan on Megatron-LM, embedding and head counted as layers": (
        "megatron-lm",
        _setting("llama-3.1-405b", 16_384, 2048, 8192),
        {"tp": 8, "pp": 16, "vp": 8},
    ),
    "the same with context parallelism on NeMo": (
        "nemo",
        _setting("llama-3.1-405b", 1024, 512, 8192),
        {"tp": 8, "pp": 8, "vp": 8, "cp": 2},
    ),
    "DeepSeek-V3 on 2,048 GPUs (arXiv 2412.19437, section 3.2)": (
        "hai-llm",
        _setting("deepseek-v3", 2048, 15_360, precision="fp8"),
        {"pp": 16, "vp": 2, "ep": 64, "schedule": "dualpipe", "recompute": "layernorm,mla_up_proj"},
    ),
    "DeepSeek-V3 in a layout of 61 layers on Megatron-Bridge": (
        "megatron-bridge",
        _setting("deepseek-v3", 1024, 8192, precision="fp8"),
        {"pp": 8, "vp": 2, "ep": 64, "overlap_ep": True, "recompute": "mla_up_proj"},
    ),
    "GPT-3 175B on 12,288 GPUs (arXiv 2402.15627, section 6.1)": (
        "megascale",
        _setting("gpt3-175b", 12_288, 6144, 2048),
        {"tp": 8, "pp": 8, "vp": 6, "sharding": "zero2"},
    ),
    "Megatron 1T on 3,072 GPUs (arXiv 2104.04473, table 1)": (
        "megatron-lm-2021",
        _setting("megatron-1t", 3072, 3072, 2048, precision="fp16"),
        {"tp": 8, "pp": 64},
    ),
    "Megatron 530B with sequence parallelism (arXiv 2205.05198, table 5)": (
        "megatron-lm-2021",
        _setting("megatron-530b", 280, 280, 2048, precision="fp16"),
        {"tp": 8, "pp": 35, "vp": 3, "recompute": "selective", "sequence_parallel": True},
    ),
    "Llama 3.1 70B with FSDP and tensor parallelism on torchtitan": (
        "torchtitan",
        _setting("llama-3.1-70b", 256, 256, 8192),
        {"tp": 8},
    ),
    "Llama 3.1 405B with an interleaved pipeline on torchtitan": (
        "torchtitan",
        _setting("llama-3.1-405b", 512, 128, 8192),
        {"tp": 8, "pp": 8, "vp": 2},
    ),
    "ZeRO-3 with Ulysses on DeepSpeed": (
        "deepspeed",
        _setting("llama-3.1-8b", 64, 64, 131_072),
        {"cp": 8, "cp_comm": "a2a"},
    ),
    "BLOOM-like plan on Megatron-DeepSpeed": (
        "megatron-deepspeed",
        _setting("gpt3-175b", 384, 2048, 2048),
        {"tp": 4, "pp": 12},
    ),
    "Llama 70B on nanotron, stages closed by cost": (
        "nanotron",
        _setting("llama-3.1-70b", 64, 512),
        {"tp": 8, "pp": 4},
    ),
    "Llama 2 70B with FSDP on TPUs by MaxText": ("maxtext", _setting("llama-2-70b", 256, 256), {"tp": 1}),
    "a circular pipeline on MaxText": (
        "maxtext",
        _setting("llama-2-70b", 256, 256),
        {"pp": 4, "vp": 4, "schedule": "breadth-first"},
    ),
    "MPT-like FSDP on llm-foundry": ("llm-foundry", _setting("llama-2-7b", 128, 1024, 2048), {}),
    "InternLM 7B on InternEvo": ("internevo", _setting("llama-2-7b", 128, 512), {"tp": 1}),
    "DeepSeek-V3 by DualPipeV on Ascend": (
        "mindspeed-llm",
        _setting("deepseek-v3", 512, 1024),
        {"pp": 8, "vp": 2, "ep": 32, "schedule": "dualpipe-v", "overlap_ep": True, "overlap_dp": False},
    ),
    "Qwen3 30B with expert parallelism on NeMo Automodel": (
        "nemo-automodel",
        _setting("qwen3-30b-a3b", 16, 512),
        {"ep": 8, "recompute": "full"},
    ),
}


@pytest.mark.parametrize("case", PUBLISHED)
def test_published_and_usual_plans_run(case: str) -> None:
    assert _refused(*PUBLISHED[case]) == ()


OWN_SCRIPTS: list[tuple[str, dict[str, Any]]] = [
    ("deepspeed", {"pp": 4, "sharding": "zero1", "recompute": "full"}),
    ("deepspeed", {"sharding": "hsdp", "sharding_degree": 8}),
    ("torchtitan", {"sharding": "zero3"}),
]


@pytest.mark.parametrize(("stack", "plan"), OWN_SCRIPTS)
def test_a_script_of_ones_own_runs_what_launch_files_cannot_ask_for(stack: str, plan: dict[str, Any]) -> None:
    setting = _setting("llama-2-13b", 64, 512, optimizer="muon" if stack == "torchtitan" else "adam")
    assert [each.own_script for each in _refused(stack, setting, plan)] == [True]


DENSE, MOE = _setting("llama-3.1-70b", 64, 512, 8192), _setting("qwen3-30b-a3b", 64, 512)
TIED = _setting("gemma-2-9b", 64, 512)
TP_OF_EXPERTS: dict[str, Any] = {"ep": 8, "tp": 2, "sequence_parallel": False, "sharding": "zero2"}
PAIRS = {cp: _setting("llama-3.1-8b", 64, 512, length=4096 + cp) for cp in (2, 4)}
"""Sequences that so many ranks share, and not in pairs of pieces."""
LIMITS: list[tuple[str, Setting, dict[str, Any], str, str]] = [
    ("deepspeed", DENSE, {"pp": 4, "vp": 8, "sharding": "zero1"}, "--vp", "set vp to 1"),
    ("deepspeed", DENSE, {"pp": 4, "sharding": "zero3"}, "--sharding", "set sharding to ddp or zero1, or pp to 1"),
    ("deepspeed", DENSE, {"cp": 2, "cp_comm": "p2p"}, "--cp-comm", "set cp_comm to a2a"),
    ("deepspeed", DENSE, {"recompute": "layernorm"}, "--recompute", "set recompute to none or full"),
    ("deepspeed", DENSE, {"offload": "activations"}, "--offload", "recompute to full"),
    ("deepspeed", MOE, {"ep": 8, "tp": 2, "sequence_parallel": False}, "--sharding", "set sharding to zero2"),
    ("deepspeed", MOE, TP_OF_EXPERTS | {"offload": "optimizer"}, "--offload", "set offload to none, or tp to 1"),
    ("torchtitan", DENSE, {"recompute": "layernorm,activation"}, "--recompute", "none, op_sac or full"),
    ("torchtitan", DENSE, {"sharding": "zero1"}, "--sharding", "ddp, zero2, zero3 or hsdp"),
    ("torchtitan", DENSE, {"tp": 16}, "--tp", "divisors of the number of key-value heads"),
    ("torchtitan", TIED, {"pp": 2}, "--pp", "set pp to 1"),
    ("torchtitan", DENSE, {"cp": 2, "cp_comm": "p2p"}, "--cp-comm", "set cp_comm to allgather"),
    ("torchtitan", DENSE, {"placement": "dp-tp-cp-ep-pp", "tp": 2}, "--placement", "tp-cp-ep-dp-pp"),
    ("torchtitan", DENSE, {"pp": 2, "overlap_pp": True}, "--overlap-pp", "turn overlap_pp off"),
    ("torchtitan", MOE, {"ep": 4, "etp": 2, "tp": 2}, "--etp", "set etp to 1"),
    ("torchtitan@0.2", MOE, {"ep": 4, "etp": 4, "tp": 2}, "--etp", "set etp to 1 or to tp"),
    ("megatron-lm", DENSE, {"recompute": "layernorm,activation"}, "--recompute", "layernorm or mlp, or full"),
    ("megatron-lm", DENSE, {"recompute": "op_sac"}, "--recompute", "set recompute to none, core_attn"),
    ("megatron-lm", DENSE, {"tp": 2, "overlap_tp": True, "sequence_parallel": False}, "--overlap-tp", "overlap_tp off"),
    ("megatron-lm", DENSE, {"pp": 2, "vp": 1, "overlap_pp": True}, "--overlap-pp", "leave overlap_pp out"),
    ("megatron-lm", MOE, {"ep": 8, "pp": 2, "vp": 1, "overlap_ep": True}, "--overlap-ep", "set vp to 2 or more"),
    ("megatron-lm", MOE, {"ep": 8, "overlap_ep": True, "recompute": "full"}, "--recompute", "turn overlap_ep off"),
    (
        "megatron-lm", DENSE,
        {"pp": 4, "vp": 5, "recompute": "full", "recompute_num_layers": 3},
        "--recompute-num-layers", "multiple of vp 5",
    ),
    (
        "megatron-lm", DENSE,
        {"recompute": "layernorm", "recompute_num_layers": 3},
        "--recompute-num-layers", "leave recompute_num_layers out, or recompute full",
    ),
    ("megatron-lm", DENSE, {"schedule": "zb-h1", "pp": 4}, "--schedule", "set the schedule to 1f1b or interleaved"),
    ("megatron-lm", DENSE, {"tp": 4, "tp_rows": 2, "tp_kind": "summa"}, "--tp-kind", "set tp_kind to 1d"),
    ("megatron-lm-2021", DENSE, {"pp": 16, "vp": 1, "cp": 2}, "--cp", "set cp to 1"),
    ("megatron-lm-2021", DENSE, {"pp": 3}, "--stage-layers", "product divides 80"),
    ("megatron-lm-2021", DENSE, {"sharding": "zero1"}, "--sharding", "set sharding to ddp"),
    ("megatron-lm-2021@2.6", DENSE, {"recompute": "selective"}, "--recompute", "none or full"),
    ("nanotron", DENSE, {"tp": 16}, "--tp", "number of key-value heads"),
    ("nanotron", PAIRS[2], {"cp": 2, "cp_comm": "allgather"}, "--cp", "2 cp divides"),
    ("nanotron", PAIRS[4], {"cp": 4, "cp_comm": "allgather"}, "--cp", "2 cp divides"),
    ("nanotron", DENSE, {"pp": 4, "stage_layers": (40, 20, 10, 10)}, "--stage-layers", "leave stage_layers out"),
    ("maxtext", DENSE, {"pp": 4}, "--schedule", "gpipe or breadth-first"),
    ("maxtext", DENSE, {"pp": 4, "vp": 2}, "--vp", "set vp to 1, or the schedule to breadth-first"),
    ("llm-foundry", DENSE, {"pp": 2}, "--pp", "set pp to 1"),
    ("llm-foundry", DENSE, {"cp": 2}, "--cp", "set cp to 1"),
    ("internevo", DENSE, {"cp": 2, "cp_comm": "a2a", "tp": 2}, "--cp", "set tp to 1"),
    ("internevo", MOE, {"ep": 8}, "--ep", "smaller of the two"),
    ("megascale", DENSE, {"cp": 2}, "--cp", "set cp to 1"),
    ("nemo", MOE, {"ep": 8, "overlap_ep": True}, "--overlap-ep", "turn overlap_ep off"),
    ("mindspeed-llm", DENSE, {"pp": 4, "vp": 2, "schedule": "dualpipe-v", "cp": 2}, "--cp", "set cp to 1"),
    ("deepspeed", _setting("llama-3.1-8b", 64, 512, precision="nvfp4"), {}, "--precision", "bf16, fp16, fp32 or fp8"),
    ("internevo", _setting("llama-3.1-8b", 64, 512, optimizer="muon"), {}, "--optimizer", "set optimizer to adam"),
]  # fmt: skip

WITHIN: list[tuple[str, Setting, dict[str, Any]]] = [
    ("deepspeed", MOE, TP_OF_EXPERTS),
    ("deepspeed", MOE, TP_OF_EXPERTS | {"tp": 1, "offload": "optimizer"}),
    ("deepspeed", MOE, TP_OF_EXPERTS | {"ep": 1, "offload": "optimizer"}),
    ("nanotron", PAIRS[2], {"cp": 1, "cp_comm": "allgather"}),
    ("nanotron", PAIRS[4], {"cp": 2, "cp_comm": "allgather"}),
]


@pytest.mark.parametrize(("stack", "setting", "given"), WITHIN)
def test_what_is_just_within_these_limits_runs(stack: str, setting: Setting, given: dict[str, Any]) -> None:
    assert _refused(stack, setting, given) == ()


@pytest.mark.parametrize(("stack", "setting", "given", "flag", "instead"), LIMITS)
def test_what_a_framework_cannot_run_is_refused_with_what_it_can(
    stack: str, setting: Setting, given: dict[str, Any], flag: str, instead: str
) -> None:
    found = {refusal.flag: refusal for refusal in _refused(stack, setting, given)}
    assert flag in found, list(found)
    refusal = found[flag]
    assert instead in refusal.hint
    assert refusal.framework.startswith(stack.partition("@")[0])
    assert refusal.source
    assert len(refusal.message) < 200


@pytest.mark.parametrize("name", list_stacks())
def test_the_usual_plan_of_every_framework_runs(name: str) -> None:
    precision = "fp16" if name == "megatron-lm-2021" else "bf16"
    placement = {"placement": "tp-cp-ep-pp-dp"} if name == "meta-llama-3" else {}
    assert _refused(name, _setting("llama-3.1-8b", 64, 512, precision=precision), placement) == ()
    if load_stack(name).can_run_before:
        for record in load_stack(name).can_run_before:
            assert _refused(f"{name}@{record.version}", _setting("llama-3.1-8b", 64, 512), {}) == ()


def test_a_stack_without_a_record_refuses_nothing() -> None:
    stack = replace(load_stack("deepspeed"), can_run=None)
    assert refusals(stack, Plan(pp=4, vp=8), DENSE) == ()
    assert runs(stack, DENSE, Degrees.of(Plan(pp=4, vp=8))) is True


def test_versions_differ_in_what_they_run() -> None:
    assert _refused("torchtitan@0.2", DENSE, {"cp": 2, "cp_comm": "p2p"}) == ()
    assert _refused("megatron-deepspeed", DENSE, {"cp": 2, "cp_comm": "a2a"}) == ()
    assert _refused("megatron-deepspeed@bigscience", DENSE, {"cp": 2, "cp_comm": "a2a"})


@pytest.mark.parametrize("name", list_stacks())
def test_rules_name_fields_of_plan_and_job(name: str) -> None:
    known = {each.name for each in fields(Plan)}
    for rule in rules_of(load_stack(name)):
        assert rule.field in (*CONCERNED, "accelerator", "model", "train", "documents", "software")
        assert {*rule.reads} <= known
        assert rule.source
        assert rule.hint(MOE, Plan(schedule="zb-h1", recompute="mlp"))


AXES = ("tp", "cp", "pp", "vp", "ep", "etp", "micro_batch_size")
CHOICES: dict[str, list[Any]] = {
    "schedule": [None, None, "interleaved", "gpipe", "zb-v", "dualpipe-v"],
    "sharding": ["ddp", "zero1", "zero2", "zero3"],
    "recompute": ["none", "selective", "full", "layernorm,activation", "op_sac", "moe"],
    "recompute_num_layers": [None, None, 2, 6],
    "offload": ["none", "none", "optimizer", "activations"],
    "cp_comm": ["p2p", "allgather", "a2a"],
    "overlap_tp": [False, True],
    "overlap_dp": [False, True],
    "overlap_pp": [None, False, True],
    "overlap_ep": [False, True],
    "sequence_parallel": [True, False],
    "placement": ["tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp", "tp-cp-dp-pp-ep", "tp:2-dp:2-tp-cp-ep-dp-pp"],
    "microbatch_group_size": [None, None, 2, 4],
    "sharding_degree": [None, None, 2],
}


@pytest.mark.parametrize("name", list_stacks())
def test_arrays_of_candidates_are_judged_like_single_plans(name: str) -> None:
    dice = random.Random(name)  # noqa: S311  # the same samples in every run
    rules = rules_of(load_stack(name))
    for _ in range(8):
        setting = dice.choice([DENSE, MOE, TIED])
        switches = {field: dice.choice(values) for field, values in CHOICES.items()}
        numbers = {axis: sorted(dice.sample([1, 2, 3, 4, 8], 2)) for axis in AXES}
        shape = (2,) * len(AXES)
        grid: dict[str, Any] = dict(zip(AXES, np.ix_(*numbers.values()), strict=True))
        of_plan = Degrees.of(Plan(**switches))
        interleaved = grid["vp"] > 1 if switches["schedule"] is None else of_plan.interleaved
        degrees = replace(of_plan, **grid, interleaved=interleaved)
        found = [np.broadcast_to(rule.holds(setting, degrees), shape) for rule in rules]
        for place in dice.sample([*np.ndindex(shape)], 12):
            plan = Plan(**switches, **{axis: numbers[axis][at] for axis, at in zip(AXES, place, strict=True)})
            alone = [bool(np.all(rule.holds(setting, Degrees.of(plan)))) for rule in rules]
            assert [bool(holds[place]) for holds in found] == alone
            assert bool(np.all([holds[place] for holds in found])) is (refusals(load_stack(name), plan, setting) == ())


@pytest.mark.parametrize(
    ("stack", "software", "plan", "concerned"),
    [
        ("nemo", {"moe_dispatcher": "hybridep"}, Plan(ep=8), "software"),
        ("megatron-lm", {"moe_dispatcher": "deepep"}, Plan(), "moe_dispatcher"),
        ("megatron-lm", {"cuda_graphs": "partial"}, Plan(ep=8, recompute="full"), "cuda_graphs"),
        ("megatron-lm", {"cuda_graphs": "full"}, Plan(ep=8), "cuda_graphs"),
    ],
)
def test_software_that_a_framework_lacks_or_cannot_combine(
    stack: str, software: dict[str, Any], plan: Plan, concerned: str
) -> None:
    """Sources are with the rules of the records."""
    of_stack = load_stack(stack).job_fields("bf16")["software"]
    setting = _setting("qwen3-30b-a3b", 64, 512, software=replace(of_stack, **software))
    usual = replace(setting, job=replace(setting.job, software=of_stack))
    found = [each.field for each in refusals(load_stack(stack), plan, setting)]
    assert found == [concerned]
    assert not refusals(load_stack(stack), plan, usual)


def test_large_scale_up_domains_need_hybridep() -> None:
    job = Job(
        sequence_length=4096, global_batch_size=576, software=Software(moe_dispatcher="deepep", cuda_graphs="none")
    )
    setting = Setting.of(load_model("qwen3-30b-a3b"), load_cluster("gb200-nvl72"), 72, job)
    (found,) = refusals(load_stack("megatron-lm"), Plan(ep=8), setting)
    assert found.flag == "--software moe_dispatcher"
    assert "hybridep" in found.hint

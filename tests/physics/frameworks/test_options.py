"""Plans in the option names of frameworks: as users launch them, nothing lost, and what a file may write."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from shardplan import load_cluster, load_model
from shardplan.base.errors import InputError
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import Degrees, Setting
from shardplan.inputs.software import Software
from shardplan.physics.frameworks.conditions import FACTS
from shardplan.physics.frameworks.option_entries import SAID
from shardplan.physics.frameworks.options import OptionsOfPlan, makes_a_difference, options_of
from shardplan.physics.frameworks.runnable import refusals
from shardplan.physics.frameworks.stack import list_stacks, load_stack
from shardplan.physics.frameworks.stage_layers import megatron_layout
from shardplan.physics.frameworks.usual_stack import Wanted
from shardplan.physics.validity import broken_rule

FROM_PAPERS: Final = {"hai-llm", "megascale", "meta-llama-3"}
NONE_READ: Final = {*FROM_PAPERS, "megatron-lm-2021"}
WITH_OPTIONS: Final = tuple(name for name in list_stacks() if name not in NONE_READ)


PLAIN: Final = Software(moe_dispatcher="alltoall", cuda_graphs="none")
"""What frameworks do without further options."""


def _setting(model: str, cluster: str, num_accelerators: int, sequences: int, length: int, **job: Any) -> Setting:
    job = {"software": PLAIN} | job
    asked = Job(sequence_length=length, global_batch_size=sequences, **job)
    return Setting.of(load_model(model), load_cluster(cluster), num_accelerators, asked)


def _options(stack: str, setting: Setting, plan: Plan) -> OptionsOfPlan:
    found = options_of(load_stack(stack), setting, plan)
    assert found is not None
    return found


# As users launch them


def test_llama_405b_on_megatron() -> None:
    """One layer to a chunk, embedding and head in chunks of their own (arXiv 2407.21783, section 3.3.2)."""
    setting = _setting("llama-3.1-405b", "dgx-h100", 16_384, 2048, 8192)
    found = _options("megatron-lm", setting, Plan(tp=8, cp=2, pp=16, vp=8, placement="tp-cp-ep-pp-dp"))
    assert " ".join(found.options).split() == [
        "--tensor-model-parallel-size", "8", "--sequence-parallel", "--context-parallel-size", "2",
        "--pipeline-model-parallel-size", "16", "--pipeline-model-parallel-layout", "'E|(t|)*126L'",
        "--use-tp-pp-dp-mapping", "--use-distributed-optimizer", "--overlap-grad-reduce", "--overlap-param-gather",
        "--micro-batch-size", "1", "--global-batch-size", "2048", "--seq-length", "8192", "--bf16",
    ]  # fmt: skip
    assert not found.unsaid


def test_traps_of_megatron() -> None:
    setting = _setting("qwen3-30b-a3b", "dgx-h100", 64, 256, 4096, precision="fp32")
    plan = Plan(tp=2, ep=8, sharding="ddp", sequence_parallel=True, overlap_dp=False)
    found = _options("megatron-lm", setting, plan)
    assert "--expert-tensor-parallel-size 1" in found.options  # else experts are split as the layers
    assert not any("bf16" in each or "distributed" in each or "overlap" in each for each in found.options)
    split = _options("megatron-lm", setting, replace(plan, etp=2))
    assert not any("expert-tensor" in each for each in split.options)
    without = _options("megatron-lm", setting, replace(plan, tp=1))
    assert "--sequence-parallel" in found.options
    assert "--sequence-parallel" not in without.options
    blocks = replace(plan, recompute="full", recompute_num_layers=6, pp=2, vp=2)
    assert (
        "--recompute-granularity full --recompute-method block --recompute-num-layers 3"
        in _options("megatron-lm", setting, blocks).options
    )


def test_a_70b_model_on_torchtitan() -> None:
    setting = _setting("llama-3.1-70b", "dgx-h100", 512, 512, 8192)
    plan = Plan(tp=8, sharding="zero3", recompute="full", overlap_tp=True)
    assert _options("torchtitan", setting, plan).options == (
        "--parallelism.tensor_parallel_degree 8",
        "--compile.enable --compile.enable_async_tensor_parallel",
        "--parallelism.context_parallel_degree 1",
        "--parallelism.pipeline_parallel_degree 1",
        "--parallelism.data_parallel_replicate_degree 1 --parallelism.data_parallel_shard_degree 64",
        "--parallelism.fsdp_reshard_after_forward default",
        "--training.num_tokens_per_microbatch_per_dp_rank 8192",
        "--training.num_tokens_per_train_step 4194304",
        "--training.max_context_length 8192",
        "--training.mixed_precision_param bfloat16",
        "--training.disable_cuda_graphs",
        "activation-checkpoint:full",
    )
    groups = replace(plan, sharding="hsdp", sharding_degree=32)
    wanted = "--parallelism.data_parallel_replicate_degree 2 --parallelism.data_parallel_shard_degree 32"
    assert wanted in _options("torchtitan", setting, groups).options
    before = _options("torchtitan@0.2", setting, plan)
    assert "--training.seq_len 8192" in before.options
    assert "--parallelism.enable_async_tensor_parallel" in " ".join(before.options)
    assert before.options[-1] == "--activation_checkpoint.mode full"


def test_zero3_with_offload_on_deepspeed() -> None:
    setting = _setting("llama-3.1-8b", "dgx-a100", 16, 128, 4096)
    plan = Plan(sharding="zero3", micro_batch_size=4, recompute="full", offload="optimizer")
    found = _options("deepspeed", setting, plan)
    assert found.options == (
        "train_batch_size: auto",
        "train_micro_batch_size_per_gpu: 4",
        "gradient_accumulation_steps: 2",
        "zero_optimization.stage: 3",
        "zero_optimization.overlap_comm: true",
        "zero_optimization.offload_optimizer.device: cpu",
        "bf16.enabled: true",
        "optimizer.type: AdamW",
        "gradient_checkpointing: true",
    )
    assert found.unsaid == ("sequence_length",)  # the tokenizer's business


def test_llama_405b_on_maxtext() -> None:
    setting = _setting("llama-3.1-405b", "tpu-v5p-pod", 2048, 512, 8192)
    plan = Plan(tp=8, sharding="zero3", recompute="full", overlap_tp=True, sequence_parallel=False)
    assert _options("maxtext", setting, plan).options == (
        "ici_tensor_parallelism=8",
        "ici_fsdp_parallelism=256 dcn_fsdp_parallelism=1",
        "dcn_data_parallelism=1",
        "per_device_batch_size=0.125 gradient_accumulation_steps=2",
        "max_target_length=8192",
        "remat_policy=full",
    )


@pytest.mark.parametrize("plan", [
    Plan(tp=8, sharding="zero3"), Plan(tp=2, sharding="zero3"), Plan(tp=16, sharding="zero3"), Plan(tp=4, cp=4, pp=2),
    Plan(tp=2, cp=2, pp=4, sharding="ddp"), Plan(tp=2, sharding="hsdp", sharding_degree=8), Plan(tp=2, pp=32),
    Plan(tp=2, cp=2, sharding="hsdp", sharding_degree=2, pp=2), Plan(sharding="hsdp", sharding_degree=16), Plan(ep=4),
    Plan(tp=2, ep=8, sharding="zero3", etp=2), Plan(cp=16, sharding="zero3"),
])  # fmt: skip
def test_axes_of_maxtext_fill_slices_and_machine(plan: Plan) -> None:
    """Axes inside a slice multiply to its accelerators, and all axes to those of the run."""
    setting = _setting("qwen3-30b-a3b", "dgx-h100", 64, 256, 8192)
    axes = {"ici": 1, "dcn": 1}
    for text in _options("maxtext", setting, plan).options:
        for option in text.split():
            name, _, value = option.partition("=")
            if name.endswith("_parallelism"):
                axes[name[:3]] *= int(value)
    assert axes == {"ici": 8, "dcn": 8}


def test_an_8b_model_on_nanotron() -> None:
    setting = _setting("llama-3.1-8b", "dgx-h100", 64, 256, 4096)
    plan = Plan(tp=4, pp=2, micro_batch_size=2, recompute="full", overlap_tp=True)
    found = _options("nanotron", setting, plan)
    assert found.options == (
        "parallelism.dp: 8",
        "parallelism.tp: 4",
        "parallelism.tp_mode: REDUCE_SCATTER",
        "parallelism.tp_linear_async_communication: true",
        "parallelism.pp: 2",
        "parallelism.pp_engine: 1f1b",
        "parallelism.recompute_layer: true",
        "optimizer.zero_stage: 1",
        "optimizer.optimizer_factory.name: adamW",
        "tokens.micro_batch_size: 2",
        "tokens.batch_accumulation_per_replica: 16",
        "tokens.sequence_length: 4096",
        "model.dtype: bfloat16",
    )
    assert not found.unsaid


def test_keys_of_bridge_are_all_stated() -> None:
    """A recipe may have set any of them."""
    setting = _setting("llama-3.1-70b", "dgx-h100", 64, 128, 8192, precision="fp8")
    found = _options("megatron-bridge", setting, Plan(tp=4, pp=4, vp=5))
    for wanted in (
        "model.tensor_model_parallel_size=4", "model.context_parallel_size=1", "model.pipeline_model_parallel_size=4",
        "model.virtual_pipeline_model_parallel_size=5", "model.sequence_parallel=true", "model.tp_comm_overlap=false",
        "model.recompute_granularity=null", "mixed_precision=bf16_with_fp8_current_scaling_mixed",
        "train.micro_batch_size=1",
    ):  # fmt: skip
        assert wanted in found.options
    assert not found.unsaid


# Nothing is lost

CANDIDATES: Final[dict[str, tuple[Any, ...]]] = {
    "tp": (1, 2, 4, 8, 16), "cp": (1, 2, 4), "pp": (1, 2, 4, 8), "vp": (1, 2, 4), "ep": (1, 2, 8, 64), "etp": (1, 2, 4),
    "micro_batch_size": (1, 2, 4), "sequence_parallel": (True, False), "sharding_degree": (None, 2, 4, 8, 16),
    "sharding": ("ddp", "zero1", "zero2", "zero3", "hsdp", "hpz"), "microbatch_group_size": (None, 2, 4, 8),
    "schedule": (None, "1f1b", "interleaved", "gpipe", "breadth-first", "zb-h1", "zb-h2", "zb-v", "dualpipe-v"),
    "recompute": ("none", "selective", "op_sac", "full", "layernorm,activation", "core_attn,layernorm,activation",
                  "mlp,layernorm,activation", "moe,layernorm", "mlp"),
    "recompute_num_layers": (None, 1, 2, 4), "offload": ("none", "optimizer", "activations"),
    "offload_num_layers": (None, 1, 2), "cp_comm": ("p2p", "allgather", "a2a"), "overlap_tp": (True, False),
    "overlap_dp": (True, False), "overlap_pp": (None, True, False), "overlap_ep": (True, False),
    "placement": ("tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp", "tp-cp-dp-pp-ep"),
    "sequence_length": (4096, 8192), "global_batch_size": (256, 512), "optimizer": ("adam", "sgd", "muon"),
    "precision": ("bf16", "fp16", "fp32", "fp8", "mxfp8", "nvfp4"),
}  # fmt: skip
"""Values of every field that a walk through plans tries."""

UNSAID: Final[dict[str, set[str]]] = {
    "aleph-alpha-scaling": {"precision", "stage_layers"},
    "deepspeed": {"sequence_length"},
    "internevo": {"overlap_tp", "overlap_ep"},
    "llm-foundry": {"sequence_parallel", "offload", "offload_num_layers"},
    "maxtext": {"overlap_tp", "overlap_dp", "overlap_ep", "placement", "recompute", "offload"},
    "mindspeed-llm": {"overlap_dp"},
    "nanotron": {"overlap_dp"},
    "nemo": {"offload", "precision"},
    "nemo-automodel": {"optimizer", "cp_comm", "precision", "vp", "stage_layers", "overlap_pp"},
    "torchtitan": {"optimizer", "precision", "vp", "stage_layers", "overlap_pp"},
    "zero-bubble": {
        "offload", "offload_num_layers", "cp_comm", "overlap_pp", "overlap_ep", "vp", "schedule", "stage_layers",
    },
}  # fmt: skip
"""Fields that the options of a framework do not express in some plans that it runs; of others none."""


def _start(stack: str, setting: Setting) -> Plan:
    """A plan that a framework runs."""
    plans = (
        Plan(sharding=kind, cp_comm="allgather", recompute=recompute, ep=ep, overlap_dp=overlap, sequence_parallel=True)
        for kind in ("zero1", "zero3")
        for recompute in ("none", "full")
        for ep in (1, 64)
        for overlap in (True, False)
    )
    known = load_stack(stack)
    return next(p for p in plans if broken_rule(setting, p) is None and not refusals(known, p, setting))


def _effective(name: str, setting: Setting, plan: Plan) -> object:
    """What a field comes to; None where it makes no difference."""
    degrees = Degrees.of(plan)
    if not makes_a_difference(name, setting, degrees):
        return None
    if name == "placement":
        sizes = {"tp": plan.tp, "cp": plan.cp, "ep": plan.ep, "pp": plan.pp, "dp": plan.dp(setting.num_accelerators)}
        return tuple(each for each in plan.placement.split("-") if sizes[each] > 1)
    return FACTS[name](setting, degrees)


def _changed(name: str, setting: Setting, plan: Plan, rng: random.Random) -> tuple[Setting, Plan] | None:
    """A neighbour in one field; None where there is no such plan."""
    value = rng.choice(CANDIDATES[name])
    try:
        if hasattr(plan, name):
            return setting, replace(plan, **{name: value})
        return replace(setting, job=replace(setting.job, **{name: value})), plan
    except InputError:
        return None


@pytest.mark.parametrize("model", ["llama-3.1-8b", "qwen3-30b-a3b"])
@pytest.mark.parametrize("stack", [*WITH_OPTIONS, "torchtitan@0.3.0", "torchtitan@0.2.2"])
def test_plans_that_differ_have_options_that_differ(stack: str, model: str) -> None:
    """Along a walk through plans that a framework runs, every field that changes is in the options or is unsaid."""
    rng, known = random.Random(stack), load_stack(stack)  # noqa: S311  # a sample, no secret
    anywhere = load_cluster("dgx-h100")
    anywhere = replace(anywhere, accelerator=replace(anywhere.accelerator, vendor=""))
    setting = Setting.of(
        load_model(model), anywhere, 64, Job(sequence_length=4096, global_batch_size=256, software=PLAIN)
    )
    if Wanted.of(setting.model).lacking(known):
        pytest.skip("the framework has no such layers")
    plan = _start(stack, setting)
    found = _options(stack, setting, plan)
    for _ in range(200):
        name = rng.choice([*CANDIDATES])
        step = _changed(name, setting, plan, rng)
        if step is None or broken_rule(*step) is not None or refusals(known, step[1], step[0]):
            continue
        there = _options(stack, *step)
        if _effective(name, setting, plan) != _effective(name, *step):
            assert there.options != found.options or name in {*there.unsaid, *found.unsaid}, (plan, step[1])
        assert {*there.unsaid} <= UNSAID.get(known.name, set()), step[1]
        setting, plan, found = *step, there


def test_what_a_framework_has_no_option_for_is_unsaid() -> None:
    setting = _setting("llama-3.1-70b", "dgx-h100", 64, 512, 8192)
    assert {"vp", "schedule"} <= {*_options("deepspeed", setting, Plan(pp=4, vp=5)).unsaid}
    stated = Plan(pp=4, stage_layers=(17, 21, 21, 21))
    assert "stage_layers" in _options("torchtitan", setting, replace(stated, sharding="zero3")).unsaid
    assert "stage_layers" not in _options("megatron-lm", setting, stated).unsaid
    assert "op_sac" not in " ".join(_options("megatron-lm", setting, Plan(recompute="op_sac")).options)
    assert _options("megatron-lm", setting, Plan(recompute="op_sac")).unsaid == ("recompute",)


def test_slices_of_several_pods_on_maxtext() -> None:
    """16,384 chips are two slices of 8,192, though a pod of TPU v5p has 8,960; 9,001 cannot be shared alike."""
    setting = _setting("llama-3.1-405b", "tpu-v5p-pod", 16_384, 2048, 8192)
    found = _options("maxtext", setting, Plan(tp=8, sharding="zero1"))
    assert "ici_data_parallelism=1024 dcn_data_parallelism=2" in found.options
    assert "sharding" not in found.unsaid
    hybrid = _options("maxtext", setting, Plan(tp=2, sharding="hsdp", sharding_degree=4096))
    assert "dcn_data_parallelism=2" in hybrid.options
    uneven = _setting("llama-3.1-405b", "tpu-v5p-pod", 9001, 9001, 8192)
    assert "sharding" in _options("maxtext", uneven, Plan(sharding="zero1")).unsaid


def test_policies_of_no_layer_are_none() -> None:
    setting = _setting("llama-3.1-70b", "dgx-h100", 64, 512, 8192)
    nothing = Plan(recompute="full", recompute_num_layers=0, offload="activations", offload_num_layers=0)
    assert _options("megatron-lm", setting, nothing) == _options("megatron-lm", setting, Plan())


def test_stacks_without_a_repository_have_no_options() -> None:
    setting = _setting("llama-3.1-70b", "dgx-h100", 64, 512, 8192)
    assert all(options_of(load_stack(name), setting, Plan()) is None for name in NONE_READ)


@pytest.mark.parametrize(("layers", "blocks", "expected"), [
    ((1, *[1] * 14, 1), 0, "Et|(t|)*14tL"),
    ((7, *[8] * 14, 7), 0, "Et*7|(t*8|)*14t*7L"),
    ((0, 3, 4, 0), 0, "E|t*3|t*4|L"),
    ((4, 4, 1), 1, "Et*4|t*4|tmL"),
    ((32,), 0, "Et*32L"),
])  # fmt: skip
def test_layouts_in_the_notation_of_megatron(layers: tuple[int, ...], blocks: int, expected: str) -> None:
    assert megatron_layout(layers, blocks) == expected


# Files

FILE = """
name: mine
can_run:
  version: "1"
  date: "2026-01"
  options:
    source: "mine.py"
    value:
      - "--tp {tp}"
      - {option: "--recompute {recompute:,}", when: "recompute != ()", words: {core_attn: attention}}
      - {option: "--batch {{{micro_batch_size * sequence_length // 2}}}", says: [micro_batch_size]}
      - {default: "cp == 1"}
"""


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(FILE, encoding="utf-8")
    setting = _setting("llama-3.1-8b", "dgx-h100", 8, 8, 4096)
    found = _options(str(path), setting, Plan(tp=2, recompute="core_attn,layernorm", micro_batch_size=2))
    assert found.options == ("--tp 2", "--recompute attention,layernorm", "--batch {4096}")
    assert found.source == "mine.py"
    assert {*SAID} - {*found.unsaid} >= {"tp", "recompute", "micro_batch_size", "cp", "ep", "pp"}
    assert {"sharding", "precision", "sequence_length"} <= {*found.unsaid}


@pytest.mark.parametrize(("entry", "word"), [
    ('"--tp {tq}"', "tp"), ('"--tp {tp"', "braces"), ('{option: "--tp {tp}", if: "tp > 1"}', "if"),
    ('{option: "--tp {tp}", when: "tp >"}', "comparison"), ('{option: "--tp {tp}", default: "tp == 1"}', "option"),
    ("7", "option"), ('{option: "", when: "tp > 1"}', "text"), ('{option: "--tp", says: tp}', "list"),
    ('{option: "--tp", says: [layers]}', "says"), ('{option: "--tp", words: [1]}', "words"), ('"--tp {}"', "text"),
    ('"--tp {tp + recompute}"', "comparison"),
])  # fmt: skip
def test_entries_that_cannot_be_read_are_refused_when_the_file_is_read(entry: str, word: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(FILE.replace('"--tp {tp}"', entry, 1), encoding="utf-8")
    with pytest.raises(InputError) as caught:
        load_stack(path)
    assert word in f"{caught.value.message} {caught.value.rule} {caught.value.hint}"


def test_options_must_be_a_list(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(FILE[: FILE.index("value:")] + "value: --tp\n", encoding="utf-8")
    with pytest.raises(InputError, match="options"):
        load_stack(path)


# Software


@pytest.mark.parametrize(
    ("software", "wanted"),
    [
        (Software(moe_dispatcher="alltoall", cuda_graphs="none"), "--moe-token-dispatcher-type alltoall"),
        (
            Software(moe_dispatcher="deepep", cuda_graphs="none"),
            "--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend deepep",
        ),
        (
            Software(moe_dispatcher="alltoall", cuda_graphs="partial"),
            "--cuda-graph-impl transformer_engine --cuda-graph-scope attn moe_router moe_preprocess",
        ),
    ],
)
def test_megatron_states_its_dispatcher_and_its_graphs(software: Software, wanted: str) -> None:
    """Names of ``megatron/core/transformer/transformer_config.py``; the example of its page on CUDA graphs."""
    setting = _setting("qwen3-30b-a3b", "dgx-h100", 64, 512, 4096, software=software)
    found = _options("megatron-lm", setting, Plan(ep=8, sharding="zero1")).options
    assert wanted in found
    assert "--moe-grouped-gemm" in found


def test_a_dense_model_states_no_dispatcher() -> None:
    setting = _setting("llama-3.1-8b", "dgx-h100", 8, 64, 4096, software=Software(moe_dispatcher="deepep"))
    text = " ".join(_options("megatron-lm", setting, Plan(sharding="zero1")).options)
    assert "moe" not in text
    assert "--cuda-graph-impl transformer_engine" in text

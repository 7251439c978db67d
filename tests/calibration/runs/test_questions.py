"""How a measured run becomes a question: columns, then options, then the stack of its framework."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.calibration.rows import asked, run

from shardplan.calibration.runs.drafts import stack_of
from shardplan.calibration.runs.options import layers_of_layout
from shardplan.calibration.runs.questions import question_of
from shardplan.calibration.runs.rows import shipped_runs
from shardplan.errors import InputError, PlanError, UnknownNameError


def test_what_is_stated_is_taken(tmp_path: Path) -> None:
    one = asked(
        tmp_path, grad_dtype="bf16", sharding="zero3", recompute="full", sequence_parallel="no", attention="unfused"
    )
    assert (one.plan.tp, one.plan.sharding, one.plan.recompute, one.plan.sequence_parallel) == (
        2,
        "zero3",
        "full",
        False,
    )
    assert (one.question.job.grad_dtype, one.question.job.attention) == ("bf16", "unfused")


def test_what_is_not_stated_is_the_stacks_and_is_said(tmp_path: Path) -> None:
    one = asked(tmp_path, framework="megatron-bridge")
    assert (one.question.job.grad_dtype, one.plan.sharding, one.plan.overlap_dp) == ("bf16", "zero1", True)
    assert "grad_dtype bf16 (default of megatron-bridge)" in one.assumed
    assert asked(tmp_path, framework="megatron-lm").question.job.grad_dtype == "fp32"


def test_a_framework_without_a_stack_has_the_defaults_of_a_job(tmp_path: Path) -> None:
    one = asked(tmp_path, framework="somebody")
    assert one.assumed[0] == "framework 'somebody' has no stack: the defaults of a job and a plan"


@pytest.mark.parametrize("framework", ["TorchTitan", "torchtitan", "TORCHTITAN"])
def test_a_framework_is_known_in_any_case_of_letters(tmp_path: Path, framework: str) -> None:
    stack = stack_of(run(tmp_path, framework=framework))
    assert stack is not None
    assert stack.name == "torchtitan"


def test_a_framework_that_is_almost_known_is_asked_about(tmp_path: Path) -> None:
    one = asked(tmp_path, framework="torchtitann")
    assert one.assumed[0] == (
        "framework 'torchtitann' has no stack (did you mean torchtitan?): the defaults of a job and a plan"
    )


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("megatron,Megatron-Core,mcore,Megatron Core", "megatron-lm"),
        ("fsdp2,pytorch,PyTorch FSDP,torch", "torchtitan"),
        ("nemo2,NeMo-2,nemo-2.0", "nemo"),
        ("axlearn", "maxtext"),
    ],
)
def test_other_names_of_frameworks_are_taken_and_said(tmp_path: Path, words: str, name: str) -> None:
    for word in words.split(","):
        one = asked(tmp_path, framework=word)
        assert one.taken == (f"framework {word} is taken as {name}",)
        assert (one.question, one.plan) == (
            asked(tmp_path, framework=name).question,
            asked(tmp_path, framework=name).plan,
        )


@pytest.mark.parametrize("word", ["Torch Titan", "torch_titan", "TORCH-TITAN"])
def test_separators_in_the_name_of_a_framework_make_no_difference(tmp_path: Path, word: str) -> None:
    one = asked(tmp_path, framework=word)
    assert one.question == asked(tmp_path, framework="torchtitan").question
    assert one.taken == ()


def test_an_alias_chooses_by_columns_as_its_framework_does(tmp_path: Path) -> None:
    stack = stack_of(run(tmp_path, framework="megatron", precision="fp16", attention="unfused"))
    assert stack is not None
    assert stack.name == "megatron-lm-2021"


def test_columns_choose_among_the_stacks_of_a_framework(tmp_path: Path) -> None:
    names = [
        getattr(stack_of(run(tmp_path, precision=precision, attention=attention)), "name", None)
        for precision, attention in (("bf16", "flash"), ("fp16", "unfused"), ("bf16", "unfused"), ("fp16", ""))
    ]
    assert names == ["megatron-lm", "megatron-lm-2021", "megatron-lm", "megatron-lm"]


def test_an_option_names_the_stack(tmp_path: Path) -> None:
    assert asked(tmp_path, options="stack=torchtitan").question.job.software.fp32_weights
    assert "option stack=torchtitan: chosen" in asked(tmp_path, options="stack=torchtitan").ignored


@pytest.mark.parametrize(
    ("sharding", "degree", "expected"),
    [
        ("zero3", "4", ("hsdp", 4)),
        ("zero3", "8", ("zero3", None)),
        ("hsdp", "", ("zero3", None)),
        ("zero1", "2", ("zero1", 2)),
    ],
)
def test_sharding_over_a_part_is_hybrid(
    tmp_path: Path, sharding: str, degree: str, expected: tuple[str, int | None]
) -> None:
    plan = asked(tmp_path, sharding=sharding, sharding_degree=degree).plan
    assert (plan.sharding, plan.sharding_degree) == expected


def test_pytorch_reduces_once_per_step_with_a_pipeline(tmp_path: Path) -> None:
    with_pipeline = asked(tmp_path, framework="torchtitan", sharding="zero3", pp="2")
    assert with_pipeline.plan.sharding == "zero3"
    software = with_pipeline.question.job.software
    assert (software.keeps_weights, software.keeps_gradients) == ("pipelines", "pipelines")


def test_weights_that_stay_gathered(tmp_path: Path) -> None:
    plan = asked(tmp_path, framework="torchtitan", sharding="zero3", options="reshard_after_forward=false").plan
    assert plan.sharding == "zero2"


def test_experts_are_split_as_tensors_unless_it_is_said_otherwise(tmp_path: Path) -> None:
    """Megatron Core: ``expert_tensor_parallel_size`` is ``tensor_model_parallel_size`` where it is not given."""
    cells = {"model": "qwen3-30b-a3b", "ep": "8", "num_accelerators": "16"}
    one = asked(tmp_path, **cells)
    assert one.plan.etp == 2
    assert "etp 2, as tp (default of megatron-lm)" in one.assumed
    assert asked(tmp_path, **cells, etp="1").plan.etp == 1
    assert asked(tmp_path, **cells | {"num_accelerators": "8"}).plan.etp == 1  # 16 ranks would be needed
    assert asked(tmp_path, **cells, framework="megatron-bridge").plan.etp == 1


def test_chunks_that_are_not_stated_have_about_two_layers(tmp_path: Path) -> None:
    one = asked(tmp_path, pp="4")
    assert one.plan.vp == 4  # 32 layers on 4 ranks are 8 each
    assert "vp 4: about 2 layers in each model chunk" in one.assumed
    assert asked(tmp_path, pp="4", global_batch_size="4").plan.vp == 1  # 2 micro-batches fill no group of 4
    assert asked(tmp_path, pp="4", framework="deepspeed").plan.vp == 1
    assert asked(tmp_path, pp="4", framework="deepspeed", options="schedule=interleaved").plan.vp == 4


def test_chunks_without_a_pipeline_are_ignored(tmp_path: Path) -> None:
    one = asked(tmp_path, vp="4")
    assert one.plan.vp == 1
    assert "vp 4: there is no pipeline" in one.ignored


def test_layout_of_a_pipeline() -> None:
    assert layers_of_layout("Et|(tt|)*2L") == (1, 2, 2, 0)
    assert layers_of_layout("Et*4|(t*4|)*14tmL") == (4, *[4] * 14, 1)
    assert layers_of_layout("Et|no") is None
    assert layers_of_layout("(" * 3000) is None
    assert layers_of_layout("((((t)*9999)*9999)*9999)*9999") is None


def test_a_layout_that_does_not_fit_is_ignored(tmp_path: Path) -> None:
    fits = asked(tmp_path, pp="2", vp="1", options="pp_layout=Et*15|t*17L").plan
    assert fits.stage_layers == (15, 17)
    other = asked(tmp_path, pp="2", vp="1", options="pp_layout=Et*15|t*15|L")
    assert other.plan.stage_layers is None
    assert "pp_layout of 3 chunks and 30 layers: it does not fit the plan" in other.ignored


def test_modules_that_the_model_lacks_are_not_recomputed(tmp_path: Path) -> None:
    dense = asked(tmp_path, recompute="moe,layernorm")
    assert dense.plan.recompute == "layernorm"
    assert any(line.startswith("recompute of moe") for line in dense.ignored)
    sparse = asked(tmp_path, model="mixtral-8x7b", recompute="mlp", ep="8")
    assert sparse.plan.recompute == "none"


def test_named_policies(tmp_path: Path) -> None:
    assert asked(tmp_path, recompute="op_sac").plan.recompute == "op_sac"
    assert asked(tmp_path, recompute="minimal").plan.recompute == "layernorm,activation,core_attn"


def test_domains_and_networks_of_another_size(tmp_path: Path) -> None:
    cluster = asked(tmp_path, scale_up_size="4", inter_node_gb_s="12.5", tp="1").question.cluster
    assert cluster.innermost.size == 4
    assert cluster.tiers[1].bandwidth == pytest.approx(12.5e9)


def test_slices_of_a_torus(tmp_path: Path) -> None:
    cells = {"accelerator": "tpu-v5p", "framework": "maxtext", "num_accelerators": "64", "tp": "1"}
    inner = asked(tmp_path, scale_up_size="64", **cells).question.cluster.innermost
    assert (inner.size, inner.torus_shape) == (64, (4, 4, 4))


def test_models_beside_the_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        asked(tmp_path, model="models/own.json")
    with pytest.raises(UnknownNameError, match="did you mean"):
        asked(tmp_path, model="lama-3.1-8b")


def test_a_stack_beside_the_file(tmp_path: Path) -> None:
    text = "name: own\nsoftware: {kernels: {value: eager, source: measured}}\n"
    (tmp_path / "stacks").mkdir()
    for place in ("own.yaml", "stacks/own.yaml"):
        (tmp_path / place).write_text(text)
        assert asked(tmp_path, options=f"stack={place}").question.job.software.kernels == "eager"
        assert asked(tmp_path, options=f"stack={tmp_path / place}").question.job.software.kernels == "eager"
    with pytest.raises(InputError, match=r"elsewhere\.yaml': it does not exist"):
        asked(tmp_path, options="stack=elsewhere.yaml")


def test_a_plan_that_breaks_a_rule_says_which(tmp_path: Path) -> None:
    with pytest.raises(PlanError) as broken:
        asked(tmp_path, tp="3")
    assert broken.value.rule == "tp x cp x pp divides the accelerators"


def test_every_shipped_run_is_a_question() -> None:
    assert all(question_of(one).plan for one in shipped_runs())


@pytest.mark.parametrize("stated", ["", "8"])
def test_data_parallelism_follows_and_may_be_stated(tmp_path: Path, stated: str) -> None:
    """16 accelerators in pairs."""
    assert asked(tmp_path, dp=stated).plan.dp(16) == 8


def test_data_parallelism_that_contradicts_the_other_degrees(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="dp is 4; 16 accelerators with tp 2, cp 1 and pp 1 leave dp 8"):
        asked(tmp_path, dp="4")

"""How a measured run becomes a question: columns, then options, then the stack of its framework."""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path

import pytest
from tests.calibrate.rows import asked, run

from shardplan.base.errors import InputError, PlanError, UnknownNameError
from shardplan.calibrate.runs.drafts import stack_of
from shardplan.calibrate.runs.options import layers_of_layout
from shardplan.calibrate.runs.questions import question_of
from shardplan.calibrate.runs.rows import shipped_runs

MOE = {"model": "qwen3-30b-a3b", "ep": "8", "num_accelerators": "16"}
"""Megatron Core: ``expert_tensor_parallel_size`` is ``tensor_model_parallel_size`` where it is not given."""
TORCHTITAN = {"framework": "torchtitan", "sharding": "zero3"}
SLICE = {"accelerator": "tpu-v5p", "framework": "maxtext", "num_accelerators": "64", "tp": "1", "scale_up_size": "64"}
CASES: tuple[tuple[dict[str, str], dict[str, object], str], ...] = (
    ({"sharding": "zero3"}, {"plan.tp": 2, "plan.sharding": "zero3"}, ""),
    ({"recompute": "full", "sequence_parallel": "no"}, {"plan.recompute": "full", "plan.sequence_parallel": False}, ""),
    ({"grad_dtype": "bf16", "attention": "unfused"}, {"job.grad_dtype": "bf16", "job.attention": "unfused"}, ""),
    (
        {"framework": "megatron-bridge"},
        {"job.grad_dtype": "bf16", "plan.sharding": "zero1", "plan.overlap_dp": True},
        "grad_dtype bf16 (default of megatron-bridge)",
    ),
    ({"framework": "megatron-lm"}, {"job.grad_dtype": "fp32"}, ""),
    ({"framework": "somebody"}, {}, "framework 'somebody' has no stack: the defaults of a job and a plan"),
    (
        {"framework": "torchtitann"},
        {},
        "framework 'torchtitann' has no stack (did you mean torchtitan?): the defaults of a job and a plan",
    ),
    ({"options": "stack=torchtitan"}, {"job.software.fp32_weights": True}, "option stack=torchtitan: chosen"),
    ({"sharding": "zero3", "sharding_degree": "4"}, {"plan.sharding": "hsdp", "plan.sharding_degree": 4}, ""),
    ({"sharding": "zero3", "sharding_degree": "8"}, {"plan.sharding": "zero3", "plan.sharding_degree": None}, ""),
    ({"sharding": "hsdp", "sharding_degree": ""}, {"plan.sharding": "zero3", "plan.sharding_degree": None}, ""),
    ({"sharding": "zero1", "sharding_degree": "2"}, {"plan.sharding": "zero1", "plan.sharding_degree": 2}, ""),
    (
        {**TORCHTITAN, "pp": "2"},
        {
            "plan.sharding": "zero3",
            "job.software.keeps_weights": "pipelines",
            "job.software.keeps_gradients": "pipelines",
        },
        "",
    ),
    ({**TORCHTITAN, "options": "reshard_after_forward=false"}, {"plan.sharding": "zero2"}, ""),
    (MOE, {"plan.etp": 2}, "etp 2, as tp (default of megatron-lm)"),
    ({**MOE, "etp": "1"}, {"plan.etp": 1}, ""),
    ({**MOE, "num_accelerators": "8"}, {"plan.etp": 1}, ""),  # 16 ranks would be needed
    ({**MOE, "framework": "megatron-bridge"}, {"plan.etp": 1}, ""),
    ({"pp": "4"}, {"plan.vp": 4}, "vp 4: about 2 layers in each model chunk"),  # 32 layers on 4 ranks are 8 each
    ({"pp": "4", "global_batch_size": "4"}, {"plan.vp": 1}, ""),  # 2 micro-batches fill no group of 4
    ({"pp": "4", "framework": "deepspeed"}, {"plan.vp": 1}, ""),
    ({"pp": "4", "framework": "deepspeed", "options": "schedule=interleaved"}, {"plan.vp": 4}, ""),
    ({"vp": "4"}, {"plan.vp": 1}, "vp 4: there is no pipeline"),
    ({"pp": "2", "vp": "1", "options": "pp_layout=Et*15|t*17L"}, {"plan.stage_layers": (15, 17)}, ""),
    (
        {"pp": "2", "vp": "1", "options": "pp_layout=Et*15|t*15|L"},
        {"plan.stage_layers": None},
        "pp_layout of 3 chunks and 30 layers: it does not fit the plan",
    ),
    ({"recompute": "moe,layernorm"}, {"plan.recompute": "layernorm"}, "recompute of moe: llama-3.1-8b has none"),
    ({"model": "mixtral-8x7b", "recompute": "mlp", "ep": "8"}, {"plan.recompute": "none"}, ""),
    ({"recompute": "op_sac"}, {"plan.recompute": "op_sac"}, ""),
    ({"recompute": "minimal"}, {"plan.recompute": "layernorm,activation,core_attn"}, ""),
    ({"scale_up_size": "4", "tp": "1"}, {"cluster.innermost.size": 4}, ""),
    (SLICE, {"cluster.innermost.size": 64, "cluster.innermost.torus_shape": (4, 4, 4)}, ""),
)
"""Cells of a run, what they make of its plan, job and cluster, and what is said of it."""


@pytest.mark.parametrize(("cells", "made", "said"), CASES)
def test_what_cells_make_of_a_run(tmp_path: Path, cells: dict[str, str], made: dict[str, object], said: str) -> None:
    one = asked(tmp_path, **cells)
    places = {name: one if name.startswith("plan.") else one.question for name in made}
    assert {name: attrgetter(name)(place) for name, place in places.items()} == made
    assert not said or said in (*one.assumed, *one.ignored)


def test_the_network_may_be_slower_than_usual(tmp_path: Path) -> None:
    cluster = asked(tmp_path, scale_up_size="4", inter_node_gb_s="12.5", tp="1").question.cluster
    assert cluster.tiers[1].bandwidth == pytest.approx(12.5e9)


@pytest.mark.parametrize("stated", ["", "8"])
def test_data_parallelism_follows_and_may_be_stated(tmp_path: Path, stated: str) -> None:
    """16 accelerators in pairs."""
    assert asked(tmp_path, dp=stated).plan.dp(16) == 8


@pytest.mark.parametrize("framework", ["TorchTitan", "torchtitan", "TORCHTITAN"])
def test_a_framework_is_known_in_any_case_of_letters(tmp_path: Path, framework: str) -> None:
    stack = stack_of(run(tmp_path, framework=framework))
    assert stack is not None
    assert stack.name == "torchtitan"


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


def test_layout_of_a_pipeline() -> None:
    assert layers_of_layout("Et|(tt|)*2L") == (1, 2, 2, 0)
    assert layers_of_layout("Et*4|(t*4|)*14tmL") == (4, *[4] * 14, 1)
    assert layers_of_layout("Et|no") is None
    assert layers_of_layout("(" * 3000) is None
    assert layers_of_layout("((((t)*9999)*9999)*9999)*9999") is None


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


def test_data_parallelism_that_contradicts_the_other_degrees(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="dp is 4; 16 accelerators with tp 2, cp 1 and pp 1 leave dp 8"):
        asked(tmp_path, dp="4")


def test_software_is_that_of_its_month(tmp_path: Path) -> None:
    """What the run states stays; a month before the first release is taken as that release."""
    dated = asked(tmp_path, framework="torchtitan", software_date="2024-12")
    assert dated.question.job.software.attention_generation == "flash2"
    (told,) = (each for each in dated.assumed if each.startswith("torchtitan of 2024-12: "))
    assert "attention_generation" in told
    for cells in ({"software_date": ""}, {"software_date": "2024-12", "options": "attention_generation=current"}):
        given = asked(tmp_path, framework="torchtitan", **cells)
        assert given.question.job.software.attention_generation == "current"
    assert asked(tmp_path, framework="torchtitan", software_date="2021-01-31").plan.tp == 2


@pytest.mark.parametrize("date", ["2024", "12/2024", "2024-13", "yesterday"])
def test_a_software_date_is_a_month(tmp_path: Path, date: str) -> None:
    with pytest.raises(InputError, match="a year and a month"):
        asked(tmp_path, software_date=date)

"""Options of a framework as a first screen groups them: nothing lost, nothing mixed up."""

from __future__ import annotations

import pytest
from tests.cli.commands import run, unwrapped

import shardplan
from shardplan import Plan, load_cluster, load_model
from shardplan.inputs.job import Job
from shardplan.inputs.plan_numbers import Setting
from shardplan.launch.export.targets import export_plan
from shardplan.physics.frameworks.options import OptionsOfPlan, options_of
from shardplan.physics.frameworks.stack import load_stack
from shardplan.reports.forms import framework_options, grouped_options


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
    groups = grouped_options(_options("torchtitan", Plan(tp=2, pp=2)).in_effect)
    assert set(groups) == {""}
    assert "--parallelism.tensor_parallel_degree 2" in groups[""]


def test_the_options_in_effect_have_the_job_and_leave_out_what_is_off() -> None:
    found = _options("nemo", Plan(tp=2, sharding="zero1"))
    assert "trainer.strategy.context_parallel_size=1" in found.options
    shown = " ".join(found.in_effect)
    assert "context_parallel" not in shown
    for present in (
        "data.global_batch_size=64",
        "data.seq_length=8192",
        "trainer.plugins=nemo.collections.llm.recipes.precision.mixed_precision.bf16_mixed",
        "tensor_model_parallel_size=2",
        "use_distributed_optimizer=true",
        "micro_batch_size=1",
    ):
        assert present in shown


@pytest.mark.parametrize("name", ["megatron-lm", "megatron-bridge", "nemo", "maxtext"])
def test_what_is_shown_is_written_by_an_export(name: str) -> None:
    """Precision, length and batch among it."""
    question = shardplan.search("llama-3.1-8b", "dgx-h100", 64, stack=name, precision="fp8", top=1)
    found = framework_options(question.question, question.estimates[0])
    assert found is not None
    made = export_plan(
        name, model=question.question.model, cluster=question.question.cluster, num_accelerators=64,
        job=question.question.job, plan=question.estimates[0].plan,
    )  # fmt: skip
    text = " ".join(" ".join(made.files.values()).replace("\\\n", " ").replace("'", "").replace('"', "").split())
    for option in found.in_effect:
        for word in option.replace("'", "").split():
            in_full = name == "megatron-bridge" and word.startswith(
                "mixed_precision="
            )  # where its name means other gradients
            assert in_full or word in text
    shown = " ".join(found.in_effect)
    assert "8192" in shown
    assert "fp8" in shown


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("megatron-lm", ("--global-batch-size 512", "--seq-length 8192", "--bf16 --fp8-format hybrid")),
        ("nemo", ("global_batch_size=512", "seq_length=8192", "bf16_with_fp8_current_scaling_mixed")),
        ("megatron-bridge", ("global_batch_size=512", "seq_length=8192", "mixed_precision=bf16_with_fp8")),
        ("maxtext", ("max_target_length=8192", "quantization=fp8")),
    ],
)
def test_a_first_screen_says_the_job_in_the_words_of_the_framework(name: str, words: tuple[str, ...]) -> None:
    asked = ("llama-3.1-8b", "--cluster", "dgx-h100", "--gpus", 64, "--precision", "fp8", "--stack", name)
    text = unwrapped(run("plan", *asked).stdout)
    shown = text[text.index("Runs on") : text.index("Speed")]
    for each in words:
        assert each in shown

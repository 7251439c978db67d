"""Launch files: what they were, that shells and parsers read them, that nothing is lost, and names that exist."""

from __future__ import annotations

import ast
import json
import random
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from tests import strategies
from tests.few import few
from tests.launch.export.cases import LAUNCHES, Launch
from tests.launch.export.launched import launched
from tests.launch.export.write import FOLDER, path_of
from tests.physics.frameworks.test_options import CANDIDATES, _changed, _effective

from shardplan import load_cluster, load_model
from shardplan.base.errors import InputError, NotRunnableError, PlanError, UnknownNameError
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import Setting
from shardplan.inputs.software import Software
from shardplan.launch.export.megatron_lm import pattern
from shardplan.launch.export.targets import TARGETS, export_plan, stack_of, target_named
from shardplan.launch.export.written import END, START, Export
from shardplan.physics.validity import broken_rule

KNOWN = Path(__file__).parent / "known"
MADE = {name: launch.export() for name, launch in LAUNCHES.items()}


def _known(name: str) -> set[str]:
    lines = (KNOWN / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    return {line for line in lines if not line.startswith("# ")}


def _stated(made: Export) -> dict[str, str]:
    """The files without comments."""
    return {name: re.sub(r"(?m)^ *#.*\n|(?<=\S) # .*$", "", text) for name, text in made.files.items()}


# As they were


@pytest.mark.parametrize("name", LAUNCHES)
def test_files_are_what_they_were(name: str) -> None:
    for file, text in MADE[name].files.items():
        kept = path_of(name, file).read_text(encoding="utf-8")
        assert text == kept, "look at it, then run python -m tests.launch.export.write"


@pytest.mark.parametrize("name", LAUNCHES)
def test_the_files_are_those_that_are_checked_before(name: str) -> None:
    beside = target_named(LAUNCHES[name].to).beside
    own = [file for file in MADE[name].files if file == "configuration_launch.py"]  # of torchtitan, where no other does
    assert [*MADE[name].files] == [*(f"launch{end}" for end in (".sh", beside) if end), *own]


def test_no_snapshot_is_left_over() -> None:
    made = {path_of(name, file) for name, export in MADE.items() for file in export.files}
    assert {*FOLDER.iterdir()} == made


# What reads them


@pytest.mark.parametrize("name", LAUNCHES)
def test_a_shell_and_parsers_read_them(name: str, tmp_path: Path) -> None:
    _check_syntax(MADE[name], tmp_path)


def _check_syntax(made: Export, folder: Path) -> None:
    for name, text in made.files.items():
        (folder / name).write_text(text, encoding="utf-8")
        if name.endswith(".sh"):
            subprocess.run(["/bin/bash", "-n", name], cwd=folder, check=True)
            assert text.count(START) == text.count(END) == 1
            assert "$((" not in text
        elif name.endswith(".json"):
            json.loads(text)
        elif name.endswith(".py"):
            ast.parse(text)
        else:
            yaml.safe_load(text)


@pytest.mark.parametrize("name", LAUNCHES)
def test_every_placeholder_of_a_script_is_used(name: str) -> None:
    script = next(iter(MADE[name].files.values()))
    block = script[script.index(START) : script.index(END)]
    for placeholder in re.findall(r"(?m)^([A-Z_]+)=", block):
        assert f"${placeholder}" in script
        assert placeholder in MADE[name].placeholders


@pytest.mark.parametrize("name", LAUNCHES)
def test_launch_lines_start_the_processes_of_the_plan(name: str, tmp_path: Path) -> None:
    launch = LAUNCHES[name]
    found = launched(MADE[name].files, tmp_path)
    text = next(iter(MADE[name].files.values()))
    nodes = re.search(r"#SBATCH --nodes=(\d+)", text)
    if found.words[0] == "torchrun" and "--nnodes" in found.words:
        per_node = int(found.words[found.words.index("--nproc-per-node") + 1])
        num_nodes = int(found.words[found.words.index("--nnodes") + 1])
        assert num_nodes * per_node == launch.num_accelerators
        assert nodes is not None
        assert int(nodes[1]) == num_nodes


def test_nodes_that_are_not_filled_are_named() -> None:
    launch = Launch("megatron-lm", "llama-3.2-1b", "dgx-h100", 12, {"sharding": "ddp"}, {"global_batch_size": 24})
    made = launch.export()
    assert "--nnodes 2 --nproc-per-node 6" in made.files["launch.sh"]
    assert any("do not fill nodes of 8" in each for each in made.not_expressed)


# Names


@pytest.mark.parametrize("name", [name for name, launch in LAUNCHES.items() if launch.to == "megatron-lm"])
def test_megatron_lm_knows_every_option(name: str, tmp_path: Path) -> None:
    words = launched(MADE[name].files, tmp_path).after("pretrain_gpt.py")
    assert {word for word in words if word.startswith("--")} <= _known("megatron-lm")


@pytest.mark.parametrize("name", [name for name, launch in LAUNCHES.items() if launch.to == "torchtitan"])
def test_torchtitan_knows_every_option(name: str, tmp_path: Path) -> None:
    words = launched(MADE[name].files, tmp_path).after("torchtitan.train")
    version = LAUNCHES[name].version or "main"
    names = {word for word in words if word.startswith(("--", "activation-checkpoint"))}
    assert names <= _known(f"torchtitan-{version}")


OF_PROVIDERS = {
    "activation_func", "normalization", "position_embedding_type", "rotary_base", "seq_length", "vocab_size",
    "share_embeddings_and_output_weights", "rope_scaling", "rope_scaling_factor", "rotary_percent",
}  # fmt: skip
"""Fields of the model that are those of Megatron-Bridge and NeMo, not of Megatron Core's TransformerConfig."""


@pytest.mark.parametrize("name", [name for name in LAUNCHES if name.startswith(("megatron-bridge", "nemo"))])
def test_megatron_core_knows_every_field_of_the_model(name: str, tmp_path: Path) -> None:
    words = launched(MADE[name].files, tmp_path).words
    prefix = "model.config." if LAUNCHES[name].to == "nemo" else "model."
    fields = {word.partition("=")[0].removeprefix(prefix) for word in words if word.startswith(prefix)}
    assert len(fields) > 20
    assert fields - OF_PROVIDERS <= _known("megatron-core")


@pytest.mark.parametrize("name", [name for name, launch in LAUNCHES.items() if launch.to == "maxtext"])
def test_maxtext_knows_every_key(name: str, tmp_path: Path) -> None:
    words = launched(MADE[name].files, tmp_path).after("base.yml")
    assert {word.partition("=")[0] for word in words} <= _known("maxtext")


# Nothing is lost


@pytest.mark.parametrize("model", ["llama-3.1-8b", "qwen3-30b-a3b"])
@pytest.mark.parametrize("to", TARGETS)
def test_plans_that_differ_have_files_that_differ(to: str, model: str) -> None:
    """Along a walk through plans that a framework runs, every change is in the files or named as not expressed."""
    rng = random.Random(to)  # noqa: S311  # a sample, no secret
    launch = Launch(to, model, "dgx-h100", 64, _usual(to))
    job, plan = launch.question()
    setting = Setting.of(load_model(model), load_cluster("dgx-h100"), 64, job)
    made, moved = launch.of(job, plan), 0
    for _ in range(80):
        name = rng.choice([*CANDIDATES])
        step = _changed(name, setting, plan, rng)
        if step is None or broken_rule(*step) is not None:
            continue
        try:
            there = launch.of(step[0].job, step[1])
        except NotRunnableError:
            continue
        if _effective(name, setting, plan) != _effective(name, *step):
            is_named = there.not_expressed != made.not_expressed or name.replace("_", " ") in str(there.not_expressed)
            assert is_named or _stated(there) != _stated(made), (name, plan, step[1])
        setting, plan, made, moved = *step, there, moved + 1
    assert moved > 5


def _usual(to: str) -> dict[str, Any]:
    return {"placement": "tp-cp-dp-pp-ep"} if to == "nanotron" else {}


OTHERS: dict[str, Any] = {
    "dropout": True, "attention": "unfused", "grad_dtype": "bf16", "moment_dtype": "bf16", "documents": (512,),
    "train": "lora", "freeze": "embedding",
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("to", TARGETS)
def test_fields_of_a_job_are_in_the_files_or_named(to: str, name: str) -> None:
    launch = Launch(to, "llama-3.1-8b", "dgx-h100", 64, _usual(to))
    job, plan = launch.question()
    usual = launch.of(job, plan)
    value: Any = OTHERS[name] if getattr(job, name) != OTHERS[name] else "fp32"
    try:
        other = launch.of(replace(job, **{name: value}), plan)
    except NotRunnableError:
        assert name == "train"
        assert to in ("megatron-lm", "nanotron")
        return
    assert _stated(other) != _stated(usual) or other.not_expressed != usual.not_expressed


@pytest.mark.parametrize(
    ("name", "value"),
    [("moe_dispatcher", "deepep"), ("cuda_graphs", "partial"), ("fused_loss", True), ("blocking_launches", True)],
)
@pytest.mark.parametrize("to", TARGETS)
def test_behaviour_of_a_framework_is_in_the_files_or_named(to: str, name: str, value: Any) -> None:
    launch = Launch(to, "mixtral-8x7b", "dgx-h100", 64, _usual(to))
    job, plan = launch.question()
    plan = replace(plan, ep=8) if to in ("megatron-lm", "megatron-bridge", "nemo") else plan
    others = {"moe_dispatcher": "hybridep", "cuda_graphs": "none", "fused_loss": False}
    value = others[name] if getattr(job.software, name) == value else value
    usual = launch.of(job, plan)
    try:
        other = launch.of(replace(job, software=replace(job.software, **{name: value})), plan)
    except NotRunnableError:
        assert name != "blocking_launches"  # the others are values that the record does not list
        return
    assert _stated(other) != _stated(usual) or other.not_expressed != usual.not_expressed


@few(8)
@given(case=strategies.cases())
def test_random_plans_are_exported_or_refused(case: strategies.Case) -> None:
    q = case.question
    for to in TARGETS:
        try:
            made = export_plan(
                to, model=q.model, cluster=q.cluster, num_accelerators=q.num_accelerators, job=q.job, plan=case.plan
            )  # fmt: skip
        except InputError:
            continue
        for name, text in made.files.items():
            if name.endswith(".json"):
                json.loads(text)
            elif name.endswith(".yaml"):
                yaml.safe_load(text)


# What is refused


def test_a_plan_that_the_framework_cannot_run_names_its_rule() -> None:
    with pytest.raises(NotRunnableError, match="sharding zero1") as error:
        Launch("torchtitan", "llama-3.1-8b", "dgx-h100", 64, {"sharding": "zero1"}).export()
    assert "zero3" in error.value.hint


def test_accelerate_has_no_pipeline() -> None:
    with pytest.raises(NotRunnableError, match="accelerate"):
        Launch("accelerate", "llama-3.1-8b", "dgx-h100", 64, {"pp": 2}).export()


def test_a_plan_that_breaks_a_rule_is_refused() -> None:
    with pytest.raises(PlanError, match="tp"):
        Launch("megatron-lm", "llama-3.1-8b", "dgx-h100", 64, {"tp": 64}).export()


@pytest.mark.parametrize("model", ["nemotron-h-56b", "vit-b-16"])
def test_models_that_are_no_plain_decoders_are_refused(model: str) -> None:
    job = Job(sequence_length=load_model(model).max_position_embeddings, global_batch_size=512)
    with pytest.raises(InputError, match="cannot be exported"):
        export_plan(
            "megatron-lm", model=load_model(model), cluster=load_cluster("dgx-h100"), num_accelerators=64, job=job,
            plan=Plan(sequence_parallel=False),
        )  # fmt: skip


def test_names_and_versions_are_known() -> None:
    with pytest.raises(UnknownNameError, match="megatron-lm"):
        target_named("megatron")
    with pytest.raises(UnknownNameError, match="version"):
        stack_of(target_named("torchtitan"), "9.9")
    with pytest.raises(InputError, match="launch files are written for"):
        stack_of(target_named("torchtitan"), "0.2.2")


# Megatron's own


@pytest.mark.parametrize(
    ("values", "written"),
    [
        ((1, 0, 1, 0), "([1,0]*2)"),
        ((0, 0, 0, 1, 1), "([0]*3+[1]*2)"),
        ((1, 1, 1), "([1]*3)"),
        ((0, 1), "([0]*1+[1]*1)"),
    ],
)
def test_patterns_of_layers(values: tuple[int, ...], written: str) -> None:
    assert pattern(values) == written
    assert eval(written) == [*values]  # noqa: S307  # Megatron evaluates it


def test_one_connection_before_blackwell_only() -> None:
    """With tensor parallelism Megatron-LM asks for one, but not on Blackwell and not with sharded weights."""
    for cluster, plan, has in (
        ("dgx-h100", {"tp": 2}, True),
        ("dgx-b200", {"tp": 2}, False),
        ("dgx-h100", {}, False),
        ("dgx-h100", {"tp": 2, "sharding": "zero3"}, False),
    ):
        made = Launch("megatron-lm", "llama-3.1-8b", cluster, 64, plan).export()
        assert ("CUDA_DEVICE_MAX_CONNECTIONS=1" in made.files["launch.sh"]) == has


def test_steps_follow_from_tokens() -> None:
    """14.8e12 tokens in steps of 8,192 sequences of 4,096."""
    assert "TRAIN_STEPS=441075 " in MADE["megatron-lm-experts"].files["launch.sh"]


@pytest.mark.parametrize(
    ("job", "named"), [({}, False), ({"optimizer": "sgd"}, True), ({"precision": "fp32", "grad_dtype": "fp32"}, True)]
)
def test_moments_of_megatron_have_a_format_in_mixed_adam_alone(job: dict[str, str], named: bool) -> None:  # noqa: FBT001  # a case
    launch = Launch("megatron-lm", "llama-3.1-8b", "dgx-h100", 16, {"tp": 2}, {"moment_dtype": "bf16", **job})
    made = launch.export()
    assert ("moment dtype bf16" in made.not_expressed) is named
    assert ("--exp-avg-dtype bf16" in made.files["launch.sh"]) is not named


def test_a_window_counts_the_query() -> None:
    """128 keys with the query are 127 before it."""
    assert "--window-size '(127, 0)'" in MADE["megatron-lm-windows"].files["launch.sh"]


def test_names_cannot_end_a_comment() -> None:
    model = replace(load_model("llama-3.2-1b"), name="a\nrm -rf /\n#")
    job = Job(sequence_length=4096, global_batch_size=64, software=Software())
    made = export_plan(
        "megatron-lm", model=model, cluster=load_cluster("dgx-h100"), num_accelerators=8, job=job, plan=Plan()
    )
    assert not re.search(r"(?m)^rm", made.files["launch.sh"])


YARN = {
    ("megatron-lm", "deepseek-v3"): ["--rope-type yarn", "--rotary-scaling-factor 40", "--mscale-all-dim 1"],
    ("megatron-bridge", "kimi-k2"): [
        "model.rotary_scaling_factor=32",
        "++model.beta_fast=1",
        "++model.mscale_all_dim=1",
    ],
    ("megatron-bridge", "gpt-oss-20b"): [
        "model.position_embedding_type=yarn",
        "model.yarn_rotary_scaling_factor=32",
        "model.yarn_correction_range_round_to_int=false",
    ],
    ("maxtext", "deepseek-v3"): ["rope_factor=40", "mscale=1", "rope_attention_scaling=false", "rope_truncate=true"],
    ("maxtext", "gpt-oss-20b"): ["rope_factor=32", "rope_attention_scaling=true", "rope_truncate=false"],
}


@pytest.mark.parametrize("case", YARN, ids="-".join)
def test_yarn_is_written_as_the_model_states_it(case: tuple[str, str]) -> None:
    cluster, plan = ("tpu-v5p-pod", {"sharding": "zero3"}) if case[0] == "maxtext" else ("dgx-h100", {"ep": 8})
    export = Launch(*case, cluster, 256, plan).export()
    lines = [line.strip(" \\") for line in "".join(export.files.values()).splitlines()]
    assert {*YARN[case]} <= {*lines}
    assert not any("scaling of rotary" in each for each in export.not_expressed)


def test_yarn_is_named_where_a_number_of_it_is_no_option() -> None:
    export = Launch("megatron-lm", "kimi-k2", "dgx-h100", 256, {"ep": 8}).export()  # beta_fast 1 is no option there
    assert any("yarn" in each for each in export.not_expressed)
    assert "--rope-type" not in "".join(export.files.values())

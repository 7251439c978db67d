"""``shardplan audit``: what a user sees and what a program reads."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.cli.commands import answer, run, unwrapped
from tests.launch.audit.audits import audited
from tests.launch.scripts import MEGATRON

import shardplan
from shardplan.launch.audit.improve import LEAST_GAIN

pytest.importorskip("tree_sitter_bash")


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "launch.sh"
    path.write_text(MEGATRON.lstrip(), encoding="utf-8")
    return path


def test_a_script_that_runs(script: Path) -> None:
    result = run("audit", script, "--cluster", "dgx-h100")
    assert result.exit_code == 0
    for text in (
        "megatron-lm",
        "tp 4 x cp 1 x dp 4 x pp 2",
        "no rule is broken",
        "Fits",
        "Nearest measured runs",
        "Better",
    ):
        assert text in unwrapped(result.stdout)


def test_the_record_has_what_the_estimate_has(script: Path) -> None:
    record = answer("audit", script, "--cluster", "dgx-h100")
    plan = record["plan"]
    again = shardplan.estimate(
        "llama-3-8b",
        "dgx-h100",
        32,
        {k: tuple(v) if isinstance(v, list) else v for k, v in plan.items()},
        stack="megatron-lm",
        **{k: record["job"][k] for k in ("sequence_length", "global_batch_size", "precision")},
    )
    assert record["model"]["num_parameters"] == again.question.model.num_parameters
    assert record["estimate"]["step_time_s"] == pytest.approx(again.step_time, rel=1e-9)
    assert record["missing"] == []
    assert record["runs"] is True


def test_improvements_are_faster_fit_and_keep_what_is_kept(script: Path) -> None:
    record = answer("audit", script, "--cluster", "dgx-h100", "--keep", "tp,pp")
    now = record["estimate"]["step_time_s"]
    assert 1 <= len(record["improvements"]) <= 3
    for better in record["improvements"]:
        assert better["step_time_s"] < now * (1 - LEAST_GAIN)
        assert {"tp", "pp"}.isdisjoint(better["change"])
        assert all(line[:2] in {"- ", "+ "} for line in better["flags"])


@pytest.mark.parametrize(
    ("flags", "rule"),
    [
        (["--env", "TP=3"], "tp 3 x cp 1 x pp 2 = 6 for 32 accelerators"),
        (["--env", "TP=3"], "tp 3 with 32 attention heads"),
        (["--env", "TP=16", "--env", "SLURM_NNODES=5"], "tp 16 x cp 1 x pp 2 = 32 for 40 accelerators"),
    ],
)
def test_a_script_that_breaks_a_rule_exits_with_one(script: Path, flags: list[str], rule: str) -> None:
    result = run("audit", script, *flags)
    assert result.exit_code == 1
    assert rule in unwrapped(result.stdout)


def test_experts_that_do_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "moe.sh"
    path.write_text(
        "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 8 --hidden-size 512 --num-attention-heads 8 "
        "--num-experts 8 --expert-model-parallel-size 8 --pipeline-model-parallel-size 4 --micro-batch-size 1 "
        "--global-batch-size 64 --seq-length 512 --bf16\n",
        encoding="utf-8",
    )
    result = run("audit", path)
    assert result.exit_code == 1
    assert "ep 8 x etp 1 x pp 4 = 32 for 8 accelerators" in unwrapped(result.stdout)


def test_without_a_cluster_it_is_asked_for(script: Path) -> None:
    record = answer("audit", script)
    assert record["missing"] == ["cluster"]
    assert record["estimate"] is None


@pytest.mark.parametrize(
    "arguments",
    [
        ["missing.sh"],
        ["launch.sh", "--cluster", "no-such-cluster"],
        ["launch.sh", "--gpus", "many"],
        ["launch.sh", "--env", "NODES"],
        ["launch.sh", "--observed", "slow"],
        ["launch.sh", "--keep", "speed"],
        ["launch.sh", "--model", "no-such-model"],
    ],
)
def test_bad_input_exits_with_two(script: Path, arguments: list[str]) -> None:
    assert run("audit", script.parent / arguments[0], *arguments[1:]).exit_code == 2


def test_python(script: Path) -> None:
    found = audited(script, cluster="dgx-h100", env={"SLURM_NNODES": "8"}, observed="step 30s")
    assert found.runs
    assert found.reading.value("num_accelerators") == 64
    assert found.observed[0].causes
    assert found.to_dict()["num_accelerators"] == 64


def test_the_plan_has_its_degrees_first(script: Path) -> None:
    """As the file states it where nothing can be priced; else once, as it is priced."""
    text = unwrapped(run("audit", script).stdout)
    assert text.index("tp 4, cp 1, pp 2") < text.index("micro batch size 1, sequence parallel on, sharding zero1")
    assert len(re.findall(r"^Plan ", run("audit", script, "--cluster", "dgx-h100").stdout, re.MULTILINE)) == 1


def test_what_is_needed_is_together_by_what_decides_it(tmp_path: Path) -> None:
    path = tmp_path / "tune.sh"
    path.write_text("deepspeed --num_gpus 4 train.py --model_name_or_path x/y --deepspeed $1\n", encoding="utf-8")
    text = unwrapped(run("audit", path, "--cluster", "dgx-h100").stdout)
    assert "--env, as arguments after -- or --given" in text
    assert "tp, sharding, global batch size, offload, optimizer, overlap dp: file:<arg:1>" in text


TUNE = """
CUDA_VISIBLE_DEVICES=0,1 NPROC_PER_NODE=2 swift sft --model Qwen/Qwen3-8B --tuner_type lora --torch_dtype bfloat16 \\
    --max_length 2048 --per_device_train_batch_size 1 --gradient_accumulation_steps 8
"""


def test_a_framework_without_a_record_is_named(tmp_path: Path) -> None:
    path = tmp_path / "tune.sh"
    path.write_text(TUNE, encoding="utf-8")
    text = unwrapped(run("audit", path, "--cluster", "dgx-h100", "--model", "qwen3-8b").stdout)
    assert "of whose behaviour there is no record: priced with the usual defaults" in text
    assert "no named framework" not in text


def test_a_model_that_only_a_framework_knows_is_asked_for_with_its_namesake(tmp_path: Path) -> None:
    path = tmp_path / "llama2_13b.toml"
    path.write_text(
        '[job]\ndump_folder = "out"\n[model]\nname = "llama2"\nflavor = "13B"\n'
        "[training]\nbatch_size = 2\nseq_len = 4096\nsteps = 10\ndata_parallel_shard_degree = -1\n"
        '[activation_checkpoint]\nmode = "full"\n',
        encoding="utf-8",
    )
    text = unwrapped(run("audit", path, "--gpus", 64).stdout)
    assert "model: the dimensions of llama2 13B (--model; llama-2-13b may be the same)" in text

"""RL steps as launch files: written, and read back as the same plan with the same prediction."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commands import answer, refused, run

import shardplan
from shardplan import RlAuditAnswer

FIXED = (
    *("--fix", "train.micro_batch_size=1", "--fix", "train.sharding=zero1"),
    *("--fix", "train.recompute=selective", "--fix", "train.cuda_graphs=none"),
)
STEP = (
    *("rl", "llama-3.2-1b", "--cluster", "dgx-h100", "--gpus", "16", "--prompts", "32", "--samples", "8"),
    *("--prompt-tokens", "200", "--response-tokens", "mean=500,max=1500", "--updates", "2", "--limit", "pp=1"),
)


@pytest.fixture(scope="module")
def records() -> dict[str, dict[str, Any]]:
    """The step planned for each framework, so that what its program does is counted in both."""
    return {to: answer(*STEP, *FIXED, "--framework", to) for to in ("verl", "nemo-rl", "slime")}


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    found: dict[str, Any] = answer(*STEP, *FIXED)
    return found


def place(record: dict[str, Any], placement: str) -> str:
    return str(1 + [plan["placement"] for plan in record["plans"]].index(placement))


@pytest.mark.parametrize(
    ("to", "placement"),
    [
        ("verl", "colocated"),
        ("verl", "partial"),
        ("verl", "one-step-off"),
        ("verl", "async"),
        ("nemo-rl", "colocated"),
        ("nemo-rl", "in-turns"),
        ("nemo-rl", "one-step-off"),
        ("nemo-rl", "async"),
        ("slime", "colocated"),
        ("slime", "partial"),
        ("slime", "in-turns"),
        ("slime", "one-step-off"),
    ],
)
def test_read_back_it_is_the_same(tmp_path: Path, records: dict[str, dict[str, Any]], to: str, placement: str) -> None:
    record = records[to]
    (tmp_path / "rl.json").write_text(json.dumps(record))
    out = tmp_path / ("grpo.yaml" if to == "nemo-rl" else "grpo.sh")
    pick = place(record, placement)
    run("export", str(tmp_path / "rl.json"), "--to", to, "--pick", pick, "--out", str(out))
    found = shardplan.audit(out, cluster="dgx-h100", given={"response_mean": 500, "prompt_mean": 200})
    assert isinstance(found, RlAuditAnswer)
    planned = record["plans"][int(pick) - 1]
    own = found.plan.trained.priced.plan
    for name in ("tp", "pp", "cp", "ep", "micro_batch_size", "sharding", "recompute"):
        assert getattr(own, name) == planned["plan"]["plan"][name], name
    assert (found.plan.placement, found.plan.num_train) == (placement, planned["num_train"])
    assert found.plan.num_rollout == planned["num_rollout"]
    assert found.plan.pool.engine.replica.tp == planned["rollout_tp"]
    assert found.plan.step_time == pytest.approx(planned["step_time_s"], rel=0.005)
    assert found.result.task.packing.updates == 2


@pytest.mark.parametrize(
    ("to", "placement", "said"),
    [("verl", "in-turns", "'in-turns'"), ("nemo-rl", "partial", "'partial'"), ("slime", "async", "'async'")],
)
def test_what_a_framework_does_not_run(
    tmp_path: Path, record: dict[str, Any], to: str, placement: str, said: str
) -> None:
    (tmp_path / "rl.json").write_text(json.dumps(record))
    text = refused("export", str(tmp_path / "rl.json"), "--to", to, "--pick", place(record, placement))
    assert said in text
    assert f"--framework {to}" in text
    assert "or --pick" in text


def test_what_a_file_does_not_say_is_named_in_it(tmp_path: Path, record: dict[str, Any]) -> None:
    pick = int(place(record, "colocated"))
    record["plans"][pick - 1]["plan"]["plan"]["cuda_graphs"] = "full"
    (tmp_path / "rl.json").write_text(json.dumps(record))
    text = run("export", str(tmp_path / "rl.json"), "--to", "verl", "--pick", str(pick)).stdout
    assert "Not expressed here: cuda_graphs full" in text
    record["plans"][pick - 1]["plan"]["plan"]["cuda_graphs"] = "none"


def test_what_a_program_does_besides_is_named_where_it_was_not_planned(tmp_path: Path, record: dict[str, Any]) -> None:
    (tmp_path / "rl.json").write_text(json.dumps(record))
    text = run("export", str(tmp_path / "rl.json"), "--to", "nemo-rl", "--pick", place(record, "colocated")).stdout
    assert "plan with --framework nemo-rl" in text


def test_other_files_and_picks(tmp_path: Path, record: dict[str, Any]) -> None:
    (tmp_path / "rl.json").write_text(json.dumps(record))
    assert "1 to" not in refused("export", str(tmp_path / "rl.json"), "--to", "verl", "--pick", "99")
    (tmp_path / "other.json").write_text('{"schema": "shardplan/plan-file/2"}')
    assert "shardplan rl" in refused("export", str(tmp_path / "other.json"), "--to", "verl")


DRAFTED = (
    *("rl", "deepseek-v3", "--cluster", "dgx-h100", "--gpus", "512", "--prompts", "32", "--samples", "16"),
    *("--response-tokens", "mean=700,max=1400", "--placement", "colocated", "--cache-precision", "fp8", *FIXED),
    *("--limit", "tp=8", "--limit", "pp=16"),
)


@pytest.mark.parametrize("to", ["verl", "nemo-rl", "slime"])
def test_drafted_tokens_and_the_format_of_the_cache_are_written_and_read(tmp_path: Path, to: str) -> None:
    record = answer(*DRAFTED, "--framework", to, "--speculative", "mtp:2")
    (tmp_path / "rl.json").write_text(json.dumps(record))
    out = tmp_path / ("grpo.yaml" if to == "nemo-rl" else "grpo.sh")
    run("export", str(tmp_path / "rl.json"), "--to", to, "--out", str(out))
    found = shardplan.audit(out, cluster="dgx-h100", given={"response_mean": 700, "prompt_mean": 256})
    assert isinstance(found, RlAuditAnswer)
    task = found.result.task
    assert (task.drafter, task.drafts, task.cache_precision) == ("mtp", 2, "fp8")
    assert "Not expressed" not in out.read_text()


def test_slime_takes_a_draft_model_beside_the_policy(tmp_path: Path) -> None:
    record = answer(*STEP, *FIXED, "--framework", "slime", "--placement", "colocated", "--speculative", "eagle:3")
    assert "draft layer beside the model (EAGLE)" in str(record["assumptions"])
    (tmp_path / "rl.json").write_text(json.dumps(record))
    run("export", str(tmp_path / "rl.json"), "--to", "slime", "--out", str(tmp_path / "grpo.sh"))
    found = shardplan.audit(tmp_path / "grpo.sh", cluster="dgx-h100", given={"response_mean": 500, "prompt_mean": 200})
    assert isinstance(found, RlAuditAnswer)
    assert (found.result.task.drafter, found.result.task.drafts) == ("eagle", 3)
    assert found.plan.step_time == pytest.approx(record["plans"][0]["step_time_s"], rel=0.005)


def test_an_engine_of_slime_with_stages_is_read_with_its_tensor_degree(tmp_path: Path) -> None:
    """``--rollout-num-gpus-per-engine`` counts the accelerators of all stages."""
    stages = ("--fix", "rollout.tp=4", "--fix", "rollout.pp=2", "--placement", "in-turns")
    (tmp_path / "rl.json").write_text(json.dumps(answer(*STEP, *FIXED, *stages, "--framework", "slime")))
    text = run("export", str(tmp_path / "rl.json"), "--to", "slime").stdout
    assert "--rollout-num-gpus-per-engine 8" in text
    assert "Not expressed" not in text


@pytest.mark.parametrize("backend", ["megatron", "fsdp"])
@pytest.mark.parametrize("to", ["verl", "nemo-rl"])
def test_every_plan_for_a_framework_can_be_written(tmp_path: Path, to: str, backend: str) -> None:
    """A large model on few accelerators, where other software would compute some operators again."""
    where = ("--cluster", "dgx-h100", "--gpus", "64", "--prompts", "64", "--samples", "8")
    lengths = ("--response-tokens", "mean=500,max=1500")
    record = answer("rl", "llama-3.1-70b", *where, *lengths, "--framework", to, "--backend", backend)
    (tmp_path / "rl.json").write_text(json.dumps(record))
    assert len(record["plans"]) == 4
    for pick in "1234":
        assert "Not expressed" not in run("export", str(tmp_path / "rl.json"), "--to", to, "--pick", pick).stdout


def test_python_exports_a_step_by_the_same_door(tmp_path: Path) -> None:
    step = shardplan.rl(
        "llama-3.2-1b", "dgx-h100", 8, prompts=32, samples=8, response_tokens="mean=500,max=1500",
        placement="colocated,partial", framework="verl", fix={"train.pp": 1, "rollout.tp": 1},
    )  # fmt: skip
    file = step.save(tmp_path / "rl.json")
    script = tmp_path / "run.sh"
    made = shardplan.export(step, "verl", pick=1, path=script)
    (tmp_path / "same").mkdir()
    run("export", str(file), "--to", "verl", "--pick", "1", "--out", str(tmp_path / "same" / "run.sh"))
    assert script.read_text() == made.files["run.sh"] == (tmp_path / "same" / "run.sh").read_text()
    for wrong, words in (
        ({"to": "verl", "pick": 9}, "plan 9"),
        ({"to": "verl", "pick": "1"}, "pick"),
        ({"to": "megatron-lm"}, "framework to export to"),
        ({"to": 3}, "to is"),
        ({"to": "verl", "version": "0.9"}, "version"),
    ):
        with pytest.raises(shardplan.InputError, match=words):
            shardplan.export(step, **wrong)

"""``--companion``: frozen models beside training, on the command line and in plan files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.commands import FEW, SMALL, answer, refused, run, unwrapped

import shardplan
from shardplan.base.files import DATA

PLAN = ("--tp", 2, "--sharding", "zero1")


def test_a_flag_gives_what_a_mapping_gives_in_python() -> None:
    record = answer("estimate", *SMALL, *PLAN, "--companion", "teacher=llama-3.1-8b:top-k=64")
    expected = shardplan.estimate(
        "llama-3.2-1b", "dgx-h100", 8, {"tp": 2, "sharding": "zero1"}, global_batch_size=64, sequence_length=2048,
        companion={"teacher": "llama-3.1-8b:top-k=64"},
    )  # fmt: skip
    (plan,) = record["plans"]
    assert record["job"]["companion"] == "teacher=llama-3.1-8b:top-k=64"
    assert plan["step_time_s"] == expected.step_time
    assert plan["breakdown_s"]["companion"] == expected.breakdown["companion"] > 0
    assert plan["memory_bytes"][0]["companion"] > 0


def test_a_plan_file_keeps_its_companion(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    assert run("plan", *SMALL, *FEW, "--companion", "reference=self", "--json", path).exit_code == 0
    again = run("estimate", "--from", path)
    assert again.exit_code == 0, again.output
    assert "frozen companion (llama-3.2-1b)" in unwrapped(again.stdout)
    assert "companion" in again.stdout.partition("Step")[2]


def test_a_plan_file_holds_a_companion_that_was_read_from_a_file(tmp_path: Path) -> None:
    config, path = tmp_path / "config.json", tmp_path / "plan.json"
    config.write_bytes((DATA / "models" / "llama-3.1-8b.json").read_bytes())
    made = run("estimate", *SMALL, *PLAN, "--companion", f"teacher={tmp_path}:top-k=64", "--json", path)
    assert made.exit_code == 0, made.output
    config.unlink()
    again = answer("estimate", "--from", path)
    assert again["plans"][0]["breakdown_s"] == json.loads(path.read_text())["plans"][0]["breakdown_s"]
    other = answer("estimate", "--from", path, "--companion", "teacher=llama-3.1-8b:top-k=64")
    assert other["plans"][0]["step_time_s"] == again["plans"][0]["step_time_s"]
    assert "companions" not in other


@pytest.mark.parametrize(
    ("companion", "said"),
    [
        ("teacher=qwen3-8b", "teacher qwen3-8b has a vocabulary of 151,936, llama-3.2-1b one of 128,256"),
        ("judge=llama-3.1-8b", "unknown companion 'judge'"),
        ("teacher=no-such-model", "unknown model 'no-such-model'"),
        ("teacher=./no/config.json", "model file './no/config.json' does not exist"),
        ("teacher", "it must be none, or a comma list of ROLE=MODEL"),
    ],
)
def test_bad_companions_end_with_2(companion: str, said: str) -> None:
    text = refused("estimate", *SMALL, *PLAN, "--companion", companion)
    assert said in text
    assert "hint:" in text


def test_a_plan_that_cannot_split_a_companion_ends_with_2() -> None:
    text = refused("estimate", *SMALL, "--tp", 8, "--companion", "reward=qwen2.5-7b")
    assert "companion qwen2.5-7b: tp 8" in text


def test_a_change_may_name_the_file_of_a_companion(tmp_path: Path) -> None:
    """The model of a file is that of the catalogue with the same content."""
    config = tmp_path / "config.json"
    config.write_bytes((DATA / "models" / "llama-3.1-8b.json").read_bytes())
    named, read = (
        answer("whatif", *SMALL, *FEW, "--change", f"companion=teacher={model}") for model in ("llama-3.1-8b", config)
    )
    assert read["terms"] == named["terms"]
    assert any(each["name"] == "companion" for each in read["terms"])
    said = refused("whatif", *SMALL, *FEW, "--change", f"companion=teacher={tmp_path / 'none.json'}")
    assert "does not exist" in unwrapped(said)

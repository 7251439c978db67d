"""``shardplan export``, ``plan --export`` and ``shardplan.export``: files, what is said of them, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.commands import FEW, SMALL, answer, run, unwrapped

import shardplan
from shardplan.base.errors import InputError, NotRunnableError

PLANS = Path(__file__).parents[3] / "examples" / "plans.json"


def test_without_a_file_the_script_is_printed() -> None:
    result = run("export", PLANS, "--to", "megatron-lm")
    assert result.exit_code == 0
    assert result.stdout.startswith("#!/bin/bash\n# Written by shardplan")


def test_files_are_written_next_to_each_other(tmp_path: Path) -> None:
    plans = tmp_path / "plans.json"
    assert run("estimate", *SMALL, "--stack", "deepspeed", "--json", plans).exit_code == 0
    result = run("export", plans, "--to", "deepspeed", "--out", tmp_path / "my run.sh")
    assert result.exit_code == 0, result.output
    assert "--deepspeed 'my run.json'" in (tmp_path / "my run.sh").read_text()
    assert (tmp_path / "my run.json").read_text().startswith("{")
    assert "TOKENIZER" in unwrapped(result.stdout)


def test_what_a_user_filled_in_is_kept(tmp_path: Path) -> None:
    out = tmp_path / "launch.sh"
    arguments = ("export", PLANS, "--to", "megatron-lm", "--out", out)
    assert run(*arguments).exit_code == 0
    out.write_text(out.read_text() + "# mine\n")
    refused = run(*arguments)
    assert refused.exit_code == 2
    assert "--force" in refused.output
    assert out.read_text().endswith("# mine\n")
    assert run(*arguments, "--force").exit_code == 0
    assert not out.read_text().endswith("# mine\n")


def test_no_file_is_written_where_one_is_in_the_way(tmp_path: Path) -> None:
    plans = tmp_path / "plans.json"
    assert run("estimate", *SMALL, "--stack", "deepspeed", "--json", plans).exit_code == 0
    (tmp_path / "run.json").write_text("mine")
    assert run("export", plans, "--to", "deepspeed", "--out", tmp_path / "run.sh").exit_code == 2
    assert not (tmp_path / "run.sh").exists()
    assert (tmp_path / "run.json").read_text() == "mine"


def test_a_record_holds_the_files(tmp_path: Path) -> None:
    record = answer("export", PLANS, "--to", "megatron-lm", "--pick", "1", "--out", tmp_path / "a.sh")
    assert record["schema"] == "shardplan/export/1"
    assert record["files"] == {"a.sh": (tmp_path / "a.sh").read_text()}
    assert record["framework"].startswith("megatron-lm")
    assert "TOKENIZER" in record["placeholders"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--to", "torchtitan"), "zero1"),
        (("--to", "megatron"), "megatron-lm"),
        (("--to", "torchtitan", "--version", "0.2.2"), "main or 0.3.0"),
        (("--to", "megatron-lm", "--pick", "99"), "plan 99"),
        (("--to", "megatron-lm", "--out", ""), "names a file"),
    ],
)
def test_what_cannot_be_exported_is_refused(arguments: tuple[str, ...], words: str) -> None:
    result = run("export", PLANS, *arguments)
    assert result.exit_code == 2
    assert words in unwrapped(result.output) or words in unwrapped(
        str(run("export", PLANS, *arguments, "--json", "-").stdout)
    )


def test_a_search_plans_for_the_framework_that_it_exports_to(tmp_path: Path) -> None:
    out = tmp_path / "run.sh"
    result = run("plan", *SMALL, *FEW[:4], f"--export=torchtitan={out}")
    assert result.exit_code == 0, result.output
    assert "torchtitan.train" in out.read_text()
    assert "Written" in result.stdout


def test_one_plan_of_one_framework_is_exported() -> None:
    result = run("plan", *SMALL, "--stack", "all", "--export", "torchtitan")
    assert result.exit_code == 2
    assert "--stack all" in unwrapped(result.output)


def test_python_returns_texts_and_writes_files(tmp_path: Path) -> None:
    plan = shardplan.estimate("llama-3.2-1b", "dgx-h100", 8, {"sharding": "zero3"}, stack="torchtitan@0.3.0")
    made = shardplan.export(plan, "torchtitan", path=tmp_path / "run.sh")
    assert made.framework == "torchtitan 0.3.0"
    assert made.files["run.sh"] == (tmp_path / "run.sh").read_text()
    with pytest.raises(InputError, match="exists"):
        shardplan.export(plan, "torchtitan", path=tmp_path / "run.sh")
    with pytest.raises(NotRunnableError, match="nanotron"):
        shardplan.export(plan, "nanotron")

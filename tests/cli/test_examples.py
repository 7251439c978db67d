"""``shardplan examples`` writes what the documentation uses, and destroys nothing."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from tests.cli.commands import refused, run

from shardplan.base.files import EXAMPLES
from shardplan.cli.main import COMMANDS

ROOT = Path(__file__).parents[2]
OF_THE_TREE = {path.name: path.read_bytes() for path in (ROOT / "examples").iterdir() if path.is_file()}


def _written(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_all_files_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("examples")
    assert result.exit_code == 0, result.output
    assert _written(tmp_path / "examples") == OF_THE_TREE
    assert all(name in result.stdout for name in OF_THE_TREE)


def test_files_that_are_the_same_stay(tmp_path: Path) -> None:
    run("examples", tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    result = run("examples", tmp_path, "--json", "-")
    record = json.loads(result.stdout)
    assert (record["written"], sorted(record["unchanged"])) == ([], sorted(OF_THE_TREE))
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before


def test_a_file_that_differs_is_replaced_by_force_alone(tmp_path: Path) -> None:
    mine = tmp_path / "config.json"
    mine.write_text("mine")
    assert "--force" in refused("examples", tmp_path)
    assert _written(tmp_path) == {"config.json": b"mine"}
    assert run("examples", tmp_path, "--force").exit_code == 0
    assert _written(tmp_path) == OF_THE_TREE


@pytest.mark.parametrize("place", ["a-file", "a-file/below", "nul\0l"])
def test_a_folder_that_cannot_be_is_refused(place: str, tmp_path: Path) -> None:
    (tmp_path / "a-file").write_text("mine")
    result = run("examples", f"{tmp_path}/{place}")
    assert (result.exit_code, "cannot write" in result.stderr) == (2, True)
    assert (tmp_path / "a-file").read_text() == "mine"


def test_the_answer_replaces_no_example(tmp_path: Path) -> None:
    run("examples", tmp_path)
    assert run("examples", tmp_path, "--json", tmp_path / "config.json").exit_code == 2
    assert _written(tmp_path) == OF_THE_TREE


def test_an_installation_without_them_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardplan.base.files.EXAMPLES", (tmp_path / "none",))
    result = run("examples", tmp_path / "here")
    assert (result.exit_code, "install shardplan again" in result.stderr) == (2, True)
    assert EXAMPLES[1] == ROOT / "examples"


def test_help_that_uses_them_says_where_they_come_from() -> None:
    for name, entry in COMMANDS.items():
        named = {part for line in entry.examples for part in shlex.split(line) if part.startswith("examples/")}
        assert {part.partition("/")[2] for part in named} <= OF_THE_TREE.keys()
        if named:
            assert "`shardplan examples`" in run(name, "--help").stdout

"""No command loses a file: what it reads, what is not ours, and what was there before it failed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest
from tests.cli.commands import refused, run, unwrapped
from tests.workplace import COMMANDS, contents, furnish

from shardplan.cli.output import table_text

READS = [(name, file) for name, (_, files) in COMMANDS.items() for file in files]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    furnish(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", COMMANDS)
def test_an_answer_replaces_an_answer_and_nothing_else(name: str, folder: Path) -> None:
    command, _ = COMMANDS[name]
    assert run(*command, "--json", "answer.json").exit_code in (0, 1)
    schema = json.loads((folder / "answer.json").read_text())["schema"]
    assert schema.startswith("shardplan/")
    before = contents(folder)
    assert "notes.txt', which exists and is not an answer of shardplan" in refused(*command, "--json", "notes.txt")
    assert contents(folder) == before
    (folder / "answer.json").write_text(json.dumps({"schema": "shardplan/other/1"}))
    assert run(*command, "--json", "answer.json").exit_code in (0, 1)
    assert json.loads((folder / "answer.json").read_text())["schema"] == schema
    assert run(*command, "--json", "notes.txt", "--force").exit_code in (0, 1)
    assert json.loads((folder / "notes.txt").read_text())["schema"] == schema


@pytest.mark.parametrize("way", ["itself", "symlink", "hard link"])
@pytest.mark.parametrize(("name", "file"), READS)
def test_what_a_command_reads_is_not_written_over(name: str, file: str, way: str, folder: Path) -> None:
    """Read directly, in a folder, by way of a file that names another; under its name or a link; even with --force."""
    command, _ = COMMANDS[name]
    target = {"itself": file, "symlink": "soft.json", "hard link": "hard.json"}[way]
    if way == "symlink":
        (folder / target).symlink_to(file)
    elif way == "hard link":
        (folder / target).hardlink_to(file)
    before = contents(folder)
    for flags in (("--json", target), (f"--json={target}", "--force")):
        result = run(*command, *flags)
        assert result.exit_code == 2, result.output
        reasons = ("which this command reads or writes already", "which exists and is not")
        assert any(reason in unwrapped(result.stderr) for reason in reasons[: 1 if "--force" in flags else 2])
        assert contents(folder) == before


@pytest.mark.parametrize(
    ("command", "flag", "kind"),
    [
        (COMMANDS["validate"][0], "--html", "page"),
        (COMMANDS["calibrate"][0], "--out", "profile"),
        (COMMANDS["searcher"][0], "--output", "result file"),
    ],
)
def test_other_outputs_obey_the_same_rules(command: tuple[str, ...], flag: str, kind: str, folder: Path) -> None:
    reads = [file for arguments, files in COMMANDS.values() if arguments == command for file in files]
    before = contents(folder)
    if flag in command:  # which names one of its own
        command = (*command[: command.index(flag)], *command[command.index(flag) + 2 :])
    for file in ("notes.txt", *reads):
        result = run(*command, flag, file)
        assert result.exit_code == 2, result.output
        assert kind in result.stderr or "reads or writes already" in result.stderr
        assert contents(folder) == before
    for more in ((), (), ("--force",)):  # made, made again, and in place of another file
        target = "notes.txt" if more else "made"
        assert run(*command, flag, target, *more).exit_code in (0, 1)
        assert (folder / target).read_bytes() != before["notes.txt"]
    clash = run(*command, flag, "both", "--json", "both")
    assert clash.exit_code == 2
    assert not (folder / "both").exists()


def test_figures_obey_the_same_rules(folder: Path) -> None:
    pytest.importorskip("matplotlib")
    pytest.importorskip("plotly")
    command = ("published", "data-movement", "--limits", "--points-per-decade", "1", "--out", "figures")
    assert run(*command).exit_code == 0
    made = contents(folder / "figures")
    assert set(made) == {"limits.html", "limits.csv", "limits.png"}
    assert run(*command).exit_code == 0
    for name in made:
        (folder / "figures" / name).write_text("mine")
        result = run(*command)
        assert result.exit_code == 2
        assert contents(folder / "figures") == {**made, name: b"mine"}
        (folder / "figures" / name).write_bytes(made[name])
    (folder / "figures" / "limits.png").write_text("mine")
    assert run(*command, "--force").exit_code == 0
    assert set(contents(folder / "figures")) == set(made)
    assert b"mine" not in contents(folder / "figures").values()
    assert run(*command, "--json", "figures/limits.csv", "--force").exit_code == 2


def test_a_text_of_a_table_is_no_formula() -> None:
    row = {"a": "=1+1", "b": "@x", "c": "-1", "d": -1.5, "e": "x=1", "f": None}
    assert table_text([row]).splitlines() == ["a,b,c,d,e,f", "'=1+1,'@x,'-1,-1.5,x=1,"]


MEASURED: Final = (*COMMANDS["simulate --measured"][0], "--stages-out", "both")
PAIRS: Final = {
    "export": (("export", "fully-sharded.json", "--to", "torchtitan", "--out", "both"), "both", "--json"),
    "export, beside": (("export", "fully-sharded.json", "--to", "deepspeed", "--out", "a.sh"), "a.json", "--json"),
    "plan": ((*COMMANDS["plan"][0], "--export", "megatron-lm=both"), "both", "--json"),
    "plan, beside": ((*COMMANDS["plan"][0], "--export", "accelerate=a.sh"), "a.yaml", "--json"),
    **{f"simulate {flag}": (MEASURED, "both", flag) for flag in ("--json", "--out", "--html", "--svg")},
    **{f"pareto {flag}": ((*COMMANDS["pareto"][0], "--csv", "both"), "both", flag) for flag in ("--json", "--html")},
}
"""Commands with an output, its file, and the flag of another output."""


@pytest.mark.parametrize("name", PAIRS)
def test_two_outputs_are_never_one_file(name: str, folder: Path) -> None:
    """By its name or by a link, even with --force; nothing is written."""
    command, file, flag = PAIRS[name]
    for other in (file, f"./{file}", str(folder / file)):
        before = contents(folder)
        assert "reads or writes already" in refused(*command, flag, other, "--force")
        assert contents(folder) == before

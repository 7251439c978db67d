"""Consoles, paths and files as Windows and macOS have them, as far as Linux can play them."""

from __future__ import annotations

import json
import shutil
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.commands import FEW, SMALL, answer, run
from tests.cli.test_process import QUESTION, start

from shardplan.base.files import example_files

UTF8_MARK = b"\xef\xbb\xbf"
"""What editors on Windows put before a text in UTF-8."""
FOLDERS = (
    "My Models",  # a space
    "C:\\Users\\me",  # backslashes: letters of a name on Linux, folders on Windows
    "Müller 模型",  # characters that no code page of Windows has together
    unicodedata.normalize("NFD", "Modèle"),  # as file systems of macOS keep it
    'a\'b "c" $HOME %TEMP% &',  # what shells act on
    "x" * 120,  # long, as temporary folders of macOS are
)


def _crlf(text: bytes) -> bytes:
    return text.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")


def _marked(text: bytes) -> bytes:
    return UTF8_MARK + text


def _both(text: bytes) -> bytes:
    return UTF8_MARK + _crlf(text)


def _without_last_end(text: bytes) -> bytes:
    return text.rstrip(b"\n")


FORMS = (_crlf, _marked, _both, _without_last_end)
"""How editors of other systems save a text."""


@pytest.fixture(scope="module")
def question() -> str:
    """What a console that has all characters shows."""
    return start(*QUESTION, PYTHONIOENCODING="utf-8").stdout


@pytest.mark.parametrize("encoding", ["cp1252", "cp437", "ascii", "mac-roman"])
def test_consoles_that_lack_characters_show_numbers_all_the_same(encoding: str, question: str) -> None:
    done = start(*QUESTION, PYTHONIOENCODING=encoding, PYTHONUTF8="0")
    assert (done.returncode, done.stderr) == (0, "")
    shown, expected = (
        [line.replace(",", "").split() for line in text.splitlines() if line.strip()]  # a comma is in place of a dot
        for text in (done.stdout, question)
    )
    assert len(shown) == len(expected)
    rows = [[word for word in line if word.isascii() and word[0].isalnum()] for line in expected]
    assert all(set(row) <= set(line) for row, line in zip(rows, shown, strict=True))


@pytest.mark.parametrize("encoding", ["cp1252", "ascii", "utf-8"])
def test_json_survives_a_console_that_lacks_characters(encoding: str, tmp_path: Path) -> None:
    folder = tmp_path / "Müller 模型"
    folder.mkdir()
    (folder / "config.json").write_bytes(example_files()["config.json"])
    done = start("models", str(folder / "config.json"), "--json", "-", PYTHONIOENCODING=encoding, PYTHONUTF8="0")
    assert done.returncode == 0, done.stderr
    text = done.stdout
    assert encoding == "utf-8" or text.isascii()
    assert json.loads(text)["name"] == "Müller 模型"


def test_colours_are_off_where_they_are_not_wanted() -> None:
    coloured = start(*QUESTION, FORCE_COLOR="1", TERM="xterm-256color").stdout
    plain = start(*QUESTION, FORCE_COLOR="1", TERM="xterm-256color", NO_COLOR="1").stdout
    assert "\x1b[" in coloured
    assert "\x1b[3" not in plain  # weight and underline are no colours
    assert "\x1b[9" not in plain


@pytest.mark.parametrize("name", FOLDERS)
def test_paths_of_other_systems(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    folder.mkdir()
    for file in ("config.json", "my-cluster.yaml", "my-runs.csv"):
        (folder / file).write_bytes(example_files()[file])
    plans = folder / "plans file.json"
    model, cluster = folder / "config.json", folder / "my-cluster.yaml"
    done = run("plan", model, "--cluster", cluster, "--gpus", 16, *FEW, "--fix", "tp=8", "--json", plans)
    assert done.exit_code == 0, done.output
    assert run("estimate", "--from", plans, "--micro-batch-size", 2).exit_code in (0, 1)
    assert run("compare", plans, plans).exit_code == 0
    assert run("validate", folder / "my-runs.csv").exit_code == 0
    assert json.loads(plans.read_bytes())["schema"].startswith("shardplan/plan-file/")
    assert sorted(path.name for path in folder.iterdir()) == [
        "config.json",
        "my-cluster.yaml",
        "my-runs.csv",
        plans.name,
    ]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("command", "file"),
    [
        (("models",), "config.json"),
        (("clusters",), "my-cluster.yaml"),
        (("accelerators",), "my-accelerator.yaml"),
        (("validate",), "my-runs.csv"),
        (("estimate", "--from"), "tensor-parallel.json"),
    ],
)
def test_files_saved_by_other_editors(
    command: tuple[str, ...], file: str, form: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    """The answer is that to the file as it is in the examples."""
    folder = tmp_path / "examples"
    folder.mkdir()
    (folder / file).write_bytes(example_files()[file])
    expected = answer(*command, folder / file)
    (folder / file).write_bytes(form(example_files()[file]))
    assert answer(*command, folder / file) == expected


def test_cells_with_line_ends_and_tabs_of_a_spreadsheet(tmp_path: Path) -> None:
    """A CSV as a spreadsheet saves it where the comma is a decimal sign: semicolons, CRLF and a mark."""
    table = tmp_path / "runs.csv"
    table.write_bytes(_both(example_files()["my-runs.csv"].replace(b",", b";")))
    plain = tmp_path / "plain.csv"
    plain.write_bytes(example_files()["my-runs.csv"])
    rows, expected = answer("validate", table)["rows"], answer("validate", plain)["rows"]
    assert [row["predicted_step_time_s"] for row in rows] == [row["predicted_step_time_s"] for row in expected]


@pytest.mark.parametrize("name", ["LLAMA-3.2-1B", "Llama-3.2-1b"])
def test_case_of_names_does_not_matter(name: str) -> None:
    first = answer("estimate", name, *SMALL[1:])
    assert first["model"]["name"] == "llama-3.2-1b"
    upper = [part.upper() if part == "dgx-h100" else part for part in SMALL[1:]]
    assert answer("estimate", name, *upper)["plans"] == first["plans"]


def test_a_file_system_without_case_writes_no_file_over_another(tmp_path: Path) -> None:
    """On such a system both names are one file; a link plays it here."""
    plans, other = tmp_path / "Plans.json", tmp_path / "PLANS.JSON"
    shutil.copy(Path(__file__).parents[2] / "examples" / "tensor-parallel.json", plans)
    other.hardlink_to(plans)
    before = plans.read_bytes()
    assert run("estimate", "--from", plans, "--json", other).exit_code == 2
    assert plans.read_bytes() == before

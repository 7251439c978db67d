"""The program as a process of its own: what it loads, how it ends, what it prints where."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.commands import FEW, SMALL, unwrapped

PROGRAM = (sys.executable, "-m", "shardplan")
QUESTION = ("plan", *SMALL, *FEW)


def environment(**more: str) -> dict[str, str]:
    plain = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}
    return {**plain, **more}


def start(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *arguments], capture_output=True, text=True, encoding="utf-8", check=False, env=environment(**more)
    )


@pytest.mark.parametrize("arguments", [["--help"], ["plan", "--help"], ["--version"], []])
def test_help_loads_nothing_that_is_slow(arguments: list[str]) -> None:
    program = (
        "import sys\n"
        "from shardplan.cli.main import app\n"
        "try:\n"
        f"    app({arguments!r}, prog_name='shardplan')\n"
        "finally:\n"
        "    slow = {'numpy', 'yaml', 'rich'} & set(sys.modules)\n"
        "    sys.stderr.write(' '.join(sorted(slow)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout
    assert done.stderr == ""


def test_an_answer_in_a_pipe_is_plain_text() -> None:
    done = start(*QUESTION)
    assert done.returncode == 0
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    assert "Fits " in unwrapped(done.stdout)


def test_a_terminal_without_unicode_is_served() -> None:
    done = start(*QUESTION, PYTHONIOENCODING="ascii", PYTHONUTF8="0", LC_ALL="C")
    assert done.returncode == 0
    assert done.stdout.isascii()
    assert "####" in unwrapped(done.stdout)


def test_json_stands_alone_on_standard_output() -> None:
    done = start(*QUESTION, "--json", "-")
    assert json.loads(done.stdout)["plans"]
    assert done.stderr == ""


def test_status_and_streams_of_a_refusal() -> None:
    done = start("plan", "lama", "--json", "-")
    assert done.returncode == 2
    assert "error" in json.loads(done.stdout)
    assert done.stderr.startswith("shardplan: ")


@pytest.mark.parametrize("arguments", [QUESTION, (*QUESTION, "--json", "-"), ("--help",), ("models",)])
def test_a_reader_who_leaves_ends_the_program_quietly(arguments: tuple[str, ...]) -> None:
    with subprocess.Popen(
        [*PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 141


def test_the_file_is_written_even_where_the_reader_leaves(tmp_path: Path) -> None:
    path = tmp_path / "plans.json"
    with subprocess.Popen(
        [*PROGRAM, *QUESTION, "--json", str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait() == 141
    assert json.loads(path.read_text())["plans"]

"""The program as a process of its own: what it loads, how it ends, what it prints where."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.commands import FEW, SMALL, run, unwrapped

PROGRAM = (sys.executable, "-m", "shardplan")
QUESTION = ("plan", *SMALL, *FEW)


def environment(**more: str) -> dict[str, str]:
    plain = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}
    return {**plain, **more}


def start(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    encoding = more.get("PYTHONIOENCODING", "utf-8")
    return subprocess.run(
        [*PROGRAM, *arguments], capture_output=True, text=True, encoding=encoding, check=False, env=environment(**more)
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


IMPORTED = """
import sys
from shardplan.cli.main import app
try:
    app({words!r}, prog_name="shardplan")
finally:
    sys.stdout.write("\\n" + " ".join(sorted(set({modules!r}) & set(sys.modules))))
"""


@pytest.mark.parametrize(
    ("line", "modules"),
    [
        ("models", "numpy yaml pydantic shardplan.estimation.estimate"),
        ("clusters dgx-h100", "numpy yaml pydantic shardplan.estimation.estimate"),
        (f"estimate {' '.join(SMALL)}", "yaml pydantic shardplan.planner.space shardplan.reports.plan_file"),
        ("audit examples/launch.sh", "yaml pydantic shardplan.planner.space shardplan.launch.read.python"),
        ("audit examples/launch.sh --cluster dgx-h100", "yaml pydantic shardplan.simulation.measured"),
    ],
)
def test_a_command_imports_nothing_that_only_others_use(line: str, modules: str) -> None:
    """It takes time, and is noticed where somebody imports it at the top of a file."""
    if line.startswith("audit"):
        pytest.importorskip("tree_sitter_bash")
    program = IMPORTED.format(words=line.split(), modules=modules.split())
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2]
    )
    answer, _, imported = done.stdout.rpartition("\n")
    assert len(answer) > 300
    assert imported == ""


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


INTERRUPTED = """
import sys

class Interrupt:
    def find_spec(self, name, *_):
        if name == {module!r}:
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupt())
sys.argv = {arguments!r}
from shardplan.__main__ import main
main()
"""


@pytest.mark.parametrize("module", ["shardplan.cli.main", "typer", "shardplan.cli.plan", "numpy", "rich.console"])
def test_an_interrupt_while_something_is_imported_is_one(module: str) -> None:
    program = INTERRUPTED.format(module=module, arguments=["shardplan", *QUESTION])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr == "shardplan: interrupted\n"
    assert done.returncode == 130


IN_A_CLASS = """
class Name:
    def __set_name__(self, *_):
        raise KeyboardInterrupt

class Named:
    name = Name()
"""
IN_A_CALLBACK = """
import weakref

class Kept: ...

def interrupt(_):
    raise KeyboardInterrupt

kept = Kept()
reference = weakref.ref(kept, interrupt)
del kept
"""


@pytest.mark.parametrize("module", ["shardplan.cli.main", "shardplan.cli.plan"])
@pytest.mark.parametrize("code", [IN_A_CLASS, IN_A_CALLBACK])
def test_an_interrupt_that_python_replaces_or_drops_is_one(module: str, code: str) -> None:
    program = INTERRUPTED.format(module=module, arguments=["shardplan", *QUESTION])
    program = program.replace("raise KeyboardInterrupt", f"exec({code!r}, {{}})")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr == "shardplan: interrupted\n"
    assert done.returncode == 130


def test_an_interrupt_ends_a_search_and_leaves_no_file(tmp_path: Path) -> None:
    arguments = ["plan", "deepseek-v3", "--cluster", "dgx-h100", "--gpus", "2048", "--json", str(tmp_path / "x.json")]
    program = (
        f"import signal, sys\nsys.argv = {['shardplan', *arguments]!r}\nfrom shardplan.__main__ import main\n"
        "from shardplan.planner import scope\n"
        "def survey_of(*args, survey=scope.survey_of, **kwargs):\n"
        "    sys.stderr.write('searching\\n')\n    sys.stderr.flush()\n"
        "    return survey(*args, **kwargs)\n"
        "scope.survey_of = survey_of\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # jobs in the background inherit it ignored
        "main()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "searching\n"
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
        assert process.stderr.read() == "shardplan: interrupted\n"
    assert list(tmp_path.iterdir()) == []


FULL = Path("/dev/full")


@pytest.mark.skipif(not FULL.exists(), reason="only Linux has a device that is always full")
@pytest.mark.parametrize("arguments", [QUESTION, ("models", "--json", "-"), ("--help",), ("models", "lama")])
def test_a_full_output_is_said_and_is_no_answer(arguments: tuple[str, ...]) -> None:
    with FULL.open("w") as full:
        done = subprocess.run(
            [*PROGRAM, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=environment()
        )
    assert done.returncode == 2
    assert done.stderr.startswith("shardplan: ")
    assert "lama" in arguments or "cannot write to standard output" in done.stderr


@pytest.mark.skipif(os.name != "posix", reason="needs a shell")
@pytest.mark.parametrize("arguments", [("models",), ("--help",), ("models", "--json", "-")])
def test_a_closed_output_is_said(arguments: tuple[str, ...]) -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", '"$@" >&-', "sh", *PROGRAM, *arguments], capture_output=True, text=True, check=False,
        env=environment(),
    )  # fmt: skip
    assert done.returncode == 2
    assert "cannot write to standard output" in done.stderr


def test_a_defect_has_a_status_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("a\x1b[31m\nb")

    monkeypatch.setattr("shardplan.answers.catalogue.models_document", broken)
    result = run("models")
    assert result.exit_code == 70
    assert result.stderr.startswith("shardplan: defect: ZeroDivisionError: a?[31m b (")
    assert len(result.stderr.splitlines()) == 1
    monkeypatch.setenv("SHARDPLAN_DEBUG", "1")
    assert "Traceback (most recent call last)" in run("models").stderr


def test_a_file_in_the_way_is_no_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise PermissionError(13, "Permission denied", "/closed/x\x1b")

    monkeypatch.setattr("shardplan.answers.catalogue.models_document", broken)
    result = run("models")
    assert result.exit_code == 2
    assert result.stderr.startswith("shardplan: cannot use '/closed/x?': Permission denied\n")


def test_json_stands_alone_on_standard_output_and_the_same_question_has_the_same_answer() -> None:
    """To the last byte of JSON, but for the time that the search took."""
    answers = [start(*QUESTION, "--json", "-", PYTHONHASHSEED=seed) for seed in ("1", "2")]
    assert [done.stderr for done in answers] == ["", ""]
    assert all(json.loads(done.stdout)["plans"] for done in answers)
    pairs = zip(*(done.stdout.splitlines() for done in answers), strict=True)
    assert all("search_time_s" in one for one, other in pairs if one != other)


def test_a_name_cannot_drive_the_terminal(tmp_path: Path) -> None:
    folder = tmp_path / "a\x1b[2Jb"
    folder.mkdir()
    config = {
        "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": 99,
        "num_attention_heads": 4,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    for arguments in (("models", folder), ("models", f"{folder}\x1b]0;x\x07"), ("models", "x", "\x1b[31m")):
        result = run(*arguments)
        assert "\x1b" not in result.stdout + result.stderr
        assert "\x07" not in result.stdout + result.stderr

"""The answer as text: verdict first, aligned at every width, plain in a pipe."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import pytest
from tests.cli.commands import FEW, SMALL, answer, run, unwrapped

import shardplan.render.page
from shardplan.base.words import joined
from shardplan.render.page import Page, TextColumn

pytestmark = pytest.mark.usefixtures("kept")
QUESTIONS = {
    "plan": ("plan", "llama-3.1-8b", "--cluster", "dgx-h100", "--gpus", 32, *FEW, "--all"),
    "first screen": ("plan", "llama-3.1-8b", "--cluster", "dgx-h100", "--gpus", 32, *FEW, "--tokens", "2T"),
    "experts": (
        "plan",
        "mixtral-8x7b",
        "--cluster",
        "gb200-nvl72",
        "--gpus",
        144,
        "--fix",
        "cp=1",
        "--limit",
        "pp=1,2",
    ),
    "estimate": ("estimate", "llama-3.1-70b", "--cluster", "dgx-h100", "--gpus", 64, "--tp", 8, "--pp", 4, "--all"),
    "no": ("estimate", "llama-3.1-70b", "--cluster", "dgx-h100", "--gpus", 8),
    "nothing": ("plan", "llama-3.1-405b", "--cluster", "dgx-h100", "--gpus", 8, "--fix", "cp=1", "--fix", "tp=8"),
    "models": ("models",),
    "model": ("models", "nemotron-h-56b"),
    "clusters": ("clusters",),
    "cluster": ("clusters", "tpu-v5p-pod"),
    "accelerators": ("accelerators",),
    "accelerator": ("accelerators", "gh200-96gb"),
}
COMMAND = re.compile(r"^  (shardplan |--)")
"""Lines that are to be copied are never broken."""


WIDTHS = {"nothing": (60, 100), "experts": (60, 100)}
"""Of questions that take a second; others are asked at four."""


@pytest.mark.parametrize(
    ("name", "columns"), [(name, width) for name in QUESTIONS for width in WIDTHS.get(name, (60, 80, 100, 140))]
)
def test_no_line_is_wider_than_the_terminal(name: str, columns: int) -> None:
    result = run(*QUESTIONS[name], columns=columns)
    assert result.exit_code in (0, 1), result.output
    wide = [line for line in result.stdout.splitlines() if len(line) > columns and not COMMAND.match(line)]
    assert wide == []
    assert [line for line in result.stdout.splitlines() if line != line.rstrip()] == []
    assert "\x1b" not in result.stdout
    assert not set(result.stdout) & set("│┃━─┏┓└┘╭╮╰╯")
    assert "\ue000" not in result.stdout


def _headings(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if line and not line.startswith(" "):
            yield line.split("  ")[0]


def test_the_answer_comes_first_and_the_way_on_last() -> None:
    text = run(*QUESTIONS["plan"]).stdout
    headings = list(_headings(text))
    order = ["Memory", "Step", "Best plans", "Why this plan", "What limits it", "Alternatives", "Searched"]
    order += ["Nearest measured runs", "Assumptions", "Next steps"]
    assert [heading for heading in headings if heading in order] == order
    assert text.index("Fits ") < text.index("Memory")
    for words in ("MFU", "TFLOP/s bf16", "80 % band", "optimum of the declared space"):
        assert words in unwrapped(text)
    assert "MFU counts forward and backward (3 x forward)" in unwrapped(text)


def test_the_plan_is_given_as_flags_that_work() -> None:
    text = run("plan", *SMALL, "--fix", "recompute=layernorm", "--limit", "tp=2", *FEW).stdout
    again = run(*shlex.split(text.strip().splitlines()[-1])[1:]).stdout
    best = re.search(r"Fits (.*?) a step", unwrapped(text))
    assert best is not None
    assert f"Fits {best[1]} a step" in unwrapped(again)


def test_the_table_shows_every_field_in_which_plans_differ() -> None:
    fix = ("--fix", "pp=1", "--fix", "recompute=none", "--limit", "tp=2,4", "--fix", "cp=1", "--fix", "sharding=zero1")
    text = run(
        "plan",
        *SMALL,
        *fix,
        "--limit",
        "tp_kind=1d,summa",
        "--limit",
        "tp_rows=1,2",
        "--stack",
        "any",
        "--top",
        "30",
        columns=120,
    ).stdout
    table = text[text.index("Best plans") : text.index("  * take")].strip().splitlines()[1:]
    assert "rows" in table[0]
    assert "tp kind" in table[0]
    shown = [row.split("  ", 1)[1].split()[4:] for row in table[1:]]
    assert len({tuple(row) for row in shown}) == len(shown)


def test_the_bar_of_memory_fills_by_parts() -> None:
    text = run(*QUESTIONS["plan"]).stdout
    bar = re.search(r"^  \[(.*)\]$", text, re.MULTILINE)
    assert bar is not None
    assert len(bar[1]) == 74
    assert bar[1].strip(".")
    assert set(bar[1]) <= set("WGOALBF.")


def test_a_part_that_no_run_covers_has_a_guess_with_the_reason_beside_it() -> None:
    asked = ("llama-3.1-8b", "--cluster", "gaudi3-hls3", "--gpus", "16", "--global-batch-size", "32")
    text = run("plan", *asked, *FEW).stdout
    assert "80 % band" not in text
    first = unwrapped(text[: text.index("Memory")])
    assert re.search(r"Fits .* Outside the measured runs: no measured run covers Intel .*\. Plan ", first)
    assert re.search(r"a guess from [0-9,]+ runs of other accelerators, with your own runs", first)


def test_the_nearest_measured_runs_take_three_lines_at_most() -> None:
    for name in ("plan", "estimate"):
        text = run(*QUESTIONS[name]).stdout
        lines = text[text.index("Nearest measured runs") :].partition("\n\n")[0].splitlines()[1:]
        assert 1 <= len(lines) <= 3
        assert re.search(r"measured .* s, predicted .* s \([+-][0-9.]+ %\)$", unwrapped("\n".join(lines)))


def test_memory_of_a_part_that_no_run_covers_is_a_guess_too() -> None:
    asked = ("llama-3.1-8b", "--cluster", "gaudi3-hls3", "--gpus", "16", "--global-batch-size", "32")
    text = run("plan", *asked, *FEW).stdout
    memory = text[text.index("Memory") : text.index("Step  ")]
    assert "a guess from" in unwrapped(memory)


def test_the_band_of_memory_says_where_its_upper_end_does_not_fit() -> None:
    text = run(*QUESTIONS["plan"]).stdout
    assert len(re.findall(r"usable \([0-9.]+ .B to [0-9.]+ .B, 80 % band\)", unwrapped(text))) == 1
    record = answer(*QUESTIONS["plan"])["recommended"]["plan"]
    risky = record["peak_memory_p90_bytes"] > record["usable_memory_bytes"]
    assert ("the upper end of its band it would not fit" in unwrapped(text)) == risky


def test_too_much_memory_shows_where_the_usable_ends() -> None:
    text = run(*QUESTIONS["no"]).stdout
    bar = re.search(r"^  \[(.*)\]$", text, re.MULTILINE)
    assert bar is not None
    assert 0 < bar[1].index("|") < 40
    assert "Too big Stage 0 needs" in unwrapped(text)


def test_colours_where_they_are_asked_for() -> None:
    from typer.testing import CliRunner

    from shardplan.cli.main import app

    environment = {"FORCE_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": "80"}
    coloured = CliRunner(env=environment).invoke(app, [str(part) for part in QUESTIONS["plan"]], color=True)
    assert "\x1b[1;32mFits" in unwrapped(coloured.stdout)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", coloured.stdout)
    assert max(len(line) for line in plain.splitlines() if not COMMAND.match(line)) <= 80


def test_columns_give_way_by_rank(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    columns = [
        TextColumn(title="name", cells=["a", "b"], is_text=True),
        TextColumn(title="first to go", cells=["1", "2"], rank=2),
        TextColumn(title="next to go", cells=["3", "4"], rank=1),
        TextColumn(title="stays", cells=["5", "6"]),
    ]
    shown = []
    for width in (60, 30, 20):
        monkeypatch.setenv("COLUMNS", str(width))
        Page().table(columns)
        shown.append(capsys.readouterr().out.splitlines()[0].split("  "))
    assert [[title.strip() for title in titles if title.strip()] for titles in shown] == [
        ["name", "first to go", "next to go", "stays"],
        ["name", "next to go", "stays"],
        ["name", "stays"],
    ]


def test_a_number_is_never_parted_from_its_unit(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "24")
    Page().line("it takes about 123.4 GB with tp 16")
    assert capsys.readouterr().out.splitlines() == ["  it takes about", "  123.4 GB with tp 16"]
    assert shardplan.render.page.HARD_SPACE not in capsys.readouterr().out


def test_enumerations_read_like_a_sentence() -> None:
    assert [joined(parts) for parts in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == ["", "a", "a and b", "a, b and c"]

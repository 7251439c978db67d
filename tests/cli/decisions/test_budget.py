"""``shardplan budget``: the answer, its files, and what it refuses."""

from __future__ import annotations

import csv
import io
from itertools import pairwise
from pathlib import Path

import pytest
from tests.cli.commands import answer, run, unwrapped

import shardplan

ANYWHERE = (
    "budget", "llama-3.2-1b", "--tokens", "10G", "--global-batch-size", "64", "--sequence-length", "2048",
    "--limit", "pp=1", "--limit", "cp=1", "--limit", "sharding=zero1",
)  # fmt: skip
SMALL = (*ANYWHERE, "--cluster", "dgx-h100")


def test_options_have_the_documented_keys_and_close() -> None:
    (option,) = answer(*SMALL, "--gpus", 8)["options"]
    assert {
        "cluster", "num_accelerators", "days", "days_p10", "days_p90", "goodput", "accounts_s", "money", "currency",
        "energy_kwh", "carbon_t", "plan", "assumptions",
    } <= set(option)  # fmt: skip
    assert sum(option["accounts_s"].values()) == pytest.approx(option["days"] * 86400, rel=1e-9)


def test_a_size_in_nodes_is_that_many_accelerators() -> None:
    assert run(*SMALL, "--gpus", "2x8").output == run(*SMALL, "--gpus", 16).output
    by_text, by_number = (
        shardplan.budget("llama-3.2-1b", ["dgx-h100"], tokens=1e10, num_accelerators=size) for size in ("1x8", 8)
    )
    assert repr(by_text) == repr(by_number)


def test_the_text_says_what_the_run_takes() -> None:
    text = unwrapped(run(*SMALL, "--gpus", 8, "--price", "2.5").output)
    assert "Takes" in text
    assert "8 x NVIDIA H100" in text
    assert "USD" in text
    assert "productive" in text


def test_the_text_counts_nodes_and_names_what_nobody_knows() -> None:
    text = unwrapped(run(*ANYWHERE, "--gpus", 16, "--cluster", "gb200-nvl72").output)
    assert "No price of gb200-186gb is known: give one (--price)." in text
    assert "16 x NVIDIA GB200 (per Blackwell GPU, NVL72), gb200-nvl72;" in text
    unmeasured = unwrapped(run(*ANYWHERE, "--gpus", 8, "--cluster", "gaudi3").output)
    assert "Outside the measured runs: no measured run covers Intel Gaudi 3" in unmeasured
    known = unwrapped(run(*SMALL, "--gpus", 16, "--price", "2.5").output)
    assert "16 x NVIDIA H100 SXM5 80GB, 2 nodes of dgx-h100;" in known
    assert "No price" not in known


def test_the_batch_is_chosen_within_limits_and_shown() -> None:
    limits = (*(each for each in SMALL if each not in ("--global-batch-size", "64")), "--batch-limits", "48..96")
    (option,) = answer(*limits, "--gpus", 16)["options"]
    assert 48 <= option["global_batch_size"] <= 96
    lines = run(*limits, "--gpus", 16).output.splitlines()
    heads = next(number for number, line in enumerate(lines) if line.split()[:3] == ["cluster", "step", "batch"])
    assert str(option["global_batch_size"]) in lines[heads + 1].split()


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ("96..48", "LOW is at most HIGH"),
        ("48", "such as 1024..4096"),
        ("128..256", "leave --global-batch-size or --batch-limits out"),
    ],
)
def test_contradictory_batch_limits_are_refused(limits: str, words: str) -> None:
    result = run(*SMALL, "--gpus", 16, "--batch-limits", limits)
    assert result.exit_code == 2
    assert words in unwrapped(result.output)


def test_assumptions_that_clusters_share_are_printed_once() -> None:
    text = unwrapped(run(*ANYWHERE, "--gpus", 16, "--cluster", "dgx-h100,dgx-a100", "--assumptions").output)
    assert text.count("detection time") == 1
    assert "Assumptions of dgx-a100 alone" in text


def test_files_are_written(tmp_path: Path) -> None:
    table, page, picture = (tmp_path / name for name in ("b.csv", "b.html", "b.png"))
    result = run(*SMALL, "--gpus", 8, "--csv", table, "--html", page, "--png", picture)
    assert result.exit_code == 0, result.output
    (row,) = csv.DictReader(io.StringIO(table.read_text()))
    assert row["cluster"] == "dgx-h100"
    assert "plotly" in page.read_text()
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_limit_that_is_broken_ends_with_1() -> None:
    result = run(*SMALL, "--gpus", 8, "--days", "0.001")
    assert result.exit_code == 1
    assert "Misses" in result.output
    assert "above the limit of 0.001" in unwrapped(result.output)


def test_times_and_bandwidths_have_units() -> None:
    flags = ("--detection-time", "0s", "--start-up-time", "1min", "--checkpoint-bandwidth", "1GB/s")
    option = answer(*SMALL, "--gpus", 8, *flags)["options"][0]
    assert option["accounts_s"]["detection"] == 0
    assert option["accounts_s"]["start_up"] == 60
    assert option["checkpoint_write_time_s"] == pytest.approx(option["checkpoint_bytes"] / 8e9)


def _without(arguments: tuple[str, ...], flags: set[str]) -> list[str]:
    """``arguments`` without these flags and their values: a flag of one value is given once."""
    return [
        text
        for before, text in pairwise(("", *arguments))
        if text not in flags and not (before in flags and before.startswith("--"))
    ]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--gpus", 0), "--gpus is '0'"),
        (("--gpus", "2x4"), "--gpus is '2x4', 2 nodes of 4; a node of dgx-h100 has 8"),
        (("--days", "soon"), "--days is 'soon'"),
        (("--money", "1M", "--cluster", "gb300-nvl72"), "no price"),
        (("--gpus", 8, "--batch-ramp", "512"), "--batch-ramp has '512'"),
        (("--gpus", 8, "--cluster", "dgx-h100,,dgx-a100"), "one of them empty"),
        (("--gpus", 8, "--tokens", "10"), "fewer than one step"),
        (("--gpus", 8, "--energy", "5 apples"), "--energy"),
        (("--gpus", 8, "--pue", "0.5"), "--pue"),
        (("--gpus", 8, "--failure-rate", "1e-300"), "--failure-rate"),
    ],
)
def test_what_is_refused(flags: tuple[object, ...], said: str) -> None:
    result = run(*_without(SMALL, {str(flag) for flag in flags}), *flags)
    assert result.exit_code == 2
    assert said in unwrapped(result.output)

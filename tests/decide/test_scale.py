"""Scaling a job: hand-counted efficiencies, limits, and plans that are those of ``plan``."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commands import answer, run

import shardplan
from shardplan.base.errors import InputError
from shardplan.decide.scale import doubling, scaling
from shardplan.decide.searching import Searches

JOB: dict[str, Any] = {"sequence_length": 2048, "global_batch_size": 64}
ARGUMENTS = (
    "llama-3.2-1b", "--cluster", "dgx-h100", "--global-batch-size", "64", "--sequence-length", "2048",
    "--limit", "pp=1,2", "--limit", "cp=1",
)  # fmt: skip


def test_a_range_doubles_and_ends_at_its_end() -> None:
    assert doubling(64, 512) == [64, 128, 256, 512]
    assert doubling(8, 40) == [8, 16, 32, 40]
    assert doubling(8, 8) == [8]


def test_efficiencies_are_those_counted_by_hand() -> None:
    found = shardplan.scale("llama-3.2-1b", "dgx-h100", [32, 8, 16], limit={"pp": [1, 2], "cp": [1]}, **JOB)
    rates = [64 * 2048 / point.answered.estimate.step_time for point in found.points if point.answered.estimate]
    assert [point.num_accelerators for point in found.points] == [8, 16, 32]
    assert found.points[0].efficiency == 1
    assert found.points[0].marginal_efficiency is None
    assert found.points[2].efficiency == pytest.approx(rates[2] / rates[0] / 4)
    assert found.points[2].marginal_efficiency == pytest.approx((rates[2] - rates[1]) / 16 / (rates[0] / 8))


def test_the_plan_at_each_size_is_the_one_that_plan_recommends() -> None:
    found = shardplan.scale("llama-3.2-1b", "dgx-h100", [8, 16], **JOB)
    for point in found.points:
        alone = shardplan.search("llama-3.2-1b", "dgx-h100", point.num_accelerators, **JOB)
        assert point.answered.estimate is not None
        assert alone.recommended is not None
        assert point.answered.estimate.plan == alone.recommended.plan
        assert point.answered.estimate.step_time == alone.recommended.step_time


def test_more_accelerators_stop_paying_where_the_batch_is_used_up() -> None:
    found = shardplan.scale("llama-3.2-1b", "dgx-h100", doubling(8, 512), fix={"tp": 1, "pp": 1, "cp": 1}, **JOB)
    assert found.pays_up_to is not None
    assert found.pays_up_to <= 64  # 64 sequences are at most 64 replicas
    used = [each.answered.estimate.num_accelerators_used for each in found.points if each.answered.estimate]
    assert used == [8, 16, 32, 64, 64, 64, 64]
    assert len({each.answered.tokens_per_second for each in found.points[3:]}) == 1
    assert found.question.num_accelerators == 512


def test_a_smaller_least_gain_pays_further() -> None:
    asked = shardplan.question("llama-3.2-1b", "dgx-h100", 64, **JOB)
    searches = Searches(limit={"pp": (1, 2), "cp": (1,)})
    strict, lenient = (scaling(asked, (8, 16, 32, 64), searches, least_gain=share) for share in (1.0, 0.01))
    assert (strict.pays_up_to or 0) <= (lenient.pays_up_to or 0) == 64


@pytest.mark.parametrize("sizes", [[], [0, 8], ["8"], [True and -1]])
def test_sizes_are_checked(sizes: list[int]) -> None:
    with pytest.raises(InputError, match="the sizes are"):
        shardplan.scale("llama-3.2-1b", "dgx-h100", sizes)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--gpus", "64..32"),
        ("--gpus", "8..x"),
        ("--gpus", "8,8"),
        ("--gpus", "8", "--nodes", "1"),
        (),
        ("--nodes", "0..2"),
    ],
)
def test_bad_sizes_are_refused(arguments: tuple[str, ...]) -> None:
    assert run("scale", *ARGUMENTS, *arguments).exit_code == 2


def test_nodes_are_whole_nodes() -> None:
    record = answer("scale", *ARGUMENTS, "--nodes", "1..2")
    assert [point["num_accelerators"] for point in record["points"]] == [8, 16]


def test_the_answer_the_table_and_the_figures_agree(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="comes with the extra 'plots'")
    names = {kind: tmp_path / f"scale.{kind}" for kind in ("csv", "html", "png", "svg")}
    flags = [word for kind, path in names.items() for word in (f"--{kind}", path)]
    record = answer("scale", *ARGUMENTS, "--gpus", "8,16", *flags)
    rows = list(csv.DictReader(io.StringIO(names["csv"].read_text())))
    assert [float(row["step_time_s"]) for row in rows] == [point["step_time_s"] for point in record["points"]]
    assert names["svg"].read_text().startswith("<svg ")
    assert names["png"].read_bytes().startswith(b"\x89PNG")
    assert "shardplan" in names["html"].read_text()[:2000]
    again = run("scale", *ARGUMENTS, "--gpus", "8,16,32", *flags)
    assert again.exit_code == 0, again.output  # files of ours are replaced


def test_the_terminal_answer_names_the_rule() -> None:
    shown = run("scale", *ARGUMENTS, "--gpus", "8..16")
    assert shown.exit_code == 0
    assert "each added accelerator brings" in " ".join(shown.stdout.split())

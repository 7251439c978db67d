"""Decisions say which of their plans no measured run is like."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.commands import run, unwrapped

QUESTION = (
    "llama-3.2-1b", "--global-batch-size", "64", "--sequence-length", "2048", "--limit", "pp=1", "--limit", "cp=1",
    "--limit", "sharding=zero1",
)  # fmt: skip
AT_ALL_SIZES = "Outside the measured runs at all sizes"


@pytest.mark.parametrize(("command", "more"), [("scale", ()), ("pareto", ("--price", "2"))])
def test_sizes(command: str, more: tuple[str, ...]) -> None:
    unmeasured = run(command, *QUESTION, "--cluster", "gaudi3", "--gpus", "8..16", *more)
    assert AT_ALL_SIZES in unwrapped(unmeasured.output)
    assert AT_ALL_SIZES not in unwrapped(
        run(command, *QUESTION, "--cluster", "dgx-h100", "--gpus", "8..16", *more).output
    )


def test_a_plan_after_a_change(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    assert run("plan", *QUESTION, "--cluster", "dgx-h100", "--gpus", "8", "--json", plan).exit_code == 0
    changed = run("whatif", plan, "--change", "cluster=hgx-mi300x", "--limit", "pp=1")
    assert "no measured run covers AMD Instinct MI300X" in unwrapped(changed.output)

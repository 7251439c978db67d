"""Names of accelerators and models that can mean one thing only are taken, and said; others are asked about."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.calibrate.rows import asked, run

from shardplan.calibrate.predict import ask_all
from shardplan.physics.frameworks.stack import list_stacks, load_stack


def test_what_is_taken_is_said(tmp_path: Path) -> None:
    one = asked(tmp_path, accelerator="h200", model="meta-llama/Llama-3.1-8B")
    plain = asked(tmp_path, accelerator="h200-sxm-141gb", model="llama-3.1-8b")
    assert (one.question, one.plan) == (plain.question, plain.plan)
    assert one.taken == (
        "model meta-llama/Llama-3.1-8B is taken as llama-3.1-8b",
        "accelerator h200 is taken as h200-sxm-141gb (the usual one; not h200-nvl-141gb)",
    )  # fmt: skip
    assert set(one.taken) <= set(one.assumed)
    assert (one.run.accelerator, plain.taken) == ("h200-sxm-141gb", ())


def test_several_candidates_are_not_chosen_among(tmp_path: Path) -> None:
    _, skipped = ask_all([run(tmp_path, accelerator="a100")])
    assert "a100-sxm-40gb, a100-sxm-80gb" in skipped[0].reason


@pytest.mark.parametrize("name", ["x" * 4000, "a/" + "x" * 3000])
def test_names_too_long_for_a_path(tmp_path: Path, name: str) -> None:
    _, skipped = ask_all([run(tmp_path, model=name), run(tmp_path, accelerator=name)])
    assert len(skipped) == 2


def test_an_alias_stands_for_one_framework() -> None:
    stacks = [load_stack(name) for name in list_stacks()]
    aliases = [alias for stack in stacks for alias in stack.aliases]
    assert len(aliases) == len(set(aliases))
    assert set(aliases) & {name for stack in stacks for name in stack.frameworks} == set()

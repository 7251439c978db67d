"""Flags that are given twice."""

from __future__ import annotations

import pytest
from tests.cli.commands import FEW, SMALL, refused, run


@pytest.mark.parametrize(
    ("repeated", "given"),
    [
        (("--cluster", "gb200-nvl72"), "--cluster is given 2 times: dgx-h100, gb200-nvl72"),
        (("--cluster=gb200-nvl72",), "--cluster is given 2 times: dgx-h100, gb200-nvl72"),
        (("--num-accelerators", "16"), "--gpus is given 2 times: 8, 16"),
        (("--top", "3", "--top", "4", "--top", "5"), "--top is given 3 times: 3, 4, 5"),
        (("--dropout", "--no-dropout"), "--dropout is given 2 times: --dropout, --no-dropout"),
    ],
)
def test_a_flag_of_one_value_is_given_once(repeated: tuple[str, ...], given: str) -> None:
    assert given in refused("plan", *SMALL, *repeated, columns=200)


def test_a_command_of_a_group_refuses_it_too() -> None:
    assert "--json is given 2 times" in refused("published", "subramanian2024", "--json", "a", "--json", "b")


def test_flags_that_may_be_repeated_are_and_switches_may_be() -> None:
    result = run("plan", *SMALL, *FEW, "--fix", "tp=1", "--fix", "micro_batch_size=1", "--explain", "--explain")
    assert result.exit_code == 0


def test_a_value_that_looks_like_the_flag_is_no_repetition() -> None:
    result = run("plan", *SMALL, *FEW, "--stack", "any", "--json", "-", "--help")
    assert result.exit_code == 0

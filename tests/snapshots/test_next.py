"""What an answer offers to type next works as it stands."""

from __future__ import annotations

import re
import shlex

import pytest
from tests.cli.commands import run
from tests.snapshots.commands import COMMANDS, ROOT, path_of

OFFERED = re.compile(r"^  (shardplan (?!accelerators NAME|profiles NAME).*)$", re.MULTILINE)
"""Lines to copy; those with a NAME say which command shows one of a list."""
ANSWERS = {
    line: name
    for name in COMMANDS
    if not name.endswith("help")
    for line in OFFERED.findall(path_of(name, 80).read_text(encoding="utf-8"))
}


def test_answers_offer_commands() -> None:
    assert {"plan", "estimate", "plan-frameworks"} <= {*ANSWERS.values()}


@pytest.mark.parametrize("line", ANSWERS)
def test_what_is_offered_works_as_it_stands(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    result = run(*shlex.split(line)[1:])
    assert result.exit_code in (0, 1), result.output  # 1: the plan that was looked at does not fit

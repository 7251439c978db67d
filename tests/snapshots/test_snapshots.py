"""Answers read as they did when somebody last looked at them."""

from __future__ import annotations

import pytest
from tests.snapshots.commands import COMMANDS, FOLDER, ROOT, WIDTHS, path_of, shown


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("name", COMMANDS)
def test_an_answer_is_what_it_was(name: str, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    expected = path_of(name, columns).read_text(encoding="utf-8")
    assert shown(name, columns) == expected, "look at it, then run python -m tests.snapshots.write"


def test_no_snapshot_is_left_over() -> None:
    kept = {path.name for path in (FOLDER / "answers").iterdir()}
    assert kept == {path_of(name, columns).name for name in COMMANDS for columns in WIDTHS}

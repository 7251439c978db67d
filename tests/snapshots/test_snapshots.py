"""Answers read as they did when somebody last looked at them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.snapshots.commands import COMMANDS, FOLDER, ROOT, WIDTHS, path_of, shown
from tests.snapshots.freeze import commands_of, freeze, pages


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("name", COMMANDS)
def test_an_answer_is_what_it_was(name: str, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    expected = path_of(name, columns).read_text(encoding="utf-8")
    assert shown(name, columns) == expected, "look at it, then run python -m tests.snapshots.write"


def test_no_snapshot_is_left_over() -> None:
    kept = {path.name for path in (FOLDER / "answers").iterdir()}
    assert kept == {path_of(name, columns).name for name in COMMANDS for columns in WIDTHS}


def test_all_that_a_page_shows_is_frozen(tmp_path: Path) -> None:
    """Each command at three widths, with its JSON; nothing that does not end or that writes our own data."""
    page = ROOT / "docs" / "howto" / "read-the-answer.md"
    freeze(tmp_path, [page])
    place = tmp_path / "docs" / "howto" / "read-the-answer"
    commands = commands_of(page)
    assert len(commands) == len([*place.glob("*-80.txt")]) == len([*place.glob("*-60.txt")]) > 0
    assert (place / "00-80.txt").read_text(encoding="utf-8").startswith(f"{commands[0]}\nexit 0\n")
    every = [line for each in pages() for line in commands_of(each)]
    assert len(every) > 100
    assert not any(word in line.split() for line in every for word in ("serve", "--defaults", "--microbench"))

"""Files are written as a whole, and numbers stand as JSON has them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardplan.cli.json_target import JsonTarget, json_text, target_of
from shardplan.errors import InputError

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda parts: st.lists(parts, max_size=40) | st.dictionaries(st.text(max_size=20), parts, max_size=6),
    max_leaves=30,
)


@given(VALUES)
def test_what_is_written_is_json(value: object) -> None:
    assert json.loads(json_text(value)) == value


def test_long_lists_of_numbers_stay_short() -> None:
    text = json_text({"layer_pattern": [0] * 400, "name": "x"})
    assert max(map(len, text.splitlines())) <= 114
    assert len(text.splitlines()) < 20


def test_a_file_is_replaced_with_its_rights(tmp_path: Path) -> None:
    path = tmp_path / "answer.json"
    path.write_text("before")
    path.chmod(0o640)
    link = tmp_path / "link.json"
    link.symlink_to(path)
    target = JsonTarget(str(link))
    target.check()
    assert path.read_text() == "before"
    target.write({"a": 1})
    assert json.loads(path.read_text()) == {"a": 1}
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o640
    assert sorted(each.name for each in tmp_path.iterdir()) == ["answer.json", "link.json"]


def test_a_failure_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "answer.json"
    path.write_text("before")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(InputError, match="No space left"):
        JsonTarget(str(path)).write({"a": 1})
    monkeypatch.undo()
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_devices_are_written_to_and_not_replaced() -> None:
    target = JsonTarget("/dev/null")
    target.check()
    target.write({"a": 1})
    assert Path("/dev/null").is_char_device()


def test_nothing_is_written_where_nothing_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    target = JsonTarget(None)
    target.check()
    target.write({"a": 1})
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        (["plan", "--json", "a.json"], "a.json"),
        (["plan", "--json=a.json", "--gpus"], "a.json"),
        (["plan", "--json", "a", "--json", "b"], "b"),
        (["plan", "--json", "-"], "-"),
        (["plan", "--json"], None),
        (["plan", "--json="], None),
        (["plan"], None),
        (["validate", "runs.csv", "--json", "./runs.csv"], None),
        (["calibrate", "--out=a.yaml", "--json", "a.yaml"], None),
    ],
)
def test_the_target_is_found_on_a_line_that_cannot_be_parsed(arguments: list[str], where: str | None) -> None:
    assert target_of(arguments).where == where


def test_what_is_read_is_not_written_over(tmp_path: Path) -> None:
    read = tmp_path / "runs.csv"
    read.write_text("id\n", encoding="utf-8")
    for name in (str(read), str(tmp_path / "." / "runs.csv")):
        with pytest.raises(InputError, match="reads or writes already"):
            JsonTarget(name).check("llama-3.1-8b", None, read)
    JsonTarget(str(tmp_path / "other.json")).check(read)
    JsonTarget(str(tmp_path / "llama-3.1-8b")).check("llama-3.1-8b")  # a name, and no file


def test_two_results_do_not_share_a_file(tmp_path: Path) -> None:
    one = JsonTarget(str(tmp_path / "one"), "--html")
    with pytest.raises(InputError, match="--html"):
        one.check(other=JsonTarget(str(tmp_path / "one")))
    one.check(other=JsonTarget("-"))
    JsonTarget("/dev/null").check(other=JsonTarget("/dev/null"))

"""Files are written as a whole, and numbers stand as JSON has them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardplan.base.errors import InputError
from shardplan.base.files import forget_reads, read_document
from shardplan.base.outputs import (
    CSV,
    HTML,
    JSON,
    PNG,
    PROFILE,
    SEARCHED,
    TIMINGS,
    TRACE,
    JsonTarget,
    json_text,
    wants_json,
)

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda parts: st.lists(parts, max_size=40) | st.dictionaries(st.text(max_size=20), parts, max_size=6),
    max_leaves=30,
)
ANSWER = '{"schema": "shardplan/models/1"}'
"""What a file of ours holds."""


@given(VALUES)
def test_what_is_written_is_json(value: object) -> None:
    assert json.loads(json_text(value)) == value


def test_long_lists_of_numbers_stay_short() -> None:
    text = json_text({"layer_pattern": [0] * 400, "name": "x"})
    assert max(map(len, text.splitlines())) <= 114
    assert len(text.splitlines()) < 20


def test_a_file_is_replaced_with_its_rights(tmp_path: Path) -> None:
    path = tmp_path / "answer.json"
    path.write_text(ANSWER)
    path.chmod(0o640)
    link = tmp_path / "link.json"
    link.symlink_to(path)
    target = JsonTarget(str(link))
    target.check()
    assert path.read_text() == ANSWER
    target.write({"a": 1})
    assert json.loads(path.read_text()) == {"a": 1}
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o640
    assert sorted(each.name for each in tmp_path.iterdir()) == ["answer.json", "link.json"]


def test_a_failure_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "answer.json"
    path.write_text(ANSWER)

    opened = Path.open

    def full(file: Path, mode: str = "r", *rest: Any, **more: Any) -> Any:
        if mode == "wb":
            file.touch()
            raise OSError(28, "No space left on device")
        return opened(file, mode, *rest, **more)

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(InputError, match="No space left"):
        JsonTarget(str(path)).write({"a": 1})
    monkeypatch.undo()
    assert path.read_text() == ANSWER
    assert list(tmp_path.iterdir()) == [path]


def test_a_text_that_breaks_off_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "step.json"
    target = JsonTarget(str(path), "--out", kind=TRACE)
    target.write_parts(iter(('{"schema": "shardplan/trace/1", ', '"traceEvents": []}')))
    before = path.read_text()

    def parts() -> Iterator[str]:
        yield '{"schema"'
        raise MemoryError

    with pytest.raises(MemoryError):
        target.write_parts(parts())
    assert path.read_text() == before
    assert [each.name for each in tmp_path.iterdir()] == ["step.json"]


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
    ("arguments", "is_asked_for"),
    [
        (["plan", "--json", "a.json"], False),
        (["plan", "--json=-", "--gpus"], True),
        (["plan", "--json", "a", "--json", "-"], True),
        (["plan", "--json", "-", "--json", "b"], False),
        (["plan", "--json", "-"], True),
        (["plan", "--json"], False),
        (["plan", "--json="], False),
        (["plan"], False),
    ],
)
def test_json_is_asked_for_on_a_line_that_cannot_be_parsed(arguments: list[str], *, is_asked_for: bool) -> None:
    assert wants_json(arguments) == is_asked_for


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
    with pytest.raises(InputError, match="html"):
        one.check(other=JsonTarget(str(tmp_path / "one")))
    one.check(other=JsonTarget("-"))
    JsonTarget("/dev/null").check(other=JsonTarget("/dev/null"))


def test_a_file_of_another_kind_is_replaced_by_force_alone(tmp_path: Path) -> None:
    for kind, own in OWN.items():
        path = tmp_path / "x"
        for content in (own, b""):
            path.write_bytes(content)
            JsonTarget(str(path), kind=kind).check()
            JsonTarget(str(path), kind=kind).write_bytes(NEW[kind])
            assert path.read_bytes() == NEW[kind]
        for other in (b"notes", b"{}x", b"a,b\n1,2\n", *(each for each in OWN.values() if each != own)):
            path.write_bytes(other)
            with pytest.raises(InputError, match="which exists and is not"):
                JsonTarget(str(path), kind=kind).write_bytes(NEW[kind])
            assert path.read_bytes() == other
        JsonTarget(str(path), kind=kind, is_forced=True).write_bytes(NEW[kind])
        assert path.read_bytes() == NEW[kind]


OWN = {
    JSON: b'{"schema": "shardplan/model/1",\n',
    PROFILE: b"# Constants of h100, fitted to 3 runs.\n",
    TIMINGS: b'{\n  "format": "shardplan microbenchmark 1",\n',
    HTML: b'<html><head><meta name="generator" content="shardplan">',
    PNG: b"\x89PNG\r\n\x1a\n----tEXtSoftware\0shardplan",
    CSV: b"first,second\nx,y\n",
    SEARCHED: b'{\n    "1, 2, 4": "12.3456ms/iter"',
}
NEW = {kind: b"first,second\n" if kind is CSV else b"new" for kind in OWN}


def test_an_error_of_an_earlier_version_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(json_text(InputError("wrong", rule="right").to_record()))
    JsonTarget(str(path)).check()


@pytest.mark.parametrize("link", ["symlink_to", "hardlink_to"])
def test_a_link_to_a_file_that_was_read_is_that_file(link: str, tmp_path: Path) -> None:
    read, name = tmp_path / "read.json", tmp_path / "name.json"
    read.write_text(ANSWER)
    getattr(name, link)(read)
    with pytest.raises(InputError, match="reads or writes already"):
        JsonTarget(str(name)).check(read)
    forget_reads()
    JsonTarget(str(name)).check_content(b"")
    read_document(read)
    with pytest.raises(InputError, match="reads or writes already"):
        JsonTarget(str(name), is_forced=True).write({})
    forget_reads()
    assert read.read_text() == ANSWER


def test_a_long_number_stays_whole() -> None:
    values = [10**200, -(10**120)] * 4
    assert json.loads(json_text(values)) == values


def test_what_a_terminal_acts_on_is_escaped() -> None:
    text = "\x1b[31m\x9b31m\u2028\ud800"
    assert json_text(text).isascii()
    assert json.loads(json_text(text)) == text

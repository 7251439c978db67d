"""The one reader of files: what it refuses, and the JSON that is built of the package's YAML."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from shardplan.base import files
from shardplan.base.errors import InputError
from shardplan.base.files import (
    FileKind,
    build,
    built_sources,
    csv_rows,
    parse_document,
    read_document,
    read_pieces,
    read_text,
    shipped_document,
)

SMALL = FileKind("the note", 10, "a note is short")


def test_built_files_hold_what_their_sources_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "BUILT", tmp_path)
    sources = built_sources()
    without = [shipped_document(source) for source in sources]
    assert len(build()) == len(sources)
    assert [shipped_document(source) for source in sources] == without
    assert build() == []


def test_a_changed_source_is_read_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "DATA", tmp_path)
    monkeypatch.setattr(files, "BUILT", tmp_path / "built")
    source = tmp_path / "parts.yaml"
    source.write_text("a: 1\n", encoding="utf-8")
    (made,) = build()
    content = json.loads(made.read_text(encoding="utf-8"))
    made.write_text(json.dumps({**content, "document": {"a": 2}}), encoding="utf-8")
    assert shipped_document(source) == {"a": 2}
    source.write_text("a: 3\n", encoding="utf-8")
    assert shipped_document(source) == {"a": 3}
    source.unlink()
    assert build() == [made]
    assert not made.exists()


def test_a_file_in_pieces_is_the_file(tmp_path: Path) -> None:
    text = "é, ü and 1234567890 " * 300_000  # characters of two bytes, and more than one piece
    kind = FileKind("the note", 10_000_000, "a note is short")
    (tmp_path / "plain").write_text(text, encoding="utf-8-sig")
    (tmp_path / "packed").write_bytes(gzip.compress(text.encode(), compresslevel=1))
    for name in ("plain", "packed"):
        pieces = list(read_pieces(tmp_path / name, kind))
        assert len(pieces) > 1
        assert "".join(pieces) == text


def test_what_is_packed_is_not_read_without_end(tmp_path: Path) -> None:
    path = tmp_path / "packed"
    path.write_bytes(gzip.compress(bytes(100_000)))
    with pytest.raises(InputError, match="more than 1,000 bytes when it is decompressed"):
        list(read_pieces(path, FileKind("the note", 1000, "a note is short")))


def test_a_csv_has_lines_of_every_kind() -> None:
    assert csv_rows("a,b\r\n1,2\r3,4\n", "table", SMALL) == [["a", "b"], ["1", "2"], ["3", "4"]]
    with pytest.raises(InputError, match="table is not CSV: field larger than field limit"):
        csv_rows("x" * 200_000, "table", SMALL)


def test_what_cannot_be_read_is_refused_in_one_voice(tmp_path: Path) -> None:
    (tmp_path / "long").write_text("12345678901", encoding="utf-8")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\xfd")
    for name, why in (
        ("missing", "it does not exist"),
        (".", "it is a directory"),
        ("long", "it has 11 bytes, more than 10"),
        ("binary", "it is not text in UTF-8"),
        ("null\0", "no null characters"),
    ):
        with pytest.raises(InputError, match=why) as caught:
            read_text(tmp_path / name, SMALL)
        assert str(caught.value).startswith("cannot read the note '")
        assert caught.value.rule == "a note is short"


@pytest.mark.parametrize(
    ("text", "kind", "why"),
    [
        ("", "json", "is empty"),
        ("[1]", "json", "holds a list"),
        ('{"a": 1, "a": 2}', "json", "repeats the field 'a'"),
        ("{", "json", "is not JSON"),
        ("[" * 30 + "]" * 30, "json", "nested deeper"),
        ("a: 1\na: 2\n", "yaml", "repeats the field 'a' in line 2"),
        ("a: &x 1\nb: *x\n", "yaml", "alias"),
        ("a: 1\n---\nb: 2\n", "yaml", "second document"),
        ("1: 2\n", "yaml", "not text"),
        ("a: [", "yaml", "is not YAML"),
    ],
)
def test_malformed_documents_are_refused(text: str, kind: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        parse_document(text, label="note", is_json=kind == "json")


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "note.json"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}')
    assert read_document(path) == {"a": 1}

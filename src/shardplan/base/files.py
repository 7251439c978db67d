"""Files of the package, and the one reader of untrusted files.

A user's file is refused with an InputError that names it: missing, not a regular file, too large, not text,
malformed, nested too deep, more than one document, repeated keys, YAML aliases (they can grow without bound), or not a
mapping.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import os
import re
import stat
import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, NoReturn
from zlib import crc32

from shardplan.base.errors import InputError, shown

if TYPE_CHECKING:
    import yaml


DATA: Final = Path(__file__).parents[1] / "data"
"""Accelerators, clusters, models, stacks, profiles and measured runs."""
BUILT: Final = DATA / "built"
"""The YAML files of the package as JSON, which is read ten times faster: made when the package is built or installed,
or by ``python -m shardplan.base.files``. If it is missing or of another text, the YAML is read.
"""
EXAMPLES: Final = (Path(__file__).parents[1] / "examples", Path(__file__).parents[3] / "examples")
"""Folders of the example files: in an installed package, and in the source tree."""
EXAMPLE_KINDS: Final = (".csv", ".ipynb", ".json", ".md", ".sh", ".yaml")
BUILT_FOLDERS: Final = (
    "accelerators", "checkpoints", "clusters", "dialects", "dialects/rl", "measured_runs", "profiles", "stacks", ".",
)  # fmt: skip

Document = dict[str, Any]

_MOST_DEPTH: Final = 20
_MOST_DIGITS: Final = 100
"""Most digits of a whole number: no quantity needs more, and Python prints none of more than 4,300."""
_LARGEST: Final = 10**_MOST_DIGITS
_LONGEST_NAME: Final = 300
_KINDS: Final[dict[type, str]] = {list: "a list", str: "text"}
"""Names in errors of documents that are not a mapping."""
_READ: Final[set[tuple[int, int]]] = set()
"""Device and inode of every user's file that was read, so that links to a file count as the file."""


class FileKind(NamedTuple):
    """A kind of file that users give."""

    name: str
    """Its name in errors."""
    most_bytes: int
    """Largest size that is read."""
    rule: str
    """Its rule in errors."""
    hint: str = "correct the path"
    """Hint in errors for a file that cannot be read."""

    def wrong(self, why: str, fix: str) -> InputError:
        """The error for a file that was read and is not as expected."""
        return InputError(why, rule=self.rule, hint=fix)


TABLES: Final = {
    b"PK\x03\x04": "a spreadsheet or an archive (xlsx, ods, zip)",
    b"\xd0\xcf\x11\xe0": "a spreadsheet (xls)",
    b"PAR1": "a Parquet file",
}
"""First bytes of spreadsheets, which people take for text files."""
GZIP: Final = b"\x1f\x8b"
"""First bytes of a gzip file."""
PIECE: Final = 4 * 1024 * 1024
"""Bytes of a large file that are read at a time."""
DESCRIPTION: Final = FileKind("the file", 256 * 1024, "a description is a short text file that can be read")


def read_text(path: Path, kind: FileKind = DESCRIPTION) -> str:
    """The text of a user's file. Raises InputError."""
    try:
        why = _unreadable(path, kind)
        if why is None:
            note_read(path)
            data = path.read_bytes()
            if data[:4] not in TABLES:
                return data.decode("utf-8-sig")
            why = f"it is {TABLES[data[:4]]}, not text"
    except (OSError, ValueError) as error:
        why = _fault(error)
    raise InputError(f"cannot read {kind.name} '{printable(str(path))}': {why}", rule=kind.rule, hint=kind.hint)


def read_pieces(path: Path, kind: FileKind) -> Iterator[str]:
    """The text of a user's file, one piece after another, so that a large one needs little memory.

    A gzip file is decompressed; ``kind`` also limits the decompressed size. Raises InputError, possibly after some
    pieces.
    """
    try:
        why = _unreadable(path, kind)
        if why is None:
            note_read(path)
            decoder = codecs.getincrementaldecoder("utf-8-sig")()
            with path.open("rb") as raw:
                is_packed = raw.read(2) == GZIP
                raw.seek(0)
                source = gzip.GzipFile(fileobj=raw) if is_packed else raw
                num_bytes = 0
                while data := source.read(PIECE):
                    num_bytes += len(data)
                    if num_bytes > kind.most_bytes:
                        why = f"it has more than {kind.most_bytes:,} bytes when it is decompressed"
                        break
                    yield decoder.decode(data)
                else:
                    decoder.decode(b"", final=True)
                    return
    except (OSError, ValueError, EOFError, zlib.error) as error:
        why = _fault(error)
    raise InputError(f"cannot read {kind.name} '{printable(str(path))}': {why}", rule=kind.rule, hint=kind.hint)


def _unreadable(path: Path, kind: FileKind) -> str | None:
    """Why a path is not read; None if it may be."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        return "it is a directory" if stat.S_ISDIR(found.st_mode) else "it is not a regular file"
    return f"it has {found.st_size:,} bytes, more than {kind.most_bytes:,}" if found.st_size > kind.most_bytes else None


def _fault(error: Exception) -> str:
    """What an exception while reading means to a user."""
    if isinstance(error, FileNotFoundError):
        return "it does not exist"
    if isinstance(error, gzip.BadGzipFile | EOFError | zlib.error):
        return "it is not complete, or not a gzip file"
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return "it is not text in UTF-8" if isinstance(error, UnicodeDecodeError) else "a path holds no null characters"


def note_read(path: Path) -> None:
    """Records that the command has read the file at ``path``, or knows its content."""
    found = path.stat()
    _READ.add((found.st_dev, found.st_ino))


def was_read(path: Path) -> bool:
    """Whether :func:`read_text` has read the file at ``path``, under any name."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return False
    return (found.st_dev, found.st_ino) in _READ


def forget_reads() -> None:
    """Forgets which files were read, at the start of a command."""
    _READ.clear()


def read_document(path: Path, kind: FileKind = DESCRIPTION) -> Document:
    """The mapping in the YAML or JSON file at ``path``. Raises InputError."""
    return parse_document(read_text(path, kind), label=printable(str(path)), is_json=path.suffix.lower() == ".json")


def example_files() -> dict[str, bytes]:
    """The example files by name. Raises InputError if they were not installed."""
    folder = next((each for each in EXAMPLES if each.is_dir()), None)
    if folder is None:
        raise InputError(
            "the example files are missing from this installation",
            rule="the package holds its examples",
            hint="install shardplan again",
        )
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.suffix in EXAMPLE_KINDS}


def bytes_of(path: Path) -> bytes:
    """The content of a file; empty if it cannot be read."""
    try:
        note_read(path)
        return path.read_bytes()
    except OSError:
        return b""


def has_content(path: Path, content: bytes) -> bool:
    """Whether the file at ``path`` exists and has this ``content``."""
    return path.is_file() and path.stat().st_size == len(content) and path.read_bytes() == content


def parse_document(text: str, *, label: str, is_json: bool = False) -> Document:
    """The mapping in ``text``; ``label`` names it in errors. Raises InputError."""
    if not text.strip():
        _refuse(label, "is empty", "a file has content")
    document = parse_json(text, label) if is_json else _load_yaml(text, label)
    if not isinstance(document, dict):
        kind = _KINDS.get(type(document), "a single value")
        _refuse(label, f"holds {kind}, not fields with values", "a file holds named fields")
    for name in document:
        if not isinstance(name, str):
            _refuse(label, f"has the field {shown(name)}, which is not text", "names of fields are text")
    return document


def csv_rows(text: str, label: str, kind: FileKind) -> list[list[str]]:
    """The cells of every line of a CSV; ``label`` names it in errors. Raises InputError."""
    try:
        return list(csv.reader(io.StringIO(text, newline=None)))
    except csv.Error as error:
        raise InputError(f"{label} is not CSV: {error}", rule=kind.rule, hint=f"correct {label}") from None


def looks_like_path(text: str) -> bool:
    """Whether a text is the path of a description rather than a name: it has a separator or a suffix."""
    return "/" in text or os.sep in text or text.lower().endswith((".yaml", ".yml", ".json"))


def printable(text: str) -> str:
    """A path or a name without control characters, and of limited length."""
    return "".join(char if char.isprintable() else "?" for char in text[:_LONGEST_NAME])


def shipped_document(path: Path) -> Document:
    """The mapping in a YAML file of the package; read from its JSON if that was built from the same text."""
    text = path.read_bytes()
    if path.is_relative_to(DATA) and (built := _built_path(path)).exists():
        found: Document = json.loads(built.read_bytes())
        if found["crc32"] == crc32(text):
            return dict(found["document"])
    return _from_yaml(text.decode("utf-8"))


def shipped_text(path: Path) -> str:
    """A text file of the package."""
    return path.read_text(encoding="utf-8")


def build() -> list[Path]:
    """Writes the JSON of every YAML file that estimates read, removes other JSON, and returns what has changed."""
    made = {_built_path(source): _built(source) for source in built_sources()}
    gone = [path for path in BUILT.rglob("*.json") if path not in made]
    changed = [path for path, content in made.items() if not has_content(path, content)]
    for path in gone:
        path.unlink()
    for path in changed:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_suffix(f".{os.getpid()}.tmp")
        beside.write_bytes(made[path])
        beside.replace(path)  # atomic: another process reads the old or the new file
    return [*changed, *gone]


def _built(source: Path) -> bytes:
    text = source.read_bytes()
    made = {"crc32": crc32(text), "document": _from_yaml(text.decode("utf-8"))}
    return f"{json.dumps(made, ensure_ascii=False, separators=(',', ':'))}\n".encode()


def built_sources() -> list[Path]:
    """The YAML files from which JSON is built."""
    return sorted(path for folder in BUILT_FOLDERS for path in (DATA / folder).glob("*.yaml"))


def _built_path(source: Path) -> Path:
    return BUILT / source.relative_to(DATA).with_suffix(".json")


def _from_yaml(text: str) -> Document:
    document: Document = _loader()(text).get_single_data()
    return document


def parse_json(text: str, label: str) -> object:
    """The content of a JSON text; ``label`` names it in errors. Raises InputError."""

    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        seen: dict[str, object] = {}
        for name, value in pairs:
            if name in seen:
                _refuse(label, f"repeats the field '{printable(name)}'", "every field is given once")
            seen[name] = value
        return seen

    try:
        document: object = json.loads(text, object_pairs_hook=unique)
    except InputError:
        raise
    except RecursionError:
        _refuse(label, f"is nested deeper than {_MOST_DEPTH} levels", "a description is shallow")
    except json.JSONDecodeError as error:
        _refuse(label, f"is not JSON: {error.msg} in line {error.lineno}, column {error.colno}", "the file is JSON")
    except ValueError:
        _refuse_digits(label)
    _check_values(document, label)
    return document


def _check_values(document: object, label: str) -> None:
    """Refuses deep nesting, and values that cannot be computed with or shown. Raises InputError."""
    level, depth = [document], 0
    while level:
        depth += 1
        if depth > _MOST_DEPTH:
            _refuse(label, f"is nested deeper than {_MOST_DEPTH} levels", "a description is shallow")
        for value in level:
            if isinstance(value, int) and abs(value) >= _LARGEST:
                _refuse_digits(label)
            if isinstance(value, str) and _HALF.search(value):
                _refuse(label, f"holds half of a character, in {shown(value)}", "text is in UTF-8")
        parts = (
            (*part, *part.values()) if isinstance(part, dict) else part
            for part in level
            if isinstance(part, dict | list)
        )
        level = [inner for part in parts for inner in part]


def _refuse_digits(label: str) -> NoReturn:
    _refuse(
        label, f"holds a whole number of more than {_MOST_DIGITS} digits", "numbers have a size that is computed with"
    )


_HALF: Final = re.compile("[\\ud800-\\udfff]")
"""Half of a surrogate pair, which no text in UTF-8 has."""


def _load_yaml(text: str, label: str) -> object:
    import yaml

    try:
        _refuse_harmful_yaml(text, label)
        document = _loader()(text).get_single_data()
    except yaml.YAMLError as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None) or "unreadable"
        where = f" in line {mark.line + 1}" if mark is not None else ""
        _refuse(label, f"is not YAML: {problem}{where}", "the file is well formed")
    except InputError:
        raise
    except (ValueError, TypeError, ArithmeticError, LookupError, AttributeError, RecursionError) as error:
        _refuse(label, f"holds a value that cannot be read: {str(error).partition(';')[0]}", "the file is well formed")
    _check_values(document, label)
    return document


def _refuse_harmful_yaml(text: str, label: str) -> None:
    """Refuses YAML that would be harmful or lose data: aliases, depth, repeated keys, several documents."""
    import yaml

    num_documents, open_keys = 0, list[_Keys]()
    for event in yaml.parse(text, Loader=_loader()):
        line = event.start_mark.line + 1 if event.start_mark is not None else 0
        if isinstance(event, yaml.AliasEvent):
            _refuse(label, f"uses a YAML alias in line {line}", "values are written out", "repeat the value instead")
        num_documents += isinstance(event, yaml.DocumentStartEvent)
        if num_documents > 1:
            _refuse(label, f"starts a second document in line {line}", "a file holds one description")
        if isinstance(event, yaml.CollectionEndEvent):
            open_keys.pop()
        elif isinstance(event, yaml.NodeEvent):
            name = event.value if isinstance(event, yaml.ScalarEvent) else None
            tag = getattr(event, "tag", None)
            if tag is not None:
                _refuse(label, f"uses the YAML tag {shown(tag)} in line {line}", "values are written without tags")
            if open_keys and open_keys[-1].repeats(name):
                _refuse(label, f"repeats the field '{name}' in line {line}", "every field is given once")
            if isinstance(event, yaml.CollectionStartEvent):
                open_keys.append(_Keys(is_mapping=isinstance(event, yaml.MappingStartEvent)))
            if len(open_keys) > _MOST_DEPTH:
                _refuse(label, f"is nested deeper than {_MOST_DEPTH} levels in line {line}", "a description is shallow")


class _Keys:
    """Keys so far in one open mapping; a sequence has none."""

    def __init__(self, *, is_mapping: bool) -> None:
        self._is_mapping, self._expects_key, self._seen = is_mapping, True, set[str]()

    def repeats(self, name: str | None) -> bool:
        """Whether the next node repeats a key; ``name`` is None for a key that is no scalar."""
        is_key, self._expects_key = self._is_mapping and self._expects_key, not self._expects_key
        if not is_key or name is None:
            return False
        known = name in self._seen
        self._seen.add(name)
        return known


@cache
def _loader() -> type[yaml.CSafeLoader | yaml.SafeLoader]:
    """The fast loader if the C library is present; dates stay text."""
    import yaml

    class Loader(yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader):  # type: ignore[misc]  # either base
        yaml_implicit_resolvers: ClassVar = {
            first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
            for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

    return Loader


def _refuse(label: str, why: str, rule: str, hint: str = "") -> NoReturn:
    raise InputError(f"{label} {why:.{_LONGEST_NAME}}", rule=rule, hint=hint or f"correct {label}")


if __name__ == "__main__":
    build()

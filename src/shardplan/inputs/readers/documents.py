"""Read one YAML or JSON document from a file that nobody vouches for.

Refused with an InputError that names the file: what is missing, no regular file, too large, not text, malformed,
nested too deep, more than one document, repeated keys, YAML aliases (they can grow without bound), or not a mapping.
"""

from __future__ import annotations

import json
import stat
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn

from shardplan.errors import InputError

if TYPE_CHECKING:
    import yaml


Document = dict[str, Any]

_MOST_BYTES: Final = 256 * 1024
_MOST_DEPTH: Final = 20


def read_document(path: Path) -> Document:
    """The mapping that the YAML or JSON file at ``path`` holds. Raises InputError."""
    return parse_document(_read_text(path), label=str(path), is_json=path.suffix.lower() == ".json")


def parse_document(text: str, *, label: str, is_json: bool = False, is_trusted: bool = False) -> Document:
    """The mapping that ``text`` holds; ``label`` names it in errors. A trusted text is not scanned before reading."""
    if not text.strip():
        _refuse(label, "is empty", "a file has content")
    document = _load_json(text, label) if is_json else _load_yaml(text, label, is_trusted=is_trusted)
    if not isinstance(document, dict):
        _refuse(label, f"holds a {type(document).__name__}, not fields with values", "a file holds named fields")
    for name in document:
        if not isinstance(name, str):
            _refuse(label, f"has the field {name!r}, which is not text", "names of fields are text")
    return document


def _read_text(path: Path) -> str:
    label = str(path)
    try:
        found = path.stat()
        if stat.S_ISDIR(found.st_mode):
            _refuse(label, "is a directory", "the path leads to a file")
        if not stat.S_ISREG(found.st_mode):
            _refuse(label, "is not a regular file", "the path leads to a file")
        if found.st_size > _MOST_BYTES:
            _refuse(label, f"has {found.st_size:,} bytes, more than {_MOST_BYTES:,}", "a description is a short text")
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        _refuse(label, "does not exist", "the file exists")
    except OSError as error:
        _refuse(label, f"cannot be read: {error.strerror or error}", "the file can be read")
    except UnicodeDecodeError:
        _refuse(label, "is not text in UTF-8", "a description is a text file")
    except InputError:
        raise
    except ValueError as error:  # a path with a null character
        _refuse(repr(label), f"is not a path: {error}", "the path leads to a file")


def _load_json(text: str, label: str) -> object:
    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        seen: dict[str, object] = {}
        for name, value in pairs:
            if name in seen:
                _refuse(label, f"repeats the field '{name}'", "every field is given once")
            seen[name] = value
        return seen

    try:
        document: object = json.loads(text, object_pairs_hook=unique)
    except InputError:
        raise
    except RecursionError:
        _refuse(label, f"is nested deeper than {_MOST_DEPTH} levels", "a description is shallow")
    except ValueError as error:
        _refuse(label, f"is not JSON: {error}", "the file is well formed")
    _check_depth(document, label)
    return document


def _check_depth(document: object, label: str) -> None:
    level, depth = [document], 0
    while level:
        depth += 1
        if depth > _MOST_DEPTH:
            _refuse(label, f"is nested deeper than {_MOST_DEPTH} levels", "a description is shallow")
        parts = (part.values() if isinstance(part, dict) else part for part in level if isinstance(part, dict | list))
        level = [inner for part in parts for inner in part]


def _load_yaml(text: str, label: str, *, is_trusted: bool) -> object:
    import yaml

    try:
        if not is_trusted:
            _scan(text, label)
        return _loader()(text).get_single_data()
    except yaml.YAMLError as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None) or "unreadable"
        where = f" in line {mark.line + 1}" if mark is not None else ""
        _refuse(label, f"is not YAML: {problem}{where}", "the file is well formed")
    except InputError:
        raise
    except (ValueError, TypeError, OverflowError, RecursionError) as error:  # an impossible date, a number too long
        _refuse(label, f"holds a value that cannot be read: {error}", "the file is well formed")


def _scan(text: str, label: str) -> None:
    """Refuse what would hurt or be lost in reading: aliases, depth, repeated keys, several documents."""
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
            if open_keys and open_keys[-1].repeats(name):
                _refuse(label, f"repeats the field '{name}' in line {line}", "every field is given once")
            if isinstance(event, yaml.CollectionStartEvent):
                open_keys.append(_Keys(is_mapping=isinstance(event, yaml.MappingStartEvent)))
            if len(open_keys) > _MOST_DEPTH:
                _refuse(label, f"is nested deeper than {_MOST_DEPTH} levels in line {line}", "a description is shallow")


class _Keys:
    """Keys met so far in one open mapping; a sequence has none."""

    def __init__(self, *, is_mapping: bool) -> None:
        self._is_mapping, self._expects_key, self._seen = is_mapping, True, set[str]()

    def repeats(self, name: str | None) -> bool:
        """Whether the next node is a key that was there before; ``name`` is None for a key that is no scalar."""
        is_key, self._expects_key = self._is_mapping and self._expects_key, not self._expects_key
        if not is_key or name is None:
            return False
        known = name in self._seen
        self._seen.add(name)
        return known


@cache
def _loader() -> type[yaml.CSafeLoader | yaml.SafeLoader]:
    """The fast loader where the C library is present; a date stays text."""
    import yaml

    class Loader(yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader):  # type: ignore[misc]  # either base
        yaml_implicit_resolvers: ClassVar = {
            first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
            for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

    return Loader


def _refuse(label: str, why: str, rule: str, hint: str = "") -> NoReturn:
    raise InputError(f"{label} {why:.300}", rule=rule, hint=hint or f"correct {label}")

"""YAML, JSON, TOML and INI files as documents."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from shardplan.base.errors import InputError
from shardplan.base.files import printable, read_text
from shardplan.launch.read.bash.text import Text
from shardplan.launch.read.facts import Document, DocumentKind
from shardplan.launch.read.includes import Includes, Interpolation, Opener
from shardplan.launch.read.places import Places
from shardplan.launch.read.trees import (
    LAUNCH_FILE,
    LONG_FILE,
    Branch,
    Budget,
    Leaf,
    Tree,
    check_length,
    document,
    refuse,
    whole_characters,
)

SUFFIXES: Final[Mapping[str, DocumentKind]] = {
    ".yaml": "yaml", ".yml": "yaml", ".json": "json", ".jsonc": "jsonc", ".toml": "toml", ".ini": "ini", ".cfg": "ini",
    ".py": "python",
}  # fmt: skip
_MARK: Final = "undecided\ue000"


def read_document(
    path: Path,
    kind: DocumentKind | None = None,
    *,
    env: Mapping[str, str] | None = None,
    places: Places | None = None,
) -> Document:
    """The document in the file at ``path``; ``kind`` goes by the suffix where it is not given.

    Files that a YAML document builds on are read where they are in its folder, or in ``places``. Raises ``InputError``.
    """
    kind = kind or SUFFIXES.get(path.suffix.lower()) or _by_text(path)
    if kind is None:
        raise InputError(
            f"the kind of {printable(str(path))} is not known from its suffix",
            rule=f"a configuration ends in one of {', '.join(SUFFIXES)}",
            hint="rename the file",
        )
    if kind == "python":
        from shardplan.launch.read.python import read_python

        return read_python(path, env=env)
    budget = Budget(printable(str(path)), LONG_FILE.most_bytes)
    text = read_text(path, LONG_FILE)
    return _document(text, kind, printable(str(path)), env or {}, budget, _opener(path, budget, places or Places()))


def _by_text(path: Path) -> DocumentKind | None:
    """The kind of a ``.conf``: JSON where it begins so, as files of DeepSpeed do."""
    if path.suffix.lower() != ".conf":
        return None
    return "json" if read_text(path, LONG_FILE).lstrip().startswith("{") else "ini"


def parse_document(text: str, kind: DocumentKind, file: str, *, env: Mapping[str, str] | None = None) -> Document:
    """The document that ``text`` holds; ``file`` names it.

    Files that it builds on are not opened. Raises ``InputError``.
    """
    if kind == "python":
        from shardplan.launch.read.python import parse_python

        return parse_python(text, file, env=env)
    return _document(
        text, kind, printable(file), env or {}, Budget(printable(file), LONG_FILE.most_bytes), lambda _: None
    )


def _document(
    text: str, kind: DocumentKind, file: str, env: Mapping[str, str], budget: Budget, open_file: Opener
) -> Document:
    check_length(text, file)
    budget.read(len(text))
    tree, notes = _read(kind, whole_characters(text), file)
    if not isinstance(tree, Branch) or tree.is_list:
        refuse(file, "holds no fields with values", "a configuration holds named fields")
    if kind == "yaml":
        includes = Includes(open_file)
        tree = Interpolation(includes.join(tree), env, budget).resolve()
        notes = [*notes, *includes.notes]
    return document(tree, kind, file, tuple(notes))


def _read(kind: str, text: str, file: str) -> tuple[Tree, list[str]]:
    """The tree of a text, and notes. A reader is imported where it is needed: that takes time. Raises InputError."""
    if kind == "yaml":
        from shardplan.launch.read.yaml_tree import yaml_tree

        return yaml_tree(text, file)
    if kind in {"json", "jsonc"}:
        from shardplan.launch.read.tables import json_tree

        return json_tree(text, file, is_loose=kind == "jsonc")
    from shardplan.launch.read.tables import ini_tree, toml_tree

    return toml_tree(text, file) if kind == "toml" else ini_tree(text, file)


def _opener(path: Path, budget: Budget, places: Places) -> Opener:
    """Opens YAML files in the folder of ``path`` and in ``places``."""

    def open_file(name: str) -> tuple[Branch, bool] | None:
        names = [name] if name.endswith((".yaml", ".yml")) else [f"{name}.yaml", f"{name}.yml"]
        for found in (places.find(each, path.parent, is_exact=True) for each in names):
            if found is None:
                continue
            try:
                text = read_text(found, LAUNCH_FILE)
            except (OSError, RuntimeError, ValueError):
                continue
            budget.read(len(text))
            tree, _ = _read("yaml", text, printable(str(found)))
            if isinstance(tree, Branch) and not tree.is_list:
                return tree, "@package _global_" in text[:200]
        return None

    return open_file


def document_of_text(text: Text, name: str) -> Document | None:
    """The document that a script writes to the file ``name``; None where the text is none.

    What the script does not decide is marked while the text is parsed: the values that it touches are undecided.
    """
    marked, needs = _marked(text)
    stripped = marked.strip()
    kind = SUFFIXES.get(Path(name).suffix.lower())
    if kind == "python" or (kind is None and stripped[:1] != "{"):
        return None
    try:
        budget = Budget(name)
        tree, notes = _read(kind or "json", marked, name)
        if not isinstance(tree, Branch) or tree.is_list:
            return None
        _unmark(tree, needs)
        if kind == "yaml":
            tree = Interpolation(tree, {}, budget).resolve()
        return document(tree, kind or "json", name, tuple(notes))
    except InputError:
        return None


def _marked(text: Text) -> tuple[str, dict[str, tuple[str, ...]]]:
    needs: dict[str, tuple[str, ...]] = {}
    made = ""
    for piece in text.pieces:
        if piece.undecided is None:
            made += piece.text
            continue
        mark = f"{_MARK}{len(needs)}\ue001"
        needs[mark] = piece.undecided.needs
        line = made.rpartition("\n")[2].replace('\\"', "")
        made += mark if line.count('"') % 2 else f'"{mark}"'
    return made, needs


def _unmark(tree: Branch, needs: Mapping[str, tuple[str, ...]]) -> None:
    for key, item in tree.items.items():
        if isinstance(item, Branch):
            _unmark(item, needs)
        elif isinstance(item.value, str) and _MARK in item.value:
            found = [need for mark, names in needs.items() if mark in str(item.value) for need in names]
            tree.items[key] = Leaf(value=None, line=item.line, file=item.file, needs=tuple(dict.fromkeys(found)))

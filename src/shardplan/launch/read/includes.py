"""Files that a YAML configuration builds on: hydra's ``defaults``, ``extends``, ``base_config``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from shardplan.launch.read.limits import MOST_LEVELS
from shardplan.launch.read.trees import Branch, Leaf, Tree, plain

_PARENTS: Final = ("defaults", "extends", "base_config")

Opener = Callable[[str], "tuple[Branch, bool] | None"]
"""A named file as a tree, and whether its header puts it at the root; None where it is not there."""


def merged(under: Tree | None, over: Tree) -> Tree:
    """``over`` on top of ``under``, mapping by mapping."""
    if not isinstance(under, Branch) or not isinstance(over, Branch) or under.is_list or over.is_list:
        return over
    items = dict(under.items)
    for key, item in over.items.items():
        items[key] = merged(items.get(key), item)
    return Branch(line=over.line, file=over.file, items=items)


class Includes:
    """Joins a tree with the files that it builds on."""

    def __init__(self, open_file: Opener) -> None:
        self._open = open_file
        self.notes: list[str] = []

    def join(self, tree: Branch, depth: int = 0) -> Branch:
        """The tree on top of its parents."""
        key = next((name for name in _PARENTS if name in tree.items and self._is_list(tree.items[name])), None)
        if key is None or depth > MOST_LEVELS // 4:
            return tree
        own = Branch(line=tree.line, file=tree.file, items={k: v for k, v in tree.items.items() if k != key})
        entries = self._entries(tree.items[key])
        made: Tree = Branch(line=tree.line, file=tree.file)
        has_self = "_self_" in (name for _, name in entries)
        for group, name in entries:
            if name == "_self_":
                made = merged(made, own)
            elif (found := self._parent(group, name, tree.items[key].line, depth)) is not None:
                made = merged(made, found)
            elif key == "base_config":  # its name says what the file builds on, which its reader may know
                own.items[key] = tree.items[key]
        made = made if has_self else merged(made, own)
        assert isinstance(made, Branch)
        return made

    def _is_list(self, tree: Tree) -> bool:
        return (isinstance(tree, Branch) and tree.is_list) or (isinstance(tree, Leaf) and isinstance(tree.value, str))

    def _entries(self, tree: Tree) -> list[tuple[str, str]]:
        """(group, name) of each parent."""
        items = list(tree.items.values()) if isinstance(tree, Branch) else [tree]
        found: list[tuple[str, str]] = []
        for item in items:
            value = plain(item)
            if isinstance(value, str):
                found.append(("", value))
            elif isinstance(value, dict) and len(value) == 1:
                group, name = next(iter(value.items()))
                found.append((str(group).removeprefix("optional "), str(name)))
        return found

    def _parent(self, group: str, name: str, line: int, depth: int) -> Branch | None:
        if group.startswith("override ") or "@" in group or "${" in name or name == "None":
            self.notes.append(f"line {line}: the default {group}: {name} is not followed")
            return None
        path = f"{group.strip('/')}/{name}" if group else name
        opened = self._open(path)
        if opened is None:
            self.notes.append(f"line {line}: builds on {path}, which was not read; values that it sets are missing")
            return None
        tree, is_global = opened
        joined = self.join(tree, depth + 1)
        if not group or is_global:
            return joined
        for part in reversed(group.strip("/").split("/")):
            joined = Branch(line=joined.line, file=joined.file, items={part: joined})
        return joined

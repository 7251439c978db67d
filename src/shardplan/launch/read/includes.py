"""Files that a YAML configuration builds on, and ``${...}`` in its values, as hydra and omegaconf resolve them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Final

from shardplan.launch.read.facts import Scalar
from shardplan.launch.read.trees import MOST_LEVELS, Branch, Budget, Leaf, Tree, plain, undecided_leaf
from shardplan.launch.read.yaml_tree import scalar

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


_NAME: Final = re.compile(r"\s*(\.*)([A-Za-z_0-9-]*(?:(?:\.|\[)[A-Za-z_0-9-]+\]?)*)\s*")
_ENVIRONMENT: Final = re.compile(r"[A-Z][A-Z0-9_]*")
_NUMBERS: Final[Mapping[str, Callable[[float, float], float]]] = {
    "multiply": lambda a, b: a * b,
    "mul": lambda a, b: a * b,
    "add": lambda a, b: a + b,
    "sum": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "sub": lambda a, b: a - b,
    "divide": lambda a, b: a / b,
    "div": lambda a, b: a / b,
    "floor_div": lambda a, b: a // b,
    "ceil_div": lambda a, b: math.ceil(a / b),
    "divide_floor": lambda a, b: a // b,
    "divide_ceil": lambda a, b: math.ceil(a / b),
}
"""Resolvers that the frameworks register under these names, each of two numbers."""


class Interpolation:
    """Replaces the interpolations of one tree."""

    def __init__(self, root: Branch, env: Mapping[str, str], budget: Budget) -> None:
        self._root, self._env, self._budget = root, env, budget
        self._depth = 0

    def resolve(self) -> Branch:
        """The tree with all interpolations done."""
        made = self._copy(self._root, ())
        assert isinstance(made, Branch)
        return made

    def _copy(self, tree: Tree, path: tuple[str, ...]) -> Tree:
        self._budget.spend()
        if isinstance(tree, Leaf):
            return self._leaf(tree, path)
        items = {key: self._copy(item, (*path, key)) for key, item in tree.items.items()}
        return Branch(line=tree.line, file=tree.file, items=items, is_list=tree.is_list)

    def _leaf(self, leaf: Leaf, path: tuple[str, ...]) -> Tree:
        if not isinstance(leaf.value, str) or "${" not in leaf.value:
            if leaf.value == "???":
                return undecided_leaf(leaf.line, leaf.file, f"key:{'.'.join(path)}")
            return leaf
        if self._depth > MOST_LEVELS // 2:
            return undecided_leaf(leaf.line, leaf.file, f"code:{leaf.value[:60]} refers to itself")
        self._depth += 1
        made = self._text(leaf.value, path, leaf)
        self._depth -= 1
        return made

    def _text(self, text: str, path: tuple[str, ...], at: Leaf) -> Tree:
        self._budget.spend()
        parts, position = list[Tree](), 0
        while (start := text.find("${", position)) >= 0:
            end = _end(text, start)
            if end < 0:
                return undecided_leaf(at.line, at.file, f"code:{text[:60]}")
            if start > position:
                parts.append(Leaf(value=text[position:start], line=at.line, file=at.file))
            parts.append(self._one(text[start + 2 : end - 1], path, at))
            position = end
        if position < len(text):
            parts.append(Leaf(value=text[position:], line=at.line, file=at.file))
        return parts[0] if len(parts) == 1 else self._joined(parts, at)

    def _joined(self, parts: list[Tree], at: Leaf) -> Leaf:
        leaves = [part for part in parts if isinstance(part, Leaf)]
        needs = tuple(dict.fromkeys(need for leaf in leaves for need in leaf.needs))
        if needs or len(leaves) < len(parts):
            return undecided_leaf(at.line, at.file, *(needs or ("code:a mapping in a text",)))
        text = "".join(_shown(leaf.value) for leaf in leaves)
        self._budget.write(len(text))
        assumes = tuple(dict.fromkeys(each for leaf in leaves for each in leaf.assumes))
        return Leaf(value=text, line=at.line, file=at.file, assumes=assumes)

    def _one(self, inner: str, path: tuple[str, ...], at: Leaf) -> Tree:
        """The value of ``${inner}``."""
        if (found := _NAME.fullmatch(inner)) and (found[1] or found[2]):
            return self._reference(found[1], found[2].replace("[", ".").replace("]", ""), path, at)
        name, colon, rest = inner.partition(":")
        arguments = _arguments(rest)
        name = name.strip()
        if colon and name in ("oc.env", "env"):
            return self._environment(arguments, path, at)
        if colon and name == "oc.decode" and len(arguments) == 1:
            return self._decoded(arguments[0], path, at)
        if colon and name == "oc.select" and arguments:
            return self._selected(arguments, path, at)
        if colon and name in _NUMBERS and len(arguments) == 2:
            return self._number(name, arguments, path, at)
        if colon and _ENVIRONMENT.fullmatch(name):  # Primus: ${NAME:default}
            return self._environment([name, rest.removeprefix("-")], path, at)
        return undecided_leaf(at.line, at.file, f"code:${{{inner[:80]}}}")

    def _reference(self, dots: str, name: str, path: tuple[str, ...], at: Leaf) -> Tree:
        base = path[: len(path) - len(dots)] if dots else ()
        target = (*base, *(part for part in name.split(".") if part))
        found: Tree | None = self._root
        for part in target:
            found = found.items.get(part) if isinstance(found, Branch) else None
            if isinstance(found, Leaf) and isinstance(found.value, str) and "${" in found.value and part != target[-1]:
                found = self._leaf(found, target)
        if found is None:
            if not dots and _ENVIRONMENT.fullmatch(name):
                return self._environment([name], path, at)
            return undecided_leaf(at.line, at.file, f"key:{'.'.join(target)}")
        if target == path[: len(target)]:
            return undecided_leaf(at.line, at.file, f"code:{'.'.join(target)} refers to itself")
        if isinstance(found, Branch):
            self._depth += 1
            made: Tree = (
                self._copy(found, target)
                if self._depth <= MOST_LEVELS // 2
                else undecided_leaf(at.line, at.file, f"code:{'.'.join(target)} refers to itself")
            )
            self._depth -= 1
            return made
        made = self._leaf(found, target)
        return (
            Leaf(value=made.value, line=at.line, file=at.file, needs=made.needs, assumes=made.assumes)
            if isinstance(made, Leaf)
            else made
        )

    def _environment(self, arguments: list[str], path: tuple[str, ...], at: Leaf) -> Tree:
        name = arguments[0].strip() if arguments else ""
        if name in self._env:
            return Leaf(value=scalar(self._env[name]), line=at.line, file=at.file)
        if len(arguments) < 2:
            return undecided_leaf(at.line, at.file, f"env:{name}")
        default = self._argument(",".join(arguments[1:]), path, at)
        if isinstance(default, Branch):
            return default
        assumed = (f"env:{name}={_shown(default.value)}",)
        return Leaf(value=default.value, line=at.line, file=at.file, needs=default.needs, assumes=assumed)

    def _argument(self, text: str, path: tuple[str, ...], at: Leaf) -> Tree:
        stripped = text.strip()
        if "${" in stripped:
            return self._leaf(Leaf(value=stripped, line=at.line, file=at.file), path)
        quoted = len(stripped) > 1 and stripped[0] == stripped[-1] and stripped[0] in "'\""
        value: Scalar = stripped[1:-1] if quoted else scalar(stripped)
        return Leaf(value=value, line=at.line, file=at.file)

    def _decoded(self, text: str, path: tuple[str, ...], at: Leaf) -> Tree:
        found = self._argument(text, path, at)
        if isinstance(found, Leaf) and isinstance(found.value, str):
            found.value = scalar(found.value)
        return found

    def _selected(self, arguments: list[str], path: tuple[str, ...], at: Leaf) -> Tree:
        found = self._reference("", arguments[0].strip(), path, at)
        if isinstance(found, Leaf) and found.needs and len(arguments) > 1:
            return self._argument(arguments[1], path, at)
        return found

    def _number(self, name: str, arguments: list[str], path: tuple[str, ...], at: Leaf) -> Tree:
        found = [self._argument(argument, path, at) for argument in arguments]
        leaves = [leaf for leaf in found if isinstance(leaf, Leaf)]
        values = [leaf.value for leaf in leaves if isinstance(leaf.value, int | float)]
        if len(values) < 2:
            needs = tuple(need for leaf in leaves for need in leaf.needs) or (f"code:{name}",)
            return undecided_leaf(at.line, at.file, *needs)
        try:
            made = _NUMBERS[name](values[0], values[1])
        except ArithmeticError:
            return undecided_leaf(at.line, at.file, f"code:{name}")
        if isinstance(made, int) and abs(made) > 10**30:
            return undecided_leaf(at.line, at.file, f"code:{name}")
        return Leaf(value=made, line=at.line, file=at.file, assumes=tuple(a for leaf in leaves for a in leaf.assumes))


def _end(text: str, start: int) -> int:
    level = 0
    for position in range(start, min(len(text), start + 10_000)):
        level += (text[position] == "{") - (text[position] == "}")
        if level == 0 and text[position] == "}":
            return position + 1
    return -1


def _arguments(text: str) -> list[str]:
    found, level, start = list[str](), 0, 0
    for position, char in enumerate(text):
        level += (char in "{[(") - (char in "}])")
        if char == "," and level == 0:
            found.append(text[start:position])
            start = position + 1
    return [*found, text[start:]] if text else []


def _shown(value: Scalar) -> str:
    return (
        {None: "null", True: "true", False: "false"}[value] if value is None or isinstance(value, bool) else str(value)
    )

"""YAML text as a tree with lines, built event by event: no object is constructed, aliases are bounded."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Final

from shardplan.base.errors import shortened
from shardplan.launch.read.facts import Scalar
from shardplan.launch.read.trees import MOST_LEVELS, MOST_NODES, Branch, Leaf, Tree, refuse, size, undecided_leaf

if TYPE_CHECKING:
    import yaml

_EXPONENT: Final = re.compile(r"[-+]?(?:\d[\d_]*)(?:\.\d*)?[eE][-+]?\d+|[-+]?\.\d+[eE][-+]?\d+")
_KNOWN: Final = frozenset(f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "map", "seq"))
_MOST_NUMBER: Final = 100


class _Builder:
    """Puts events together to a tree."""

    def __init__(self, file: str) -> None:
        self.file, self.notes = file, list[str]()
        self.root: Tree | None = None
        self._open: list[tuple[Branch, str | None, list[str | None], bool]] = []
        self._anchors: dict[str, Tree] = {}
        self._nodes = 0
        self._merged: set[tuple[int, str]] = set()
        """Keys that a merge key brought in; the mapping's own take their place."""

    def count(self, number: int) -> None:
        """Counts nodes. Raises ``InputError`` where there are too many."""
        self._nodes += number
        if self._nodes > MOST_NODES:
            refuse(
                self.file, f"holds more than {MOST_NODES:,} values with those that aliases repeat", "a file is short"
            )

    def add(self, item: Tree, key: str | None) -> None:
        """Puts a node at its place; ``key`` is its text where it can be a key."""
        if not self._open:
            self.root = item
            return
        branch, _, pending, _ = self._open[-1]
        if branch.is_list:
            branch.items[str(len(branch.items))] = item
        elif not pending:
            pending.append(key)
            if key is None:
                self.notes.append(f"line {item.line}: a key that is not text is left out")
        else:
            name = pending.pop()
            if name == "<<":
                self._merge(branch, item)
            elif name is not None:
                if name in branch.items and (id(branch), name) not in self._merged:
                    self.notes.append(f"line {item.line}: repeats the key {shortened(name, 60)}; the last one counts")
                branch.items.pop(name, None)
                branch.items[name] = item

    def _merge(self, branch: Branch, item: Tree) -> None:
        sources = list(item.items.values()) if isinstance(item, Branch) and item.is_list else [item]
        for source in sources:
            if isinstance(source, Branch):
                self.count(size(source))
                self._merged.update((id(branch), name) for name in source.items if name not in branch.items)
                branch.items = {**source.items, **branch.items}

    def start(self, branch: Branch, anchor: str | None, *, is_flow: bool = False) -> None:
        """Opens a mapping or a sequence; ``is_flow`` where it has brackets."""
        self.count(1)
        self._open.append((branch, anchor, [], is_flow))
        if len(self._open) > MOST_LEVELS:
            refuse(self.file, f"is nested deeper than {MOST_LEVELS} levels in line {branch.line}", "a file is shallow")

    def end(self) -> None:
        """Closes what was opened last."""
        branch, anchor, _, is_flow = self._open.pop()
        filled = self._placeholder(branch) if is_flow and self._open else branch
        if anchor:
            self._anchors[anchor] = filled
        self.add(filled, None)

    def _placeholder(self, branch: Branch) -> Tree:
        """What a template is filled with at ``{name}``, which YAML takes for a mapping of one key without a value."""
        leaf = next(iter(branch.items.values()), branch)
        if len(branch.items) != 1 or branch.is_list or isinstance(leaf, Branch) or leaf.value is not None or leaf.needs:
            return branch
        return undecided_leaf(branch.line, self.file, f"key:{{{next(iter(branch.items))}}}")

    def scalar(self, leaf: Leaf, key: str, anchor: str | None) -> None:
        """A scalar."""
        self.count(1)
        if anchor:
            self._anchors[anchor] = leaf
        self.add(leaf, key)

    def alias(self, anchor: str, line: int) -> None:
        """A node that is there already."""
        found = self._anchors.get(anchor)
        if found is None:
            refuse(
                self.file,
                f"uses the alias {shortened(anchor, 40)} in line {line}, which nothing defines before",
                "YAML",
            )
        self.count(size(found))
        self.add(found, str(found.value) if isinstance(found, Leaf) else None)


def yaml_tree(text: str, file: str) -> tuple[Tree, list[str]]:
    """The tree of the first document and notes. Raises ``InputError``."""
    import yaml

    loader = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
    builder = _Builder(file)
    try:
        for event in yaml.parse(text, Loader=loader):
            if isinstance(event, yaml.DocumentStartEvent) and builder.root is not None:
                builder.notes.append("the file holds more than one document; the first is read")
                break
            _take(event, builder)
    except yaml.YAMLError as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None) or "unreadable"
        where = f" in line {mark.line + 1}" if mark is not None else ""
        refuse(file, f"is not YAML: {problem}{where}", "the file is well formed")
    return builder.root or Branch(line=1, file=file), builder.notes


def _take(event: yaml.Event, builder: _Builder) -> None:
    import yaml

    mark = event.start_mark
    line = mark.line + 1 if mark is not None else 0
    if isinstance(event, yaml.ScalarEvent):
        builder.scalar(_leaf(event, line, builder), event.value, event.anchor)
    elif isinstance(event, yaml.CollectionStartEvent):
        if event.tag and event.tag not in _KNOWN:
            builder.notes.append(f"line {line}: the tag {shortened(event.tag, 60)} is not followed")
        is_list = isinstance(event, yaml.SequenceStartEvent)
        builder.start(
            Branch(line=line, file=builder.file, is_list=is_list), event.anchor, is_flow=bool(event.flow_style)
        )
    elif isinstance(event, yaml.CollectionEndEvent):
        builder.end()
    elif isinstance(event, yaml.AliasEvent):
        builder.alias(str(event.anchor), line)


def _leaf(event: yaml.ScalarEvent, line: int, builder: _Builder) -> Leaf:
    if event.tag and event.tag not in _KNOWN and event.tag != "!":
        text = shortened(f"{event.tag} {event.value}", 80)
        builder.notes.append(f"line {line}: the tag {text} is not followed")
        return undecided_leaf(line, builder.file, f"code:{text}")
    is_plain = event.implicit[0] and not event.style
    tag = event.tag if event.tag and event.tag != "!" else ""
    return Leaf(value=scalar(event.value, tag, is_plain=is_plain), line=line, file=builder.file)


def scalar(text: str, tag: str = "", *, is_plain: bool = True) -> Scalar:
    """The value of a scalar; ``1e-4`` is a number, as in omegaconf and in what people mean."""
    kind = tag.rpartition(":")[2] or (_kind(text) if is_plain else "str")
    if is_plain and kind == "str" and not tag and _EXPONENT.fullmatch(text):
        kind = "float"
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() in ("true", "yes", "on")
    if kind in ("int", "float") and len(text) <= _MOST_NUMBER and ":" not in text:
        return _number(text.replace("_", ""), kind)
    return text


def _number(text: str, kind: str) -> Scalar:
    lowered = text.lower()
    try:
        if kind == "float":
            return float(lowered.replace(".inf", "inf").replace(".nan", "nan"))
        sign, digits = (-1, lowered[1:]) if lowered.startswith("-") else (1, lowered.lstrip("+"))
        is_octal = digits.startswith("0") and digits.isdecimal() and len(digits) > 1
        return sign * (int(digits, 8) if is_octal else int(digits, 0))
    except (ValueError, OverflowError):
        return text


@cache
def _resolvers() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    import yaml

    return dict(yaml.SafeLoader.yaml_implicit_resolvers)


def _kind(text: str) -> str:
    for tag, pattern in _resolvers().get(text[:1], []):
        if pattern.match(text):
            kind = str(tag).rpartition(":")[2]
            return kind if kind in ("int", "float", "bool", "null") else "str"
    return "str" if text else "null"

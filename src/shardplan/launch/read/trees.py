"""Nested values with the places where they are written, and their way into a document."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from shardplan.fields import dataclass
from shardplan.launch.read.facts import Document, DocumentKind, Need, Scalar, Stated
from shardplan.launch.read.limits import MOST_NODES, refuse

WHY = {
    "env": "the environment variable is used and was not given",
    "key": "the key that this value refers to is not in the file",
    "file": "the file is included and was not read",
    "code": "reading alone does not decide this",
}


@dataclass(kw_only=True)
class Leaf:
    """A scalar, or something that is not decidable."""

    value: Scalar
    line: int
    file: str
    needs: tuple[str, ...] = ()
    assumes: tuple[str, ...] = ()


@dataclass(kw_only=True)
class Branch:
    """A mapping, or a sequence with ``is_list`` (keys are numbers then)."""

    line: int
    file: str
    items: dict[str, Tree] = field(default_factory=dict)
    is_list: bool = False


Tree = Leaf | Branch


def undecided_leaf(line: int, file: str, *needs: str) -> Leaf:
    """A value that is not decidable."""
    return Leaf(value=None, line=line, file=file, needs=needs)


def size(tree: Tree, most: int = MOST_NODES) -> int:
    """Number of nodes, those that are there twice counted twice; it stops counting after ``most``."""
    number, level = 0, [tree]
    while level and number <= most:
        node = level.pop()
        number += 1
        if isinstance(node, Branch):
            level.extend(node.items.values())
    return number


def plain(tree: Tree) -> object:
    """The value without places; None where it is not decidable."""
    if isinstance(tree, Leaf):
        return tree.value
    if tree.is_list:
        return [plain(item) for item in tree.items.values()]
    return {key: plain(item) for key, item in tree.items.items()}


def flattened(tree: Branch, prefix: str = "") -> Iterator[tuple[str, Stated]]:
    """Every value by its dotted key; a sequence of scalars is one value."""
    for key, item in tree.items.items():
        name = f"{prefix}{key}"
        if isinstance(item, Leaf):
            yield name, Stated(value=item.value, line=item.line, file=item.file, needs=item.needs, assumes=item.assumes)
        elif item.is_list and not any(isinstance(inner, Branch) and not inner.is_list for inner in item.items.values()):
            yield name, _sequence(item)
        else:
            yield from flattened(item, f"{name}.")


def _sequence(tree: Branch) -> Stated:
    leaves = list(_leaves(tree))
    needs = tuple(dict.fromkeys(need for leaf in leaves for need in leaf.needs))
    value = None if needs else _as_tuple(plain(tree))
    assumes = tuple(dict.fromkeys(each for leaf in leaves for each in leaf.assumes))
    return Stated(value=value, line=tree.line, file=tree.file, needs=needs, assumes=assumes)  # type: ignore[arg-type]


def _as_tuple(value: object) -> object:
    return tuple(_as_tuple(item) for item in value) if isinstance(value, list) else value


def _leaves(tree: Tree) -> Iterator[Leaf]:
    if isinstance(tree, Leaf):
        yield tree
    else:
        for item in tree.items.values():
            yield from _leaves(item)


def document(tree: Branch, kind: DocumentKind, file: str, notes: tuple[str, ...] = ()) -> Document:
    """The document that a tree is. Raises ``InputError`` where it has too many values."""
    if size(tree) > MOST_NODES:
        refuse(file, f"holds more than {MOST_NODES:,} values", "a configuration is short")
    values = dict(flattened(tree))
    needs: dict[str, Need] = {}
    for leaf in _leaves(tree):
        for name in leaf.needs:
            why = WHY.get(name.partition(":")[0], WHY["code"])
            needs.setdefault(name, Need(name=name, file=leaf.file, line=leaf.line, why=why))
    nested = plain(tree)
    assert isinstance(nested, dict)
    return Document(
        kind=kind, file=file, values=values, tree=nested, needs=tuple(needs.values()), notes=tuple(dict.fromkeys(notes))
    )

"""Nested values with the places where they are written, their way into a document, and limits of what is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field
from time import thread_time
from typing import Final, NoReturn, TypeVar

from shardplan.base.errors import InputError, shortened
from shardplan.base.fields import dataclass
from shardplan.base.files import FileKind, printable
from shardplan.launch.read.facts import Document, DocumentKind, Need, Scalar, Stated

T = TypeVar("T")
MOST_BYTES: Final = 512 * 1024
"""Of the commands of a script with all that it sources, and of what is not comments in TOML or INI, whose readers take
2 s for it. The longest of 147 public launch files has 40 kB."""
MOST_OF_FILE: Final = 10 * 1024 * 1024
"""Of any file, with all that makes it long."""
MOST_LINES: Final = 500_000
"""Of any file: readers take time for each, empty or not."""
MOST_OF_HERE: Final = 64 * 1024
"""Characters of a here-document that is read, in a script of more than :data:`MOST_BYTES`."""
MOST_PARSING: Final = 2.0
"""Processor time of the parser of shell scripts in one evaluation. [s]"""
MOST_STEPS: Final = 50_000
"""Statements, words and copies of variables of one evaluation."""
MOST_TEXT: Final = 4 * 1024 * 1024
"""Characters that expansions produce in one evaluation."""
MOST_DEPTH: Final = 40
"""Of nested expansions, functions, sourced files and evaluated texts."""
MOST_ITERATIONS: Final = 1000
"""Of one loop."""
MOST_NODES: Final = 100_000
"""Of a document, with what its aliases repeat."""
MOST_LEVELS: Final = 40
"""Of a nested document or expression."""

LAUNCH_FILE: Final = FileKind(
    "the launch file",
    MOST_BYTES,
    "a launch file is a short text file that can be read",
    "give the script or configuration itself",
)
LONG_FILE: Final = LAUNCH_FILE._replace(most_bytes=MOST_OF_FILE)
"""A file that is looked through before it is parsed."""


class Budget:
    """Steps and characters that an evaluation may still use."""

    def __init__(self, file: str, most_bytes: int = MOST_BYTES) -> None:
        self.file, self.steps, self.text, self.depth = file, MOST_STEPS, MOST_TEXT, 0
        self.bytes = self._most_bytes = most_bytes
        self._parsing = MOST_PARSING

    def spend(self, steps: int = 1) -> None:
        """Counts ``steps``. Raises ``InputError`` when none are left."""
        self.steps -= steps
        if self.steps < 0:
            refuse(self.file, f"takes more than {MOST_STEPS:,} steps to evaluate", "a launch script is short")

    def write(self, characters: int) -> None:
        """Counts characters that an expansion produces. Raises ``InputError`` when none are left."""
        self.text -= characters
        if self.text < 0:
            refuse(self.file, f"expands to more than {MOST_TEXT:,} characters", "a launch script is short")

    def read(self, characters: int) -> None:
        """Counts the size of a file that is read. Raises ``InputError`` when too much is read."""
        self.bytes -= characters
        if self.bytes < 0:
            refuse(
                self.file,
                f"reads more than {self._most_bytes:,} bytes with the files that it includes",
                "launch files are short",
            )

    def timed(self, parse: Callable[[float], T | None]) -> T:
        """What ``parse`` gives in the time that is left. [s] Raises ``InputError`` where it gives None."""
        start = thread_time()
        found = parse(self._parsing)
        self._parsing -= thread_time() - start
        if found is None:
            why = (
                f"takes more than {MOST_PARSING:g} s to parse: it may not be a shell script, or brackets are not closed"
            )
            refuse(self.file, why, "the file is well formed")
        return found

    def enter(self) -> None:
        """Goes one level deeper. Raises ``InputError`` where that is too deep."""
        self.depth += 1
        if self.depth > MOST_DEPTH:
            refuse(self.file, f"is nested deeper than {MOST_DEPTH} levels", "a launch script is shallow")

    def leave(self) -> None:
        """Comes back up."""
        self.depth -= 1


def check_length(text: str, file: str) -> None:
    """Raises ``InputError`` for a text that is too long to be looked through."""
    if len(text) > MOST_OF_FILE:
        refuse(file, f"has more than {MOST_OF_FILE:,} characters", LAUNCH_FILE.rule)
    if text.count("\n") > MOST_LINES:
        refuse(file, f"has more than {MOST_LINES:,} lines", LAUNCH_FILE.rule)


def whole_characters(text: str) -> str:
    """``text`` with a question mark for halves of characters, which no text in UTF-8 has."""
    return text if text.isascii() else text.encode("utf-8", errors="replace").decode()


def refuse(file: str, why: str, rule: str, hint: str = "") -> NoReturn:
    """Raises ``InputError`` about a file."""
    raise InputError(f"{printable(file)} {shortened(why, 300)}", rule=rule, hint=hint or f"correct {printable(file)}")


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

"""Syntax trees of shell text, by tree-sitter-bash."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from shardplan.errors import InputError

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

NOT_WORDS = frozenset({"comment", "variable_assignment", "file_redirect", "heredoc_redirect", "herestring_redirect"})


class Source(NamedTuple):
    """A text that is being evaluated."""

    data: bytes
    file: str
    first_line: int
    """Line in ``file`` where the text begins."""

    def text(self, node: Node) -> str:
        """What a node covers."""
        return self.between(node.start_byte, node.end_byte)

    def between(self, start: int, end: int) -> str:
        """Characters between two bytes."""
        return self.data[start:end].decode("utf-8", errors="replace")

    def line(self, node: Node) -> int:
        """Line of a node, counted from 1."""
        return int(node.start_point[0]) + self.first_line

    def words(self, nodes: Sequence[Node]) -> Iterator[tuple[str, int]]:
        """The words that nodes make as written, with their lines: nodes without a blank between are one word."""
        start = end = line = -1
        for node in nodes:
            if node.start_byte != end:
                if start >= 0:
                    yield self.between(start, end), line
                start, line = node.start_byte, self.line(node)
            end = node.end_byte
        if start >= 0:
            yield self.between(start, end), line


@cache
def _parser() -> Parser:
    try:
        import tree_sitter
        import tree_sitter_bash
    except ImportError as error:
        raise InputError(
            f"shell scripts need the packages tree-sitter and tree-sitter-bash: {error}",
            rule="the parser of shell scripts is installed",
            hint="pip install tree-sitter tree-sitter-bash",
        ) from error
    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


def parse(data: bytes) -> Node:
    """The tree of a text."""
    return _parser().parse(data).root_node


def is_broken(node: Node) -> bool:
    """Whether a node itself cannot be read, whatever is in its statements."""
    return node.is_error or node.is_missing or any(child.is_error or child.is_missing for child in node.children)


def children(node: Node, start: str = "", ends: tuple[str, ...] = ()) -> list[Node]:
    """Named children, after the token ``start`` and before one of ``ends``."""
    found: list[Node] = []
    begun = not start
    for child in node.children:
        if begun and child.type in ends:
            break
        if begun and child.is_named and child.type != "comment":
            found.append(child)
        begun = begun or child.type == start
    return found


def arguments(node: Node) -> list[Node]:
    """Nodes of the words of a command, its name first."""
    return [child for child in node.children if child.is_named and child.type not in NOT_WORDS]

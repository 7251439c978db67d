"""Syntax trees of shell text, by tree-sitter-bash."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from time import thread_time
from typing import TYPE_CHECKING, Final, NamedTuple

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


def parse(data: bytes, most_time: float) -> Node | None:
    """The tree of a text; None where it takes more processor time than ``most_time``. [s]

    The parser takes 0.4 s for 512 KiB of what bash accepts. The time of brackets that are left open, and of text that
    is no shell script, grows with the square of its length.
    """
    end, parser = thread_time() + most_time, _parser()
    try:
        return parser.parse(
            lambda start, _: data[start : start + _MOST_AT_ONCE],
            progress_callback=lambda _at, _has_error: thread_time() > end,
        ).root_node
    except ValueError:
        parser.reset()
        return None


_MOST_AT_ONCE: Final = 65_536
"""Bytes that the parser asks for at once."""
_BLANK: Final = re.compile(rb"(?:[ \t\r\n]|\\\r?\n)*")

_INLINE: Final = re.compile(rb"(?:[ \t\r]|\\\r?\n)*")
_SIMPLE: Final = frozenset({"command", "declaration_command", "unset_command"})


def is_broken(node: Node, data: bytes) -> bool:
    """Whether a node itself cannot be read, whatever is in its statements: an error, or characters in no child."""
    if node.is_error or node.is_missing:
        return True
    blank = _INLINE if node.type in _SIMPLE else _BLANK
    end = node.start_byte
    for child in node.children:
        if child.is_error or child.is_missing or not blank.fullmatch(data, end, max(end, child.start_byte)):
            return True
        if child.type == "variable_assignment" and _has_gap(child, data):
            return True
        end = child.end_byte
    return node.type == "variable_assignment" and _has_gap(node, data)


def _has_gap(assignment: Node, data: bytes) -> bool:
    """Whether characters between name and value are lost."""
    children = assignment.children
    arrays = [child for child in children if child.type == "array"]
    return any(left.end_byte != right.start_byte for left, right in pairwise(children)) or any(
        not _BLANK.fullmatch(data, left.end_byte, right.start_byte)
        for array in arrays
        for left, right in pairwise(array.children)
    )


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
    return [child for child in node.children if child.type not in NOT_WORDS]


def more_words(redirect: Node) -> list[Node]:
    """Words of the command that the grammar puts after the file of a redirection."""
    if redirect.type == "heredoc_redirect":
        inner = [each for child in redirect.children if child.type == "file_redirect" for each in more_words(child)]
        return [*redirect.children_by_field_name("argument"), *inner]
    return list(redirect.children_by_field_name("destination"))[1:] if redirect.type == "file_redirect" else []

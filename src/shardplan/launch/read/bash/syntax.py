"""Words and quotes of a line, and the tree of a script."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from time import thread_time
from typing import TYPE_CHECKING, Final, NamedTuple

from shardplan.base.errors import InputError
from shardplan.launch.read.trees import MOST_LEVELS, refuse

if TYPE_CHECKING:
    from tree_sitter import Node, Parser


def end_of_single(source: str, start: int) -> int:
    """Index after the quote that closes the single quote at ``start``."""
    end = source.find("'", start + 1)
    return len(source) if end < 0 else end + 1


def end_of_ansi(source: str, start: int) -> int:
    """Index after the quote that closes ``$'`` whose quote is at ``start``."""
    position = start + 1
    while position < len(source) and source[position] != "'":
        position += 2 if source[position] == "\\" else 1
    return min(position + 1, len(source))


def end_of_double(source: str, start: int, depth: int = 0) -> int:
    """Index after the quote that closes the double quote at ``start``."""
    position = start + 1
    while position < len(source) and source[position] != '"':
        position = _after(source, position, depth, in_double=True)
    return min(position + 1, len(source))


def end_of_backticks(source: str, start: int) -> int:
    """Index after the backtick that closes the one at ``start``."""
    position = start + 1
    while position < len(source) and source[position] != "`":
        position += 2 if source[position] == "\\" else 1
    return min(position + 1, len(source))


def end_of_braces(source: str, start: int, depth: int = 0, *, in_double: bool = False) -> int:
    """Index after the brace that closes ``${`` at ``start``."""
    position = start + 2
    while position < len(source) and source[position] != "}":
        position = _after(source, position, depth, in_double=in_double)
    return min(position + 1, len(source))


def end_of_parentheses(source: str, start: int, depth: int = 0) -> int:
    """Index after the bracket that closes the one at ``start``, which is ``(``."""
    position, level = start + 1, 1
    while position < len(source):
        char = source[position]
        level += (char == "(") - (char == ")")
        if level == 0:
            return position + 1
        position = position + 1 if char in "()" else _after(source, position, depth, in_double=False)
    return len(source)


def _after(source: str, position: int, depth: int, *, in_double: bool) -> int:
    """Index after the character, escape, quote or expansion at ``position``."""
    if depth > MOST_LEVELS:
        refuse("the script", f"has expansions nested deeper than {MOST_LEVELS} levels", "a launch script is shallow")
    char, following = source[position], source[position + 1 : position + 2]
    end = position + 1
    if char == "\\":
        end = position + 2
    elif char == "`":
        end = end_of_backticks(source, position)
    elif char == '"' and not in_double:
        end = end_of_double(source, position, depth + 1)
    elif char == "'" and not in_double:
        end = end_of_single(source, position)
    elif char == "$" and following == "{":
        end = end_of_braces(source, position, depth + 1, in_double=in_double)
    elif char == "$" and following == "(":
        end = end_of_parentheses(source, position + 1, depth + 1)
    elif char == "$" and following == "'" and not in_double:
        end = end_of_ansi(source, position + 1)
    elif char == '"':  # quotes in ${...} in quotes
        end = end_of_double(source, position, depth + 1)
    return end


def split_words(source: str, operators: frozenset[str] = frozenset()) -> list[str]:
    """The words of a line as written, without looking into quotes and expansions; ``operators`` stand alone."""
    words: list[str] = []
    position, start = 0, -1
    longest = max((len(operator) for operator in operators), default=0)
    while position < len(source):
        found = next(
            (
                source[position : position + n]
                for n in range(longest, 0, -1)
                if source[position : position + n] in operators
            ),
            "",
        )
        if source[position].isspace() or source.startswith("\\\n", position) or found:
            if start >= 0:
                words.append(source[start:position])
            if found:
                words.append(found)
            start, position = -1, position + (len(found) or (2 if source[position] == "\\" else 1))
            continue
        start = position if start < 0 else start
        position = _after(source, position, 0, in_double=False)
    return [*words, source[start:]] if start >= 0 else words


def braces(source: str) -> list[str] | None:
    """The words that ``a{b,c}d`` or ``{1..3}`` stands for, as written; None where there is nothing to expand."""
    position = 0
    while position < len(source):
        if source[position] == "{" and (made := _expanded_brace(source, position)):
            return made
        position = _after(source, position, 0, in_double=False)
    return None


def _expanded_brace(source: str, start: int) -> list[str]:
    commas, level, position = [start], 1, start + 1
    while position < len(source) and level:
        char = source[position]
        level += (char == "{") - (char == "}")
        if char == "," and level == 1:
            commas.append(position)
        if level:
            position = position + 1 if char in "{}," else _after(source, position, 0, in_double=False)
    if level:
        return []
    head, tail, ends = source[:start], source[position + 1 :], [*commas, position]
    if len(commas) > 1:
        choices = [source[left + 1 : right] for left, right in pairwise(ends)]
    else:
        choices = _sequence(source[start + 1 : position])
    return [head + choice + tail for choice in choices]


def _sequence(inner: str) -> list[str]:
    parts = inner.split("..")
    if len(parts) not in (2, 3) or not all(part.lstrip("-").isdecimal() and len(part) < 10 for part in parts):
        return []
    first, last = int(parts[0]), int(parts[1])
    step = max(1, abs(int(parts[2]))) if len(parts) == 3 else 1
    if abs(last - first) // step > 10_000:
        return []
    digits = [part.lstrip("-") for part in parts[:2]]
    width = max(map(len, parts[:2])) if any(len(d) > 1 and d[0] == "0" for d in digits) else 0
    numbers = range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
    return [str(number).zfill(width) for number in numbers]


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


def end_of_assignment(node: Node) -> int:
    """The byte after an assignment; the grammar cuts its value at a backslash behind quotes."""
    end, following = node.end_byte, node.next_sibling
    while following is not None and following.start_byte == end and following.type in _OF_WORDS:
        end, following = following.end_byte, following.next_sibling
    return end


_OF_WORDS = frozenset(
    {"word", "string", "raw_string", "concatenation", "command_name", "simple_expansion", "expansion"}
)


def more_words(redirect: Node) -> list[Node]:
    """Words of the command that the grammar puts after the file of a redirection."""
    if redirect.type == "heredoc_redirect":
        inner = [each for child in redirect.children if child.type == "file_redirect" for each in more_words(child)]
        return [*redirect.children_by_field_name("argument"), *inner]
    return list(redirect.children_by_field_name("destination"))[1:] if redirect.type == "file_redirect" else []

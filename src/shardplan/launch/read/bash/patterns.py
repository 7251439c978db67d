"""Patterns of the shell (globs), matched in bounded time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

_CLASSES: Final[Mapping[str, Callable[[str], bool]]] = {
    "alpha": str.isalpha,
    "digit": str.isdigit,
    "alnum": str.isalnum,
    "space": str.isspace,
    "upper": str.isupper,
    "lower": str.islower,
    "punct": lambda char: char.isprintable() and not char.isalnum() and not char.isspace(),
}


class Atom(NamedTuple):
    """One element of a pattern."""

    kind: str
    """``char``, ``any`` (?), ``star`` or ``set``."""
    text: str = ""
    """The character, or what is between the brackets."""

    def takes(self, char: str) -> bool:
        """Whether the element matches one character."""
        if self.kind == "char":
            return char == self.text
        return self.kind == "any" or (self.kind == "set" and _in_set(self.text, char))


def atoms(parts: list[tuple[str, bool]]) -> list[Atom] | None:
    """The elements of a pattern made of (text, whether it is quoted); None for extended patterns such as ``@(a|b)``."""
    found: list[Atom] = []
    for text, is_quoted in parts:
        if is_quoted:
            found.extend(Atom("char", char) for char in text)
            continue
        position = 0
        while position < len(text):
            char = text[position]
            if char in "@!+?*" and text[position + 1 : position + 2] == "(":
                return None
            if char == "[" and (end := _set_end(text, position)) > 0:
                found.append(Atom("set", text[position + 1 : end]))
                position = end
            elif char == "\\" and position + 1 < len(text):
                position += 1
                found.append(Atom("char", text[position]))
            else:
                found.append(Atom({"*": "star", "?": "any"}.get(char, "char"), char))
            position += 1
    return found


def matches(pattern: list[Atom], text: str) -> bool:
    """Whether the whole of ``text`` matches: the usual walk that goes back to the last star."""
    at, position, star, mark = 0, 0, -1, 0
    while position < len(text):
        if at < len(pattern) and pattern[at].kind == "star":
            star, mark = at, position
            at += 1
        elif at < len(pattern) and pattern[at].takes(text[position]):
            at, position = at + 1, position + 1
        elif star >= 0:
            mark += 1
            at, position = star + 1, mark
        else:
            return False
    return all(atom.kind == "star" for atom in pattern[at:])


def _set_end(text: str, start: int) -> int:
    position = start + 1
    if text[position : position + 1] in ("!", "^"):
        position += 1
    if text[position : position + 1] == "]":
        position += 1
    while position < len(text):
        if text.startswith("[:", position) and (close := text.find(":]", position)) > 0:
            position = close + 2
        elif text[position] == "]":
            return position
        else:
            position += 1
    return -1


def _in_set(members: str, char: str) -> bool:
    negated = members[:1] in ("!", "^")
    rest = members[1:] if negated else members
    position, found = 0, False
    while position < len(rest):
        if rest.startswith("[:", position) and (close := rest.find(":]", position)) > 0:
            test = _CLASSES.get(rest[position + 2 : close])
            found = found or bool(test and test(char))
            position = close + 2
        elif rest[position + 1 : position + 2] == "-" and position + 2 < len(rest):
            found = found or rest[position] <= char <= rest[position + 2]
            position += 3
        else:
            found = found or rest[position] == char
            position += 1
    return found != negated

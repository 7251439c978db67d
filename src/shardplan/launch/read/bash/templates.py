"""Templates that a script fills: ``sed "s/NAME/value/" TEMPLATE | sed ... > FILE``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from shardplan.launch.read.bash.text import Text, TextPiece, unique

_PLAIN: Final = re.compile(r"[\w <>{}@%#:=,-]+")
"""Patterns that stand for themselves."""
Atoms = list[str | TextPiece]
"""Characters, and pieces that are not decided."""
_SEPARATORS: Final = re.compile(r"[\s;]*")


class Substitution(NamedTuple):
    """``s/pattern/replacement/``."""

    pattern: str
    replacement: Text
    every: bool
    """Whether it replaces more than the first on a line."""


def filled(commands: Sequence[Sequence[Text]], template: Callable[[Text], Text | None]) -> Text | None:
    """What a pipeline of ``cat`` and ``sed`` prints; None where one of them does something else.

    ``template`` opens a file.
    """
    text: Text | None = None
    for number, words in enumerate(commands):
        name = words[0].known if words else None
        if name == "cat" and number == 0 and len(words) == 2:
            text = template(words[1])
        elif name == "sed":
            text = _edited(words[1:], text, template, is_first=number == 0)
        else:
            return None
        if text is None:
            return None
    return text


def _edited(
    words: Sequence[Text], text: Text | None, template: Callable[[Text], Text | None], *, is_first: bool
) -> Text | None:
    """What ``sed`` prints of ``text``, or of its only file where it is the first."""
    has_flags = any(word.known == "-e" for word in words)
    rest = [word for word in words if word.known not in {"-e", "-u"}]
    number = len(rest) - is_first if has_flags else 1
    expressions, files = rest[:number], rest[number:]
    if len(files) != is_first or any((word.known or "").startswith("-") for word in rest):
        return None
    text = template(files[0]) if is_first else text
    for expression in expressions:
        steps = substitutions(expression)
        if steps is None or text is None:
            return None
        for step in steps:
            text = _replaced(text, step)
    return text


def substitutions(expression: Text) -> list[Substitution] | None:
    """The steps of an expression; None where one is no substitution of plain text."""
    left, found = Atoms(_atoms(expression)), list[Substitution]()
    while left:
        while left and isinstance(left[0], str) and _SEPARATORS.fullmatch(left[0]):
            del left[0]
        if not left:
            break
        if len(left) < 2 or left[0] != "s" or not isinstance(left[1], str):
            return None
        parts, left = _parts(left[2:], left[1])
        step = None if parts is None else _step(parts, left)
        if step is None:
            return None
        found.append(step)
    return found or None


def _atoms(text: Text) -> Iterator[str | TextPiece]:
    """Characters, and pieces that are not decided."""
    for piece in text.pieces:
        if piece.undecided:
            yield piece
        else:
            yield from piece.text


def _parts(atoms: Atoms, sign: str) -> tuple[tuple[Atoms, Atoms] | None, Atoms]:
    """What is before the next two signs, and what is left."""
    places = [place for place, atom in enumerate(atoms) if atom == sign][:2]
    if len(places) < 2:
        return None, []
    return (atoms[: places[0]], atoms[places[0] + 1 : places[1]]), atoms[places[1] + 1 :]


def _step(parts: tuple[Atoms, Atoms], left: Atoms) -> Substitution | None:
    """A substitution, whose flags are taken from ``left``."""
    every = bool(left) and left[0] == "g"
    if every:
        del left[0]
    pattern = "".join(atom if isinstance(atom, str) else "\0" for atom in parts[0])
    if not _PLAIN.fullmatch(pattern) or {"&", "\\"} & {atom for atom in parts[1] if isinstance(atom, str)}:
        return None
    pieces = tuple(TextPiece(atom, 0, "") if isinstance(atom, str) else atom for atom in parts[1])
    return Substitution(pattern, Text(pieces), every)


def _replaced(text: Text, step: Substitution) -> Text:
    """``text`` with the pattern replaced, on every line once or wherever it is."""
    token = re.compile(f"({re.escape(step.pattern)}|\n)")
    found, is_done = list[TextPiece](), False
    for piece in text.pieces:
        for part in (None,) if piece.undecided else token.split(piece.text):
            is_done = is_done and part != "\n"
            if part == step.pattern and (step.every or not is_done):
                found += step.replacement.pieces
                is_done = True
            elif part is None or part:
                found.append(piece if part is None else piece._replace(text=part))
    return Text(tuple(found), unique((*text.assumes, *step.replacement.assumes)))

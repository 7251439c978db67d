"""A large JSON object, read one value at a time.

The C decoder of the standard library reads every value; only the object around them, and the items of one list in it,
are read piece by piece. A trace of a gigabyte then needs the memory of one piece.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final, NoReturn

from shardplan.errors import InputError, shown

SPACE: Final = re.compile(r"[ \t\r\n]*")
COMMA: Final = re.compile(r"[ \t\r\n]*,[ \t\r\n]*")
OF_NUMBERS: Final = re.compile(r"[-+.\deE]*")
"""What may go on with a number at the end of a piece."""
MOST_LENGTH: Final = 64 * 1024 * 1024
"""Characters of one value."""


class JsonObject:
    """An object whose members are read in their order."""

    def __init__(self, pieces: Iterator[str], label: str, rule: str) -> None:
        """``pieces``: the text; ``label``: what errors call it."""
        self._pieces, self._label, self._rule = pieces, label, rule
        self._text, self._at, self._before = "", 0, 0
        self._decoder = json.JSONDecoder()

    def members(self, streamed: str) -> Iterator[tuple[str, object]]:
        """Name and value of every member; of the list called ``streamed``, one pair for each item.

        Raises ``InputError`` where the text ends early or is not a JSON object.
        """
        self._expect("{")
        if self._next() == "}":
            return
        while True:
            name = self._value()
            if not isinstance(name, str):
                self._refuse(f"has {shown(name)} in place of a name")
            self._expect(":")
            if name == streamed and self._next() == "[":
                self._expect("[")
                yield from ((name, item) for item in self._items())
            else:
                yield name, self._value()
            if self._next() == "}":
                return
            self._expect(",")

    def _items(self) -> Iterator[object]:
        if self._next() == "]":
            self._expect("]")
            return
        while True:
            yield self._value()
            yield from self._objects()
            if self._next() == "]":
                self._expect("]")
                return
            self._expect(",")

    def _objects(self) -> Iterator[object]:
        """The next items, as long as they are objects that are whole: the rest of an item is read by ``_value``."""
        scan = self._decoder.scan_once
        while (comma := COMMA.match(self._text, self._at)) is not None:
            try:
                value, end = scan(self._text, comma.end())
            except (StopIteration, ValueError, RecursionError):
                return
            if not isinstance(value, dict):
                return
            self._at = end
            yield value

    def _next(self) -> str:
        """The next character that is not white space; empty at the end of the text."""
        while True:
            found = SPACE.match(self._text, self._at)
            assert found is not None
            self._at = found.end()
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._read_on():
                return ""

    def _expect(self, character: str) -> None:
        found = self._next()
        if found != character:
            self._refuse(f"has {shown(found)} where '{character}' belongs" if found else "ends early")
        self._at += 1

    def _value(self) -> object:
        """The next value; more text is read until it is whole."""
        self._next()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except RecursionError:
                self._refuse("is nested too deep")
            except ValueError as error:
                if len(self._text) - self._at > MOST_LENGTH:
                    self._refuse("is not JSON, or has a value that is too long")
                if not self._read_on():
                    self._refuse(
                        "ends early" if self._is_cut(error) else f"is not JSON: {str(error).partition(':')[0]}"
                    )
                continue
            if OF_NUMBERS.fullmatch(self._text, end) and self._read_on():
                continue
            self._at = end
            return value

    def _is_cut(self, error: ValueError) -> bool:
        """Whether the text ends where the decoder wants more of it."""
        where = getattr(error, "pos", 0)
        return where >= len(self._text.rstrip()) - 1 or "Unterminated" in str(error)

    def _read_on(self) -> bool:
        """Adds the next piece to the text, without what has been read; False at the end."""
        piece = next(self._pieces, None)
        if piece is None:
            return False
        self._before += self._at
        self._text, self._at = self._text[self._at :] + piece, 0
        return True

    def _refuse(self, why: str) -> NoReturn:
        where = self._before + self._at
        raise InputError(
            f"{self._label} {why} (character {where:,})", rule=self._rule, hint="give the file as the profiler wrote it"
        )

"""JSON text as a tree with lines."""

from __future__ import annotations

import json
import re
from typing import Final, NoReturn

from shardplan.launch.read.limits import MOST_LEVELS, MOST_NODES, refuse
from shardplan.launch.read.trees import Branch, Leaf, Tree

_TOKEN: Final = re.compile(
    r'(?P<blank>[ \t\r\n\ufeff]+)|(?P<comment>//[^\n]*|\#[^\n]*|/\*.*?\*/)|(?P<string>"(?:[^"\\\x00-\x1f]++|\\.)*+")'
    r"|(?P<number>-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?(?![\w.]))|(?P<word>-?[A-Za-z]+)|(?P<sign>[\[\]{},:])",
    re.DOTALL,
)
MOST_CUTS: Final = 8 * MOST_NODES
"""Pieces of a text: name, colon, value and comma of every value, and the blanks between them."""
_WORDS: Final[dict[str, float | bool | None]] = {
    "true": True, "false": False, "null": None, "NaN": float("nan"),
    "Infinity": float("inf"), "-Infinity": -float("inf"),
}  # fmt: skip


class _Reader:
    """Reads one text."""

    def __init__(self, text: str, file: str, *, is_loose: bool) -> None:
        self._file, self._is_loose = file, is_loose
        self._tokens = self._cut(text)
        self._at, self._depth, self._nodes = 0, 0, 0
        self.notes: list[str] = []

    def _cut(self, text: str) -> list[tuple[str, str, int]]:
        tokens, position, line, num_cuts = list[tuple[str, str, int]](), 0, 1, 0
        while position < len(text):
            num_cuts += 1
            if num_cuts > MOST_CUTS:
                refuse(self._file, f"holds more than {MOST_NODES:,} values", "a configuration is short")
            found = _TOKEN.match(text, position)
            if found is None or (found.lastgroup == "comment" and not self._is_loose):
                self._fail(f"has {text[position : position + 10]!r}", line)
            kind = found.lastgroup or ""
            if kind not in ("blank", "comment"):
                tokens.append((kind, found[0], line))
            line += found[0].count("\n")
            position = found.end()
        return [*tokens, ("end", "the end", line)]

    def _fail(self, why: str, line: int) -> NoReturn:
        refuse(self._file, f"is not JSON: it {why} in line {line}", "the file is well formed")

    def whole(self) -> Tree:
        """The value of the text. Raises ``InputError``."""
        tree = self._value()
        kind, text, line = self._tokens[self._at]
        if kind != "end":
            self._fail(f"goes on with {text[:20]!r}", line)
        return tree

    def _next(self) -> tuple[str, str, int]:
        token = self._tokens[self._at]
        self._at += token[0] != "end"
        return token

    def _value(self) -> Tree:
        kind, text, line = self._next()
        self._nodes += 1
        if self._nodes > MOST_NODES:
            refuse(self._file, f"holds more than {MOST_NODES:,} values", "a configuration is short")
        if text in ("{", "["):
            return self._branch(text, line)
        if kind == "string":
            return Leaf(value=self._text(text, line), line=line, file=self._file)
        if kind == "number":
            is_whole = text.lstrip("-").isdecimal()
            number = int(text) if is_whole and len(text) <= 100 else float(text)
            return Leaf(value=number, line=line, file=self._file)
        if text in _WORDS:
            return Leaf(value=_WORDS[text], line=line, file=self._file)
        if not self._is_loose or text not in ("True", "False", "None"):
            self._fail(f"has {text[:20]!r} where a value is expected", line)
        return Leaf(value={"True": True, "False": False}.get(text), line=line, file=self._file)

    def _text(self, token: str, line: int) -> str:
        try:
            return str(json.loads(token)).encode("utf-8", errors="replace").decode()
        except ValueError:
            self._fail("has an escape that is not known", line)

    def _branch(self, opening: str, line: int) -> Branch:
        self._depth += 1
        if self._depth > MOST_LEVELS:
            refuse(
                self._file, f"is nested deeper than {MOST_LEVELS} levels in line {line}", "a configuration is shallow"
            )
        branch = Branch(line=line, file=self._file, is_list=opening == "[")
        closing = "]" if branch.is_list else "}"
        while self._tokens[self._at][1] != closing or self._tokens[self._at][0] != "sign":
            key = str(len(branch.items)) if branch.is_list else self._key(branch)
            branch.items[key] = self._value()
            kind, text, at = self._tokens[self._at]
            if kind == "sign" and text == ",":
                self._at += 1
                if self._tokens[self._at][1] == closing and not self._is_loose:
                    self._fail("has a comma before the end of a list or object", at)
            elif kind != "sign" or text != closing:
                self._fail(f"has {text[:20]!r} where a comma is expected", at)
        self._at += 1
        self._depth -= 1
        return branch

    def _key(self, branch: Branch) -> str:
        kind, text, line = self._next()
        colon = self._next()
        if kind != "string" or colon[1] != ":":
            self._fail(f"has {text[:20]!r} where a name is expected", line)
        key = self._text(text, line)
        if key in branch.items:
            self.notes.append(f"line {line}: repeats the key {key[:60]}; the last one counts")
        return key


def json_tree(text: str, file: str, *, is_loose: bool) -> tuple[Tree, list[str]]:
    """The tree of a text and notes; ``is_loose`` allows comments and commas at the end. Raises ``InputError``."""
    reader = _Reader(text, file, is_loose=is_loose)
    return reader.whole(), reader.notes

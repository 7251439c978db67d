"""TOML, INI and JSON text as trees with lines."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final, NoReturn

from shardplan.launch.read.trees import LAUNCH_FILE, MOST_BYTES, MOST_LEVELS, MOST_NODES, Branch, Leaf, Tree, refuse

_PART: Final = r"(?:\"[^\"\n]*+\"|'[^'\n]*+'|[\w-]++)"
_TOML_LINE: Final = re.compile(
    r"^[^\S\n]*+(?:\[{1,2}+(?P<table>[^\]\n]++)\]{1,2}[^\S\n]*+(?:#[^\n]*+)?$"
    rf"|(?P<key>{_PART}(?:[^\S\n]*+\.[^\S\n]*+{_PART})*+)[^\S\n]*+=)",
    re.MULTILINE,
)
_INI_LINE: Final = re.compile(r"^(?:\[(?P<table>[^\]\n]++)\]|(?P<key>[^\s#;\[=:][^=:\n]*+)[=:])", re.MULTILINE)
_DEEP: Final = re.compile(
    rf"(?:[\[{{]\s*+){{{MOST_LEVELS}}}|(?<![\w-])(?:{_PART}[^\S\n]*+\.[^\S\n]*+){{{MOST_LEVELS}}}"
)
_WIDE: Final = re.compile(r"(?<=\S)[^\S\n]{100,}+(?=\S)")
"""Blanks within a line: the time of Python's own reader of INI grows with the square of their number."""
_COMMENTS: Final = {
    "#": re.compile(r"^(?:[^\S\n]*+(?:#[^\n]*+)?\n)++", re.MULTILINE),
    "#;": re.compile(r"^(?:[^\S\n]*+(?:[#;][^\n]*+)?\n)++", re.MULTILINE),
}
"""Lines of comments and blank ones, by the characters that begin a comment."""


def _shortened(text: str, file: str, marks: str) -> str:
    """A long text without its lines of comments and blank lines. Raises ``InputError`` where much is left."""
    if len(text) <= MOST_BYTES:
        return text
    short = text if '"""' in text or "'''" in text else _COMMENTS[marks].sub("", text)
    if len(short) > MOST_BYTES:
        refuse(file, f"has more than {MOST_BYTES:,} characters, not counting comment lines", LAUNCH_FILE.rule)
    return short


def toml_tree(text: str, file: str) -> tuple[Tree, list[str]]:
    """The tree of a TOML text. Raises ``InputError``."""
    text = text.replace("\r\n", "\n")
    short = _shortened(text, file, "#")
    if _DEEP.search(short):
        refuse(file, f"is nested deeper than {MOST_LEVELS} levels", "a configuration is shallow")
    try:
        return _tree(_toml(short, file, has_places=short is text), file, _lines(_TOML_LINE, text), "", [0]), []
    except RecursionError:
        refuse(file, "is nested too deep", "a configuration is shallow")


def _toml(text: str, file: str, *, has_places: bool) -> dict[str, object]:
    import tomllib

    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, ValueError) as error:
        refuse(file, f"is not TOML: {_reason(error, has_place=has_places)}", "the file is well formed")


def _reason(error: Exception, *, has_place: bool) -> str:
    """What a reader says; without the line where the text was shortened before."""
    said = " ".join(str(error).split())[:200]
    return said if has_place else re.split(r" \(at |: '|\[line", said)[0]


def _lines(pattern: re.Pattern[str], text: str, *, is_last: bool = False) -> dict[str, int]:
    """Line of every table and key, by dotted name; of one that is repeated the first line, or the last."""
    lines, table = dict[str, int](), ""
    number, at = 1, 0
    for found in pattern.finditer(text):
        number += text.count("\n", at, found.start())
        at = found.start()
        if found["table"] is not None:
            table = _dotted(found["table"])
            lines.setdefault(table, number)
            table += "."
        else:
            name = table + _dotted(found["key"])
            lines[name] = number if is_last else lines.get(name, number)
    return lines


def _dotted(name: str) -> str:
    return ".".join(part.strip().strip("\"'") for part in name.split("."))


def _tree(value: object, file: str, lines: Mapping[str, int], name: str, count: list[int], line: int = 0) -> Tree:
    count[0] += 1
    if count[0] > MOST_NODES:
        refuse(file, f"holds more than {MOST_NODES:,} values", "a configuration is short")
    line = lines.get(name, line)
    if isinstance(value, dict):
        items = {
            key: _tree(each, file, lines, f"{name}.{key}" if name else key, count, line) for key, each in value.items()
        }
        return Branch(line=line or 1, file=file, items=items)
    if isinstance(value, list):
        entries = {str(n): _tree(each, file, lines, name, count, line) for n, each in enumerate(value)}
        return Branch(line=line, file=file, items=entries, is_list=True)
    scalar = value if isinstance(value, str | int | float | bool) else str(value)
    return Leaf(value=scalar, line=line, file=file)


def ini_tree(text: str, file: str) -> tuple[Tree, list[str]]:
    """The tree of an INI text: sections, then names; values are text. Raises ``InputError``."""
    import configparser

    short = _shortened(text, file, "#;")
    if _WIDE.search(short):
        refuse(file, "has a line with 100 blanks in a row", "values of a configuration are short", "take blanks out")
    parser = configparser.ConfigParser(interpolation=None, strict=False, allow_no_value=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # names keep their case
    try:
        parser.read_string(short, source=file)
    except (configparser.Error, ValueError, AttributeError, TypeError) as error:
        refuse(file, f"is not INI: {_reason(error, has_place=short is text)}", "the file is well formed")
    lines = _lines(_INI_LINE, text, is_last=True)
    items: dict[str, Tree] = {}
    for section in parser.sections():
        at = _dotted(section)
        branch = Branch(line=lines.get(at, 0), file=file)
        for name, value in parser.items(section):
            line = lines.get(f"{at}.{_dotted(name)}", 0)
            branch.items[name] = Leaf(value=value, line=line, file=file)
        items[section] = branch
    return Branch(line=1, file=file, items=items), []


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

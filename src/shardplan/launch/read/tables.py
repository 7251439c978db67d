"""TOML and INI text as trees with lines."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from shardplan.launch.read.limits import MOST_LEVELS, MOST_NODES, refuse
from shardplan.launch.read.trees import Branch, Leaf, Tree

_HEADER: Final = re.compile(r"\s*\[{1,2}\s*([^\]]+?)\s*\]{1,2}\s*(?:[#;].*)?$")
_KEY: Final = re.compile(r"\s*((?:\"[^\"]*\"|'[^']*'|[\w-]+)(?:\s*\.\s*(?:\"[^\"]*\"|'[^']*'|[\w-]+))*)\s*=")
_DEEP: Final = re.compile(rf"(?:[\[{{]\s*){{{MOST_LEVELS}}}")
_INI_KEY: Final = re.compile(r"([^\s#;\[=:][^=:]*?)\s*[=:]")


def toml_tree(text: str, file: str) -> tuple[Tree, list[str]]:
    """The tree of a TOML text. Raises ``InputError``."""
    if _DEEP.search(text) or max(map(_dots, text.splitlines()), default=0) > MOST_LEVELS:
        refuse(file, f"is nested deeper than {MOST_LEVELS} levels", "a configuration is shallow")
    import tomllib

    try:
        found = tomllib.loads(text.replace("\r\n", "\n"))
    except (tomllib.TOMLDecodeError, ValueError) as error:
        refuse(file, f"is not TOML: {str(error)[:200]}", "the file is well formed")
    except RecursionError:
        refuse(file, "is nested too deep", "a configuration is shallow")
    return _tree(found, file, _toml_lines(text), "", [0]), []


def _dots(line: str) -> int:
    return line.partition("=")[0].count(".")


def _toml_lines(text: str) -> dict[str, int]:
    """Line of every key, by dotted name; keys of lists of tables keep the first."""
    lines, table = dict[str, int](), ""
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            table = _dotted(header[1])
            lines.setdefault(table, number)
            table += "."
        elif key := _KEY.match(line):
            lines.setdefault(table + _dotted(key[1]), number)
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

    parser = configparser.ConfigParser(interpolation=None, strict=False, allow_no_value=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # names keep their case
    try:
        parser.read_string(text, source=file)
    except (configparser.Error, ValueError, AttributeError, TypeError) as error:
        refuse(file, f"is not INI: {' '.join(str(error).split())[:200]}", "the file is well formed")
    lines = _ini_lines(text)
    items: dict[str, Tree] = {}
    for section in parser.sections():
        branch = Branch(line=lines.get(section, 0), file=file)
        for name, value in parser.items(section):
            branch.items[name] = Leaf(value=value, line=lines.get(f"{section}.{name}", 0), file=file)
        items[section] = branch
    return Branch(line=1, file=file, items=items), []


def _ini_lines(text: str) -> dict[str, int]:
    lines, section = dict[str, int](), ""
    for number, line in enumerate(text.splitlines(), start=1):
        if header := re.match(r"\[([^\]]+)\]", line):
            section = header[1]
            lines.setdefault(section, number)
        elif key := _INI_KEY.match(line):
            lines[f"{section}.{key[1].strip()}"] = number
    return lines

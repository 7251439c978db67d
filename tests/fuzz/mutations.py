"""Changes of files, cells and flags as accidents and attackers make them, by a seed."""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Callable
from typing import Any, Final

import yaml

NUMBERS: Final = (
    0, -1, 1, 3, 7, 2**31, 2**63, 10**30, 10**101, -(10**18), 0.0, -0.5, 1e-300, 1e300, 0.1, float("inf"), float("nan"),
)  # fmt: skip
TEXTS: Final = (
    "", " ", "-", "none", "null", "NaN", "inf", "-inf", "1e999", "0x10", "1_000", "1,000", "9" * 5000, "x" * 5000,
    "\x1b[31mred\x1b[0m", "\x9b31m", "\u202eabc", "\u0000", "\ud800", "é", "😀", "=1+1", "@cmd", "a\nb", "a\tb",
    "../..", "/", ".", "/dev/null", "/etc", "{0}", "%s", "$HOME", "~", "1/0", "True", "llama-3.2-1b", "h100-sxm-80gb",
    "1,2,3", "tp=2", "0", "-1", "3", "8", "1e3", "12GB", "5 us", "1:30", "²", "٣",
)  # fmt: skip
VALUES: Final[tuple[Any, ...]] = (*NUMBERS, *TEXTS, None, True, False, [], {}, [1, 2], {"a": 1}, [[[]]], {"": None})
"""What is put in the place of a value."""
TOKENS: Final = (
    "\x00", "\x1b[2J", "\ufeff", "\r", "\n", "\t", '"', "'", ",", ";", ":", "{", "}", "[", "]", "&a ", "*a",
    "!!timestamp ",
    "!!bool x", "!!int ''", "!!python/name:os.system ", "<<: ", "? ", "---\n", "#", "\\", "\\ud800", "9" * 4400,
    "-", "1e999", "NaN", "0o17", "0b1", "=", "%YAML 1.1\n",
)  # fmt: skip


def mutated(content: bytes, name: str, chance: random.Random) -> bytes:
    """A file changed in some places, by its text or by what it holds."""
    ways: list[Callable[[bytes, random.Random], bytes]] = [_by_text, _by_bytes]
    if name.endswith(".json"):
        ways += [_by_json] * 6
    elif name.endswith(".yaml"):
        ways += [_by_yaml] * 6
    elif name.endswith(".csv"):
        ways += [_by_cell] * 6
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        content = chance.choice(ways)(content, chance)
    return content


def _by_text(content: bytes, chance: random.Random) -> bytes:
    at, to = sorted(chance.randrange(len(content) + 1) for _ in range(2))
    to = chance.choice((at, at, min(at + 3, to), to))
    return content[:at] + chance.choice(TOKENS).encode() + content[to:]


def _by_bytes(content: bytes, chance: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(chance.choice((1, 2, 9))):
        if changed:
            changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)[: chance.choice((None, None, len(changed) // 2, 0))]


def _by_json(content: bytes, chance: random.Random) -> bytes:
    try:
        record = json.loads(content)
    except (ValueError, RecursionError):
        return _by_text(content, chance)
    return json.dumps(changed(record, chance)).encode()


def _by_yaml(content: bytes, chance: random.Random) -> bytes:
    try:
        record = yaml.safe_load(content)
        return yaml.safe_dump(changed(record, chance), sort_keys=False, allow_unicode=True).encode()
    except (yaml.YAMLError, ValueError, TypeError, LookupError, RecursionError, AttributeError):
        return _by_text(content, chance)


def _by_cell(content: bytes, chance: random.Random) -> bytes:
    try:
        rows = [row for row in csv.reader(io.StringIO(content.decode(errors="replace"))) if row]
    except csv.Error:
        rows = []
    if not rows:
        return _by_text(content, chance)
    row = chance.choice(rows)
    value = str(chance.choice(VALUES) if chance.random() < 0.7 else chance.choice(chance.choice(rows)))
    if chance.random() < 0.9:
        row[chance.randrange(len(row))] = value
    else:
        row.insert(chance.randrange(len(row)), value)
    written = io.StringIO()
    csv.writer(written).writerows(rows)
    return written.getvalue().encode(errors="replace")


def changed(record: Any, chance: random.Random) -> Any:
    """A record with one of its values changed, left out, doubled or given another name."""
    parents = list(_parents(record))
    if not parents:
        return chance.choice(VALUES)
    parent = chance.choice(parents)
    key = chance.choice(list(parent) if isinstance(parent, dict) else range(len(parent)))
    way = chance.random()
    if way < 0.65:
        parent[key] = _other(parent[key], chance)
    elif way < 0.8:
        del parent[key]
    elif isinstance(parent, dict):
        parent[str(chance.choice((*TEXTS, *parent, f"{key}s", "name", "__class__")))] = parent[key]
    else:
        parent.insert(key, parent[key])
    return record


def _other(value: Any, chance: random.Random) -> Any:
    if isinstance(value, int | float) and chance.random() < 0.6:
        return chance.choice((*NUMBERS, value * 2, value + 1, -value, value * 1000, value / 3, str(value), [value]))
    return chance.choice((*VALUES, [value], {"a": value}, str(value)))


def _parents(record: Any) -> Any:
    """Mappings and lists that hold something."""
    if isinstance(record, dict | list) and record:
        yield record
        for part in record.values() if isinstance(record, dict) else record:
            yield from _parents(part)

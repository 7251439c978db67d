"""JSON as commands write it: what fits on a line is on one line."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any, Final

LINE: Final = 110
ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False)
UNSHOWN: Final = re.compile("[\\x7f-\\x9f\\u2028\\u2029\\ud800-\\udfff]")
"""What a terminal acts on, and what UTF-8 does not have: written as escapes."""
NOT_ASCII: Final = re.compile("[^\\x00-\\x7f]")


def json_text(value: Any, indent: int = 0) -> str:
    """JSON with what fits on a line on one line, so that long lists of numbers stay short."""
    quick = _on_one_line(value, LINE - indent) or _one_a_line(value, indent)
    if quick is not None:
        return quick
    if isinstance(value, dict):
        keys = [_key(str(key)) for key in value]
        return _joined("{", keys, [json_text(part, indent + 2) for part in value.values()], "}", indent)
    if not isinstance(value, list | tuple):
        return UNSHOWN.sub(lambda found: f"\\u{ord(found[0]):04x}", ENCODER.encode(value))
    if value and all(isinstance(part, int | float) for part in value):
        inner = " " * (indent + 2)
        lines = textwrap.fill(
            ENCODER.encode(value)[1:-1], LINE, initial_indent=inner, subsequent_indent=inner,
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip
        return f"[\n{lines}\n{' ' * indent}]"
    return _joined("[", [""] * len(value), [json_text(part, indent + 2) for part in value], "]", indent)


@lru_cache(maxsize=4096)
def _key(name: str) -> str:
    return f"{json.dumps(name)}: "


def _one_a_line(value: Any, indent: int) -> str | None:
    """An object of plain values, each on a line of its own, all in C code; None for anything else."""
    if not isinstance(value, dict) or any(isinstance(part, CONTAINERS) for part in value.values()):
        return None
    text = _encoder_of_lines(indent + 2).encode(value)
    return f"{{\n{' ' * (indent + 2)}{text[1:-1]}\n{' ' * indent}}}" if _is_plain(text) else None


@cache
def _encoder_of_lines(indent: int) -> json.JSONEncoder:
    return json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(f",\n{' ' * indent}", ": "))


def _is_plain(text: str) -> bool:
    """Whether nothing of it is written as escapes."""
    return text.isascii() and "\x7f" not in text


def _on_one_line(value: Any, room: int) -> str | None:
    """A value that fits, all in C code; None where it does not, or where some of it is written as escapes."""
    is_container = isinstance(value, CONTAINERS)
    if is_container and _least_length(value) > room:
        return None
    text = ENCODER.encode(value)
    return text if (len(text) <= room or not is_container) and _is_plain(text) else None


CONTAINERS: Final = (dict, list, tuple)


def _least_length(value: Any) -> int:
    """Characters that a container takes at least, by the number of its parts and of theirs."""
    parts = value.values() if isinstance(value, dict) else value
    return 3 * len(value) + 3 * sum(len(part) - 1 for part in parts if isinstance(part, CONTAINERS))


def in_ascii(text: str) -> str:
    """A JSON text with escapes in place of all that is not ASCII, for consoles of another encoding."""
    return NOT_ASCII.sub(lambda found: json.dumps(found[0])[1:-1], text)


def _joined(start: str, keys: Sequence[str], parts: Sequence[str], end: str, indent: int) -> str:
    """An object or a list, on one line if that fits and no part needs more."""
    items = [key + part for key, part in zip(keys, parts, strict=True)]
    if sum(map(len, items)) + 2 * max(len(items), 1) + indent <= LINE and not any("\n" in part for part in parts):
        return f"{start}{', '.join(items)}{end}"
    inner, separator = " " * (indent + 2), ",\n"
    return f"{start}\n{separator.join(inner + item for item in items)}\n{' ' * indent}{end}"

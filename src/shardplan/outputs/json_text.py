"""JSON as commands write it: what fits on a line is on one line."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Sequence
from typing import Any, Final

LINE: Final = 110
ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False)
UNSHOWN: Final = re.compile("[\\x7f-\\x9f\\u2028\\u2029\\ud800-\\udfff]")
"""What a terminal acts on, and what UTF-8 does not have: written as escapes."""
NOT_ASCII: Final = re.compile("[^\\x00-\\x7f]")


def json_text(value: Any, indent: int = 0) -> str:
    """JSON with what fits on a line on one line, so that long lists of numbers stay short."""
    if isinstance(value, dict):
        keys = [f"{json.dumps(str(key))}: " for key in value]
        return _joined("{", keys, [json_text(part, indent + 2) for part in value.values()], "}", indent)
    if not isinstance(value, list | tuple):
        return UNSHOWN.sub(lambda found: f"\\u{ord(found[0]):04x}", ENCODER.encode(value))
    parts = [json_text(part, indent + 2) for part in value]
    if sum(map(len, parts)) + 2 * len(parts) > LINE - indent and all(isinstance(part, int | float) for part in value):
        inner = " " * (indent + 2)
        lines = textwrap.fill(
            ", ".join(parts), LINE, initial_indent=inner, subsequent_indent=inner,
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip
        return f"[\n{lines}\n{' ' * indent}]"
    return _joined("[", [""] * len(parts), parts, "]", indent)


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

"""Options of torchtitan's line as keys of its TOML files (up to 0.2.2)."""

from __future__ import annotations

import re

from shardplan.launch.dialects.values import number


def as_keys(options: str) -> tuple[str, ...]:
    """Options as they stand in a file.

    >>> as_keys("--activation_checkpoint.mode none --training.local_batch_size 2 --compile.enable")
    ('activation_checkpoint.mode = "none"', 'training.local_batch_size = 2', 'compile.enable = true')
    """
    found = (each.partition(" ") for each in re.split(r"(?:^| +)--(?=[a-z])", options) if each)
    return tuple(f"{name} = {_value(value.strip())}" for name, _, value in found)


def _value(text: str) -> str:
    if not text:
        return "true"
    return text if number(text) is not None else f'"{text}"'

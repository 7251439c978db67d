"""Patterns that frameworks write as text: which layers have experts, and which layers each virtual stage holds."""

from __future__ import annotations

import ast
import re
from typing import Final

MOST: Final = 100_000
"""Elements of a pattern that are accepted."""


def layer_pattern(text: str) -> int | tuple[int, ...] | None:
    """A number, or a list written as ``[0]*3+[1]*58``; None where it is neither.

    >>> layer_pattern("([0]*2+[1]*3)")
    (0, 0, 1, 1, 1)
    """
    if len(text) > MOST:
        return None
    try:
        found = _value(ast.parse(text.strip(), mode="eval").body, 0)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return tuple(found) if isinstance(found, list) else found


def _value(node: ast.expr, depth: int) -> int | list[int]:
    """A sum or product of lists and whole numbers."""
    if depth > 50:
        raise ValueError
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and not isinstance(node.value, bool):
        return node.value
    if isinstance(node, ast.List | ast.Tuple):
        return [each for part in node.elts for each in _numbers(_value(part, depth + 1))]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mult):
        return _combined(node.op, _value(node.left, depth + 1), _value(node.right, depth + 1))
    raise ValueError


def _numbers(value: int | list[int]) -> list[int]:
    return value if isinstance(value, list) else [value]


def _combined(operator: ast.operator, left: int | list[int], right: int | list[int]) -> int | list[int]:
    if isinstance(operator, ast.Add):
        if isinstance(left, list) and isinstance(right, list) and len(left) + len(right) <= MOST:
            return left + right
    elif isinstance(left, list) and isinstance(right, int) and 0 <= right * len(left) <= MOST:
        return left * right
    elif isinstance(left, int) and isinstance(right, list) and 0 <= left * len(right) <= MOST:
        return right * left
    raise ValueError


_REPEATED: Final = r"\(([^()]*)\)\*(\d{1,4})|([A-Za-z])\*(\d{1,4})"


def pipeline_layout(text: str) -> tuple[int, ...] | None:
    """Layers of each virtual stage in Megatron's layout string: ``E`` embedding, ``t`` layer, ``m`` MTP, ``L`` loss.

    >>> pipeline_layout("Et*3|(tt|)*2tL")
    (3, 2, 2, 1)
    """
    pattern = text.strip().strip("'\"").replace(",", "")
    while re.search(_REPEATED, pattern) and len(pattern) <= MOST:
        pattern = re.sub(_REPEATED, lambda m: (m[1] if m[1] is not None else m[3]) * int(m[2] or m[4]), pattern)
    if len(pattern) > MOST or not re.fullmatch(r"[EtmL|]+", pattern):
        return None
    return tuple(stage.count("t") for stage in pattern.split("|"))

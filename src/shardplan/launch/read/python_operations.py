"""What operators and conversions of Python give, of bounded size; what only running a module decides stays open."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Final

from shardplan.errors import shortened
from shardplan.launch.read.facts import Scalar
from shardplan.launch.read.limits import MOST_ITERATIONS
from shardplan.launch.read.trees import Tree, size

_OPERATIONS: Final[Mapping[type[ast.operator], Callable[[float, float], float]]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip
_COMPARISONS: Final[Mapping[type[ast.cmpop], Callable[..., bool]]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
}  # fmt: skip
_CONVERSIONS: Final[Mapping[str, Callable[..., Scalar]]] = {
    "int": int, "float": float, "str": str, "bool": bool, "max": max, "min": min,
}  # fmt: skip
CONVERSIONS: Final = frozenset({*_CONVERSIONS, "range", "list", "tuple"})
"""Functions of Python that are followed."""
_LARGEST: Final = 10**30
_MOST_TEXT: Final = 10_000
_MOST_DIGITS: Final = 100
_MOST_COPIED: Final = 5_000
_MOST_WRITTEN: Final = 200
"""Nodes of an expression that is shown as text."""


def computed(sign: ast.operator, left: Scalar, right: Scalar) -> Scalar:
    """``left sign right``; None where it cannot be computed."""
    if isinstance(left, str) and isinstance(right, str) and isinstance(sign, ast.Add):
        return left + right if len(left) + len(right) <= _MOST_TEXT else None
    if not isinstance(left, int | float) or not isinstance(right, int | float):
        return None
    if isinstance(sign, ast.Pow):
        return left**right if abs(left) < 1000 and 0 <= right <= 64 else None
    operation = _OPERATIONS.get(type(sign))
    if operation is None or abs(left) > _LARGEST or abs(right) > _LARGEST:
        return None
    try:
        return operation(left, right)
    except ArithmeticError:
        return None


def compared(sign: ast.cmpop, left: Scalar, right: Scalar) -> bool | None:
    """Whether ``left sign right`` holds; None where it cannot be compared."""
    compare = _COMPARISONS.get(type(sign))
    try:
        return None if compare is None else bool(compare(left, right))
    except TypeError:
        return None


def counted(values: list[Scalar]) -> range | None:
    """The numbers of ``range``, one more than a loop may have at most; None where there is no such range."""
    try:
        return range(*(value for value in values if isinstance(value, int)))[: MOST_ITERATIONS + 1]
    except (TypeError, ValueError):
        return None


def converted(name: str, values: list[Scalar]) -> Scalar:
    """What the function ``name`` gives; None where it gives nothing, or something too large."""
    if name == "int" and values and isinstance(values[0], str) and len(values[0]) > _MOST_DIGITS:
        return None
    try:
        return _CONVERSIONS[name](*values)
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def excerpt(node: ast.AST, most: int = 80) -> str:
    """A piece of a module as short text; of a long one its line alone, since writing it out takes time."""
    is_short = sum(1 for _ in islice(ast.walk(node), _MOST_WRITTEN + 1)) <= _MOST_WRITTEN
    return shortened(ast.unparse(node), most) if is_short else f"line {getattr(node, 'lineno', 0)}"


def dotted(node: ast.expr) -> str:
    """``a.b.c`` as written; what is in front of the dots may be any expression."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return ".".join([node.id if isinstance(node, ast.Name) else excerpt(node), *reversed(names)])


def same(left: Tree | None, right: Tree | None) -> bool:
    """Whether two values are known to be the same."""
    small = all(each is not None and size_within(each) for each in (left, right))
    return left is right or (small and left == right)


def copied_size(tree: Tree) -> int:
    """Number of nodes of a value that is copied; it stops counting where that is too large."""
    return size(tree, _MOST_COPIED)


def size_within(tree: Tree) -> bool:
    """Whether a value is small enough to be put into another one or copied."""
    return copied_size(tree) <= _MOST_COPIED

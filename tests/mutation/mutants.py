"""Small faults in formulas: one change each of an operator, a constant, a comparison or a term."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOMS = ("physics/workload", "physics/costs", "physics/memory", "physics/schedules", "estimation")
"""Folders or files of formulas."""
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Pow: ast.Mult,
    ast.Mod: ast.FloorDiv,
}  # fmt: skip
COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,),
}  # fmt: skip
NAMES = {
    "min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum", "ceil": "floor", "floor": "ceil",
    "any": "all", "all": "any", "logical_and": "logical_or", "logical_or": "logical_and",
}  # fmt: skip
FLOAT_CHANGES = (1.1, 0.9)
"""Factors of constants that are not whole."""


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A piece of a file and what takes its place."""

    path: str
    """Relative to the package."""
    line: int
    start: int
    """Where the piece begins in the file. [bytes]"""
    end: int
    before: str
    after: str
    lines: tuple[str, str]
    """The lines that hold the piece, before and after."""
    file_digest: str
    """Of the whole file: where this differs the mutant is another."""

    @property
    def name(self) -> str:
        """What it changes where."""
        return f"{self.path}:{self.line}: {_short(self.before)} -> {_short(self.after)}"

    @property
    def fault(self) -> tuple[str, str, str]:
        """The same for the same change of the same lines, wherever they are in the file."""
        return (self.path, *self.lines)

    @property
    def key(self) -> str:
        """The same for the same change of the same file."""
        return f"{self.path}@{self.file_digest}:{self.start}-{self.end}:{self.after}"

    def applied(self, source: bytes) -> bytes:
        """The file with the change."""
        return source[: self.start] + self.after.encode() + source[self.end :]


def _short(text: str) -> str:
    return " ".join(text.split())


def files_of(package: Path, room: str) -> list[Path]:
    """The files of a room, which is a folder or a file."""
    return sorted((package / room).rglob("*.py")) or [package / f"{room}.py"]


def mutants_of(package: Path, rooms: Iterable[str] = ROOMS) -> list[Mutant]:
    """All mutants of the formulas in ``rooms`` of a package, in the order of files and lines."""
    return [
        mutant
        for room in rooms
        for path in files_of(package, room)
        for mutant in mutants_of_file(path.read_bytes(), path.relative_to(package).as_posix())
    ]


@cache
def mutants_of_file(source: bytes, path: str) -> tuple[Mutant, ...]:
    """Mutants of one file; each still parses."""
    return tuple(_mutants(source, path))


def _mutants(source: bytes, path: str) -> Iterator[Mutant]:
    digest = hashlib.sha256(source).hexdigest()[:8]
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node in _formulas(ast.parse(source)):
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        first, last = starts[node.lineno - 1], starts[node.end_lineno or 0]
        before = source[start:end].decode()
        for after in dict.fromkeys(_changes(node)):
            lines = source[first:last], source[first:start] + after.encode() + source[end:last]
            yield Mutant(
                path=path, line=node.lineno, start=start, end=end, before=before, after=after, file_digest=digest,
                lines=(_short(lines[0].decode()), _short(lines[1].decode())),
            )  # fmt: skip


def _formulas(tree: ast.AST) -> Iterator[ast.expr]:
    """Expressions that compute: not annotations, texts, decorators or checks of what cannot be."""
    for name, value in ast.iter_fields(tree):
        if name in {"annotation", "returns", "decorator_list", "type_comment"}:
            continue
        for node in value if isinstance(value, list) else [value]:
            if not isinstance(node, ast.AST) or isinstance(node, (ast.JoinedStr, ast.Assert, ast.Raise)):
                continue
            if isinstance(node, ast.keyword) and node.arg == "strict":  # of zip: an assertion too
                continue
            if isinstance(node, ast.expr):
                yield node
            yield from _formulas(node)


def _changes(node: ast.expr) -> Iterator[str]:
    """Texts that may take the place of an expression."""
    match node:
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in OPERATORS:
            yield _bracketed(ast.BinOp(left, OPERATORS[type(operator)](), right))
            yield _bracketed(left)
            if isinstance(operator, (ast.Add, ast.Mult)):
                yield _bracketed(right)
        case ast.UnaryOp(op=ast.USub() | ast.Not(), operand=operand):
            yield _bracketed(operand)
        case ast.BoolOp(op=operator, values=values):
            other = ast.Or() if isinstance(operator, ast.And) else ast.And()
            yield _bracketed(ast.BoolOp(other, values))
        case ast.Compare(left=left, ops=[operator], comparators=[right]) if type(operator) in COMPARISONS:
            for other_kind in COMPARISONS[type(operator)]:
                yield _bracketed(ast.Compare(left, [other_kind()], [right]))
        case ast.IfExp(body=body, orelse=orelse):
            yield _bracketed(body)
            yield _bracketed(orelse)
        case ast.Call(func=function, args=arguments, keywords=keywords):
            yield from _calls(function, arguments, keywords)
        case ast.Constant(value=value) if isinstance(value, (int, float)):
            yield from _constants(value)


def _calls(function: ast.expr, arguments: list[ast.expr], keywords: list[ast.keyword]) -> Iterator[str]:
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if name in NAMES:
        other = NAMES[name]
        swapped = ast.Attribute(function.value, other) if isinstance(function, ast.Attribute) else ast.Name(other)
        yield ast.unparse(ast.Call(swapped, arguments, keywords))
    if name in {"where", "minimum", "maximum"} and len(arguments) > 1:
        yield from (_bracketed(argument) for argument in arguments[-2:])


def _constants(value: float) -> Iterator[str]:
    if isinstance(value, bool):
        yield repr(not value)
    elif isinstance(value, int) or value.is_integer():
        yield from (repr(value + step) for step in (1, -1))
    else:
        yield from (repr(value * factor) for factor in FLOAT_CHANGES)


def _bracketed(node: ast.expr) -> str:
    return f"({ast.unparse(node)})"

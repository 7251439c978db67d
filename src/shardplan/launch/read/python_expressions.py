"""Expressions of Python that reading alone decides."""

from __future__ import annotations

import ast
import copy
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Final

from shardplan.base.errors import shortened
from shardplan.launch.read.facts import Scalar
from shardplan.launch.read.trees import MOST_ITERATIONS, Branch, Budget, Leaf, Tree, size, undecided_leaf

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


CLASS: Final = "__class__"
_COPIES: Final = ("copy.deepcopy", "deepcopy", "copy.copy", "replace")
_ENVIRONMENT: Final = "os.environ"
_MOST_REPEATED: Final = 100_000

Scope = dict[str, Tree]


class Expressions(ABC):
    """Evaluates expressions without running them."""

    def __init__(self, file: str, env: Mapping[str, str], budget: Budget) -> None:
        self.file, self._env, self._budget = file, env, budget
        self.functions: dict[str, ast.FunctionDef] = {}

    @abstractmethod
    def call(self, function: ast.FunctionDef, positional: list[Tree], named: Mapping[str, Tree], line: int) -> Tree:
        """What a function of the module returns."""

    @abstractmethod
    def assign(self, target: ast.expr, value: Tree, scope: Scope) -> None:
        """``target = value``."""

    def leaf(self, value: Scalar, node: ast.AST, assumes: tuple[str, ...] = ()) -> Leaf:
        """A known value."""
        return Leaf(value=value, line=getattr(node, "lineno", 0), file=self.file, assumes=assumes)

    def undecided(self, node: ast.AST, why: str = "") -> Leaf:
        """A value that only running the module gives."""
        return undecided_leaf(getattr(node, "lineno", 0), self.file, f"code:{why or excerpt(node)}")

    def value(self, node: ast.expr, scope: Scope) -> Tree:
        """The value of an expression; undecided where only running it would give it."""
        self._budget.spend()
        match node:
            case ast.Constant():
                return self.leaf(node.value if isinstance(node.value, str | int | float | bool) else None, node)
            case ast.Name():
                return scope.get(node.id) or undecided_leaf(node.lineno, self.file, f"code:{node.id}")
            case ast.Attribute() | ast.Subscript():
                return self._member(node, scope)
            case ast.Dict():
                return self._dict(node, scope)
            case ast.List() | ast.Tuple() | ast.Set():
                return self._list(node, scope)
            case ast.BinOp():
                return self._operation(node, scope)
            case ast.UnaryOp():
                return self._unary(node, scope)
            case ast.Call():
                return self._call(node, scope)
            case ast.JoinedStr():
                return self._text(node, scope)
            case ast.IfExp():
                return self._choice(node, scope)
            case ast.Compare() | ast.BoolOp():
                return self._condition(node, scope)
            case ast.ListComp(generators=[ast.comprehension(ifs=[])]):
                return self._comprehension(node, scope)
            case _:
                return self.undecided(node)

    def _member(self, node: ast.Attribute | ast.Subscript, scope: Scope) -> Tree:
        if (
            isinstance(node, ast.Subscript)
            and isinstance(node.value, ast.Attribute)
            and dotted(node.value) == _ENVIRONMENT
        ):
            return self._environment([node.slice], node, scope)
        owner = self.value(node.value, scope)
        key = node.attr if isinstance(node, ast.Attribute) else ""
        if isinstance(node, ast.Subscript):
            index = self.value(node.slice, scope) if not isinstance(node.slice, ast.Slice) else self.undecided(node)
            if not isinstance(index, Leaf) or index.needs:
                return self.undecided(node)
            is_negative = (
                isinstance(owner, Branch) and owner.is_list and isinstance(index.value, int) and index.value < 0
            )
            key = (
                str(int(index.value or 0) + len(owner.items))
                if is_negative and isinstance(owner, Branch)
                else str(index.value)
            )
        if isinstance(owner, Branch) and key in owner.items:
            return owner.items[key]
        return self.undecided(node)

    def _dict(self, node: ast.Dict, scope: Scope) -> Tree:
        made = Branch(line=node.lineno, file=self.file)
        for key, item in zip(node.keys, node.values, strict=True):
            value = self.value(item, scope)
            if key is None:
                if not isinstance(value, Branch):
                    return self.undecided(node, f"line {node.lineno}: ** of something undecided")
                made.items.update(value.items)
                continue
            name = self.value(key, scope)
            if isinstance(name, Leaf) and not name.needs:
                made.items[str(name.value)] = value
        return made

    def _list(self, node: ast.List | ast.Tuple | ast.Set, scope: Scope) -> Tree:
        entries: list[Tree] = []
        for each in node.elts:
            value = self.value(each.value if isinstance(each, ast.Starred) else each, scope)
            if not isinstance(each, ast.Starred):
                entries.append(value)
            elif isinstance(value, Branch):
                entries.extend(value.items.values())
            else:
                return self.undecided(node)
        return self._listed(entries, node)

    def _listed(self, entries: list[Tree], node: ast.AST) -> Branch:
        self._budget.spend(len(entries))
        items = {str(number): entry for number, entry in enumerate(entries)}
        return Branch(line=getattr(node, "lineno", 0), file=self.file, items=items, is_list=True)

    def _operation(self, node: ast.BinOp, scope: Scope) -> Tree:
        left, right = self.value(node.left, scope), self.value(node.right, scope)
        if (
            isinstance(left, Branch)
            and isinstance(right, Branch)
            and left.is_list
            and right.is_list
            and isinstance(node.op, ast.Add)
        ):
            return self._listed([*left.items.values(), *right.items.values()], node)
        if isinstance(left, Branch) and isinstance(right, Branch) and isinstance(node.op, ast.BitOr):
            return Branch(line=node.lineno, file=self.file, items={**left.items, **right.items})
        if isinstance(left, Branch) and left.is_list and isinstance(right, Leaf) and isinstance(node.op, ast.Mult):
            number = right.value if isinstance(right.value, int) and not right.needs else -1
            if 0 <= number * len(left.items) <= _MOST_REPEATED:
                return self._listed(list(left.items.values()) * number, node)
        if isinstance(left, Branch) or isinstance(right, Branch):
            return self.undecided(node)
        needs = tuple(dict.fromkeys((*left.needs, *right.needs)))
        if needs:
            return undecided_leaf(node.lineno, self.file, *needs)
        made = computed(node.op, left.value, right.value)
        assumes = tuple(dict.fromkeys((*left.assumes, *right.assumes)))
        return self.undecided(node) if made is None else self.leaf(made, node, assumes)

    def _unary(self, node: ast.UnaryOp, scope: Scope) -> Tree:
        operand = self.value(node.operand, scope)
        if isinstance(node.op, ast.Not):
            truth = self.truth(operand)
            return self.undecided(node) if truth is None else self.leaf(not truth, node)
        if (
            isinstance(operand, Leaf)
            and isinstance(operand.value, int | float)
            and isinstance(node.op, ast.USub | ast.UAdd)
        ):
            return self.leaf(-operand.value if isinstance(node.op, ast.USub) else operand.value, node)
        return self.undecided(node)

    def _text(self, node: ast.JoinedStr, scope: Scope) -> Tree:
        parts, needs = list[str](), list[str]()
        for each in node.values:
            formatted = isinstance(each, ast.FormattedValue) and (each.format_spec is not None or each.conversion != -1)
            value = self.value(each.value if isinstance(each, ast.FormattedValue) else each, scope)
            if formatted or not isinstance(value, Leaf) or value.needs:
                needs.extend(value.needs if isinstance(value, Leaf) and value.needs else [f"code:{excerpt(each, 60)}"])
            else:
                parts.append(str(value.value))
        text = "".join(parts)
        self._budget.write(len(text))
        return undecided_leaf(node.lineno, self.file, *needs) if needs else self.leaf(text, node)

    def _choice(self, node: ast.IfExp, scope: Scope) -> Tree:
        truth = self.truth(self.value(node.test, scope))
        if truth is None:
            return self.undecided(node)
        return self.value(node.body if truth else node.orelse, scope)

    def _condition(self, node: ast.Compare | ast.BoolOp, scope: Scope) -> Tree:
        if isinstance(node, ast.BoolOp):
            for each in node.values[:-1]:
                value = self.value(each, scope)
                truth = self.truth(value)
                if truth is None:
                    return self.undecided(node)
                if truth == isinstance(node.op, ast.Or):
                    return value
            return self.value(node.values[-1], scope)
        left, right = self.value(node.left, scope), self.value(node.comparators[0], scope)
        if len(node.ops) > 1 or not isinstance(left, Leaf) or left.needs:
            return self.undecided(node)
        if isinstance(node.ops[0], ast.In | ast.NotIn) and isinstance(right, Branch):
            entries = right.items.values() if right.is_list else [self.leaf(key, node) for key in right.items]
            is_in = any(isinstance(each, Leaf) and not each.needs and each.value == left.value for each in entries)
            return self.leaf(is_in == isinstance(node.ops[0], ast.In), node)
        if not isinstance(right, Leaf) or right.needs:
            return self.undecided(node)
        holds = compared(node.ops[0], left.value, right.value)
        return self.undecided(node) if holds is None else self.leaf(holds, node)

    def _comprehension(self, node: ast.ListComp, scope: Scope) -> Tree:
        values = self.value(node.generators[0].iter, scope)
        if not isinstance(values, Branch) or not values.is_list or len(values.items) > MOST_ITERATIONS:
            return self.undecided(node)
        entries: list[Tree] = []
        for each in values.items.values():
            inner = dict(scope)
            self._budget.spend(1 + len(scope) // 16)
            self.assign(node.generators[0].target, each, inner)
            entries.append(self.value(node.elt, inner))
        return self._listed(entries, node)

    def _call(self, node: ast.Call, scope: Scope) -> Tree:
        name = dotted(node.func) if isinstance(node.func, ast.Name | ast.Attribute) else ""
        if name in ("os.environ.get", "os.getenv"):
            return self._environment(node.args, node, scope)
        if any(isinstance(each, ast.Starred) for each in node.args):
            return self.undecided(node)
        positional = [self.value(each, scope) for each in node.args]
        named: Scope = {}
        for keyword in node.keywords:
            value = self.value(keyword.value, scope)
            if keyword.arg is not None:
                named[keyword.arg] = value
            elif isinstance(value, Branch):
                named.update(value.items)
            else:
                return self.undecided(node)
        if name in self.functions:
            return self.call(self.functions[name], positional, named, node.lineno)
        made = self._builtin(name, positional, node)
        if made is not None:
            return made
        if name == "dict" or name[:1].isupper() or name.rpartition(".")[2][:1].isupper() or named:
            return self._object(name, positional, named, node)
        return self.undecided(node)

    def _object(self, name: str, positional: list[Tree], named: Scope, node: ast.Call) -> Branch:
        """A call of a class or of a function elsewhere: its keyword arguments, and ``__class__``."""
        base = positional[0].items if name == "dict" and positional and isinstance(positional[0], Branch) else {}
        items: dict[str, Tree] = {} if name == "dict" else {CLASS: self.leaf(name, node)}
        if name != "dict":
            items |= {f"__{number}__": value for number, value in enumerate(positional)}
        return Branch(line=node.lineno, file=self.file, items={**items, **base, **named})

    def _builtin(self, name: str, positional: list[Tree], node: ast.Call) -> Tree | None:
        if name in _COPIES and len(positional) == 1 and size_within(positional[0]):
            return copy.deepcopy(positional[0])
        leaves = [each for each in positional if isinstance(each, Leaf)]
        if name == "len" and len(positional) == 1 and isinstance(positional[0], Branch):
            return self.leaf(len(positional[0].items), node)
        if name not in CONVERSIONS:
            return None
        if name in ("list", "tuple") and len(positional) == 1 and isinstance(positional[0], Branch):
            return positional[0]
        needs = [need for leaf in leaves for need in leaf.needs]
        if needs or len(leaves) < len(positional):
            return undecided_leaf(node.lineno, self.file, *(needs or [f"code:{excerpt(node, 60)}"]))
        return self._converted(name, leaves, node)

    def _converted(self, name: str, leaves: list[Leaf], node: ast.Call) -> Tree:
        values = [leaf.value for leaf in leaves]
        if name == "range":
            numbers = counted(values)
            return (
                self.undecided(node) if numbers is None else self._listed([self.leaf(n, node) for n in numbers], node)
            )
        made = converted(name, values)
        assumes = tuple(each for leaf in leaves for each in leaf.assumes)
        return self.undecided(node) if made is None else self.leaf(made, node, assumes)

    def _environment(self, arguments: list[ast.expr], node: ast.expr, scope: Scope) -> Tree:
        name = self.value(arguments[0], scope) if arguments else self.undecided(node)
        if not isinstance(name, Leaf) or not isinstance(name.value, str):
            return self.undecided(node)
        if name.value in self._env:
            return self.leaf(self._env[name.value], node)
        if len(arguments) < 2:
            return undecided_leaf(node.lineno, self.file, f"env:{name.value}")
        default = self.value(arguments[1], scope)
        if isinstance(default, Branch):
            return default
        return Leaf(
            value=default.value,
            line=node.lineno,
            file=self.file,
            needs=default.needs,
            assumes=(f"env:{name.value}={default.value}",),
        )

    def truth(self, value: Tree) -> bool | None:
        """Whether a value counts as true; None where that is open."""
        if isinstance(value, Branch):
            return None if CLASS in value.items else bool(value.items)
        return None if value.needs else bool(value.value)

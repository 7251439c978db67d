"""Values of a Python module as far as its syntax tree gives them."""

from __future__ import annotations

import ast
import copy
import operator
from collections.abc import Callable, Mapping
from typing import Final

from shardplan.errors import shortened
from shardplan.launch.read.facts import Scalar
from shardplan.launch.read.limits import MOST_ITERATIONS, Budget
from shardplan.launch.read.trees import Branch, Leaf, Tree, size, undecided_leaf

_OPERATIONS: Final[Mapping[type[ast.operator], Callable[[float, float], float]]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip
_COMPARISONS: Final[Mapping[type[ast.cmpop], Callable[..., bool]]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
}  # fmt: skip
_LARGEST: Final = 10**30
_MOST_TEXT: Final = 10_000
_MOST_COPIED: Final = 5_000
CLASS: Final = "__class__"

Scope = dict[str, Tree]
Function = ast.FunctionDef


class _Returned(Exception):  # noqa: N818 - a course that ends, not an error
    def __init__(self, value: Tree) -> None:
        super().__init__()
        self.value = value


class _Ended(Exception):  # noqa: N818 - as above
    pass


class Module:
    """One module, evaluated without running it."""

    def __init__(self, file: str, tree: ast.Module, env: Mapping[str, str], budget: Budget) -> None:
        self.file, self._tree, self._env, self._budget = file, tree, env, budget
        self.functions: dict[str, Function] = {}
        self.classes: dict[str, ast.ClassDef] = {}
        self.notes: list[str] = []
        self._globals: Scope = {}
        self._depth = 0
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                self.functions[node.name] = node
            elif isinstance(node, ast.ClassDef):
                self.classes[node.name] = node
        self._run_outside(tree.body, self._globals)

    def top(self) -> Branch:
        """What the module assigns."""
        items = {name: value for name, value in self._globals.items() if not name.startswith("__")}
        for name, node in self.classes.items():
            scope: Scope = dict(self._globals)
            known = set(scope)
            self._run_outside(node.body, scope)
            fields = {key: value for key, value in scope.items() if key not in known}
            if fields:
                items.setdefault(name, Branch(line=node.lineno, file=self.file, items=fields))
        return Branch(line=1, file=self.file, items=items)

    def call(self, function: Function, positional: list[Tree], named: Mapping[str, Tree], line: int) -> Tree:
        """What a function of the module returns."""
        self._depth += 1
        self._budget.enter()
        scope = self._bound(function, positional, named, line)
        value: Tree = Leaf(value=None, line=line, file=self.file)
        try:
            self._run(function.body, scope)
        except _Returned as returned:
            value = returned.value
        except _Ended:
            value = self._open(function, "a function that ends early")
        self._budget.leave()
        self._depth -= 1
        return value

    def _bound(self, function: Function, positional: list[Tree], named: Mapping[str, Tree], line: int) -> Scope:
        given = function.args
        names = [each.arg for each in (*given.posonlyargs, *given.args)]
        scope: Scope = dict(self._globals)
        defaults = dict(zip(names[len(names) - len(given.defaults) :], given.defaults, strict=True))
        keywords = zip((each.arg for each in given.kwonlyargs), given.kw_defaults, strict=True)
        defaults |= {name: default for name, default in keywords if default is not None}
        for name in (*names, *(each.arg for each in given.kwonlyargs)):
            if name in defaults:
                scope[name] = self.value(defaults[name], dict(self._globals))
            else:
                scope[name] = undecided_leaf(line, self.file, f"code:argument {name} of {function.name}")
        scope.update(zip(names, positional, strict=False))
        scope.update(named)
        if given.kwarg:
            extra = {key: value for key, value in named.items() if key not in names}
            scope[given.kwarg.arg] = Branch(line=line, file=self.file, items=extra)
        if given.vararg:
            rest = {str(n): value for n, value in enumerate(positional[len(names) :])}
            scope[given.vararg.arg] = Branch(line=line, file=self.file, items=rest, is_list=True)
        return scope

    # Statements

    def _run_outside(self, body: list[ast.stmt], scope: Scope) -> None:
        """Runs statements that are in no function."""
        try:
            self._run(body, scope)
        except (_Returned, _Ended):
            self.notes.append("the module ends before its last line")

    def _run(self, body: list[ast.stmt], scope: Scope) -> None:
        for node in body:
            self._budget.spend()
            self._statement(node, scope)

    def _statement(self, node: ast.stmt, scope: Scope) -> None:
        match node:
            case ast.Assign():
                value = self.value(node.value, scope)
                for target in node.targets:
                    self._assign(target, value, scope)
            case ast.AnnAssign(value=ast.expr() as expression):
                self._assign(node.target, self.value(expression, scope), scope)
            case ast.AugAssign():
                made = ast.copy_location(ast.BinOp(_as_load(node.target), node.op, node.value), node)
                self._assign(node.target, self.value(made, scope), scope)
            case ast.Return():
                raise _Returned(self.value(node.value, scope) if node.value else self._leaf(None, node))
            case ast.If():
                self._if(node, scope)
            case ast.For():
                self._for(node, scope)
            case ast.Expr(value=ast.Call() as call):
                self._effect(call, scope)
            case ast.With():
                self._run(node.body, scope)
            case ast.Raise():
                raise _Ended
            case ast.While() | ast.Try() | ast.Match() | ast.Delete():
                self._forget(node, scope)
            case _:
                pass

    def _if(self, node: ast.If, scope: Scope) -> None:
        truth = self._truth(self.value(node.test, scope))
        if truth is not None:
            self._run(node.body if truth else node.orelse, scope)
            return
        text = shortened(ast.unparse(node.test), 60)
        if _is_main(node.test):
            return
        if any(isinstance(each, ast.Return) for part in (*node.body, *node.orelse) for each in ast.walk(part)):
            raise _Returned(undecided_leaf(node.lineno, self.file, f"code:if {text}"))
        ends: list[Scope] = []
        for body in (node.body, node.orelse):
            self._budget.spend(1 + sum(size(value, _MOST_COPIED) for value in scope.values()) // 4)
            course = copy.deepcopy(scope)
            try:
                self._run(body, course)
                ends.append(course)
            except _Ended:
                pass
        if not ends:
            raise _Ended
        if len(ends) == 1:
            scope.update(ends[0])
            return
        for name in dict.fromkeys((*ends[0], *ends[1])):
            values = [end.get(name) for end in ends]
            if not _same(values[0], values[1]):
                scope[name] = self._either(values, node, text)

    def _either(self, values: list[Tree | None], node: ast.AST, text: str) -> Tree:
        """What holds after a branch that is not decidable: mappings key by key, all that differs undecided."""
        self._budget.spend()
        first, second = values
        if not isinstance(first, Branch) or not isinstance(second, Branch) or first.is_list or second.is_list:
            return first if first is not None and _same(first, second) else self._open(node, f"if {text}")
        keys = dict.fromkeys((*first.items, *second.items))
        items = {key: self._either([first.items.get(key), second.items.get(key)], node, text) for key in keys}
        return Branch(line=first.line, file=self.file, items=items)

    def _for(self, node: ast.For, scope: Scope) -> None:
        values = self.value(node.iter, scope)
        breaks = any(isinstance(each, ast.Break | ast.Continue) for part in node.body for each in ast.walk(part))
        if not isinstance(values, Branch) or len(values.items) > MOST_ITERATIONS or breaks:
            self._forget(node, scope)
            return
        entries = list(values.items.values()) if values.is_list else [self._leaf(key, node) for key in values.items]
        for entry in entries:
            self._assign(node.target, entry, scope)
            self._run(node.body, scope)

    def _forget(self, node: ast.stmt, scope: Scope) -> None:
        """Makes undecided what a statement that is not followed assigns."""
        self.notes.append(f"line {node.lineno}: {type(node).__name__.lower()} is not followed")
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name | ast.Attribute | ast.Subscript) and isinstance(inner.ctx, ast.Store):
                self._assign(inner, self._open(inner, f"line {node.lineno}"), scope)

    def _assign(self, target: ast.expr, value: Tree, scope: Scope) -> None:
        match target:
            case ast.Name():
                scope[target.id] = value
            case ast.Attribute():
                self._set(target.value, target.attr, value, scope)
            case ast.Subscript():
                key = self.value(target.slice, scope)
                if isinstance(key, Leaf) and not key.needs:
                    self._set(target.value, str(key.value), value, scope)
            case ast.Tuple() | ast.List():
                parts = list(value.items.values()) if isinstance(value, Branch) and value.is_list else []
                for number, inner in enumerate(target.elts):
                    found = parts[number] if len(parts) == len(target.elts) else self._open(inner, "unpacking")
                    self._assign(inner, found, scope)
            case _:
                pass

    def _set(self, owner: ast.expr, key: str, value: Tree, scope: Scope) -> None:
        """``owner.key = value``: mappings that are not there are made on the way."""
        found = self.value(owner, scope)
        if isinstance(found, Leaf) and isinstance(owner, ast.Name | ast.Attribute | ast.Subscript):
            found = Branch(line=owner.lineno, file=self.file, items={})
            self._assign(owner, found, scope)
        if isinstance(found, Branch) and _size_within(value):
            found.items.pop(key, None)
            found.items[key] = value

    def _effect(self, call: ast.Call, scope: Scope) -> None:
        """Calls whose result nobody takes: ``x.update(...)``, ``x.append(...)``, functions of the module."""
        if isinstance(call.func, ast.Attribute) and call.func.attr in ("update", "append", "extend", "setdefault"):
            owner = self.value(call.func.value, scope)
            arguments = [self.value(each, scope) for each in call.args if not isinstance(each, ast.Starred)]
            if isinstance(owner, Branch) and call.func.attr == "append" and owner.is_list and len(arguments) == 1:
                owner.items[str(len(owner.items))] = arguments[0]
            elif isinstance(owner, Branch) and call.func.attr == "update" and not owner.is_list:
                named = {each.arg: self.value(each.value, scope) for each in call.keywords if each.arg}
                first = arguments[0] if arguments and isinstance(arguments[0], Branch) else None
                owner.items.update({**(first.items if first else {}), **named})
        else:
            self.value(call, scope)

    # Expressions

    def _leaf(self, value: Scalar, node: ast.AST) -> Leaf:
        return Leaf(value=value, line=getattr(node, "lineno", 0), file=self.file)

    def _open(self, node: ast.AST, why: str = "") -> Leaf:
        text = why or shortened(ast.unparse(node), 80)
        return undecided_leaf(getattr(node, "lineno", 0), self.file, f"code:{text}")

    def value(self, node: ast.expr, scope: Scope) -> Tree:
        """The value of an expression; undecided where only running it would give it."""
        self._budget.spend()
        match node:
            case ast.Constant():
                return self._leaf(node.value if isinstance(node.value, str | int | float | bool) else None, node)
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
                return self._open(node)

    def _member(self, node: ast.Attribute | ast.Subscript, scope: Scope) -> Tree:
        if ast.unparse(node.value) == "os.environ" and isinstance(node, ast.Subscript):
            return self._environment([node.slice], node, scope)
        owner = self.value(node.value, scope)
        key = node.attr if isinstance(node, ast.Attribute) else ""
        if isinstance(node, ast.Subscript):
            index = self.value(node.slice, scope) if not isinstance(node.slice, ast.Slice) else self._open(node)
            if not isinstance(index, Leaf) or index.needs:
                return self._open(node)
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
        return self._open(node)

    def _dict(self, node: ast.Dict, scope: Scope) -> Tree:
        made = Branch(line=node.lineno, file=self.file)
        for key, item in zip(node.keys, node.values, strict=True):
            value = self.value(item, scope)
            if key is None:
                if not isinstance(value, Branch):
                    return self._open(node, f"line {node.lineno}: ** of something undecided")
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
                return self._open(node)
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
            if 0 <= number * len(left.items) <= 100_000:
                return self._listed(list(left.items.values()) * number, node)
        if isinstance(left, Branch) or isinstance(right, Branch):
            return self._open(node)
        needs = tuple(dict.fromkeys((*left.needs, *right.needs)))
        if needs:
            return undecided_leaf(node.lineno, self.file, *needs)
        made = _computed(node.op, left.value, right.value)
        assumes = tuple(dict.fromkeys((*left.assumes, *right.assumes)))
        return self._open(node) if made is None else Leaf(value=made, line=node.lineno, file=self.file, assumes=assumes)

    def _unary(self, node: ast.UnaryOp, scope: Scope) -> Tree:
        operand = self.value(node.operand, scope)
        if isinstance(node.op, ast.Not):
            truth = self._truth(operand)
            return self._open(node) if truth is None else self._leaf(not truth, node)
        if (
            isinstance(operand, Leaf)
            and isinstance(operand.value, int | float)
            and isinstance(node.op, ast.USub | ast.UAdd)
        ):
            return self._leaf(-operand.value if isinstance(node.op, ast.USub) else operand.value, node)
        return self._open(node)

    def _text(self, node: ast.JoinedStr, scope: Scope) -> Tree:
        parts, needs = list[str](), list[str]()
        for each in node.values:
            formatted = isinstance(each, ast.FormattedValue) and (each.format_spec is not None or each.conversion != -1)
            value = self.value(each.value if isinstance(each, ast.FormattedValue) else each, scope)
            if formatted or not isinstance(value, Leaf) or value.needs:
                needs.extend(
                    value.needs if isinstance(value, Leaf) and value.needs else [f"code:{ast.unparse(each)[:60]}"]
                )
            else:
                parts.append(str(value.value))
        text = "".join(parts)
        self._budget.write(len(text))
        return undecided_leaf(node.lineno, self.file, *needs) if needs else self._leaf(text, node)

    def _choice(self, node: ast.IfExp, scope: Scope) -> Tree:
        truth = self._truth(self.value(node.test, scope))
        if truth is None:
            return self._open(node)
        return self.value(node.body if truth else node.orelse, scope)

    def _condition(self, node: ast.Compare | ast.BoolOp, scope: Scope) -> Tree:
        if isinstance(node, ast.BoolOp):
            for each in node.values[:-1]:
                value = self.value(each, scope)
                truth = self._truth(value)
                if truth is None:
                    return self._open(node)
                if truth == isinstance(node.op, ast.Or):
                    return value
            return self.value(node.values[-1], scope)
        left, right = self.value(node.left, scope), self.value(node.comparators[0], scope)
        if len(node.ops) > 1 or not isinstance(left, Leaf) or left.needs:
            return self._open(node)
        if isinstance(node.ops[0], ast.In | ast.NotIn) and isinstance(right, Branch):
            entries = right.items.values() if right.is_list else [self._leaf(key, node) for key in right.items]
            is_in = any(isinstance(each, Leaf) and not each.needs and each.value == left.value for each in entries)
            return self._leaf(is_in == isinstance(node.ops[0], ast.In), node)
        compare = _COMPARISONS.get(type(node.ops[0]))
        if compare is None or not isinstance(right, Leaf) or right.needs:
            return self._open(node)
        try:
            return self._leaf(bool(compare(left.value, right.value)), node)
        except TypeError:
            return self._open(node)

    def _comprehension(self, node: ast.ListComp, scope: Scope) -> Tree:
        values = self.value(node.generators[0].iter, scope)
        if not isinstance(values, Branch) or not values.is_list or len(values.items) > MOST_ITERATIONS:
            return self._open(node)
        entries: list[Tree] = []
        for each in values.items.values():
            inner = dict(scope)
            self._budget.spend(1 + len(scope) // 16)
            self._assign(node.generators[0].target, each, inner)
            entries.append(self.value(node.elt, inner))
        return self._listed(entries, node)

    def _call(self, node: ast.Call, scope: Scope) -> Tree:
        name = ast.unparse(node.func) if isinstance(node.func, ast.Name | ast.Attribute) else ""
        if name in ("os.environ.get", "os.getenv"):
            return self._environment(node.args, node, scope)
        if any(isinstance(each, ast.Starred) for each in node.args):
            return self._open(node)
        positional = [self.value(each, scope) for each in node.args]
        named: Scope = {}
        for keyword in node.keywords:
            value = self.value(keyword.value, scope)
            if keyword.arg is not None:
                named[keyword.arg] = value
            elif isinstance(value, Branch):
                named.update(value.items)
            else:
                return self._open(node)
        if name in self.functions:
            return self.call(self.functions[name], positional, named, node.lineno)
        made = self._builtin(name, positional, node)
        if made is not None:
            return made
        if name == "dict" or name[:1].isupper() or name.rpartition(".")[2][:1].isupper() or named:
            return self._object(name, positional, named, node)
        return self._open(node)

    def _object(self, name: str, positional: list[Tree], named: Scope, node: ast.Call) -> Branch:
        """A call of a class or of a function elsewhere: its keyword arguments, and ``__class__``."""
        base = positional[0].items if name == "dict" and positional and isinstance(positional[0], Branch) else {}
        items: dict[str, Tree] = {} if name == "dict" else {CLASS: self._leaf(name, node)}
        if name != "dict":
            items |= {f"__{number}__": value for number, value in enumerate(positional)}
        return Branch(line=node.lineno, file=self.file, items={**items, **base, **named})

    def _builtin(self, name: str, positional: list[Tree], node: ast.Call) -> Tree | None:
        if (
            name in ("copy.deepcopy", "deepcopy", "copy.copy", "replace")
            and len(positional) == 1
            and _size_within(positional[0])
        ):
            return copy.deepcopy(positional[0])
        leaves = [each for each in positional if isinstance(each, Leaf)]
        if name == "len" and len(positional) == 1 and isinstance(positional[0], Branch):
            return self._leaf(len(positional[0].items), node)
        if name not in ("int", "float", "str", "bool", "range", "max", "min", "list", "tuple"):
            return None
        if name in ("list", "tuple") and len(positional) == 1 and isinstance(positional[0], Branch):
            return positional[0]
        needs = [need for leaf in leaves for need in leaf.needs]
        if needs or len(leaves) < len(positional):
            return undecided_leaf(node.lineno, self.file, *(needs or [f"code:{ast.unparse(node)[:60]}"]))
        return self._converted(name, [leaf.value for leaf in leaves], leaves, node)

    def _converted(self, name: str, values: list[Scalar], leaves: list[Leaf], node: ast.Call) -> Tree:
        kinds: dict[str, Callable[..., Scalar]] = {
            "int": int,
            "float": float,
            "str": str,
            "bool": bool,
            "max": max,
            "min": min,
        }
        try:
            if name == "range":
                numbers = [value for value in values if isinstance(value, int)]
                return self._listed([self._leaf(n, node) for n in range(*numbers)[: MOST_ITERATIONS + 1]], node)
            if name == "int" and isinstance(values[0], str) and len(values[0]) > 100:
                return self._open(node)
            made = kinds[name](*values)
        except (KeyError, TypeError, ValueError, OverflowError, IndexError):
            return self._open(node)
        assumes = tuple(each for leaf in leaves for each in leaf.assumes)
        return Leaf(value=made, line=node.lineno, file=self.file, assumes=assumes)

    def _environment(self, arguments: list[ast.expr], node: ast.expr, scope: Scope) -> Tree:
        name = self.value(arguments[0], scope) if arguments else self._open(node)
        if not isinstance(name, Leaf) or not isinstance(name.value, str):
            return self._open(node)
        if name.value in self._env:
            return self._leaf(self._env[name.value], node)
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

    def _truth(self, value: Tree) -> bool | None:
        if isinstance(value, Branch):
            return None if CLASS in value.items else bool(value.items)
        return None if value.needs else bool(value.value)


def _computed(sign: ast.operator, left: Scalar, right: Scalar) -> Scalar:
    """``left sign right`` of bounded size; None where it cannot be computed."""
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


def _as_load(target: ast.expr) -> ast.expr:
    made = copy.copy(target)
    if isinstance(made, ast.Name | ast.Attribute | ast.Subscript):
        made.ctx = ast.Load()
    return made


def _is_main(test: ast.expr) -> bool:
    return isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == "__name__"


def _same(left: Tree | None, right: Tree | None) -> bool:
    small = all(each is not None and _size_within(each) for each in (left, right))
    return left is right or (small and left == right)


def _size_within(tree: Tree) -> bool:
    """Whether a value is small enough to be put into another one or copied."""
    return size(tree, _MOST_COPIED) <= _MOST_COPIED

"""Configurations in Python: modules that are read, never run.

Without ``entry`` the document holds what the module assigns at its top level. With ``entry`` it holds what that
function returns: ``Trainer(model=Model(layers=32))`` becomes ``model.layers``; attributes that are assigned to it later
count. The class that a mapping was made by is under ``__class__``.
"""

from __future__ import annotations

import ast
import copy
import re
import warnings
from collections.abc import Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from re import Pattern
from typing import Final

from shardplan.base.errors import InputError
from shardplan.base.files import printable, read_text
from shardplan.launch.read.facts import Document
from shardplan.launch.read.python_expressions import Expressions, Scope, copied_size, excerpt, same, size_within
from shardplan.launch.read.trees import (
    LONG_FILE,
    MOST_ITERATIONS,
    Branch,
    Budget,
    Leaf,
    Tree,
    check_length,
    document,
    refuse,
    undecided_leaf,
    whole_characters,
)


class _Returned(Exception):  # noqa: N818 - a course that ends, not an error
    def __init__(self, value: Tree) -> None:
        super().__init__()
        self.value = value


class _Ended(Exception):  # noqa: N818 - as above
    pass


class Module(Expressions):
    """One module, evaluated without running it."""

    def __init__(self, file: str, tree: ast.Module, env: Mapping[str, str], budget: Budget) -> None:
        super().__init__(file, env, budget)
        self.functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        self.notes: list[str] = []
        self._classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        self._globals: Scope = {}
        self._body = tree.body
        self._run_outside(tree.body, self._globals)

    def started(self) -> Branch:
        """What its part for the program assigns and calls (``if __name__ == "__main__"``), calls by their name."""
        scope: Scope = dict(self._globals)
        known = set(scope)
        for node in (each for each in self._body if isinstance(each, ast.If) and _is_main(each.test)):
            for statement in node.body:
                if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
                    scope[excerpt(statement.value.func, 60)] = self.value(statement.value, scope)
                else:
                    self._run_outside([statement], scope)
        items = {name: value for name, value in scope.items() if name not in known}
        return Branch(line=1, file=self.file, items=items)

    def top(self) -> Branch:
        """What the module assigns."""
        items = {name: value for name, value in self._globals.items() if not name.startswith("__")}
        for name, node in self._classes.items():
            scope: Scope = dict(self._globals)
            known = set(scope)
            self._run_outside(node.body, scope)
            fields = {key: value for key, value in scope.items() if key not in known}
            if fields:
                items.setdefault(name, Branch(line=node.lineno, file=self.file, items=fields))
        return Branch(line=1, file=self.file, items=items)

    def call(self, function: ast.FunctionDef, positional: list[Tree], named: Mapping[str, Tree], line: int) -> Tree:
        """What a function of the module returns."""
        self._budget.enter()
        scope = self._bound(function, positional, named, line)
        value: Tree = Leaf(value=None, line=line, file=self.file)
        try:
            self._run(function.body, scope)
        except _Returned as returned:
            value = returned.value
        except _Ended:
            value = self.undecided(function, "a function that ends early")
        self._budget.leave()
        return value

    def _bound(self, function: ast.FunctionDef, positional: list[Tree], named: Mapping[str, Tree], line: int) -> Scope:
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
                    self.assign(target, value, scope)
            case ast.AnnAssign(value=ast.expr() as expression):
                self.assign(node.target, self.value(expression, scope), scope)
            case ast.AugAssign():
                made = ast.copy_location(ast.BinOp(_as_load(node.target), node.op, node.value), node)
                self.assign(node.target, self.value(made, scope), scope)
            case ast.Return():
                raise _Returned(self.value(node.value, scope) if node.value else self.leaf(None, node))
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
        truth = self.truth(self.value(node.test, scope))
        if truth is not None:
            self._run(node.body if truth else node.orelse, scope)
            return
        text = excerpt(node.test, 60)
        if _is_main(node.test):
            return
        if any(isinstance(each, ast.Return) for part in (*node.body, *node.orelse) for each in ast.walk(part)):
            raise _Returned(undecided_leaf(node.lineno, self.file, f"code:if {text}"))
        ends: list[Scope] = []
        for body in (node.body, node.orelse):
            self._budget.spend(1 + sum(copied_size(value) for value in scope.values()) // 4)
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
            if not same(values[0], values[1]):
                scope[name] = self._either(values, node, text)

    def _either(self, values: list[Tree | None], node: ast.AST, text: str) -> Tree:
        """What holds after a branch that is not decidable: mappings key by key, all that differs undecided."""
        self._budget.spend()
        first, second = values
        if not isinstance(first, Branch) or not isinstance(second, Branch) or first.is_list or second.is_list:
            return first if first is not None and same(first, second) else self.undecided(node, f"if {text}")
        keys = dict.fromkeys((*first.items, *second.items))
        items = {key: self._either([first.items.get(key), second.items.get(key)], node, text) for key in keys}
        return Branch(line=first.line, file=self.file, items=items)

    def _for(self, node: ast.For, scope: Scope) -> None:
        values = self.value(node.iter, scope)
        breaks = any(isinstance(each, ast.Break | ast.Continue) for part in node.body for each in ast.walk(part))
        if not isinstance(values, Branch) or len(values.items) > MOST_ITERATIONS or breaks:
            self._forget(node, scope)
            return
        entries = list(values.items.values()) if values.is_list else [self.leaf(key, node) for key in values.items]
        for entry in entries:
            self.assign(node.target, entry, scope)
            self._run(node.body, scope)

    def _forget(self, node: ast.stmt, scope: Scope) -> None:
        """Makes undecided what a statement that is not followed assigns."""
        self.notes.append(f"line {node.lineno}: {type(node).__name__.lower()} is not followed")
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name | ast.Attribute | ast.Subscript) and isinstance(inner.ctx, ast.Store):
                self.assign(inner, self.undecided(inner, f"line {node.lineno}"), scope)

    def assign(self, target: ast.expr, value: Tree, scope: Scope) -> None:
        """``target = value``."""
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
                    found = parts[number] if len(parts) == len(target.elts) else self.undecided(inner, "unpacking")
                    self.assign(inner, found, scope)
            case _:
                pass

    def _set(self, owner: ast.expr, key: str, value: Tree, scope: Scope) -> None:
        """``owner.key = value``: mappings that are not there are made on the way."""
        found = self.value(owner, scope)
        if isinstance(found, Leaf) and isinstance(owner, ast.Name | ast.Attribute | ast.Subscript):
            found = Branch(line=owner.lineno, file=self.file, items={})
            self.assign(owner, found, scope)
        if isinstance(found, Branch) and size_within(value):
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
            self._given_away(call, scope)

    def _given_away(self, call: ast.Call, scope: Scope) -> None:
        """A function of another file may set what is in its arguments: each keeps the call as ``name()``."""
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if isinstance(call.func, ast.Name) and (name in self.functions or name in self._classes or name == "print"):
            return
        for each in call.args:
            owner = self.value(each, scope) if isinstance(each, ast.Name | ast.Attribute) else None
            if isinstance(owner, Branch) and not owner.is_list:
                owner.items[f"{name}()"] = self.leaf(True, call)  # noqa: FBT003 - a value of the file
                self.notes.append(f"line {call.lineno}: {name} of another file may set more in {excerpt(each, 40)}")


def _as_load(target: ast.expr) -> ast.expr:
    made = copy.copy(target)
    if isinstance(made, ast.Name | ast.Attribute | ast.Subscript):
        made.ctx = ast.Load()
    return made


def _is_main(test: ast.expr) -> bool:
    return isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == "__name__"


SHORTER: Final = "give the function that is launched in a file of its own, or the plan by flags to `shardplan estimate`"
MOST_TOKENS: Final = 150_000
"""Names, numbers, strings and signs of a module: its syntax tree takes up to 0.7 kB for each. 40 kB have 10,000."""
_STRING: Final = (
    r'"""(?:[^"\\]++|\\.|"(?!""))*+(?:"""|\Z)|"(?:[^"\\\n]++|\\.)*+"?'
    r"|'''(?:[^'\\]++|\\.|'(?!''))*+(?:'''|\Z)|'(?:[^'\\\n]++|\\.)*+'?"
)
"""A string; one that does not end goes on to the end of the line or of the text."""
_TOKEN: Final = re.compile(rf"(?:\s++|#[^\n]*+)*+(?:{_STRING}|\w++|[^\w\s]|\Z)", re.DOTALL)
_ANY_TOKEN: Final = re.compile(r"\w++|[^\w\s]")
_FORMATTED: Final = re.compile(r"(?<![A-Za-z0-9_])(?:[fFtT][rR]?|[rR][fFtT])[\"']")


def read_python(path: Path, entry: str | None = None, *, env: Mapping[str, str] | None = None) -> Document:
    """What the module at ``path`` sets, or what its function ``entry`` returns. Raises ``InputError``."""
    return parse_python(read_text(path, LONG_FILE), str(path), entry, env=env)


def parse_python(text: str, file: str, entry: str | None = None, *, env: Mapping[str, str] | None = None) -> Document:
    """What a module given as text sets, or what its function ``entry`` returns. Raises ``InputError``."""
    file = printable(file)
    try:
        module = _module(text, file, env or {})
        if entry is None:
            return document(module.top(), "python", file, tuple(module.notes))
        return _returned(module, entry.removesuffix("()"), file)
    except RecursionError:
        refuse(file, "is nested too deep", "a configuration is shallow")


def python_parts(
    path: Path, entries: Pattern[str], *, env: Mapping[str, str] | None = None
) -> tuple[Document, Mapping[str, Document]]:
    """What a program sets at its top and in its part for the program, and what its functions of a pattern return.

    Functions of which reading does not decide what they return are left out. Raises ``InputError``.
    """
    file = printable(str(path))
    try:
        module = _module(read_text(path, LONG_FILE), file, env or {})
        top = module.top()
        top.items |= module.started().items
        found = {}
        for name in module.functions if len(module.functions) < MOST_ITERATIONS else ():
            with suppress(InputError):
                if entries.fullmatch(name):
                    found[name] = _returned(module, name, file)
        return document(top, "python", file, tuple(module.notes)), found
    except RecursionError:
        refuse(file, "is nested too deep", "a configuration is shallow")


def _module(text: str, file: str, env: Mapping[str, str]) -> Module:
    check_length(text, file)
    if len(text) > MOST_TOKENS and _has_many_tokens(text):
        refuse(file, f"has more than {MOST_TOKENS:,} names, numbers, texts and signs", LONG_FILE.rule, SHORTER)
    return Module(file, _syntax(whole_characters(text), file), env, Budget(file))


def _returned(module: Module, name: str, file: str) -> Document:
    """What a function returns. Raises ``InputError``."""
    if name not in module.functions:
        known = ", ".join(list(module.functions)[:20])
        hint = f"give one of {known}" if known else "give a file with functions"
        refuse(file, f"has no function {name}", "the entry is a function of the file", hint)
    found = module.call(module.functions[name], [], {}, module.functions[name].lineno)
    tree = found if isinstance(found, Branch) and not found.is_list else None
    if tree is None:
        needs = ", ".join(found.needs) if isinstance(found, Leaf) else ""
        refuse(file, f"does not say what {name}() returns: {needs or 'no mapping'}", "the function returns fields")
    return document(tree, "python", file, tuple(module.notes))


def syntax_of(path: Path) -> ast.Module:
    """The syntax of a module, which is not evaluated. Raises ``InputError``."""
    text, file = read_text(path, LONG_FILE), printable(str(path))
    if len(text) > MOST_TOKENS and _has_many_tokens(text):
        refuse(file, f"has more than {MOST_TOKENS:,} names, numbers, texts and signs", LONG_FILE.rule, SHORTER)
    return _syntax(whole_characters(text), file)


def functions_of(path: Path) -> tuple[str, ...]:
    """Public functions of a module that can be called without arguments, in order. Raises ``InputError``."""
    syntax = _syntax(whole_characters(read_text(path, LONG_FILE)), printable(str(path)))
    found = [node for node in syntax.body if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")]
    return tuple(node.name for node in found if len(node.args.args) == len(node.args.defaults))


def _has_many_tokens(text: str) -> bool:
    """Whether a syntax tree of ``text`` would be large. Strings with braces may hold expressions: all counts there."""
    pattern = _ANY_TOKEN if _FORMATTED.search(text) else _TOKEN
    return sum(1 for _ in islice(pattern.finditer(text), MOST_TOKENS + 1)) > MOST_TOKENS


def _syntax(text: str, file: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # escapes that are not known
            return ast.parse(text)
    except (SyntaxError, ValueError) as error:
        where = f" in line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        refuse(file, f"is not Python{where}: {getattr(error, 'msg', error)}", "the file is well formed")
    except (RecursionError, MemoryError):
        refuse(file, "is nested too deep", "a configuration is shallow")

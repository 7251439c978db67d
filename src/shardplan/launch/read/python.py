"""Python configurations, by their syntax tree: nothing is imported or run.

Without ``entry`` the document holds what the module assigns at its top level. With ``entry`` it holds what that
function returns: ``Trainer(model=Model(layers=32))`` becomes ``model.layers``; attributes that are assigned to it later
count. The class that a mapping was made by is under ``__class__``.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Final

from shardplan.files import printable, read_text
from shardplan.launch.read.facts import Document
from shardplan.launch.read.limits import LONG_FILE, Budget, check_length, refuse, whole_characters
from shardplan.launch.read.python_module import Module
from shardplan.launch.read.trees import Branch, Leaf, document

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
    check_length(text, file)
    if len(text) > MOST_TOKENS and _has_many_tokens(text):
        refuse(file, f"has more than {MOST_TOKENS:,} names, numbers, texts and signs", LONG_FILE.rule, SHORTER)
    syntax = _syntax(whole_characters(text), file)
    try:
        module = Module(file, syntax, env or {}, Budget(file))
        if entry is None:
            return document(module.top(), "python", file, tuple(module.notes))
        name = entry.removesuffix("()")
        if name not in module.functions:
            refuse(file, f"has no function {name}", "the entry is a function of the file", _known(module))
        found = module.call(module.functions[name], [], {}, module.functions[name].lineno)
        tree = found if isinstance(found, Branch) and not found.is_list else None
        if tree is None:
            needs = ", ".join(found.needs) if isinstance(found, Leaf) else ""
            refuse(file, f"does not say what {name}() returns: {needs or 'no mapping'}", "the function returns fields")
        return document(tree, "python", file, tuple(module.notes))
    except RecursionError:
        refuse(file, "is nested too deep", "a configuration is shallow")


def functions_of(path: Path) -> tuple[str, ...]:
    """Public functions of a module that can be called without arguments, in order. Raises ``InputError``."""
    syntax = _syntax(whole_characters(read_text(path, LONG_FILE)), printable(str(path)))
    found = [node for node in syntax.body if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")]
    return tuple(node.name for node in found if len(node.args.args) == len(node.args.defaults))


def _has_many_tokens(text: str) -> bool:
    """Whether a syntax tree of ``text`` would be large. Strings with braces may hold expressions: all counts there."""
    pattern = _ANY_TOKEN if _FORMATTED.search(text) else _TOKEN
    return sum(1 for _ in islice(pattern.finditer(text), MOST_TOKENS + 1)) > MOST_TOKENS


def _known(module: Module) -> str:
    return f"give one of {', '.join(list(module.functions)[:20])}" if module.functions else "give a file with functions"


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

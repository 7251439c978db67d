"""Docstrings as Markdown: equations and cross references of the code, in the notation that mkdocs reads."""

from __future__ import annotations

import re
import textwrap
from typing import Any

from griffe import Alias, Extension, Module, Object

DIRECTIVE = re.compile(
    r"^(?P<indent> *)\.\. math::[ \t]*(?P<line>.*)\n?(?P<block>(?:(?:(?P=indent) +.*)?\n)*)", re.MULTILINE
)
INLINE_MATH = re.compile(r":math:`(.+?)`", re.DOTALL)
REFERENCE = re.compile(r":[a-z]+:`~?([^`]+)`")


class MarkdownDocstrings(Extension):
    """Rewrites every docstring that griffe collects, and says that our dataclasses are such."""

    def on_module_members(self, *, mod: Module, **_: Any) -> None:
        """Called by griffe for each module: it gives the signature of a dataclass to those of the standard library."""
        imported = mod.members.get("dataclass")
        if isinstance(imported, Alias) and imported.target_path == "shardplan.base.fields.dataclass":
            imported.target_path = "dataclasses.dataclass"

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Called by griffe for each module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)


def markdown(docstring: str) -> str:
    r"""``docstring`` with reStructuredText equations and references written as Markdown.

    >>> markdown(":func:`ring` takes :math:`\\alpha n`.")
    '`ring` takes $\\alpha n$.'
    """
    text = DIRECTIVE.sub(_display_equation, docstring + "\n")
    text = INLINE_MATH.sub(lambda match: f"${' '.join(match[1].split())}$", text)
    return REFERENCE.sub(r"`\1`", text).rstrip()


def _display_equation(match: re.Match[str]) -> str:
    equations = [match["line"].strip(), *re.split(r"\n\s*\n", textwrap.dedent(match["block"]))]
    return "".join(f"\n$$\n{equation.strip()}\n$$\n\n" for equation in equations if equation.strip())

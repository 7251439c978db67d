"""What mkdocs runs while it builds.

Equations become MathML, and pages that load from other hosts are refused. Two directives draw tables from the code:
``::fields module.Class`` the fields of a dataclass, ``::table module.MAPPING`` the instances that a mapping holds.
"""

from __future__ import annotations

import html
import importlib
import re
import sys
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import griffe
from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "docs"))

from docstrings import markdown  # noqa: E402  # the folder of this file is on the path only from here on

EQUATION = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
FIELDS = re.compile(r"^::fields (?P<path>[\w.]+)$", re.MULTILINE)
TABLE = re.compile(r"^::table (?P<module>[\w.]+)\.(?P<name>\w+)$", re.MULTILINE)
LOADED = re.compile(
    r"""(?:<(?:script|img|iframe|source)\b[^>]*?\bsrc=|<link\b[^>]*?\bhref=)["']?((?:https?:)?//[^"'\s>]+)"""
)


def on_page_markdown(text: str, **_: Any) -> str:
    """Tables in place of their directives."""
    text = FIELDS.sub(lambda match: _fields(match["path"]), text)
    return TABLE.sub(lambda match: _table(getattr(importlib.import_module(match["module"]), match["name"])), text)


def on_page_content(content: str, *, page: Any, **_: Any) -> str:
    """Equations of a page as MathML, which browsers draw without a script. Raises ``PluginError`` for unknown TeX."""
    return EQUATION.sub(lambda match: _mathml(match[2], page.file.src_path, is_block=match[1] == "div"), content)


def on_post_build(*, config: Any, **_: Any) -> None:
    """Refuses pages that load scripts, styles or images from other hosts. Raises ``PluginError``."""
    for path in sorted(Path(config["site_dir"]).rglob("*.html")):
        if found := LOADED.findall(path.read_text(encoding="utf-8")):
            message = f"{path.name} loads from other hosts: {', '.join(sorted(set(found)))}"
            raise PluginError(message)


def _mathml(escaped: str, page: str, *, is_block: bool) -> str:
    tex = html.unescape(escaped).strip()
    drawn = convert(tex, display="block" if is_block else "inline")
    if "\\" in drawn:
        message = f"{page}: no MathML for {tex}"
        raise PluginError(message)
    return f'<div class="equation">{drawn}</div>' if is_block else drawn


@cache
def _package() -> griffe.Object | griffe.Alias:
    return griffe.load("shardplan", search_paths=[str(ROOT / "src")])


def _fields(path: str) -> str:
    """Markdown table of the fields of a dataclass: name, type, default and the text beneath each."""
    record = _package()[path.removeprefix("shardplan.")]
    rows = [
        f"| `{field.name}` | {_type(field)} | {_default(field)} | {_one_line(field.docstring)} |"
        for field in record.attributes.values()
        if "property" not in field.labels and not field.name.startswith("_")
    ]
    return "\n".join(["| field | type | default | meaning |", "|---|---|---|---|", *rows])


def _table(records: dict[str, Any]) -> str:
    """Markdown table of dataclass instances: a column for each, a row for each field."""
    first = next(iter(records.values()))
    texts = _package()[f"{type(first).__module__}.{type(first).__name__}".removeprefix("shardplan.")].attributes
    columns = [" ", *(f"`{name}`" for name in records)]
    rows = [
        [_one_line(texts[field.name].docstring), *(_value(getattr(record, field.name)) for record in records.values())]
        for field in fields(first)
    ]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (columns, ["---"] * len(columns), *rows))


def _value(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _type(field: griffe.Attribute) -> str:
    """The annotation; the choices where it is a ``Literal``, under a name of its module or not."""
    names = [name.strip() for name in str(field.annotation).split("|")]
    return " or ".join(_choices(_resolved(name, field)) or f"`{name}`" for name in names if name != "None")


def _choices(annotation: str) -> str:
    literal = re.fullmatch(r"Literal\[(.*)\]", annotation, re.DOTALL)
    return ", ".join(f"`{choice}`" for choice in re.findall(r"""["']([^"']+)["']""", literal[1])) if literal else ""


def _default(field: griffe.Attribute) -> str:
    if field.value is None:
        return "required"
    value = _resolved(str(field.value), field).strip("'\"")
    return "" if value in ("None", "()") or "default_factory" in value else f"`{value}`"


def _resolved(name: str, field: griffe.Attribute) -> str:
    """The value of ``name`` where the field's module defines it, else ``name``."""
    defined = field.module.attributes.get(name)
    return name if defined is None or defined.value is None else str(defined.value)


def _one_line(docstring: griffe.Docstring | None) -> str:
    return "" if docstring is None else " ".join(markdown(docstring.value).split()).replace("|", "\\|")

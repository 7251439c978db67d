"""Tables that the documentation draws from the code and its data."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import griffe
import yaml
from docstrings import markdown

ROOT = Path(__file__).parent.parent


@cache
def _package() -> griffe.Object | griffe.Alias:
    return griffe.load("shardplan", search_paths=[str(ROOT / "src")])


def fields_of(path: str) -> str:
    """Markdown table of the fields of a dataclass: name, type, default and the text beneath each."""
    record = _package()[path.removeprefix("shardplan.")]
    rows = [
        f"| `{field.name}` | {_type(field)} | {_default(field)} | {_one_line(field.docstring)} |"
        for field in record.attributes.values()
        if "property" not in field.labels and not field.name.startswith("_")
    ]
    return "\n".join(["| field | type | default | meaning |", "|---|---|---|---|", *rows])


def instances(path: str) -> str:
    """Markdown table of the dataclass instances that a mapping holds: a column for each, a row for each field."""
    module, _, name = path.rpartition(".")
    records: dict[str, Any] = getattr(importlib.import_module(module), name)
    first = next(iter(records.values()))
    texts = _package()[f"{type(first).__module__}.{type(first).__name__}".removeprefix("shardplan.")].attributes
    columns = [" ", *(f"`{name}`" for name in records)]
    rows = [
        [_one_line(texts[field.name].docstring), *(_value(getattr(record, field.name)) for record in records.values())]
        for field in fields(first)
    ]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (columns, ["---"] * len(columns), *rows))


@cache
def _profiles() -> dict[str, dict[str, Any]]:
    """Constants of every calibration profile by generation, the defaults first."""
    files = sorted(
        (ROOT / "src/shardplan/data/profiles").glob("*.yaml"), key=lambda path: (path.stem != "default", path.stem)
    )
    return {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in files}


def constants(*names: str) -> str:
    """Markdown table of constants: meaning, and a row with value and source for each generation that has its own."""
    rows = [row for name in names for row in _constant_rows(name)]
    return "\n".join(["| constant | accelerators | value | source |", "|---|---|---|---|", *rows])


def _constant_rows(name: str) -> Iterator[str]:
    meaning = _one_line(_package()["inputs.profile.Profile"].attributes[name].docstring)
    title = f"`{name}`<br>{meaning}"
    for generation, profile in _profiles().items():
        if name in profile:
            constant = profile[name]
            whose = "all" if generation == "default" else generation
            source = str(constant["source"]).replace("|", "\\|")
            yield f"| {title} | {whose} | {_constant(constant['value'])} [{constant['unit']}] | {source} |"
            title = ""


def _constant(value: float | dict[str, float]) -> str:
    return (
        ", ".join(f"{key} {float(part):g}" for key, part in value.items())
        if isinstance(value, dict)
        else f"{float(value):g}"
    )


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


DIRECTIVES: dict[str, Callable[..., str]] = {"fields": fields_of, "instances": instances, "constants": constants}
"""Name of a directive to the table it draws."""

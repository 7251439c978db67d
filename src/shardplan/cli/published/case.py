"""A case of a published method from a file: one by itself, or one of a reference file."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from shardplan.base.errors import InputError, UnknownNameError
from shardplan.base.fields import dataclass
from shardplan.cli.flags.flag import flag

if TYPE_CHECKING:
    from shardplan.answers.document import AnswerDocument
    from shardplan.base.outputs import JsonTarget
    from shardplan.methods.base import Method


MOST_NAMED = 8

Case = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class CaseFlags:
    """Where a case comes from."""

    input: Annotated[
        Path | None,
        flag(
            "A case as a JSON or YAML file, or a reference file; flags that are given replace what it has.",
            panel="Case",
            metavar="FILE",
        ),
    ] = None
    case: Annotated[
        str | None,
        flag("Which case of a reference file: its name, or its number from 1.", panel="Case", metavar="NAME|N"),
    ] = None


def read_case(flags: CaseFlags, method: Method) -> Case:
    """The case that the flags point to; empty where they point nowhere. Raises InputError."""
    from shardplan.base.files import read_text
    from shardplan.methods.check import REFERENCE

    if flags.input is None:
        if flags.case is not None:
            raise InputError("--case is given without --input", rule="a case is one of a file", hint="add --input FILE")
        return {}
    text, label = read_text(flags.input, REFERENCE), str(flags.input)
    cases = _cases(text, label, method)
    if isinstance(cases, dict):
        if flags.case is not None:
            raise InputError(
                f"{label} is one case by itself", rule="--case picks from a reference file", hint="leave out --case"
            )
        return cases
    return _picked(cases, flags.case, label)


def show_answer(document: AnswerDocument, target: JsonTarget, *, is_silent: bool = False) -> int:
    """Writes the record of an answer and, unless that or something else is on standard output, prints it; exit code."""
    from shardplan.render.page import Page
    from shardplan.render.record import document_record
    from shardplan.render.terminal import show

    target.write(document_record(document))
    if not (is_silent or target.is_stdout):
        show(Page(), document)
    return 0 if document.is_yes else 1


def section(path: Path, name: str) -> Any:
    """The mapping of a file, or the part of it that is called ``name``. Raises InputError."""
    from shardplan.base.files import parse_document, read_text
    from shardplan.methods.check import REFERENCE

    document = parse_document(read_text(path, REFERENCE), label=str(path), is_json=path.suffix.lower() == ".json")
    return document.get(name, document)


def merged(base: Mapping[str, Any], given: Mapping[str, Any]) -> Case:
    """``base`` with the given fields in place of its own, part by part."""
    result = dict(base)
    for name, value in given.items():
        before = result.get(name)
        nested = isinstance(value, Mapping) and isinstance(before, Mapping)
        result[name] = merged(before, value) if nested else value  # type: ignore[arg-type]  # a mapping, as checked
    return result


def _cases(text: str, label: str, method: Method) -> Case | list[tuple[str, Case]]:
    """One case, or the cases of a reference file by name."""
    from shardplan.base.files import parse_document

    if label.lower().endswith(".csv"):
        return [(f"row {number}", row) for number, row in enumerate(_rows(text, label), start=1)]
    document = parse_document(text, label=label, is_json=label.lower().endswith(".json"))
    is_reference = isinstance(document.get("cases"), list) or method.cases(text) is not None
    return list(_entries(document)) if is_reference else document


def _rows(text: str, label: str) -> list[Case]:
    try:
        records = list(csv.DictReader(io.StringIO(text.removeprefix("\ufeff"))))
    except csv.Error as error:
        raise InputError(f"{label} is no table: {error}", rule="a CSV file holds rows", hint="correct it") from None
    return [{str(name): _value(value) for name, value in record.items() if value} for record in records]


def _value(text: Any) -> Any:
    """A cell as a number where it is one."""
    try:
        value = float(text)
    except (TypeError, ValueError):
        return text
    return int(value) if value.is_integer() else value


def _entries(document: Mapping[str, Any]) -> Iterator[tuple[str, Case]]:
    """The cases of a reference file under the names that ``published check`` gives them."""
    for key, value in document.items():
        if isinstance(value, list):
            for index, case in enumerate(value):
                if isinstance(case, dict):
                    yield str(case.get("name", f"{key}[{index}]")), case
        elif isinstance(value, dict) and any(isinstance(part, dict) for part in value.values()):
            yield key, value


def _picked(cases: list[tuple[str, Case]], wanted: str | None, label: str) -> Case:
    if wanted is None and len(cases) == 1:
        return cases[0][1]
    names = [name for name, _ in cases]
    shown = ", ".join(repr(name) for name in names[:MOST_NAMED]) + (" ..." if len(names) > MOST_NAMED else "")
    if not cases:
        raise InputError(f"{label} holds no case", rule="a reference file holds cases", hint="give another file")
    if wanted is None:
        raise InputError(
            f"{label} holds {len(cases)} cases",
            rule="one case is answered",
            hint=f"add --case NAME or a number from 1: {shown}",
        )
    if wanted.isdecimal() and 1 <= int(wanted[:12]) <= len(cases):
        return cases[int(wanted[:12]) - 1][1]
    for name, case in cases:
        if name == wanted:
            return case
    raise UnknownNameError("case", wanted[:80], names, hint=f"cases: {shown}, or a number from 1 to {len(cases)}")

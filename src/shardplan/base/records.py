"""Records in files: written from dataclasses, read by pydantic, and refused with our errors."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, get_args, get_type_hints

from shardplan.base.errors import InputError, ShardplanError, nearest_names, shown
from shardplan.base.fields import KEY
from shardplan.base.words import joined

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError
    from pydantic_core import ErrorDetails

    Read = TypeVar("Read", bound=BaseModel)

Record = dict[str, Any]


def plain(value: Any) -> Any:
    """A value in the form of JSON: fields by key, lists, numbers of Python; null for numbers that are not finite."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(part) for part in value]
    if dataclasses.is_dataclass(value):
        return {key: plain(getattr(value, name)) for name, key in keys(type(value)).items()}
    return plain(value.tolist()) if hasattr(value, "tolist") else str(value)  # numbers and arrays of NumPy


def keys(kind: Any) -> Mapping[str, str]:
    """Keys in a file of the fields of a dataclass."""
    return _keys(kind)


@cache
def _keys(kind: Any) -> Mapping[str, str]:
    return {field.name: field.metadata.get(KEY, field.name) for field in dataclasses.fields(kind)}


def field_values(kind: Any, source: object) -> Record:
    """The values in ``source`` of the fields of a dataclass."""
    return {name: getattr(source, name) for name in keys(kind)}


def schema_fields(kind: Any, /, **others: Any) -> Record:
    """Type, default and key of every field of a dataclass, for ``pydantic.create_model``; and ``others``."""
    from pydantic import Field

    hints = get_type_hints(kind)
    known: Record = {}
    for each in dataclasses.fields(kind):
        default: Any = {"default": ... if each.default is dataclasses.MISSING else each.default}
        if each.default_factory is not dataclasses.MISSING:
            default = {"default_factory": each.default_factory}
        known[each.name] = (hints[each.name], Field(alias=keys(kind)[each.name], **default))
    return known | others


EXPECTED: Final = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "a text",
    "string_too_short": "a longer text",
    "too_short": "a longer list",
    "bool_type": "true or false",
    "model_type": "a set of fields",
    "dataclass_type": "a set of fields",
    "dict_type": "a set of fields",
    "list_type": "a list",
    "tuple_type": "a list",
    "sequence_type": "a list",
}
"""Descriptions of what a value must be, by pydantic's name of the problem; its own words for the rest."""
MOST_NAMES: Final = 12
"""Most names of fields that an error lists."""
NOT_A_FIELD: Final = ("extra_forbidden", "unexpected_keyword_argument")


class RecordFormat(NamedTuple):
    """A kind of record, and its errors."""

    rule: str
    """Its rule in errors."""
    otherwise: str = ""
    """An alternative to correcting it."""
    fields_in: str = "docs/output.md"
    """What lists its fields, if they are too many to name."""

    def read(self, kind: type[Read], record: object, *, label: str = "", root: str = "", as_json: bool = False) -> Read:
        """``record`` with every value of its type. Raises InputError.

        ``label`` names its file and ``root`` its place there; ``as_json`` lets strict validation take lists for tuples.
        """
        from pydantic import ValidationError

        try:
            return kind.model_validate_json(json.dumps(record)) if as_json else kind.model_validate(record)
        except ValidationError as error:
            raise self._first_problem(error, kind, record, label, root) from None
        except (ValueError, RecursionError) as error:
            raise self.wrong(root or "the file", f"cannot be read: {error}", label=label) from None

    def wrong(self, place: str, why: str, *, label: str = "", fix: str = "") -> InputError:
        """The error for the value at ``place``; ``fix`` says what to do if it is not to be corrected."""
        hints = (fix or f"correct {place}", self.otherwise)
        return InputError(_labelled(label, f"{place} {why}"), rule=self.rule, hint=", or ".join(filter(None, hints)))

    def _first_problem(
        self, error: ValidationError, kind: type[BaseModel], record: object, label: str, root: str
    ) -> InputError:
        """The error for the first problem that pydantic found, with the number of values that have one."""
        found: dict[tuple[int | str, ...], list[ErrorDetails]] = {}
        for each in error.errors(include_url=False):
            found.setdefault(_place(record, each), []).append(each)
        first = min(found, key=lambda at: found[at][0]["type"] not in NOT_A_FIELD)  # it may explain a missing one
        first = max((at for at in found if at[: len(first)] == first), key=len)  # furthest into a union
        place = ".".join(f"{part!s:.60}" for part in (root, *first) if part != "") or "it"
        cause = found[first][0].get("ctx", {}).get("error")
        if isinstance(cause, ShardplanError):
            return InputError(_labelled(label, f"{place}: {cause.message}"), rule=cause.rule, hint=cause.hint)
        why, fix = _reason_and_fix(found[first], place, kind, self.fields_in)
        others = [at for at in found if at != first[: len(at)]]
        more = f" (and {len(others)} more)" if others else ""
        return self.wrong(place, why + more, label=label, fix=fix)


def _place(record: object, problem: ErrorDetails) -> tuple[int | str, ...]:
    """Where a problem is: keys and indices, without the choices of a union that pydantic names between them."""
    place: list[int | str] = []
    for part in problem["loc"]:
        known = record if isinstance(record, Mapping) else dict(enumerate(record)) if isinstance(record, list) else {}
        if part in known or (problem["type"] == "missing" and part == problem["loc"][-1]):
            place.append(part)
            record = known.get(part)
    return tuple(place)


def _labelled(label: str, text: str) -> str:
    return f"{label}: {text}" if label else text


def _reason_and_fix(
    problems: Sequence[ErrorDetails], place: str, kind: type[BaseModel], fields_in: str
) -> tuple[str, str]:
    """Why a value is wrong, and what to do about it if it is not to be corrected. ``problems``: as each of a union."""
    problem = next((each for each in problems if not each["type"].endswith(("_type", "_mismatch"))), problems[0])
    if problem["type"] == "missing":
        return "is missing", f"give {place}"
    if problem["type"] in NOT_A_FIELD:
        *path, name = problem["loc"]
        known = _names(kind, path)
        nearest = " or ".join(nearest_names(str(name), known))
        guess = f": did you mean {nearest}?" if nearest else ""
        listed = f"one of {', '.join(known)}" if len(known) <= MOST_NAMES else f"a field that {fields_in} lists"
        return f"is not a field of this format{guess}", f"use {nearest or listed}"
    kinds = dict.fromkeys(EXPECTED[each["type"]] for each in problems if each["type"] in EXPECTED)
    said = problem["msg"].removeprefix("Value error, ")
    for start in ("Input should", "String should"):
        said = said.replace(start, "it must")
    must = f"it must be {joined(kinds, last='or')}" if problem["type"] in EXPECTED else said
    return f"is {shown(problem['input'])}: {must}", ""


def _names(kind: object, path: Sequence[int | str]) -> list[str]:
    """Names of the fields of the record at ``path``."""
    kinds = list(_kinds(kind))
    for part in path:  # indices of lists, keys of mappings and choices of a union are not fields
        hints = [hint for one in kinds for name, hint in _hints(one) if name == part]
        kinds = [inner for hint in hints for inner in _kinds(hint)] if hints else kinds
    return [name for one in kinds for name, _ in _hints(one)]


def _kinds(hint: object) -> Iterator[Any]:
    """Classes with fields in a type."""
    if hasattr(hint, "model_fields") or (isinstance(hint, type) and dataclasses.is_dataclass(hint)):
        yield hint
    for inner in get_args(hint):
        yield from _kinds(inner)


def _hints(kind: Any) -> list[tuple[str, object]]:
    """Fields of a class by their names in a file, and their types."""
    if hasattr(kind, "model_fields"):
        return [(field.alias or name, field.annotation) for name, field in kind.model_fields.items()]
    hints = get_type_hints(kind)
    return [(field.name, hints[field.name]) for field in dataclasses.fields(kind)]

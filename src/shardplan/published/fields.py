"""Fields of a case that nobody vouches for: known, complete, of their type and range, or an error that names one."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Annotated, Any, Final, TypeVar, get_args

from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from shardplan.errors import InputError, nearest_names

LARGEST: Final = 1e30
"""Products of a few numbers up to this stay finite."""
MOST: Final = 2**31

Positive = Annotated[float, Field(ge=1 / LARGEST, le=LARGEST)]
"""A number above zero, of which a few can be multiplied and divided."""


def _whole(value: object) -> object:
    """A whole number that is written as a float, as an integer."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Whole = Annotated[int, BeforeValidator(_whole)]
"""A whole number; ``64.0`` is one."""
Count = Annotated[Whole, Field(ge=1, le=MOST)]
"""A whole number from one to 2^31."""


class StrictFields(BaseModel, extra="forbid", strict=True, frozen=True, allow_inf_nan=False):
    """Fields that are known, of exactly their type, and finite."""


Read = TypeVar("Read", bound=StrictFields)


def read_fields(kind: type[Read], case: Mapping[str, Any], *, owner: str, results: Collection[str] = ()) -> Read:
    """The fields of ``case``; its name and published ``results`` beside them are passed over. Raises ``InputError``."""
    if not isinstance(case, Mapping):
        raise InputError(f"{owner}: a case is a set of fields, not {_shown(case)}", rule="a case has named fields")
    given = {name: value for name, value in case.items() if name != "name" and name not in results}
    label = f"{owner}, case '{case['name']:.60}'" if isinstance(case.get("name"), str) else owner
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        raise _refusal(error, kind, label) from None


def json_object(text: str) -> Mapping[str, Any] | None:
    """The object that a JSON text holds; None where it is no JSON or holds something else."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


_EXPECTED: Final = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "a text",
    "bool_type": "true or false",
    "model_type": "a set of fields",
    "dict_type": "a set of fields",
    "list_type": "a list",
    "sequence_type": "a list",
}


def _refusal(error: ValidationError, kind: type[StrictFields], label: str) -> InputError:
    problems = error.errors(include_url=False)
    first = min(problems, key=lambda problem: problem["type"] != "extra_forbidden")  # it may explain a missing one
    where = [str(name)[:60] for name in first["loc"]]
    name = ".".join(where) or "the case"
    if first["type"] == "missing":
        why, hint = "is missing", f"give {name}"
    elif first["type"] == "extra_forbidden":
        siblings = _siblings(kind, where[:-1])
        guess = nearest_names(where[-1], siblings)
        why, hint = (
            "is not a field",
            f"did you mean {' or '.join(guess)}?" if guess else f"known: {', '.join(siblings)}",
        )
    else:
        must = _EXPECTED.get(first["type"], "")
        why = f"is {_shown(first['input'])}: " + (f"it must be {must}" if must else _plain(first["msg"]))
        hint = f"correct {name}"
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return InputError(
        f"{label}: {name} {why}{more}", rule="the fields of a case are known, complete and right", hint=hint
    )


def _siblings(kind: type[BaseModel], path: list[str]) -> list[str]:
    """Names of the fields beside the one at the end of ``path``."""
    for name in path:
        field = kind.model_fields.get(name)
        choices = get_args(field.annotation) or (field.annotation,) if field is not None else ()
        inner = [choice for choice in choices if isinstance(choice, type) and issubclass(choice, BaseModel)]
        if not inner:
            return []
        kind = inner[0]
    return list(kind.model_fields)


def _plain(message: str) -> str:
    return message.replace("Input should be", "it must be").replace("Value error, ", "")


def _shown(value: object) -> str:
    if isinstance(value, int) and abs(value) >= 10**30:
        return "a number of more than 30 digits"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."

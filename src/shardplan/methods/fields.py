"""Strict checks of a case's fields: known, complete, of their type and range, or an error that names one."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Annotated, Any, Final, TypeVar

from pydantic import BaseModel, BeforeValidator, Field

from shardplan.base.errors import InputError, shown
from shardplan.base.records import RecordFormat

CASE: Final = RecordFormat("the fields of a case are known, complete and right")
LARGEST: Final = 1e30
"""Products of a few numbers up to this stay finite."""
MOST: Final = 2**31

Positive = Annotated[float, Field(ge=1 / LARGEST, le=LARGEST)]
"""A number above zero, of which a few can be multiplied and divided."""


def _whole(value: object) -> object:
    """A whole number written as a float, as an integer."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Whole = Annotated[int, BeforeValidator(_whole)]
"""A whole number; ``64.0`` is one."""
Count = Annotated[Whole, Field(ge=1, le=MOST)]
"""A whole number from one to 2^31."""


class StrictFields(BaseModel, extra="forbid", strict=True, frozen=True, allow_inf_nan=False):
    """Fields that are known, of exactly their type, and finite."""


Read = TypeVar("Read", bound=StrictFields)


def read_fields(kind: type[Read], case: Mapping[str, Any], *, owner: str, results: Collection[str] = ()) -> Read:
    """The fields of ``case``, without its name and published ``results``. Raises ``InputError``."""
    if not isinstance(case, Mapping):
        raise InputError(f"{owner}: a case is a set of fields, not {shown(case)}", rule="a case has named fields")
    given = {name: value for name, value in case.items() if name != "name" and name not in results}
    label = f"{owner}, case '{case['name']:.60}'" if isinstance(case.get("name"), str) else owner
    return CASE.read(kind, given, label=label)


def json_cases(text: str, part: str) -> list[Any] | None:
    """The ``cases`` of a JSON text, one of which has such a ``part``; None if it has none."""
    cases = (json_object(text) or {}).get("cases")
    if not isinstance(cases, list) or not any(isinstance(case, dict) and part in case for case in cases):
        return None
    return cases


def json_object(text: str) -> Mapping[str, Any] | None:
    """The object in a JSON text; None if it is no JSON or another value."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None

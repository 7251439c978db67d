"""Fields of records as fields of JSON bodies: type, bounds, choices and text are those that flags have too."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from math import inf
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator

from shardplan.fields import Described, described

STRICT: Final = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
MOST_NAME: Final = 200
"""Characters of a name."""
MOST_LISTED: Final = 1000
"""Elements of a list."""
JSON_LARGEST: Final = 2**53
"""Above it not every whole number is one of JSON's."""


class Body(BaseModel):
    """An object of a request: every value of exactly its type, and no field that is not known."""

    model_config = STRICT

    def stated(self) -> dict[str, Any]:
        """The fields that the request has and that are not null."""
        return {
            name: value.stated() if isinstance(value, Body) else value
            for name in self.model_fields_set
            if (value := getattr(self, name)) is not None
        }


@cache
def body_of(record: Any, name: str, about: str) -> type[Body]:
    """A body with the described fields of a dataclass, each of which may be left out."""
    fields: dict[str, Any] = {each.name: (_type(each), _field(each)) for each in described(record).values()}
    return create_model(name, __base__=Body, __doc__=about, __validators__=_in_our_words(record), **fields)


def _in_our_words(record: Any) -> dict[str, Any]:
    """Other names of choices (``fsdp``) become ours before types are checked."""
    known = {name: field for name, field in described(record).items() if field.kind.choices}

    def translated(raw: Any) -> Any:
        if not isinstance(raw, Mapping):
            return raw
        return {name: known[name].meant(value) if name in known else value for name, value in raw.items()}

    return {"in_our_words": model_validator(mode="before")(translated)}


def _type(field: Described) -> Any:
    """The type of a value; null where the record has None, so that fields of a plan file can be asked again."""
    return _own_type(field) | None if field.kind.may_be_none else _own_type(field)


def _own_type(field: Described) -> Any:
    least, most = field.about.least, field.about.most
    if field.kind.choices:
        return Literal[field.kind.choices]
    whole = Annotated[int, Field(ge=_whole(least, -JSON_LARGEST), le=_whole(most, JSON_LARGEST))]
    if field.kind.base is int:
        return whole | _text() if field.about.is_length else whole
    if field.kind.base is tuple:
        return Annotated[list[whole], Field(min_length=1, max_length=MOST_LISTED)]
    if field.kind.base is float:
        number = Annotated[float, Field(**_bounds(field))]
        return number | _text() if field.about.is_count else number
    return _text() if field.kind.base is str else field.kind.base


def _whole(bound: float, otherwise: int) -> int:
    return otherwise if abs(bound) == inf else int(bound)


def _bounds(field: Described) -> dict[str, float]:
    least, most = field.about.least, field.about.most
    low = {} if least == -inf else {"ge" if field.about.includes_least else "gt": least}
    return low if most == inf else {**low, "le": most}


def _text() -> Any:
    return Annotated[str, Field(min_length=1, max_length=MOST_NAME)]


def _field(field: Described) -> Any:
    """Default and text: no default means that the framework, the model or the cluster gives one."""
    unit = f" In {field.about.unit}." if field.about.unit else ""
    return Field(default=None, description=field.about.help + unit)

"""Fields of records as fields of JSON bodies: type, bounds, choices and text are those that flags have too."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from math import inf
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator

from shardplan.base.fields import Described, described
from shardplan.inputs.counts import MAX_NUM_ACCELERATORS

STRICT: Final = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
MOST_NAME: Final = 200
"""Characters of a name."""
MOST_LISTED: Final = 1000
"""Elements of a list."""
MOST_SIDES: Final = 20
MOST_CLUSTERS: Final = 5
MOST_FACTOR: Final = 1e6
MOST_AMOUNT: Final = 1e15
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
    """A body with the described fields of a record, each of which may be left out."""
    fields: dict[str, Any] = {
        each.name: (_type(each), Field(default=None, description=_text_of(each))) for each in described(record).values()
    }
    return create_model(name, __base__=Body, __doc__=about, __validators__=_in_our_words(record), **fields)


def form_body(name: str, about: str, *forms: tuple[type[Any], str], **others: Any) -> type[Body]:
    """A body with fields of forms, each form with their names between spaces; ``others``: as pydantic takes them."""
    fields: dict[str, Any] = {each: form_field(form, each) for form, names in forms for each in names.split()}
    return create_model(name, __base__=Body, __doc__=about, **(fields | others))


def form_field(form: type[Any], name: str) -> tuple[Any, Any]:
    """Type and default of a field of a form."""
    field = described(form)[name]
    said = field.about.in_json
    takes = field.about.takes or ("quantity" if field.about.quantity else "")
    kind = TYPES[takes] if takes else _own_type(_as_in_json(field))
    if said.is_required:
        return kind, Field(description=_text_of(field))
    default = field.default if said.default is None else said.default
    is_optional = field.kind.may_be_none and said.default is None
    return kind | None if is_optional else kind, Field(default=default, description=_text_of(field))


def _as_in_json(field: Described) -> Described:
    """The field with the bound that it has in the JSON API."""
    about = field.about
    return field._replace(about=about._replace(most=min(about.most, about.in_json.most)))


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


def _text_of(field: Described) -> str:
    """What it is, in what unit."""
    unit = f" In {field.about.unit}." if field.about.unit else ""
    return (field.about.in_json.help or field.about.help) + unit


Name = Annotated[str, Field(min_length=1, max_length=MOST_NAME)]
Scalar = bool | int | float | Name
Quantity = Annotated[float, Field(gt=0)] | Name
Pick = Annotated[int, Field(ge=1, le=MOST_LISTED)] | Literal["recommended"]
Count = Annotated[int, Field(ge=1, le=MAX_NUM_ACCELERATORS)]
TYPES: Final[dict[str, Any]] = {
    "name or content": Name | dict[str, Any],
    "yes or no": bool | Literal["yes", "no"],
    "count": Count,
    "pools": Count
    | Annotated[str, Field(pattern=r"^[0-9]{1,9}(\+[0-9]{1,9})?$")]
    | Annotated[list[Count], Field(min_length=1, max_length=MOST_SIDES)],
    "quantity": Quantity,
    "price": Annotated[float, Field(ge=0)] | Name,
    "peaks": dict[Name, Quantity],
    "choices": Annotated[dict[Name, Scalar | Annotated[list[Scalar], Field(max_length=MOST_LISTED)]], Field()],
    "pick": Pick,
    "amount": Annotated[float, Field(gt=0, le=MOST_AMOUNT)],
    "clusters": Annotated[list[Name | dict[str, Any]], Field(min_length=1, max_length=MOST_CLUSTERS)],
    "factors": Annotated[
        dict[Annotated[str, Field(pattern=r"^\d{1,6}$")], Annotated[float, Field(gt=0, le=MOST_FACTOR)]],
        Field(max_length=MOST_LISTED),
    ],
    "variables": dict[Name, Annotated[str, Field(max_length=MOST_LISTED)]],
    "values": dict[Name, Scalar],
    "names": Annotated[list[Name], Field(max_length=MOST_SIDES)],
}
"""Types of what fields of forms take as text on the command line."""

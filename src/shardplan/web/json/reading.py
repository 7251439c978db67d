"""Requests read: a body as JSON that is guarded like a file, and every value of it of its type."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any, Final, TypeVar

from starlette.requests import Request

from shardplan.errors import InputError
from shardplan.files import parse_document
from shardplan.records import RecordFormat

if TYPE_CHECKING:
    from shardplan.web.json.fields import Body

    Read = TypeVar("Read", bound=Body)
BODY: Final = RecordFormat("a request has the fields of its schema", fields_in="/api/openapi.json")
JSON_TYPES: Final = ("application/json", "application/problem+json", "text/json")


class WrongContent(Exception):  # noqa: N818  # what it is, not a fault
    """The body is not said to be JSON."""


async def read_body(request: Request, kind: type[Read]) -> Read:
    """The body of a request. Raises InputError, and WrongContent for one that is not said to be JSON.

    A page of another site can send a form or a text without being asked for leave; JSON it cannot.
    """
    said = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if said not in JSON_TYPES:
        raise WrongContent
    raw = await request.body()
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise InputError("the body is not UTF-8", rule="the body is JSON in UTF-8", hint="send JSON") from None
    return BODY.read(kind, without_constants(parse_document(text, label="the body", is_json=True)))


def without_constants(document: dict[str, Any]) -> dict[str, Any]:
    """The document, if it has none of the numbers that Python reads and JSON does not have. Raises InputError."""
    level: list[Any] = [document]
    while level:
        if any(isinstance(each, float) and not isfinite(each) for each in level):
            raise InputError(
                "the body holds NaN or an infinite number", rule="numbers are finite", hint="leave the field out"
            )
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
    return document

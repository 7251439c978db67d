"""What a view leaves as it is in the address: the question, which the other views read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final
from urllib.parse import urlencode

Fields = Iterable[tuple[str, str]]
NEVER: Final = ("config", "answer", "token")
"""What no address carries: uploaded models travel in the body, and the others are no part of a question."""


def others(given: Fields, own: Collection[str]) -> list[tuple[str, str]]:
    """The fields that are not the view's ``own``, for hidden fields of its form."""
    return [(name, value) for name, value in given if value and name not in own and name not in NEVER]


def address(path: str, given: Fields, own: Mapping[str, str]) -> str:
    """The address of the page with these values of its own; what is empty is left out."""
    stated = [(name, value) for name, value in own.items() if value]
    text = urlencode([*others(given, own), *stated])
    return f"{path}?{text}" if text else path

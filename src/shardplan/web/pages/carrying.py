"""What a view leaves as it is in the address: the question, which the other views read."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from urllib.parse import urlencode

from fastapi import Request


def others(request: Request, own: Collection[str]) -> list[tuple[str, str]]:
    """The parameters of the address that are not the view's ``own``, for hidden fields of its form."""
    return [(name, value) for name, value in request.query_params.multi_items() if name not in own and value]


def address(path: str, request: Request, own: Mapping[str, str]) -> str:
    """The address of the page with these values of its own; what is empty is left out."""
    stated = [(name, value) for name, value in own.items() if value]
    text = urlencode([*others(request, own), *stated])
    return f"{path}?{text}" if text else path

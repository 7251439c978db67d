"""Assignments of placeholders, ``NAME=<path of the data>``: no bash, but what people publish."""

from __future__ import annotations

import re
from typing import Final

_ASSIGNED: Final = re.compile(
    r"^([ \t]*(?:export[ \t]+)?\w{1,100}=)(<[A-Za-z][^<>'\"\n]{0,200}>[^\s'\"`$;&|<>]{0,200})[ \t]*$", re.MULTILINE
)
"""The whole line: so that a redirection, which follows a command, is never one."""


def quoted_placeholders(text: str) -> str:
    """``text`` with placeholders in quotes, so that what follows them is read; lines stay where they are.

    >>> quoted_placeholders("A=<your path>_x")
    "A='<your path>_x'"
    """
    return _ASSIGNED.sub(r"\1'\2'", text)

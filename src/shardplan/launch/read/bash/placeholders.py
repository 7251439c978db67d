"""What people publish and no parser reads: ``NAME=<path of the data>``, and comments in backticks inside a line."""

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


_COMMENT: Final = re.compile(r"(?<=[ \t\n])`#[^`\\\n]{0,500}`(?=[ \t\n])")
"""A substitution that is a whole word and runs a comment alone: it leaves nothing."""


def without_comment_words(text: str) -> str:
    """``text`` without comments in backticks; lines stay where they are.

    >>> without_comment_words("run --tp 2 `# of 8` --pp 4")
    'run --tp 2  --pp 4'
    """
    return _COMMENT.sub("", text)

"""Words with several spellings: one value under every name that people and frameworks give it.

A table has each value with its names. Case, hyphens, underscores and spaces make no difference:
``Interleaved1F1B``, ``interleaved_1f1b`` and ``interleaved-1f1b`` are one word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from shardplan.base.errors import nearest_names

T = TypeVar("T")
_SEPARATORS: Final = re.compile(r"[-_\s]+")


def switch_word(value: object) -> str:
    """A value in the form that people write: switches as on and off."""
    return ("off", "on")[value] if isinstance(value, bool) else str(value)


def folded(text: str) -> str:
    """The word in lower case, without hyphens, underscores and spaces."""
    return _SEPARATORS.sub("", text.lower())


class Words(dict[str, T]):
    """Values by their folded names."""

    def __init__(self, names: Mapping[T, str]) -> None:
        """``names`` are those of each value, separated by spaces."""
        self.names = names
        super().__init__({folded(name): value for value, listed in names.items() for name in listed.split()})


def words(names: Mapping[T, str]) -> Words[T]:
    """Values by their folded names; ``names`` holds those of each, separated by spaces."""
    return Words(names)


def one_of(values: Iterable[object]) -> str:
    """The values of a table for people, each once."""
    return f"one of {', '.join(dict.fromkeys(map(str, values)))}"


def guess(text: str, table: Mapping[str, object]) -> str:
    """The value that was probably meant, as a question; empty if none is near."""
    near = nearest_names(folded(text), table, most=1)
    return f" (did you mean {table[near[0]]}?)" if near else ""


FLAGS: Final[Mapping[str, bool]] = words(
    {True: "yes true 1 on enabled enable y", False: "no false 0 off disabled disable n"}
)


def joined(parts: Iterable[str], *, last: str = "and") -> str:
    """A list as text: a, b and c."""
    listed = list(parts)
    return listed[0] if len(listed) == 1 else f"{', '.join(listed[:-1])} {last} {listed[-1]}" if listed else ""

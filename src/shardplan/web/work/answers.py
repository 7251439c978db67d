"""Finished answers, kept while there is room: those that were not asked for the longest time go first."""

from __future__ import annotations

import gc
import sys
from collections import OrderedDict
from collections.abc import Hashable, Iterable
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Final, NamedTuple

MOST_ANSWERS: Final = 1024


class KeptAnswer(NamedTuple):
    """An answer and the memory that it takes."""

    value: Any
    num_bytes: int


class AnswerCache:
    """Answers by the question's key, within a limit in bytes."""

    def __init__(self, most_bytes: int) -> None:
        """``most_bytes``: of all answers together; 0 keeps none."""
        self.most_bytes = most_bytes
        self.num_bytes = 0
        self._kept: OrderedDict[Hashable, KeptAnswer] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: Hashable) -> KeptAnswer | None:
        """The answer to a question, which is now the last to go; None where it is not kept."""
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
        return found

    def put(self, key: Hashable, value: Any, num_bytes: int) -> None:
        """Keeps an answer, if there is room for it at all."""
        self._forget(key)
        if num_bytes > self.most_bytes:
            return
        self._kept[key] = KeptAnswer(value, num_bytes)
        self.num_bytes += num_bytes
        while self.num_bytes > self.most_bytes or len(self._kept) > MOST_ANSWERS:
            self._forget(next(iter(self._kept)))

    def _forget(self, key: Hashable) -> None:
        gone = self._kept.pop(key, None)
        self.num_bytes -= 0 if gone is None else gone.num_bytes


SHARED: Final = frozenset((type, ModuleType, BuiltinFunctionType))
"""Kinds of what an answer refers to and does not own."""
MOST_OBJECTS: Final = 100_000


def size_of(value: Any) -> int:
    """Memory that an answer keeps alive, at least: its objects, arrays included. [bytes]

    Objects are followed to :data:`MOST_OBJECTS`, those that are bound in functions included; arrays hold nearly all of
    the memory of a search, and come first.
    """
    seen: set[int] = set()
    total, level = 0, [value]
    while level and len(seen) < MOST_OBJECTS:
        fresh = {id(each): each for each in level if type(each) not in SHARED}
        for known in seen.intersection(fresh):
            del fresh[known]
        seen.update(fresh)
        total += sum(map(sys.getsizeof, fresh.values()))  # an array that is a view counts with the one that it shows
        level = _inside(fresh.values())
    return total


def _inside(values: Iterable[Any]) -> list[Any]:
    """What objects refer to; functions without the module that they stand in."""
    plain = [each for each in values if type(each) is not FunctionType]
    functions = [each for each in values if type(each) is FunctionType]
    bound = [part for each in functions for part in (each.__closure__, each.__defaults__, each.__kwdefaults__)]
    shown = [getattr(each, "base", None) for each in plain if type(each).__module__ == "numpy"]
    return [part for part in (*gc.get_referents(*plain), *bound, *shown) if part is not None]

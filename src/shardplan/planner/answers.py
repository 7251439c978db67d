"""Full answers for listed plans, made when they are read: those of a slice, or all of them, in one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

from shardplan.estimation.estimate import Estimate

Make = Callable[[Sequence[int]], Sequence[Estimate]]
"""The answers for the plans at these places."""


class Answers(Sequence[Estimate]):
    """Answers as a list, each made once. Equal to any sequence of the same answers."""

    def __init__(self, number: int, make: Make) -> None:
        self._number, self._make = number, make
        self._made: dict[int, Estimate] = {}

    @classmethod
    def of(cls, given: Sequence[Estimate]) -> Answers:
        """Answers that are at hand, or that are made when they are read."""
        return given if isinstance(given, Answers) else cls(len(given), lambda places: [given[at] for at in places])

    def changed(self, change: Callable[[Estimate], Estimate]) -> Answers:
        """The same answers, each changed when it is read."""
        return Answers(len(self), lambda places: [change(each) for each in self.at(places)])

    def at(self, places: Sequence[int]) -> tuple[Estimate, ...]:
        """Those at some places, counted from the first; what is missing is made together."""
        missing = [place for place in dict.fromkeys(places) if place not in self._made]
        if missing:
            self._made.update(zip(missing, self._make(missing), strict=True))
        return tuple(self._made[place] for place in places)

    def __len__(self) -> int:
        return self._number

    @overload
    def __getitem__(self, index: int) -> Estimate: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Estimate, ...]: ...
    def __getitem__(self, index: int | slice) -> Estimate | tuple[Estimate, ...]:
        places = range(len(self))[index]
        return self.at([places])[0] if isinstance(places, int) else self.at(places)

    def __iter__(self) -> Iterator[Estimate]:
        return iter(self[:])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]  # as a list

    def __repr__(self) -> str:
        return repr(self[:])

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (self[:],)

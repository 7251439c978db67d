"""Variables of a script while it is read, and how two possible courses come together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Final

from shardplan.fields import dataclass
from shardplan.launch.read.bash.text import Text, either, joined, literal, same_text, undecided
from shardplan.launch.read.limits import Budget

if TYPE_CHECKING:
    from tree_sitter import Node

    from shardplan.launch.read.bash.syntax import Source

Variable = Text | tuple[Text, ...] | dict[str, Text]
"""A plain variable, an array or an associative array."""

MOST_VARIABLES: Final = 20_000


@dataclass(kw_only=True)
class State:
    """All that statements change."""

    variables: dict[str, Variable | None] = field(default_factory=dict)
    """None for a variable that was unset."""
    exported: set[str] = field(default_factory=set)
    tables: set[str] = field(default_factory=set)
    """Names that ``declare -A`` made associative."""
    positional: tuple[Text, ...] = ()
    counts_arguments: bool = False
    """Whether the number of arguments is known: they were given, or the script set them."""
    functions: dict[str, tuple[Node, Source]] = field(default_factory=dict)
    """Body, and the text that holds it."""
    folder: Text | None = None
    """Working directory after ``cd``."""
    flow: str = ""
    """``exit``, ``return``, ``break`` or ``continue`` when what follows does not run."""
    exports_all: bool = False

    def fork(self, budget: Budget) -> State:
        """A copy that goes its own way."""
        budget.spend(1 + (len(self.variables) + len(self.functions)) // 16)
        return State(
            variables=dict(self.variables),
            exported=set(self.exported),
            tables=set(self.tables),
            positional=self.positional,
            counts_arguments=self.counts_arguments,
            functions=dict(self.functions),
            folder=self.folder,
            flow=self.flow,
            exports_all=self.exports_all,
        )


def flat(value: Variable) -> Text:
    """A variable as one text, elements of arrays joined by blanks."""
    if isinstance(value, Text):
        return value
    return joined(value.values() if isinstance(value, dict) else value, " ")


def merge(
    states: Sequence[State], needs: tuple[str, ...], line: int, file: str, given: Mapping[str, str], budget: Budget
) -> State:
    """What holds whichever of ``states`` comes about; what differs needs ``needs``."""
    first = states[0]
    if len(states) == 1:
        return first
    names = dict.fromkeys(name for state in states for name in state.variables)
    budget.spend(1 + len(names) // 4)
    for name in names:
        values = [_value(state, name, given) for state in states]
        if any(value is not values[0] for value in values):
            first.variables[name] = _merged(values, needs, line, file)
    first.exported = set.union(*(state.exported for state in states))
    for state in states[1:]:
        first.functions |= state.functions
        if state.positional != first.positional:
            first.positional = (undecided((*needs, "arg:1"), line, file),)
    return first


def _value(state: State, name: str, given: Mapping[str, str]) -> Variable | None:
    if name in state.variables:
        return state.variables[name]
    return literal(given[name]) if name in given else undecided((f"env:{name}",), is_unset=True)


def _merged(values: Sequence[Variable | None], needs: tuple[str, ...], line: int, file: str) -> Variable:
    present = [() if value is None else value for value in values]
    arrays = [value for value in present if isinstance(value, tuple) and not isinstance(value, Text)]
    if len(arrays) == len(present):
        return _merged_arrays(arrays, needs, line, file)
    texts = [flat(value) for value in present]
    if all(same_text(text, texts[0]) for text in texts):
        return texts[0]
    return either(texts, needs, line, file)


def _merged_arrays(
    arrays: Sequence[tuple[Text, ...]], needs: tuple[str, ...], line: int, file: str
) -> tuple[Text, ...]:
    shortest = min(len(array) for array in arrays)
    first = arrays[0]
    head = 0
    while head < shortest and all(same_text(array[head], first[head]) for array in arrays):
        head += 1
    if all(len(array) == head for array in arrays):
        return first
    tail = 0
    while tail < shortest - head and all(same_text(array[-1 - tail], first[-1 - tail]) for array in arrays):
        tail += 1
    middle = [text for array in arrays for text in array[head : len(array) - tail]]
    gap = undecided((*needs, *(need for text in middle for need in text.needs)), line, file, splits=True)
    return (*first[:head], gap, *first[len(first) - tail :])

"""Variables and options of a shell while a script is read, and what every part of the reader shares."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import field
from typing import TYPE_CHECKING, Final

from shardplan.base.fields import dataclass
from shardplan.launch.read.bash import slurm
from shardplan.launch.read.bash.arithmetic import Arithmetic, ArithmeticUndecidedError
from shardplan.launch.read.bash.text import EMPTY, Text, either, joined, literal, same_text, undecided
from shardplan.launch.read.facts import Word
from shardplan.launch.read.trees import MOST_LEVELS, Budget, refuse

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
    input: Text | None = None
    """What commands have still to read; None where that is not known."""
    flow: str = ""
    """``exit``, ``return``, ``break`` or ``continue`` when what follows does not run."""
    exports_all: bool = False

    def fork(self, budget: Budget) -> State:
        """A copy that goes its own way."""
        budget.spend(1 + (len(self.variables) + len(self.functions)) // 16)
        made = copy(self)
        made.variables, made.functions = dict(self.variables), dict(self.functions)
        made.exported, made.tables = set(self.exported), set(self.tables)
        return made


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
    if any(state.input != first.input for state in states):
        first.input = None
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


_DYNAMIC: Final = frozenset(
    {"RANDOM", "SRANDOM", "SECONDS", "EPOCHSECONDS", "PPID", "BASHPID", "UID", "EUID", "LINENO"}
)


class Context:
    """One evaluation of a script."""

    def __init__(self, file: str, given: Mapping[str, str], directives: Mapping[str, Word]) -> None:
        self.file, self.given, self.directives = file, given, directives
        self.script = file
        self.node: int | None = None
        """Accelerators of a node, which commands of the script count."""
        self.state = State()
        self.budget = Budget(file)
        self.used: set[str] = set()
        self.asked: set[str] = set()
        """Variables whose value comes from outside: they were read before the script set them."""
        self.notes: dict[str, None] = {}
        self.capture: Callable[[str, int], Text] = lambda source, line: undecided((f"cmd:{source}",), line, self.file)

    def note(self, text: str) -> None:
        """Notes something once."""
        if len(self.notes) < 100:
            self.notes[text] = None

    def look_up(self, name: str, line: int) -> Variable:
        """The value of a variable; undecided where nobody set it."""
        self.used.add(name)
        if name in self.state.variables:
            found = self.state.variables[name]
            return EMPTY if found is None else found
        self.asked.add(name)
        if name in self.given:
            return literal(self.given[name], 0, "")
        if name in _DYNAMIC:
            return undecided((f"cmd:${name}",), line, self.file)
        if name in ("BASH_SOURCE", "0"):
            return (literal(self.file, line, self.file),)
        if (word := self._from_slurm(name, line)) is not None:
            return word
        return undecided((f"env:{name}",), line, self.file, is_unset=True)

    def _from_slurm(self, name: str, line: int = 0) -> Text | None:
        """The variable of a job: what its options say, else one word that is not known."""
        found = slurm.value_of(self.directives, name)
        if found is not None:
            text, word, read = found
            return literal(text, word.line, word.file, (read,))
        is_set = bool(self.directives) and name in slurm.OF_JOBS and name not in slurm.ABSENT
        return undecided((f"env:{name}",), line, self.file, is_word=True) if is_set else None

    def is_set(self, name: str) -> bool | None:
        """Whether a variable is set; None where nobody said."""
        if name.isdecimal():
            number = int(name)
            if number == 0 or number <= len(self.state.positional):
                return True
            return False if self.state.counts_arguments else None
        if name in self.state.variables:
            return self.state.variables[name] is not None
        self.asked.add(name)
        return True if name in self.given or self._from_slurm(name) is not None else None

    def argument(self, number: int, line: int) -> Text:
        """A positional argument."""
        if number == 0:
            return literal(self.script, line, self.file)
        if number <= len(self.state.positional):
            return self.state.positional[number - 1]
        if self.state.counts_arguments:
            return EMPTY
        return undecided((f"arg:{number}",), line, self.file, is_unset=True)

    def assign(self, name: str, value: Variable | None) -> None:
        """Sets a variable. Raises ``InputError`` where there are too many."""
        self.budget.spend()
        self.state.variables[name] = value
        if self.state.exports_all:
            self.state.exported.add(name)
        if len(self.state.variables) > MOST_VARIABLES:
            refuse(self.file, f"sets more than {MOST_VARIABLES:,} variables", "a launch script is short")

    def number(self, source: str, line: int, depth: int = 0) -> int:
        """The value of an arithmetic expression in which all is expanded. Raises ``ArithmeticUndecidedError``."""
        self.budget.spend(1 + len(source) // 8)
        if depth > MOST_LEVELS:
            raise ArithmeticUndecidedError("code:variables that refer to each other")

        def look_up(name: str) -> int:
            text = self.element(name, line, depth)
            if text.known is None:
                raise ArithmeticUndecidedError(*text.needs)
            self.assumed.extend(text.assumes)
            return self.number(text.known, line, depth + 1)

        return Arithmetic(source, look_up, lambda name, value: self._assign_number(name, value, line, depth)).value()

    assumed: list[str] = []  # noqa: RUF012 - replaced by each computation

    def element(self, name: str, line: int, depth: int = 0) -> Text:
        """A variable, or an element of an array: ``A[1]``."""
        base, _, index = name.partition("[")
        value = self.look_up(base, line)
        if not index:
            return flat(value[:1]) if isinstance(value, tuple) and not isinstance(value, Text) else flat(value)
        return self.at(value, index.removesuffix("]"), line, depth)

    def at(self, value: Variable, index: str, line: int, depth: int = 0) -> Text:
        """An element by its index, which is expanded already."""
        if isinstance(value, dict):
            return value.get(index.strip("\"'"), EMPTY)
        try:
            number = self.number(index, line, depth + 1)
        except ArithmeticUndecidedError as error:
            return undecided(error.needs, line, self.file)
        elements = (value,) if isinstance(value, Text) else value
        if any(element.splits for element in elements):
            return undecided((need for element in elements for need in element.needs), line, self.file)
        if isinstance(value, Text) and value.known is None and number:
            return undecided(value.needs, line, self.file)
        return elements[number] if -len(elements) <= number < len(elements) else EMPTY

    def _assign_number(self, name: str, value: int, line: int, depth: int) -> None:
        base, _, index = name.partition("[")
        text = literal(str(value), line, self.file)
        if index:
            self.set_element(base, index.removesuffix("]"), text, line, depth)
        else:
            self.assign(base, text)

    def set_element(self, name: str, index: str, text: Text, line: int, depth: int = 0) -> None:
        """Sets an element of an array. An index that is not decidable makes the whole array undecided."""
        value = self.state.variables.get(name)
        if isinstance(value, dict) or name in self.state.tables:
            table = dict(value) if isinstance(value, dict) else {}
            self.budget.spend(1 + len(table) // 16)
            self.assign(name, {**table, index: text})
            return
        try:
            number = self.number(index, line, depth + 1)
        except ArithmeticUndecidedError as error:
            self.assign(name, undecided(error.needs, line, self.file))
            return
        elements = [value] if isinstance(value, Text) else list(value or ())
        self.budget.spend(1 + len(elements) // 16)
        if not 0 <= number <= len(elements):
            self.assign(name, undecided((f"code:{name}[{number}] leaves a gap",), line, self.file))
            return
        elements[number : number + 1] = [text]
        self.assign(name, tuple(elements))

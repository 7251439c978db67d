"""Cells of a file of measured runs: how each kind is read, and the error for a bad one."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from shardplan.base.errors import InputError
from shardplan.base.fields import dataclass
from shardplan.base.units import comma_text, parse_whole
from shardplan.base.words import FLAGS, Words, folded, guess, one_of, words
from shardplan.inputs.plan import RECOMPUTE_MODULES, RECOMPUTE_PRESETS
from shardplan.inputs.words import ATTENTION_GENERATIONS, ATTENTIONS, RECOMPUTE_WORDS
from shardplan.physics.frameworks.releases import month_of

STEP_TIMES: Final = words(
    {"step": "step step-time iteration", "tokens": "tokens tokens/s token throughput", "flops": "flops tflops mfu"}
)
MEMORY_KINDS: Final = words(
    {
        "allocated": "allocated max-allocated max-memory-allocated",
        "reserved": "reserved max-reserved max-memory-reserved",
        "process": "process nvidia-smi nvml rocm-smi",
    }
)
RESULTS: Final = words(
    {
        "ran": "ran run ok yes success succeeded completed finished",
        "oom": "oom out-of-memory cuda-oom cuda-out-of-memory oom-error out-of-memory-error torch.OutOfMemoryError "
        "torch.cuda.OutOfMemoryError resource-exhausted hip-out-of-memory",
    }
)
"""Words for how a run ended; JAX calls a full memory ``RESOURCE_EXHAUSTED``."""
TIERS: Final[Mapping[str, str]] = {"a": "A", "a-": "A-", "b": "B"}
POLICIES: Final = (*RECOMPUTE_PRESETS, "minimal")
LISTS: Final = ("overlap", "remat_tensors", "features")
"""Options whose value is a list: a word without ``=`` after one of them continues it."""
MOST_COUNT: Final = 10**9


@dataclass(frozen=True)
class RowCell:
    """One cell with its place."""

    path: Path
    line: int
    row: str
    column: str
    text: str
    is_required: bool = False
    """Whether every row needs a value in the column."""

    def wrong(self, allowed: str, guess: str = "") -> InputError:
        """The error for a bad cell; ``guess``: what was probably meant."""
        text = self.text if self.text.isprintable() else repr(self.text)[1:-1]
        hint = f"correct {self.column}"
        if not self.text:  # only a required cell is refused for being empty
            hint = f"fill in {self.column}"
        elif not self.is_required:
            hint += ", or leave the cell empty where it is not stated"
        return InputError(
            f"{self.path}, line {self.line}, run '{self.row:.80}': {self.column} is '{text[:100]}'; "
            f"it must be {allowed}{guess}",
            rule=f"{self.column} is {allowed}",
            hint=hint,
        )


@dataclass(frozen=True)
class Taken:
    """A value that the cell gives under another name."""

    value: Any
    text: str
    """The text of the cell."""
    meaning: str = ""
    """How it is understood, if the value itself does not say so."""


class CellKind(NamedTuple):
    """What the cells of a column hold."""

    values: str
    """The values, as the documentation lists them."""
    read: Callable[[RowCell], Any]
    """Reads a cell that is not empty."""
    empty: Any = None
    """The value of an empty cell."""
    allowed: str = "given"
    """Allowed values of a cell that may not be empty."""


def word(table: Words[str], empty: str | None = None) -> CellKind:
    """A value of the table, under any of its names; ``empty`` is the value of an empty cell."""

    def read(cell: RowCell) -> str | Taken:
        value = table.get(folded(cell.text))
        if value is None:
            raise cell.wrong(one_of(table.values()), guess(cell.text, table))
        return value if folded(value) == folded(cell.text) else Taken(value, cell.text)

    return CellKind(listed(table.names), read, empty)


def listed(values: Iterable[str]) -> str:
    """Values in the form of the documentation."""
    return ", ".join(f"`{value}`" for value in values)


def _attention(cell: RowCell) -> str | Taken:
    """The kernel; ``drafts`` takes the generation from its name."""
    value, generation = word(ATTENTIONS).read(cell), ATTENTION_GENERATIONS.get(folded(cell.text))
    if isinstance(value, Taken) and generation:
        return Taken(value.value, cell.text, f"{value.value} (attention_generation {generation})")
    return value


def _tier(cell: RowCell) -> str:
    if cell.text.lower() not in TIERS:
        raise cell.wrong("A, A- or B")
    return TIERS[cell.text.lower()]


def _yes_or_no(cell: RowCell) -> bool:
    if folded(cell.text) not in FLAGS:
        raise cell.wrong("yes or no")
    return FLAGS[folded(cell.text)]


def _count(cell: RowCell) -> int:
    """Whole numbers, also in the form of spreadsheets (``8.0``)."""
    number = cell.text.removesuffix(".0") if cell.text[:1].isdigit() else cell.text
    try:
        value = parse_whole(number, is_length=cell.column == "sequence_length")
    except ValueError:
        value = 0
    if not 1 <= value <= MOST_COUNT:
        raise cell.wrong(COUNT.allowed)
    return value


def quantity(least: float, most: float, unit: str, factor: float = 1.0, values: str = "") -> CellKind:
    """A number in ``unit``, which is ``factor`` of the SI unit."""

    def read(cell: RowCell) -> float:
        try:
            value = float(cell.text)
        except ValueError:
            value = math.nan
        if not least <= value <= most or "_" in cell.text:
            comma = comma_text(cell.text)
            raise cell.wrong(f"a number from {least:g} to {most:g} {unit}", f". It {comma}" if comma else "")
        return value * factor

    return CellKind(values or unit, read)


def _month(cell: RowCell) -> str:
    """A year and a month, with or without a day."""
    found = month_of(cell.text)
    if found is None:
        raise cell.wrong("a year and a month, such as 2024-12")
    return found


def _recompute(cell: RowCell) -> str | Taken:
    """A policy, or modules in the given order; ``moe_act`` is another name for the experts' ``activation``."""
    parts = [part.strip() for part in re.split(r"[,+]", cell.text)]
    found = [_policy_or_module(cell, part, is_alone=len(parts) == 1) for part in parts]
    value = ",".join(dict.fromkeys(found))
    plain = {folded(word) for word in (*POLICIES, *RECOMPUTE_MODULES, "moe_act")}
    return value if {folded(part) for part in parts} <= plain else Taken(value, cell.text)


def _policy_or_module(cell: RowCell, part: str, *, is_alone: bool) -> str:
    word = RECOMPUTE_WORDS.get(folded(part))
    if word is None or (word in POLICIES and not is_alone):
        allowed = f"one of {', '.join(POLICIES)}, or a comma list of {', '.join(RECOMPUTE_MODULES)}"
        raise cell.wrong(allowed, guess(part, RECOMPUTE_WORDS) if word is None else "")
    return word


def _options(cell: RowCell) -> dict[str, str] | Taken:
    """``key=value`` pairs separated by semicolons."""
    read: dict[str, str] = {}
    last, continued = "", []
    for part in cell.text.split(";"):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals and key and last in LISTS:
            read[last] += f",{key}"
            continued.append(last)
        elif key or equals:
            if not key or read.get(key, value) != value:
                raise cell.wrong("key=value pairs between semicolons, each key once")
            read[key], last = value, key
    taken = "; ".join(f"{key}={read[key]}" for key in dict.fromkeys(continued))
    return Taken(read, cell.text, f"one list: {taken}") if continued else read


TEXT: Final = CellKind("text", lambda cell: cell.text, "")
NAME: Final = TEXT._replace(values="name or path")
COUNT: Final = CellKind("count", _count, allowed=f"a whole number from 1 to {MOST_COUNT:,}")
DEGREE: Final = COUNT._replace(values="degree")
SEQUENCES: Final = COUNT._replace(values="sequences")
MONTH: Final = CellKind("`YYYY-MM`", _month, "")
TIER: Final = CellKind(listed(TIERS.values()), _tier, "")
ATTENTION: Final = CellKind(listed(ATTENTIONS.names), _attention)
YES_OR_NO: Final = CellKind("`yes`, `no`", _yes_or_no)
RECOMPUTE: Final = CellKind(f"{listed(POLICIES)}, or a comma list of modules", _recompute, "")
OPTIONS: Final = CellKind("`key=value;key=value`", _options, {})

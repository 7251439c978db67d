"""Cells of a file of measured runs: how each column is read, and what a user reads about a bad one."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from shardplan.calibration.runs.words import MEMORY_KINDS, RESULTS, STEP_TIMES, TIERS
from shardplan.errors import InputError
from shardplan.fields import dataclass
from shardplan.inputs.plan import RECOMPUTE_MODULES, RECOMPUTE_PRESETS
from shardplan.inputs.words import (
    ATTENTION_GENERATIONS,
    ATTENTIONS,
    DTYPES,
    OFFLOADS,
    PRECISIONS,
    RECOMPUTE_WORDS,
    SHARDINGS,
)
from shardplan.units import comma_text, parse_whole
from shardplan.words import FLAGS, folded, guess, one_of


@dataclass(frozen=True)
class RowCell:
    """One cell and where it stands."""

    path: Path
    line: int
    row: str
    column: str
    text: str

    def wrong(self, allowed: str, guess: str = "") -> InputError:
        """What a user reads about a bad cell; ``guess``: what was probably meant."""
        text = self.text if self.text.isprintable() else repr(self.text)[1:-1]
        return InputError(
            f"{self.path}, line {self.line}, run '{self.row:.80}': {self.column} is '{text[:100]}'; "
            f"it must be {allowed}{guess}",
            rule=f"{self.column} is {allowed}",
            hint=self._hint(),
        )

    def _hint(self) -> str:
        if not self.text:  # only what must be there is refused for being empty
            return f"fill in {self.column}"
        left_out = "" if self.column in REQUIRED else ", or leave the cell empty where it is not stated"
        return f"correct {self.column}{left_out}"


@dataclass(frozen=True)
class Taken:
    """A value that the cell gives under another name."""

    value: Any
    text: str
    """What stands there."""
    meaning: str = ""
    """What it is taken as, where the value itself does not say so."""


def _words(cell: RowCell) -> str:
    return cell.text


def _required_words(cell: RowCell) -> str:
    if not cell.text:
        raise cell.wrong("given")
    return cell.text


def _word(table: Mapping[str, str]) -> Callable[[RowCell], str | Taken | None]:
    """A value of the table, under any of its names."""

    def read(cell: RowCell) -> str | Taken | None:
        if not cell.text:
            return None
        value = table.get(folded(cell.text))
        if value is None:
            raise cell.wrong(one_of(table.values()), guess(cell.text, table))
        return value if folded(value) == folded(cell.text) else Taken(value, cell.text)

    return read


def _attention(cell: RowCell) -> str | Taken | None:
    """The kernel; ``questions`` takes the generation that its name may tell."""
    value, generation = _word(ATTENTIONS)(cell), ATTENTION_GENERATIONS.get(folded(cell.text))
    if isinstance(value, Taken) and generation:
        return Taken(value.value, cell.text, f"{value.value} (attention_generation {generation})")
    return value


def _tier(cell: RowCell) -> str:
    if cell.text and cell.text.lower() not in TIERS:
        raise cell.wrong("A, A- or B")
    return TIERS.get(cell.text.lower(), "")


def _or_empty(read: Callable[[RowCell], str | Taken | None]) -> Callable[[RowCell], str | Taken]:
    return lambda cell: read(cell) or ""


def _number(cell: RowCell, least: float, most: float, unit: str) -> float | None:
    if not cell.text:
        return None
    try:
        value = float(cell.text)
    except ValueError:
        value = math.nan
    if not least <= value <= most or "_" in cell.text:
        comma = comma_text(cell.text)
        raise cell.wrong(f"a number from {least:g} to {most:g}{unit}", f". It {comma}" if comma else "")
    return value


def _count(cell: RowCell) -> int | None:
    """Whole numbers, also as a spreadsheet writes them (``8.0``)."""
    if not cell.text:
        return None
    number = cell.text.removesuffix(".0") if cell.text[:1].isdigit() else cell.text
    try:
        value = parse_whole(number, is_length=cell.column == "sequence_length")
    except ValueError:
        value = 0
    if not 1 <= value <= MOST_COUNT:
        raise cell.wrong(f"a whole number from 1 to {MOST_COUNT:,}")
    return value


MOST_COUNT: Final = 10**9


def _required_count(cell: RowCell) -> int:
    value = _count(cell)
    if value is None:
        raise cell.wrong(f"a whole number from 1 to {MOST_COUNT:,}")
    return value


def _quantity(least: float, most: float, unit: str, factor: float = 1.0) -> Callable[[RowCell], float | None]:
    """A number in ``unit``, which is ``factor`` of the SI unit."""

    def read(cell: RowCell) -> float | None:
        value = _number(cell, least, most, f" {unit}")
        return None if value is None else value * factor

    return read


def _yes_or_no(cell: RowCell) -> bool | None:
    if cell.text and folded(cell.text) not in FLAGS:
        raise cell.wrong("yes or no")
    return FLAGS.get(folded(cell.text))


POLICIES: Final = (*RECOMPUTE_PRESETS, "minimal")


def _recompute(cell: RowCell) -> str | Taken:
    """A policy, or modules in the order given; ``moe_act`` is another name of the experts' ``activation``."""
    if not cell.text:
        return ""
    listed = [part.strip() for part in re.split(r"[,+]", cell.text)]
    found = [_policy_or_module(cell, part, is_alone=len(listed) == 1) for part in listed]
    value = ",".join(dict.fromkeys(found))
    is_plain = {folded(part) for part in listed} <= {
        folded(word) for word in (*POLICIES, *RECOMPUTE_MODULES, "moe_act")
    }
    return value if is_plain else Taken(value, cell.text)


def _policy_or_module(cell: RowCell, part: str, *, is_alone: bool) -> str:
    word = RECOMPUTE_WORDS.get(folded(part))
    if word is None or (word in POLICIES and not is_alone):
        allowed = f"one of {', '.join(POLICIES)}, or a comma list of {', '.join(RECOMPUTE_MODULES)}"
        raise cell.wrong(allowed, guess(part, RECOMPUTE_WORDS) if word is None else "")
    return word


LISTS: Final = ("overlap", "remat_tensors", "features")
"""Options whose value is a list: what stands without ``=`` behind one of them continues it."""


def _options(cell: RowCell) -> dict[str, str] | Taken:
    """``key=value`` pairs between semicolons."""
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


COLUMNS: Final[Mapping[str, Callable[[RowCell], Any]]] = {
    "id": _required_words,
    "family": _words,
    "source": _words,
    "tier": _tier,
    "framework": _words,
    "model": _required_words,
    "accelerator": _required_words,
    "num_accelerators": _required_count,
    "scale_up_size": _count,
    "inter_node_gb_s": _quantity(0.001, 100_000, "GB/s", 1e9),
    "precision": _word(PRECISIONS),
    "grad_dtype": _word(DTYPES),
    "attention": _attention,
    "sequence_length": _required_count,
    "global_batch_size": _required_count,
    "micro_batch_size": _count,
    "tp": _count,
    "pp": _count,
    "cp": _count,
    "ep": _count,
    "etp": _count,
    "dp": _count,
    "vp": _count,
    "sharding": _word(SHARDINGS),
    "sharding_degree": _count,
    "sequence_parallel": _yes_or_no,
    "recompute": _recompute,
    "offload": _or_empty(_word(OFFLOADS)),
    "options": _options,
    "step_time_s": _quantity(1e-6, 1e6, "s"),
    "step_time_ms": _quantity(1e-3, 1e9, "ms", 1e-3),
    "tokens_per_second": _quantity(1e-3, 1e12, "tokens/s"),
    "tokens_per_second_per_accelerator": _quantity(1e-3, 1e9, "tokens/s"),
    "tflops_per_accelerator": _quantity(1e-3, 1e6, "TFLOP/s", 1e12),
    "step_time_from": _or_empty(_word(STEP_TIMES)),
    "peak_memory_gb": _quantity(0.001, 100_000, "GB", 1e9),
    "peak_memory_gib": _quantity(0.001, 100_000, "GiB", 2**30),
    "peak_memory_mib": _quantity(0.001, 1e8, "MiB", 2**20),
    "memory_kind": _or_empty(_word(MEMORY_KINDS)),
    "result": _or_empty(_word(RESULTS)),
    "notes": _words,
}
"""Reader of every column."""

FIELDS: Final[Mapping[str, str]] = {
    "inter_node_gb_s": "inter_node_bandwidth",
    "step_time_s": "step_time",
    "peak_memory_gb": "peak_memory_bytes",
    "tflops_per_accelerator": "flop_rate",
}
"""Fields whose unit is converted, by column."""
RATES: Final = ("step_time_ms", "tokens_per_second", "tokens_per_second_per_accelerator")
"""Columns that state a step time in other words."""
MEMORIES: Final = ("peak_memory_gib", "peak_memory_mib")
"""Columns that state a peak memory in other units."""
TIMES: Final = ("step_time_s", *RATES, "tflops_per_accelerator")
MEASURES: Final = (*TIMES, "peak_memory_gb", *MEMORIES, "result")
"""Columns of which a row states one at least."""

IN_HEADER: Final = ("model", "accelerator", "num_accelerators", "sequence_length", "global_batch_size")
"""Columns that every file has."""
REQUIRED: Final = ("id", *IN_HEADER)
"""Columns in which every row has a value; rows of a file without ids are named by their lines."""

EMPTY: Final[Mapping[str, Any]] = {
    column: read(RowCell(Path(), 0, "", column, "")) for column, read in COLUMNS.items() if column not in REQUIRED
}
"""What an empty cell says, of columns in which a cell may be empty."""

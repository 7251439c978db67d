"""Cells of a file of measured runs: how each column is read, and what a bad one is told."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, get_args

from shardplan.errors import InputError, nearest_names
from shardplan.inputs.job import PRECISIONS, AttentionKernel, GradDtype
from shardplan.inputs.plan import RECOMPUTE_MODULES, RECOMPUTE_PRESETS, Sharding

__all__ = ["COLUMNS", "FIELDS", "REQUIRED", "Cell"]


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell and where it stands."""

    path: Path
    line: int
    row: str
    column: str
    text: str

    def wrong(self, allowed: str) -> InputError:
        """What a user reads about a bad cell."""
        text = self.text if self.text.isprintable() else repr(self.text)[1:-1]
        return InputError(
            f"{self.path}, line {self.line}, run '{self.row:.80}': {self.column} is '{text[:100]}'; "
            f"it must be {allowed}",
            rule=f"{self.column} is {allowed}",
            hint=self._hint(),
        )

    def _hint(self) -> str:
        if not self.text:  # only what must be there is refused for being empty
            return f"fill in {self.column}"
        left_out = "" if self.column in REQUIRED else ", or leave the cell empty where it is not stated"
        return f"correct {self.column}{left_out}"


def _words(cell: Cell) -> str:
    return cell.text


def _required_words(cell: Cell) -> str:
    if not cell.text:
        raise cell.wrong("given")
    return cell.text


def _one_of(choices: Iterable[str]) -> Callable[[Cell], str | None]:
    known = tuple(choices)

    def read(cell: Cell) -> str | None:
        if cell.text and cell.text.lower() not in known:
            near = nearest_names(cell.text, known, most=1)
            raise cell.wrong(f"one of {', '.join(known)}" + (f" (did you mean {near[0]}?)" if near else ""))
        return cell.text.lower() or None

    return read


def _tier(cell: Cell) -> str:
    if cell.text not in ("", "A", "A-", "B"):
        raise cell.wrong("A, A- or B")
    return cell.text


def _or_empty(read: Callable[[Cell], str | None]) -> Callable[[Cell], str]:
    return lambda cell: read(cell) or ""


def _number(cell: Cell, least: float, most: float, unit: str) -> float | None:
    if not cell.text:
        return None
    try:
        value = float(cell.text)
    except ValueError:
        value = math.nan
    if not least <= value <= most or "_" in cell.text:
        raise cell.wrong(f"a number from {least:g} to {most:g}{unit}")
    return value


def _count(cell: Cell) -> int | None:
    """Whole numbers, also as a spreadsheet writes them (``8.0``)."""
    if not cell.text:
        return None
    try:
        value = float(cell.text)
    except ValueError:
        value = math.nan
    if not 1 <= value <= 1e9 or value != int(value) or "_" in cell.text:
        raise cell.wrong("a whole number from 1 to 1,000,000,000")
    return int(value)


def _required_count(cell: Cell) -> int:
    value = _count(cell)
    if value is None:
        raise cell.wrong("a whole number from 1 to 1,000,000,000")
    return value


def _bandwidth(cell: Cell) -> float | None:
    value = _number(cell, 0.001, 100_000, " GB/s")
    return None if value is None else value * 1e9


def _step_time(cell: Cell) -> float | None:
    return _number(cell, 1e-6, 1e6, " s")


def _memory(cell: Cell) -> float | None:
    value = _number(cell, 0.001, 100_000, " GB")
    return None if value is None else value * 1e9


def _yes_or_no(cell: Cell) -> bool | None:
    known = {"yes": True, "no": False, "true": True, "false": False, "": None}
    if cell.text.lower() not in known:
        raise cell.wrong("yes or no")
    return known[cell.text.lower()]


MODULES: Final = (*RECOMPUTE_MODULES, "moe_act")
POLICIES: Final = (*RECOMPUTE_PRESETS, "minimal")


def _recompute(cell: Cell) -> str:
    """A policy, or modules in the order given; ``moe_act`` is another name of the experts' ``activation``."""
    if cell.text.lower() in ("", *POLICIES):
        return cell.text.lower()
    modules = [part.strip() for part in cell.text.split(",")]
    for module in modules:
        if module not in MODULES:
            near = nearest_names(module, (*POLICIES, *MODULES), most=1)
            guess = f" (did you mean {near[0]}?)" if near else ""
            raise cell.wrong(f"one of {', '.join(POLICIES)}, or a comma list of {', '.join(MODULES)}{guess}")
    return ",".join(dict.fromkeys("activation" if module == "moe_act" else module for module in modules))


def _options(cell: Cell) -> dict[str, str]:
    """``key=value`` pairs between semicolons."""
    read: dict[str, str] = {}
    for part in cell.text.split(";"):
        if not part.strip():
            continue
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not key or key in read:
            raise cell.wrong("key=value pairs between semicolons, each key once")
        read[key] = value
    return read


COLUMNS: Final[Mapping[str, Callable[[Cell], Any]]] = {
    "id": _required_words,
    "family": _words,
    "source": _words,
    "tier": _tier,
    "framework": _words,
    "model": _required_words,
    "accelerator": _required_words,
    "num_accelerators": _required_count,
    "scale_up_size": _count,
    "inter_node_gb_s": _bandwidth,
    "precision": _one_of(PRECISIONS),
    "grad_dtype": _one_of(get_args(GradDtype)),
    "attention": _one_of(get_args(AttentionKernel)),
    "sequence_length": _required_count,
    "global_batch_size": _required_count,
    "micro_batch_size": _count,
    "tp": _count,
    "pp": _count,
    "cp": _count,
    "ep": _count,
    "etp": _count,
    "vp": _count,
    "sharding": _one_of(get_args(Sharding)),
    "sharding_degree": _count,
    "sequence_parallel": _yes_or_no,
    "recompute": _recompute,
    "offload": _or_empty(_one_of(("none", "optimizer", "activations"))),
    "options": _options,
    "step_time_s": _step_time,
    "step_time_from": _or_empty(_one_of(("step", "tokens", "flops"))),
    "peak_memory_gb": _memory,
    "memory_kind": _or_empty(_one_of(("allocated", "reserved", "process"))),
    "notes": _words,
}
"""Reader of every column."""

FIELDS: Final[Mapping[str, str]] = {
    "inter_node_gb_s": "inter_node_bandwidth",
    "step_time_s": "step_time",
    "peak_memory_gb": "peak_memory_bytes",
}
"""Fields whose unit is converted, by column."""

REQUIRED: Final = ("id", "model", "accelerator", "num_accelerators", "sequence_length", "global_batch_size")

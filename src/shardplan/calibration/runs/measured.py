"""What a run measured: a step time or a rate that it follows from, a peak memory, or that memory was full."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from shardplan.calibration.runs.cells import FIELDS, MEMORIES, RATES, TIMES, RowCell

OUT_OF_MEMORY: Final = "oom"
MOST_APART: Final = 0.05
"""Share by which two figures of one quantity may differ: they are rounded, and averaged apart."""


def measured_values(values: dict[str, Any], cell: Callable[[str], RowCell]) -> dict[str, Any]:
    """Step time and peak memory of a row from the cells that state them; takes the other names out of ``values``.

    Raises ``InputError`` where two cells contradict each other, or where nothing is stated.
    """
    _check_measured(values, cell)
    step_time, named = _one_of(_step_times(values), cell)
    memory, _ = _one_of(_memories(values), cell)
    for name in (*RATES, *MEMORIES):
        values.pop(name)
    rate = None if step_time is not None else values["flop_rate"]
    stated = values["step_time_from"]
    how = stated or ("tokens" if named.startswith("tokens") else "flops" if rate is not None else "")
    return {"step_time": step_time, "peak_memory_bytes": memory, "flop_rate": rate, "step_time_from": how}


def _step_times(values: Mapping[str, Any]) -> dict[str, float | None]:
    """Step times by the columns that state them. [s] A step has sequence length x global batch size tokens."""
    tokens = values["sequence_length"] * values["global_batch_size"]
    total, each = values["tokens_per_second"], values["tokens_per_second_per_accelerator"]
    return {
        "step_time_s": values["step_time"],
        "step_time_ms": values["step_time_ms"],
        "tokens_per_second": total and tokens / total,
        "tokens_per_second_per_accelerator": each and tokens / (each * values["num_accelerators"]),
    }


def _memories(values: Mapping[str, Any]) -> dict[str, float | None]:
    return {"peak_memory_gb": values["peak_memory_bytes"], **{name: values[name] for name in MEMORIES}}


def _one_of(found: Mapping[str, float | None], cell: Callable[[str], RowCell]) -> tuple[float | None, str]:
    """The first value, and its column. Raises ``InputError`` where another one contradicts it."""
    stated = {name: value for name, value in found.items() if value}
    if not stated:
        return None, ""
    first, *others = stated
    for other in others:
        if abs(stated[other] / stated[first] - 1) > MOST_APART:
            raise cell(other).wrong(f"what {first} says: {stated[other]:.4g} against {stated[first]:.4g} in its unit")
    return stated[first], first


def _check_measured(values: Mapping[str, Any], cell: Callable[[str], RowCell]) -> None:
    """A run that ran has a time or a memory; one that ran out of memory has neither. Raises ``InputError``."""
    columns = (*TIMES, "peak_memory_gb", *MEMORIES)
    stated = [name for name in columns if values[FIELDS.get(name, name)] is not None]
    if values["result"] == OUT_OF_MEMORY and stated:
        raise cell(stated[0]).wrong(f"empty where the result is {OUT_OF_MEMORY}")
    if values["result"] != OUT_OF_MEMORY and not stated:
        raise cell("step_time_s").wrong(
            f"given where peak_memory_gb is not (or a rate such as tokens_per_second), unless the result is "
            f"{OUT_OF_MEMORY}"
        )

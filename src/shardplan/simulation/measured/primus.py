"""Pipeline dumps of Primus: ``pp_rank_0.json``, ``pp_rank_1.json`` ... that ``--dump_pp_data`` writes, for ``pp_vis``.

A file holds the iterations of one pipeline rank by number. Of each are read ``total`` (the pipeline call, ms),
``memory`` (most reserved memory so far, GiB) and, for ``fwd``, ``bwd`` and ``wgrad``, the lists ``fwd_start`` and
``fwd_end`` (ms from the start of the call on that rank), ``fwd_minibatch`` and ``fwd_chunk`` (not there where Megatron
runs its own schedules). ``config.json`` in the same folder gives ``pp_size``, ``vp_size`` and ``num_mbs``.
Format: AMD-AGI/Primus, ``primus/backends/megatron/core/pipeline_parallel/pp_visualizer.py``, commit fd1eeab.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from shardplan.errors import shown
from shardplan.files import Document, FileKind, parse_document, printable, read_document
from shardplan.simulation.measured.layout import Layout
from shardplan.simulation.measured.ranks import MOST_RANK, NOT_GIVEN, MeasuredRank
from shardplan.simulation.pieces import BACKWARD, FORWARD, WEIGHT_GRADIENT, Ints

SOURCE: Final = "pipeline dump of Primus"
RULE: Final = "a pipeline dump of Primus holds iterations with the lists fwd_start, fwd_end, bwd_start and bwd_end"
CONFIG: Final = FileKind("the config.json of the dump", 64 * 1024, RULE)
CONFIG_NAME: Final = "config.json"
NAME: Final = re.compile(r"pp_rank_(\d{1,5})\.json(?:\.gz)?")
KINDS: Final = {"fwd": FORWARD, "bwd": BACKWARD, "wgrad": WEIGHT_GRADIENT}
COUNTS: Final = {"pp": ("pp_size",), "vp": ("vp_size", "vpp_size"), "num_microbatches": ("num_mbs", "micro_batches")}
"""Keys of config.json by what they count; the second ones are older."""
MOST_COUNT: Final = 1_000_000
GIB: Final = 1024**3
MILLISECOND: Final = 1e-3


def is_dump(document: object) -> bool:
    """Whether a JSON document has the shape of a dump: iterations by number."""
    return isinstance(document, dict) and bool(document) and all(_is_iteration(*each) for each in document.items())


def _is_iteration(number: object, value: object) -> bool:
    return isinstance(number, str) and number.isdecimal() and isinstance(value, dict) and "fwd_start" in value


def rank_of(path: Path) -> int:
    """The pipeline rank that the name of a file has. Raises ``InputError``."""
    found = NAME.fullmatch(path.name)
    if found is None or int(found[1]) > MOST_RANK:
        raise CONFIG.wrong(
            f"{printable(path.name)} is a pipeline dump of Primus whose name has no rank",
            "name the file of rank 3 pp_rank_3.json, as Primus does",
        )
    return int(found[1])


def ranks_of(path: Path, text: str) -> dict[str, MeasuredRank]:
    """The iterations of one rank by their number. Raises ``InputError``."""
    name = printable(path.name)
    rank = rank_of(path)
    label = f"rank {rank} ({name})"
    return {
        number: _rank(rank, f"{label}, iteration {number}", iteration)
        for number, iteration in parse_document(text, label=name, is_json=True).items()
    }


def layout_of(folder: Path) -> Layout | None:
    """That of ``config.json`` in the folder of the dump; None where there is none. Raises ``InputError``."""
    path = folder / CONFIG_NAME
    if not path.is_file():
        return None
    document = read_document(path, CONFIG)
    counts = {name: _count(document, keys) for name, keys in COUNTS.items()}
    return Layout.usual(counts["pp"], counts["vp"], counts["num_microbatches"], f"{CONFIG_NAME} next to the files")


def _count(document: Document, keys: tuple[str, ...]) -> int:
    value = next((document[key] for key in keys if key in document), None)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_COUNT:
        raise CONFIG.wrong(
            f"{keys[0]} of {CONFIG_NAME} is {shown(value)}", f"write a whole number for {keys[0]}, 1 or more"
        )
    return value


def _rank(rank: int, label: str, iteration: object) -> MeasuredRank:
    if not isinstance(iteration, dict):
        raise CONFIG.wrong(f"{label} is {shown(iteration)}", "give the files as Primus wrote them")
    parts = [_passes(iteration, name, kind, label) for name, kind in KINDS.items()]
    columns = [np.concatenate([part[number] for part in parts]) for number in range(5)]
    kind, chunk, microbatch = (column.astype(np.int64) for column in columns[:3])
    total, memory = _number(iteration, "total", label), _number(iteration, "memory", label)
    return MeasuredRank(
        rank=rank,
        label=label,
        kind=kind,
        chunk=chunk,
        microbatch=microbatch,
        start=columns[3] * MILLISECOND,
        end=columns[4] * MILLISECOND,
        total_time=None if total is None else total * MILLISECOND,
        memory_bytes=None if memory is None else memory * GIB,
    )


def _passes(iteration: Mapping[str, Any], name: str, kind: int, label: str) -> tuple[Any, ...]:
    """Kind, chunk, micro-batch, start and end of the passes of one kind."""
    start, end = (_numbers(iteration, f"{name}_{edge}", label) for edge in ("start", "end"))
    if len(start) != len(end):
        raise CONFIG.wrong(
            f"{label} has {len(start)} times in {name}_start and {len(end)} in {name}_end",
            "measure the step again: the file is not complete",
        )
    chunk, microbatch = (_whole(iteration, f"{name}_{each}", len(start), label) for each in ("chunk", "minibatch"))
    return np.full(len(start), kind), chunk, microbatch, start, end


def _numbers(iteration: Mapping[str, Any], key: str, label: str) -> np.ndarray[Any, Any]:
    """A list of numbers; weight gradients may be left out."""
    values = iteration.get(key, [] if key.startswith("wgrad") else None)
    if not isinstance(values, list):
        raise CONFIG.wrong(f"{label} has no list {key}", "give the files as Primus wrote them")
    for number, value in enumerate(values):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise CONFIG.wrong(f"{label}: item {number} of {key} is {shown(value)}", "write milliseconds")
    return np.array(values, dtype=np.float64)


def _whole(iteration: Mapping[str, Any], key: str, length: int, label: str) -> Ints:
    """A list of counts, or what stands for numbers that are not given."""
    values = iteration.get(key) or []
    if not values:
        return np.full(length, NOT_GIVEN)
    if not isinstance(values, list) or len(values) != length:
        raise CONFIG.wrong(
            f"{label} has {length} passes and another number of items in {key}", "measure the step again"
        )
    for number, value in enumerate(values):
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_COUNT:
            raise CONFIG.wrong(f"{label}: item {number} of {key} is {shown(value)}", "write a whole number, 0 or more")
    return np.array(values, dtype=np.int64)


def _number(iteration: Mapping[str, Any], key: str, label: str) -> float | None:
    value = iteration.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1e12:
        raise CONFIG.wrong(f"{label}: {key} is {shown(value)}", "write a number, 0 or more")
    return float(value)

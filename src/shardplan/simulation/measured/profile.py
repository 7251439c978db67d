"""The time of one profiled step on one rank: computation by kind, exposed communication, idle time.

This file also reads pipeline dumps of Primus: ``pp_rank_0.json``, ``pp_rank_1.json`` ... that ``--dump_pp_data`` writes
for ``pp_vis``. A file holds the iterations of one pipeline rank by number. Of each are read ``total`` (the pipeline
call, ms), ``memory`` (most reserved memory so far, GiB) and, for ``fwd``, ``bwd`` and ``wgrad``, the lists
``fwd_start`` and ``fwd_end`` (ms from the start of the call on that rank), ``fwd_minibatch`` and ``fwd_chunk`` (missing
if Megatron runs its own schedules). ``config.json`` in the same folder gives ``pp_size``, ``vp_size`` and ``num_mbs``.
Format: AMD-AGI/Primus, ``primus/backends/megatron/core/pipeline_parallel/pp_visualizer.py``, commit fd1eeab.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np

from shardplan.base.errors import shown
from shardplan.base.fields import dataclass, in_files
from shardplan.base.files import FileKind, parse_document, printable, read_document
from shardplan.simulation.case import Seconds
from shardplan.simulation.measured.passes import CLASSES, COMPUTATION, IDLE, OPTIMIZER, covered
from shardplan.simulation.measured.ranks import MOST_RANK, NOT_GIVEN, Layout, MeasuredRank, wrong
from shardplan.simulation.measured.trace_file import Annotation, Trace
from shardplan.simulation.pieces import BACKWARD, FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, Ints

STEP: Final = re.compile(r"ProfilerStep#(\d{1,12})")
"""Annotation of ``torch.profiler.profile.step``."""
OPTIMIZER_STEP: Final = re.compile(r"Optimizer\.step#")
"""Annotation of ``torch.optim.Optimizer.step``."""
PASS: Final = re.compile(r"(?:PP:)?(\d{1,6})?(Forward|Backward|F|I|B|W) ?(\d{1,7})?", re.IGNORECASE)
"""Annotations of ``torch.distributed.pipelining``: ``PP:3F0`` (stage 3, micro-batch 0), ``Forward 0``, ``Backward 0``;
and the like of a user's own, such as ``forward`` and ``F0``."""
KINDS: Final = {"f": FORWARD, "i": INPUT_GRADIENT, "b": BACKWARD, "w": WEIGHT_GRADIENT}
"""Kinds of passes by the first letter of their annotation."""


@dataclass(frozen=True, kw_only=True)
class CollectiveTime:
    """One kind of collective of a step."""

    dimension: str
    """Term of the estimate, or ``communication`` if the trace does not name the group of ranks."""
    collective: str
    count: int
    busy_time: float = field(metadata=in_files("busy_s"))
    """Sum of its kernels, including waits for other ranks. [s]"""
    exposed_time: float = field(metadata=in_files("exposed_s"))
    """The part during which nothing is computed. [s]"""


@dataclass(frozen=True, kw_only=True)
class ProfiledStep:
    """The kernels of one step on one rank."""

    label: str
    rank: int
    world_size: int | None
    """Ranks of the run, if the trace says it."""
    step: str
    step_time: float
    """Time from the first kernel to that of the next step; without a next step, to the end of its last kernel. [s]"""
    is_open: bool
    """Whether no next step follows."""
    kind: Ints
    """Position in ``CLASSES``."""
    collective: Ints
    start: Seconds
    """Time since the start of the step. [s]"""
    end: Seconds
    names: tuple[tuple[str, str], ...]

    @cached_property
    def terms(self) -> dict[str, float]:
        """Seconds of every class, and idle time; they add up to the step time.

        A moment in which several kinds of work run counts once, for the first of them in the order of ``CLASSES``, so
        communication is what no computation hides.
        """
        spent, so_far = dict[str, float](), 0.0
        for number, name in enumerate(CLASSES):
            if np.any(self.kind == number):
                mine = self.kind <= number
                whole = covered(self.start[mine], self.end[mine])
                spent[name], so_far = whole - so_far, whole
        return spent | {IDLE: max(self.step_time - so_far, 0.0)}

    @property
    def computation_time(self) -> float:
        """Time during which something is computed. [s]"""
        return sum(self.terms.get(name, 0.0) for name in COMPUTATION)

    @cached_property
    def collectives(self) -> tuple[CollectiveTime, ...]:
        """Every kind of collective, by dimension."""
        computes = self.kind < len(COMPUTATION)
        alone = covered(self.start[computes], self.end[computes])
        found = []
        for number, (dimension, collective) in enumerate(self.names):
            mine = self.collective == number
            if mine.any():
                both = covered(self.start[computes | mine], self.end[computes | mine])
                found.append(
                    CollectiveTime(
                        dimension=dimension,
                        collective=collective,
                        count=int(mine.sum()),
                        busy_time=float((self.end - self.start)[mine].sum()),
                        exposed_time=both - alone,
                    )
                )
        return tuple(sorted(found, key=lambda one: -one.busy_time))


def steps_of(trace: Trace) -> dict[str, tuple[float, float, bool]]:
    """Start and end of every step of a trace, and whether no step follows, by its number. Raises InputError.

    Uses the annotations of the accelerator, or if there are none, those of the host.
    """
    spans: dict[int, tuple[float, float]] = {}
    has_device = any(one.on_device and STEP.fullmatch(one.name) for one in trace.annotations)
    for one in trace.annotations:
        named = STEP.fullmatch(one.name)
        if named and one.on_device == has_device:
            first, last = spans.get(int(named[1]), (np.inf, -np.inf))
            spans[int(named[1])] = (min(first, one.start), max(last, one.end))
    if not spans:
        raise wrong(
            f"{trace.label} has no annotation ProfilerStep#N",
            "call step() of the profiler after every training step, so that steps are marked",
        )
    numbers = sorted(spans)
    found = {}
    for number, following in zip(numbers, [*numbers[1:], None], strict=True):
        start, last = spans[number]
        end = spans[following][0] if following == number + 1 else last
        found[str(number)] = (start, end, following != number + 1)
    return found


def profiled_step(trace: Trace, step: str) -> ProfiledStep:
    """One step of a trace. Raises InputError if it has no kernels."""
    begin, end, is_open = steps_of(trace)[step]
    mine = (trace.start >= begin) & (trace.start < max(end, begin))
    if not mine.any():
        raise wrong(f"{trace.label} has no kernels in step {step}")
    start, last = trace.start[mine], np.minimum(trace.end[mine], end)
    first = float(start.min())
    return ProfiledStep(
        label=trace.label,
        rank=trace.rank,
        world_size=trace.world_size,
        step=step,
        step_time=float((last.max() if is_open else end) - first),
        is_open=is_open,
        kind=_kinds_with_optimizer(trace, mine),
        collective=trace.collective[mine],
        start=start - first,
        end=np.maximum(last, start) - first,
        names=trace.collectives,
    )


def _kinds_with_optimizer(trace: Trace, mine: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Ints:
    """Classes of kernels, where all computation within an annotation of the optimizer belongs to the optimizer."""
    kind, start = trace.kind[mine].copy(), trace.start[mine]
    for one in trace.annotations:
        if one.on_device and OPTIMIZER_STEP.match(one.name):
            within = (start >= one.start) & (start < one.end) & (kind < len(COMPUTATION))
            kind[within] = CLASSES.index(OPTIMIZER)
    return kind


def passes_of(trace: Trace, step: str, rank: int) -> MeasuredRank | None:
    """The passes that annotations of the accelerator mark in a step; None unless both directions are marked."""
    begin, end, _ = steps_of(trace)[step]
    found = [
        (named, one)
        for one in trace.annotations
        if one.on_device and begin <= one.start < max(end, begin) and (named := PASS.fullmatch(one.name))
    ]
    rows = _rows(found)
    kinds = {row[0] for row in rows}
    if FORWARD not in kinds or not kinds & {BACKWARD, INPUT_GRADIENT}:
        return None
    kind, stage, microbatch, start, last = (np.array(column) for column in zip(*rows, strict=True))
    stages = np.unique(stage)
    return MeasuredRank(
        rank=rank,
        label=f"{trace.label}, step {step}",
        kind=kind.astype(np.int64),
        chunk=np.searchsorted(stages, stage) if np.all(stages >= 0) else np.full(len(kind), NOT_GIVEN),
        microbatch=microbatch.astype(np.int64),
        start=start.astype(np.float64) - begin,
        end=last.astype(np.float64) - begin,
    )


Row = tuple[int, int, int, float, float]
"""Kind, stage, micro-batch, start and end."""


def _rows(found: Sequence[tuple[re.Match[str], Annotation]]) -> list[Row]:
    """One row for every pass: an annotation that names its micro-batch spans all streams that have it."""
    numbered: dict[tuple[int, int, int], tuple[float, float]] = {}
    others: dict[str, list[Row]] = {}
    for named, one in found:
        kind = KINDS[named[2][0].lower()]
        stage, microbatch = (NOT_GIVEN if each is None else int(each) for each in (named[1], named[3]))
        if microbatch == NOT_GIVEN:
            others.setdefault(one.stream, []).append((kind, stage, microbatch, one.start, one.end))
        else:
            first, last = numbered.get((kind, stage, microbatch), (np.inf, -np.inf))
            numbered[kind, stage, microbatch] = (min(first, one.start), max(last, one.end))
    most = max(others.values(), key=len, default=[])
    return [(*key, *span) for key, span in numbered.items()] + most


SOURCE: Final = "pipeline dump of Primus"
RULE: Final = "a pipeline dump of Primus holds iterations with the lists fwd_start, fwd_end, bwd_start and bwd_end"
CONFIG: Final = FileKind("the config.json of the dump", 64 * 1024, RULE)
CONFIG_NAME: Final = "config.json"
NAME: Final = re.compile(r"pp_rank_(\d{1,5})\.json(?:\.gz)?")
PRIMUS_KINDS: Final = {"fwd": FORWARD, "bwd": BACKWARD, "wgrad": WEIGHT_GRADIENT}
COUNTS: Final = (("pp_size",), ("vp_size", "vpp_size"), ("num_mbs", "micro_batches"))
"""Keys of config.json for the numbers of ranks, chunks and micro-batches; the second ones are older."""
MOST_COUNT: Final = 1_000_000
GIB: Final = 1024**3
MILLISECOND: Final = 1e-3


def ranks_of(path: Path, text: str) -> dict[str, MeasuredRank]:
    """The iterations of the rank in the file's name, by their number. Raises ``InputError``."""
    name, found = printable(path.name), NAME.fullmatch(path.name)
    if found is None or int(found[1]) > MOST_RANK:
        raise CONFIG.wrong(
            f"{name} is a pipeline dump of Primus whose name has no rank",
            "name the file of rank 3 pp_rank_3.json, as Primus does",
        )
    rank = int(found[1])
    label = f"rank {rank} ({name})"
    return {
        number: _rank(rank, f"{label}, iteration {number}", iteration)
        for number, iteration in parse_document(text, label=name, is_json=True).items()
    }


def layout_of(folder: Path) -> Layout | None:
    """The layout in ``config.json`` in the folder of the dump; None if there is none. Raises ``InputError``."""
    path = folder / CONFIG_NAME
    if not path.is_file():
        return None
    document = read_document(path, CONFIG)
    counts: list[int] = []
    for keys in COUNTS:
        value = next((document[key] for key in keys if key in document), None)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_COUNT:
            fix = f"write a whole number for {keys[0]}, 1 or more"
            raise CONFIG.wrong(f"{keys[0]} of {CONFIG_NAME} is {shown(value)}", fix)
        counts.append(value)
    num_ranks, vp, num_microbatches = counts
    return Layout.usual(num_ranks, vp, num_microbatches, f"{CONFIG_NAME} next to the files")


def _rank(rank: int, label: str, iteration: object) -> MeasuredRank:
    if not isinstance(iteration, dict):
        raise CONFIG.wrong(f"{label} is {shown(iteration)}", "give the files as Primus wrote them")
    parts = [_passes(iteration, name, kind, label) for name, kind in PRIMUS_KINDS.items()]
    *counts, start, end = (np.concatenate([part[number] for part in parts]) for number in range(5))
    kind, chunk, microbatch = (column.astype(np.int64) for column in counts)
    total, memory = _number(iteration, "total", label), _number(iteration, "memory", label)
    return MeasuredRank(
        rank=rank,
        label=label,
        kind=kind,
        chunk=chunk,
        microbatch=microbatch,
        start=start * MILLISECOND,
        end=end * MILLISECOND,
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
    """A list of numbers; weight gradients are optional."""
    values = iteration.get(key, [] if key.startswith("wgrad") else None)
    if not isinstance(values, list):
        raise CONFIG.wrong(f"{label} has no list {key}", "give the files as Primus wrote them")
    for number, value in enumerate(values):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise CONFIG.wrong(f"{label}: item {number} of {key} is {shown(value)}", "write milliseconds")
    return np.array(values, dtype=np.float64)


def _whole(iteration: Mapping[str, Any], key: str, length: int, label: str) -> Ints:
    """A list of counts, or ``NOT_GIVEN`` for each if the file has no numbers."""
    values = iteration.get(key) or []
    if not values:
        return np.full(length, NOT_GIVEN)
    if not isinstance(values, list) or len(values) != length:
        why = f"{label} has {length} passes and another number of items in {key}"
        raise CONFIG.wrong(why, "measure the step again")
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

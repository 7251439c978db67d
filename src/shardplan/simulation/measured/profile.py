"""Where the time of one profiled step goes on one rank: computation by kind, exposed communication, idle time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field
from functools import cached_property
from typing import Final

import numpy as np

from shardplan.fields import dataclass, in_files
from shardplan.simulation.clock import Seconds
from shardplan.simulation.measured.kernels import CLASSES, COMPUTATION, IDLE, OPTIMIZER
from shardplan.simulation.measured.passes import covered
from shardplan.simulation.measured.ranks import NOT_GIVEN, MeasuredRank, wrong
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
"""By the first letter."""


@dataclass(frozen=True, kw_only=True)
class CollectiveTime:
    """One kind of collective of a step."""

    dimension: str
    """Term of the estimate, or ``communication`` where the trace does not name the group of ranks."""
    collective: str
    count: int
    busy_time: float = field(metadata=in_files("busy_s"))
    """Sum of its kernels, waiting for other ranks included. [s]"""
    exposed_time: float = field(metadata=in_files("exposed_s"))
    """The part in which nothing is computed. [s]"""


@dataclass(frozen=True, kw_only=True)
class ProfiledStep:
    """The kernels of one step on one rank."""

    label: str
    rank: int
    world_size: int | None
    """Ranks of the run, where the trace says it."""
    step: str
    step_time: float
    """From its first kernel to that of the next step; where there is none, to the end of its last kernel. [s]"""
    is_open: bool
    """Whether no next step follows."""
    kind: Ints
    """Position in ``CLASSES``."""
    collective: Ints
    start: Seconds
    """From the start of the step. [s]"""
    end: Seconds
    names: tuple[tuple[str, str], ...]

    @cached_property
    def terms(self) -> dict[str, float]:
        """Seconds of every class, and idle time; they sum to the step time.

        A moment in which several kinds of work run counts once, for the first of them in the order of ``CLASSES``, so
        that communication is what no computation hides.
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
        """Time in which something is computed. [s]"""
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
    """Start, end and whether no step follows, of every step of a trace by its number. Raises InputError.

    By the annotations of the accelerator, or, where it has none, by those of the host.
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
    """One step of a trace. Raises InputError where it has no kernels."""
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
        kind=_with_optimizer(trace, mine),
        collective=trace.collective[mine],
        start=start - first,
        end=np.maximum(last, start) - first,
        names=trace.collectives,
    )


def _with_optimizer(trace: Trace, mine: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Ints:
    """Classes, where all computation within an annotation of the optimizer is the optimizer's."""
    kind, start = trace.kind[mine].copy(), trace.start[mine]
    for one in trace.annotations:
        if one.on_device and OPTIMIZER_STEP.match(one.name):
            within = (start >= one.start) & (start < one.end) & (kind < len(COMPUTATION))
            kind[within] = CLASSES.index(OPTIMIZER)
    return kind


def passes_of(trace: Trace, step: str, rank: int) -> MeasuredRank | None:
    """The passes that annotations of the accelerator mark in a step; None where there are not both directions."""
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
    """One for every pass: an annotation that names its micro-batch spans all streams that have it."""
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

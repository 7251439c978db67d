"""Pipeline schedules as records: what each needs and takes, who runs it, and a drawing of a small step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from shardplan.base.fields import dataclass
from shardplan.base.records import Record, plain
from shardplan.inputs.plan import schedule_meant
from shardplan.physics.frameworks.stack import list_stacks, load_stack
from shardplan.physics.schedules.base import ChunkTimes, Pipeline, Schedule
from shardplan.simulation.pieces import KINDS
from shardplan.simulation.step import SimulatedStep, simulate

NUM_RANKS: Final = 8
NUM_MICROBATCHES: Final = 32
EQUAL: Final = (1.0, 1.0, 1.0)
USUAL: Final = (1.0, 1.2, 0.8)
"""Forward pass, input gradient and weight gradient of one micro-batch on a rank, relative to each other."""
DIGITS: Final = "0123456789"
LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
WAITING: Final = "."


@dataclass(frozen=True, kw_only=True)
class ScheduleRow:
    """What is said of a schedule. Numbers are of 8 ranks and 32 micro-batches, with free transfers."""

    name: str
    title: str
    source: str
    """The paper that defines it."""
    rule: str
    """The pipelines that it runs on."""
    chunks_per_rank: int
    """Of the numbers here."""
    splits_backward: bool
    """Whether gradients of inputs and of weights are separate passes."""
    parameter_copies: int
    """Copies of the model that the ranks hold together."""
    bubble_rate_equal: float
    """Share of the step in which a rank waits, for F = B = W."""
    bubble_rate: float
    """The same for F : B : W = 1 : 1.2 : 0.8."""
    microbatches_in_flight: float
    """Most micro-batches whose activations a rank keeps in full, in units of its whole stage."""
    frameworks: dict[str, str]
    """Frameworks that run it, and what they call it; their ZB-1p and ZB-2p are recorded as ZB-H1 and ZB-H2."""


@dataclass(frozen=True, kw_only=True)
class Mark:
    """What a rank does in one unit of time."""

    text: str
    kind: str
    """F, B, W or BW; nothing where it waits."""
    chunk: int


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A step in which every pass of a chunk takes one unit."""

    num_ranks: int
    num_microbatches: int
    rows: tuple[tuple[Mark, ...], ...]
    """Units of every rank."""


def schedule_row(schedule: Schedule) -> ScheduleRow:
    """All of one schedule."""
    vp = schedule.least_vp
    equal, usual = (_small_step(schedule, NUM_RANKS, NUM_MICROBATCHES, times) for times in (EQUAL, USUAL))
    return ScheduleRow(
        name=schedule.name,
        title=schedule.title,
        source=schedule.source,
        rule=rule_text(schedule),
        chunks_per_rank=vp,
        splits_backward=schedule.splits_backward,
        parameter_copies=schedule.parameter_copies,
        bubble_rate_equal=equal.bubble_rate,
        bubble_rate=usual.bubble_rate,
        microbatches_in_flight=max(rank.peak_in_flight for rank in equal.ranks) / vp,
        frameworks=dict(_frameworks(str(schedule_meant(schedule.name)))),
    )


def schedule_record(schedule: Schedule) -> Record:
    """The same as a mapping."""
    record: Record = plain(schedule_row(schedule))
    return record


def rule_text(schedule: Schedule) -> str:
    """Ranks, chunks and micro-batches that it runs on."""
    chunks = {1: "1 chunk", None: f"{schedule.least_vp} chunks or more"}.get(
        schedule.most_vp, f"{schedule.least_vp} chunks"
    )
    texts = [f"{chunks} on each rank"]
    if schedule.least_pp > 1:
        texts.append(f"{schedule.least_pp} ranks or more")
    least = int(schedule.least_microbatches(NUM_RANKS))
    if least > 1:
        texts.append(f"{least} micro-batches or more for {NUM_RANKS} ranks")
    if schedule.needs != Schedule.needs:
        texts.append(schedule.needs)
    return "; ".join(texts)


def drawing(schedule: Schedule, width: int) -> Drawing:
    """A step of at most eight ranks that fits into ``width`` units; the smallest one where none does."""
    sizes = [(pp, m) for pp in (8, 6, 4, 2) for m in range(3 * pp, 0, -1)]
    fitting = (
        (pp, m, step)
        for pp, m in sizes
        if schedule.can_run(_pipeline(schedule, pp, m)) and 3 * m * schedule.least_vp <= width
        for step in [_small_step(schedule, pp, m, EQUAL, is_drawn=True)]
        if step.end.max() <= width
    )
    pp, m, step = next(fitting, None) or (2, 8, _small_step(schedule, 2, 8, EQUAL, is_drawn=True))
    return Drawing(num_ranks=pp, num_microbatches=m, rows=tuple(_marks(step, rank) for rank in range(pp)))


def _marks(step: SimulatedStep, rank: int) -> tuple[Mark, ...]:
    """Forward passes as digits, input gradients as small letters, weight gradients as capitals."""
    pieces = step.pieces
    marks = [Mark(text=WAITING, kind="", chunk=0)] * round(float(step.end.max()))
    clock: dict[int, float] = {}
    for piece in range(pieces.bounds[rank], pieces.bounds[rank + 1]):
        block = int(pieces.block[piece])
        start = clock.setdefault(block, float(step.start[piece]))
        kind, took = KINDS[pieces.kind[piece]], float(step.took[piece])
        clock[block] = start + took
        mark = Mark(text=_letter(kind, int(pieces.microbatch[piece])), kind=kind, chunk=int(pieces.chunk[piece]))
        marks[round(start) : round(start + took)] = [mark] * round(took)
    return tuple(marks)


def _letter(kind: str, microbatch: int) -> str:
    if kind == "F":
        return DIGITS[microbatch % len(DIGITS)]
    letter = LETTERS[microbatch % len(LETTERS)]
    return letter.upper() if kind == "W" else letter


def _pipeline(schedule: Schedule, pp: int, num_microbatches: int) -> Pipeline:
    return Pipeline(pp=pp, vp=schedule.least_vp, num_microbatches=num_microbatches, group_size=pp)


def _small_step(
    schedule: Schedule, pp: int, num_microbatches: int, seconds: tuple[float, float, float], *, is_drawn: bool = False
) -> SimulatedStep:
    """A step of equal stages, whose chunks take ``seconds`` where it is drawn, and the ranks otherwise."""
    at = _pipeline(schedule, pp, num_microbatches)
    chunk = np.ones(pp * schedule.least_vp) / (1 if is_drawn else schedule.least_vp)
    forward, input_gradient, weight_gradient = (chunk * each for each in seconds)
    return simulate(
        schedule,
        at,
        ChunkTimes(
            forward=forward, input_gradient=input_gradient, weight_gradient=weight_gradient, transfer=0.0 * chunk
        ),
    )


def _frameworks(name: str) -> Iterator[tuple[str, str]]:
    """Stacks whose newest version runs the schedule, and their names of it."""
    for stack in map(load_stack, list_stacks()):
        runs = None if stack.can_run is None else stack.can_run.schedules
        if runs and name in runs:
            yield stack.name, runs[name]

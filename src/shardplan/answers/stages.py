"""Time and memory of every pipeline stage of a plan, as a section of its answer."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

from shardplan.answers.document import Column, Part, RowTable, Tone
from shardplan.base.units import format_bytes, format_time
from shardplan.reports.texts.answer import percent
from shardplan.reports.truth import Truth


class StageUse(NamedTuple):
    """What a stage does in a step, and what it holds."""

    stages: str
    """Its number, from 0; of equal neighbours the first and the last: ``1 to 14``."""
    num_layers: int
    passes: float | None
    """Forward and backward passes with their exchanges; None where the step is not simulated. [s]"""
    waits: float | None
    """The rest of the pipeline's time: on the slowest stage the bubble of the step's split. [s]"""
    memory_bytes: float
    share: float
    """Of the usable memory."""
    is_slowest: bool


def stage_uses(truth: Truth) -> list[StageUse]:
    """A row for every stage."""
    estimate, slowest = truth.estimate, truth.estimate.slowest_stage
    busy = None if truth.simulation is None else [rank.busy_time for rank in truth.simulation.step.ranks]
    longest = None if busy is None else busy[slowest] + estimate.breakdown.get("bubble", 0.0)
    return [
        StageUse(
            stages=str(stage),
            num_layers=layers,
            passes=None if busy is None else busy[stage],
            waits=None if busy is None or longest is None else max(longest - busy[stage], 0.0),
            memory_bytes=sum(estimate.memory[stage].values()),
            share=sum(estimate.memory[stage].values()) / estimate.usable_memory_bytes,
            is_slowest=stage == slowest,
        )
        for stage, layers in enumerate(estimate.stage_layers)
    ]


COLUMNS = (
    Column("stage", "stage", lambda row: row.stages, is_text=True),
    Column("num_layers", "layers", lambda row: row.num_layers),
    Column("passes_s", "passes", lambda row: row.passes, format_time),
    Column("waits_s", "waits", lambda row: row.waits, format_time),
    Column("peak_memory_bytes", "memory", lambda row: row.memory_bytes, format_bytes),
    Column("memory_share", "of usable", lambda row: row.share, percent),
)


def truth_record(truth: Truth | None) -> dict[str, Any]:
    """How far a step time can be trusted, and every stage; nothing where nothing fits."""
    return {} if truth is None else {"truth": truth.record, "stages": RowTable(stage_uses(truth), COLUMNS)}


def stages_parts(truth: Truth) -> list[Part]:
    """The table of stages, neighbours with equal rows as one; nothing without a pipeline."""
    if len(truth.estimate.stage_layers) == 1:
        return []
    table = RowTable(_merged(stage_uses(truth)), COLUMNS, _tone)
    return [
        Part("Stages", [table], "passes and waiting of a step; on the slowest stage, waiting is the pipeline bubble")
    ]


def _tone(row: StageUse) -> Tone:
    return "strong" if row.is_slowest else ""


def _merged(rows: Sequence[StageUse]) -> list[StageUse]:
    """Neighbours that read the same as one row."""
    found = []
    for _, group in groupby(rows, key=lambda row: (row.is_slowest, *(column.cell(row) for column in COLUMNS[1:]))):
        first, *others = group
        found.append(first._replace(stages=f"{first.stages} to {others[-1].stages}") if others else first)
    return found

"""Sections of an answer about a plan: a measurement held against it, its stages, and the layout of its ranks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from shardplan.answers.document import Block, Bullets, Column, Line, Part, RowTable
from shardplan.base.records import Record, plain
from shardplan.base.units import format_bytes, format_time
from shardplan.base.words import joined
from shardplan.estimation.ranks import GroupKind, Level, RankLayout
from shardplan.reports.texts.answer import percent
from shardplan.reports.truth import TruthLine

if TYPE_CHECKING:
    from shardplan.launch.audit.observed import GapCause, GapExplanation


def observed_part(each: GapExplanation) -> Part:
    """A measurement, and what explains it, best first."""
    blocks: list[Block] = []
    if each.ratio is not None:
        place = "within" if each.is_in_band else "outside"
        blocks.append(Line(f"{each.ratio:.2f} times the predicted step time, {place} its band."))
    if not each.causes:
        blocks.append(Line("No known cause is needed, or none bridges the gap."))
    else:
        blocks.append(Bullets([f"{cause.cause}: {_share(cause)}. Check: {cause.check}." for cause in each.causes]))
    return Part("Observed", blocks, f"{each.observed.text}: {each.meaning}")


def _share(cause: GapCause) -> str:
    """How much of the gap a cause explains, and what the plan would take with it."""
    if not cause.bridges:
        return "nearby"
    if cause.change and cause.step_time is not None and cause.bridges > 1:
        return f"would be more than the gap, {format_time(cause.step_time)} a step; explains it in part"
    if cause.bridges > 1:
        held = "" if cause.peak_memory_bytes is None else f", {format_bytes(cause.peak_memory_bytes)}"
        return f"would be more than the gap{held}; explains it in part"
    return f"explains {100 * cause.explains:.0f} % of the gap"


def observed_records(observed: Sequence[GapExplanation]) -> dict[str, Any]:
    """All measurements; nothing where there are none."""
    return {"observed": [observed_record(each) for each in observed]} if observed else {}


def observed_record(each: GapExplanation) -> dict[str, Any]:
    """The measurement with its causes; docs/output.md has every key."""
    return {
        "text": each.observed.text,
        "kind": each.observed.kind,
        **{key: value for key, value in plain(each).items() if key not in ("observed", "causes")},
        "causes": [{**plain(cause), "explains": cause.explains} for cause in each.causes],
    }


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


def stage_uses(truth: TruthLine) -> list[StageUse]:
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


def truth_record(truth: TruthLine | None) -> dict[str, Any]:
    """How far a step time can be trusted, and every stage; nothing where nothing fits."""
    return {} if truth is None else {"truth": truth.record, "stages": RowTable(stage_uses(truth), COLUMNS)}


def stages_parts(truth: TruthLine) -> list[Part]:
    """The table of stages, neighbours with equal rows as one; nothing without a pipeline."""
    if len(truth.estimate.stage_layers) == 1:
        return []
    table = RowTable(_merged(stage_uses(truth)), COLUMNS, lambda row: "strong" if row.is_slowest else "")
    return [
        Part("Stages", [table], "passes and waiting of a step; on the slowest stage, waiting is the pipeline bubble")
    ]


def _merged(rows: Sequence[StageUse]) -> list[StageUse]:
    """Neighbours that read the same as one row."""
    found = []
    for _, group in groupby(rows, key=lambda row: (row.is_slowest, *(column.cell(row) for column in COLUMNS[1:]))):
        first, *others = group
        found.append(first._replace(stages=f"{first.stages} to {others[-1].stages}") if others else first)
    return found


MOST_IN_A_NODE: Final = 16
"""Ranks of a node that are shown; the record has all."""
MOST_NAMED: Final = 4
"""Ranks of a group that are all named."""


def layout_parts(layout: RankLayout) -> list[Part]:
    """One node and the groups."""
    return [_node_part(layout), *([_groups_part(layout)] if layout.kinds else [])]


def _node_part(layout: RankLayout) -> Part:
    """The places of a node's ranks in their groups, a rank in every column."""
    shown = np.arange(min(layout.node.ranks, MOST_IN_A_NODE))
    rows = [(kind.name, kind.places(shown).tolist()) for kind in layout.kinds]

    def of_rank(rank: int) -> Column:
        return Column("", f"{rank}", lambda row: row[1][rank])

    columns = [Column("", "rank", lambda row: row[0], is_text=True), *map(of_rank, shown.tolist())]
    more = layout.node.ranks - len(shown)
    lines = [Line(f"{more} more ranks of the node: --json - lists all.", tone="quiet")] if more else []
    table: list[Block] = [RowTable(rows, columns)] if rows else []
    blocks = [*table, *lines, Line(f"{numbering(layout)}.", tone="quiet")]
    return Part("Layout", blocks, "node 0: the place of every rank in its groups")


def numbering(layout: RankLayout) -> str:
    """How ranks are numbered, and how many lie in each domain."""
    filled = ", ".join(f"{_of_level(level)} in a {level.name}" for level in layout.levels)
    return f"{layout.num_ranks:,} ranks in the order {layout.order}: {filled}"


def _of_level(level: Level) -> str:
    return f"{level.ranks:,}" if level.ranks == level.size else f"{level.ranks:,} of {level.size:,}"


def _groups_part(layout: RankLayout) -> Part:
    def over(tier: str) -> Column:
        return Column("", tier, lambda kind: kind.sent.get(tier) or None, format_bytes)

    columns = (
        Column("", "", lambda kind: kind.name, is_text=True),
        Column("", "ranks", lambda kind: kind.size, "{:,}".format),
        Column("", "groups", lambda kind: layout.num_ranks // kind.size, "{:,}".format, rank=3),
        Column("", "that of rank 0", lambda kind: first_group(layout, kind), is_text=True),
        Column("", "lie in", lambda kind: span(layout, kind), is_text=True, rank=2),
        *(over(tier) for tier in layout.tiers),
    )
    note = "bytes that a rank of the slowest stage sends in a step"
    table = RowTable(layout.kinds, columns, notes=[("", text) for text in counted_elsewhere(layout)])
    return Part("Groups", [table], note)


def counted_elsewhere(layout: RankLayout) -> list[str]:
    """Which kinds of groups send what is counted with another."""
    of_states = "dp-cp" if any(kind.name == "dp-cp" for kind in layout.kinds) else "dp"
    names = [kind.name for kind in layout.kinds if kind.name in ("dp", "edp") and kind.name != of_states]
    return [f"{joined(names)}: counted with {of_states}"] if names else []


def first_group(layout: RankLayout, kind: GroupKind) -> str:
    """Ranks of the group that rank 0 is in: 0, 8 ... 56."""
    return ranks_text(kind.groups(layout.num_ranks)[0].tolist())


def ranks_text(ranks: Sequence[int]) -> str:
    """Ranks in few words.

    >>> ranks_text([0, 1, 2, 3, 4, 5, 6, 7]), ranks_text([0, 8, 16, 24, 32])
    ('0 to 7', '0, 8 ... 32')
    """
    if len(ranks) > 2 and ranks[-1] - ranks[0] == len(ranks) - 1:
        return f"{ranks[0]:,} to {ranks[-1]:,}"
    if len(ranks) <= MOST_NAMED:
        return ", ".join(f"{rank:,}" for rank in ranks)
    run = next((place for place, rank in enumerate(ranks) if rank != ranks[0] + place), len(ranks))
    start = ", ".join(f"{rank:,}" for rank in ranks[: max(run, 1) + 1][:3])
    return f"{start} ... {ranks[-1]:,}"


def span(layout: RankLayout, kind: GroupKind) -> str:
    """In how many domains a group lies at most, of the largest domains of which it needs several."""
    counts = [(layout.spread(kind, level), level.name) for level in layout.levels]
    number, name = next((each for each in reversed(counts) if each[0] > 1), counts[0])
    return f"{number:,} {name}{'s' if number > 1 else ''}"


def layout_record(layout: RankLayout) -> Record:
    """``levels``, ``groups`` with all their ranks, and for every rank its place on every level and in every group."""
    ranks = np.arange(layout.num_ranks)
    columns = {"rank": ranks, **layout.places(ranks), **{kind.name: kind.places(ranks) for kind in layout.kinds}}
    rows = zip(*(column.tolist() for column in columns.values()), strict=True)
    return {
        "order": layout.order,
        "levels": [level._asdict() for level in layout.levels],
        "groups": [_group_record(layout, kind) for kind in layout.kinds],
        "ranks": [dict(zip(columns, row, strict=True)) for row in rows],
    }


def _group_record(layout: RankLayout, kind: GroupKind) -> dict[str, Any]:
    groups = kind.groups(layout.num_ranks).tolist()
    return {"name": kind.name, "size": kind.size, "sent_bytes": dict(kind.sent), "ranks": groups}

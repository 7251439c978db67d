"""The layout of a plan's ranks: one node as a table, which ranks form each group, and what these send on each tier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from shardplan.answers.document import Block, Column, Line, Part, RowTable
from shardplan.base.records import Record
from shardplan.base.units import format_bytes
from shardplan.base.words import joined
from shardplan.estimation.ranks import GroupKind, Level, RankLayout

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

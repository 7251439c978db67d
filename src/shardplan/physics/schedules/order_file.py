"""Orders of passes as PyTorch writes and reads them: a CSV with a row for every rank.

A cell is a stage, a pass and a micro-batch, such as ``3F0``: F is a forward pass, I an input gradient, W a weight
gradient, B both gradients at once; ``(0F4;7B1)OVERLAP_F_B`` are two that run as one block. Empty cells are
waiting, and cells of communication (``SEND_F``, ``RECV_B``, ``UNSHARD`` ...) are left out: the simulation sends what
is needed.
Format: ``torch.distributed.pipelining.schedules``, ``_PipelineScheduleRuntime._load_csv``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Final, cast

from shardplan.base.arrays import Flags
from shardplan.base.errors import shown
from shardplan.base.fields import dataclass
from shardplan.base.files import FileKind, csv_rows, printable, read_text
from shardplan.physics.schedules.base import ChunkTimes, Kind, Orders, Pass, Pipeline, Place, Schedule

RULE: Final = "a schedule file has a row for every rank, and cells such as 0F0, 0I0, 0W0 and 0B0"
FILE: Final = FileKind("the schedule", 64 * 1024 * 1024, RULE)
KINDS: Final[dict[str, Kind]] = {"F": "F", "I": "B", "W": "W", "B": "BW"}
CELL: Final = re.compile(r"(\d{1,6})([FIWB])(\d{1,7})")
BLOCK: Final = re.compile(r"\((.+)\)OVERLAP_F_B")
COMMUNICATION: Final = re.compile(r"\d*(SEND_F|RECV_F|SEND_B|RECV_B|UNSHARD|RESHARD|REDUCE_GRAD)\d*")


@dataclass(frozen=True, kw_only=True)
class StagePass:
    """A cell of the file."""

    stage: int
    kind: Kind
    microbatch: int
    joined: bool


class OrderFile(Schedule):
    """The order of a file. The stages of a rank are those of its row."""

    name = "file"
    title = "Order of a file"
    source = "torch.distributed.pipelining, schedules in CSV"
    most_vp = None

    def __init__(self, rows: Sequence[Sequence[StagePass]], label: str) -> None:
        self.label = label
        self.stages = [sorted({one.stage for one in row}) for row in rows]
        self.num_microbatches = 1 + max(one.microbatch for row in rows for one in row)
        self.splits_backward = any(one.kind == "W" for row in rows for one in row)  # type: ignore[misc]  # of this file
        self._check_stages()
        self.least_vp = self.vp = len(self.stages[0])  # type: ignore[misc]  # of this file
        self.needs = (  # type: ignore[misc]  # of this file
            f"{len(rows)} ranks with {self.vp} chunks each and {self.num_microbatches} micro-batches, as {label} has"
        )
        chunks = [{stage: chunk for chunk, stage in enumerate(held)} for held in self.stages]
        self.orders: Orders = tuple(
            tuple(Pass(one.kind, chunks[rank][one.stage], one.microbatch, one.joined) for one in row)
            for rank, row in enumerate(rows)
        )

    def order(self, at: Pipeline, times: ChunkTimes) -> Orders:  # noqa: ARG002  # the order is fixed
        """That of the file."""
        return self.orders

    def path(self, pp: int, vp: int, num_microbatches: int, microbatch: int) -> tuple[Place, ...]:  # noqa: ARG002
        """Through the stages in their order, wherever the rows have them."""
        places = {stage: Place(rank, held.index(stage)) for rank, held in enumerate(self.stages) for stage in held}
        return tuple(places[stage] for stage in sorted(places))

    def holds(self, at: Pipeline) -> Flags:
        """The ranks, chunks and micro-batches of the file."""
        counts = (int(at.pp), int(at.vp), int(at.num_microbatches))
        return counts == (len(self.stages), self.vp, self.num_microbatches)

    def nearest(self, at: Pipeline) -> Pipeline:
        """The ranks, chunks and micro-batches of the file."""
        ranks = len(self.stages)
        return replace(at, pp=ranks, vp=self.vp, num_microbatches=self.num_microbatches)

    def rank_name(self, rank: int) -> str:
        """With the row of the file."""
        return f"rank {rank} (row {rank + 1} of {self.label})"

    def _check_stages(self) -> None:
        held = sorted(stage for stages in self.stages for stage in stages)
        twice = next((stage for stage, other in pairwise(held) if stage == other), None)
        if twice is not None:
            rows = [self.rank_name(rank) for rank, stages in enumerate(self.stages) if twice in stages]
            raise FILE.wrong(f"{self.label} has stage {twice} on {' and '.join(rows)}", "keep every stage on one rank")
        missing = next((stage for stage, number in enumerate(held) if stage != number), None)
        if missing is not None:
            raise FILE.wrong(f"{self.label} has no stage {missing}", "number the stages from 0, and leave none out")
        odd = next((rank for rank, stages in enumerate(self.stages) if len(stages) != len(self.stages[0])), None)
        if odd is not None:
            counts = f"{len(self.stages[odd])} stages, and {self.rank_name(0)} has {len(self.stages[0])}"
            raise FILE.wrong(f"{self.rank_name(odd)} has {counts}", "give every rank as many stages")


def read_order_file(path: Path) -> OrderFile:
    """The schedule in the file at ``path``. Raises InputError."""
    return order_of_text(read_text(path, FILE), printable(path.name))


def order_of_text(text: str, label: str) -> OrderFile:
    """The schedule that ``text`` holds; ``label`` names it in errors. Raises InputError."""
    rows = [
        list(_row(cells, f"{label}, row {number + 1} (rank {number})"))
        for number, cells in enumerate(csv_rows(text, label, FILE))
    ]
    while rows and not rows[-1]:
        rows.pop()
    empty = next((number for number, row in enumerate(rows) if not row), None)
    if not rows or empty is not None:
        where = "has no passes" if empty is None else f"has none in row {empty + 1} (rank {empty})"
        raise FILE.wrong(f"{label} {where}", "give every rank a row with its passes")
    return OrderFile(rows, label)


def _row(cells: Sequence[str], where: str) -> Iterator[StagePass]:
    for number, cell in enumerate(cells, start=1):
        text = cell.strip()
        if not text or COMMUNICATION.fullmatch(text):
            continue
        block = BLOCK.fullmatch(text)
        parts = block[1].split(";") if block else [text]
        for place, part in enumerate(parts, start=1):
            found = CELL.fullmatch(part.strip())
            if found is None:
                raise FILE.wrong(
                    f"{where}, cell {number} is {shown(text)}", "write a stage, F, I, W or B, and a micro-batch: 3F0"
                )
            kind = KINDS[cast("str", found[2])]
            yield StagePass(stage=int(found[1]), kind=kind, microbatch=int(found[3]), joined=place < len(parts))

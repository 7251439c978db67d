"""The pieces of work of a step as columns: which rank runs each, its position in the model, and what it waits for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from itertools import chain
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shardplan.base.errors import InputError
from shardplan.base.fields import dataclass
from shardplan.physics.schedules.base import ChunkTimes, Orders, Pipeline, PipelineSchedule, Schedule

Ints = NDArray[np.int64]

KINDS: Final = ("F", "B", "W", "BW")
"""Forward pass, input gradient, weight gradient, and both gradients in one piece; by number."""
FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, BACKWARD = range(4)
WORK: Final = {"F": "forward pass", "B": "input gradient", "W": "weight gradient", "BW": "backward pass"}
NOTHING: Final = -1
MOST_PASSES: Final = 4_000_000
"""Most forward passes of chunks in one simulation: more would take minutes."""

KEPT_PASSES: Final = 8192
"""Pieces or times of a step with at most so many forward passes are kept for the next one: 2 MB each."""


def check_passes(at: Pipeline, num_steps: int = 1, *, most: int = MOST_PASSES) -> None:
    """Refuses simulations that would take minutes, also of several steps one by one. Raises ``InputError``."""
    num_passes = at.pp * at.vp * at.num_microbatches * num_steps
    if num_passes > most:
        raise InputError(
            f"the step has {num_passes:,} forward passes of chunks",
            rule=f"a simulation has at most {most:,}",
            hint="simulate fewer micro-batches or ranks: the steady state repeats itself",
        )


@dataclass(frozen=True, kw_only=True)
class Pieces:
    """Every piece of a step, in the order of each rank, rank by rank."""

    rank: Ints
    kind: Ints
    """Position in ``KINDS``."""
    chunk: Ints
    """Chunk within the rank."""
    microbatch: Ints
    position: Ints
    """Position of the chunk in the model."""
    source: Ints
    """Piece of another chunk that it waits for, or -1."""
    after: Ints
    """Last piece of the block of ``source``, or -1."""
    edge: Ints
    """Chunk after which the transfer from ``source`` happens, or -1 if that is on the same rank."""
    block: Ints
    """Last piece of the block that it runs in; for a piece that is not joined, itself."""
    bounds: Ints
    """Index of the first piece of every rank, and the number of all pieces."""
    rank_names: tuple[str, ...]
    """Names of the ranks in errors."""

    @classmethod
    def of(cls, schedule: Schedule, at: Pipeline, orders: Orders) -> Pieces:
        """The pieces of ``orders``, after checking that each is there once and that each rank's order is possible."""
        kind, chunk, microbatch, joined = _columns(orders)
        lengths = [len(order) for order in orders]
        rank, bounds = np.repeat(np.arange(len(orders)), lengths), np.concatenate(([0], np.cumsum(lengths)))
        ranks_of, positions = _places(schedule, at)
        position = positions[microbatch, rank, chunk]
        table = _Table.of(kind, position, microbatch, shape=ranks_of.shape)
        names = tuple(schedule.rank_name(number) for number in range(len(orders)))
        table.check(kind, ranks_of, names)
        (ends,) = np.nonzero(~joined)
        block = ends[np.searchsorted(ends, np.arange(len(joined)))]
        needs = table.needed(kind, position, microbatch)
        source = np.where(needs == NOTHING, NOTHING, rank[needs])
        behind = np.where(kind == FORWARD, position - 1, position)
        return cls(
            rank=rank,
            kind=kind,
            chunk=chunk,
            microbatch=microbatch,
            position=position,
            source=needs,
            after=np.where(needs == NOTHING, NOTHING, block[needs]),
            edge=np.where((needs == NOTHING) | (source == rank), NOTHING, behind),
            block=block,
            bounds=bounds,
            rank_names=names,
        )

    @cached_property
    def after_list(self) -> list[int]:
        """``after`` as a list, whose single elements are read faster."""
        listed: list[int] = self.after.tolist()
        return listed

    @cached_property
    def is_alone(self) -> bool:
        """Whether no pieces run as one block."""
        return bool(self.block[0] == 0 and np.all(np.diff(self.block) == 1))

    @cached_property
    def first_of_block(self) -> Ints:
        """First piece of the block that every piece runs in."""
        begins = np.concatenate(([True], self.block[1:] != self.block[:-1]))
        first: Ints = np.flatnonzero(begins)[np.cumsum(begins) - 1]
        return first

    def name(self, piece: int) -> str:
        """Name of a piece in an error."""
        return (
            f"the {WORK[KINDS[self.kind[piece]]]} of micro-batch {self.microbatch[piece]} in chunk {self.chunk[piece]}"
        )


def pieces_of(schedule: Schedule, at: Pipeline, times: ChunkTimes) -> Pieces:
    """The pieces of a step. They are kept for the next step if their order does not depend on times."""
    small = at.pp * at.vp * at.num_microbatches <= KEPT_PASSES
    if small and isinstance(schedule, PipelineSchedule) and type(schedule).order is PipelineSchedule.order:
        counts = map(int, (at.pp, at.vp, at.num_microbatches, at.group_size))
        return kept_pieces(schedule, type(schedule).events, *counts)
    return Pieces.of(schedule, at, schedule.order(at, times))


@lru_cache(maxsize=32)
def kept_pieces(schedule: Schedule, events: Callable[..., Orders], *counts: int) -> Pieces:
    """Pieces of ``events`` of the schedule, for its ranks, chunks per rank, micro-batches and group size."""
    pp, vp, num_microbatches, group_size = counts
    at = Pipeline(pp=pp, vp=vp, num_microbatches=num_microbatches, group_size=group_size)
    return Pieces.of(schedule, at, events(schedule, *counts))


@dataclass(frozen=True, kw_only=True)
class _Table:
    """Index of the piece for each position in the model and micro-batch."""

    forward: Ints
    input_gradient: Ints
    weight_gradient: Ints

    @classmethod
    def of(cls, kind: Ints, position: Ints, microbatch: Ints, *, shape: tuple[int, ...]) -> _Table:
        """``shape`` is micro-batches x positions."""

        def numbers(*kinds: int) -> Ints:
            table = np.full(shape, NOTHING)
            (found,) = np.nonzero(any_of(kind, kinds))
            twice = np.bincount(microbatch[found] * shape[1] + position[found], minlength=1) > 1
            if twice.any():
                raise _wrong_work(int(np.argmax(twice)), shape[1], KINDS[kinds[0]], "runs more than once")
            table[microbatch[found], position[found]] = found
            return table

        return cls(
            forward=numbers(FORWARD),
            input_gradient=numbers(INPUT_GRADIENT, BACKWARD),
            weight_gradient=numbers(WEIGHT_GRADIENT, BACKWARD),
        )

    def check(self, kind: Ints, ranks_of: Ints, names: tuple[str, ...]) -> None:
        """Refuses missing pieces, and a rank that runs a gradient before its own input for it."""
        for name, table in (("F", self.forward), ("B", self.input_gradient), ("W", self.weight_gradient)):
            missing = table == NOTHING
            if missing.any():
                where = int(np.argmax(missing))
                raise _wrong_work(where, table.shape[1], name, f"is missing on {names[ranks_of.flat[where]]}")
        order = (("F", self.forward, self.input_gradient), ("B", self.input_gradient, self.weight_gradient))
        for name, first, then in order:
            early = (then < first) | ((then == first) & (kind[then] != BACKWARD))
            if early.any():
                where = int(np.argmax(early))
                on = names[ranks_of.flat[where]]
                raise _wrong_work(where, early.shape[1], name, f"runs after its gradient on {on}")

    def needed(self, kind: Ints, position: Ints, microbatch: Ints) -> Ints:
        """The piece of another chunk that every piece waits for, or -1."""
        last = self.forward.shape[1] - 1
        before = self.forward[microbatch, np.maximum(position - 1, 0)]
        behind = self.input_gradient[microbatch, np.minimum(position + 1, last)]
        forward = (kind == FORWARD) & (position > 0)
        backward = ((kind == INPUT_GRADIENT) | (kind == BACKWARD)) & (position < last)
        return np.where(forward, before, np.where(backward, behind, NOTHING))


def _columns(orders: Orders) -> tuple[Ints, Ints, Ints, NDArray[np.bool_]]:
    """Kind, chunk, micro-batch and joint flag of every pass. Ranks that share passes are read once."""
    total = sum(len(order) for order in orders)
    identities = np.fromiter(map(id, chain.from_iterable(orders)), dtype=np.int64, count=total)
    _, first, inverse = np.unique(identities, return_index=True, return_inverse=True)
    every = list(chain.from_iterable(orders))
    passes = [every[number] for number in first.tolist()]
    kinds = {kind: number for number, kind in enumerate(KINDS)}
    rows = [(kinds[one.kind], one.chunk, one.microbatch) for one in passes]
    kind, chunk, microbatch = np.array(rows, dtype=np.int64).reshape(-1, 3).T[:, inverse]
    return kind, chunk, microbatch, np.array([one.joined for one in passes], dtype=bool)[inverse]


def _places(schedule: Schedule, at: Pipeline) -> tuple[Ints, Ints]:
    """Rank by micro-batch and position; position by micro-batch, rank and chunk (-1 if there is none)."""
    pp, vp, m = int(at.pp), int(at.vp), int(at.num_microbatches)
    num_paths = m if schedule.parameter_copies > 1 else 1
    paths = [schedule.path(pp, vp, m, microbatch) for microbatch in range(num_paths)]
    ranks = np.array([[place.rank for place in path] for path in paths])
    chunks = np.array([[place.chunk for place in path] for path in paths])
    positions = np.full((num_paths, pp, int(chunks.max()) + 1), NOTHING)
    positions[np.arange(num_paths)[:, None], ranks, chunks] = np.arange(ranks.shape[1])
    return np.broadcast_to(ranks, (m, ranks.shape[1])), np.broadcast_to(positions, (m, *positions.shape[1:]))


def any_of(kind: Ints, kinds: Sequence[int]) -> NDArray[np.bool_]:
    """Which pieces have one of a few kinds; faster than ``np.isin``."""
    found = kind == kinds[0]
    for other in kinds[1:]:
        found = found | (kind == other)
    return found


def _wrong_work(where: int, num_positions: int, kind: str, why: str) -> InputError:
    """The error for missing or repeated passes; ``where`` are indices in a table of micro-batches x positions."""
    microbatch, position = divmod(where, num_positions)
    return InputError(
        f"the {WORK[kind]} of micro-batch {microbatch} in stage {position} {why}",
        rule="every rank runs each pass once, and gradients after their forward pass",
        hint="correct the order of the schedule",
    )

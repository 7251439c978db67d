"""The stages of a question's pipeline and the rounds of its chunks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from shardplan.fields import dataclass
from shardplan.inputs.model import ModelConfig
from shardplan.schedules.base import PipelineSchedule
from shardplan.schedules.registry import load_schedule
from shardplan.workload.stage import Stage, chunk_counts, stages, stages_of_chunks

Counts = tuple[float, ...]
"""Layers of every kind, embeddings, heads and prediction blocks."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Chunk:
    """What one or several model chunks hold together."""

    counts: tuple[float, ...]
    """Layers of every kind."""
    num_embeddings: float = 0
    num_heads: float = 0
    num_mtp_layers: float = 0

    @property
    def parts(self) -> Counts:
        """Numbers of all parts."""
        return (*self.counts, self.num_embeddings, self.num_heads, self.num_mtp_layers)

    @classmethod
    def of(cls, parts: Counts) -> Chunk:
        """The chunk with these numbers of parts."""
        *counts, num_embeddings, num_heads, num_mtp_layers = parts
        return cls(
            counts=tuple(counts), num_embeddings=num_embeddings, num_heads=num_heads, num_mtp_layers=num_mtp_layers
        )

    def as_stage(self) -> Stage:
        """The same parts as those of a stage."""
        return Stage(
            rank=0,
            num_layers=sum(self.counts),
            counts=self.counts,
            has_embedding=self.num_embeddings,
            has_head=self.num_heads,
            num_mtp_layers=self.num_mtp_layers,
        )


Rounds = tuple[tuple[Chunk, ...], ...]
"""Groups of chunks of which the slowest counts: the pace of all rounds is the sum over groups of their slowest."""


def pipeline_of(
    model: ModelConfig,
    pp: int,
    vp: int,
    layers: tuple[int, ...] | None = None,
    *,
    before: NDArray[np.int64] | None = None,
    schedule: str | None = None,
) -> tuple[tuple[Stage, ...], Rounds]:
    """Every stage of a pipeline, and the rounds of its chunks.

    ``before``: ``layers_before(model)`` where it is at hand already; ``schedule``: the one that the plan names, if any.
    """
    counts = chunk_counts(model, pp, vp, layers, before=before)
    named = None if schedule is None else load_schedule(schedule)
    if named is not None and type(named).path is not PipelineSchedule.path:
        return placed_stages(model, counts, named), ()
    return stages_of_chunks(model, counts), rounds_of(model, counts)


def placed_stages(model: ModelConfig, counts: NDArray[np.int64], schedule: PipelineSchedule) -> tuple[Stage, ...]:
    """Stages of a schedule that does not lay chunks (kinds x chunks per rank x ranks) in a loop over the ranks.

    Where ranks hold copies of stages for micro-batches of both directions, a rank's stage is the mean of them.
    """
    _, vp, pp = counts.shape
    chunks, copies = counts.reshape(len(counts), -1), schedule.parameter_copies
    last = chunks.shape[1] - 1

    def parts(held: tuple[int, ...]) -> Counts:
        head = (last in held) / copies
        layers = (chunks[:, list(held)].sum(axis=1) / copies).tolist()
        return (*layers, (0 in held) / copies, head, model.num_mtp_layers * head)

    held = [parts(chunks) for chunks in schedule.placement(pp, vp)]
    first = held[: -(-pp // copies)]  # the copies mirror these ranks
    final = {one: rank for rank, one in enumerate(first)}
    behind = np.sum(first, axis=0) - np.cumsum(first, axis=0)

    def stage(rank: int) -> Stage:
        whole, turn = Chunk.of(held[rank]).as_stage(), final[held[rank]]
        if not schedule.reads_place or turn == len(first) - 1:
            return replace(whole, rank=rank)
        after = Chunk.of(tuple(behind[turn].tolist())).as_stage()
        return replace(whole, rank=rank, num_behind=len(first) - 1 - turn, behind=replace(after, rank=1))

    return tuple(stage(rank) for rank in range(pp))


def rounds_of(model: ModelConfig, counts: NDArray[np.int64]) -> Rounds:
    """Rounds of chunks (kinds x chunks per rank x ranks); none where ranks hold one chunk.

    In each round the ranks run a chunk each, at the pace of the slowest. Rounds in which one chunk exceeds all others
    add up, so that they are one group.
    """
    if counts.shape[1] == 1 or counts.shape[2] == 1:
        return ()
    groups: dict[frozenset[Counts], int] = {}
    for slowest, times in _distinct_rounds(model, counts):
        groups[slowest] = groups.get(slowest, 0) + times
    certain = [np.multiply(next(iter(group)), times) for group, times in groups.items() if len(group) == 1]
    unsure = [
        tuple(tuple(times * n for n in parts) for parts in group) for group, times in groups.items() if len(group) > 1
    ]
    total = [(tuple(np.sum(certain, axis=0).tolist()),)] if certain else []
    return tuple(tuple(Chunk.of(parts) for parts in group) for group in [*total, *unsure])


def _distinct_rounds(model: ModelConfig, counts: NDArray[np.int64]) -> Iterator[tuple[frozenset[Counts], int]]:
    """Slowest chunks of the rounds that differ, and how many are alike. The first and the last hold the ends."""
    last = counts.shape[1] - 1
    yield _slowest(counts[:, 0], first=True, last=last == 0, num_mtp_layers=model.num_mtp_layers), 1
    between = Counter(counts[:, number].tobytes() for number in range(1, last))
    for text, times in between.items():
        one = np.frombuffer(text, dtype=counts.dtype).reshape(len(counts), -1)
        yield _slowest(one, first=False, last=False, num_mtp_layers=0), times
    if last:
        yield _slowest(counts[:, last], first=False, last=True, num_mtp_layers=model.num_mtp_layers), 1


def _slowest(chunks: NDArray[np.int64], *, first: bool, last: bool, num_mtp_layers: int) -> frozenset[Counts]:
    """Chunks of a round (kinds x ranks) that no other of it exceeds."""
    held = [(*counts, 0, 0, 0) for counts in chunks.T.tolist()]
    if first:
        held[0] = (*held[0][:-3], 1, *held[0][-2:])
    if last:
        held[-1] = (*held[-1][:-2], 1, num_mtp_layers)
    found = set(held)
    return frozenset(one for one in found if not any(other != one and _exceeds(other, one) for other in found))


def _exceeds(one: Counts, other: Counts) -> bool:
    return all(a >= b for a, b in zip(one, other, strict=True))


def whole_model(model: ModelConfig) -> Stage:
    """All layers and ends as one stage: sums over it are sums over the pipeline."""
    return stages(model, 1, 1)[0]

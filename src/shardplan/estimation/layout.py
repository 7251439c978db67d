"""The stages of a question's pipeline and the rounds of its chunks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shardplan.inputs.model import ModelConfig
from shardplan.workload.stage import Stage, chunk_counts, stages, stages_of_chunks


@dataclass(frozen=True, kw_only=True, slots=True)
class Chunk:
    """What one or several model chunks hold together."""

    counts: tuple[int, ...]
    """Layers of every kind."""
    num_embeddings: int = 0
    num_heads: int = 0
    num_mtp_layers: int = 0

    @property
    def parts(self) -> tuple[int, ...]:
        """Numbers of all parts."""
        return (*self.counts, self.num_embeddings, self.num_heads, self.num_mtp_layers)

    def __add__(self, other: Chunk) -> Chunk:
        return Chunk(
            counts=tuple(one + two for one, two in zip(self.counts, other.counts, strict=True)),
            num_embeddings=self.num_embeddings + other.num_embeddings,
            num_heads=self.num_heads + other.num_heads,
            num_mtp_layers=self.num_mtp_layers + other.num_mtp_layers,
        )

    def exceeds(self, other: Chunk) -> bool:
        """Whether it holds at least as much of everything."""
        return all(one >= two for one, two in zip(self.parts, other.parts, strict=True))

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
) -> tuple[tuple[Stage, ...], Rounds]:
    """Every stage of a pipeline, and the rounds of its chunks.

    ``before``: ``layers_before(model)`` where it is at hand already.
    """
    counts = chunk_counts(model, pp, vp, layers, before=before)
    return stages_of_chunks(model, counts), rounds_of(model, counts)


def rounds_of(model: ModelConfig, counts: NDArray[np.int64]) -> Rounds:
    """Rounds of chunks (kinds x chunks per rank x ranks); none where ranks hold one chunk.

    In each round the ranks run a chunk each, at the pace of the slowest. Rounds in which one chunk exceeds all others
    add up, so that they are one group.
    """
    if counts.shape[1] == 1 or counts.shape[2] == 1:
        return ()
    groups: dict[frozenset[Chunk], int] = {}
    last = counts.shape[1] - 1
    for number, chunks in enumerate(counts.transpose(1, 2, 0).tolist()):
        slowest = _slowest(chunks, first=number == 0, last=number == last, num_mtp_layers=model.num_mtp_layers)
        groups[slowest] = groups.get(slowest, 0) + 1
    certain = [next(iter(group)) for group, count in groups.items() for _ in range(count) if len(group) == 1]
    open_groups = [tuple(_times(chunk, count) for chunk in group) for group, count in groups.items() if len(group) > 1]
    total = _total(certain)
    return ((total,), *open_groups) if total is not None else tuple(open_groups)


def _slowest(chunks: list[list[int]], *, first: bool, last: bool, num_mtp_layers: int) -> frozenset[Chunk]:
    """Chunks of a round that no other of it exceeds."""
    found = {Chunk(counts=tuple(counts)) for counts in chunks[int(first) : len(chunks) - int(last)]}
    if first:
        found.add(Chunk(counts=tuple(chunks[0]), num_embeddings=1))
    if last:
        found.add(Chunk(counts=tuple(chunks[-1]), num_heads=1, num_mtp_layers=num_mtp_layers))
    if len(found) == 1:
        return frozenset(found)
    return frozenset(one for one in found if not any(other != one and other.exceeds(one) for other in found))


def _times(chunk: Chunk, count: int) -> Chunk:
    total = chunk
    for _ in range(count - 1):
        total = total + chunk
    return total


def _total(chunks: list[Chunk]) -> Chunk | None:
    total = chunks[0] if chunks else None
    for chunk in chunks[1:]:
        total = chunk if total is None else total + chunk
    return total


def whole_model(model: ModelConfig) -> Stage:
    """All layers and ends as one stage: sums over it are sums over the pipeline."""
    return stages(model, 1, 1)[0]

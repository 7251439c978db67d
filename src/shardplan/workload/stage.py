"""Which layers each pipeline stage holds, also where they do not divide, and which kinds of stage there are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from shardplan.arrays import Numbers, any_holds
from shardplan.fields import dataclass
from shardplan.inputs.chunks import chunk_layers
from shardplan.inputs.model import ModelConfig

Part = TypeVar("Part")


@dataclass(frozen=True, kw_only=True)
class Stage:
    """What one pipeline rank holds. Numbers, or arrays over plans that differ in ``vp``."""

    rank: Numbers
    """Position in the pipeline, from 0."""
    num_layers: Numbers
    counts: tuple[Numbers, ...]
    """Layers of every kind of ``ModelConfig.layer_kinds``."""
    has_embedding: Numbers
    has_head: Numbers
    num_mtp_layers: Numbers
    num_behind: Numbers = 0
    """Stages behind it, or behind the last one that holds the same; counted where ranks hold one chunk."""
    behind: Stage | None = None
    """What these hold together; None where there are none."""

    def holds(self, layers: tuple[Part, ...], embedding: Part, head: Part, mtp: Part) -> list[tuple[Numbers, Part]]:
        """How many of each part of a model it holds, those that it does not hold left out."""
        held: list[tuple[Numbers, Part]] = list(zip(self.counts, layers, strict=True))
        held += [(self.has_embedding, embedding), (self.has_head, head), (self.num_mtp_layers, mtp)]
        return [(count, part) for count, part in held if any_holds(count)]


def stages(model: ModelConfig, pp: int, vp: int, layers: tuple[int, ...] | None = None) -> tuple[Stage, ...]:
    """Every stage of a pipeline: rank r holds the chunks r, r + pp, r + 2 pp ... of the model."""
    return stages_of_chunks(model, chunk_counts(model, pp, vp, layers))


def chunk_counts(
    model: ModelConfig,
    pp: int,
    vp: int,
    layers: tuple[int, ...] | None,
    *,
    before: NDArray[np.int64] | None = None,
) -> NDArray[np.int64]:
    """Layers of every kind in every chunk: kinds x chunks per rank x ranks.

    ``before``: ``layers_before(model)`` where it is at hand already.
    """
    sizes = layers or chunk_layers(model.num_hidden_layers, pp * vp, model.num_mtp_layers)
    before = layers_before(model) if before is None else before
    ends = np.cumsum(sizes)
    return (before[:, ends] - before[:, ends - np.asarray(sizes)]).reshape(len(before), vp, pp)


def stages_of_chunks(model: ModelConfig, counts: NDArray[np.int64]) -> tuple[Stage, ...]:
    """Every stage of a pipeline from the layers of its chunks."""
    _, vp, pp = counts.shape
    per_rank = counts.sum(axis=1).T
    held = [(*counts, int(rank == 0), int(rank == pp - 1)) for rank, counts in enumerate(per_rank.tolist())]
    last = {parts: rank if vp == 1 else pp - 1 for rank, parts in enumerate(held)}
    left = per_rank.sum(axis=0) - per_rank.cumsum(axis=0)
    behind = {rank: _together(left[rank].tolist(), model) for rank in set(last.values()) if rank < pp - 1}
    return tuple(
        Stage(
            rank=rank,
            num_layers=sum(counts),
            counts=tuple(counts),
            has_embedding=is_first,
            has_head=is_last,
            num_mtp_layers=model.num_mtp_layers * is_last,
            num_behind=pp - 1 - last[parts],
            behind=behind.get(last[parts]),
        )
        for rank, parts in enumerate(held)
        for *counts, is_first, is_last in [parts]
    )


def _together(counts: list[int], model: ModelConfig) -> Stage:
    """The last stages of a pipeline as one."""
    return Stage(
        rank=1,
        num_layers=sum(counts),
        counts=tuple(counts),
        has_embedding=0,
        has_head=1,
        num_mtp_layers=model.num_mtp_layers,
    )


def layers_before(model: ModelConfig) -> NDArray[np.int64]:
    """Layers of every kind before each position of a model: kinds x (layers + 1)."""
    pattern = np.asarray(model.layer_pattern)
    held = pattern[None, :] == np.arange(len(model.layer_kinds))[:, None]
    return np.cumsum(np.pad(held, ((0, 0), (1, 0))), axis=1)


def kinds_of_stage(all_stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
    """Stages that can be the slowest or the fullest, the first of each kind.

    An earlier stage that exceeds another in every part keeps at least as many micro-batches, and so needs more memory.
    Where ranks hold several chunks, it takes longer as well. Where they hold one, a later stage that exceeds takes
    longer, however few the micro-batches are; a stage is left out where both an earlier and a later one exceed it.
    """
    kept: list[Stage] = []
    alike = {_parts(stage): stage for stage in reversed(all_stages)}
    later: list[Stage] = []
    slow: dict[int, bool] = {}
    for stage in alike.values():  # the last of each kind, from the end
        slow[id(stage)] = bool(stage.num_behind) and not any(_exceeds(other, stage) for other in later)
        later.append(stage)
    for stage in reversed(alike.values()):
        if slow[id(stage)] or not any(_exceeds(other, stage) for other in kept):
            kept.append(stage)
    return tuple(kept)


def _exceeds(one: Stage, other: Stage) -> bool:
    return all(a >= b for a, b in zip(_parts(one), _parts(other), strict=True))


def _parts(stage: Stage) -> tuple[Numbers, ...]:
    return (*stage.counts, stage.has_embedding, stage.has_head, stage.num_mtp_layers)


def stacked(all_stages: Sequence[Stage]) -> Stage:
    """Stages as one whose numbers are arrays with an element for each; what is the same in all stays a number."""

    def column(values: Iterable[Numbers]) -> Numbers:
        numbers = [float(value) for value in values]
        return numbers[0] if len(set(numbers)) == 1 else np.asarray(numbers)

    nothing = Stage(
        rank=0,
        num_layers=0,
        counts=(0,) * len(all_stages[0].counts),
        has_embedding=0,
        has_head=0,
        num_mtp_layers=0,
    )
    behind = [stage.behind for stage in all_stages]
    return Stage(
        rank=column(stage.rank for stage in all_stages),
        num_layers=column(stage.num_layers for stage in all_stages),
        counts=tuple(column(counts) for counts in zip(*(stage.counts for stage in all_stages), strict=True)),
        has_embedding=column(stage.has_embedding for stage in all_stages),
        has_head=column(stage.has_head for stage in all_stages),
        num_mtp_layers=column(stage.num_mtp_layers for stage in all_stages),
        num_behind=column(stage.num_behind for stage in all_stages),
        behind=stacked([one or nothing for one in behind]) if any(behind) else None,
    )

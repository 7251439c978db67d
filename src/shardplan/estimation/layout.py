"""The stages of a question's pipeline and the longest ways through its chunks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from shardplan.base.fields import dataclass, replace
from shardplan.inputs.model import ModelConfig
from shardplan.physics.schedules.base import PipelineSchedule
from shardplan.physics.schedules.longest_ways import pace_of
from shardplan.physics.schedules.registry import INTERLEAVED, load_schedule
from shardplan.physics.workload.stage import (
    Stage,
    counts_of_chunks,
    kinds_of_chunks,
    kinds_of_stage,
    stages,
    stages_of_chunks,
)

Counts = tuple[float, ...]
"""Layers of every kind, embeddings, heads and prediction blocks."""


@dataclass(frozen=True, kw_only=True)
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
"""What a micro-batch passes on the longest ways through uneven chunks, as a group of which the slowest counts."""

Shape = tuple[int, int, tuple[int, ...] | None, str | None]
"""Ranks, chunks per rank, and the layers of every chunk and the schedule where these are given."""

SAME: Final = 1e-9
"""Share below which a way takes as long as the slowest rank."""
OTHER_KIND: Final = 5.0
"""By how much longer a kind of layer may take, next to the others, than its parameters say: longest ways are sought
for this as well."""


def pipeline_of(
    model: ModelConfig,
    pp: int,
    vp: int,
    layers: tuple[int, ...] | None = None,
    *,
    schedule: str | None = None,
) -> tuple[tuple[Stage, ...], Rounds]:
    """Every stage of a pipeline, and the longest ways through its chunks. ``schedule``: that the plan names, if any."""
    return pipelines_of(model, [(pp, vp, layers, schedule)])[0]


def pipelines_of(model: ModelConfig, shapes: Sequence[Shape]) -> list[tuple[tuple[Stage, ...], Rounds]]:
    """The same of several pipelines, whose longest ways are found together."""
    return _laid(model, shapes, stages_of_chunks, lambda placed: placed)


def kinds_of_pipelines(model: ModelConfig, shapes: Sequence[Shape]) -> list[tuple[tuple[Stage, ...], Rounds]]:
    """The same with the stages alone that can be the slowest or the fullest (``workload.stage.kinds_of_stage``)."""
    return _laid(model, shapes, kinds_of_chunks, kinds_of_stage)


Stages = tuple[Stage, ...]


def _laid(
    model: ModelConfig,
    shapes: Sequence[Shape],
    of_chunks: Callable[[ModelConfig, NDArray[np.int64]], Stages],
    of_placed: Callable[[Stages], Stages],
) -> list[tuple[Stages, Rounds]]:
    """Stages of pipelines whose chunks lie in a loop, or as a schedule places them, and the longest ways."""
    counts = counts_of_chunks(model, [shape[:3] for shape in shapes])
    named = [None if shape[-1] is None else load_schedule(shape[-1]) for shape in shapes]
    rounds = rounds_of(model, counts, [INTERLEAVED if each is None else each for each in named])
    stages = [
        of_chunks(model, held) if each is None or loops(each) else of_placed(placed_stages(model, held, each))
        for held, each in zip(counts, named, strict=True)
    ]
    return list(zip(stages, rounds, strict=True))


def loops(schedule: PipelineSchedule) -> bool:
    """Whether a schedule lays chunks in a loop over the ranks."""
    return type(schedule).path is PipelineSchedule.path


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


def rounds_of(
    model: ModelConfig, counts: Sequence[NDArray[np.int64]], schedules: Sequence[PipelineSchedule]
) -> list[Rounds]:
    """Longest ways through chunks (kinds x chunks per rank x ranks) of several pipelines under their schedules.

    None where ranks hold one chunk or where no way is longer than the slowest rank. How long layers take next to one
    another depends on the plan, so that ways are sought for several ratios and the plan's own prices choose.
    """
    ratios = _ratios(model)
    parts = [_parts_of(model, held) if _is_uneven(held) else None for held in counts]
    keys = [
        None if held is None else (schedule, held.shape, held.tobytes(), ratios.tobytes())
        for held, schedule in zip(parts, schedules, strict=True)
    ]
    found = {key: rounds for key in keys if (rounds := _KNOWN.get(key)) is not None}
    for schedule in dict.fromkeys(schedules):
        own = [held if each is schedule else None for held, each in zip(parts, schedules, strict=True)]
        new = {key: held for key, held in zip(keys, own, strict=True) if held is not None and key not in found}
        found |= zip(new, _longest_ways(schedule, [*new.values()], ratios), strict=True)
    if len(_KNOWN) > MOST_KNOWN:
        _KNOWN.clear()
    _KNOWN.update(found)
    return [() if key is None else found[key] for key in keys]


def _longest_ways(
    schedule: PipelineSchedule, parts: Sequence[NDArray[np.float64]], ratios: NDArray[np.float64]
) -> list[Rounds]:
    """Those of several pipelines by the numbers of parts in their chunks."""
    works = [work.reshape(held.shape[1:]) for held in parts for work in ratios @ _in_rows(held)]
    ways = schedule.longest_ways(works)
    if not ways:
        return [()] * len(parts)
    slow = [pace_of(work, way) > 1 + SAME for work, way in zip(works, ways, strict=True)]
    each = [range(number * len(ratios), (number + 1) * len(ratios)) for number in range(len(parts))]
    return [
        _group([(_in_rows(held) @ ways[one].ravel()).round(9).tolist() for one in own if slow[one]])
        for held, own in zip(parts, each, strict=True)
    ]


MOST_KNOWN: Final = 4096
_KNOWN: dict[Any, Rounds] = {}
"""Longest ways that have been found lately."""


def _in_rows(parts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Numbers of a part in all chunks as a row, one chunk after the other."""
    return parts.reshape(len(parts), -1)


def _group(ways: Sequence[Sequence[float]]) -> Rounds:
    """Different ways, by the numbers of parts that a micro-batch passes, as a group of which the slowest counts."""
    distinct = tuple(Chunk.of(way) for way in sorted({tuple(way) for way in ways}))
    return (distinct,) if distinct else ()


def _ratios(model: ModelConfig) -> NDArray[np.float64]:
    """Times of all parts next to one another, in rows: by active parameters, and with each kind of layer longer."""
    layers = [model.num_layer_parameters(kind, active=True) for kind in model.layer_kinds]
    head = model.vocab_size * model.hidden_size
    block = model.num_layer_parameters(model.mtp_layer, active=True) + 2 * model.hidden_size**2 + head
    plain = np.asarray([*layers, 0, head, block], dtype=np.float64)
    others = np.ones((len(layers), len(plain)))
    np.fill_diagonal(others, OTHER_KIND)
    return np.stack([plain, *(plain * others if len(layers) > 1 else [])])


def _is_uneven(counts: NDArray[np.int64]) -> bool:
    """Whether ranks hold several chunks and these unequal layers: heavier ends alone make no way longer."""
    chunks = counts.reshape(len(counts), -1)
    return 1 not in counts.shape[1:] and bool(np.any(chunks != chunks[:, :1]))


def _parts_of(model: ModelConfig, counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Numbers of all parts of every chunk: parts x chunks per rank x ranks."""
    ends = np.zeros((3, *counts.shape[1:]))
    ends[0, 0, 0], ends[1:, -1, -1] = 1, (1, model.num_mtp_layers)
    return np.concatenate([counts, ends])


def whole_model(model: ModelConfig) -> Stage:
    """All layers and ends as one stage: sums over it are sums over the pipeline."""
    return stages(model, 1, 1)[0]

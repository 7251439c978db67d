"""How pipelines of every depth and number of chunks share the layers: kinds of stage, as compositions of parts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from shardplan.base.arrays import is_zero, one_number
from shardplan.base.fields import dataclass
from shardplan.estimation.layout import Shape, kinds_of_pipelines
from shardplan.estimation.question import Question
from shardplan.inputs.model import ModelConfig
from shardplan.physics.workload.stage import Stage
from shardplan.planner.family import Family

Composition = tuple[float, ...]
"""Layers of every kind, embedding, head and prediction blocks of a stage."""
Kind = tuple[Composition, int, int, Composition]
"""What a kind of stage holds, its first rank, the number of stages behind its last one, and what these hold."""
Pipelines = tuple[tuple[Kind, ...], tuple[tuple[Composition, ...], ...]]
"""Kinds of stage, and the longest ways through uneven chunks, as a group of which the slowest counts."""


class KnownPipelines:
    """Pipelines of the models that have been asked about lately, so that many questions share them. Thread-safe."""

    def __init__(self, most: int = 8) -> None:
        self._most = most
        self._models: dict[int, tuple[ModelConfig, dict[Shape, Pipelines]]] = {}

    def of(self, model: ModelConfig, shapes: Sequence[Shape]) -> list[Pipelines]:
        """Kinds of stage and longest ways through the chunks of every shape."""
        known = self._of_model(model)
        missing = [shape for shape in shapes if shape not in known]
        if missing:
            for shape, (kinds, rounds) in zip(missing, kinds_of_pipelines(model, missing), strict=True):
                groups = tuple(tuple(chunk.parts for chunk in group) for group in rounds)
                known[shape] = tuple(map(_kind, kinds)), groups
        return [known[shape] for shape in shapes]

    def _of_model(self, model: ModelConfig) -> dict[Shape, Pipelines]:
        held, pipelines = self._models.get(id(model), (None, {}))
        if held is not model:
            pipelines = {}
            for oldest in list(self._models)[: max(len(self._models) - self._most + 1, 0)]:
                self._models.pop(oldest, None)
            self._models[id(model)] = model, pipelines
        return pipelines


def _kind(stage: Stage) -> Kind:
    """A kind of stage; behind the first stage are all others, which need no price of their own."""
    parts = _parts(stage)
    is_between = stage.rank and stage.behind is not None
    behind = _parts(stage.behind) if is_between and stage.behind else (0.0,) * len(parts)
    return parts, int(stage.rank), int(stage.num_behind), behind


@dataclass(frozen=True, kw_only=True)
class Layouts:
    """Pipelines as columns, one for each depth and number of chunks, and the compositions of their stages."""

    compositions: NDArray[np.float64]
    """Parts by composition: layers of every kind, then embedding, head and prediction blocks."""
    first: NDArray[np.intp]
    """The first layout of every depth; those of a depth lie together, fewest chunks first."""
    vp: NDArray[np.float64]
    num_kinds: NDArray[np.intp]
    """Kinds of stage that can be slowest or fullest."""
    composition: NDArray[np.intp]
    """Composition by layout and kind of stage."""
    rank: NDArray[np.float64]
    """Position in the pipeline by layout and kind of stage."""
    num_behind: NDArray[np.float64]
    """Stages behind, by layout and kind of stage."""
    behind: NDArray[np.intp]
    """Composition of these together, by layout and kind of stage."""

    chunks: NDArray[np.float64]
    """Parts by composition, as above, of longest ways; the first holds nothing."""
    rounds: NDArray[np.intp]
    """Compositions of longest ways by layout, group and member; of each group the slowest counts."""

    @classmethod
    def of(cls, question: Question, family: Family, known: KnownPipelines) -> Layouts:
        """The pipelines of a family."""
        given = family.switches.get("stage_layers"), family.switches.get("schedule")
        shapes = [(pp, vp, *given) for pp, vps in zip(family.depths, family.vps, strict=True) for vp in vps]
        depths = [depth for depth, vps in enumerate(family.vps) for _ in vps]
        found = known.of(question.model, shapes)
        kinds = [stages for stages, _ in found]
        numbers: dict[Composition, int] = {}
        chunks: dict[tuple[int, Composition], int] = {(0, (0,) * (len(question.model.layer_kinds) + 3)): 0}

        def numbered(held: list[list[Composition]]) -> NDArray[np.intp]:
            return _padded([[numbers.setdefault(parts, len(numbers)) for parts in row] for row in held])

        rounds = [
            [[chunks.setdefault((depth, parts), len(chunks)) for parts in group] for group in groups]
            for depth, (_, groups) in zip(depths, found, strict=True)
        ]
        widest = max((len(group) for groups in rounds for group in groups), default=0)
        flat = _padded([[n for group in groups for n in (*group, *[0] * (widest - len(group)))] for groups in rounds])
        ends = np.cumsum([len(vps) for vps in family.vps])
        return cls(
            first=ends - [len(vps) for vps in family.vps],
            vp=np.asarray([vp for _, vp, *_ in shapes], dtype=np.float64),
            num_kinds=np.asarray([len(stages) for stages in kinds]),
            composition=numbered([[parts for parts, *_ in stages] for stages in kinds]),
            rank=_padded([[rank for _, rank, *_ in stages] for stages in kinds]).astype(np.float64),
            num_behind=_padded([[count for *_, count, _ in stages] for stages in kinds]).astype(np.float64),
            behind=numbered([[parts for *_, parts in stages] for stages in kinds]),
            compositions=np.asarray(list(numbers), dtype=np.float64).T,
            chunks=np.asarray([parts for _, parts in chunks], dtype=np.float64).T,
            rounds=flat.reshape(len(found), -1, max(widest, 1)),
        )

    def stage(self, layouts: NDArray[np.intp], kind: int | NDArray[np.intp]) -> Stage:
        """A kind of stage of listed layouts, or one for each."""
        stage = self.composed(self.composition[layouts, kind])
        num_behind = one_number(self.num_behind[layouts, kind])
        return Stage(
            rank=one_number(self.rank[layouts, kind]),
            num_layers=stage.num_layers,
            counts=(),
            has_embedding=stage.has_embedding,
            has_head=stage.has_head,
            num_mtp_layers=stage.num_mtp_layers,
            num_behind=num_behind,
            behind=None if is_zero(num_behind) else self.composed(self.behind[layouts, kind]),
        )

    def composed(self, compositions: NDArray[np.intp]) -> Stage:
        """Stages of listed compositions, whatever their place."""
        return _stage_of(self.compositions[:, compositions])

    def chunk(self, chunks: NDArray[np.intp]) -> Stage:
        """Listed longest ways."""
        return _stage_of(self.chunks[:, chunks])

    def groups(self, layouts: NDArray[np.intp]) -> list[list[NDArray[np.intp]]]:
        """Longest ways of listed layouts in groups of which the slowest counts, those that none has left out."""
        rounds = self.rounds[layouts]
        groups = [[rounds[:, group, n] for n in range(rounds.shape[2])] for group in range(rounds.shape[1])]
        kept = [[chunks for chunks in group if chunks.any()] for group in groups]
        return [group for group in kept if group]


def _stage_of(parts: NDArray[np.float64]) -> Stage:
    *counts, embedding, head, mtp = parts
    return Stage(
        rank=0,
        num_layers=one_number(sum(counts)),
        counts=tuple(one_number(count) for count in counts),
        has_embedding=one_number(embedding),
        has_head=one_number(head),
        num_mtp_layers=one_number(mtp),
    )


def _padded(rows: list[list[int]]) -> NDArray[np.intp]:
    """Rows of different lengths, filled up with zeros."""
    table = np.zeros((len(rows), max(map(len, rows))), dtype=np.intp)
    for number, row in enumerate(rows):
        table[number, : len(row)] = row
    return table


def _parts(stage: Stage) -> Composition:
    return tuple(map(float, (*stage.counts, stage.has_embedding, stage.has_head, stage.num_mtp_layers)))

"""How pipelines of every depth and number of chunks share the layers: kinds of stage, as compositions of parts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shardplan.estimation.layout import pipeline_of
from shardplan.estimation.question import Question
from shardplan.planner.points import Family
from shardplan.workload.stage import Stage, kinds_of_stage, layers_before

Composition = tuple[float, ...]
"""Layers of every kind, embedding, head and prediction blocks of a stage."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Layouts:
    """Pipelines as columns, one for each depth and number of chunks, and the compositions of their stages."""

    compositions: NDArray[np.float64]
    """Parts by composition: layers of every kind, then embedding, head and prediction blocks."""
    first: NDArray[np.intp]
    """The first layout of every depth; those of a depth lie together, fewest chunks first."""
    vp: NDArray[np.float64]
    unevenness: NDArray[np.float64]
    num_kinds: NDArray[np.intp]
    """Kinds of stage that can be slowest or fullest."""
    composition: NDArray[np.intp]
    """Composition by layout and kind of stage."""
    rank: NDArray[np.float64]
    """Position in the pipeline by layout and kind of stage."""

    @classmethod
    def of(cls, question: Question, family: Family) -> Layouts:
        """The pipelines of a family."""
        before, numbers = layers_before(question.model), dict[Composition, int]()
        layers = family.switches.get("stage_layers")
        kinds = [
            (vp, kinds_of_stage(pipeline_of(question, pp, vp, layers, before=before)))
            for pp, vps in zip(family.depths, family.vps, strict=True)
            for vp in vps
        ]
        most = max(len(stages) for _, stages in kinds)
        composition = np.zeros((len(kinds), most), dtype=np.intp)
        rank = np.zeros((len(kinds), most))
        for row, (_, stages) in enumerate(kinds):
            for column, stage in enumerate(stages):
                composition[row, column] = numbers.setdefault(_composition(stage), len(numbers))
                rank[row, column] = stage.rank
        ends = np.cumsum([len(vps) for vps in family.vps])
        return cls(
            compositions=np.asarray(list(numbers)).T,
            first=ends - [len(vps) for vps in family.vps],
            vp=np.asarray([vp for vp, _ in kinds], dtype=np.float64),
            unevenness=np.asarray([stages[0].unevenness for _, stages in kinds]),
            num_kinds=np.asarray([len(stages) for _, stages in kinds]),
            composition=composition,
            rank=rank,
        )

    def stage(self, layouts: NDArray[np.intp], kind: int) -> Stage:
        """A kind of stage of listed layouts."""
        stage = self.composed(self.composition[layouts, kind])
        return Stage(
            rank=_number(self.rank[layouts, kind]),
            num_layers=stage.num_layers,
            counts=(),
            has_embedding=stage.has_embedding,
            has_head=stage.has_head,
            num_mtp_layers=stage.num_mtp_layers,
            unevenness=_number(self.unevenness[layouts]),
        )

    def composed(self, compositions: NDArray[np.intp]) -> Stage:
        """Stages of listed compositions, whatever their place."""
        *counts, embedding, head, mtp = self.compositions[:, compositions]
        return Stage(
            rank=0,
            num_layers=_number(sum(counts)),
            counts=tuple(_number(count) for count in counts),
            has_embedding=_number(embedding),
            has_head=_number(head),
            num_mtp_layers=_number(mtp),
        )


def _composition(stage: Stage) -> Composition:
    parts = (*stage.counts, stage.has_embedding, stage.has_head, stage.num_mtp_layers)
    return tuple(float(part) for part in parts)


def _number(values: NDArray[np.float64]) -> float | NDArray[np.float64]:
    """One number where all are the same."""
    return float(values[0]) if len(values) and values.min() == values.max() else values

"""The valid plans of one setting of the switches as columns, and how pipelines of every shape share the layers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardplan.base.arrays import columns_coded, distinct, first_of, is_zero, one_number
from shardplan.base.fields import dataclass, replace
from shardplan.estimation.layout import Shape, kinds_of_pipelines
from shardplan.estimation.question import Question
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.plan import Plan
from shardplan.physics.workload.stage import Stage
from shardplan.planner.space import GRID, Degree, Filling

Points = dict[str, NDArray[np.int64]]
ShardingPair = tuple[str, Degree]


def degrees_at(degree: Degree, points: Points) -> NDArray[np.int64]:
    """Ranks over which states are sharded at every point; 0: all replicas, or no such group."""
    ranks = degree.degree(points["tp"], points["cp"]) if isinstance(degree, Filling) else degree or 0
    return np.broadcast_to(np.asarray(ranks, dtype=np.int64), points["tp"].shape)


class SoftwarePart(NamedTuple):
    """Of which family, with the same points, some plans are run by software of their own."""

    whole: Family
    same_memory: bool
    """Whether they need as much memory as those of the whole; otherwise they may need more."""
    counts: bool
    """Whether it stands for the whole where plans are counted."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """Plans of one setting of the switches: points, each with its shardings, recomputations and chunks per rank."""

    switches: dict[str, Any]
    depths: tuple[int, ...]
    """Pipeline depths that have valid plans."""
    placements: tuple[str, ...]
    points: Points
    """Valid combinations of the fields of ``GRID``, sorted by placement: an array for each field, and ``depth`` and
    ``placement``, positions in ``depths`` and ``placements``; ``layout``, a number that points share which differ in
    the micro-batch alone, and ``degrees``, one of those that differ in the placement as well; and ``position``, that of
    the micro-batch among its candidates."""
    vps: tuple[tuple[int, ...], ...]
    """Chunks per rank at every depth."""
    shardings: tuple[ShardingPair, ...]
    shards: NDArray[np.bool_]
    """For every kind of sharding and every point whether it is valid (and not another in other words)."""
    policies: tuple[str, ...]
    """Recomputation policies, in slots: one for every number of layers that a policy applies to."""
    layers: tuple[tuple[int | None, ...], ...]
    """For every depth the layers of a stage to which each slot applies (None: all)."""
    recomputes: NDArray[np.bool_]
    """For every slot and point whether it is valid (and not another in other words)."""
    single: NDArray[np.bool_]
    """For every point whether it may have one chunk per rank."""
    interleaves: NDArray[np.bool_]
    """For every point whether it may have more than one."""
    together: NDArray[np.bool_] | None = None
    """For every slot and layout (depth and chunks per rank, those of a depth together) whether they go together; None
    where all do."""
    part: SoftwarePart | None = None
    """Where these are plans of a larger family, run by software of their own that changes no memory."""

    @property
    def whole(self) -> Family:
        """The plans whatever software of those that change no memory runs them."""
        return self if self.part is None else self.part.whole

    @property
    def counts(self) -> bool:
        """Whether its plans are counted; not where the same plans are counted under other software."""
        return self.part is None or self.part.counts

    @property
    def num_points(self) -> int:
        """Points of the family."""
        return len(self.interleaves)

    def within(self, points: NDArray[np.intp], recomputes: NDArray[np.bool_] | None = None) -> Family:
        """Plans of some of the points, ascending; of some of the recomputation there, by slot and point."""
        return replace(
            self,
            points={name: values[points] for name, values in self.points.items()},
            shards=self.shards[:, points],
            recomputes=self.recomputes[:, points] if recomputes is None else self.recomputes[:, points] & recomputes,
            single=self.single[points],
            interleaves=self.interleaves[points],
        )

    def plan(self, sharding: int, slot: int, vp: int, point: int) -> Plan:
        """The plan with ``vp`` chunks per rank at these positions of the other axes."""
        kind, _ = self.shardings[sharding]
        fields: dict[str, Any] = {name: int(self.points[name][point]) for name in GRID}
        return Plan(
            **self.switches,
            **fields,
            vp=vp,
            placement=self.placements[int(self.points["placement"][point])],
            sharding=kind,  # type: ignore[arg-type]  # one of the words of Sharding
            sharding_degree=int(self.sharding_degrees[sharding, point]) or None,
            recompute=self.policies[slot],
            recompute_num_layers=self.layers[int(self.points["depth"][point])][slot],
        )

    @cached_property
    def sharding_degrees(self) -> NDArray[np.int64]:
        """Ranks over which each kind of sharding shards at every point (0: all replicas)."""
        return np.stack([degrees_at(degree, self.points) for _, degree in self.shardings])

    @cached_property
    def is_lightest(self) -> NDArray[np.bool_]:
        """Which points have the smallest micro-batch of all with their degrees: of their plans most fit."""
        keys, positions = self.points["layout"], self.points["position"]
        least = np.full(int(keys.max()) + 1, positions.max())
        np.minimum.at(least, keys, positions)
        return np.asarray(positions == least[keys])

    def num_chunks(self) -> NDArray[np.int64]:
        """How many numbers of chunks per rank every point may have."""
        one = np.asarray([vps.count(1) for vps in self.vps])[self.points["depth"]]
        more = np.asarray([len(vps) - vps.count(1) for vps in self.vps])[self.points["depth"]]
        return one * self.single + more * self.interleaves

    def first_layouts(self) -> NDArray[np.int64]:
        """The first layout of every point."""
        sizes = np.asarray([len(vps) for vps in self.vps])
        return (np.cumsum(sizes) - sizes)[self.points["depth"]] + self.first_chunks()

    def slots_at(self, points: NDArray[np.intp], layouts: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Which slots of recomputation go with points, each with a layout (or with one layout for all)."""
        slots = self.recomputes[:, points]
        return slots if self.together is None else slots & self.together[:, layouts]

    @cached_property
    def kinds_of_points(self) -> NDArray[np.intp]:
        """For every point a number, the same where the same recomputation is valid."""
        return columns_coded(self.recomputes)

    @cached_property
    def kinds_of_layouts(self) -> NDArray[np.intp]:
        """For every layout a number, the same where it goes with the same slots of recomputation."""
        num_layouts = sum(len(vps) for vps in self.vps)
        return np.zeros(num_layouts, dtype=np.intp) if self.together is None else columns_coded(self.together)

    def placed_alike(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Points, one for all that differ in placement alone and have the same plans; and which of these each has."""
        sizes = int(self.points["position"].max()) + 1
        code = self.points["degrees"] * sizes + self.points["position"]
        chunks = 2 * self.single + self.interleaves
        for kinds in (columns_coded(self.shards), self.kinds_of_points, chunks.astype(np.intp)):
            _, code = distinct(code, int(code.max()) + 1)
            code = code * (int(kinds.max()) + 1) + kinds
        values, which = distinct(code, int(code.max()) + 1)
        return first_of(which, len(values)), which

    def num_inner(self) -> NDArray[np.int64]:
        """How many combinations of recomputation and chunks per rank every point may have."""
        counts = self.num_chunks()
        if self.together is None:
            return counts * self.recomputes.sum(axis=0)
        before = np.pad(self.together.cumsum(axis=1), ((0, 0), (1, 0)))
        first = self.first_layouts()
        return ((before[:, first + counts] - before[:, first]) * self.recomputes).sum(axis=0)

    def num_plans(self) -> int:
        """Valid plans."""
        return int((self.shards.sum(axis=0) * self.num_inner()).sum())

    def first_chunks(self) -> NDArray[np.int64]:
        """Position of the first of them among those of the depth."""
        one = np.asarray([vps.count(1) for vps in self.vps])[self.points["depth"]]
        return np.where(self.single, 0, one)


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

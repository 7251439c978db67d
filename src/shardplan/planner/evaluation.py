"""All plans of a family priced at once: the estimate's own formulas, run over arrays.

Axes of every array: sharding, recomputation, chunks per rank, points. A field lies along its own axis and has length
one along the others, so each formula costs as much as the axes that it names; the last step costs the whole product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardplan.arrays import take
from shardplan.estimation.layout import pipeline_of, whole_model
from shardplan.estimation.load import Loads, loads_of
from shardplan.estimation.pricing import price
from shardplan.estimation.question import Question
from shardplan.estimation.step import Step, step_of
from shardplan.inputs.batch import Batch
from shardplan.inputs.plan import OP_SAC, RECOMPUTE_MODULES, Plan, recompute_modules
from shardplan.planner.points import Family
from shardplan.workload.stage import Stage, kinds_of_stage, layers_before, side_by_side

CELLS = 131_072
"""Plans per piece of work: arrays of this length stay in the second-level cache."""
CHUNKS = -2
"""Axis of the chunks per rank."""
EVERY = slice(None)

Objective = Callable[[Step], Any]


def fastest(step: Step) -> Any:
    """Step time of the plans that fit. [s]"""
    return np.where(step.fits, step.step_time, np.inf)


def smallest(step: Step) -> Any:
    """Peak memory, whether it fits or not. [bytes]"""
    return step.peak_memory_bytes


@dataclass(frozen=True, kw_only=True)
class Table:
    """Best value of the objective over the chunks per rank: by sharding, recomputation and point."""

    family: Family
    best: NDArray[np.float64]
    num_evaluated: int
    num_feasible: int


@dataclass(frozen=True, slots=True)
class _Piece:
    """A block of a family's product in which (nearly) every plan is valid."""

    shardings: slice
    chunks: slice
    points: slice


@dataclass(frozen=True, kw_only=True)
class _Plans:
    """Arrays over plans, with the stages of their pipelines."""

    batch: Batch
    loads: Loads
    kinds: tuple[Stage, ...]
    whole: Stage
    valid: NDArray[np.bool_]


def evaluate(question: Question, family: Family, objective: Objective = fastest) -> Table:
    """Evaluates every valid plan of ``family``."""
    family = _sorted(family)
    plans = _plans(question, family)
    best = np.full((len(family.shardings), len(family.recomputations), family.num_points), np.inf)
    num_evaluated = num_feasible = 0
    for piece in _pieces(family):
        part = _part(plans, piece)
        value, feasible = _values(question, part, objective)
        best[piece.shardings, :, piece.points] = value.min(axis=CHUNKS)
        num_evaluated += int(part.valid.sum()) * (value.size // part.valid.size)
        num_feasible += feasible
    return Table(family=family, best=best, num_evaluated=num_evaluated, num_feasible=num_feasible)


def best_chunks(
    question: Question, family: Family, cell: tuple[int, int, int], objective: Objective = fastest
) -> tuple[Plan, float]:
    """The best plan at a sharding, a recomputation and a point: over the chunks per rank. With its value."""
    sharding, recomputation, point = cell
    single = replace(
        family,
        shardings=family.shardings[sharding : sharding + 1],
        recomputations=family.recomputations[recomputation : recomputation + 1],
        points={field: values[point : point + 1] for field, values in family.points.items()},
        interleaves=family.interleaves[point : point + 1],
        shards=family.shards[sharding : sharding + 1, point : point + 1],
    )
    (piece,) = _pieces(single)
    value, _ = _values(question, _part(_plans(question, single), piece), objective)
    chunks = int(value.argmin())
    return single.plan(0, 0, single.vps[chunks], 0), float(value.ravel()[chunks])


def outcomes(question: Question, family: Family) -> Step:
    """Outcome of every combination of a family's axes, valid or not; arrays of constants add axes before these."""
    plans = _plans(question, family)
    return step_of(question, plans.batch, plans.loads, plans.kinds, plans.whole)


def is_valid(family: Family) -> NDArray[np.bool_]:
    """Which combinations are valid, whatever the recomputation."""
    chunks = family.interleaves | (np.asarray(family.vps) == 1)[:, None]
    return family.shards[:, None, None, :] & chunks


def batch_of(question: Question, family: Family) -> Batch:
    """The family's plans in numbers, each field along its own axis."""
    n, job = question.num_accelerators, question.job
    points: dict[str, Any] = {
        field: values.astype(np.float64)[None, None, None, :] for field, values in family.points.items()
    }
    kinds = np.asarray([kind for kind, _ in family.shardings])[:, None, None, None]
    degrees = np.asarray([degree or 0 for _, degree in family.shardings], dtype=np.float64)[:, None, None, None]
    policies = [recompute_modules(policy) for policy, _ in family.recomputations]
    layers = [np.inf if count is None else float(count) for _, count in family.recomputations]
    dp = n // (points["tp"] * points["cp"] * family.pp)
    one = Batch.of(family.plan(0, 0, family.vps[0], 0), n, job)  # for the switches, which are the same in all
    vp = np.asarray(family.vps, dtype=np.float64)[None, None, :, None]
    return replace(
        one,
        **points,
        vp=vp,
        dp=dp,
        edp=n // (family.pp * points["ep"] * points["etp"]),
        num_microbatches=job.global_batch_size // (dp * points["micro_batch_size"]),
        shards_optimizer=kinds != "ddp",
        shards_gradients=np.isin(kinds, ("zero2", "zero3", "hsdp")),
        shards_weights=np.isin(kinds, ("zero3", "hsdp")),
        sharding_degree=np.where(degrees > 0, degrees, dp * points["cp"]),
        recompute={
            module: np.asarray([module in policy for policy in policies])[None, :, None, None]
            for module in (*RECOMPUTE_MODULES, OP_SAC)
        },
        recompute_full=np.asarray([policy == "full" for policy, _ in family.recomputations])[None, :, None, None],
        recompute_num_layers=np.asarray(layers)[None, :, None, None],
        overlap_pp=vp > 1 if family.switches.get("overlap_pp") is None else family.switches["overlap_pp"],
    )


def _sorted(family: Family) -> Family:
    """Points that admit the same shardings and chunks side by side."""
    order = np.lexsort((*family.shards[::-1], family.interleaves))
    return replace(
        family,
        vps=tuple(sorted(family.vps)),
        points={field: values[order] for field, values in family.points.items()},
        interleaves=family.interleaves[order],
        shards=family.shards[:, order],
    )


def _plans(question: Question, family: Family) -> _Plans:
    batch = batch_of(question, family)
    layers = family.switches.get("stage_layers")
    before = layers_before(question.model)
    kinds = [kinds_of_stage(pipeline_of(question, family.pp, vp, layers, before=before)) for vp in family.vps]
    return _Plans(
        batch=batch,
        loads=loads_of(price(question, batch)),
        kinds=side_by_side(kinds),
        whole=whole_model(question.model),
        valid=family.shards[:, None, None, :],
    )


def _pieces(family: Family) -> Iterator[_Piece]:
    """The family's valid plans, cut into pieces of about ``CELLS``."""
    classes = np.concatenate([family.shards, family.interleaves[None, :]])
    ends = np.flatnonzero(np.any(classes[:, 1:] != classes[:, :-1], axis=0)) + 1
    for first, last in zip([0, *ends], [*ends, family.num_points], strict=True):
        num_shardings = int(np.flatnonzero(family.shards[:, first])[-1]) + 1
        num_chunks = len(family.vps) if family.interleaves[first] else 1
        length = max(CELLS // (num_shardings * len(family.recomputations) * num_chunks), 1)
        for start in range(first, last, length):
            yield _Piece(slice(num_shardings), slice(num_chunks), slice(start, min(start + length, last)))


def _part(plans: _Plans, piece: _Piece) -> _Plans:
    return take(plans, (piece.shardings, EVERY, piece.chunks, piece.points))


def _values(question: Question, plans: _Plans, objective: Objective) -> tuple[NDArray[np.float64], int]:
    """Objective of every plan, infinite where it is not valid, and how many fit."""
    step = step_of(question, plans.batch, plans.loads, plans.kinds, plans.whole)
    shape = np.broadcast_shapes(*(np.shape(array) for array in _axes(plans)))
    value = np.broadcast_to(np.asarray(objective(step)), shape)
    fits = np.broadcast_to(np.asarray(step.fits), shape)
    if not plans.valid.all():
        value, fits = np.where(plans.valid, value, np.inf), fits & plans.valid
    return value, int(np.count_nonzero(fits))


def _axes(plans: _Plans) -> tuple[Any, ...]:
    batch = plans.batch
    return batch.shards_optimizer, batch.recompute_full, batch.vp, batch.tp

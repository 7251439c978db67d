r"""What plans take at least, found before their states, their memory and most of their pipeline are priced.

Two bounds, of which the second is closer and takes longer. Of all plans of a point, the micro-batches on a mean stage,
with the bubble b that every pipeline of such stages has at least,

.. math:: \frac{M + b}{p} \sum_r t_r

and of a pipeline, the micro-batches on its slowest stage with its bubble. Both leave out what states exchange and the
update, which only add to a step. A search may leave out plans whose bound is above the slowest step of use to it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shardplan.arrays import Numbers, where
from shardplan.estimation.parts.pipelines import bubble_of_equal
from shardplan.estimation.question import Question
from shardplan.estimation.step import whole_step
from shardplan.planner.evaluation import lower
from shardplan.planner.pricing.pieces import TablePiece, pieces_of
from shardplan.planner.pricing.tables import Tables
from shardplan.planner.stopping import Stop, check
from shardplan.schedules.pipeline import least_bubble

ROUNDING = 1e-9
"""Share by which a bound may exceed the time that it bounds: sums in another order."""


def least_of_points(tables: Tables, points: NDArray[np.intp], slots: NDArray[np.intp]) -> Numbers:
    """A step of any plan of these points takes no less, by slot of recomputation and point. [s]"""
    return whole_step(tables.question, tables.least_passes_at(points, slots))


def least_of_piece(question: Question, piece: TablePiece) -> Numbers:
    """A step of any plan of a piece takes no less, by slot of recomputation and point. [s]"""
    return whole_step(question, piece.least_busy)


def least_of_pipelines(tables: Tables, stop: Stop | None = None) -> NDArray[np.float64]:
    """As ``least_of_piece``, by slot and point of a family, over its pipelines; infinite where there is no plan. [s]"""
    least = np.full(tables.family.recomputes.shape, np.inf)
    for at, pieces in pieces_of(tables):
        for piece in pieces:
            check(stop)
            bound = where(piece.runnable, least_of_piece(tables.question, piece), np.inf)
            lower(least, at, bound)
    return np.where(tables.family.recomputes, least, np.inf)


def bound_and_promise(tables: Tables) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The first bound of all points, and about what their fastest plans take: it with the bubble of equal stages. [s]

    The latter is no bound where stages are unequal and micro-batches few. It decides which plans are looked at first.
    """
    points, slots = np.arange(tables.family.num_points), np.arange(len(tables.family.policies))
    numbers, least = tables.numbers.with_most_chunks(points, slots), tables.least_passes_at(points, slots)
    passes = numbers.num_microbatches
    bubble = (passes + bubble_of_equal(numbers)) / (passes + least_bubble(numbers))
    found = (whole_step(tables.question, each) for each in (least, least * bubble))
    bound, promise = (np.broadcast_to(each, (*np.shape(each)[:-2], len(slots), len(points))) for each in found)
    return bound, promise

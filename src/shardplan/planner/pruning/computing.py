r"""Which degrees can be fast enough, known before any rule is checked and any exchange is priced.

A micro-batch computes for C seconds in all p stages together, forward and backward. That depends on the degrees of
tensor, context and expert parallelism and on the size of the micro-batch, and on nothing else: not on the network, the
placement, the sharding or the number of accelerators. What is recomputed, exchanged, updated or waited for comes on
top. With M micro-batches of each replica, and the bubble b that every pipeline has at least, no step is shorter than

.. math:: \frac{M + b}{p}\, C, \qquad \frac{M}{p} = \frac{B \, tp \, cp}{N \, m}

on N accelerators, for B sequences in micro-batches of m. So the least of :math:`tp\, cp\, C / m` alone shows of most
smaller numbers of accelerators that they are slower.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardplan.base.arrays import Numbers
from shardplan.estimation.layout import whole_model
from shardplan.estimation.parts.pipelines import least_passes
from shardplan.estimation.pricing import computing_time
from shardplan.estimation.question import Question
from shardplan.estimation.step import whole_step
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.planner.pruning.bounds import ROUNDING
from shardplan.planner.space import GRID

Axes = Mapping[str, NDArray[np.int64]]
"""Candidates of every field of ``GRID``."""


class NearPlans(NamedTuple):
    """Plans that may take no longer than ``within``, under any of some switches."""

    question: Question
    switches: Sequence[Mapping[str, Any]]
    within: float
    """[s]"""

    @property
    def is_everywhere(self) -> bool:
        """Whether all may."""
        return self.within == np.inf

    def cells(self, axes: Axes, most_chunks: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Where on an open grid they are."""
        times = [
            least_computing(self.question.running(each), Plan(**each), axes, most_chunks) for each in self.switches
        ]
        near: NDArray[np.bool_] = np.minimum.reduce(times) <= self.within * (1 + ROUNDING)
        return near


def least_computing(question: Question, plan: Plan, axes: Axes, most_chunks: NDArray[np.int64]) -> NDArray[np.float64]:
    """No plan on an open grid of degrees takes less, valid or not: an axis for every field. [s]

    ``plan``: any of them; they run by the software of the question. ``most_chunks``: the largest number of chunks per
    rank at every depth.
    """
    numbers = _numbers(question, plan, axes, most_chunks)
    time = computing_time(question, numbers)
    found = whole_step(question, least_passes(numbers, whole_model(question.model), time, 0.0))
    return np.broadcast_to(found, tuple(map(len, axes.values())))


def _numbers(question: Question, plan: Plan, axes: Axes, most_chunks: NDArray[np.int64]) -> PlanNumbers:
    """Plans of an open grid in numbers; of those that are not valid, micro-batches are no whole number."""
    grid: dict[str, Any] = dict(zip(GRID, np.ix_(*(axes[name].astype(np.float64) for name in GRID)), strict=True))
    number = question.num_accelerators
    dp: Numbers = number / (grid["tp"] * grid["cp"] * grid["pp"])
    grid |= {
        "vp": most_chunks.astype(np.float64).reshape(grid["pp"].shape),
        "dp": dp,
        "edp": number / (grid["ep"] * grid["etp"] * grid["pp"]),
        "num_microbatches": question.job.global_batch_size / (dp * grid["micro_batch_size"]),
    }
    if plan.microbatch_group_size is None:
        grid["microbatch_group_size"] = grid["pp"]
    return replace(PlanNumbers.of(plan, number, question.job), **grid)

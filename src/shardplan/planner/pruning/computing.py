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

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

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
from shardplan.planner.framework_axes import VARIED
from shardplan.planner.pruning.bounds import ROUNDING
from shardplan.planner.space import GRID

Axes = Mapping[str, NDArray[np.int64]]
"""Candidates of every field of ``GRID``."""


class Computed:
    """Computation of micro-batches, for questions that differ in the number of accelerators and the batch alone."""

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[Axes, NDArray[np.float64]]] = {}

    def times(self, question: Question, plan: Plan, axes: Axes) -> NDArray[np.float64]:
        """Seconds of a micro-batch under the software of a plan, on the open grid of these degrees."""
        own = {name: values for name, values in axes.items() if name != "pp"}
        known, found = self._known.get(plan, (own, np.empty(0)))
        if not found.size or not all(np.isin(values, known[name]).all() for name, values in own.items()):
            known = {name: np.union1d(values, known[name]) for name, values in own.items()}
            one = np.ones(1, dtype=np.int64)
            time = computing_time(question, _numbers(question, plan, {"pp": one, **known}, one))
            found = np.broadcast_to(time, (1, *map(len, known.values())))[0]
            self._known[plan] = known, found
        places = (np.searchsorted(known[name], values) for name, values in own.items())
        return found[np.ix_(*places)][None]


class FastEnough(NamedTuple):
    """What plans may take."""

    within: float = np.inf
    """[s]"""
    computed: Computed | None = None
    """What is known of their computation."""


EVERY: Final = FastEnough()
"""All plans, whatever they take."""


class NearPlans(NamedTuple):
    """Plans that may be fast enough, under any of some switches."""

    question: Question
    switches: Sequence[Mapping[str, Any]]
    fast: FastEnough

    @property
    def is_everywhere(self) -> bool:
        """Whether all may."""
        return self.fast.within == np.inf

    def cells(self, axes: Axes, most_chunks: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Where on an open grid they are; ``most_chunks``: the largest number of chunks per rank at every depth."""
        computed = self.fast.computed or Computed()
        near = np.zeros(tuple(map(len, axes.values())), dtype=bool)
        for plan in self._different():
            question = self.question.running(vars(plan))
            numbers, time = _numbers(question, plan, axes, most_chunks), computed.times(question, plan, axes)
            least = whole_step(question, least_passes(numbers, whole_model(question.model), time, 0.0))
            near |= least <= self.fast.within * (1 + ROUNDING)
        return near

    def _different(self) -> list[Plan]:
        """Plans of any degrees whose computation takes least, or differs: an overlap only adds to it.

        What graphs capture matters where they capture all.
        """
        adding = {name: min(each[name] for each in self.switches) for name in VARIED if name in self.switches[0]}
        plans = (Plan(**{**each, **adding}) for each in self.switches)
        whole = (None, "full")
        return [*dict.fromkeys(p if p.cuda_graphs in whole else replace(p, cuda_graphs="none") for p in plans)]


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

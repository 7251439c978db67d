"""What a search looks for: the value of a plan, of which the least is the best."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from shardplan.base.arrays import Flags, Numbers
from shardplan.estimation.question import Question
from shardplan.estimation.step import whole_step


class PlanOutcome(Protocol):
    """What objectives read of plans."""

    @property
    def busiest(self) -> Numbers:
        """What the slowest stage takes, but for what all plans have in common. [s]"""

    @property
    def peak_memory_bytes(self) -> Numbers:
        """Of one rank of the fullest stage."""

    @property
    def fits(self) -> Flags:
        """Whether every device holds its stage."""


class Objective(NamedTuple):
    """A number for every plan that grows with what is reported of it, so that either ranks the plans."""

    value: Callable[[PlanOutcome], Numbers]
    """What plans are ranked by; infinite for those that are out of the question."""
    finished: Callable[[Question, NDArray[np.float64]], NDArray[np.float64]] = lambda _question, values: values
    """What is reported of plans that are ranked by these values."""
    most_bytes: Callable[[Question], float] = lambda _question: np.inf
    """Plans that need more memory are out of the question."""


def _time_of_fitting(step: PlanOutcome) -> Numbers:
    """Time of the busiest stage: the fixed time and the growth by stragglers are the same for all plans. [s]"""
    if not np.any(step.fits):
        return np.inf
    if np.all(step.fits):
        return step.busiest
    with np.errstate(divide="ignore"):  # some times faster than np.where, whose branches are hard to predict
        return np.divide(step.busiest, step.fits)


FASTEST = Objective(
    value=_time_of_fitting,
    finished=lambda question, values: np.asarray(whole_step(question, values)),
    most_bytes=lambda question: float(question.usable_memory),
)
"""Step time of the plans that fit. [s]"""
SMALLEST = Objective(value=lambda step: step.peak_memory_bytes)
"""Peak memory, whether it fits or not. [bytes]"""

"""What a search looks for: the value of a plan, of which the least is the best."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol

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


class Objective(ABC):
    """A number for every plan that grows with what is reported of it, so that either ranks the plans."""

    @abstractmethod
    def value(self, step: PlanOutcome) -> Numbers:
        """What plans are ranked by; infinite for those that are out of the question."""

    def most_bytes(self, question: Question) -> float:  # noqa: ARG002
        """Plans that need more memory are out of the question."""
        return np.inf

    @abstractmethod
    def finished(self, question: Question, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """What is reported of plans that are ranked by ``values``."""


class _Fastest(Objective):
    """Step time of the plans that fit. [s]"""

    def value(self, step: PlanOutcome) -> Numbers:
        """Time of the busiest stage: the fixed time and the growth by stragglers are the same for all plans."""
        if not np.any(step.fits):
            return np.inf
        if np.all(step.fits):
            return step.busiest
        with np.errstate(divide="ignore"):  # some times faster than np.where, whose branches are hard to predict
            return np.divide(step.busiest, step.fits)

    def most_bytes(self, question: Question) -> float:
        """What tensors can fill."""
        return float(question.usable_memory)

    def finished(self, question: Question, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The whole step."""
        return np.asarray(whole_step(question, values))


class _Smallest(Objective):
    """Peak memory, whether it fits or not. [bytes]"""

    def value(self, step: PlanOutcome) -> Numbers:
        """Memory of the fullest stage."""
        return step.peak_memory_bytes

    def finished(self, question: Question, values: NDArray[np.float64]) -> NDArray[np.float64]:  # noqa: ARG002
        """The same."""
        return values


FASTEST, SMALLEST = _Fastest(), _Smallest()

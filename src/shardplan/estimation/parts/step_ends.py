"""Which stage ends the step of every plan, and when: the first one after all passes, or another that needs longer."""

from __future__ import annotations

from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from shardplan.arrays import Numbers
from shardplan.estimation.plan_rows import Index, StageRows
from shardplan.fields import dataclass

Column: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class StepEnds:
    """Ends of a step, from what every stage of every plan needs."""

    rows: StageRows
    passes: Numbers
    """All micro-batches, and waiting for other stages. [s]"""
    head_start: Numbers
    """By how much less time than the first stage a stage needs for its passes. [s]"""
    once: Numbers
    """What its states cost once a step. [s]"""

    @cached_property
    def busy(self) -> Column:
        """What every plan spends on a step, the fixed time and stragglers apart. [s]"""
        return np.maximum(self._after_first, self.rows.largest(self._own_end))

    @cached_property
    def slowest(self) -> Index:
        """The stage of every plan whose passes are longest, or that ends after the first one."""
        return np.where(self._ends_first, self.rows.at_largest(self.passes), self.rows.at_largest(self._own_end))

    @cached_property
    def last(self) -> Index:
        """The stage of every plan that ends its step."""
        return np.where(self._ends_first, self.rows.first, self.slowest)

    @cached_property
    def waiting(self) -> Column:
        """Passes of the slowest stage of every plan and its waiting, as far as they lengthen the step. [s]"""
        start = np.where(self._ends_first, 0.0, self.rows.each(self.head_start)[self.slowest])
        return self.rows.each(self.passes)[self.slowest] - start

    @cached_property
    def _after_first(self) -> Column:
        """When the first stage has updated its states, after the longest of all passes. [s]"""
        return self.rows.largest(self.passes) + self.rows.each(self.once)[self.rows.first]

    @cached_property
    def _own_end(self) -> Column:
        """When every stage has updated its states, from its own first pass. [s]"""
        return self.rows.each(self.passes - self.head_start + self.once)

    @cached_property
    def _ends_first(self) -> NDArray[np.bool_]:
        """Whether the first stage ends the step."""
        return self.rows.largest(self._own_end) <= self._after_first

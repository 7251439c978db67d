"""The kernels of a profiled step next to the terms of the estimate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from shardplan.estimation.parts.terms import STEP_TERMS
from shardplan.fields import dataclass
from shardplan.simulation.measured.kernels import (
    ATTENTION,
    CLASSES,
    COMMUNICATION,
    DIMENSIONS,
    IDLE,
    MATMUL,
    MEMORY_BOUND,
    OFFLOAD,
    OPTIMIZER,
)
from shardplan.simulation.measured.profile import ProfiledStep

RECOMPUTE: Final = "recompute"
WAITING: Final = tuple(term.key for term in STEP_TERMS if term.key not in (*CLASSES, RECOMPUTE))
"""Terms of the estimate in which an accelerator does nothing that a kernel shows."""
SUM: Final = "computation"
"""Matrix products, attention, memory-bound passes and recomputation, whose kernels have no mark of their own."""


@dataclass(frozen=True, kw_only=True)
class TermComparison:
    """A term of the step time, measured and predicted."""

    name: str
    predicted: float | None
    """None where the estimate does not tell it from others. [s]"""
    measured: float | None
    """None where the trace does not. [s]"""
    is_sum: bool = False
    """Whether it is the sum of the terms before it."""


def compare_terms(step: ProfiledStep, breakdown: Mapping[str, float]) -> tuple[TermComparison, ...]:
    """The terms of one rank next to ``breakdown``, the split of the predicted step; without sums they add up to both.

    Kernels do not show whether they run for recomputation, so that only the sum of all computation compares with it.
    Where the trace does not name the groups of communication, it compares with the sum of all dimensions, or with the
    only one that there is.
    """
    found = dict(step.terms)
    expected = {name: breakdown.get(name, 0.0) for name in breakdown}
    names = [name for name in DIMENSIONS if expected.get(name) or found.get(name)]
    unnamed = found.pop(COMMUNICATION, 0.0)
    if unnamed and len(names) == 1:
        found[names[0]] = found.get(names[0], 0.0) + unnamed
    elif unnamed:
        found[COMMUNICATION] = unnamed + sum(found.pop(name, 0.0) for name in names)
        expected[COMMUNICATION] = sum(expected.pop(name, 0.0) for name in names)
        names = [COMMUNICATION]
    again = expected.get(RECOMPUTE, 0.0)
    classes = (MATMUL, ATTENTION, MEMORY_BOUND)
    rows = [_term(name, expected, found) for name in classes]
    if again:
        rows.append(TermComparison(name=RECOMPUTE, predicted=again, measured=None))
    rows.append(
        TermComparison(
            name=SUM,
            predicted=sum(expected.get(name, 0.0) for name in (*classes, RECOMPUTE)),
            measured=sum(found.get(name, 0.0) for name in classes),
            is_sum=True,
        )
    )
    rows += [_term(name, expected, found) for name in (OPTIMIZER, OFFLOAD, *names)]
    waiting = sum(expected.get(name, 0.0) for name in WAITING)
    rows.append(TermComparison(name=IDLE, predicted=waiting, measured=found.get(IDLE, 0.0)))
    return tuple(row for row in rows if row.predicted or row.measured)


def _term(name: str, expected: Mapping[str, float], found: Mapping[str, float]) -> TermComparison:
    return TermComparison(name=name, predicted=expected.get(name, 0.0), measured=found.get(name, 0.0))

"""The published runs, each with what constants that never saw its team predict: what the page on trust filters.

The figures are those of the shipped left-out errors, so nothing is predicted anew. :func:`account_of` is one of the
runs in full, predicted by the constants in use, with the known reasons for its error.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Final, Literal

from shardplan.base.errors import UnknownNameError
from shardplan.base.fields import dataclass
from shardplan.calibrate.errors import UNSTATED, Errors, errors_of_each, grouped, read_needs
from shardplan.calibrate.predict import Prediction, ask_all, predict
from shardplan.calibrate.runs.rows import MeasuredRun, shipped_runs
from shardplan.estimation.estimate import Estimate, estimate_plan
from shardplan.inputs.readers.causes import Cause, Subject
from shardplan.inputs.readers.residuals import CONTRADICTORY_MEMORY, Residual, read_residuals
from shardplan.reports.accuracy.causes import cause_of

Quantity = Literal["step_time", "peak_memory", "fits"]
"""What is predicted and was measured; ``fits``: needed over usable memory, against how the run ended."""
KINDS: Final = {False: "dense", True: "mixture of experts"}
FACETS: Final[Mapping[str, Callable[[KnownRun], str]]] = {
    "family": lambda one: one.run.family,
    "accelerator": lambda one: one.run.accelerator,
    "kind": lambda one: one.kind,
    "framework": lambda one: one.run.framework.lower() or UNSTATED,
    "tier": lambda one: one.run.tier,
}
"""What runs are filtered and grouped by."""


@dataclass(frozen=True, kw_only=True)
class KnownRun:
    """A published run and its errors, as logarithms of predicted over measured; None: not measured."""

    run: MeasuredRun
    kind: str
    """``dense`` or ``mixture of experts``; empty for a run without left-out error."""
    step_time: float | None
    measured_step_time: float | None
    """[s]"""
    peak_memory: float | None
    fits: float | None
    """ln(needed / usable memory)."""

    def ratio(self, quantity: Quantity) -> float | None:
        """ln(predicted / measured); for ``fits`` ln(needed / usable)."""
        found: float | None = getattr(self, quantity)
        return found

    def measured(self, quantity: Quantity) -> float | None:
        """Seconds or bytes."""
        return self.run.peak_memory_bytes if quantity == "peak_memory" else self.measured_step_time

    def predicted(self, quantity: Quantity) -> float | None:
        """Seconds or bytes, by constants that never saw the run's team."""
        measured, ratio = self.measured(quantity), self.ratio(quantity)
        return None if measured is None or ratio is None else measured * math.exp(ratio)

    @property
    def is_right(self) -> bool:
        """Whether the verdict on its memory agrees with how it ended."""
        return self.fits is not None and (self.fits <= 0) == self.run.ran


@cache
def known_runs() -> tuple[KnownRun, ...]:
    """Every published run, in the order of the file."""
    errors, needs = {one.id: one for one in read_residuals()}, read_needs()
    return tuple(_known(run, errors.get(run.id), needs.get(run.id)) for run in shipped_runs())


def _known(run: MeasuredRun, error: Residual | None, need: float | None) -> KnownRun:
    is_moe = error.features.moe if error is not None else (run.ep or 1) > 1
    has_memory = error is not None and run.family not in CONTRADICTORY_MEMORY
    return KnownRun(
        run=run,
        kind=KINDS[is_moe],
        step_time=error.time if error is not None else None,
        measured_step_time=error.measured_step_time if error is not None else run.step_time,
        peak_memory=error.memory if error is not None and has_memory else None,
        fits=need,
    )


def chosen_runs(quantity: Quantity, filters: Mapping[str, str], text: str = "") -> tuple[KnownRun, ...]:
    """Runs that have the quantity, with these values of ``FACETS`` and ``text`` in their name or model."""
    wanted = text.strip().lower()
    return tuple(
        one
        for one in known_runs()
        if one.ratio(quantity) is not None
        and all(FACETS[name](one) == value for name, value in filters.items() if value)
        and (wanted in one.run.id.lower() or wanted in one.run.model.lower())
    )


def choices(facet: str) -> tuple[tuple[str, int], ...]:
    """Values of a facet and how many runs have each, the largest first."""
    return tuple(Counter(FACETS[facet](one) for one in known_runs()).most_common())


@dataclass(frozen=True, kw_only=True)
class ErrorsOfGroup:
    """Errors of the runs with one value of a facet."""

    name: str
    errors: Errors
    num_right: int
    """Verdicts on memory that are right."""


def errors_by_facet(runs: Sequence[KnownRun], quantity: Quantity, facet: str) -> tuple[ErrorsOfGroup, ...]:
    """Errors by the values of a facet, the largest group first, and of all runs last."""
    groups = grouped(runs, FACETS[facet])
    ordered = sorted(groups.items(), key=lambda each: (-len(each[1]), each[0]))
    return tuple(
        ErrorsOfGroup(
            name=name,
            errors=errors_of_each(group, lambda one: one.ratio(quantity)),
            num_right=sum(one.is_right for one in group),
        )
        for name, group in (*ordered, ("all", [*runs]))
    )


def furthest_off(runs: Iterable[KnownRun], quantity: Quantity) -> tuple[KnownRun, ...]:
    """The runs with the largest error first; of verdicts the wrong ones, then those nearest to being wrong."""
    if quantity == "fits":
        return tuple(sorted(runs, key=lambda one: abs(one.fits or 0.0) * (1 if one.is_right else -1)))
    return tuple(sorted(runs, key=lambda one: -abs(one.ratio(quantity) or 0.0)))


@dataclass(frozen=True, kw_only=True)
class RunAccount:
    """A published run in full."""

    known: KnownRun
    prediction: Prediction
    """By the constants in use, which saw the run."""
    estimate: Estimate
    """The run's plan, as any plan is estimated."""
    causes: tuple[tuple[Subject, Cause], ...]
    """Known reasons for its errors, and what the user of such a setting should state."""


SUBJECTS: Final[tuple[Subject, ...]] = ("step_time", "peak_memory", "fits", "false_fits")


def account_of(run_id: str) -> RunAccount:
    """The run of that name. Raises ``UnknownNameError``."""
    by_id = {one.run.id: one for one in known_runs()}
    if run_id not in by_id:
        raise UnknownNameError("published run", f"{run_id:.80}", by_id, hint="choose a name of the table on Trust")
    known = by_id[run_id]
    asked, _ = ask_all((known.run,))
    (prediction,) = predict(asked)
    causes = [(subject, cause_of(run_id, subject)) for subject in SUBJECTS]
    return RunAccount(
        known=known,
        prediction=prediction,
        estimate=estimate_plan(asked[0].question, asked[0].plan),
        causes=tuple((subject, cause) for subject, cause in causes if cause is not None),
    )

"""What a validation tells a person: errors, what the constants have seen of the runs, rows furthest off, skipped."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from shardplan.calibration.defaults import is_only_compared
from shardplan.calibration.errors import GROUPINGS, Errors
from shardplan.calibration.predict import Prediction
from shardplan.calibration.validate import Validation
from shardplan.fields import dataclass
from shardplan.inputs.profile import Profile, load_profile
from shardplan.inputs.readers.residuals import read_residuals

MOST_WORST = 8
FEWEST_SHARED = 2
"""Rows of which something is common."""


@dataclass(frozen=True, kw_only=True)
class ErrorGroup:
    """Errors of a set of rows."""

    name: str
    step_time: Errors
    peak_memory: Errors


@dataclass(frozen=True, kw_only=True)
class Worst:
    """A row that is far off, and what may be the reason."""

    prediction: Prediction
    quantity: str
    """``step time`` or ``memory``."""
    factor: float
    """Predicted over measured."""
    reason: str


@dataclass(frozen=True, kw_only=True)
class Seen:
    """How many of the runs validated the constants in use have seen: their errors are not those of new runs."""

    num_runs: int
    """All that are predicted."""
    num_published: int
    """Of these the published ones, to which the shipped constants were fitted."""
    fitted_to: tuple[str, ...] | None
    """What the profile was fitted to, in its own words; None: the constants are those that are shipped."""
    num_own: int = 0
    """Of the runs validated those that the profile was made from, the ones held out included."""
    is_named: bool = False
    """Whether the profile names the runs that it was made from."""


def seen_of(validation: Validation, profile: Profile | None) -> Seen:
    """By the names of the runs; ``profile``: the constants given, if any."""
    names = [one.run.id for one in validation.predictions]
    published = {run.id for run in read_residuals() if not is_only_compared(run.family)}
    shipped = Seen(num_runs=len(names), num_published=sum(name in published for name in names), fitted_to=None)
    if profile is None:
        return shipped
    own = {run.id for run in profile.left_out_errors}
    base = load_profile(profile.generation)
    if not own and profile.constants == base.constants:
        return shipped
    said, shipped_say = (
        {one.fitted_on for one in each.constants.values() if one.fitted_on} for each in (profile, base)
    )
    num_own = sum(name in own for name in names)
    return replace(shipped, fitted_to=tuple(sorted(said - shipped_say)), num_own=num_own, is_named=bool(own))


def groups_of(validation: Validation, by: str) -> tuple[ErrorGroup, ...]:
    """Errors by one of ``GROUPINGS``, all rows last."""
    assert by in GROUPINGS
    times, memories = validation.step_time_by(by), validation.peak_memory_by(by)
    groups = [ErrorGroup(name=name, step_time=times[name], peak_memory=memories[name]) for name in times]
    everything = ErrorGroup(name="all", step_time=validation.step_time, peak_memory=validation.peak_memory)
    return (*groups, everything)


def worst_of(predictions: Sequence[Prediction]) -> tuple[Worst, ...]:
    """The rows that are furthest off, the worst first."""
    shared = shared_reasons(predictions)
    found = [
        Worst(prediction=one, quantity=quantity, factor=math.exp(ratio), reason=_reason(one, shared))
        for one in predictions
        for quantity, ratio in (("step time", one.log_time_ratio), ("memory", one.log_memory_ratio))
        if ratio is not None
    ]
    return tuple(sorted(found, key=lambda row: -abs(math.log(row.factor)))[:MOST_WORST])


def shared_reasons(predictions: Sequence[Prediction]) -> tuple[str, ...]:
    """What is assumed or ignored in every one of several rows, in the order of the first."""
    if len(predictions) < FEWEST_SHARED:
        return ()
    first, *others = [(*one.asked.assumed, *one.asked.ignored) for one in predictions]
    common = set(first).intersection(*others)
    return tuple(text for text in first if text in common)


def _reason(one: Prediction, shared: Sequence[str] = ()) -> str:
    """What was not stated, or stated and not understood, ``shared`` left out: the first things to look at."""
    assumed, ignored = (
        [text for text in texts if text not in shared] for texts in (one.asked.assumed, one.asked.ignored)
    )
    parts = []
    if not one.fits:
        parts.append("is predicted not to fit")
    if one.run.tier == "B":
        parts.append("tier B: a field that matters is missing")
    if assumed:
        parts.append(f"assumed: {'; '.join(assumed)}")
    if ignored:
        parts.append(f"ignored: {'; '.join(ignored)}")
    return "; ".join(parts) or ("nothing else is missing" if shared else "everything is stated")

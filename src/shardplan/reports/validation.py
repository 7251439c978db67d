"""What a validation tells a person: tables of errors, rows that are furthest off with their reasons, skipped rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from shardplan.calibration.errors import GROUPINGS, Errors
from shardplan.calibration.predict import Prediction
from shardplan.calibration.validate import Validation

__all__ = ["Group", "Worst", "groups_of", "skipped_by_rule", "worst_of"]

MOST_WORST = 8


@dataclass(frozen=True, kw_only=True)
class Group:
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


def groups_of(validation: Validation, by: str) -> tuple[Group, ...]:
    """Errors by one of ``GROUPINGS``, all rows last."""
    assert by in GROUPINGS
    times, memories = validation.step_time_by(by), validation.peak_memory_by(by)
    groups = [Group(name=name, step_time=times[name], peak_memory=memories[name]) for name in times]
    everything = Group(name="all", step_time=validation.step_time, peak_memory=validation.peak_memory)
    return (*groups, everything)


def worst_of(predictions: Sequence[Prediction], most: int = MOST_WORST) -> tuple[Worst, ...]:
    """The rows that are furthest off, the worst first."""
    found = [
        Worst(prediction=one, quantity=quantity, factor=math.exp(ratio), reason=_reason(one))
        for one in predictions
        for quantity, ratio in (("step time", one.log_time_ratio), ("memory", one.log_memory_ratio))
        if ratio is not None
    ]
    return tuple(sorted(found, key=lambda row: -abs(math.log(row.factor)))[:most])


def _reason(one: Prediction) -> str:
    """What was not stated, or stated and not understood: the first things to look at."""
    parts = []
    if not one.fits:
        parts.append("is predicted not to fit")
    if one.run.tier == "B":
        parts.append("tier B: a field that matters is missing")
    if one.asked.assumed:
        parts.append(f"assumed: {'; '.join(one.asked.assumed)}")
    if one.asked.ignored:
        parts.append(f"ignored: {'; '.join(one.asked.ignored)}")
    return "; ".join(parts) or "everything is stated"


def skipped_by_rule(validation: Validation) -> dict[str, list[str]]:
    """Rows that cannot be predicted, by the rule that they break, most rows first."""
    rules: dict[str, list[str]] = {}
    for one in validation.skipped:
        rules.setdefault(one.rule, []).append(one.run.id)
    return dict(sorted(rules.items(), key=lambda item: -len(item[1])))

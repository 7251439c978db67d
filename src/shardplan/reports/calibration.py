"""Records of what ``calibrate`` found: errors before and after, constants that moved."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from shardplan.calibration.defaults import Refit, with_fitted
from shardplan.calibration.errors import Errors, errors_of
from shardplan.calibration.microbench import Measurements, Outcome
from shardplan.calibration.user import FitComparison, UserFit
from shardplan.fields import dataclass
from shardplan.inputs.profile import Constant, constants_of, generations
from shardplan.records import plain

SCHEMA: Final = "shardplan/calibration/1"


@dataclass(frozen=True, kw_only=True)
class RefitChange:
    """A shipped value and what it would become."""

    label: str
    unit: str
    before: float
    after: float
    sd: float


def calibration_record(found: UserFit, profile: str) -> dict[str, Any]:
    """The record of ``calibrate RUNS.csv --json``."""
    return {
        "schema": SCHEMA,
        "profile": profile,
        "accelerator": found.accelerator,
        "generation": found.generation,
        "fitted": {"runs": list(found.fitted), **_comparison(found.on_fitted)},
        "held_out": {"runs": list(found.held_out), **_comparison(found.on_held_out)},
        "num_configurations": found.num_configurations,
        "left_out": {
            "runs": [run.id for run in found.left_out],
            "step_time": plain(left_out_errors(found, "time")),
            "peak_memory": plain(left_out_errors(found, "memory")),
        },
        "skipped": [{"id": one.run.id, "reason": one.said} for one in found.skipped],
        "constants": plain(found.changes),
        "outliers": [{"id": name, "predicted_over_measured": ratio} for name, ratio in found.outliers],
        "not_fitting": [{"id": name, "needed_over_usable": share} for name, share in found.not_fitting],
        "read_as": list(found.read_as),
        "taken_as": dict(found.taken),
        "not_understood": dict(found.not_understood),
    }


def left_out_errors(found: UserFit, quantity: str) -> Errors:
    """Errors of ``time`` or ``memory`` of the runs that are predicted by a fit that has not seen them."""
    ratios = [getattr(run, quantity) for run in found.left_out]
    return errors_of(np.asarray([np.nan if ratio is None else ratio for ratio in ratios]))


def _comparison(compared: FitComparison) -> dict[str, Any]:
    (time_before, time_after), (memory_before, memory_after) = compared.step_time, compared.peak_memory
    return {
        "step_time": {"before": plain(time_before), "after": plain(time_after)},
        "peak_memory": {"before": plain(memory_before), "after": plain(memory_after)},
    }


def microbench_record(measured: Measurements, outcome: Outcome, profile: str, measurements: str) -> dict[str, Any]:
    """The record of ``calibrate --microbench --json``."""
    return {
        "schema": "shardplan/microbenchmark/1",
        "profile": profile,
        "measurements": measurements,
        "device": plain(measured.device),
        "accelerator": measured.accelerator,
        "software": measured.software,
        "is_complete": measured.is_complete,
        "num_samples": len(measured.samples),
        "num_skipped": len(measured.skipped),
        "constants": [
            {"name": name, "value": constant.value, "unit": constant.unit, "source": constant.source, "sd": constant.sd}
            for name, constant in outcome.constants.items()
        ],
        "kept": plain(outcome.kept),
        "warnings": list(outcome.warnings),
    }


def refit_errors(found: Refit) -> dict[str, tuple[Errors, Errors]]:
    """Errors of step time and of peak memory: in-sample, and each run by constants that never saw its family."""
    return {
        "step_time": (errors_of(found.time[:, 0]), errors_of(found.left_out(found.time))),
        "peak_memory": (errors_of(found.memory[:, 0]), errors_of(found.left_out(found.memory))),
    }


def refit_changes(found: Refit) -> tuple[RefitChange, ...]:
    """Shipped values that the fit would change, as they are rounded in files."""
    return tuple(change for generation in ("default", *generations()) for change in _changes(found, generation))


def _changes(found: Refit, generation: str) -> list[RefitChange]:
    shipped, fitted = constants_of(generation), with_fitted(found.fit, generation)
    place = "" if generation == "default" else f"{generation}."
    spreads = {
        (free.name, key): float(found.fit.sd[column])
        for column, free in enumerate(found.fit.frees)
        if free.generation == generation
        for key in (free.keys or (None,))
    }
    changes = []
    for (name, key), sd in spreads.items():
        before, after = (_value(constants[name], key) for constants in (shipped, fitted))
        if before != after:
            label = f"{place}{name}" if key is None else f"{place}{name}[{key}]"
            changes.append(RefitChange(label=label, unit=shipped[name].unit, before=before, after=after, sd=sd))
    return changes


def _value(constant: Constant, key: str | None) -> float:
    value: Any = constant.value
    return float(value if key is None else value[key])


def refit_record(found: Refit, changes: tuple[RefitChange, ...], *, is_written: bool) -> dict[str, Any]:
    """The record of ``calibrate --defaults --json``."""
    errors = refit_errors(found)
    return {
        "schema": "shardplan/refit/1",
        "num_runs": len(found.cases),
        "families": [family for family in found.fit.folds if family is not None],
        "objectives": list(found.fit.objectives),
        **{name: {"in_sample": plain(one), "left_out": plain(other)} for name, (one, other) in errors.items()},
        "constants": plain(changes),
        "is_written": is_written,
    }

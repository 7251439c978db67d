"""All measured runs of a file against their predictions: the record behind ``shardplan validate``."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, replace
from itertools import chain
from operator import attrgetter
from typing import Any, Final

import numpy as np

from shardplan.base.fields import dataclass
from shardplan.base.records import plain
from shardplan.calibrate.errors import (
    GROUPINGS,
    UNSTATED,
    Errors,
    Inside,
    Sweep,
    Verdicts,
    errors_by,
    errors_of_each,
    grouped,
    inside_of,
    sweeps_of,
    verdicts_of,
)
from shardplan.calibrate.predict import (
    Prediction,
    Profiles,
    SkippedRun,
    ask_all,
    cannot_have_run,
    predict,
    skipped_rows,
)
from shardplan.calibrate.runs.rows import RAN, MeasuredRun, RunTable, UnreadableRun, read_table, shipped_runs
from shardplan.calibrate.usable import problems_of, unit_slip

TIME: Final = attrgetter("log_time_ratio")
MEMORY: Final = attrgetter("log_memory_ratio")


@dataclass(frozen=True, kw_only=True)
class Validation:
    """Predictions held against measurements."""

    predictions: tuple[Prediction, ...]
    skipped: tuple[SkippedRun, ...]
    """Runs that cannot be predicted, each with its reason."""
    sweeps: tuple[Sweep, ...]
    read_as: tuple[str, ...] = ()
    """Columns of the file that are read as others, and what separates them."""

    @property
    def counted(self) -> tuple[Prediction, ...]:
        """Those of which errors are: all but the runs that cannot have run as they are written."""
        left_out = {id(one) for one in self.impossible}
        return tuple(one for one in self.predictions if id(one) not in left_out)

    @property
    def step_time(self) -> Errors:
        """Errors of all step times."""
        return errors_of_each(self.counted, TIME)

    @property
    def slip(self) -> str | None:
        """What is wrong with the unit of the step times; None if nothing is."""
        return unit_slip([np.nan if (ratio := TIME(one)) is None else ratio for one in self.predictions])

    @property
    def peak_memory(self) -> Errors:
        """Errors of all peak memories."""
        return errors_of_each(self.counted, MEMORY)

    @property
    def not_fitting(self) -> tuple[Prediction, ...]:
        """Runs that are predicted not to fit, although they ran, those first that need most of what is usable."""
        found = [one for one in self.predictions if one.run.ran and not one.fits]
        return tuple(sorted(found, key=lambda one: one.free_share))

    @property
    def impossible(self) -> tuple[Prediction, ...]:
        """Of the runs predicted not to fit those that cannot have run as they are written: no fit uses them."""
        return tuple(
            one
            for one in self.not_fitting
            if cannot_have_run(one.run, one.needed_memory_bytes, one.usable_memory_bytes)
        )

    @property
    def false_fits(self) -> tuple[Prediction, ...]:
        """Runs that are predicted to fit, although they ran out of memory, those first that leave most of it free."""
        found = [one for one in self.predictions if one.fits and not one.run.ran]
        return tuple(sorted(found, key=lambda one: -one.free_share))

    @property
    def fits(self) -> Verdicts:
        """Verdicts on all runs."""
        return verdicts_of(self.predictions)

    def fits_by(self, group: str) -> dict[str, Verdicts]:
        """Verdicts by one of ``GROUPINGS``."""
        groups = grouped(self.predictions, GROUPINGS[group])
        return {name: verdicts_of(groups[name]) for name in sorted(groups)}

    def step_time_by(self, group: str) -> dict[str, Errors]:
        """Errors of step times by one of ``GROUPINGS``."""
        return errors_by(self.counted, GROUPINGS[group], TIME)

    def peak_memory_by(self, group: str) -> dict[str, Errors]:
        """Errors of peak memories by one of ``GROUPINGS``."""
        return errors_by(self.counted, GROUPINGS[group], MEMORY)

    def coverage(self, tier: str | None = None) -> float | None:
        """Share of measured step times inside their 10-90 band; ``tier``: of the runs of this one alone."""
        inside = [
            one.step_time_p10 <= one.run.step_time <= one.step_time_p90
            for one in self.counted
            if one.run.step_time is not None and tier in (None, one.run.tier)
        ]
        return float(np.mean(inside)) if inside else None

    def coverage_by(self, group: str) -> dict[str, Inside]:
        """Measured step times inside their band by one of ``GROUPINGS``, and those of all runs under ``all``.

        Rows that cannot be predicted are misses, of their family and tier as far as these can be read.
        """
        hits: dict[str, list[bool]] = {}
        for one in self.counted:
            if one.run.step_time is not None:
                name = GROUPINGS[group](one) or UNSTATED
                hits.setdefault(name, []).append(one.step_time_p10 <= one.run.step_time <= one.step_time_p90)
        for row in self.skipped:
            if row.run.step_time is not None:
                hits.setdefault(str(getattr(row.run, group, "") or UNSTATED), []).append(False)
        found = {name: inside_of(hits[name]) for name in sorted(hits)} | {"all": inside_of([*chain(*hits.values())])}
        return {name: inside for name, inside in found.items() if inside is not None}

    def to_record(self) -> dict[str, Any]:
        """Plain record: a row for every run in the order of the file, errors by every grouping, order within sweeps.

        Errors are shares, not per cent.
        """
        listed: tuple[Prediction | SkippedRun, ...] = (*self.predictions, *self.skipped)
        rows = [_row(one) for one in sorted(listed, key=lambda one: one.run.line)]
        return {
            "rows": rows,
            "counts": {
                "rows": len(rows),
                "predicted": len(self.predictions),
                "skipped": len(self.skipped),
                "skipped_by_rule": dict(Counter(rule for one in self.skipped for rule, _ in one.problems)),
                "out_of_memory": self.fits.out_of_memory,
                "predicted_not_to_fit": len(self.not_fitting),
                "cannot_have_run": len(self.impossible),
            },
            "problems": [plain(each) for each in problems_of(self.skipped)],
            "read_as": list(self.read_as),
            "fits": {"all": asdict(self.fits), **{group: plain(self.fits_by(group)) for group in GROUPINGS}},
            "summary": {
                "all": _errors(self.step_time, self.peak_memory),
                **{group: self._summary(group) for group in GROUPINGS},
            },
            "ranking": [asdict(sweep) for sweep in self.sweeps],
            "ranking_summary": self.ranking(),
            "coverage": self.coverage(),
            "coverage_by": {group: plain(self.coverage_by(group)) for group in GROUPINGS},
        }

    def _summary(self, group: str) -> dict[str, Any]:
        times, memories = self.step_time_by(group), self.peak_memory_by(group)
        return {name: _errors(times[name], memories[name]) for name in times}

    def ranking(self) -> dict[str, float | int | None]:
        """Order within all sweeps: mean regret, share of clearly different pairs in order, median rank correlation."""
        pairs = sum(sweep.num_pairs for sweep in self.sweeps)
        right = sum(sweep.num_pairs * (sweep.pairs_in_order or 0.0) for sweep in self.sweeps)
        return {
            "sweeps": len(self.sweeps),
            "mean_regret": float(np.mean([sweep.regret for sweep in self.sweeps])) if self.sweeps else None,
            "pairs": pairs,
            "pairs_in_order": right / pairs if pairs else None,
            "median_spearman": float(np.median([sweep.spearman for sweep in self.sweeps])) if self.sweeps else None,
        }


def validate(path: str | os.PathLike[str] | None = None, profiles: Profiles | None = None) -> Validation:
    """Runs of a file, or the published ones that are shipped, against predictions. Raises ``InputError``."""
    table = RunTable(runs=shipped_runs()) if path is None else read_table(path)
    return replace(validate_runs(table.runs, profiles, unreadable=table.unreadable), read_as=table.taken)


def validate_runs(
    runs: tuple[MeasuredRun, ...], profiles: Profiles | None = None, *, unreadable: tuple[UnreadableRun, ...] = ()
) -> Validation:
    """The same for runs already read; ``unreadable``: rows of their file that could not be."""
    asked, skipped = ask_all(runs)
    predictions = predict(asked, profiles)
    return Validation(
        predictions=predictions, skipped=(*skipped_rows(unreadable), *skipped), sweeps=sweeps_of(predictions)
    )


def _errors(step_time: Errors, peak_memory: Errors) -> dict[str, Any]:
    """Errors of step times, and of peak memories under a name of their own."""
    return {**asdict(step_time), "peak_memory": asdict(peak_memory)}


PREDICTED: Final[Mapping[str, str]] = {
    "predicted_step_time_s": "step_time",
    "measured_step_time_s": "run.step_time",
    "step_time_p10_s": "step_time_p10",
    "step_time_p90_s": "step_time_p90",
    "predicted_peak_memory_bytes": "peak_memory_bytes",
    "measured_peak_memory_bytes": "run.peak_memory_bytes",
    "fits": "fits",
    "needed_memory_bytes": "needed_memory_bytes",
    "usable_memory_bytes": "usable_memory_bytes",
}
"""Figures of a row of the record, and the attributes of predictions that they are; without a prediction, of runs."""


def _row(one: Prediction | SkippedRun) -> dict[str, Any]:
    """What a run measured, what is predicted, and why where it is not."""
    run, is_skipped = one.run, isinstance(one, SkippedRun)
    return {
        "id": run.id,
        "family": run.family,
        "tier": run.tier,
        "result": run.result or RAN,
        **{
            key: None if is_skipped and not name.startswith("run.") else attrgetter(name)(one)
            for key, name in PREDICTED.items()
        },
        "skipped": one.said if isinstance(one, SkippedRun) else None,
        "assumed": [] if isinstance(one, SkippedRun) else list(one.asked.assumed),
        "ignored": [] if isinstance(one, SkippedRun) else list(one.asked.ignored),
    }

"""The shipped constants, fitted again from the published runs: one command that anyone can rerun, with the same result.

Constants go to ``data/profiles/*.yaml`` with value, prior and standard deviations; the errors of every run under
constants that never saw its family go to ``data/profiles/residuals.csv``, from which bands are made.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import yaml

from shardplan.calibration.constants import SD_DIGITS, Free, Vector, free_constants, profiles_at, rounded
from shardplan.calibration.evidence import evidence_of
from shardplan.calibration.fit import Fit, fit
from shardplan.calibration.left_out import neighbourhoods_of, residual_of, with_plan_factors
from shardplan.calibration.predict import PosedRun, ask_all, cases_of, log_ratios
from shardplan.calibration.runs.rows import shipped_runs
from shardplan.fields import dataclass
from shardplan.inputs.profile import PROFILES, Constant, Profile, assemble, constants_of, generations
from shardplan.inputs.readers.residuals import EVEN, Residual, residual_row
from shardplan.records import plain

PUBLISHED = "the published runs that ship with the product"
LeftOut = Literal["family", "generation", "neighbourhood"]
RADIUS = 2.5
"""Distance within which runs are of one neighbourhood."""


@dataclass(frozen=True, kw_only=True)
class Refit:
    """Constants fitted to all published runs, and to all but one family (or generation) for every one of them."""

    cases: tuple[PosedRun, ...]
    groups: tuple[str, ...]
    """What every case is left out with."""
    fit: Fit
    time: Vector
    """ln(predicted / measured) of the step time: cases x folds; NaN where not measured."""
    memory: Vector
    """The same of the peak memory."""

    def left_out(self, table: Vector) -> Vector:
        """Each case's value in the fold that never saw its family (or generation)."""
        folds = {name: index for index, name in enumerate(self.fit.folds)}
        return np.asarray([row[folds[name]] for row, name in zip(table, self.groups, strict=True)])


def refit(*, left_out: LeftOut = "family", progress: Callable[[int, float], None] | None = None) -> Refit:
    """Fits the shipped constants again, each ``left_out`` once. Some twenty seconds on one core."""
    asked, _ = ask_all(shipped_runs())
    cases = cases_of(asked)
    groups = _groups(cases, left_out)
    frees = free_constants()
    found = fit(frees, evidence_of(cases, frees, groups), (None, *sorted(set(groups))), progress=progress)
    time, memory = log_ratios(cases, profiles_at(frees, found.theta))
    return Refit(cases=cases, groups=groups, fit=found, time=time, memory=memory)


def _groups(cases: Sequence[PosedRun], left_out: LeftOut) -> tuple[str, ...]:
    if left_out == "neighbourhood":
        unpredicted = EVEN, math.nan
        return neighbourhoods_of([residual_of(case, math.nan, math.nan, *unpredicted) for case in cases], RADIUS)
    return tuple(case.asked.run.family if left_out == "family" else case.generation for case in cases)


def with_fitted(found: Fit, generation: str) -> dict[str, Constant]:
    """A generation's own constants with fitted values and standard deviations in place of the old ones."""
    constants = dict(constants_of(generation))
    for column, free in enumerate(found.frees):
        if free.generation == generation:
            constants[free.name] = _fitted(constants[free.name], free, found, column)
    return constants


def _fitted(constant: Constant, free: Free, found: Fit, column: int) -> Constant:
    values = [rounded(float(value)) for value in free.at(float(found.theta[0, column]))]
    sd = rounded(float(found.sd[column]), SD_DIGITS)
    if not free.keys:
        return replace(constant, value=values[0], sd=sd, fitted_on=PUBLISHED)
    table: dict[str, Any] = dict(constant.value) if isinstance(constant.value, dict) else {}
    spread: dict[str, float] = dict(constant.sd) if isinstance(constant.sd, dict) else {}
    return replace(
        constant,
        value=table | dict(zip(free.keys, values, strict=True)),
        sd=spread | {"+".join(free.keys): sd},
        fitted_on=PUBLISHED,
    )


def write_profiles(found: Fit, folder: Path = PROFILES) -> None:
    """Writes every profile file anew, its heading kept."""
    for generation in ("default", *generations()):
        path = folder / f"{generation}.yaml"
        lines = (PROFILES / path.name).read_text(encoding="utf-8").splitlines()
        heading = [line for line in lines if line.startswith("#")]
        records = {name: _record(constant) for name, constant in with_fitted(found, generation).items()}
        body = yaml.safe_dump(records, sort_keys=False, width=118, allow_unicode=True)
        path.write_text("\n".join([*heading, body]), encoding="utf-8")


def _record(constant: Constant) -> dict[str, Any]:
    return {key: value for key, value in plain(constant).items() if value is not None}


def residuals_table(found: Refit) -> str:
    """The left-out errors of all runs, as CSV."""
    rows = [residual_row(run) for run in residuals_of(found)]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def residuals_of(found: Refit) -> tuple[Residual, ...]:
    """Every run with its errors under constants that have not seen its group, and by those fitted to all."""
    constants = _fitted_profiles(found.fit)
    errors = zip(found.left_out(found.time), found.left_out(found.memory), found.time[:, 0], strict=True)
    runs = [
        residual_of(case, time, memory, case.shares(constants), fitted)
        for case, (time, memory, fitted) in zip(found.cases, errors, strict=True)
    ]
    return with_plan_factors(runs, found.groups)


def _fitted_profiles(found: Fit) -> Callable[[str], Profile]:
    """Profiles by generation with the values that are written."""

    @cache
    def profile(generation: str) -> Profile:
        return assemble(generation, with_fitted(found, "default"), with_fitted(found, generation))

    return profile

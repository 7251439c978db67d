"""The shipped constants, fitted again from the published runs: one command that anyone can rerun, with the same result.

Constants go to ``data/profiles/*.yaml`` with value, prior and standard deviations; the errors of every run under
constants that never saw its team go to ``data/profiles/residuals.csv``, from which bands are made. Where each of
these fits ended goes to ``data/profiles/moves.csv``: whether a fit would still end there is checked without another.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import yaml

from shardplan.base.fields import dataclass
from shardplan.base.records import plain
from shardplan.calibrate.errors import NEEDS_HEAD
from shardplan.calibrate.fit import (
    SD_DIGITS,
    Fit,
    Vector,
    evidence_of,
    fit,
    free_constants,
    profiles_at,
    rounded,
    with_part,
)
from shardplan.calibrate.left_out import neighbourhoods_of, residual_of, with_gap_factors
from shardplan.calibrate.predict import PosedRun, ask_all, cases_of, log_ratios_and_needs
from shardplan.calibrate.runs.rows import QUANTITIES, compared_only, shipped_runs, team_of
from shardplan.inputs.profile import PROFILES, Constant, Profile, assemble, constants_of, generations
from shardplan.inputs.readers.residuals import EVEN, Residual, residual_row

PUBLISHED = "the published runs that ship with the product"
MOVES = PROFILES / "moves.csv"
"""Moves of the constants of every fit: a row for what it left out (the first: nothing), a column for a constant."""
LEFT_OUT = "left_out"

LeftOut = Literal["team", "generation", "neighbourhood"]
RADIUS = 2.5
"""Distance within which runs are of one neighbourhood."""


@dataclass(frozen=True, kw_only=True)
class Refit:
    """Constants fitted to all published runs, and to all but one team (or generation) for every one of them."""

    cases: tuple[PosedRun, ...]
    groups: tuple[str, ...]
    """What every case is left out with."""
    fit: Fit

    @property
    def time(self) -> Vector:
        """ln(predicted / measured) of the step time: cases x folds; NaN where not measured."""
        return self._errors[0]

    @property
    def memory(self) -> Vector:
        """The same of the peak memory."""
        return self._errors[1]

    @property
    def need(self) -> Vector:
        """ln(needed / usable memory), of all cases."""
        return self._errors[2]

    @cached_property
    def _errors(self) -> Vector:
        """The three tables: every case under the constants of every fold, predicted when one of them is asked for."""
        return log_ratios_and_needs(self.cases, profiles_at(self.fit.frees, self.fit.theta))

    @property
    def groups_that_ran(self) -> tuple[str, ...]:
        """Groups of the cases that ran, whose errors ``residuals_of`` gives."""
        return tuple(name for case, name in zip(self.cases, self.groups, strict=True) if case.asked.run.ran)

    def left_out(self, table: Vector) -> Vector:
        """Each case's value in the fold that never saw its team (or generation).

        That of the fit to all where the fit sees none of them.
        """
        folds = {name: index for index, name in enumerate(self.fit.folds)}
        return np.asarray([row[folds.get(name, 0)] for row, name in zip(table, self.groups, strict=True)])


def refit(
    *,
    left_out: LeftOut = "team",
    start: Vector | None = None,
    iterations: int | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> Refit:
    """Fits the shipped constants again, each ``left_out`` once. A minute or two on one core.

    ``start`` and ``iterations``: as of ``fit``.
    """
    asked, _ = ask_all(shipped_runs())
    cases = cases_of(asked)
    if left_out == "neighbourhood":
        unpredicted = [residual_of(case, math.nan, math.nan, EVEN, math.nan) for case in cases]
        groups = neighbourhoods_of(unpredicted, RADIUS)
    else:
        groups = tuple(team_of(one.asked.run.family) if left_out == "team" else one.generation for one in cases)
    seen = [(fitted, name) for case, name in zip(map(_as_fitted, cases), groups, strict=True) for fitted in case]
    frees = free_constants()
    evidence = evidence_of([case for case, _ in seen], frees, [name for _, name in seen])
    folds = (None, *sorted({name for _, name in seen}))
    found = fit(frees, evidence, folds, start=start, iterations=iterations, progress=progress)
    return Refit(cases=cases, groups=groups, fit=found)


def moves_table(found: Fit) -> str:
    """Where every fit ended, as CSV."""
    labels = [free.label for free in found.frees]
    pairs = zip(found.folds, found.theta.tolist(), strict=True)
    return _table([{LEFT_OUT: fold or "", **dict(zip(labels, map(repr, moves), strict=True))} for fold, moves in pairs])


def shipped_moves() -> dict[str, Vector]:
    """Where the fits ended that gave the shipped constants and left-out errors, by what they left out."""
    labels = [free.label for free in free_constants()]
    with MOVES.open(encoding="utf-8", newline="") as file:
        return {row[LEFT_OUT]: np.asarray([float(row[label]) for label in labels]) for row in csv.DictReader(file)}


def _as_fitted(case: PosedRun) -> tuple[PosedRun, ...]:
    """The case with what the fit sees of its measurements; nothing where it sees none."""
    run, compared = case.asked.run, compared_only().get(case.asked.run.family, ())
    time, memory = (None if name in compared else getattr(run, name) for name in QUANTITIES)
    if time is None and memory is None:
        return ()
    return (replace(case, asked=replace(case.asked, run=replace(run, step_time=time, peak_memory_bytes=memory))),)


def with_fitted(found: Fit, generation: str) -> dict[str, Constant]:
    """A generation's own constants with fitted values and standard deviations in place of the old ones."""
    constants = dict(constants_of(generation))
    for column, free in enumerate(found.frees):
        if free.generation == generation:
            before = constants[free.name]
            values = [rounded(float(value)) for value in free.at(float(found.theta[0, column]))]
            sd = rounded(float(found.sd[column]), SD_DIGITS)
            constants[free.name] = replace(
                before,
                value=with_part(before.value, free.stated(values)),
                sd=with_part(before.sd, free.stated_together(sd)),
                fitted_on=PUBLISHED,
            )
    return constants


def write_profiles(found: Fit, folder: Path) -> None:
    """Writes every profile file anew, its heading kept."""
    for generation in ("default", *generations()):
        path = folder / f"{generation}.yaml"
        lines = (PROFILES / path.name).read_text(encoding="utf-8").splitlines()
        heading = [line for line in lines if line.startswith("#")]
        records = {
            name: {key: value for key, value in plain(constant).items() if value is not None}
            for name, constant in with_fitted(found, generation).items()
        }
        body = yaml.safe_dump(records, sort_keys=False, width=118, allow_unicode=True)
        path.write_text("\n".join([*heading, body]), encoding="utf-8")


def residuals_table(found: Refit) -> str:
    """The left-out errors of all runs, as CSV."""
    return _table([residual_row(run) for run in residuals_of(found)])


def needs_table(found: Refit) -> str:
    """What every run needs of the usable memory by constants that never saw its team, as CSV."""
    needs = zip(found.cases, found.left_out(found.need), strict=True)
    return _table([dict(zip(NEEDS_HEAD, (case.asked.run.id, f"{need:.4f}"), strict=True)) for case, need in needs])


def _table(rows: Sequence[Mapping[str, str]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def residuals_of(found: Refit) -> tuple[Residual, ...]:
    """Every run with its errors under constants that have not seen its group, and by those fitted to all."""

    @cache
    def constants(generation: str) -> Profile:
        return assemble(generation, with_fitted(found.fit, "default"), with_fitted(found.fit, generation))

    errors = zip(found.left_out(found.time), found.left_out(found.memory), found.time[:, 0], strict=True)
    rows = [each for each in zip(found.cases, errors, found.groups, strict=True) if each[0].asked.run.ran]
    runs = [residual_of(case, time, memory, case.shares(constants), fitted) for case, (time, memory, fitted), _ in rows]
    return with_gap_factors(runs, [group for _, _, group in rows])

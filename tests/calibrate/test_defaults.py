"""The shipped constants and left-out errors are those that the fit gives now.

A change of a formula, of the runs or of a prior moves them, and nothing else on the accuracy page would show it:
left-out errors, bands and constants are read from files. A whole fit takes three minutes of one core. So where every
fit ended is a file too, and it is checked here that under today's formulas, runs and priors these ends give the shipped
constants and errors, and that a fit would stop there: what a step more would change is below what is written.
SHARDPLAN_REFIT=1 makes the whole fit again, from the priors.
"""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pytest
from tests.calibrate.published import ended_fits

from shardplan.calibrate.defaults import Refit, refit, residuals_table, shipped_moves, with_fitted
from shardplan.calibrate.fit import DIGITS, SD_DIGITS, Fit
from shardplan.inputs.profile import Constant, constants_of, generations
from shardplan.inputs.readers.residuals import RESIDUALS

AGAIN = "run `shardplan calibrate --defaults --write`, then `python docs/generate_accuracy.py`"
UNITS = 2
"""Units of the last digit that is written: what rounding may differ by on another machine. Residuals disturbed by
1e-12, and code for another processor, left every digit as it is."""
LEAST_GAIN = 1e-3
"""Share of an objective that a step may still promise. Residuals have kinks, where the slower of two counts or a
window fills up. A derivative sees one side of them: what it promises is not kept, and a fit stands still before."""
RATIOS = ("log_time_ratio", "log_memory_ratio")
SHARES = ("host_share", "communication_share", "attention_share")
DECIMALS = dict.fromkeys(RATIOS, 4) | dict.fromkeys(SHARES, 3)
"""Decimals of the columns of the left-out errors that come from the fit."""

Numbers = Mapping[str, float]


@pytest.fixture(scope="module")
def found() -> Refit:
    return refit() if os.environ.get("SHARDPLAN_REFIT") else ended_fits()[0]


def _is_close(shipped: float, fitted: float, digits: int) -> bool:
    """Equal but for the last of ``digits`` significant digits."""
    unit = 10.0 ** (math.floor(math.log10(abs(fitted))) + 1 - digits) if fitted else 0.0
    return abs(shipped - fitted) <= UNITS * unit * (1 + 1e-9)


def _by_key(value: object) -> Numbers:
    """Numbers of a constant by key; those of a plain one under no name."""
    table = value if isinstance(value, dict) else {"": value}
    return {str(key): float(one) for key, one in table.items() if isinstance(one, (int, float))}


def _changed(generation: str, shipped: Mapping[str, Constant], fitted: Mapping[str, Constant]) -> Iterator[str]:
    for name, constant in fitted.items():
        for field, digits in (("value", DIGITS), ("sd", SD_DIGITS)):
            old, new = (_by_key(getattr(one, field)) for one in (shipped[name], constant))
            for key in old.keys() | new.keys():
                if key not in old or key not in new or not _is_close(old[key], new[key], digits):
                    yield f"{generation}: {field} of {name} {key}: {old.get(key)} is shipped, {new.get(key)} is fitted"


def _all_changed(fit: Fit) -> list[str]:
    return [
        line
        for generation in ("default", *generations())
        for line in _changed(generation, constants_of(generation), with_fitted(fit, generation))
    ]


def test_the_shipped_constants_are_those_of_the_fit(found: Refit) -> None:
    changed = _all_changed(found.fit)
    assert not changed, f"{AGAIN}; {len(changed)} constants differ, among them {changed[:3]}"


def test_the_fits_have_ended_where_they_are_said_to(found: Refit) -> None:
    """A step more would move no constant by a seventh of its uncertainty, and gain next to nothing.

    Huber's loss and the largest of several times have kinks: a step promised from one side of them is not gained.
    """
    assert [name or "" for name in found.fit.folds] == [*shipped_moves()], AGAIN
    assert np.max(found.fit.next_gain) < LEAST_GAIN, AGAIN
    assert np.max(np.abs(found.fit.next_step[0]) / found.fit.sd) < 1 / 7, AGAIN


def _rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def _differing(shipped: Sequence[Mapping[str, str]], fitted: Sequence[Mapping[str, str]]) -> Iterator[str]:
    for old, new in zip(shipped, fitted, strict=True):
        for column, value in new.items():
            if old[column] != value and not _is_same(old[column], value, DECIMALS.get(column)):
                yield f"{new['id']}: {column} {old[column] or 'empty'} is shipped, {value or 'empty'} is fitted"


def _is_same(old: str, new: str, decimals: int | None) -> bool:
    if decimals is None or not old or not new:
        return False
    return abs(float(old) - float(new)) <= (UNITS + 1e-6) * 10.0**-decimals


def test_the_shipped_left_out_errors_are_those_of_the_fit(found: Refit) -> None:
    shipped, fitted = _rows(RESIDUALS.read_text(encoding="utf-8")), _rows(residuals_table(found))
    assert shipped[0].keys() == fitted[0].keys(), AGAIN
    assert [row["id"] for row in shipped] == [row["id"] for row in fitted], AGAIN
    differing = list(_differing(shipped, fitted))
    assert not differing, f"{AGAIN}; {len(differing)} cells of {RESIDUALS.name} differ, among them {differing[:3]}"


def test_a_cell_or_a_constant_may_differ_in_its_last_digit_only() -> None:
    assert _is_same("0.1003", "0.1001", 4)
    assert not _is_same("0.1004", "0.1001", 4)
    assert not _is_same("", "0.1001", 4)
    assert not _is_same("yes", "no", None)
    assert _is_close(0.7423, 0.7421, DIGITS)
    assert not _is_close(0.7426, 0.7421, DIGITS)
    assert _is_close(110.2, 110.4, DIGITS)
    assert not _is_close(110.2, 111.2, DIGITS)

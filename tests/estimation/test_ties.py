"""The error of a ratio of two step times, counted by hand."""

from __future__ import annotations

import math
from statistics import NormalDist

import pytest

from shardplan.estimation.ties import UNKNOWN_SD, difference_sd, tie_factor
from shardplan.inputs.readers.residuals import Features, Residual, read_residuals

PART = Features(accelerator="h100", generation="hopper", bits=16, moe=False, parameters=8e9, accelerators=64)


def runs(setting: str, *errors: float) -> list[Residual]:
    return [
        Residual(id="run", family="one", features=PART, time=error, memory=None, setting=setting) for error in errors
    ]


def test_the_spread_of_pairs_is_the_quantile_within_one_standard_deviation() -> None:
    """Errors 0, 1 and 3 differ by 1, 2 and 3, whose middles are at a sixth, a half and five sixths."""
    within = math.erf(math.sqrt(0.5))
    assert difference_sd(runs("a", 0.0, 1.0, 3.0)) == pytest.approx(2 + (within - 1 / 2) * 3, rel=1e-4)


def test_a_setting_weighs_as_its_runs() -> None:
    """Two runs that differ by 1, and three by 2, 3 and 5: the first pair weighs two of five, the others one each."""
    within = math.erf(math.sqrt(0.5))
    found = difference_sd([*runs("a", 0.0, 1.0), *runs("b", 0.0, 2.0, 5.0)])
    assert found == pytest.approx(2 + (5 * within - 2.5), rel=1e-4)


def test_without_pairs_the_spread_is_that_of_the_published_runs_rounded() -> None:
    assert difference_sd([]) == UNKNOWN_SD == round(difference_sd(read_residuals()), 1)


def test_a_tie_is_within_the_90th_percentile_of_the_error() -> None:
    expected = NormalDist(sigma=difference_sd(read_residuals())).inv_cdf(0.9)
    assert math.log(tie_factor()) == pytest.approx(expected, rel=1e-4)

"""What a perfect band would cover of families: limits in closed form, and spreads of made-up families."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest

from shardplan.calibrate.coverage import INSIDE, Spread, attainable, spread_of
from shardplan.estimation.band import COMPUTING, errors_of
from shardplan.inputs.readers.residuals import Features, Residual

H100 = Features(accelerator="h100", generation="hopper", bits=16, moe=False, parameters=8e9, accelerators=64)


def test_independent_runs_are_covered_as_often_as_the_band_says() -> None:
    inside = attainable(Spread(between=0.0, within=0.3, of_within=0.0), (20, 200))
    assert inside.mean() == pytest.approx(INSIDE, abs=0.005)
    binomial = np.sqrt(INSIDE * (1 - INSIDE) / np.array([20, 200]))
    assert inside.std(axis=0) == pytest.approx(binomial, rel=0.05)


def test_families_that_share_all_of_their_error_are_inside_or_outside_as_a_whole() -> None:
    inside = attainable(Spread(between=1.0, within=1e-6, of_within=0.0), (50, 50))
    assert np.mean((inside == 0) | (inside == 1)) > 0.99
    assert inside.mean() == pytest.approx(INSIDE, abs=0.02)


def test_a_shared_bias_leaves_the_mean_and_spreads_the_shares() -> None:
    """Half of the variance shared: the share of a family of many runs follows from its bias."""
    inside = attainable(Spread(between=1.0, within=1.0, of_within=0.0), (400,) * 10)
    assert inside.mean() == pytest.approx(INSIDE, abs=0.01)
    end, normal = 1.2816 * math.sqrt(2), NormalDist()
    median_bias = normal.inv_cdf(0.75)
    expected = normal.cdf(end - median_bias) - normal.cdf(-end - median_bias)
    assert np.median(inside) == pytest.approx(expected, abs=0.01)


def test_a_known_spread_helps_families_that_differ_in_it() -> None:
    spread = Spread(between=0.2, within=0.5, of_within=0.5)
    unknown, known = (attainable(spread, (100,) * 10, is_spread_known=is_known) for is_known in (False, True))
    near = [np.mean((inside >= 0.7) & (inside <= 0.9)) for inside in (unknown, known)]
    assert near[1] > near[0] + 0.2


def test_spreads_are_those_of_large_families_in_units_of_bands() -> None:
    random = np.random.default_rng(1)
    runs = [
        Residual(id=f"{family}", family=family, features=H100, time=COMPUTING * float(error), memory=None)
        for family, centre, deviation, size in (("a", 0.3, 0.5, 4000), ("b", -0.3, 2.0, 4000), ("few", 9.0, 9.0, 5))
        for error in centre + deviation * random.standard_normal(size)
    ]
    spread, sizes = spread_of(errors_of(runs, "time"), smallest=20)
    assert sizes == (4000, 4000)
    assert spread.between == pytest.approx(0.3, abs=0.04)
    assert spread.within == pytest.approx(1.0, rel=0.05)
    assert spread.of_within == pytest.approx(math.log(2), rel=0.05)

"""Bands from the errors of comparable runs: weights, quantiles by hand, and what makes a band wider."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from shardplan.estimation import band as bands
from shardplan.estimation.band import Features, Residual, band_among, read_residuals
from shardplan.estimation.breakdown import Shares
from shardplan.estimation.ties import NORMAL_P90, UNKNOWN_SD, difference_sd, tie_factor

H100 = Features(accelerator="h100", generation="hopper", bits=16, moe=False, parameters=8e9, accelerators=64)


def residual(time: float, *, family: str = "one", features: Features = H100, setting: str = "") -> Residual:
    return Residual(id="run", family=family, features=features, time=time, memory=None, setting=setting)


def test_a_weighted_quantile_is_interpolated_between_the_middles_of_the_weights() -> None:
    values, weights = np.array([3.0, 1.0, 2.0]), np.array([1.0, 2.0, 1.0])
    assert bands._quantile(values, weights, 0.25) == 1.0  # 1 weighs 2: its middle is at 1 of 4
    assert bands._quantile(values, weights, 0.5) == pytest.approx(1 + 1 / 1.5)  # 2: middle at 2.5
    assert bands._quantile(values, weights, 0.0) == 1.0
    assert bands._quantile(values, weights, 1.0) == 3.0


def test_a_band_of_equal_runs_spans_their_middle_four_fifths() -> None:
    errors = np.linspace(-0.5, 0.5, 101)
    found = band_among(H100, "H100", "time", [residual(float(error), family=str(error)) for error in errors])
    assert math.log(found.low) == pytest.approx(-0.4, abs=0.01)
    assert math.log(found.high) == pytest.approx(0.4, abs=0.01)
    assert found.note is None


def test_a_prediction_that_was_too_slow_everywhere_lowers_the_band_and_never_leaves_it() -> None:
    found = band_among(H100, "H100", "time", [residual(0.2, family=str(index)) for index in range(20)])
    assert found.low == pytest.approx(math.exp(-0.2))
    assert found.high == 1.0


@pytest.mark.parametrize(
    "change",
    [
        {"accelerator": "h200"},
        {"generation": "ampere"},
        {"bits": 8},
        {"moe": True},
        {"parameters": 8e11},
        {"accelerators": 8192.0},
    ],
)
def test_what_differs_weighs_less(change: dict[str, Any]) -> None:
    other = replace(H100, **change)
    alike, differs = bands._weights([residual(0, family="a"), residual(0, family="b", features=other)], H100)
    assert differs < alike


def test_a_family_weighs_as_the_root_of_its_runs() -> None:
    many = [residual(0.0, family="many") for _ in range(36)]
    weights = bands._weights([*many, residual(0.3, family="single")], H100)
    assert weights[:-1].sum() == pytest.approx(6 * weights[-1])


def test_where_little_is_alike_errors_of_all_runs_are_mixed_in() -> None:
    far = replace(H100, accelerator="tpu", generation="tpu", parameters=1e12)
    weights = bands._weights([residual(0, family=str(index), features=far) for index in range(4)], H100)
    assert weights == pytest.approx(np.full(4, bands.FEW_RUNS / 4), rel=0.05)


def _width(found: bands.Band) -> float:
    return math.log(found.high / found.low)


def spread() -> list[Residual]:
    return [residual(0.1 * sign, family=f"{sign}{index}") for index in range(10) for sign in (-1, 1)]


def test_a_generation_that_no_run_covers_has_a_wider_band_that_says_so() -> None:
    new = replace(H100, accelerator="mi300x", generation="cdna3")
    known, unknown = band_among(H100, "H100", "time", spread()), band_among(new, "MI300X", "time", spread())
    assert _width(unknown) == pytest.approx(bands.UNMEASURED * _width(known))
    assert unknown.note is not None
    assert "MI300X" in unknown.note


def test_an_accelerator_that_no_run_covers_has_a_wider_band_of_time_within_its_generation() -> None:
    runs = [replace(run, memory=run.time) for run in spread()]
    new = replace(H100, accelerator="h20")
    known, found = band_among(H100, "H100", "time", runs), band_among(new, "H20", "time", runs)
    assert _width(found) == pytest.approx(bands.UNMEASURED_PART * _width(known))
    assert found.note == "no measured run covers H20, only others of its generation: the band is wider"
    assert band_among(new, "H20", "memory", runs).note is None
    larger = band_among(replace(new, accelerators=128.0), "H20", "time", runs)
    assert _width(larger) == pytest.approx(bands.UNMEASURED_PART * (1 + bands.BEYOND) * _width(known))
    assert larger.note is not None
    assert "64 accelerators" in larger.note


def test_every_doubling_beyond_the_largest_run_widens_the_band() -> None:
    sizes = (64, 128, 1024, 65536)
    found = [band_among(replace(H100, accelerators=float(size)), "H100", "time", spread()) for size in sizes]
    assert [_width(one) for one in found] == pytest.approx(
        [_width(found[0]) * (1 + bands.BEYOND * math.log2(size / 64)) for size in sizes]
    )
    assert found[0].note is None
    assert all(one.note is not None and "64 accelerators" in one.note for one in found[1:])
    assert all(_width(a) < _width(b) for a, b in pairwise(found))


@pytest.mark.parametrize(
    "shares",
    [
        Shares(host=0.5),
        Shares(communication=0.3),
        Shares(attention=0.8),
        Shares(host=0.4, communication=0.2, attention=0.1),
    ],
)
def test_steps_that_wait_have_wider_bands_of_the_same_errors(shares: Shares) -> None:
    """Root of the sum of squares: 0.12 of a whole step, 0.4 of the host, 0.5 of the network, 0.18 of attention."""
    found, waiting = (band_among(replace(H100, shares=s), "H100", "time", spread()) for s in (Shares(), shares))
    expected = math.hypot(1, 0.5 / 0.12 * shares.communication, 0.4 / 0.12 * shares.host, 1.5 * shares.attention)
    assert _width(waiting) == pytest.approx(expected * _width(found))


def test_errors_of_steps_that_wait_say_less_of_one_that_computes() -> None:
    waits = replace(H100, shares=Shares(communication=0.5))
    runs = [replace(run, features=waits) for run in spread()]
    assert _width(band_among(waits, "H100", "time", runs)) == pytest.approx(0.2)
    assert _width(band_among(H100, "H100", "time", runs)) == pytest.approx(0.2 / math.hypot(1, 0.5 / 0.12 * 0.5))


def test_memory_does_not_wait() -> None:
    runs = [replace(run, memory=run.time) for run in spread()]
    waits = replace(H100, shares=Shares(host=0.9))
    assert band_among(waits, "H100", "memory", runs) == band_among(H100, "H100", "memory", runs)


def test_memories_that_contradict_themselves_are_no_evidence() -> None:
    run = replace(residual(0.1, family="internevo"), memory=-0.5)
    assert run.has("time")
    assert not run.has("memory")
    assert replace(run, family="bloom").has("memory")


def test_the_shipped_errors_make_bands_for_everything() -> None:
    runs = read_residuals()
    assert len(runs) > 800
    for run in runs[::97]:
        for quantity in ("time", "memory"):
            found = band_among(run.features, "part", quantity, runs)
            assert 0.2 < found.low <= 1 <= found.high < 5


def test_the_error_of_a_ratio_is_taken_within_settings() -> None:
    shared: Callable[[float, str], Residual] = lambda error, name: residual(error, setting=name)  # noqa: E731
    runs = [shared(1.0, "a"), shared(1.1, "a"), shared(-1.0, "b"), shared(-1.1, "b"), residual(9.0), shared(5, "c")]
    assert difference_sd(runs) == pytest.approx(0.1)
    assert difference_sd([]) == UNKNOWN_SD


def test_families_and_accelerators_are_not_compared() -> None:
    a = residual(0.0, setting="a")
    others = [replace(a, family="two", time=1.0), replace(a, features=replace(H100, accelerator="h200"), time=1.0)]
    assert difference_sd([a, *others]) == UNKNOWN_SD


def test_ties_are_nearer_than_the_error_of_the_order() -> None:
    assert tie_factor() == pytest.approx(math.exp(NORMAL_P90 * difference_sd(read_residuals())))
    assert 1.01 < tie_factor() < 1.3

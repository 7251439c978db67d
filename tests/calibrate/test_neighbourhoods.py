"""Errors by distance from the runs that a prediction had seen."""

from __future__ import annotations

import math
from typing import Any

import pytest
from neighbourhoods import by_distance, by_pairs, left_out_runs

from shardplan.calibrate.left_out import UNSEEN, distances_of, neighbourhoods_of, with_gap_factors
from shardplan.estimation.evidence import SPREADS, distance
from shardplan.inputs.plan import Plan
from shardplan.inputs.readers.residuals import Features, Residual, read_residuals

H100 = Features(accelerator="h100", generation="hopper", bits=16, moe=False, parameters=8e9, accelerators=64)


def run(name: str, family: str, error: float = 0.1, **plan: Any) -> Residual:
    features = H100._replace(plan=Plan(**plan, sequence_parallel=False))
    return Residual(id=name, family=family, features=features, time=error, memory=None)


RUNS = (run("a", "one"), run("b", "one", tp=2), run("c", "two", tp=8), run("d", "three", tp=8, cp=2))


def test_distances_are_from_the_nearest_run_of_another_group() -> None:
    assert distances_of(RUNS, ["one", "one", "two", "three"]) == pytest.approx((3, 2, 1.5, 1.5))
    assert distances_of(RUNS, list("abcd")) == pytest.approx((1, 1, 1.5, 1.5))
    assert distances_of(RUNS, ["all"] * 4) == (math.inf,) * 4


def test_runs_that_nothing_has_seen_are_no_evidence_for_others() -> None:
    assert distances_of(RUNS, ["a", UNSEEN, UNSEEN, "d"]) == pytest.approx(
        (math.sqrt(9 + 2.25), 1, 1.5, math.sqrt(11.25))
    )


def test_neighbourhoods_gather_what_is_near() -> None:
    assert neighbourhoods_of(RUNS, 0.9) == ("near a", "near b", "near c", "near d")
    assert neighbourhoods_of(RUNS, 1.6) == ("near a", "near a", "near c", "near c")
    assert len(set(neighbourhoods_of(RUNS, 9))) == 1


def test_a_plan_that_others_had_was_expected_to_err_less() -> None:
    known = [run(name, name, tp=8) for name in "xyz"]
    near, far = with_gap_factors([run("a", "one", tp=8), run("b", "two", tp=8, cp=16)], ["one", "two"], others=known)
    assert (near.gap_factor, far.gap_factor) == (SPREADS[0], SPREADS[-1])


def test_the_shipped_factors_are_those_of_the_runs_of_other_teams() -> None:
    runs = read_residuals()
    found = with_gap_factors(runs, [one.team for one in runs])
    assert [one.gap_factor for one in found] == pytest.approx([one.gap_factor for one in runs], abs=2e-3)


def test_sizes_and_shares_of_each_distance() -> None:
    """Errors of 0.1 among errors of 0.1: none is beyond what the others are."""
    names = ["one", "one", "two", "three"]
    near, far = by_distance(left_out_runs(RUNS, names), edges=(0.0, 2.0, 9.0))
    assert (near.n, near.num_teams, far.n, far.num_teams) == (2, 2, 2, 1)
    assert near.size == pytest.approx(0.1 / 0.12)
    assert near.inside == far.inside == 1
    assert far.width > near.width > 1


def test_what_no_two_respects_had_in_common_is_told_apart() -> None:
    runs = read_residuals()
    usual, apart = by_pairs(left_out_runs(runs, [one.team for one in runs]))
    assert usual.n + apart.n == sum(one.time is not None for one in runs)
    assert apart.n > 40
    assert apart.size / usual.size == pytest.approx(1.6, abs=0.05)


def test_an_error_outside_its_band_is_counted() -> None:
    odd = RUNS[3]._replace(time=-2.0)
    found = left_out_runs((*RUNS[:3], odd), ["one", "one", "two", "three"])
    assert [one.is_inside for one in found] == [True, True, True, False]
    assert distance(RUNS[0].features, RUNS[1].features) == 1

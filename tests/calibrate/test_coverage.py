"""How often bands hold, by hand, and for the shipped errors."""

from __future__ import annotations

import math

import pytest
from tests.calibrate.published import ended_fits

from shardplan.calibrate.coverage import Covered, coverage_by, coverage_of, covered_runs
from shardplan.calibrate.errors import inside_of
from shardplan.calibrate.fit import profiles_at
from shardplan.calibrate.predict import log_ratios
from shardplan.estimation.evidence import SPREADS
from shardplan.estimation.gaps import UNMEASURED
from shardplan.inputs.readers.residuals import Features, Residual, read_residuals

H100 = Features(accelerator="h100", generation="hopper", bits=16, moe=False, parameters=8e9, accelerators=64)


def run(time: float, family: str) -> Residual:
    return Residual(id=f"{family} {time}", family=family, features=H100, time=time, memory=None, gap_factor=SPREADS[0])


def test_shares_and_width() -> None:
    runs = [
        Covered(id=str(measured), team="one", family="one", generation="hopper", measured=measured, low=0.9, high=1.2)
        for measured in (0.8, 0.9, 1.0, 1.3)
    ]
    found = coverage_of(runs)
    assert found is not None
    assert (found.n, found.inside, found.below, found.above) == (4, 0.5, 0.25, 0.25)
    assert found.width == pytest.approx(1.2 / 0.9)
    assert coverage_of([]) is None
    assert coverage_by(runs, "team", smallest=5) == {}
    assert coverage_by(runs, "team", smallest=4) == {"one": found}


def test_a_team_is_held_against_the_others_alone() -> None:
    runs = [run(0.5, "far"), run(0.5, "far"), run(0.1, "a"), run(0.0, "c"), run(-0.1, "b"), run(0.0, "d")]
    far, *_, b, _ = covered_runs(runs)
    assert not far.is_inside
    assert far.measured == pytest.approx(math.exp(-0.5))
    assert far.low >= math.exp(-0.1) - 1e-9
    assert b.high < math.exp(0.1)
    assert covered_runs([run(0.1, "alone"), run(0.2, "alone")]) == ()


def test_a_generation_can_be_kept_from_its_own_band() -> None:
    runs = [run(0.1, "a"), run(-0.1, "b"), run(0.3, "c")._replace(features=H100._replace(generation="ampere"))]
    first, second, third = covered_runs(runs, unmeasured=True)
    assert first.low == second.low == pytest.approx(math.exp(-0.3 * UNMEASURED))
    assert third.low <= math.exp(-0.1)
    assert set(coverage_by([first, second, third], "generation", smallest=1)) == {"hopper", "ampere"}
    assert covered_runs(runs[:2], unmeasured=True) == ()


def test_bands_of_a_new_generation_hold_under_constants_that_never_saw_it() -> None:
    """The factor for a generation that nobody measured: each measured one, kept from the fit and from the errors.

    One step from the constants of all runs.
    """
    _, found = ended_fits()
    moved = profiles_at(found.fit.frees, found.fit.theta + found.fit.next_step)
    time, _ = log_ratios(found.cases, moved)
    ratios = {case.asked.run.id: float(each) for case, each in zip(found.cases, found.left_out(time), strict=True)}
    runs = covered_runs(read_residuals(), unmeasured=True, ratios=ratios)
    everything = coverage_of(run for run in runs if run.family != "vtrain-single")
    assert everything is not None
    assert 0.8 <= everything.inside <= 0.95
    generations = coverage_by(runs, "generation", smallest=20)
    assert len(generations) == 6
    assert all(one.inside >= 0.7 for one in generations.values()), generations  # 14 of the 20 runs of Ascend


def test_four_of_five_left_out_runs_lie_in_their_band() -> None:
    runs = [one for one in covered_runs(read_residuals()) if one.family != "vtrain-single"]
    found = coverage_of(runs)
    assert found is not None
    assert 0.7 <= found.inside <= 0.9
    teams = coverage_by(runs, "team", smallest=15)
    assert len(teams) >= 10
    between = [name for name, one in teams.items() if 0.6 <= one.inside <= 0.95]
    assert len(between) >= 0.6 * len(teams), teams


def test_families_of_one_team_are_left_out_together() -> None:
    """A team's other family would tell its shared part."""
    alike = [run(0.4, "one")._replace(team="t"), run(0.41, "two")._replace(team="t")]
    others = [run(0.05 * (-1) ** place, f"f{place}") for place in range(8)]
    for covered in covered_runs([*alike, *others])[:2]:
        assert not covered.is_inside


def test_wilson_intervals() -> None:
    """Newcombe 1998 (Statistics in Medicine 17, 857), table I: 81 of 263, 15 of 148 and 0 of 20."""
    for count, n, low, high in ((81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611)):
        found = inside_of([True] * count + [False] * (n - count))
        assert found is not None
        assert [found.low, found.high] == pytest.approx([low, high], abs=1e-4)
    assert inside_of([]) is None

"""Shares of a step that are less certain than computing."""

from __future__ import annotations

import pytest
from hypothesis import given
from tests.strategies import Case, cases

from shardplan.calibration.predict import ask_all, cases_of, predict
from shardplan.calibration.runs.rows import shipped_runs
from shardplan.errors import PlanError
from shardplan.estimation.band import band_of
from shardplan.estimation.breakdown import shares_of
from shardplan.estimation.estimate import estimate_plan
from shardplan.inputs.readers.residuals import Shares


def test_shares_are_those_of_the_split() -> None:
    split = {"matmul": 4.5, "attention": 1.0, "host": 2.0, "tp_communication": 1.0, "dp_communication": 1.5}
    assert shares_of(split) == Shares(host=0.2, communication=0.25, attention=0.1)


@given(cases())
def test_an_estimate_has_the_band_of_its_shares(case: Case) -> None:
    try:
        found = estimate_plan(case.question, case.plan)
    except PlanError:
        return
    shares = shares_of(found.breakdown)
    assert 0 <= shares.host <= 1
    assert 0 <= shares.communication <= 1
    assert 0 <= shares.attention <= 1
    band = band_of(case.question, shares=shares)
    assert found.step_time_p10 == pytest.approx(found.step_time * band.low)
    assert found.step_time_p90 == pytest.approx(found.step_time * band.high)


def test_measured_runs_have_the_shares_of_their_estimate() -> None:
    asked, _ = ask_all(shipped_runs()[::60])
    for case, prediction in zip(cases_of(asked), predict(asked), strict=True):
        found = estimate_plan(case.asked.question, case.asked.plan)
        shares = shares_of(found.breakdown)
        assert case.shares({}).host == pytest.approx(shares.host)
        assert case.shares({}).communication == pytest.approx(shares.communication)
        assert prediction.step_time_p90 == pytest.approx(found.step_time_p90)

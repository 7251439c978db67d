"""Published runs with their errors: the figures are those that the accuracy page states."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from shardplan.base.errors import UnknownNameError
from shardplan.calibrate.runs.rows import shipped_runs
from shardplan.inputs.readers.residuals import read_residuals
from shardplan.reports.accuracy.known_runs import (
    account_of,
    choices,
    chosen_runs,
    errors_by_facet,
    furthest_off,
    known_runs,
)


def test_every_published_run_is_there_once_and_has_something_to_compare() -> None:
    runs = known_runs()
    assert [one.run.id for one in runs] == [run.id for run in shipped_runs()]
    assert all(one.fits is not None for one in runs)


def test_predicted_over_measured_is_the_left_out_error_of_the_run() -> None:
    errors = {one.id: one.time for one in read_residuals() if one.time is not None}
    for one in chosen_runs("step_time", {}):
        predicted, measured = one.predicted("step_time"), one.measured("step_time")
        assert predicted is not None
        assert measured is not None
        assert math.log(predicted / measured) == pytest.approx(errors[one.run.id])


def test_filters_divide_the_runs() -> None:
    everything = len(chosen_runs("fits", {}))
    for facet in ("family", "accelerator", "kind", "framework", "tier"):
        assert sum(count for _, count in choices(facet)) == everything
        assert sum(len(chosen_runs("fits", {facet: value})) for value, _ in choices(facet)) == everything


def test_groups_add_up_and_all_is_last() -> None:
    runs = chosen_runs("step_time", {})
    *groups, whole = errors_by_facet(runs, "step_time", "accelerator")
    assert sum(group.errors.n for group in groups) == whole.errors.n == len(runs)
    assert whole.name == "all"


def test_the_worst_verdicts_are_wrong_ones() -> None:
    found = furthest_off(chosen_runs("fits", {}), "fits")
    wrong = sum(not one.is_right for one in found)
    assert not any(one.is_right for one in found[:wrong])
    assert all(one.is_right for one in found[wrong:])


def test_a_run_that_ended_out_of_memory_is_right_where_it_needs_more() -> None:
    ended = next(one for one in known_runs() if not one.run.ran)
    assert replace(ended, fits=0.1).is_right
    assert not replace(ended, fits=-0.1).is_right


def test_an_account_predicts_the_run_and_gives_its_reasons() -> None:
    account = account_of("ds-azure-gpt-2t")
    assert account.prediction.asked.run.id == "ds-azure-gpt-2t"
    assert account.estimate.step_time == pytest.approx(account.prediction.step_time)
    assert any(subject == "step_time" for subject, _ in account.causes)


def test_an_unknown_run_is_refused() -> None:
    with pytest.raises(UnknownNameError):
        account_of("no-such-run")

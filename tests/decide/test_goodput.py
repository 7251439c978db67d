"""Goodput: limits, Young's formula as a limit, closed accounts, and published runs."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardplan.decide.goodput import (
    DAY,
    LEAST_INTERVAL,
    Recovery,
    accounts,
    best_interval,
    failures_per_second,
    recovery_of,
    spares_needed,
)
from shardplan.decide.operations import Operations
from shardplan.estimation.question import Question
from shardplan.inputs.job import Job
from shardplan.inputs.readers.catalog import load_cluster, load_model

HOUR = 3600.0
USUAL = Operations()
rates = st.floats(1e-9, 1e-3)
writes = st.floats(0.01, 1000)
waits = st.floats(0, 3000)


def recovery(rate: float, *, write: float = 2.0, detection: float = 420.0, restart: float = 487.0) -> Recovery:
    return Recovery(
        failures_per_second=rate,
        detection_time=detection,
        restart_time=restart,
        write_time=write,
        interval=best_interval(write, rate),
    )


def test_without_failures_only_the_start_is_lost() -> None:
    found = accounts(1e6, recovery(0.0), 500.0)
    assert found is not None
    assert found.goodput == pytest.approx(1 - 500 / (1e6 + 500))
    assert (found.recomputed, found.checkpoint, found.detection, found.restart) == (0, 0, 0, 0)


@given(rates, writes, waits, waits, st.floats(1e3, 1e8))
def test_the_accounts_close_on_the_cycle_of_renewal_reward(
    rate: float, write: float, detection: float, restart: float, productive: float
) -> None:
    case = recovery(rate, write=write, detection=detection, restart=restart)
    found = accounts(productive, case, 500.0)
    assert found is not None
    interval = min(case.interval, productive)
    cycle = math.expm1(rate * (interval + write)) * math.exp(rate * restart) * (1 / rate + detection)
    assert found.wall_time == pytest.approx(productive / interval * cycle + 500.0, rel=1e-9)
    assert found.recomputed >= 0
    assert 0 < found.goodput < 1


@given(rates, writes)
def test_the_best_interval_has_no_better_neighbour(rate: float, write: float) -> None:
    def per_second(interval: float) -> float:
        return math.expm1(rate * (interval + write)) / interval

    best = best_interval(write, rate)
    assert per_second(best) <= per_second(best * 1.02) * (1 + 1e-12)
    assert per_second(best) <= per_second(best * 0.98) * (1 + 1e-12)


def young_interval(write_time: float, rate: float) -> float:
    """Young's interval between checkpoints: J. Young, Communications of the ACM 17(9), 1974. [s]"""
    return math.sqrt(2 * write_time / rate)


def test_youngs_interval_is_the_limit_of_the_exact_one() -> None:
    for write in (1.0, 1e-2, 1e-4):
        ratio = best_interval(write, 1e-4) / young_interval(write, 1e-4)
        assert 0 < 1 - ratio < math.sqrt(1e-4 * write)
    assert young_interval(3.2, 1 / 11124) == pytest.approx(267, abs=1)  # by hand: sqrt(2 x 3.2 x 11124)


def test_a_failure_loses_half_an_interval_and_one_wait_where_failures_are_rare() -> None:
    case = recovery(1e-8)
    found = accounts(1e7, case, 0.0)
    assert found is not None
    failures = 1e-8 * 1e7
    assert found.detection == pytest.approx(failures * 420, rel=0.01)
    assert found.restart == pytest.approx(failures * 487, rel=0.01)
    assert found.recomputed == pytest.approx(failures * case.interval / 2, rel=0.01)


def test_a_run_that_fails_before_it_has_started_never_ends() -> None:
    assert accounts(1e6, recovery(1.0, restart=500.0), 500.0) is None


def test_the_runs_that_the_rate_comes_from_come_out() -> None:
    assert failures_per_second(16384, USUAL) * 54 * DAY == pytest.approx(419)  # arXiv 2407.21783, table 5
    assert failures_per_second(1024, USUAL) * 33 * DAY == pytest.approx(90)  # OPT-175B


def test_llama_3_is_more_than_90_percent_effective() -> None:
    write = 14 * 405.85e9 / (16384 * 0.15e9)
    found = accounts(48.6 * DAY, recovery(failures_per_second(16384, USUAL), write=write, restart=485 + write), 485.0)
    assert found is not None
    assert 0.90 < found.goodput < 0.91  # arXiv 2407.21783, section 3.3.4


@pytest.mark.parametrize(
    ("num_accelerators", "hours", "factor"),
    [(8, 1144.8, 1.05), (1024, 7.9, 1.15), (16384, 1.8, 1.75), (131072, 0.23, 2.4)],
)
def test_jobs_of_meta_rsc_fail_as_predicted_within_the_stated_factor(
    num_accelerators: int, hours: float, factor: float
) -> None:
    """Mean time to failure, arXiv 2410.21680; the last two are projections of its authors."""
    predicted = 1 / failures_per_second(num_accelerators, USUAL) / HOUR
    assert 1 / factor < predicted / hours < factor


def test_megascale_recovers_as_published() -> None:
    """12,288 accelerators: detected within 10 minutes, caught up within 15, more than 90 % (arXiv 2402.15627)."""
    rate = failures_per_second(12288, USUAL)
    case = recovery(rate, write=14 * 175e9 / (12288 * 0.15e9))
    found = accounts(30 * DAY, case, 485.0)
    assert found is not None
    assert USUAL.value("detection_time") < 600
    assert case.restart_time + case.interval / 2 < 900
    assert found.goodput > 0.90


def test_the_projections_of_meta_come_out_at_the_rate_that_they_assume() -> None:
    """RSC-1's 6.5 failures per 1,000 nodes of 8 and day: 1.8 h, 0.23 h (arXiv 2410.21680), 44 % (arXiv 2602.00277)."""
    own = Operations(failure_rate=6.5 / 8)
    for number, hours in ((16384, 1.8), (131072, 0.23), (100_000, 0.3)):
        assert 1 / failures_per_second(number, own) / HOUR == pytest.approx(hours, rel=0.03)
    rate, write = failures_per_second(100_000, own), 14 * 405.85e9 / (100_000 * 0.15e9)
    found = accounts(30 * DAY, recovery(rate, write=write, restart=485 + write), 485.0)
    assert found is not None
    assert found.goodput == pytest.approx(0.44, abs=0.02)


def test_rates_beyond_the_largest_published_run_are_said_to_be_extrapolated() -> None:
    assert USUAL.extrapolation(16384) is None
    assert "16,384" in (USUAL.extrapolation(32768) or "")
    assert Operations(failure_rate=0.8).extrapolation(100_000) is None


def test_one_rate_for_all_sizes_is_in_proportion() -> None:
    own = Operations(failure_rate=2.0)
    assert failures_per_second(500, own) == pytest.approx(1 / DAY)
    assert failures_per_second(1e6, Operations(failure_rate=0)) == 0


def test_spares_are_whole_nodes_and_grow_with_failures() -> None:
    assert spares_needed(0.0, 8, USUAL) == 0
    few, many = (spares_needed(1e-5 * factor, 8, USUAL) for factor in (1, 100))
    assert few % 8 == many % 8 == 0
    assert 0 < few < many
    mean = 0.78 * 0.01 * DAY
    assert spares_needed(0.01, 8, USUAL) == pytest.approx(8 * (mean + 2.33 * math.sqrt(mean)), rel=0.02)


@pytest.mark.parametrize("number", [64, 1024, 131_072])
def test_checkpoints_are_minutes_apart_unless_an_interval_is_given(number: int) -> None:
    """On 64 accelerators the best interval is most of an hour; on a thousand and more it is below five minutes."""
    job = Job(sequence_length=8192, global_batch_size=number)
    model, cluster = load_model("llama-3.1-8b"), load_cluster("dgx-h100")
    question = Question(model=model, cluster=cluster, num_accelerators=number, job=job)
    usual = recovery_of(question, USUAL, 0.0)
    best = best_interval(usual.write_time, usual.failures_per_second)
    assert (best < LEAST_INTERVAL) == (number >= 1024)
    assert usual.interval == max(best, LEAST_INTERVAL)
    assert recovery_of(question, Operations(checkpoint_interval=60.0), 0.0).interval == 60

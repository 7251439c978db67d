"""Timings of a busy machine, and what no formula describes, give no constants."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.calibrate.microbench.machine import HOPPER, FormulaBackend

from shardplan.calibrate.microbench.fits import LEAST_GROWTH, growth
from shardplan.calibrate.microbench.measured import busy, outcome_of, profile_from, profile_text
from shardplan.calibrate.microbench.records import (
    Case,
    Exchange,
    Host,
    MemoryPass,
    Product,
    Ranks,
    Sizes,
    TimedAttention,
    Timing,
)
from shardplan.calibrate.microbench.run import measure_on
from shardplan.calibrate.microbench.torch_backend import Effort, measure, measure_together


@dataclass(kw_only=True)
class Disturbed(FormulaBackend):
    """A machine whose processes get their turn every twelve milliseconds, as two busy cores give it."""

    turn: float = 0.012
    scatter: float = 0.1

    def time(self, case: Case) -> Timing:
        exact = super().time(case)
        if isinstance(case, Host):
            return exact
        return Timing(time=math.ceil(exact.time / self.turn) * self.turn, spread=self.scatter, num_series=5)


@pytest.mark.parametrize("ranks", [Ranks(), Ranks(total=16, per_node=8)])
def test_times_that_are_those_of_the_scheduler_give_no_constant(ranks: Ranks) -> None:
    measurements = measure_on(Disturbed(ranks=ranks, formats=("bf16",)), sizes="small")
    outcome = outcome_of(measurements, HOPPER)
    assert outcome.constants == {}
    kept = {one.label: one for one in outcome.kept}
    assert kept["matmul_launch_time"].value == HOPPER.matmul_launch_time
    assert "hardly grow with the work" in kept["matmul_launch_time"].reason
    assert any(warning.startswith("matrix products: times hardly grow") for warning in outcome.warnings)


def test_scattered_timings_are_named_and_the_worst_first() -> None:
    calm = measure_on(FormulaBackend(formats=("bf16",)), sizes="small")
    assert outcome_of(calm, HOPPER).warnings == ()
    assert busy(calm) is None
    loud = [replace(one, timing=replace(one.timing, spread=3.0)) for one in calm.samples[:1]]
    some = replace(calm, samples=(*loud, *calm.samples[1:]))
    (warning,) = outcome_of(some, HOPPER).warnings
    assert warning.startswith(f"the machine was busy: 1 of {len(calm.samples)} cases vary by more than 30% between")
    assert "copy of 8192 bytes by 300%" in warning
    assert "busy" in profile_text(profile_from(some, HOPPER), some)
    most = replace(calm, samples=tuple(replace(one, timing=replace(one.timing, spread=1.4)) for one in calm.samples))
    assert "memory_efficiency" not in outcome_of(most, HOPPER).constants


def test_what_the_formulas_do_not_describe_is_kept_with_the_reason() -> None:
    machine = FormulaBackend(noise=(1.0, 9.0, 0.1, 4.0, 0.3, 20.0, 0.7), formats=("bf16",))
    outcome = outcome_of(measure_on(machine, sizes="small"), HOPPER)
    kept = {one.label: one for one in outcome.kept}
    assert "the formulas miss the timings by" in kept["matmul_efficiency[bf16]"].reason
    assert kept["matmul_efficiency[bf16]"].value == HOPPER.matmul_efficiency["bf16"]
    assert not {one.name for one in outcome.kept} & set(outcome.constants)


@pytest.mark.parametrize("sizes", ["small", "full"])
def test_times_grow_with_work(sizes: Sizes) -> None:
    measurements = measure_on(FormulaBackend(ranks=Ranks(total=16, per_node=8)), sizes=sizes)
    for kind in (MemoryPass, Product, TimedAttention):
        assert growth(measurements.of(kind)) > LEAST_GROWTH  # type: ignore[operator]  # a number: the work differs
    assert growth(measurements.of(Exchange)) > LEAST_GROWTH  # type: ignore[operator]


def test_what_a_profile_cannot_state_is_kept(tmp_path: Path) -> None:
    """A part described with half its peak would reach more than all of it."""
    path = tmp_path / "half.yaml"
    peaks = "{bf16: 400 TFLOP/s, fp8: 1979 TFLOP/s}"
    path.write_text(
        f"name: half\ngeneration: hopper\nmemory: 85 GB\nmemory_bandwidth: 3350 GB/s\npeak_flops: {peaks}\n"
    )
    outcome = outcome_of(measure_on(FormulaBackend(), sizes="full", accelerator=str(path)), HOPPER)
    assert "cannot be" in next(one.reason for one in outcome.kept if one.label == "matmul_efficiency[bf16]")
    assert set(outcome.constants["matmul_efficiency"].value) == {"fp8"}  # type: ignore[arg-type]  # a table


def test_a_low_quantile_is_kept_and_the_spread_told() -> None:
    """Others on the machine only add time: most series may be disturbed."""
    times = iter([9.0, 1.0, 0.4, 50.0, 1.0, 1.1, 50.0, 1.0, 60.0, 50.0, 55.0])
    effort = Effort(warm_up_time=0, series_time=0.4, num_series=8, most_calls=10, limit=99)
    timing = measure(lambda _calls: next(times), effort)
    assert timing.num_series == 8
    assert timing.time == pytest.approx(1.04, rel=0.1)
    assert timing.spread > 10
    calm = measure(lambda _calls: 1.0, effort)
    assert (calm.time, calm.spread) == (1.0, 0.0)
    short = measure(lambda _calls: 1.0, replace(effort, limit=0))
    assert short.num_series == 3  # the limit was over: three series at least


def test_short_calls_are_timed_in_series() -> None:
    asked: list[int] = []

    def elapsed(num_calls: int) -> float:
        asked.append(num_calls)
        return num_calls * 1e-5

    effort = Effort(warm_up_time=0, series_time=1e-3, num_series=4, most_calls=50, limit=9)
    timing = measure(elapsed, effort)
    assert timing.time == pytest.approx(1e-5)
    assert asked[-1] == 50
    assert measure_together(elapsed, num_calls=7, num_series=2).time == pytest.approx(1e-5)

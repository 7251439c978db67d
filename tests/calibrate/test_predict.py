"""Predictions of measured runs: alone, or under many sets of constants at once."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.calibrate.rows import CELLS, PUBLISHED, asked, run, write

from shardplan.calibrate.predict import ask_all, cases_of, log_ratios, measured_memory, predict
from shardplan.calibrate.runs.rows import read_runs, shipped_runs
from shardplan.estimation.estimate import estimate_plan
from shardplan.estimation.priced import PricedPlan
from shardplan.inputs.profile import load_profile


def test_a_prediction_is_the_estimate_of_the_plan() -> None:
    questions, skipped = ask_all(read_runs(PUBLISHED))
    assert skipped == ()
    for one in predict(questions):
        whole = estimate_plan(one.asked.question, one.asked.plan)
        assert one.step_time == pytest.approx(whole.step_time, rel=1e-12)
        assert one.peak_memory_bytes == pytest.approx(whole.peak_memory_bytes, rel=1e-12)
        assert one.fits == whole.feasible


def test_runs_predicted_together_are_predicted_as_alone(tmp_path: Path) -> None:
    """Plans of one question are priced together, those that need other formulas among them."""
    rows = [
        {**CELLS, "id": f"{tp}-{pp}-{recompute}", "tp": str(tp), "pp": str(pp), "recompute": recompute}
        for tp in (1, 2, 4)
        for pp in (1, 2)
        for recompute in ("none", "full")
    ]
    questions, _ = ask_all(read_runs(write(tmp_path, *rows)))
    assert len(questions) == len(rows)
    profiles = {"hopper": load_profile("hopper")}
    for together, one in zip(predict(questions, profiles), questions, strict=True):
        (alone,) = predict([one], profiles)
        assert together.run == one.run
        for name in ("step_time", "step_time_p10", "step_time_p90", "peak_memory_bytes", "usable_memory_bytes"):
            assert getattr(together, name) == pytest.approx(getattr(alone, name), rel=1e-12)


def test_published_step_times_of_unfused_megatron() -> None:
    """Korthikanti et al. 2022, arXiv 2205.05198, table 5: within 20 % each."""
    questions, _ = ask_all(read_runs(PUBLISHED))
    assert [one.run.id for one in predict(questions) if abs(one.log_time_ratio or 9) > math.log(1.20)] == []


def test_ratios_are_logarithms_and_missing_where_nothing_was_measured(tmp_path: Path) -> None:
    one = predict([asked(tmp_path)])[0]
    assert one.log_time_ratio == pytest.approx(math.log(one.step_time / 5))
    assert one.log_memory_ratio is None
    other = predict([asked(tmp_path, step_time_s="", peak_memory_gb="50")])[0]
    assert other.log_time_ratio is None
    assert other.log_memory_ratio == pytest.approx(math.log(other.peak_memory_bytes / 50e9))


def test_runs_that_cannot_be_predicted_keep_their_reason(tmp_path: Path) -> None:
    runs = read_runs(write(tmp_path, CELLS, {**CELLS, "id": "odd", "tp": "3"}, {**CELLS, "id": "who", "model": "x"}))
    questions, skipped = ask_all(runs)
    assert [one.run.id for one in questions] == ["run"]
    assert [one.run.id for one in skipped] == ["odd", "who"]
    assert skipped[0].reason.startswith("tp x cp x pp divides the accelerators: tp 3")
    assert skipped[1].rule == "model is known"


@pytest.mark.parametrize(
    ("accelerator", "said"),
    [
        ("h100-sx", "unknown accelerator 'h100-sx': did you mean h100-sxm-80gb or"),
        ("a100", "unknown accelerator 'a100'; a100 is one of the clusters; it may be a100-sxm-40gb, a100-sxm-80gb"),
        ("zzz", "unknown accelerator 'zzz'; see `shardplan accelerators`"),
    ],
)
def test_a_part_that_is_unknown_is_skipped_with_those_that_may_be_meant(
    tmp_path: Path, accelerator: str, said: str
) -> None:
    _, skipped = ask_all([run(tmp_path, accelerator=accelerator)])
    assert skipped[0].reason.startswith(f"accelerator is known: {said}")


METERS = ("", "allocated", "reserved", "process")


def _metered(folder: Path, tensors: float) -> list[float]:
    """What each of ``METERS`` shows on 85 GB."""
    runs = [run(folder, memory_kind=kind) for kind in METERS]
    question = ask_all(runs)[0][0].question
    accelerator = replace(question.cluster.accelerator, memory_bytes=85e9)
    profile = replace(
        question.profile, fragmentation=0.1, fragmentation_of_process=0.2, process_bytes=5e9,
        fragmentation_when_full=0.02, context_bytes=1e9,
    )  # fmt: skip
    asked = replace(question, cluster=replace(question.cluster, accelerator=accelerator), given_profile=profile)
    return [float(measured_memory(tensors, one, asked)) for one in runs]


def test_meters_of_memory(tmp_path: Path) -> None:
    assert _metered(tmp_path, 50e9) == pytest.approx([50e9, 50e9, 55e9, 65e9])


def test_an_allocator_gives_back_what_it_does_not_use_when_the_device_is_full(tmp_path: Path) -> None:
    assert _metered(tmp_path, 78e9) == pytest.approx([78e9, 78e9, 84e9, 85e9])


def test_what_does_not_fit_is_not_cut_to_the_size_of_the_device(tmp_path: Path) -> None:
    assert _metered(tmp_path, 100e9) == pytest.approx([100e9, 100e9, 102e9, 103e9])


@pytest.mark.parametrize(
    ("stated", "rank"), [("first", 0), ("0", 0), ("2", 2), ("last", 3), ("3", 3), ("fullest", None), ("", None)]
)
def test_a_peak_is_that_of_the_stage_that_was_measured(tmp_path: Path, stated: str, rank: int | None) -> None:
    """By both ways of predicting; what is needed stays that of the fullest stage."""
    options = f"memory_rank={stated}" if stated else ""
    one = asked(tmp_path, pp="4", vp="1", peak_memory_gb="50", options=options)
    stages = PricedPlan.of(one.question, one.plan)
    expected = stages.peak_memory_bytes if rank is None else stages.memory_of(rank).total
    (found,), (logarithm,) = predict([one]), log_ratios(cases_of([one]), {})[1]
    assert found.peak_memory_bytes == pytest.approx(expected, rel=1e-12)
    assert logarithm == pytest.approx(math.log(expected / 50e9), rel=1e-9)
    assert found.needed_memory_bytes == stages.peak_memory_bytes
    assert len({stages.memory_of(number).total for number in range(4)}) == 4
    assert one.unknown == ()


def test_the_stage_that_was_measured_leaves_the_step_time_as_it_is(tmp_path: Path) -> None:
    for rank in range(4):
        plain, metered = (asked(tmp_path, pp="4", vp="1", options=text) for text in ("", f"memory_rank={rank}"))
        times = log_ratios(cases_of([plain, metered]), {})[0]
        assert times[1] == pytest.approx(times[0], rel=1e-12)


def test_peaks_of_the_last_stage_are_met() -> None:
    """Megatron-LM's continuous integration logs the last rank, which need not be of the fullest stage.

    Those under a learned routing are the largest of thousands of steps.
    """
    questions, _ = ask_all(one for one in shipped_runs() if one.options.get("memory_rank") == "last")
    errors = [math.expm1(abs(one.log_memory_ratio or 9)) for one in predict(questions)]
    assert len(errors) == 18
    assert np.median(errors) < 0.02
    assert np.quantile(errors, 0.9) < 0.09


def test_many_sets_of_constants_are_as_many_single_ones() -> None:
    cases = cases_of(ask_all(read_runs(PUBLISHED))[0])
    shipped = load_profile("ampere")
    launches, steps = np.array([0.0, 1e-5, 2e-5]), np.array([0.0, 0.1, 1.0])
    many = replace(shipped, collective_launch_time=launches, step_time=steps)
    times, memories = log_ratios(cases, {"ampere": many})
    assert times.shape == memories.shape == (6, 3)
    assert np.all(np.isnan(memories))
    for column, (launch, step) in enumerate(zip(launches, steps, strict=True)):
        single = replace(shipped, collective_launch_time=float(launch), step_time=float(step))
        alone, _ = log_ratios(cases, lambda _name, single=single: single)  # type: ignore[misc]
        assert times[:, column] == pytest.approx(alone[:, 0], rel=1e-12)


def test_a_generation_that_is_not_given_has_the_shipped_constants() -> None:
    cases = cases_of(ask_all(read_runs(PUBLISHED))[0])
    expected = [one.log_time_ratio for one in predict(case.asked for case in cases)]
    assert log_ratios(cases, {})[0][:, 0] == pytest.approx(expected)
    assert log_ratios([], {})[0].shape == (0, 1)

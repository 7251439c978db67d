"""Statistics against values worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.calibrate.rows import CELLS, write

from shardplan.calibrate.errors import GROUPINGS, errors_by, errors_of, spearman, sweeps_of
from shardplan.calibrate.predict import Prediction, ask_all, predict
from shardplan.calibrate.runs.rows import read_runs


def test_twice_too_slow_and_twice_too_fast_are_the_same_error() -> None:
    assert errors_of([math.log(2)]).median == pytest.approx(1.0)
    assert errors_of([-math.log(2)]).median == pytest.approx(1.0)


def test_statistics_by_hand() -> None:
    """Ratios 0.8, 0.95, 1, 1.1, 1.5: errors 25, 5.26, 0, 10, 50 %; the 90th percentile lies 0.6 between 25 and 50."""
    found = errors_of(np.log([0.8, 0.95, 1.0, 1.1, 1.5, np.nan]))
    assert found.n == 5
    assert found.median == pytest.approx(0.1)
    assert found.p90 == pytest.approx(0.25 + 0.6 * 0.25)
    assert found.bias == pytest.approx(0.0)
    assert found.too_small == pytest.approx(0.2)


def test_nothing_measured() -> None:
    assert errors_of([np.nan]).n == 0
    assert errors_of([]).median is None


def test_spearman_by_hand() -> None:
    assert spearman([1, 2, 3, 4], [10, 20, 30, 40]) == pytest.approx(1.0)
    assert spearman([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1.0)
    assert spearman([1, 2, 3], [1, 3, 2]) == pytest.approx(0.5)  # 1 - 6 (0 + 1 + 1) / (3 (9 - 1))
    assert spearman([1, 1, 2], [1, 2, 3]) == pytest.approx(math.sqrt(3) / 2)
    assert spearman([1, 1, 1], [1, 2, 3]) == 0.0


def _predicted(folder: Path, rows: list[dict[str, str]], times: list[float]) -> list[Prediction]:
    runs = read_runs(write(folder, *({**CELLS, **row, "id": str(index)} for index, row in enumerate(rows))))
    predictions = predict(ask_all(runs)[0])
    return [replace(one, step_time=time) for one, time in zip(predictions, times, strict=True)]


def test_a_sweep_by_hand(tmp_path: Path) -> None:
    """Measured 10, 11, 20 s; predicted 5, 4, 9 s: the pick is 10 % slower, two of three clear pairs are in order."""
    rows = [{"tp": "1", "step_time_s": "10"}, {"tp": "2", "step_time_s": "11"}, {"tp": "4", "step_time_s": "20"}]
    (sweep,) = sweeps_of(_predicted(tmp_path, rows, [5.0, 4.0, 9.0]))
    assert sweep.runs == ("0", "1", "2")
    assert sweep.spread == pytest.approx(2.0)
    assert sweep.regret == pytest.approx(0.1)
    assert sweep.spearman == pytest.approx(0.5)
    assert sweep.num_pairs == 3
    assert sweep.pairs_in_order == pytest.approx(2 / 3)
    (wrong,) = sweep.misordered
    assert (wrong.slower, wrong.faster) == ("1", "0")
    assert [wrong.measured, wrong.predicted] == pytest.approx([1.1, 0.8])


def test_pairs_within_five_per_cent_are_not_asked(tmp_path: Path) -> None:
    rows = [{"tp": "1", "step_time_s": "10"}, {"tp": "2", "step_time_s": "10.2"}, {"tp": "4", "step_time_s": "10.4"}]
    (sweep,) = sweeps_of(_predicted(tmp_path, rows, [3.0, 2.0, 1.0]))
    assert (sweep.num_pairs, sweep.pairs_in_order) == (0, None)
    assert sweep.regret == pytest.approx(0.04)


def test_batches_are_compared_by_time_per_token(tmp_path: Path) -> None:
    rows = [
        {"tp": "1", "step_time_s": "10"},
        {"tp": "2", "step_time_s": "18", "global_batch_size": "128"},
        {"tp": "4", "step_time_s": "20"},
    ]
    (sweep,) = sweeps_of(_predicted(tmp_path, rows, [10.0, 18.0, 20.0]))
    assert sweep.runs == ("1", "0", "2")
    assert sweep.regret == 0.0


def test_repeats_are_one_configuration(tmp_path: Path) -> None:
    rows = [{"tp": "1", "step_time_s": "10"}, {"tp": "1", "step_time_s": "40"}, {"tp": "2", "step_time_s": "11"}]
    assert sweeps_of(_predicted(tmp_path, rows, [1.0, 1.0, 2.0])) == ()
    rows.append({"tp": "4", "step_time_s": "30"})
    (sweep,) = sweeps_of(_predicted(tmp_path, rows, [1.0, 1.0, 2.0, 3.0]))
    assert sweep.spread == pytest.approx(30 / 11)  # 20 s, the geometric mean of 10 and 40, lies between
    assert sweep.regret == pytest.approx(20 / 11 - 1)


def test_other_models_precisions_and_sizes_are_other_sweeps(tmp_path: Path) -> None:
    rows = [{"tp": "1"}, {"tp": "2"}, {"tp": "4", "precision": "fp8"}, {"tp": "4", "num_accelerators": "32"}]
    assert sweeps_of(_predicted(tmp_path, rows, [1.0, 2.0, 3.0, 4.0])) == ()


def test_groups(tmp_path: Path) -> None:
    rows = [{"family": "one", "tier": "A"}, {"family": "two", "tier": "A"}, {"family": "two", "tier": ""}]
    predictions = _predicted(tmp_path, rows, [10.0, 5.0, 5.0])
    by_family = errors_by(predictions, GROUPINGS["family"], lambda one: one.log_time_ratio)
    assert {name: found.n for name, found in by_family.items()} == {"one": 1, "two": 2}
    assert by_family["one"].median == pytest.approx(1.0)
    assert by_family["two"].median == pytest.approx(0.0)
    assert set(errors_by(predictions, GROUPINGS["tier"], lambda one: one.log_time_ratio)) == {"A", "unstated"}
    assert set(errors_by(predictions, GROUPINGS["kind"], lambda one: one.log_time_ratio)) == {"dense"}
    assert set(GROUPINGS) == {"family", "tier", "accelerator", "framework", "precision", "kind"}


def test_frameworks_are_one_group_however_they_are_written(tmp_path: Path) -> None:
    rows = [{"framework": "Megatron-LM"}, {"framework": "megatron-lm"}]
    predictions = _predicted(tmp_path, rows, [10.0, 5.0])
    assert set(errors_by(predictions, GROUPINGS["framework"], lambda one: one.log_time_ratio)) == {"megatron-lm"}

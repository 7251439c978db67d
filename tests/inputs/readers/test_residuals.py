"""Errors of runs as they stand in files."""

from __future__ import annotations

import csv
from typing import Any

import pytest

from shardplan.base.errors import InputError
from shardplan.inputs.plan import Plan
from shardplan.inputs.readers.residuals import (
    LARGEST_ERROR,
    RESIDUALS,
    Features,
    Residual,
    Shares,
    read_residuals,
    residual_row,
    residuals_from_rows,
)

RUN = Residual(
    id="a",
    family="b",
    features=Features(
        accelerator="h100-sxm-80gb",
        generation="hopper",
        bits=8,
        moe=True,
        parameters=8.03e9,
        accelerators=64,
        sequence_length=8192,
        global_batch_size=128,
        plan=Plan(tp=2, cp=4, recompute="mlp,activation", sequence_parallel=False, stage_layers=(4, 3)),
        shares=Shares(host=0.1, communication=0.2, attention=0.3),
    ),
    time=0.125,
    memory=None,
    setting="llama/64",
    measured_step_time=2.5,
    predicted_step_time=2.75,
    gap_factor=1.25,
    tier="A-",
)


def read(*rows: object, generation: str = "default") -> tuple[Residual, ...]:
    return residuals_from_rows(rows, "my.yaml: left_out_errors", generation)


def refusal(*rows: object, generation: str = "default") -> str:
    with pytest.raises(InputError) as refused:
        read(*rows, generation=generation)
    return refused.value.message


def test_a_row_is_read_as_it_was_written() -> None:
    assert read(residual_row(RUN)) == (RUN,)


def test_an_error_beyond_belief_is_written_as_the_largest_that_is_read() -> None:
    (found,) = read(residual_row(RUN._replace(time=-12.0)))
    assert found.time == -LARGEST_ERROR


def test_the_shipped_rows_are_those_that_would_be_written() -> None:
    with RESIDUALS.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [residual_row(run) for run in read_residuals()] == rows


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"moe": True}, "moe is True; it must be 'yes' or 'no'"),
        ({"moe": "perhaps"}, "moe is 'perhaps'; it must be 'yes' or 'no'"),
        ({"bits": 1.5}, "bits is 1.5; it must be '4', '8', '16' or '32'"),
        ({"bits": "0"}, "bits is '0'"),
        ({"parameters": "nan"}, "parameters is 'nan'; it must be a number from 1 to "),
        ({"accelerators": "-8"}, "accelerators is '-8'"),
        ({"accelerators": True}, "accelerators is True"),
        ({"accelerators": 1.5}, "accelerators is 1.5; it must be a whole number"),
        ({"global_batch_size": None}, "global_batch_size is None"),
        ({"plan": None}, "plan is None; it must be fields of a plan, such as tp=4 pp=8"),
        ({"plan": "tp=4 tq=8"}, "plan has 'tq=8'; it must be fields of a plan, each once"),
        ({"plan": "tp=4 tp=4"}, "plan has 'tp=4'"),
        ({"plan": "tp=0"}, "plan: tp is 0; it must be a whole number from 1"),
        ({"plan": "tp=two"}, "plan: tp is 'two'"),
        ({"plan": "sequence_parallel=yes"}, "plan: sequence_parallel is 'yes'; it must be true or false"),
        ({"plan": "sharding=zero9"}, "plan: unknown sharding 'zero9'"),
        ({"measured_step_time_s": "-1"}, "measured_step_time_s is '-1'; it must be a number from 0"),
        ({"gap_factor": "nan"}, "gap_factor is 'nan'"),
        ({"tier": "C"}, "tier is 'C'; it must be 'A', 'A-' or 'B'"),
        ({"log_time_ratio": "inf"}, "log_time_ratio is 'inf'"),
        ({"log_time_ratio": 1e300}, "log_time_ratio is 1e+300; it must be a number from -6.9 to 6.9"),
        ({"log_memory_ratio": -6.91}, "log_memory_ratio is -6.91"),
        ({"log_time_ratio": "far"}, "log_time_ratio is 'far'"),
        ({"host_share": "1.5"}, "host_share is '1.5'; it must be a number from 0 to 1"),
        ({"sequence_length": []}, "sequence_length is []"),
        ({"generation": "zzz"}, "generation is 'zzz'; it must be 'volta', "),
        ({"accelerator": None}, "accelerator is None; it must be text"),
    ],
)
def test_cells_that_cannot_be_are_refused_with_file_run_and_cell(change: dict[str, Any], words: str) -> None:
    assert refusal(residual_row(RUN), residual_row(RUN) | change).startswith(
        f"my.yaml: left_out_errors, run 'a': {words}"
    )


def test_runs_are_of_the_profiles_own_generation() -> None:
    assert read(residual_row(RUN), generation="hopper") == (RUN,)
    said = refusal(residual_row(RUN), generation="ampere")
    assert said == "my.yaml: left_out_errors, run 'a': generation is 'hopper'; it must be 'ampere', as the profile"


def test_missing_cells_are_named() -> None:
    row: dict[str, str] = residual_row(RUN)
    assert refusal({name: row[name] for name in row if name != "moe"}).endswith("run 'a': moe is missing")
    assert refusal({name: row[name] for name in row if name not in ("moe", "plan")}).endswith("moe, plan are missing")
    assert refusal(row, {name: row[name] for name in row if name != "id"}).endswith("row 2: id is missing")
    assert refusal({name: row[name] for name in row if name != "setting"}).endswith("setting is missing")


@pytest.mark.parametrize("row", [None, 3, "a", [], {}])
def test_what_is_no_row_is_refused(row: Any) -> None:
    assert refusal(row).startswith("my.yaml: left_out_errors, row 1: ")

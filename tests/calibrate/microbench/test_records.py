"""Requests and records of any kind: the cases of a request, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.calibrate.microbench.machine import H100, HOPPER, FormulaBackend

from shardplan.base.errors import InputError, UnknownNameError
from shardplan.calibrate.microbench.measured import measurements_path, profile_from, read_measurements, write_profile
from shardplan.calibrate.microbench.records import Measurements, Ranks
from shardplan.calibrate.microbench.run import cases_of, measure_on


def test_groups_are_a_pair_a_node_a_rank_of_every_node_and_all() -> None:
    assert Ranks().groups == ()
    assert Ranks(total=2, per_node=2).groups == ((2, 1),)
    assert Ranks(total=8, per_node=8).groups == ((2, 1), (8, 1))
    assert Ranks(total=32, per_node=8).groups == ((2, 1), (8, 1), (4, 8), (32, 1))
    assert Ranks(total=3, per_node=1).groups == ((3, 1),)


def test_full_looks_at_more_than_small() -> None:
    for kind in ("cpu", "cuda"):
        device = replace(H100, kind=kind)
        ranks = Ranks(total=16, per_node=8)
        few, many = (cases_of(device, sizes, ("bf16",), ranks) for sizes in ("small", "full"))
        assert len(few) < len(many)
        assert len(set(many)) == len(many)


@pytest.mark.parametrize(
    "request_",
    [
        {"sizes": "huge"},
        {"accelerator": "h1000"},
        {"accelerator": ""},
        {"precisions": []},
        {"precisions": "bf16"},
        {"precisions": ["bf17"]},
        {"precisions": ["nvfp4"]},
    ],
)
def test_a_wrong_request_is_refused_before_anything_runs(request_: dict[str, Any]) -> None:
    machine = FormulaBackend()
    with pytest.raises(InputError):
        measure_on(machine, **request_)
    assert machine.num_timed == 0


def test_a_misspelt_precision_brings_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean"):
        measure_on(FormulaBackend(), precisions=["bf61"])


RECORD = measure_on(FormulaBackend(formats=("bf16",), interrupt_after=3), sizes="small").to_record()


@pytest.mark.parametrize(
    "change",
    [
        {"samples": None},
        {"samples": [1]},
        {"samples": [{"case": "rocket"}]},
        {"samples": [RECORD["samples"][0] | {"time_s": 0}]},
        {"samples": [RECORD["samples"][0] | {"time_s": -1.0}]},
        {"samples": [RECORD["samples"][0] | {"time_s": float("nan")}]},
        {"samples": [RECORD["samples"][0] | {"time_s": "1"}]},
        {"samples": [RECORD["samples"][0] | {"time_s": True}]},
        {"samples": [RECORD["samples"][0] | {"spread": -1}]},
        {"samples": [RECORD["samples"][0] | {"num_series": 0}]},
        {"samples": [RECORD["samples"][0] | {"bytes": 0}]},
        {"samples": [RECORD["samples"][0] | {"operation": "teleport"}]},
        {"samples": [RECORD["samples"][0] | {"operation": ["copy"]}]},
        {"skipped": [RECORD["samples"][0]]},
        {"device": "H100"},
        {"device": {}},
        {"software": ""},
        {"accelerator": 3},
        {"num_ranks": True},
        {"rank": -1},
    ],
)
def test_a_spoilt_record_is_refused(change: dict[str, Any]) -> None:
    assert Measurements.from_record(RECORD).samples
    with pytest.raises(InputError, match="measurements: "):
        Measurements.from_record(RECORD | change)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"samples": []}', "null"])
def test_a_spoilt_file_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(InputError):
        read_measurements(path)


def test_a_profile_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    measurements = measure_on(FormulaBackend(formats=("bf16",)), sizes="small")
    constants = profile_from(measurements, HOPPER)
    for path in (tmp_path / "no" / "such.yaml", Path("\0.yaml")):
        with pytest.raises(InputError):
            write_profile(path, constants, measurements)
    with pytest.raises(InputError):
        measurements_path("")


def test_long_text_of_a_device_stays_one_line_of_yaml(tmp_path: Path) -> None:
    device = replace(H100, name="NVIDIA: {H100} 'x' # \n evil: true")
    measurements = measure_on(FormulaBackend(device=device), sizes="small", accelerator="h100-sxm-80gb")
    constants = profile_from(measurements, HOPPER)
    write_profile(tmp_path / "x.yaml", constants, measurements)
    import yaml

    assert "evil" not in yaml.safe_load((tmp_path / "x.yaml").read_text())

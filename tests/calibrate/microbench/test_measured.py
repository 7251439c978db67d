"""Timings that follow known constants give these constants back."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.calibrate.microbench.machine import H100, HOPPER, FormulaBackend, alone, number
from tests.examples import llama

from shardplan.base.errors import InputError
from shardplan.calibrate.microbench.measured import (
    LAYER_OPERATORS,
    LAYER_PRODUCTS,
    outcome_of,
    profile_from,
    profile_text,
    read_measurements,
    write_profile,
)
from shardplan.calibrate.microbench.records import Host, Measurements, Ranks, Sample, TimedDevice, Timing
from shardplan.calibrate.microbench.run import measure_on
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.inputs.profile import Constant, assemble, constants_of, load_profile
from shardplan.inputs.readers.catalog import load_cluster
from shardplan.physics.workload.communication import Shard
from shardplan.physics.workload.layer import layer_block
from shardplan.physics.workload.ops import Matmul


def test_constants_are_recovered_from_timings_that_follow_them() -> None:
    machine = FormulaBackend()
    constants = profile_from(measure_on(machine, sizes="full"), HOPPER)
    expected = {
        ("memory_efficiency", ""): machine.hbm_share,
        ("memory_pass_latency", ""): machine.latency,
        ("matmul_efficiency", "bf16"): machine.efficiency["bf16"],
        ("matmul_efficiency", "fp8"): machine.efficiency["fp8"],
        ("matmul_launch_time", ""): machine.launch,
        ("matmul_half_depth", ""): machine.half_depth,
        ("matmul_wave_weight", ""): machine.wave_weight,
        ("attention_efficiency", ""): machine.attention,
        ("attention_half_sequence", ""): machine.half_sequence,
        ("attention_head_dim_exponent", ""): machine.exponent,
        ("attention_backward_ratio", ""): machine.ratio,
    }
    found = {(name, key): alone(constants[name], key) for name, key in expected}
    assert found == {place: pytest.approx(value, rel=0.04) for place, value in expected.items()}


def test_a_few_shapes_and_noise_still_give_the_rates() -> None:
    machine = FormulaBackend(noise=(1.0, 1.06, 0.95, 1.02, 0.98, 1.4, 0.99))
    constants = profile_from(measure_on(machine, sizes="small"), HOPPER)
    assert alone(constants["matmul_efficiency"], "bf16") == pytest.approx(0.62, rel=0.08)
    assert alone(constants["attention_efficiency"]) == pytest.approx(0.58, rel=0.12)
    assert alone(constants["memory_efficiency"]) == pytest.approx(0.85, rel=0.06)


def test_formulas_that_do_not_hold_leave_the_constants_as_they_are() -> None:
    machine = FormulaBackend(noise=(1.0, 9.0, 0.1, 4.0, 0.3, 20.0, 0.7), formats=("bf16",))
    constants = profile_from(measure_on(machine, sizes="small"), HOPPER)
    assert {"matmul_half_depth", "matmul_wave_weight", "attention_head_dim_exponent"} & set(constants) == set()


def test_network_constants_are_recovered_on_two_nodes() -> None:
    machine = FormulaBackend(ranks=Ranks(total=16, per_node=8), formats=("bf16",))
    constants = profile_from(measure_on(machine, sizes="full"), HOPPER)
    assert alone(constants["network_efficiency"], "nvlink") == pytest.approx(machine.nvlink, rel=0.03)
    assert alone(constants["network_efficiency"], "infiniband") == pytest.approx(machine.infiniband, rel=0.03)
    assert alone(constants["all_to_all_efficiency"]) == pytest.approx(machine.all_to_all, rel=0.03)
    assert alone(constants["p2p_efficiency"]) == pytest.approx(machine.p2p, rel=0.03)
    assert alone(constants["collective_launch_time"]) == pytest.approx(machine.exchange_launch, rel=0.05)


def test_constants_say_where_they_come_from() -> None:
    constants = profile_from(measure_on(FormulaBackend(), sizes="small"), HOPPER)
    for name, constant in constants.items():
        assert constant.source.startswith("measured on NVIDIA H100 80GB HBM3 with formulas 1.0, 20"), name
        assert constant.unit == HOPPER.constants[name].unit
        assert constant.sd is not None
    source = constants["matmul_efficiency"].source
    assert re.search(
        r", 28 shapes, residual 0\.\d%; 0\.6\d+ for bf16 alone times 0\.92 in training, 0\.5\d+ for fp8 alone", source
    )


def test_a_measured_profile_is_a_profile(tmp_path: Path) -> None:
    measurements = measure_on(FormulaBackend(), sizes="small")
    constants = profile_from(measurements, HOPPER)
    raw = write_profile(tmp_path / "my-gpu.yaml", constants, measurements)
    assert raw == tmp_path / "my-gpu.measurements.json"
    assert read_measurements(raw) == measurements
    import yaml

    read = yaml.safe_load((tmp_path / "my-gpu.yaml").read_text())
    assert read.pop("generation") == "hopper"
    own = {name: Constant(**entry) for name, entry in read.items()}
    assert own == constants
    profile = assemble("hopper", constants_of("default"), constants_of("hopper") | own)
    assert profile.attention_efficiency == constants["attention_efficiency"].value
    assert profile.matmul_efficiency["mxfp8"] == load_profile("default").matmul_efficiency["mxfp8"]


def test_training_is_said_to_be_slower_than_kernels_alone() -> None:
    constants = profile_from(measure_on(FormulaBackend(), sizes="small"), HOPPER)
    value = constants["matmul_efficiency"].value
    assert isinstance(value, dict)
    assert value["bf16"] < 0.62
    assert number(constants["attention_efficiency"]) < 0.58


def _with_host(measurements: Measurements, time: float, spread: float = 0.0) -> Measurements:
    """The same, but for the time of the layer."""
    layer, timing = Host(operation="layer"), Timing(time=time, spread=spread, num_series=5)
    samples = tuple(Sample(one.case, timing) if one.case == layer else one for one in measurements.samples)
    return replace(measurements, samples=samples)


def test_the_hosts_time_is_believed_only_where_it_is_slower() -> None:
    measurements = measure_on(FormulaBackend(formats=("bf16",)), sizes="small")
    outcome = outcome_of(measurements, HOPPER)
    assert "kernel_launch_time" not in outcome.constants
    kept = {one.label: one for one in outcome.kept}
    for key, bare in (("eager", "2.7e-05 s per operator"), ("fused", "5e-06 s per launch")):
        one = kept[f"kernel_launch_time[{key}]"]
        assert one.value == HOPPER.kernel_launch_time[key]
        assert f"{bare} of a" in one.reason
        assert "lower bound" in one.reason
    slow = profile_from(_with_host(measurements, 6e-3), HOPPER)["kernel_launch_time"]
    expected = 6e-3 / (2 * LAYER_OPERATORS + LAYER_PRODUCTS)
    assert slow.value == {"eager": pytest.approx(expected, rel=1e-3)}
    assert "kernel_launch_time" not in profile_from(_with_host(measurements, 6e-3, spread=2.0), HOPPER)


def test_collectives_of_an_unknown_network_tell_the_time_of_a_launch() -> None:
    unknown = replace(H100, name="NVIDIA X9000")
    for ranks in (Ranks(total=2, per_node=2), Ranks(total=16, per_node=8)):
        machine = FormulaBackend(device=unknown, ranks=ranks, formats=("bf16",), exchange_launch=40e-6)
        outcome = outcome_of(measure_on(machine, sizes="full"), load_profile("other"))
        assert number(outcome.constants["collective_launch_time"]) == pytest.approx(40e-6, rel=0.3)
        assert not {"network_efficiency", "all_to_all_efficiency", "p2p_efficiency"} & set(outcome.constants)
        reasons = {one.label: one.reason for one in outcome.kept}
        assert "--cluster" in reasons["network_efficiency[other]"]


def test_a_cluster_that_is_named_gives_the_rates_of_its_links() -> None:
    unknown = replace(H100, name="NVIDIA X9000")
    machine = FormulaBackend(device=unknown, ranks=Ranks(total=16, per_node=8), formats=("bf16",))
    measurements = measure_on(machine, sizes="full")
    constants = profile_from(measurements, load_profile("other"), cluster=load_cluster("dgx-h100"))
    assert measurements.accelerator is None
    assert alone(constants["network_efficiency"], "nvlink") == pytest.approx(machine.nvlink, rel=0.03)
    assert "matmul_efficiency" not in constants


def test_the_layer_timed_has_the_operators_that_the_estimate_charges() -> None:
    model, job = llama(64, 1, 4, 4, 128), Job(sequence_length=16, global_batch_size=1)
    block = layer_block(model.layers[0], Shard.of(64, job, PlanNumbers.of(Plan(), 1, job)))
    assert len(block.operators) == LAYER_OPERATORS
    assert sum(isinstance(operator, Matmul) for operator in block.operators) == LAYER_PRODUCTS


def test_an_interrupt_keeps_what_was_timed(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    machine = FormulaBackend(interrupt_after=20)
    measurements = measure_on(machine, sizes="full", progress=lambda done, total: told.append((done, total)))
    assert len(measurements.samples) == 20
    assert not measurements.is_complete
    assert told[0][0] == 0
    assert told[-1] == (20, told[0][1])
    constants = profile_from(measurements, HOPPER)
    assert "memory_efficiency" in constants
    assert "attention_efficiency" not in constants
    assert "interrupted" in profile_text(constants, measurements)
    write_profile(tmp_path / "part.yaml", constants, measurements)
    assert not read_measurements(tmp_path / "part.measurements.json").is_complete


def test_an_interrupt_at_once_keeps_the_empty_record_and_says_so(tmp_path: Path) -> None:
    measurements = measure_on(FormulaBackend(interrupt_after=0))
    constants = profile_from(measurements, HOPPER)
    assert constants == {}
    with pytest.raises(InputError, match="determine no constant"):
        write_profile(tmp_path / "none.yaml", constants, measurements)
    assert (tmp_path / "none.measurements.json").exists()


@pytest.mark.parametrize("kind", [RuntimeError, NotImplementedError, TypeError, MemoryError])
def test_a_case_that_the_device_refuses_is_listed_with_the_reason(kind: type[Exception]) -> None:
    measurements = measure_on(FormulaBackend(refuses=kind), sizes="small")
    assert {skipped.reason for skipped in measurements.skipped} == {"no such kernel"}
    value = profile_from(measurements, HOPPER)["matmul_efficiency"].value
    assert isinstance(value, dict)
    assert set(value) == {"bf16"}


def test_an_unknown_device_gives_what_needs_no_peak() -> None:
    unknown = TimedDevice(kind="cuda", name="NVIDIA X9000", memory_bytes=10**11, num_cores=132)
    measurements = measure_on(FormulaBackend(device=unknown, formats=("bf16",)), sizes="full")
    assert measurements.accelerator is None
    constants = profile_from(measurements, load_profile("other"))
    assert {"matmul_efficiency", "attention_efficiency", "memory_efficiency"} & set(constants) == set()
    assert constants["matmul_launch_time"].value == pytest.approx(7e-6, rel=0.05)
    assert constants["attention_half_sequence"].value == pytest.approx(600, rel=0.05)
    assert "not in the catalogue" in profile_text(constants, measurements)
    sample = replace(unknown, memory_bytes=H100.memory_bytes)
    named = measure_on(FormulaBackend(device=sample, formats=("bf16",)), sizes="full", accelerator="h100-sxm-80gb")
    assert alone(profile_from(named, HOPPER)["matmul_efficiency"], "bf16") == pytest.approx(0.62, rel=0.04)

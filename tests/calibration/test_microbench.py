"""Timings that follow known constants give these constants back; real kernels run where torch is installed."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.examples import llama

from shardplan.calibration.microbench import torch_device
from shardplan.calibration.microbench.cases import Ranks, Sizes, cases_of
from shardplan.calibration.microbench.doubts import LEAST_GROWTH, busy, growth
from shardplan.calibration.microbench.files import measurements_path, profile_text, read_measurements, write_profile
from shardplan.calibration.microbench.identify import accelerator_of, check_part
from shardplan.calibration.microbench.measured import LAYER_OPERATORS, LAYER_PRODUCTS, outcome_of, profile_from
from shardplan.calibration.microbench.records import (
    Attention,
    Case,
    Device,
    Exchange,
    Host,
    Measurements,
    MemoryPass,
    Product,
    Sample,
    Timing,
)
from shardplan.calibration.microbench.run import measure_on, run_microbenchmark
from shardplan.calibration.microbench.timing import Effort, measure, measure_together
from shardplan.errors import InputError, UnknownNameError
from shardplan.inputs.batch import Batch
from shardplan.inputs.catalog import load_cluster
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.profile import Constant, assemble, constants_of, load_profile
from shardplan.workload.layer import layer_block
from shardplan.workload.ops import Matmul
from shardplan.workload.shard import Shard

H100 = Device(kind="cuda", name="NVIDIA H100 80GB HBM3", memory_bytes=84_930_000_000, num_cores=132)
PEAK = {"bf16": 989e12, "fp16": 989e12, "tf32": 494.5e12, "fp32": 67e12, "fp8": 1979e12}
HBM = 3350e9
ELEMENT = {"bf16": 2, "fp16": 2, "tf32": 4, "fp32": 4, "fp8": 1}


@dataclass(kw_only=True)
class FormulaBackend:
    """A machine that obeys the formulas of the documentation, written out here once more."""

    device: Device = H100
    software: str = "formulas 1.0"
    ranks: Ranks = field(default_factory=Ranks)
    rank: int = 0
    formats: tuple[str, ...] = ("bf16", "fp8")
    efficiency: dict[str, float] = field(default_factory=lambda: {"bf16": 0.62, "fp8": 0.51, "fp16": 0.6, "fp32": 0.9})
    launch: float = 7e-6
    half_depth: float = 130.0
    wave_weight: float = 0.5
    hbm_share: float = 0.85
    latency: float = 2e-6
    attention: float = 0.58
    half_sequence: float = 600.0
    exponent: float = 0.35
    ratio: float = 0.65
    nvlink: float = 0.6
    infiniband: float = 0.3
    all_to_all: float = 0.5
    p2p: float = 0.75
    exchange_launch: float = 25e-6
    noise: tuple[float, ...] = (1.0,)
    refuses: type[Exception] | None = None
    interrupt_after: int = 10**9
    num_timed: int = 0

    def precisions(self) -> Sequence[str]:
        return self.formats

    def close(self) -> None:
        pass

    def time(self, case: Case) -> Timing:
        self.num_timed += 1
        if self.num_timed > self.interrupt_after:
            raise KeyboardInterrupt
        if self.refuses is not None and isinstance(case, Product) and case.precision == "fp8":
            raise self.refuses("no such kernel\nsecond line")
        exact = self._exact(case)
        return Timing(time=exact * self.noise[self.num_timed % len(self.noise)], spread=0.01, num_series=5)

    def _exact(self, case: Case) -> float:
        match case:
            case MemoryPass():
                return self.latency + case.bytes / (self.hbm_share * HBM)
            case Product():
                return self._product(case)
            case Attention():
                return self._attention(case)
            case Host():
                return 5e-6 if case.operation == "launch" else 600e-6
            case Exchange():
                return self._exchange(case)

    def _product(self, case: Product) -> float:
        m, k, n = case.m, case.k, case.n
        waves = [
            math.ceil(math.ceil(m / 128) * math.ceil(n / columns) / 132) * 132 * 128 * columns / (m * n)
            for columns in (128, 256)
        ]
        slower = 1 + self.wave_weight * (min(waves) - 1)
        rate = self.efficiency[case.precision] * PEAK[case.precision] * k / (k + self.half_depth)
        moved = (m * k + k * n + m * n) * ELEMENT[case.precision]
        return self.launch + max(2 * m * n * k * slower / rate, moved / (self.hbm_share * HBM))

    def _attention(self, case: Attention) -> float:
        s, d = case.sequence_length, case.head_dim
        flops = 2 * case.batch_size * s * case.num_heads * (s / 2) * 2 * d
        rate = self.attention * (d / 128) ** self.exponent * s / (s + self.half_sequence) * PEAK[case.precision]
        return self.latency + flops / rate * (2.5 / self.ratio if case.direction == "backward" else 1)

    def _exchange(self, case: Exchange) -> float:
        """On nodes of eight with NVLink of 450 GB/s and an adapter of 50 GB/s each (hgx-h100)."""
        crosses = case.stride >= 8 or case.size > 8
        inner = 1 if case.stride >= 8 else min(case.size, 8)
        outer = case.size // inner
        near, far = (
            450e9 * self.nvlink,
            50e9 * {"all_to_all": self.all_to_all, "p2p": self.p2p}.get(case.operation, self.infiniband),
        )
        share = 1 if case.operation != "all_reduce" else 2
        hops = {"all_to_all": math.log2}.get(case.operation, lambda fan: fan - 1)
        bytes_near, bytes_far = 1 - 1 / inner, 1 / inner - 1 / case.size
        if case.operation == "all_to_all":
            bytes_near, bytes_far = (inner - 1) / case.size, (case.size - inner) / case.size
        if case.operation == "p2p":
            hops = lambda fan: float(fan > 1)  # noqa: E731
            bytes_near, bytes_far = float(not crosses), float(crosses)
        time = max(share * case.bytes * bytes_near / near, share * case.bytes * bytes_far / far)
        return self.exchange_launch + time + share * (0.936e-6 * hops(inner) + 5e-6 * hops(outer))


def number(constant: Constant) -> float:
    assert isinstance(constant.value, float)
    return constant.value


def alone(constant: Constant, key: str = "") -> float:
    """Value before the share of it that training reaches."""
    value = constant.value[key] if isinstance(constant.value, dict) else constant.value
    shares = {"fraction of dense peak": {"": 0.81}.get(key, 0.92), "fraction of memory bandwidth": 0.89}
    shares["fraction of nominal bandwidth"] = {"nvlink": 0.94, "infiniband": 0.75}.get(key, 1.0)
    return float(value) / shares.get(constant.unit, 1.0)


HOPPER = load_profile("hopper")


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


# Timings that are not worth a constant


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
    for kind in (MemoryPass, Product, Attention):
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
    block = layer_block(model.layers[0], Shard.of(64, job, Batch.of(Plan(), 1, job)))
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
    unknown = Device(kind="cuda", name="NVIDIA X9000", memory_bytes=10**11, num_cores=132)
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


@pytest.mark.parametrize(
    ("name", "gib", "cores", "expected"),
    [
        ("NVIDIA H100 80GB HBM3", 79.1, 132, "h100-sxm-80gb"),
        ("NVIDIA H100 PCIe", 79.1, 114, "h100-pcie-80gb"),
        ("NVIDIA H100 NVL", 93.0, 132, "h100-nvl-94gb"),
        ("NVIDIA H200", 139.8, 132, "h200-sxm-141gb"),
        ("NVIDIA H200 NVL", 139.8, 132, "h200-nvl-141gb"),
        ("NVIDIA A100-SXM4-80GB", 79.25, 108, "a100-sxm-80gb"),
        ("NVIDIA A100-SXM4-40GB", 39.4, 108, "a100-sxm-40gb"),
        ("NVIDIA A100 80GB PCIe", 79.25, 108, "a100-pcie-80gb"),
        ("NVIDIA A100-PCIE-40GB", 39.4, 108, "a100-pcie-40gb"),
        ("NVIDIA B200", 178.4, 148, "b200-sxm-180gb"),
        ("NVIDIA GB200", 184.0, 148, "gb200-186gb"),
        ("NVIDIA B300 SXM6 AC", 267.7, 148, "b300-sxm-288gb"),
        ("NVIDIA GH200 480GB", 94.5, 132, "gh200-96gb"),
        ("NVIDIA GeForce RTX 4090", 23.5, 128, "rtx4090-24gb"),
        ("NVIDIA RTX 6000 Ada Generation", 47.5, 142, "rtx6000-ada-48gb"),
        ("NVIDIA RTX A6000", 47.5, 84, "a6000-48gb"),
        ("NVIDIA L40S", 44.5, 142, "l40s-48gb"),
        ("NVIDIA L4", 22.0, 58, "l4-24gb"),
        ("NVIDIA A10G", 22.1, 80, "a10g-24gb"),
        ("Tesla V100-SXM2-32GB", 31.7, 80, "v100-sxm2-32gb"),
        ("AMD Instinct MI300X", 192.0, 304, "mi300x-192gb"),
        ("AMD Instinct MI250X", 64.0, 104, None),
        ("NVIDIA H200 MIG 1g.18gb", 16.0, 16, None),
        ("NVIDIA T400", 4.0, 6, None),
        ("", 80.0, 132, None),
    ],
)
def test_devices_are_known_by_name_memory_and_cores(name: str, gib: float, cores: int, expected: str | None) -> None:
    device = Device(kind="cuda", name=name, memory_bytes=int(gib * 2**30), num_cores=cores)
    assert accelerator_of(device) == expected


def test_a_processor_is_no_accelerator() -> None:
    assert accelerator_of(Device(kind="cpu", name="H100 fan club", memory_bytes=10**11, num_cores=132)) is None


CPU = Device(kind="cpu", name="AMD EPYC", memory_bytes=80 * 10**9, num_cores=2)


@pytest.mark.parametrize(
    ("device", "accelerator", "words"),
    [
        (CPU, "h100-sxm-80gb", "it is a processor"),
        (CPU, "H100-SXM-80GB", "it is a processor"),
        (CPU, "tpu-v5p", "it is a processor"),
        (replace(H100, name="NVIDIA H100 PCIe", num_cores=114), "h100-sxm-80gb", "it is h100-pcie-80gb"),
        (H100, "a100-sxm-80gb", "it is h100-sxm-80gb"),
        (H100, "h200-sxm-141gb", "it is h100-sxm-80gb"),
        (replace(H100, name="NVIDIA H200 MIG 1g.18gb", num_cores=16), "h100-sxm-80gb", "its name says h200"),
        (replace(H100, name="NVIDIA X9000"), "gaudi2-96gb", "its name says nvidia"),
        (replace(H100, name="NVIDIA H100 MIG 1g.10gb", memory_bytes=10**10), "h100-sxm-80gb", "it has 10 GB"),
        (replace(H100, name="sample", memory_bytes=10**11), "h100-sxm-80gb", "it has 100 GB"),
    ],
)
def test_a_part_that_the_device_cannot_be_is_refused(device: Device, accelerator: str, words: str) -> None:
    machine = FormulaBackend(device=device, formats=("bf16",))
    with pytest.raises(InputError, match=words) as refused:
        measure_on(machine, accelerator=accelerator)
    assert accelerator.lower() in refused.value.message
    assert "--accelerator" in refused.value.hint
    assert machine.num_timed == 0


@pytest.mark.parametrize("name", [H100.name, "NVIDIA H100", "NVIDIA X9000", "engineering sample", ""])
def test_a_device_of_another_name_may_be_the_part(name: str) -> None:
    for memory in (0.95, 1.05):
        device = replace(H100, name=name, memory_bytes=int(85e9 * memory))
        check_part(device, "h100-sxm-80gb")


def test_a_file_of_ones_own_describes_any_part(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    text = "name: mine\ngeneration: {}\nmemory: 96 GB\nmemory_bandwidth: 100 GB/s\npeak_flops: {{bf16: 2 TFLOP/s}}\n"
    path.write_text(text.format("other"))
    check_part(CPU, str(path))
    check_part(replace(H100, name="NVIDIA H200", memory_bytes=96 * 10**9), str(path))
    with pytest.raises(InputError, match="it has 10 GB, mine has 96 GB"):
        check_part(replace(H100, memory_bytes=10**10), str(path))
    path.write_text(text.format("hopper"))
    with pytest.raises(InputError, match="it is a processor"):
        check_part(CPU, str(path))


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


# Hostile requests and records


def test_without_torch_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(InputError, match="torch") as caught:
        run_microbenchmark(sizes="small")
    assert "shardplan[microbench]" in caught.value.hint


class NoGpu:
    """The part of torch that picks a device, on a machine without one."""

    class cuda:  # noqa: N801
        @staticmethod
        def is_available() -> bool:
            return False

        @staticmethod
        def device_count() -> int:
            return 0

    @staticmethod
    def device(name: str) -> str:
        return name


@pytest.mark.parametrize("name", ["cuda", "cuda:0", "cuda:99", "mps", "tpu", "", "cpu:x", "a" * 1000])
def test_an_unknown_device_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="is not one of cpu"):
        torch_device.pick_device(NoGpu, name)
    assert torch_device.pick_device(NoGpu, None) == "cpu"


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


@pytest.mark.parametrize(
    "environment",
    [
        {"WORLD_SIZE": "two"},
        {"WORLD_SIZE": "0"},
        {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "3"},
        {"WORLD_SIZE": "2", "RANK": "2"},
        {"WORLD_SIZE": "2", "RANK": "-1"},
    ],
)
def test_a_broken_launch_is_refused(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in environment.items():
        monkeypatch.setenv(name, text)
    with pytest.raises(InputError):
        torch_device.ranks_of_launch()


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


# A stand-in for torch on a GPU: it shows that the calls fit together, not that a GPU answers them


class Anything:
    """Has every attribute, can be called, and is the result of every operation on it."""

    __version__ = "99"
    itemsize = 2
    hip = None

    def __getattr__(self, name: str) -> Anything:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *_: object, **__: object) -> Anything:
        return self

    def _same(self, *_: object) -> Anything:
        return self

    __add__ = __radd__ = __mul__ = __rmul__ = __truediv__ = __matmul__ = __neg__ = __getitem__ = _same

    def __iter__(self) -> Iterator[Anything]:
        return iter((self, self, self))

    def chunk(self, count: int, **_: object) -> tuple[Anything, ...]:
        return (self,) * count

    def elapsed_time(self, _: object) -> float:
        return 3.0

    def is_available(self) -> bool:
        return True

    def device_count(self) -> int:
        return 2

    def get_device_capability(self, _: object) -> tuple[int, int]:
        return (9, 0)

    def get_device_properties(self, _: object) -> object:
        return SimpleNamespace(name=H100.name, total_memory=H100.memory_bytes, multi_processor_count=H100.num_cores)

    type = "cuda"


def test_the_calls_for_a_gpu_fit_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", Anything())
    monkeypatch.setattr("shardplan.calibration.microbench.torch_backend.SETTLE_TIME", 0.01)
    quick = Effort(warm_up_time=0, series_time=1e-3, num_series=3, most_calls=5, limit=0)
    monkeypatch.setattr("shardplan.calibration.microbench.torch_backend._effort", lambda *_: quick)
    monkeypatch.setenv("LOCAL_RANK", "1")
    measurements = run_microbenchmark(sizes="small")
    assert measurements.skipped == ()
    assert measurements.accelerator == "h100-sxm-80gb"
    assert {case.precision for case, _ in measurements.of(Product)} == {"bf16", "fp16", "tf32", "fp32", "fp8"}
    assert {timing.time for case, timing in measurements.of(Product)} == {3e-3}
    with pytest.raises(InputError, match=r"is not one of cpu, cuda:0, cuda:1"):
        run_microbenchmark(device="cuda:2", sizes="small")


# Real kernels


@pytest.mark.filterwarnings("ignore")  # torch warns of libraries that it can do without
def test_real_kernels_run_on_this_processor(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    measurements = run_microbenchmark(device="cpu", sizes="small")
    assert measurements.is_complete
    assert measurements.skipped == ()
    assert all(sample.timing.time > 0 for sample in measurements.samples)
    constants = profile_from(measurements, load_profile("other"))
    outcome = outcome_of(measurements, load_profile("other"))  # what stands out depends on what else the machine does
    assert {"kernel_launch_time", "matmul_efficiency"} <= {one.name for one in outcome.kept}
    assert all(number(constant) > 0 for name, constant in constants.items() if name != "kernel_launch_time")
    constants = constants or {"step_time": Constant(value=1.0, unit="s", source="a test")}
    write_profile(tmp_path / "cpu.yaml", constants, measurements)
    assert json.loads((tmp_path / "cpu.measurements.json").read_text())["device"]["kind"] == "cpu"
    with pytest.raises(InputError, match="does not multiply"):
        run_microbenchmark(device="cpu", sizes="small", precisions=["fp8"])


LAUNCHED = """
import sys
from shardplan.calibration.microbench import run_microbenchmark
measurements = run_microbenchmark(device="cpu", sizes="small", precisions=["fp32"])
if measurements.rank == 0:
    kinds = {sample.case.operation for sample in measurements.samples if hasattr(sample.case, "stride")}
    print("RANKS", measurements.num_ranks, "KINDS", *sorted(kinds), "SKIPPED", len(measurements.skipped))
"""


def test_real_collectives_run_between_two_processes(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    script = tmp_path / "launched.py"
    script.write_text(LAUNCHED)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "RANKS 2 KINDS all_gather all_reduce all_to_all p2p reduce_scatter SKIPPED 0" in done.stdout

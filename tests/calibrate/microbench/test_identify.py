"""Which part a device is, and which it cannot be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.calibrate.microbench.machine import H100, FormulaBackend

from shardplan.base.errors import InputError
from shardplan.calibrate.microbench.records import TimedDevice
from shardplan.calibrate.microbench.run import accelerator_of, check_part, measure_on


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
    device = TimedDevice(kind="cuda", name=name, memory_bytes=int(gib * 2**30), num_cores=cores)
    assert accelerator_of(device) == expected


def test_a_processor_is_no_accelerator() -> None:
    assert accelerator_of(TimedDevice(kind="cpu", name="H100 fan club", memory_bytes=10**11, num_cores=132)) is None


CPU = TimedDevice(kind="cpu", name="AMD EPYC", memory_bytes=80 * 10**9, num_cores=2)


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
def test_a_part_that_the_device_cannot_be_is_refused(device: TimedDevice, accelerator: str, words: str) -> None:
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

"""The calls of torch; real kernels run where it is installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.calibrate.microbench.machine import H100, number

from shardplan.base.errors import InputError
from shardplan.calibrate.microbench import torch_backend
from shardplan.calibrate.microbench.measured import outcome_of, profile_from, write_profile
from shardplan.calibrate.microbench.records import Product
from shardplan.calibrate.microbench.run import run_microbenchmark
from shardplan.calibrate.microbench.torch_backend import Effort
from shardplan.inputs.profile import Constant, load_profile


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
        torch_backend.pick_device(NoGpu, name)
    assert torch_backend.pick_device(NoGpu, None) == "cpu"


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
        torch_backend.ranks_of_launch()


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
    monkeypatch.setattr("shardplan.calibrate.microbench.torch_backend.SETTLE_TIME", 0.01)
    quick = Effort(warm_up_time=0, series_time=1e-3, num_series=3, most_calls=5, limit=0)
    monkeypatch.setattr("shardplan.calibrate.microbench.torch_backend._effort", lambda *_: quick)
    monkeypatch.setenv("LOCAL_RANK", "1")
    measurements = run_microbenchmark(sizes="small")
    assert measurements.skipped == ()
    assert measurements.accelerator == "h100-sxm-80gb"
    assert {case.precision for case, _ in measurements.of(Product)} == {"bf16", "fp16", "tf32", "fp32", "fp8"}
    assert {timing.time for case, timing in measurements.of(Product)} == {3e-3}
    with pytest.raises(InputError, match=r"is not one of cpu, cuda:0, cuda:1"):
        run_microbenchmark(device="cuda:2", sizes="small")


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
from shardplan.calibrate.microbench import run_microbenchmark
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

"""Timing kernels and collectives with torch: the device, its clocks, and as many series as it takes.

What else runs on a machine only adds time: the fast series are those that it disturbed least.
"""

from __future__ import annotations

import math
import os
import platform
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np

from shardplan.base.errors import InputError
from shardplan.base.fields import dataclass
from shardplan.calibrate.microbench.records import Case, Exchange, Host, Ranks, Sizes, TimedDevice, Timing
from shardplan.calibrate.microbench.torch_kernels import Call, Exchanges, call_of

QUANTILE: Final = 0.2
"""Of the series, which stands for a case."""
Elapsed = Callable[[int], float]
"""Seconds that this number of calls takes, all work of the device included."""
SETTLE_TIME = 2.0
"""A GPU multiplies large matrices this long before anything is timed, so that its clock is the one it sustains. [s]"""
MOST_CYCLES_PER_SECOND = 2.5e9
"""Of any GPU: a delay counted in cycles lasts at least as long as asked for."""
LONGEST_DELAY = 0.2
"""Of the device, while the host queues calls. [s]"""
EXCHANGE_DELAY = 5e-3
"""The same before collectives. [s]"""
INSTALL: Final = "pip install 'shardplan[microbench]'"


class TorchBackend:
    """The device that torch sees, and under torchrun the other processes."""

    def __init__(self, device: str | None, sizes: Sizes) -> None:
        self._torch = import_torch()
        self.ranks, self.rank = ranks_of_launch()
        self._where = pick_device(self._torch, device)
        self.device = describe(self._torch, self._where)
        self.software = f"torch {self._torch.__version__}"
        self._effort = _effort(self.device.kind, sizes)
        if self.device.kind == "cuda":
            self._torch.cuda.set_device(self._where)
            self._settle()
        self._exchanges = Exchanges(self._torch, self._where, self.ranks) if self.ranks.total > 1 else None

    def precisions(self) -> Sequence[str]:
        """Number formats in which the device multiplies matrices."""
        return available_precisions(self._torch, self._where)

    def time(self, case: Case) -> Timing:
        """Time of one call. Raises ``RuntimeError`` where the device cannot run the case."""
        if isinstance(case, Exchange):
            assert self._exchanges is not None
            call, num_calls = self._exchanges.call_of(case)
            clock = self._wall_clock(call) if self.device.kind == "cpu" else self._device_clock(call, together=True)
            return measure_together(clock, num_calls=num_calls, num_series=self._effort.num_series)
        call = call_of(self._torch, self._where, case)
        is_host = isinstance(case, Host) or self.device.kind == "cpu"
        return measure(self._wall_clock(call) if is_host else self._device_clock(call), self._effort)

    def close(self) -> None:
        """Leaves the group of processes."""
        if self._exchanges is not None:
            self._exchanges.close()

    def _wall_clock(self, call: Call) -> Callable[[int], float]:
        def elapsed(num_calls: int) -> float:
            self._wait()
            start = time.perf_counter()
            for _ in range(num_calls):
                call()
            self._wait()
            return time.perf_counter() - start

        return elapsed

    def _device_clock(self, call: Call, *, together: bool = False) -> Callable[[int], float]:
        """Time on the device alone: it is kept busy while the host queues the calls, so that no gap is timed.

        ``together``: all processes delay alike, and one more call aligns them before the clock starts.
        """
        cuda = self._torch.cuda
        begin, end = (cuda.Event(enable_timing=True) for _ in range(2))
        issue_time = 0.0

        def elapsed(num_calls: int) -> float:
            nonlocal issue_time
            self._wait()
            delay = getattr(cuda, "_sleep", None)  # not public; without it small kernels show the host's time
            if delay is not None:
                wanted = EXCHANGE_DELAY if together else min(2 * issue_time * num_calls, LONGEST_DELAY)
                delay(int(wanted * MOST_CYCLES_PER_SECOND) + 1)
            if together:
                call()
            begin.record()
            start = time.perf_counter()
            for _ in range(num_calls):
                call()
            issue_time = (time.perf_counter() - start) / num_calls
            end.record()
            end.synchronize()
            return float(begin.elapsed_time(end)) * 1e-3

        return elapsed

    def _wait(self) -> None:
        if self.device.kind == "cuda":
            self._torch.cuda.synchronize(self._where)

    def _settle(self) -> None:
        a = self._torch.randn(8192, 8192, device=self._where, dtype=self._torch.float16)
        end = time.perf_counter() + SETTLE_TIME
        while time.perf_counter() < end:
            for _ in range(10):
                a @ a
            self._wait()


def _effort(kind: str, sizes: Sizes) -> Effort:
    full = sizes == "full"
    if kind == "cpu":
        return Effort(
            warm_up_time=0.02 if full else 0.003,
            series_time=0.02 if full else 0.003,
            num_series=21 if full else 15,
            most_calls=1000,
            limit=2.0 if full else 0.5,
        )
    return Effort(
        warm_up_time=0.2 if full else 0.05,
        series_time=0.05 if full else 0.02,
        num_series=11 if full else 7,
        most_calls=100,  # a call may be several kernels, and about a thousand are queued
        limit=4.0 if full else 1.5,
    )


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How long to look at one case."""

    warm_up_time: float
    """Calls are repeated at least this long before the first series. [s]"""
    series_time: float
    """Length of one series. [s]"""
    num_series: int
    most_calls: int
    """Calls in one series; a device queues that many without waiting for the host."""
    limit: float
    """After this long no further series begins. [s]"""


def measure(elapsed: Elapsed, effort: Effort) -> Timing:
    """Time of one call. The first call pays for compilation and memory; clocks settle while warming up."""
    start = time.perf_counter()
    elapsed(1)
    once = elapsed(1)
    while time.perf_counter() - start < effort.warm_up_time:
        once = min(once, elapsed(1))
    num_calls = math.ceil(min(max(effort.series_time / max(once, 1e-9), 1), effort.most_calls))
    series: list[float] = []
    while len(series) < effort.num_series and (len(series) < 3 or time.perf_counter() - start < effort.limit):
        series.append(elapsed(num_calls) / num_calls)
    return _timing(series)


def measure_together(elapsed: Elapsed, *, num_calls: int, num_series: int) -> Timing:
    """Time of one call that several processes make together: the number of calls may not depend on their clocks."""
    elapsed(2)
    return _timing([elapsed(num_calls) / num_calls for _ in range(num_series)])


def _timing(series: list[float]) -> Timing:
    low = float(np.quantile(series, QUANTILE))
    lower, upper = np.quantile(series, [0.25, 0.75])
    return Timing(time=low, spread=float(upper - lower) / low if low > 0 else 0.0, num_series=len(series))


def import_torch() -> Any:
    """The torch module. Raises ``InputError`` where it is missing or broken."""
    try:
        return import_module("torch")
    except (ImportError, OSError) as error:
        raise InputError(
            f"the micro-benchmark runs its kernels with torch, which cannot be imported: {error}",
            rule="torch is installed",
            hint=f"{INSTALL}, or the build of torch that suits your accelerator",
        ) from error


def pick_device(torch: Any, name: str | None) -> Any:
    """The torch device called ``name``; under torchrun the process's own. Raises ``InputError``."""
    has_gpu = bool(torch.cuda.is_available())
    if name is None:
        name = "cuda" if has_gpu else "cpu"
    known = ["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count() if has_gpu else 0))]
    chosen = f"cuda:{_environment('LOCAL_RANK', 0)}" if name == "cuda" and has_gpu else name
    if chosen not in known:
        raise InputError(
            f"device {chosen!r:.60} is not one of {', '.join(known)}",
            rule="the micro-benchmark runs on a device that torch sees",
            hint=f"choose one of {', '.join(known)}",
        )
    return torch.device(chosen)


def describe(torch: Any, device: Any) -> TimedDevice:
    """What the driver says of the device."""
    if device.type == "cuda":
        found = torch.cuda.get_device_properties(device)
        return TimedDevice(
            kind="cuda",
            name=str(found.name),
            memory_bytes=int(found.total_memory),
            num_cores=int(found.multi_processor_count),
        )
    return TimedDevice(
        kind="cpu", name=_processor(), memory_bytes=_host_memory(), num_cores=int(torch.get_num_threads())
    )


def available_precisions(torch: Any, device: Any) -> tuple[str, ...]:
    """Number formats worth timing: on a CPU those of its fast kernels, on a GPU those of its matrix units."""
    if device.type == "cpu":
        return ("bf16", "fp32")
    major, minor = torch.cuda.get_device_capability(device)
    if getattr(torch.version, "hip", None):
        return ("bf16", "fp16", "fp32", *(("fp8",) if (major, minor) >= (9, 5) else ()))
    names = ["fp16", "fp32"]
    if major >= 8:
        names = ["bf16", "fp16", "tf32", "fp32"]
    if (major, minor) >= (8, 9) and hasattr(torch, "float8_e4m3fn") and hasattr(torch, "_scaled_mm"):
        names.append("fp8")
    return tuple(names)


def ranks_of_launch() -> tuple[Ranks, int]:
    """Processes that torchrun started, and which of them this is. Raises ``InputError``."""
    total = _environment("WORLD_SIZE", 1)
    per_node = _environment("LOCAL_WORLD_SIZE", total)
    rank = _environment("RANK", 0)
    if total < 1 or per_node < 1 or total % per_node or not 0 <= rank < total:
        raise InputError(
            f"WORLD_SIZE {total}, LOCAL_WORLD_SIZE {per_node}, RANK {rank} do not fit together",
            rule="every node runs the same number of processes",
            hint="start with torchrun, the same --nproc-per-node on every node",
        )
    return Ranks(total=total, per_node=per_node), rank


def _environment(name: str, default: int) -> int:
    text = os.environ.get(name, "")
    try:
        return int(text) if text else default
    except ValueError as error:
        raise InputError(
            f"the environment has {name}={text!r:.60}", rule=f"{name} is a whole number", hint="start with torchrun"
        ) from error


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or platform.machine() or "CPU"


def _host_memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 1

"""Timing kernels and collectives with torch."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from shardplan.calibration.microbench.cases import Sizes
from shardplan.calibration.microbench.records import Case, Exchange, Host, Timing
from shardplan.calibration.microbench.timing import Effort, measure, measure_together
from shardplan.calibration.microbench.torch_device import (
    available_precisions,
    describe,
    import_torch,
    pick_device,
    ranks_of_launch,
)
from shardplan.calibration.microbench.torch_exchanges import Exchanges
from shardplan.calibration.microbench.torch_kernels import Call, call_of

SETTLE_TIME = 2.0
"""A GPU multiplies large matrices this long before anything is timed, so that its clock is the one it sustains. [s]"""
MOST_CYCLES_PER_SECOND = 2.5e9
"""Of any GPU: a delay counted in cycles lasts at least as long as asked for."""
LONGEST_DELAY = 0.2
"""Of the device, while the host queues calls. [s]"""
EXCHANGE_DELAY = 5e-3
"""The same before collectives. [s]"""


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

"""A machine that obeys the formulas of the documentation, to be timed in place of a real one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from shardplan.calibrate.microbench.records import (
    Case,
    Exchange,
    Host,
    MemoryPass,
    Product,
    Ranks,
    TimedAttention,
    TimedDevice,
    Timing,
)
from shardplan.inputs.profile import Constant, load_profile

H100 = TimedDevice(kind="cuda", name="NVIDIA H100 80GB HBM3", memory_bytes=84_930_000_000, num_cores=132)


PEAK = {"bf16": 989e12, "fp16": 989e12, "tf32": 494.5e12, "fp32": 67e12, "fp8": 1979e12}


HBM = 3350e9


ELEMENT = {"bf16": 2, "fp16": 2, "tf32": 4, "fp32": 4, "fp8": 1}


@dataclass(kw_only=True)
class FormulaBackend:
    """A machine that obeys the formulas of the documentation, written out here once more."""

    device: TimedDevice = H100
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
            case TimedAttention():
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
        large = {precision: share * PEAK[precision] for precision, share in self.efficiency.items()}
        rate = large[case.precision] * k / (k + self.half_depth * large[case.precision] / large["bf16"])
        moved = (m * k + k * n + m * n) * ELEMENT[case.precision]
        return self.launch + max(2 * m * n * k * slower / rate, moved / (self.hbm_share * HBM))

    def _attention(self, case: TimedAttention) -> float:
        s, d = case.sequence_length, case.head_dim
        flops = 2 * case.batch_size * s * case.num_heads * (s / 2) * 2 * d
        rate = (
            self.attention * (min(d, 128) / 128) ** self.exponent * s / (s + self.half_sequence) * PEAK[case.precision]
        )
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
        else:
            bytes_near += 0.45 / case.size / share  # every rank copies its own chunk once
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

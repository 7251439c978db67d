"""Parts and networks that nobody describes, as fast as the fastest case: enough to fit shapes and fixed times."""

from __future__ import annotations

from typing import Final, assert_never

from shardplan.calibration.microbench.records import Exchange, Host, Measurements, MemoryPass, Product, TimedAttention
from shardplan.inputs.cluster import Accelerator, Cluster, NetworkTier
from shardplan.workload.ops import AttentionCore

UNKNOWN: Final = "unknown"


def stand_in_part(measurements: Measurements) -> Accelerator:
    """A part whose peaks are the best rates that were timed; its efficiencies mean nothing."""
    peaks: dict[str, float] = {}
    bandwidth = 1.0
    for sample in measurements.samples:
        case, time = sample.case, sample.timing.time
        match case:
            case Product():
                peaks[case.precision] = max(peaks.get(case.precision, 0.0), 2.0 * case.m * case.k * case.n / time)
            case TimedAttention():
                rate = float(attention_core(case).flops) / time
                peaks[case.precision] = max(peaks.get(case.precision, 0.0), rate)
            case MemoryPass():
                bandwidth = max(bandwidth, case.bytes / time)
            case Host() | Exchange():
                pass
            case _:
                assert_never(case)
    device = measurements.device
    return Accelerator(
        name=UNKNOWN,
        full_name=device.name,
        vendor="",
        generation="other",
        memory_bytes=device.memory_bytes,
        memory_bandwidth=bandwidth,
        peak_flops=peaks or {"bf16": 1.0},
        num_cores=device.num_cores,
    )


def stand_in_cluster(measurements: Measurements, part: Accelerator) -> Cluster:
    """A network whose links carry the best rate that was timed and whose hops take no time; its rates mean nothing."""
    samples = measurements.of(Exchange)
    per_node = max(case.stride for case, _ in samples)
    rates = {
        is_near: max(
            (case.bytes / timing.time for case, timing in samples if _is_near(case, per_node) == is_near), default=1.0
        )
        for is_near in (True, False)
    }
    inner = [_tier("node", per_node, rates[True])] if per_node > 1 else []
    outer = _tier("cluster", None, rates[per_node == 1])
    return Cluster(
        name=UNKNOWN,
        full_name=UNKNOWN,
        accelerator=part,
        tiers=(*inner, outer),
        accelerators_per_node=per_node if per_node > 1 else measurements.num_ranks,
    )


def _is_near(case: Exchange, per_node: int) -> bool:
    """Whether an exchange stays inside a node; where no group strides over nodes there is one."""
    return per_node == 1 or (case.stride == 1 and case.size <= per_node)


def _tier(name: str, size: int | None, bandwidth: float) -> NetworkTier:
    return NetworkTier(name=name, size=size, bandwidth=bandwidth, latency=0.0, kind=UNKNOWN)


def attention_core(case: TimedAttention) -> AttentionCore:
    """The operator of the estimate that a case times."""
    length = float(case.sequence_length)
    return AttentionCore(
        name="attention",
        modules=(),
        tokens=case.batch_size * length,
        num_heads=case.num_heads,
        qk_head_dim=case.head_dim,
        v_head_dim=case.head_dim,
        keys=length / 2,
        scored_keys=length,
        rate_length=length,
    )

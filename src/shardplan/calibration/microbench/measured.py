"""From a record of timings to constants of a profile, each with its origin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Final, assert_never

from shardplan.arrays import Numbers
from shardplan.calibration.microbench.fitting import Found, Solution, free, solve
from shardplan.calibration.microbench.records import (
    Attention,
    Device,
    Exchange,
    Host,
    Measurements,
    MemoryPass,
    Product,
)
from shardplan.costs.collectives import Group, Network, collective_time
from shardplan.costs.roofline import Machine, operator_times
from shardplan.inputs.batch import Digit
from shardplan.inputs.catalog import cluster_of_accelerator, load_accelerator
from shardplan.inputs.cluster import Accelerator, Cluster
from shardplan.inputs.documents import Document, parse_document
from shardplan.inputs.hardware_files import DATA
from shardplan.inputs.job import Recipe
from shardplan.inputs.profile import Constant, Profile
from shardplan.workload.ops import AttentionCore, Matmul, Pass

__all__ = ["LAYER_OPERATORS", "LAYER_PRODUCTS", "profile_from"]

LAYER_OPERATORS: Final = 9
"""Operators of the estimate in one dense Llama layer, forward: the host's time is charged by them."""
LAYER_PRODUCTS: Final = 4
RATES: Final = ("matmul_efficiency", "attention_efficiency", "memory_efficiency", "network_efficiency")
"""Constants relative to a nominal peak, which only the catalogue knows."""
ELEMENT_BYTES: Final = {"fp8": 1.0, "bf16": 2.0, "fp16": 2.0}


def profile_from(
    measurements: Measurements, base_profile: Profile, *, cluster: Cluster | None = None
) -> dict[str, Constant]:
    """Constants that the timings determine; all others are those of ``base_profile``, the accelerator's generation's.

    ``cluster``: what the collectives ran on, the usual cluster of the accelerator by default. Without a part of the
    catalogue, rates relative to a peak and collectives are left out. Raises ``InputError``.
    """
    known = load_accelerator(measurements.accelerator) if measurements.accelerator else None
    part = known or _stand_in(measurements)
    passes = _fit_passes(measurements, base_profile, part)
    solutions = [
        passes,
        _fit_products(measurements, passes.profile, part),
        _fit_attention(measurements, passes.profile, part),
    ]
    if known is not None and measurements.of(Exchange):
        network = cluster or cluster_of_accelerator(str(measurements.accelerator))
        solutions.append(_fit_exchanges(measurements, base_profile, network))
    constants: dict[str, Constant] = {}
    for solution in solutions:
        for (name, key), found in solution.found.items():
            if known is not None or name not in RATES:
                constants[name] = _added(
                    constants.get(name),
                    _constant(name, key, found, solution=solution, measurements=measurements, part=part),
                )
    return _described(constants, base_profile) | _host_constant(measurements, base_profile)


@cache
def _rules() -> Document:
    path = DATA / "microbenchmark.yaml"
    return parse_document(path.read_text(encoding="utf-8"), label=path.name, is_trusted=True)


def _fit_passes(measurements: Measurements, base: Profile, part: Accelerator) -> Solution:
    ideal = replace(base, memory_pass_factor=dict.fromkeys(base.memory_pass_factor, 1.0))
    samples = measurements.of(MemoryPass)
    operators = [
        Pass(name=case.operation, modules=(), forward_bytes=case.bytes, backward_bytes=0) for case, _ in samples
    ]

    def predict(profile: Profile) -> list[Numbers]:
        machine = _machine(part, profile, "bf16")
        return [operator_times(operator, machine)[0] for operator in operators]

    frees = [free(ideal, name, _rules()["free"][name]) for name in ("memory_efficiency", "memory_pass_latency")]
    return solve(ideal, frees, predict, [timing.time for _, timing in samples])


def _fit_products(measurements: Measurements, base: Profile, part: Accelerator) -> Solution:
    samples = [(case, timing) for case, timing in measurements.of(Product) if case.precision in part.peak_flops]
    names = ["matmul_launch_time", "matmul_half_depth"]
    if measurements.device.kind == "cpu":  # no waves of tiles
        base = replace(base, matmul_wave_weight=0.0)
    else:
        names.append("matmul_wave_weight")
    spreads = _rules()["free"]
    frees = [free(base, name, spreads[name]) for name in names]
    precisions = dict.fromkeys(case.precision for case, _ in samples)
    frees += [free(base, "matmul_efficiency", spreads["matmul_efficiency"], key=name) for name in precisions]

    def predict(profile: Profile) -> list[Numbers]:
        return [
            operator_times(
                Matmul(name="product", modules=(), m=case.m, k=case.k, n=case.n),
                _machine(part, profile, case.precision),
            )[0]
            for case, _ in samples
        ]

    return solve(base, frees, predict, [timing.time for _, timing in samples])


def _fit_attention(measurements: Measurements, base: Profile, part: Accelerator) -> Solution:
    samples = [(case, timing) for case, timing in measurements.of(Attention) if case.precision in part.peak_flops]
    names = [
        "attention_efficiency",
        "attention_half_sequence",
        "attention_head_dim_exponent",
        "attention_backward_ratio",
    ]
    frees = [free(base, name, _rules()["free"][name]) for name in names]

    def predict(profile: Profile) -> list[Numbers]:
        return [
            operator_times(_core(case), _machine(part, profile, case.precision))[case.direction == "backward"]
            for case, _ in samples
        ]

    return solve(base, frees, predict, [timing.time for _, timing in samples])


def _fit_exchanges(measurements: Measurements, base: Profile, cluster: Cluster) -> Solution:
    samples, world = measurements.of(Exchange), measurements.num_ranks
    spreads = _rules()["free"]
    tiers = Network.of(cluster, world, base).tiers
    frees = [free(base, "collective_launch_time", spreads["collective_launch_time"])]
    links = dict.fromkeys(tier.link_type for tier in tiers)
    frees += [free(base, "network_efficiency", spreads["network_efficiency"], key=link) for link in links]
    if len(tiers) > 1:
        frees += [free(base, name, spreads[name]) for name in ("all_to_all_efficiency", "p2p_efficiency")]

    def predict(profile: Profile) -> list[Numbers]:
        network = Network.of(cluster, world, profile)
        return [
            collective_time(case.operation, case.bytes, Group.of((Digit(case.size, case.stride),), network), network)
            for case, _ in samples
        ]

    return solve(base, frees, predict, [timing.time for _, timing in samples])


def _machine(part: Accelerator, profile: Profile, precision: str) -> Machine:
    element = ELEMENT_BYTES.get(precision, 4.0)
    recipe = Recipe(
        matmul=precision,
        dense_math=precision,
        weight_bytes=element,
        quantised_weight_bytes=0.0,
        master_bytes=0.0,
        activation_bytes=element,
        linear_input_bytes=element,
    )
    return Machine(accelerator=part, profile=profile, recipe=recipe)


def _core(case: Attention) -> AttentionCore:
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


def _stand_in(measurements: Measurements) -> Accelerator:
    """A part whose peaks are the best rates that were timed: enough to fit shapes; its efficiencies mean nothing."""
    peaks: dict[str, float] = {}
    bandwidth = 1.0
    for sample in measurements.samples:
        case, time = sample.case, sample.timing.time
        match case:
            case Product():
                peaks[case.precision] = max(peaks.get(case.precision, 0.0), 2.0 * case.m * case.k * case.n / time)
            case Attention():
                peaks[case.precision] = max(peaks.get(case.precision, 0.0), float(_core(case).flops) / time)
            case MemoryPass():
                bandwidth = max(bandwidth, case.bytes / time)
            case Host() | Exchange():
                pass
            case _:
                assert_never(case)
    device: Device = measurements.device
    return Accelerator(
        name="unknown",
        full_name=device.name,
        vendor="",
        generation="other",
        memory_bytes=device.memory_bytes,
        memory_bandwidth=bandwidth,
        peak_flops=peaks or {"bf16": 1.0},
        num_cores=device.num_cores,
    )


def _constant(
    name: str, key: str, found: Found, *, solution: Solution, measurements: Measurements, part: Accelerator
) -> Constant:
    """A constant as training sees it: what the kernel alone reaches, times the share of it that steps reach."""
    rule = _rules()["in_training"].get(name)
    source = f"{_origin(measurements)}, {solution.num_samples} shapes, residual {solution.residual:.1%}"
    value, sd = found.value, found.sd
    if rule is not None:
        shares: Mapping[str, float] = rule["value"]
        share = shares.get(key if name == "network_efficiency" else part.generation, shares["other"])
        source += f"; {value:.3g} for {key or 'the kernel'} alone times {share:g} in training ({rule['source']})"
        value, sd = value * share, (sd**2 + rule["sd"] ** 2) ** 0.5
    value, sd = _rounded(value), _rounded(max(sd, 0.005))
    return Constant(value={key: value} if key else value, unit="", source=source, sd={key: sd} if key else sd)


def _added(table: Constant | None, entry: Constant) -> Constant:
    """One more key of a table."""
    if table is None:
        return entry
    assert isinstance(table.value, dict)
    assert isinstance(entry.value, dict)
    assert isinstance(table.sd, dict)
    assert isinstance(entry.sd, dict)
    clause = entry.source.partition("; ")[2]
    source = f"{table.source.partition(' (')[0]}, {clause}" if clause else table.source
    return replace(table, value=table.value | entry.value, sd=table.sd | entry.sd, source=source)


def _described(constants: dict[str, Constant], base: Profile) -> dict[str, Constant]:
    """The constants with the units that the base profile states."""
    return {
        name: replace(constant, unit=base.constants[name].unit if name in base.constants else "")
        for name, constant in constants.items()
    }


def _host_constant(measurements: Measurements, base: Profile) -> dict[str, Constant]:
    """Host time of an eager operator; backward issues as many kernels as forward, and the products twice."""
    timed = [timing for case, timing in measurements.of(Host) if case.operation == "layer"]
    if not timed:
        return {}
    rule = _rules()["kernel_launch_time"]
    bare = timed[0].time / (2 * LAYER_OPERATORS + LAYER_PRODUCTS)
    usual = float(base.kernel_launch_time["eager"])
    source = f"{_origin(measurements)}: {bare:.2g} s per operator of a bare layer"
    if bare < usual:
        source += f"; {usual:.2g} s of the base profile kept: {rule['source']}"
    constant = Constant(
        value={"eager": _rounded(max(bare, usual))}, unit="s", source=source, sd={"eager": float(rule["sd"])}
    )
    return {"kernel_launch_time": constant}


def _origin(measurements: Measurements) -> str:
    return f"measured on {measurements.device.name} with {measurements.software}, {measurements.date}"


def _rounded(value: Any) -> float:
    return float(f"{value:.4g}")

"""The estimate's own formulas fitted to the timings of each kind of kernel, by least squares with priors."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Final

import numpy as np

from shardplan.base.arrays import Numbers
from shardplan.base.fields import dataclass
from shardplan.base.files import DATA, Document, shipped_document
from shardplan.calibrate.fit import Evidence, Free, Vector, fit
from shardplan.calibrate.microbench.records import (
    Exchange,
    Kernel,
    Measurements,
    MemoryPass,
    Product,
    TimedAttention,
    Timing,
    alike_of,
)
from shardplan.inputs.cluster import Accelerator, Cluster, NetworkTier
from shardplan.inputs.job import PRECISIONS, Recipe
from shardplan.inputs.plan_numbers import Digit
from shardplan.inputs.profile import Profile
from shardplan.physics.costs.collectives import Group, collective_time
from shardplan.physics.costs.network import Network
from shardplan.physics.costs.roofline import Machine, operator_times

Samples = Sequence[tuple[Kernel | Exchange, Timing]]
UNKNOWN: Final = "unknown"
ELEMENT_BYTES: Final = {"fp8": 1.0, "bf16": 2.0, "fp16": 2.0}
ATTENTION: Final = (
    "attention_efficiency",
    "attention_half_sequence",
    "attention_head_dim_exponent",
    "attention_backward_ratio",
)
WELL_DETERMINED = 0.7
"""A constant whose uncertainty the timings leave above this share of what it was before is not reported."""
USUAL_RESIDUAL = 0.054
"""Median of |ln(predicted / measured)| that fits expect; where formulas miss by more, constants are less sure."""
SHARES = ("matmul_wave_weight",)
"""Constants between zero and one that move in their log-odds."""
MOST_USUAL_SPREAD: Final = 1.0
"""Spread of the middle case of a kind above which even its fast series are not believed."""
MOST_RESIDUAL: Final = 0.3
"""Median error of the formulas at the optimum above which their constants are not believed."""
LEAST_GROWTH: Final = 0.3
"""Growth of the times with the work, as an exponent, below which they are those of something else (a time slice)."""
LEAST_GROWTH_OF_EXCHANGES: Final = 0.15
"""The same of collectives, whose latency rules up to a megabyte."""
LEAST_RANGE: Final = 4.0
"""Ratio of the most to the least work within which growth is not looked at."""


@dataclass(frozen=True)
class Found:
    """A constant that the timings determine."""

    value: float
    sd: float
    """Standard deviation of its logarithm (log-odds of a share)."""


@dataclass(frozen=True, kw_only=True)
class Solution:
    """What a fit found."""

    profile: Profile
    """The profile at the optimum."""
    found: dict[tuple[str, str], Found]
    """Constants by name and key of the table (empty for a number), those alone that the timings determine."""
    undetermined: tuple[tuple[str, str], ...]
    """Those that were free and that the timings leave about as uncertain as they were."""
    residual: float
    """Median of \\|predicted / measured - 1\\|."""
    num_samples: int


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """Constants of one kind of kernel."""

    kernels: str
    """What was timed as text."""
    solution: Solution
    doubt: str | None
    """Why the solution is not believed; None: it is."""
    profile: Profile
    """The profile at the optimum, or the base where that is not believed."""

    @property
    def places(self) -> tuple[tuple[str, str], ...]:
        """Name and key of every constant that was free."""
        return (*self.solution.found, *self.solution.undetermined)


@cache
def rules() -> Document:
    """How far constants may move, and what training reaches of a kernel's rate."""
    return shipped_document(DATA / "microbenchmark.yaml")


def fit_passes(measurements: Measurements, base: Profile, part: Accelerator) -> Fitted:
    """Bandwidth and latency of memory-bound kernels."""
    ideal = replace(base, memory_pass_factor=dict.fromkeys(base.memory_pass_factor, 1.0))
    frees = _frees(ideal, "memory_efficiency", "memory_pass_latency")
    return _fitted_kernels("memory passes", ideal, frees, part, measurements.of(MemoryPass))


def fit_products(measurements: Measurements, base: Profile, part: Accelerator) -> Fitted:
    """Rate of matrix products by number format, and how it falls with their shape."""
    samples = [(case, timing) for case, timing in measurements.of(Product) if case.precision in part.peak_flops]
    names = ["matmul_launch_time", "matmul_half_depth"]
    if measurements.device.kind == "cpu":  # no waves of tiles
        base = replace(base, matmul_wave_weight=0.0)
    else:
        names.append("matmul_wave_weight")
    precisions = dict.fromkeys(case.precision for case, _ in samples)
    frees = [*_frees(base, *names), *_frees(base, "matmul_efficiency", keys=tuple(precisions))]
    return _fitted_kernels("matrix products", base, frees, part, samples)


def fit_attention(measurements: Measurements, base: Profile, part: Accelerator) -> Fitted:
    """Rate of fused attention, and how it falls with length and head dimension."""
    samples = [(case, timing) for case, timing in measurements.of(TimedAttention) if case.precision in part.peak_flops]
    return _fitted_kernels("attention", base, _frees(base, *ATTENTION), part, samples)


def fit_exchanges(measurements: Measurements, base: Profile, cluster: Cluster) -> Fitted:
    """Achieved bandwidths of the network and the fixed time of a collective."""
    samples, world = measurements.of(Exchange), measurements.num_ranks
    tiers = Network.of(cluster, world, base).tiers
    links = dict.fromkeys(tier.link_type for tier in tiers)
    frees = [*_frees(base, "collective_launch_time"), *_frees(base, "network_efficiency", keys=tuple(links))]
    if len(tiers) > 1:
        frees += _frees(base, "all_to_all_efficiency", "p2p_efficiency")

    def predict(profile: Profile) -> list[Numbers]:
        network = Network.of(cluster, world, profile)
        return [
            collective_time(case.operation, case.bytes, Group.of((Digit(case.size, case.stride),), network), network)
            for case, _ in samples
        ]

    return _fitted("collectives", base, frees, predict, samples)


def _frees(base: Profile, *names: str, keys: Sequence[str] = ("",)) -> list[Free]:
    """The constants ``names`` of ``base`` (or ``keys`` of them) as ones that may move."""
    tables = {name: getattr(base, name) for name in names}
    return [
        Free(
            base.name,
            name,
            (key,) if key else (),
            (float(table.get(key, table.get("other", 0.5)) if key else table),),
            rules()["free"][name],
            name in SHARES,
        )
        for name, table in tables.items()
        for key in keys
    ]


def _fitted_kernels(
    kernels: str, base: Profile, frees: Sequence[Free], part: Accelerator, samples: Sequence[tuple[Kernel, Timing]]
) -> Fitted:
    """A fit of kernels that run on one part."""

    def predict(profile: Profile) -> list[Numbers]:
        return [_kernel_time(case, part, profile) for case, _ in samples]

    return _fitted(kernels, base, frees, predict, samples)


def _kernel_time(case: Kernel, part: Accelerator, profile: Profile) -> Numbers:
    """Time of a kernel by the formulas of the estimate. [s]"""
    precision = "bf16" if isinstance(case, MemoryPass) else case.precision
    element = ELEMENT_BYTES.get(precision, 4.0)
    recipe = Recipe(
        matmul=precision,
        dense_math=PRECISIONS[precision].dense_math if precision in PRECISIONS else precision,
        weight_bytes=element,
        quantised_weight_bytes=0.0,
        master_bytes=0.0,
        activation_bytes=element,
        linear_input_bytes=element,
    )
    forward, backward = operator_times(case.operator, Machine(accelerator=part, profile=profile, recipe=recipe))[:2]
    return backward if isinstance(case, TimedAttention) and case.direction == "backward" else forward


def _fitted(
    kernels: str,
    base: Profile,
    frees: Sequence[Free],
    predict: Callable[[Profile], Sequence[Numbers]],
    samples: Samples,
) -> Fitted:
    solution = solve(base, frees, predict, [timing.time for _, timing in samples])
    reason = doubt(solution, samples) if samples else None
    return Fitted(kernels=kernels, solution=solution, doubt=reason, profile=base if reason else solution.profile)


def solve(
    base: Profile, frees: Sequence[Free], predict: Callable[[Profile], Sequence[Numbers]], times: Sequence[float]
) -> Solution:
    """Fits ``frees``. ``predict``: times of all samples under a profile whose constants may be arrays."""
    if not times:
        return Solution(profile=base, found={}, undetermined=(), residual=0.0, num_samples=0)
    measured = np.log(np.asarray(times))

    def residuals(theta: Vector) -> Vector:
        moved = _with(base, {_place(one): one.at(theta[:, column])[0] for column, one in enumerate(frees)})
        rows = [np.broadcast_to(np.log(time), len(theta)) for time in predict(moved)]
        return np.stack(rows) - measured[:, None]

    # Every sample is a family of its own: they err independently, unlike runs of one team.
    own = tuple(str(index) for index in range(len(times)))
    best = fit(frees, Evidence(residuals=residuals, families=own, tier_weights=np.ones(len(times))))
    residual = float(np.median(np.abs(best.residuals[:, 0])))
    uncertain = best.sd * max(1.0, residual / USUAL_RESIDUAL)
    places = [_place(one) for one in frees]
    found = {
        place: Found(float(one.at(move)[0]), float(sd))
        for place, one, move, sd in zip(places, frees, best.theta[0], uncertain, strict=True)
        if sd < WELL_DETERMINED * one.sd
    }
    return Solution(
        profile=_with(base, {key: entry.value for key, entry in found.items()}),
        found=found,
        undetermined=tuple(place for place in places if place not in found),
        residual=float(np.expm1(residual)),
        num_samples=len(times),
    )


def _place(one: Free) -> tuple[str, str]:
    """Name and key of the table (empty for a number)."""
    return one.name, one.keys[0] if one.keys else ""


def _with(base: Profile, values: dict[tuple[str, str], Any]) -> Profile:
    changed: dict[str, Any] = {}
    for (name, key), value in values.items():
        changed[name] = {**changed.get(name, getattr(base, name)), key: value} if key else value
    return replace(base, **changed)


def doubt(solution: Solution, samples: Samples) -> str | None:
    """Why the constants of a fit are not to be believed; None where nothing speaks against them."""
    exponent, least = growth(samples), LEAST_GROWTH
    if any(isinstance(case, Exchange) for case, _ in samples):
        least = LEAST_GROWTH_OF_EXCHANGES
    if exponent is not None and exponent < least:
        return f"times hardly grow with the work (exponent {exponent:.2f}, at least {least:g} is believed)"
    if solution.residual > MOST_RESIDUAL:
        return f"the formulas miss the timings by {solution.residual:.0%} in the median (at most {MOST_RESIDUAL:.0%})"
    if np.median([timing.spread for _, timing in samples]) > MOST_USUAL_SPREAD:
        return f"more than half of the timings vary by more than {MOST_USUAL_SPREAD:.0%}"
    return None


def growth(samples: Samples) -> float | None:
    """Slope of ln(time) over ln(work) within groups of like cases; None where they differ little in work."""
    groups: dict[Hashable, list[tuple[float, float]]] = {}
    for case, timing in samples:
        groups.setdefault(alike_of(case), []).append((np.log(case.work), np.log(timing.time)))
    centred = [np.asarray(group) - np.mean(group, axis=0) for group in groups.values()]
    if not centred:
        return None
    work, time = np.concatenate(centred).T
    if np.ptp(work) < np.log(LEAST_RANGE):
        return None
    return float(work @ time / (work @ work))


def stand_in_part(measurements: Measurements) -> Accelerator:
    """A part whose peaks are the best rates that were timed; its efficiencies mean nothing."""
    peaks: dict[str, float] = {}
    bandwidth = 1.0
    for sample in measurements.samples:
        case, time = sample.case, sample.timing.time
        if isinstance(case, Product | TimedAttention):
            peaks[case.precision] = max(peaks.get(case.precision, 0.0), case.work / time)
        elif isinstance(case, MemoryPass):
            bandwidth = max(bandwidth, case.bytes / time)
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

"""The estimate's own formulas fitted to the timings of each kind of kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Final

from shardplan.arrays import Numbers
from shardplan.calibration.constants import Free
from shardplan.calibration.microbench.doubts import doubt
from shardplan.calibration.microbench.fitting import Solution, free, solve
from shardplan.calibration.microbench.records import (
    Case,
    Exchange,
    Measurements,
    MemoryPass,
    Product,
    TimedAttention,
    Timing,
)
from shardplan.calibration.microbench.stand_in import attention_core
from shardplan.costs.collectives import collective_time
from shardplan.costs.groups import Group
from shardplan.costs.network import Network
from shardplan.costs.roofline import Machine, operator_times
from shardplan.fields import dataclass
from shardplan.files import DATA, Document, shipped_document
from shardplan.inputs.cluster import Accelerator, Cluster
from shardplan.inputs.job import PRECISIONS, Recipe
from shardplan.inputs.plan_numbers import Digit
from shardplan.inputs.profile import Profile
from shardplan.workload.ops import Matmul, StreamPass

ELEMENT_BYTES: Final = {"fp8": 1.0, "bf16": 2.0, "fp16": 2.0}
ATTENTION: Final = (
    "attention_efficiency",
    "attention_half_sequence",
    "attention_head_dim_exponent",
    "attention_backward_ratio",
)


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
    path = DATA / "microbenchmark.yaml"
    return shipped_document(path)


def fit_passes(measurements: Measurements, base: Profile, part: Accelerator) -> Fitted:
    """Bandwidth and latency of memory-bound kernels."""
    ideal = replace(base, memory_pass_factor=dict.fromkeys(base.memory_pass_factor, 1.0))
    samples = measurements.of(MemoryPass)
    operators = [
        StreamPass(name=case.operation, modules=(), forward_bytes=case.bytes, backward_bytes=0) for case, _ in samples
    ]

    def predict(profile: Profile) -> list[Numbers]:
        machine = _machine(part, profile, "bf16")
        return [operator_times(operator, machine)[0] for operator in operators]

    return _fitted("memory passes", ideal, _frees(ideal, "memory_efficiency", "memory_pass_latency"), predict, samples)


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

    def predict(profile: Profile) -> list[Numbers]:
        return [
            operator_times(
                Matmul(name="product", modules=(), m=case.m, k=case.k, n=case.n, casts_input=False),
                _machine(part, profile, case.precision),
            )[0]
            for case, _ in samples
        ]

    return _fitted("matrix products", base, frees, predict, samples)


def fit_attention(measurements: Measurements, base: Profile, part: Accelerator) -> Fitted:
    """Rate of fused attention, and how it falls with length and head dimension."""
    samples = [(case, timing) for case, timing in measurements.of(TimedAttention) if case.precision in part.peak_flops]

    def predict(profile: Profile) -> list[Numbers]:
        return [
            operator_times(attention_core(case), _machine(part, profile, case.precision))[case.direction == "backward"]
            for case, _ in samples
        ]

    return _fitted("attention", base, _frees(base, *ATTENTION), predict, samples)


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
    return [free(base, name, rules()["free"][name], key=key) for name in names for key in keys]


def _fitted(
    kernels: str,
    base: Profile,
    frees: Sequence[Free],
    predict: Callable[[Profile], Sequence[Numbers]],
    samples: Sequence[tuple[Case, Timing]],
) -> Fitted:
    solution = solve(base, frees, predict, [timing.time for _, timing in samples])
    reason = doubt(solution, samples) if samples else None
    return Fitted(kernels=kernels, solution=solution, doubt=reason, profile=base if reason else solution.profile)


def _machine(part: Accelerator, profile: Profile, precision: str) -> Machine:
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
    return Machine(accelerator=part, profile=profile, recipe=recipe)

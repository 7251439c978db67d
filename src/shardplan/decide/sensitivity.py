r"""Which hardware parameter pays: how much the best step time changes with each of them, planned again at every point.

A parameter x is set to x / f and to f x, and the fastest plan of the whole space is found for both. The elasticity is
the relative change of the best step time T for a relative change of x,

.. math:: \varepsilon_x = \frac{\ln T(f x) - \ln T(x / f)}{2 \ln f}

-0.4 for bandwidth: one per cent more bandwidth makes the best step 0.4 % shorter. A rate has an elasticity between -1
and 0, a latency between 0 and 1. If all rates of an ideal machine without latencies grew by a factor, the step would
shrink by the same factor, so their elasticities sum to -1. What is missing from -1 is time that no such parameter
governs: host, fixed overheads and stragglers. The sum holds to first order; at a finite f another plan may be the best
at either end.

The best step time is that of the fastest plan, since only the optimum of the space obeys these laws; the recommended
plan ties with it, and is given at every point too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Final

from shardplan.base.errors import InputError, shown
from shardplan.base.fields import dataclass
from shardplan.decide.searching import Answered, Progress, Searches
from shardplan.estimation.question import Question
from shardplan.inputs.cluster import Cluster

FACTOR: Final = 1.25
"""Factor by which parameters are divided and multiplied."""
LARGEST_FACTOR: Final = 10.0
MATTERS: Final = 0.005
"""Parameters with a smaller absolute elasticity make no difference."""


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """A parameter of the hardware."""

    name: str
    """Name, such as ``memory_bandwidth`` or ``tiers.cluster.bandwidth``."""
    label: str
    """Name for people."""
    unit: str
    """Unit of its value."""
    value: float
    """Present value."""


@dataclass(frozen=True, kw_only=True)
class SensitivityPoint:
    """One parameter, made worse and better."""

    parameter: Parameter
    lower: Answered
    """The answer with the parameter divided by the factor."""
    upper: Answered
    """The answer with the parameter multiplied by the factor."""
    elasticity: float | None
    """Relative change of the best step time per relative change of the parameter; None if nothing fits."""

    @property
    def size(self) -> float:
        """Sort key: parameters without which nothing fits come first."""
        return math.inf if self.elasticity is None else abs(self.elasticity)


@dataclass(frozen=True, kw_only=True)
class Sensitivity:
    """How the best step time depends on the hardware."""

    base: Answered
    """The answer for the present hardware."""
    factor: float
    """Factor by which parameters are divided and multiplied."""
    points: tuple[SensitivityPoint, ...]
    """The most important parameter first."""
    assumptions: tuple[str, ...] = ()
    """Assumptions made when the question was read."""

    @property
    def sum_of_rates(self) -> float:
        """Sum of the elasticities of all rates: -1 if only these rates take time."""
        rates = (each for each in self.points if each.parameter.unit.endswith("/s"))
        return sum(each.elasticity or 0.0 for each in rates)


def sensitivity_of(question: Question, searches: Searches, *, factor: float, progress: Progress | None) -> Sensitivity:
    """The elasticity of the best step time to every parameter of the hardware. Raises ``InputError``."""
    if not isinstance(factor, int | float) or not 1 < factor <= LARGEST_FACTOR:
        raise InputError(
            f"the factor is {shown(factor)}",
            rule=f"the factor is a number above 1 and at most {LARGEST_FACTOR:g}",
            hint=f"give {FACTOR} to vary every parameter by a quarter",
        )
    offloads = any("offload" in given for given in (searches.fix, searches.limit))
    parameters = [*parameters_of(question, offloads=offloads)]
    scales = [scaled(question, parameter.name, by) for parameter in parameters for by in (1 / factor, factor)]
    base, *ends = searches.answers([question, *scales], progress)
    if base.fastest is None:
        searches.result(question)  # raises if the restrictions contradict themselves
        return Sensitivity(base=base, factor=factor, points=())
    points = map(partial(_point, factor=factor), parameters, ends[::2], ends[1::2])
    return Sensitivity(base=base, factor=factor, points=tuple(sorted(points, key=lambda each: -each.size)))


def _point(parameter: Parameter, lower: Answered, upper: Answered, *, factor: float) -> SensitivityPoint:
    elasticity = None
    if lower.fastest is not None and upper.fastest is not None:
        elasticity = math.log(upper.fastest.step_time / lower.fastest.step_time) / (2 * math.log(factor))
    return SensitivityPoint(parameter=parameter, lower=lower, upper=upper, elasticity=elasticity)


PEAK: Final = "peak_flops"
OF_ACCELERATOR: Final = {
    "memory_bandwidth": ("memory bandwidth", "bytes/s"),
    "memory_bytes": ("memory", "bytes"),
    "host_link_bandwidth": ("host link bandwidth", "bytes/s"),
}
OF_CLUSTER: Final = {
    "host_memory_bytes": ("host memory", "bytes"),
    "host_memory_bandwidth": ("host memory bandwidth", "bytes/s"),
}
HOST: Final = "host"
OF_TIER: Final = {"bandwidth": "bytes/s", "latency": "s"}


def parameters_of(question: Question, *, offloads: bool = False) -> Iterator[Parameter]:
    """All parameters of the hardware that have a value; for the network those of the tiers that the job spans.

    ``offloads`` includes the host, which only plans with offload use.
    """
    cluster, accelerator = question.cluster, question.cluster.accelerator
    peak = accelerator.peak(question.job.recipe.matmul)
    yield Parameter(name=PEAK, label="matrix peaks", unit="FLOP/s", value=peak)
    for owner, names in ((accelerator, OF_ACCELERATOR), (cluster, OF_CLUSTER)):
        for name, (label, unit) in names.items():
            if getattr(owner, name) is not None and (offloads or not label.startswith(HOST)):
                yield Parameter(name=name, label=label, unit=unit, value=getattr(owner, name))
    for tier in cluster.tiers[: _num_spanned(question)]:
        for name, unit in OF_TIER.items():
            if getattr(tier, name) > 0:
                value = getattr(tier, name)
                yield Parameter(name=f"tiers.{tier.name}.{name}", label=f"{tier.name} {name}", unit=unit, value=value)


def _num_spanned(question: Question) -> int:
    """Tiers that the accelerators of the job span."""
    inside = [tier.size is not None and tier.size < question.num_accelerators for tier in question.cluster.tiers]
    return sum(inside) + 1 if question.num_accelerators > 1 else 0


def scaled(question: Question, name: str, by: float) -> Question:
    """``question`` with the parameter ``name`` multiplied. Matrix peaks of all number formats change together."""
    return replace(question, cluster=_scaled(question.cluster, name, by))


def _scaled(cluster: Cluster, name: str, by: float) -> Cluster:
    if name in OF_CLUSTER:
        return replace(cluster, **{name: getattr(cluster, name) * by})
    part = cluster.accelerator
    if name == PEAK:
        peaks = {precision: peak * by for precision, peak in part.peak_flops.items()}
        return replace(cluster, accelerator=replace(part, peak_flops=peaks))
    if name in OF_ACCELERATOR:
        return replace(cluster, accelerator=replace(part, **{name: getattr(part, name) * by}))
    _, tier_name, field = name.split(".")
    tiers = [
        replace(tier, **{field: getattr(tier, field) * by}) if tier.name == tier_name else tier
        for tier in cluster.tiers
    ]
    return replace(cluster, tiers=tuple(tiers))

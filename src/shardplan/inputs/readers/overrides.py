"""Single values of a cluster that a user replaces, such as ``--inter-node-bandwidth 25``."""

from __future__ import annotations

import math
from collections.abc import Callable, ItemsView, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple, TypedDict

from shardplan.base.errors import InputError, UnknownNameError, shown
from shardplan.base.units import (
    Kind,
    format_bytes,
    format_rate,
    format_time,
    is_bare,
    parse_count,
    parse_quantity,
    to_si,
)
from shardplan.inputs.cluster import Accelerator, Cluster, NetworkTier

GIVEN_BY_USER: Final = "given by the user"
"""Source of a value that was replaced."""


class Overrides(TypedDict, total=False):
    """Values to replace; None keeps a value. A text carries its unit, a number is in SI units."""

    intra_node_bandwidth: str | float | None
    """Bandwidth of the innermost tier (node, rack, torus), per accelerator and direction. A text without unit: GB/s."""
    inter_node_bandwidth: str | float | None
    """Bandwidth of the first tier around a node; tiers further out keep their ratio to it."""
    intra_node_latency: str | float | None
    """Latency of a hop inside the innermost tier. A text needs its unit."""
    inter_node_latency: str | float | None
    """Latency of a hop in the first tier around a node; tiers further out keep their difference to it."""
    node_size: str | int | None
    """Accelerators in one domain of the innermost tier."""
    memory: str | float | None
    """Memory of one accelerator. A text without unit: GB."""
    memory_bandwidth: str | float | None
    """Its memory bandwidth. A text without unit: GB/s."""
    peak_flops: Mapping[str, str | float] | None
    """Its dense matrix peaks by precision. A text without unit: TFLOP/s."""
    price: str | float | None
    """Price of one accelerator for an hour. A text without unit, or a number: USD/h."""


class _Plausible(NamedTuple):
    """Plausible range of a replaced value: 25 read as 25 bytes/s is a wrong unit, not a slow network."""

    unit: str
    least: float
    most: float
    format: Callable[[float], str]


_PLAUSIBLE: Final[Mapping[Kind, _Plausible]] = {
    "bandwidth": _Plausible("B/s", 1e6, 1e18, format_rate),
    "time": _Plausible("s", 0.0, 1.0, format_time),
    "bytes": _Plausible("B", 1e6, 1e15, format_bytes),
    "flop rate": _Plausible("FLOP/s", 1e9, 1e21, partial(format_rate, unit="FLOP")),
    "price": _Plausible("USD/h", 0.0, 1e6, "{:g} USD/h".format),
}

_OF_A_TIER: Final[Mapping[str, Kind]] = {"bandwidth": "bandwidth", "latency": "time"}
_OF_A_PART: Final[Mapping[str, tuple[str, Kind]]] = {
    "memory": ("memory_bytes", "bytes"),
    "memory_bandwidth": ("memory_bandwidth", "bandwidth"),
}
"""Field and kind of each replaceable value of an accelerator."""


def override(cluster: Cluster, overrides: Overrides) -> Cluster:
    """``cluster`` with single values replaced; ``sources`` and ``assumptions`` say which. Raises InputError."""
    given: dict[str, Any] = {name: value for name, value in overrides.items() if value is not None}
    known = tuple(Overrides.__annotations__)
    for name in given:
        if name not in known:
            raise UnknownNameError("value of a cluster", name, known, hint=f"known: {', '.join(known)}")
    if "node_size" in given:
        cluster = _with_node_size(cluster, parse_count(given["node_size"], field="node_size"))
    for where in ("intra_node", "inter_node"):
        for what, kind in _OF_A_TIER.items():
            if (name := f"{where}_{what}") in given:
                cluster = _with_network(cluster, where, what, given[name], _in_si(given[name], kind, name))
    for name, (field, kind) in _OF_A_PART.items():
        if name in given:
            value, before = _in_si(given[name], kind, name), getattr(cluster.accelerator, field)
            subject = f"{name.replace('_', ' ')} of an accelerator"
            cluster = _with_part(cluster, field, subject, kind, value, before=before, **{field: value})
            cluster = _with_doubt(cluster, subject, given[name], value, before)
    for precision, peak in _by_precision(given.get("peak_flops", {})):
        value, peaks = _in_si(peak, "flop rate", f"peak_flops.{precision}"), cluster.accelerator.peak_flops
        cluster = _with_part(
            cluster, f"peak_flops.{precision}", f"{precision} peak", "flop rate", value,
            before=peaks.get(precision), peak_flops={**peaks, precision: value},
        )  # fmt: skip
    if "price" in given:  # it replaces a quote for the node
        value, before = _in_si(given["price"], "price", "price"), cluster.accelerator_price
        cluster = replace(cluster, price_per_hour=None)
        subject = "price of an accelerator"
        cluster = _with_part(cluster, "price_per_hour", subject, "price", value, before=before, price_per_hour=value)
    return cluster


def value_now(cluster: Cluster, name: str) -> float | int | None:
    """The present value that an override called ``name`` would replace, in SI units, or None. Raises InputError."""
    if name in _OF_A_PART:
        found: float = getattr(cluster.accelerator, _OF_A_PART[name][0])
        return found
    where, _, what = name.rpartition("_")
    if name == "node_size":
        return cluster.innermost.size
    if name == "price":
        return cluster.accelerator_price
    tier = cluster.innermost if where == "intra_node" else cluster.tiers[_first_around_nodes(cluster)]
    value: float = getattr(tier, what)
    return value


def _by_precision(peaks: object) -> ItemsView[str, Any]:
    if not isinstance(peaks, Mapping):
        raise InputError(
            f"peak_flops is {shown(peaks)}",
            rule="peak_flops are rates by precision",
            hint="write {'bf16': '989TFLOP/s'}",
        )
    return peaks.items()


def _in_si(value: str | float, kind: Kind, name: str) -> float:
    plausible = _PLAUSIBLE[kind]
    if isinstance(value, str):
        si = parse_quantity(value, kind, field=name)
    else:
        si = to_si(value, plausible.unit, kind, field=name)
    if not plausible.least <= si <= plausible.most:
        raise InputError(
            f"{name}: {shown(value)} is {plausible.format(si)}",
            rule=f"{name} lies between {plausible.format(plausible.least)} and {plausible.format(plausible.most)}",
            hint=f"write it as a text with its unit; a bare number in Python is in {plausible.unit}",
        )
    return si


def _with_doubt(cluster: Cluster, subject: str, typed: object, value: float, before: float) -> Cluster:
    """The cluster with a line that questions a bandwidth without a unit, if another unit is nearer to the old value."""
    if not (isinstance(typed, str) and is_bare(typed)) or "bandwidth" not in subject:
        return cluster
    text, far = typed.strip(), abs(math.log(value / before))
    meant = {unit: parse_quantity(f"{text}{unit}", "bandwidth", field=subject) for unit in UNITS}
    unit = min(meant, key=lambda each: abs(math.log(meant[each] / before)))
    if far - abs(math.log(meant[unit] / before)) < SURE:
        return cluster
    line = f"{text}{UNIT_LEFT_OUT}{format_rate(value)}; for {format_rate(meant[unit])} write {text}{unit}"
    return replace(cluster, assumptions=(*cluster.assumptions, f"{subject}: {line}"))


UNITS: Final = ("GB/s", "Gb/s", "TB/s")
SURE: Final = math.log(1.5)
"""How much nearer another unit must be."""
UNIT_LEFT_OUT: Final = " without a unit is "


def doubts_of(cluster: Cluster) -> tuple[str, ...]:
    """The questions about values that replace those of a cluster."""
    return tuple(line for line in cluster.assumptions if UNIT_LEFT_OUT in line)


def _with_network(cluster: Cluster, where: str, what: str, typed: object, value: float) -> Cluster:
    """The cluster with another bandwidth or latency of a tier; those around it follow, by ratio or difference."""
    first = 0 if where == "intra_node" else _first_around_nodes(cluster)
    base = cluster.tiers[first]
    for index in range(first, 1 if where == "intra_node" else len(cluster.tiers)):
        tier = cluster.tiers[index]
        origin = GIVEN_BY_USER if tier is base else f"follows tier '{base.name}', {GIVEN_BY_USER}"
        if what == "bandwidth":
            changed = replace(tier, bandwidth=value * (tier.bandwidth / base.bandwidth))
        else:
            changed = replace(tier, latency=value + max(tier.latency - base.latency, 0.0))
        text = _PLAUSIBLE[_OF_A_TIER[what]].format
        line = f"{text(getattr(changed, what))}, {origin}, in place of {text(getattr(tier, what))}"
        cluster = _with_tier(cluster, index, changed)
        cluster = _with_source_and_line(
            cluster, f"tiers.{tier.name}.{what}", f"{what} of tier '{tier.name}'", line, origin
        )
    return _with_doubt(cluster, f"{what} of tier '{base.name}'", typed, value, getattr(base, what))


def _first_around_nodes(cluster: Cluster) -> int:
    for index, tier in enumerate(cluster.tiers):
        if index and (tier.size is None or tier.size > cluster.accelerators_per_node):
            return index
    raise InputError(
        f"cluster '{cluster.name}' has no network between nodes",
        rule="a value that is replaced exists",
        hint="replace the intra-node value, or describe the cluster in a file with two tiers",
    )


def _with_node_size(cluster: Cluster, size: int) -> Cluster:
    """The cluster with innermost domains of another size; nodes that were such a domain, or no longer fit, follow."""
    tier, per_node = cluster.innermost, cluster.accelerators_per_node
    if tier.size is None or tier.torus_shape or size < 1:
        kind = "a torus" if tier.torus_shape else f"of size {tier.size}"
        raise InputError(
            f"node_size is {size}; tier '{tier.name}' of cluster '{cluster.name}' is {kind}",
            rule="node_size is 1 or more, in a cluster whose innermost tier is a bounded switch or mesh",
            hint="correct node_size, or describe the cluster in a file",
        )
    cluster = _with_tier(cluster, 0, replace(tier, size=size))
    line = f"{size} accelerators, {GIVEN_BY_USER}, in place of {tier.size}"
    cluster = _with_source_and_line(
        cluster, f"tiers.{tier.name}.size", f"size of tier '{tier.name}'", line, GIVEN_BY_USER
    )
    if per_node != tier.size and not size < per_node < tier.size:
        return cluster
    cluster = replace(
        cluster, accelerators_per_node=size, price_per_hour=None, host_memory_bytes=None, host_memory_bandwidth=None
    )
    line = f"{size}, as in tier '{tier.name}', in place of {per_node}"
    return _with_source_and_line(cluster, "accelerators_per_node", "accelerators per node", line, GIVEN_BY_USER)


def _with_tier(cluster: Cluster, index: int, tier: NetworkTier) -> Cluster:
    return replace(cluster, tiers=(*cluster.tiers[:index], tier, *cluster.tiers[index + 1 :]))


def _with_part(
    cluster: Cluster, field: str, subject: str, kind: Kind, value: float, *, before: float | None, **changes: Any
) -> Cluster:
    """``cluster`` with another value of its accelerators, and a line on it."""
    text = _PLAUSIBLE[kind].format
    instead = "" if before is None else f", in place of {text(before)}"
    sources, marks = _origins(cluster.accelerator, field, GIVEN_BY_USER)
    part = replace(cluster.accelerator, **changes, sources=sources, marks=marks)
    line = f"{text(value)}, {GIVEN_BY_USER}{instead}"
    return replace(cluster, accelerator=part, assumptions=_lines(cluster, subject, line))


def _with_source_and_line(cluster: Cluster, field: str, subject: str, line: str, origin: str) -> Cluster:
    """``cluster`` with the new source of ``field`` and a line on its ``subject`` instead of an earlier one."""
    sources, marks = _origins(cluster, field, origin)
    return replace(cluster, sources=sources, marks=marks, assumptions=_lines(cluster, subject, line))


def _origins(described: Cluster | Accelerator, field: str, origin: str) -> tuple[dict[str, str], dict[str, str]]:
    marks = {name: mark for name, mark in described.marks.items() if name != field}
    return {**described.sources, field: origin}, marks


def _lines(cluster: Cluster, subject: str, line: str) -> tuple[str, ...]:
    return (*(text for text in cluster.assumptions if not text.startswith(f"{subject}:")), f"{subject}: {line}")

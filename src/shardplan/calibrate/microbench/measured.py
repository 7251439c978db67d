"""From timings to constants of a profile, each with its origin, and the file that holds them.

Constants that the timings do not determine stay as they were, with the reason.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from shardplan.base.errors import InputError
from shardplan.base.fields import dataclass
from shardplan.base.files import read_document
from shardplan.base.outputs import PROFILE, TIMINGS, JsonTarget
from shardplan.calibrate.fit import rounded, with_part
from shardplan.calibrate.microbench.fits import (
    Fitted,
    Found,
    Solution,
    fit_attention,
    fit_exchanges,
    fit_passes,
    fit_products,
    rules,
    stand_in_cluster,
    stand_in_part,
)
from shardplan.calibrate.microbench.records import MOST_SPREAD, Exchange, Host, Measurements, label_of
from shardplan.inputs.cluster import Accelerator, Cluster
from shardplan.inputs.profile import FRACTION, MOST_OF_NOMINAL, Constant, Profile
from shardplan.inputs.readers.catalog import cluster_of_accelerator, load_accelerator

WIDTH: Final = 120
SHOWN: Final = 3
LAYER_OPERATORS: Final = 9
"""Operators of the estimate in one dense Llama layer, forward: the host's time is charged by them."""
LAYER_PRODUCTS: Final = 4
BARE: Final = (
    ("eager", "layer", 2 * LAYER_OPERATORS + LAYER_PRODUCTS, "operator of a bare layer"),
    ("fused", "launch", 1, "launch of a tiny kernel"),
)
"""Keys of ``kernel_launch_time`` with the case that bounds each from below, its calls, and what one of them is."""
RATES: Final = ("matmul_efficiency", "attention_efficiency", "memory_efficiency")
"""Constants relative to a nominal peak, which only the catalogue knows."""
NETWORK_RATES: Final = ("network_efficiency", "all_to_all_efficiency", "p2p_efficiency")
"""Constants relative to a nominal bandwidth of the network."""
NO_PEAK: Final = "the device is not in the catalogue: its peak is not known (--accelerator names it)"
NO_NETWORK: Final = "the bandwidth of the network is not known (--cluster names it)"
UNDETERMINED: Final = "the timings leave it about as uncertain as it was"


@dataclass(frozen=True, kw_only=True)
class Kept:
    """A constant that was looked at and stays that of the base profile."""

    name: str
    key: str | None
    value: float
    unit: str
    reason: str

    @property
    def label(self) -> str:
        """As reports name it."""
        return self.name if self.key is None else f"{self.name}[{self.key}]"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What follows from the timings."""

    constants: Mapping[str, Constant]
    """Measured ones."""
    kept: tuple[Kept, ...]
    """Those that the timings do not replace."""
    warnings: tuple[str, ...]
    """What speaks against the timings."""


def profile_from(
    measurements: Measurements, base_profile: Profile, *, cluster: Cluster | None = None
) -> dict[str, Constant]:
    """Constants that the timings determine; all others are those of ``base_profile``, the accelerator's generation's.

    ``cluster``: what the collectives ran on, the usual cluster of the accelerator by default. Without a part of the
    catalogue, rates relative to a peak are left out; without a known network, those relative to its bandwidth.
    :func:`outcome_of` says as well which constants stay as they were, and why.
    """
    return dict(outcome_of(measurements, base_profile, cluster=cluster).constants)


def outcome_of(measurements: Measurements, base_profile: Profile, *, cluster: Cluster | None = None) -> Outcome:
    """The same with what stays as it was, and with what speaks against the timings. Raises ``InputError``."""
    known = load_accelerator(measurements.accelerator) if measurements.accelerator else None
    part = known or stand_in_part(measurements)
    network = cluster or (_usual_cluster(measurements) if known else None)
    unknown = dict.fromkeys(RATES if known is None else (), NO_PEAK)
    unknown |= dict.fromkeys(NETWORK_RATES if network is None else (), NO_NETWORK)
    fits = _fits(measurements, base_profile, part, network)
    constants: dict[str, Constant] = {}
    kept: list[Kept] = []
    for fitted, (name, key) in ((each, place) for each in fits for place in each.places):
        found = fitted.solution.found.get((name, key))
        reason = unknown.get(name) or fitted.doubt or _beyond(name, found, base_profile)
        if reason is None and found is not None:
            one = _constant(name, key, found, solution=fitted.solution, measurements=measurements, part=part)
            constants[name] = _added(constants.get(name), one)
        elif not key or key in getattr(base_profile, name):
            kept.append(_left(base_profile, name, key or None, str(reason)))
    host, left = _host(measurements, base_profile)
    described = {name: replace(one, unit=_unit(base_profile, name)) for name, one in constants.items()}
    doubts = [f"{each.kernels}: {each.doubt}; their constants stay as they were" for each in fits if each.doubt]
    disturbed = busy(measurements)
    warnings = (*([disturbed] if disturbed else []), *doubts)
    return Outcome(constants=described | host, kept=(*kept, *left), warnings=warnings)


def _fits(measurements: Measurements, base: Profile, part: Accelerator, network: Cluster | None) -> list[Fitted]:
    passes = fit_passes(measurements, base, part)
    fits = [passes, fit_products(measurements, passes.profile, part), fit_attention(measurements, passes.profile, part)]
    if measurements.of(Exchange):
        fits.append(fit_exchanges(measurements, base, network or stand_in_cluster(measurements, part)))
    return fits


def _usual_cluster(measurements: Measurements) -> Cluster | None:
    """The usual cluster of the part; None where its file names no links."""
    try:
        return cluster_of_accelerator(str(measurements.accelerator))
    except InputError:
        return None


def _beyond(name: str, found: Found | None, base: Profile) -> str | None:
    """Why a profile cannot state what was found; None where it can."""
    if found is None:
        return UNDETERMINED
    if _unit(base, name).startswith(FRACTION) and found.value > MOST_OF_NOMINAL:
        return f"{found.value:.3g} of nominal cannot be: the part or the network is another one than is described"
    return None


def _unit(base: Profile, name: str) -> str:
    """Unit that the base profile states."""
    return base.constants[name].unit if name in base.constants else ""


def _left(base: Profile, name: str, key: str | None, reason: str) -> Kept:
    value = getattr(base, name)
    value = float(value if key is None else value[key])
    return Kept(name=name, key=key, value=value, unit=_unit(base, name), reason=reason)


def _constant(
    name: str, key: str, found: Found, *, solution: Solution, measurements: Measurements, part: Accelerator
) -> Constant:
    """A constant as training sees it: what the kernel alone reaches, times the share of it that steps reach."""
    rule = rules()["in_training"].get(name)
    source = f"{_origin(measurements)}, {solution.num_samples} shapes, residual {solution.residual:.1%}"
    value, sd = found.value, found.sd
    if rule is not None:
        shares: Mapping[str, float] = rule["value"]
        share = shares.get(key if name == "network_efficiency" else part.generation, shares["other"])
        source += f"; {value:.3g} for {key or 'the kernel'} alone times {share:g} in training ({rule['source']})"
        value, sd = value * share, (sd**2 + rule["sd"] ** 2) ** 0.5
    value, sd = rounded(value), rounded(max(sd, 0.005))
    return Constant(value={key: value} if key else value, unit="", source=source, sd={key: sd} if key else sd)


def _added(table: Constant | None, entry: Constant) -> Constant:
    """One more key of a table."""
    if table is None:
        return entry
    clause = entry.source.partition("; ")[2]
    source = f"{table.source.partition(' (')[0]}, {clause}" if clause else table.source
    return replace(table, value=with_part(table.value, entry.value), sd=with_part(table.sd, entry.sd), source=source)


def _host(measurements: Measurements, base: Profile) -> tuple[dict[str, Constant], tuple[Kept, ...]]:
    """Host time of a call, which a bare layer and a bare launch bound from below."""
    rule = rules()["kernel_launch_time"]
    found: dict[str, Constant] = {}
    kept: list[Kept] = []
    for key, operation, calls, words in BARE:
        timing = next((timing for case, timing in measurements.of(Host) if case.operation == operation), None)
        if timing is None:
            continue
        bare, usual = timing.time / calls, float(base.kernel_launch_time[key])
        said = f"{bare:.2g} s per {words}"
        if bare > usual and not timing.is_scattered:
            source = f"{_origin(measurements)}; {said}"
            one = Constant(value={key: rounded(bare)}, unit="s", source=source, sd={key: float(rule["sd"])})
            found["kernel_launch_time"] = _added(found.get("kernel_launch_time"), one)
        else:
            reason = f"{said} scatter" if bare > usual else f"{said} is a lower bound: {rule['source']}"
            kept.append(_left(base, "kernel_launch_time", key, reason))
    return found, tuple(kept)


def _origin(measurements: Measurements) -> str:
    return f"measured on {measurements.device.name} with {measurements.software}, {measurements.date}"


def busy(measurements: Measurements) -> str | None:
    """A warning that names the cases whose times scatter; None where there are none."""
    scattered = [sample for sample in measurements.samples if sample.timing.is_scattered]
    if not scattered:
        return None
    worst = sorted(scattered, key=lambda sample: -sample.timing.spread)[:SHOWN]
    named = ", ".join(f"{label_of(sample.case)} by {sample.timing.spread:.0%}" for sample in worst)
    return (
        f"the machine was busy: {len(scattered)} of {len(measurements.samples)} cases vary by more than "
        f"{MOST_SPREAD:.0%} between series ({named})"
    )


def write_profile(path: str | os.PathLike[str], constants: Mapping[str, Constant], measurements: Measurements) -> Path:
    """Writes the profile to ``path`` and the timings next to it, and returns where those are. Raises ``InputError``.

    The timings are kept even where they determine no constant; a profile that was there before stays.
    """
    profile, raw = Path(path), measurements_path(path)
    JsonTarget(str(raw), "--out", kind=TIMINGS, is_forced=True).write_text(_measurements_text(measurements))
    if not constants:
        raise InputError(
            f"the timings determine no constant; they are kept in {raw}",
            rule="a profile holds constants",
            hint="let the micro-benchmark run to its end, on a machine that does nothing else",
        )
    JsonTarget(str(profile), "--out", kind=PROFILE, is_forced=True).write_text(profile_text(constants, measurements))
    return raw


def measurements_path(path: str | os.PathLike[str]) -> Path:
    """Where the timings of the profile at ``path`` are: ``my-gpu.measurements.json`` next to ``my-gpu.yaml``."""
    try:
        return Path(path).with_suffix(".measurements.json")
    except ValueError as error:
        raise InputError(
            f"{os.fspath(path)!r:.100} is no path of a file: {error}",
            rule="a profile has a path",
            hint="give my-gpu.yaml",
        ) from error


def read_measurements(path: str | os.PathLike[str]) -> Measurements:
    """The timings that were kept in a file. Raises ``InputError``."""
    return Measurements.from_record(read_document(Path(path)))


def profile_text(constants: Mapping[str, Constant], measurements: Measurements) -> str:
    """The constants in the format of profile files."""
    import yaml

    name = " ".join(measurements.device.name.split())
    lines = [f"# Constants measured on {name}; all others are those of the base profile."]
    if not measurements.is_complete:
        lines.append("# The run was interrupted: later parts are missing.")
    if measurements.accelerator is None:
        lines.append(
            "# The device is not in the catalogue: rates relative to a peak are left out. Name its accelerator."
        )
    disturbed = busy(measurements)
    if disturbed is not None:
        lines.append(f"# {disturbed[0].upper()}{disturbed[1:]}.")
    generation = load_accelerator(measurements.accelerator).generation if measurements.accelerator else "default"
    body: dict[str, Any] = {"generation": generation}
    for name, one in constants.items():
        body[name] = {"value": one.value, "unit": one.unit, "source": one.source}
        body[name] |= {} if one.sd is None else {"sd": one.sd}
    return "\n".join(lines) + "\n" + yaml.safe_dump(body, sort_keys=False, width=WIDTH, allow_unicode=True)


def _measurements_text(measurements: Measurements) -> str:
    """JSON with one timing in a line."""
    parts = []
    for name, value in measurements.to_record().items():
        if name in ("samples", "skipped"):
            rows = ",\n".join(f"    {json.dumps(row)}" for row in value)
            text = f"[\n{rows}\n  ]" if rows else "[]"
        else:
            text = json.dumps(value)
        parts.append(f"  {json.dumps(name)}: {text}")
    return "{\n" + ",\n".join(parts) + "\n}\n"

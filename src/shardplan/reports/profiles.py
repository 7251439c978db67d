"""Every constant of a calibration profile: value, unit, what it was fitted on or read from, prior, uncertainty."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

from shardplan.fields import dataclass
from shardplan.inputs.cluster import Accelerator
from shardplan.inputs.profile import Constant, Profile, constants_of, generations, load_profile
from shardplan.inputs.readers.catalog import list_accelerators, load_accelerator
from shardplan.records import plain

DEFAULT: Final = "default"
MAKERS: Final = {"nvlink": "NVIDIA", "xgmi": "AMD", "ici": "Google", "neuronlink": "AWS", "hccs": "Huawei"}
"""Kinds of links that one maker's accelerators alone have."""


@dataclass(frozen=True, kw_only=True)
class ConstantRow:
    """One number of a profile."""

    name: str
    key: str | None
    """Which of a table's values; None where the constant is a number."""
    value: float
    unit: str
    source: str
    stated_in: str
    """The profile that states it: ``default``, a generation, or a user's file."""
    prior: float | None
    prior_sd: float | None
    """Standard deviation of the prior's logarithm (of its log-odds for a share)."""
    sd: float | None
    """The same of the value: after the fit, or as judged where nothing was fitted; in the unit of a value of zero."""
    sd_basis: str | None
    """Where ``sd`` comes from; None: from the fit, or stated without words in a user's file."""
    fitted_on: str | None
    """Runs it was fitted to; None where it was read from ``source`` and left at that."""

    @property
    def label(self) -> str:
        """As reports name it."""
        return self.name if self.key is None else f"{self.name}[{self.key}]"


@dataclass(frozen=True, kw_only=True)
class ProfileEntry:
    """One line of the list of profiles."""

    name: str
    accelerators: tuple[str, ...]
    """Parts of the catalogue that use it."""
    num_own: int
    """Numbers that it states itself."""
    num_fitted: int
    """Those of them that training runs have moved."""


def profile_entries() -> tuple[ProfileEntry, ...]:
    """All shipped profiles, the one that holds for every part first."""
    parts: dict[str, list[str]] = {}
    for name in list_accelerators():
        generation = load_accelerator(name).generation
        parts.setdefault(generation if generation in generations() else DEFAULT, []).append(name)
    return tuple(_entry(name, parts.get(name, [])) for name in (DEFAULT, *generations()))


def _entry(name: str, parts: list[str]) -> ProfileEntry:
    rows = [row for constant in constants_of(name).items() for row in _rows(*constant, name)]
    fitted = sum(row.fitted_on is not None for row in rows)
    return ProfileEntry(name=name, accelerators=tuple(parts), num_own=len(rows), num_fitted=fitted)


def constant_rows(profile: Profile, generation: str) -> tuple[ConstantRow, ...]:
    """Every number of a profile with its origin; ``generation``: that it belongs to or is made for.

    Shipped entries of other generations' parts, number formats and links are left out; ``default`` has all.
    """
    layers = [(DEFAULT, constants_of(DEFAULT))]
    if generation != DEFAULT:
        layers.append((generation, constants_of(generation)))
    if profile.name not in (DEFAULT, generation):
        layers.append((profile.name, _own(profile, load_profile(generation))))
    found: dict[tuple[str, str | None], ConstantRow] = {}
    for stated_in, constants in layers:
        for name, constant in constants.items():
            found |= {(row.name, row.key): row for row in _rows(name, constant, stated_in) if _is_new(row, found)}
    rows = [row for row in found.values() if row.stated_in not in (DEFAULT, generation) or _applies(row, generation)]
    order = list(profile.constants)
    return tuple(sorted(rows, key=lambda row: order.index(row.name)))


def _applies(row: ConstantRow, generation: str) -> bool:
    """Whether a part of the generation can have what a table's key names."""
    if generation == DEFAULT or row.key is None:
        return True
    parts = _parts(generation)
    match row.name:
        case "accelerator_rate":
            return row.key not in list_accelerators() or row.key in parts
        case "matmul_efficiency":
            return any(row.key in part.peak_flops for part in parts.values())
        case "network_efficiency":
            return row.key not in MAKERS or any(MAKERS[row.key] == part.vendor for part in parts.values())
    return True


@cache
def _parts(generation: str) -> dict[str, Accelerator]:
    """Parts of the catalogue that are of a generation."""
    parts = {name: load_accelerator(name) for name in list_accelerators()}
    return {name: part for name, part in parts.items() if part.generation == generation}


def _is_new(row: ConstantRow, found: Mapping[tuple[str, str | None], ConstantRow]) -> bool:
    """Whether a row is stated where it stands: a user's tables hold the values below them too."""
    below = found.get((row.name, row.key))
    return row.stated_in in (DEFAULT, *generations()) or below is None or row.value != below.value


def _own(profile: Profile, base: Profile) -> dict[str, Constant]:
    """Constants in which a user's profile differs from the one below it."""
    return {name: constant for name, constant in profile.constants.items() if constant != base.constants[name]}


def _rows(name: str, constant: Constant, stated_in: str) -> Iterator[ConstantRow]:
    table = constant.value if isinstance(constant.value, Mapping) else {None: constant.value}
    for key, value in table.items():
        yield ConstantRow(
            name=name,
            key=key,
            value=float(value),
            unit=str(constant.unit),
            source=str(constant.source),
            stated_in=stated_in,
            prior=_of(constant.prior, key),
            prior_sd=_of(constant.prior_sd, key),
            sd=_of(constant.assumed_sd, key) if (sd := _of(constant.sd, key)) is None else sd,
            sd_basis=constant.sd_basis if sd is None else None,
            fitted_on=None if sd is None else constant.fitted_on,
        )


def _of(entry: object, key: str | None) -> float | None:
    """The number of ``key``; keys that were moved together share one."""
    if isinstance(entry, Mapping) and key is not None:
        entry = next((value for keys, value in entry.items() if key in str(keys).split("+")), None)
    return float(entry) if isinstance(entry, int | float) and not isinstance(entry, bool) else None


def profile_record(profile: Profile, generation: str) -> dict[str, Any]:
    """The record of ``profiles NAME --json``."""
    return {
        "schema": "shardplan/profile/1",
        "name": profile.name,
        "generation": generation,
        "constants": plain(constant_rows(profile, generation)),
    }

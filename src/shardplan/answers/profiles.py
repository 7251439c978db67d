"""Calibration profiles: the list, and every constant of one with its origin, prior and uncertainty."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Final

from shardplan.answers.document import AnswerDocument, Bullets, Column, Line, Numbered, Part, RowTable
from shardplan.base.fields import dataclass
from shardplan.base.records import plain
from shardplan.inputs.cluster import Accelerator
from shardplan.inputs.profile import Constant, Profile, constants_of, generations, load_profile
from shardplan.inputs.readers.catalog import list_accelerators, load_accelerator

DEFAULT: Final = "default"
MAKERS: Final = {"nvlink": "NVIDIA", "xgmi": "AMD", "ici": "Google", "neuronlink": "AWS", "hccs": "Huawei"}
"""Kinds of links that one maker's accelerators alone have."""


EXPLANATION: Final = (
    "sd: standard deviation of the logarithm (of the log-odds of a share), about the relative error; of a value of "
    "zero in its unit; from the fit where there is a prior (value and sd before it), else from what the source names."
)


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


def profiles_document() -> AnswerDocument:
    """All shipped profiles, one line for each."""
    columns = (
        Column("name", "name", lambda entry: entry.name, is_text=True),
        Column("accelerators", None, lambda entry: [*entry.accelerators]),
        Column("num_own", "constants", lambda entry: entry.num_own),
        Column("num_fitted", "fitted", lambda entry: entry.num_fitted),
        Column("", "accelerators", lambda entry: ", ".join(entry.accelerators), is_text=True, rank=1),
    )
    table = RowTable(profile_entries(), columns)
    notes = (
        "default holds for every accelerator; a generation's own constants replace its.",
        "shardplan profiles NAME shows one, with the sources of its values.",
    )
    lines = [Line(text, tone="quiet") for text in notes]
    return AnswerDocument(
        name="profiles", verdict=[table], parts=[Part("", lines)], table=table, record=lambda: {"profiles": table}
    )


def profile_document(profile: Profile, generation: str) -> AnswerDocument:
    """Every constant of a profile, and below them the sources. ``generation``: as of :func:`constant_rows`."""
    rows = constant_rows(profile, generation)
    made_for = "" if profile.name == generation else f", made for {generation}"
    origins = list(dict.fromkeys(_origin(row, rows) for row in rows))
    marks = {DEFAULT: "", generation: "*"}

    def name(row: ConstantRow) -> str:
        return row.label + marks.get(row.stated_in, "**")

    def place(row: ConstantRow) -> int:
        return origins.index(_origin(row, rows)) + 1

    def narrow(row: ConstantRow) -> tuple[str, str, str]:
        prior = "" if row.prior is None else f", prior {_prior(row)}"
        return name(row), f"{number(row.value)} {row.unit}", f"sd {number(row.sd)}{prior}, source {place(row)}"

    columns = (
        Column("", "constant", name, is_text=True),
        Column("", "value", lambda row: row.value, number),
        Column("", "unit", lambda row: row.unit, is_text=True),
        Column("", "sd", lambda row: row.sd, number),
        Column("", "prior", _prior, is_text=True),
        Column("", "src", place),
    )
    legend = [f"* of {generation} itself"] if generation != DEFAULT else []
    legend += [f"** of {profile.name}"] if profile.name not in (DEFAULT, generation) else []
    fitted_on = list(dict.fromkeys(row.fitted_on for row in rows if row.fitted_on))
    return AnswerDocument(
        name="profile",
        verdict=[Line(f"Constants of {profile.name}{made_for}", tone="strong"), Line(EXPLANATION, tone="quiet")],
        parts=[
            Part("", [RowTable(rows, columns, narrow=narrow)]),
            Part("", [Line("; ".join(legend), tone="quiet")] if legend else []),
            Part("Sources", [Numbered(origins, "quiet")]),
            *([Part("Fitted on", [Bullets(fitted_on, "quiet")])] if fitted_on else []),
        ],
        record=lambda: {"name": profile.name, "generation": generation, "constants": plain(rows)},
    )


def _origin(row: ConstantRow, rows: Sequence[ConstantRow]) -> str:
    """The source of a value, and of the uncertainty of what was not fitted there."""
    same = [each for each in rows if (each.name, each.stated_in) == (row.name, row.stated_in)]
    basis = next((each.sd_basis for each in same if each.sd_basis), None)
    if basis is None:
        return row.source
    whose = "sd where not fitted" if any(each.fitted_on for each in same) else "sd"
    return f"{row.source}; {whose}: {basis}"


def number(value: float | None) -> str:
    """A number with four digits, large ones by powers of ten."""
    return "-" if value is None else f"{value:.4g}"


def _prior(row: ConstantRow) -> str | None:
    if row.prior is None:
        return None
    return number(row.prior) + ("" if row.prior_sd is None else f" (sd {number(row.prior_sd)})")

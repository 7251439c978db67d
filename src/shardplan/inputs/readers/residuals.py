"""Errors of predicted runs, with the features that make runs similar: the rows from which bands are made.

A row of ``data/profiles/residuals.csv``, or of ``left_out_errors`` in a user's profile, is one run predicted by
constants that have not seen it.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from typing import Any, NamedTuple, get_args

from shardplan.base.errors import InputError, shown
from shardplan.base.files import DATA
from shardplan.inputs.cluster import Generation
from shardplan.inputs.plan import Plan, plan_cell, plan_from_cell

RESIDUALS = DATA / "profiles" / "residuals.csv"
"""Errors of the built-in runs."""
CONTRADICTORY_MEMORY = ("internevo",)
"""Families whose peak memories contradict their own descriptions, and so are no evidence of memory errors."""
LARGEST_ERROR = 6.9
"""Largest believable error (logarithm) of a row: a thousand times too large or too small. Larger ones are written as
this, and not read.
"""
GENERATIONS = get_args(Generation)
BITS = ("4", "8", "16", "32")
Row = Mapping[str, Any]


class Shares(NamedTuple):
    """Shares of a predicted step whose prediction is least certain."""

    host: float = 0.0
    """Time in which the device waits for the host."""
    communication: float = 0.0
    """Exposed communication."""
    attention: float = 0.0
    """Attention, whose kernels differ most from release to release."""


EVEN = Shares()
"""A step that only computes."""
ALL = "all"
TIERS = ("A", "A-", "B")
TRAINED = (ALL, "adapters", "part")
"""What a run trains."""
DESCRIBED = "A"
"""Tier of a run with every field that matters."""
PLAIN = Plan()
"""A plan with only default values."""


class Features(NamedTuple):
    """The features that make runs similar."""

    accelerator: str
    generation: str
    bits: int
    """Bits of the matrix products' number format."""
    moe: bool
    parameters: float
    accelerators: float
    sequence_length: float = 4096.0
    global_batch_size: float = 256.0
    """Sequences of a step."""
    plan: Plan = PLAIN
    shares: Shares = EVEN
    """Shares of the predicted step that are less certain than computation."""
    trained: str = ALL
    """What is trained: ``all`` weights, ``adapters`` on frozen ones, or ``part`` of the weights."""
    recurrent: float = 0.0
    """Share of the layers that have a state-space mixer, linear attention or a short convolution."""


class Residual(NamedTuple):
    """Error of a run predicted by constants that have not seen it: ln(predicted / measured)."""

    id: str
    family: str
    features: Features
    time: float | None
    memory: float | None
    setting: str = ""
    """Common setting of the configurations of a comparison (model, accelerators, sequence); empty if unknown."""
    measured_step_time: float | None = None
    """Measured time. [s]"""
    predicted_step_time: float | None = None
    """Predicted by the constants that were fitted to all runs, this one included. [s]"""
    gap_factor: float = 1.0
    """How much larger its error was expected to be than most, given how much it and its plan have in common with the
    runs that the prediction had seen (``estimation.gaps``).
    """
    tier: str = DESCRIBED
    """How fully it is described: ``A``, ``A-`` (one minor field is inferred) or ``B`` (one that matters is missing)."""
    team: str = ""
    """Publisher, across families: the runs of a team share machines, software and habits."""
    first_time: float | None = None
    """Error of its step time when it was first predicted, before anything was fitted or corrected with it; None:
    not on record.
    """
    first_memory: float | None = None
    """The same for its peak memory."""

    def error(self, quantity: str) -> float:
        """The error of ``time`` or ``memory`` that says most about unseen runs: the first one, else the left-out."""
        first = self.first_time if quantity == "time" else self.first_memory
        return float(getattr(self, quantity) if first is None else first)

    def has(self, quantity: str) -> bool:
        """Whether it is evidence of ``time`` or ``memory``."""
        is_doubted = quantity == "memory" and self.family in CONTRADICTORY_MEMORY
        return getattr(self, quantity) is not None and not is_doubted


class _Cell(NamedTuple):
    """A cell of a row: its record and field, and how it is written and read."""

    kind: type
    field: str
    read: Callable[[Row, str], Any]
    """Reads it from an untrusted row. Raises ``ValueError``."""
    quick: Callable[[str], Any] = str
    """Reads it from a built-in row."""
    write: Callable[[Any], str] = str
    may_be_absent: bool = False


def _believable(ratio: float | None) -> str:
    return "" if ratio is None else f"{min(max(ratio, -LARGEST_ERROR), LARGEST_ERROR):.4f}"


def _seconds(time: float | None) -> str:
    return "" if time is None else f"{time:.6g}"


def _measured(cell: str) -> float | None:
    return float(cell) if cell else None


def _share_cell(field: str) -> _Cell:
    return _Cell(Shares, field, partial(_number, least=0, most=1), float, "{:.3f}".format)


@cache
def _known_cells() -> Mapping[str, _Cell]:
    """The cells of a row, in order."""
    return {
        "id": _Cell(Residual, "id", _text),
        "family": _Cell(Residual, "family", _text),
        "accelerator": _Cell(Features, "accelerator", _text),
        "generation": _Cell(Features, "generation", partial(_choice, choices=GENERATIONS)),
        "bits": _Cell(Features, "bits", lambda row, name: int(_choice(row, name, BITS)), int),
        "moe": _Cell(
            Features,
            "moe",
            lambda row, name: _choice(row, name, ("yes", "no")) == "yes",
            "yes".__eq__,
            lambda is_moe: "yes" if is_moe else "no",
        ),
        "parameters": _Cell(Features, "parameters", partial(_number, most=1e16), float, "{:.4g}".format),
        "accelerators": _Cell(Features, "accelerators", partial(_whole, most=1e7), float, "{:g}".format),
        "log_time_ratio": _Cell(Residual, "time", _ratio, _measured, _believable),
        "log_memory_ratio": _Cell(Residual, "memory", _ratio, _measured, _believable),
        "setting": _Cell(Residual, "setting", lambda row, name: str(row[name] or "")),
        **{f"{field}_share": _share_cell(field) for field in Shares._fields},
        "sequence_length": _Cell(Features, "sequence_length", partial(_whole, most=1e12), float, "{:.0f}".format),
        "global_batch_size": _Cell(Features, "global_batch_size", partial(_whole, most=1e9), float, "{:.0f}".format),
        "plan": _Cell(Features, "plan", _plan, plan_from_cell, plan_cell),
        "measured_step_time_s": _Cell(Residual, "measured_step_time", _time, _measured, _seconds),
        "predicted_step_time_s": _Cell(Residual, "predicted_step_time", _time, _measured, _seconds),
        "gap_factor": _Cell(Residual, "gap_factor", partial(_number, least=0, most=1e3), float, "{:.3f}".format),
        "trained": _Cell(Features, "trained", partial(_choice, choices=TRAINED), may_be_absent=True),
        "recurrent": _Cell(
            Features, "recurrent", partial(_number, least=0, most=1), float, "{:.3g}".format, may_be_absent=True
        ),
        "tier": _Cell(Residual, "tier", partial(_choice, choices=TIERS), may_be_absent=True),
        "team": _Cell(Residual, "team", _text, may_be_absent=True),
        "first_log_time_ratio": _Cell(Residual, "first_time", _ratio, _measured, _believable, may_be_absent=True),
        "first_log_memory_ratio": _Cell(Residual, "first_memory", _ratio, _measured, _believable, may_be_absent=True),
    }


def residual_row(run: Residual) -> dict[str, str]:
    """The cells of a run, as in files."""
    parts = {Residual: run, Features: run.features, Shares: run.features.shares}
    return {name: cell.write(getattr(parts[cell.kind], cell.field)) for name, cell in _known_cells().items()}


def residuals_from_rows(rows: Iterable[object], where: str, generation: str) -> tuple[Residual, ...]:
    """The runs of :func:`residual_row`, all of ``generation`` (``default``: of any). Raises ``InputError``.

    Errors name ``where``, the run and the wrong cell.
    """
    return tuple(_residual(row, f"{where}, {_named(row, place)}", generation) for place, row in enumerate(rows, 1))


@cache
def read_residuals() -> tuple[Residual, ...]:
    """The built-in errors, which are not checked again; empty if there is no such file."""
    if not RESIDUALS.exists():
        return ()
    with RESIDUALS.open(encoding="utf-8", newline="") as file:
        head, *rows = csv.reader(file)
    written = dict(zip(head, zip(*rows, strict=True), strict=True))
    columns: dict[str, Iterable[Any]] = {
        cell.field: map(cell.quick, written[name]) for name, cell in _known_cells().items()
    }
    for kind, name in ((Shares, "shares"), (Features, "features")):
        columns[name] = map(kind, *(columns[field] for field in kind._fields))
    return tuple(map(Residual, *(columns[field] for field in Residual._fields)))


def _named(row: object, place: int) -> str:
    name = row.get("id") if isinstance(row, Mapping) else None
    return f"run {shown(name)}" if name else f"row {place}"


def _residual(row: object, where: str, generation: str) -> Residual:
    try:
        return _from_cells(_cells(row), generation)
    except ValueError as error:
        raise InputError(
            f"{where}: {error}",
            rule="errors of runs have the cells that `shardplan calibrate` writes",
            hint="make the profile again, or leave the row out",
        ) from None


def _cells(row: object) -> Row:
    if not isinstance(row, Mapping):
        raise ValueError(f"it is {shown(row)}; it must be a mapping of cells")  # noqa: TRY004  # reported as all others
    missing = [name for name, cell in _known_cells().items() if name not in row and not cell.may_be_absent]
    if missing:
        raise ValueError(f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing")
    return row


def _from_cells(row: Row, generation: str) -> Residual:
    """A run from untrusted cells. Raises ``ValueError``."""
    if generation != "default":
        _choice(row, "generation", (generation,))
    fields: dict[type, dict[str, Any]] = {Shares: {}, Features: {}, Residual: {}}
    for name, cell in _known_cells().items():
        if name in row or not cell.may_be_absent:
            fields[cell.kind][cell.field] = cell.read(row, name)
    features = Features(**fields[Features], shares=Shares(**fields[Shares]))
    return Residual(**fields[Residual], features=features)


def _text(row: Row, name: str) -> str:
    value = row[name]
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise ValueError(f"{name} is {shown(value)}; it must be text")  # noqa: TRY004  # reported as all others
    return str(value)


def _plan(row: Row, name: str) -> Plan:
    if not isinstance(row[name], str):
        raise ValueError(f"plan is {shown(row[name])}; it must be fields of a plan, such as tp=4 pp=8")  # noqa: TRY004  # reported as all others
    return plan_from_cell(row[name])


def _choice(row: Row, name: str, choices: Sequence[str]) -> str:
    value = row[name]
    if isinstance(value, bool) or str(value) not in choices:
        *others, last = (f"'{choice}'" for choice in choices)
        wanted = f"{', '.join(others)} or {last}" if others else f"{last}, as the profile"
        raise ValueError(f"{name} is {shown(value)}; it must be {wanted}")
    return str(value)


def _number(row: Row, name: str, *, least: float = 1.0, most: float) -> float:
    number = _read(row, name, wanted := f"a number from {least:,.0f} to {most:,.0f}")
    if not least <= number <= most:
        raise ValueError(f"{name} is {shown(row[name])}; it must be {wanted}")
    return number


def _whole(row: Row, name: str, *, most: float) -> float:
    number = _number(row, name, most=most)
    if number % 1:
        raise ValueError(f"{name} is {shown(row[name])}; it must be a whole number")
    return number


def _ratio(row: Row, name: str) -> float | None:
    if row[name] in ("", None):
        return None
    limit = f"a number from -{LARGEST_ERROR} to {LARGEST_ERROR} (a thousand times too small or too large), or empty"
    number = _read(row, name, limit)
    if not abs(number) <= LARGEST_ERROR:
        raise ValueError(f"{name} is {shown(row[name])}; it must be {limit}")
    return number


def _time(row: Row, name: str) -> float | None:
    return None if row[name] in ("", None) else _number(row, name, least=0, most=1e9)


def _read(row: Row, name: str, wanted: str) -> float:
    value = row[name]
    try:
        if not isinstance(value, bool):
            return float(value)
    except (TypeError, ValueError, OverflowError):
        pass
    raise ValueError(f"{name} is {shown(value)}; it must be {wanted}")

"""Errors of predicted runs, and what makes runs alike: the rows from which bands are made.

A row of ``data/profiles/residuals.csv``, or of ``left_out_errors`` in a user's profile, is one run predicted by
constants that have not seen it.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple, get_args

from shardplan.errors import InputError, shown
from shardplan.files import DATA
from shardplan.inputs.cluster import Generation
from shardplan.inputs.plan import Plan, plan_cell, plan_from_cell

RESIDUALS = DATA / "profiles" / "residuals.csv"
"""Errors of the shipped runs."""
CONTRADICTORY_MEMORY = ("internevo",)
"""Families whose peak memories contradict their own descriptions: no evidence of how memory errs."""
LARGEST_ERROR = 6.9
"""Largest believable error (logarithm) of a row: a thousand times too large or too small. Larger ones are written as
this, and not read."""
GENERATIONS = get_args(Generation)
BITS = ("4", "8", "16", "32")


class Shares(NamedTuple):
    """Shares of a predicted step whose prediction is least certain."""

    host: float = 0.0
    """The device waits for the host."""
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
"""Tier of a run of which every field that matters is stated."""
PLAIN = Plan()
"""A plan whose every field has its default."""


class Features(NamedTuple):
    """What makes runs alike."""

    accelerator: str
    generation: str
    bits: int
    """Of the matrix products' number format."""
    moe: bool
    parameters: float
    accelerators: float
    sequence_length: float = 4096.0
    global_batch_size: float = 256.0
    """Sequences of a step."""
    plan: Plan = PLAIN
    shares: Shares = EVEN
    """Of the predicted step: what is less certain than computing."""
    trained: str = ALL
    """What is trained: ``all`` weights, ``adapters`` next to frozen ones, or ``part`` of the weights."""
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
    """What the configurations of one comparison share (model, accelerators, sequence); empty: not fully described."""
    measured_step_time: float | None = None
    """[s]"""
    predicted_step_time: float | None = None
    """By the constants that were fitted to all runs, this one included. [s]"""
    gap_factor: float = 1.0
    """How much larger its error was to be expected than most, for what it and its plan have in common with the runs
    that the prediction had seen (``estimation.gaps``)."""
    tier: str = DESCRIBED
    """How fully it is described: ``A``, ``A-`` (one minor field is inferred) or ``B`` (one that matters is missing)."""

    def has(self, quantity: str) -> bool:
        """Whether it is evidence of ``time`` or ``memory``."""
        is_doubted = quantity == "memory" and self.family in CONTRADICTORY_MEMORY
        return getattr(self, quantity) is not None and not is_doubted


def residual_row(run: Residual) -> dict[str, str]:
    """The cells of a run, as they are in files."""
    features = run.features
    ratios = {"log_time_ratio": run.time, "log_memory_ratio": run.memory}
    return {
        "id": run.id,
        "family": run.family,
        "accelerator": features.accelerator,
        "generation": features.generation,
        "bits": str(features.bits),
        "moe": "yes" if features.moe else "no",
        "parameters": f"{features.parameters:.4g}",
        "accelerators": f"{features.accelerators:g}",
        **{name: "" if ratio is None else f"{_believable(ratio):.4f}" for name, ratio in ratios.items()},
        "setting": run.setting,
        "host_share": f"{features.shares.host:.3f}",
        "communication_share": f"{features.shares.communication:.3f}",
        "attention_share": f"{features.shares.attention:.3f}",
        "sequence_length": f"{features.sequence_length:.0f}",
        "global_batch_size": f"{features.global_batch_size:.0f}",
        "plan": plan_cell(features.plan),
        **{key: "" if time is None else f"{time:.6g}" for key, time in _step_times(run).items()},
        "gap_factor": f"{run.gap_factor:.3f}",
        "trained": features.trained,
        "recurrent": f"{features.recurrent:.3g}",
        "tier": run.tier,
    }


def _step_times(run: Residual) -> dict[str, float | None]:
    return {"measured_step_time_s": run.measured_step_time, "predicted_step_time_s": run.predicted_step_time}


def _believable(ratio: float) -> float:
    return min(max(ratio, -LARGEST_ERROR), LARGEST_ERROR)


CELLS = (
    "id", "family", "accelerator", "generation", "bits", "moe", "parameters", "accelerators", "log_time_ratio",
    "log_memory_ratio", "host_share", "communication_share", "attention_share", "sequence_length",
    "global_batch_size", "plan", "measured_step_time_s", "predicted_step_time_s", "gap_factor",
    "setting",
)  # fmt: skip
"""Cells that every row has."""
NUMBERS: Final = ("parameters", "accelerators", "sequence_length", "global_batch_size", "recurrent", "gap_factor")
"""Fields that are numbers and called as their cells."""
MEASURED: Final = {
    "time": "log_time_ratio",
    "memory": "log_memory_ratio",
    "measured_step_time": "measured_step_time_s",
    "predicted_step_time": "predicted_step_time_s",
}
"""Fields whose cell is empty where nothing was measured, and that cell."""


def residuals_from_rows(rows: Iterable[object], where: str, generation: str) -> tuple[Residual, ...]:
    """The runs of :func:`residual_row`, all of ``generation`` (``default``: of any). Raises ``InputError``.

    ``where`` they stand goes before the name of the run and the cell that is wrong.
    """
    return tuple(_residual(row, f"{where}, {_named(row, place)}", generation) for place, row in enumerate(rows, 1))


@cache
def read_residuals() -> tuple[Residual, ...]:
    """The shipped errors, which are not checked again; none where there is no such file."""
    if not RESIDUALS.exists():
        return ()
    with RESIDUALS.open(encoding="utf-8", newline="") as file:
        head, *rows = csv.reader(file)
    cells = dict(zip(head, zip(*rows, strict=True), strict=True))
    columns: dict[str, Iterable[Any]] = {
        **cells,
        **{name: map(float, cells[name]) for name in NUMBERS},
        **{name: map(float, cells[f"{name}_share"]) for name in Shares._fields},
        **{name: (float(each) if each else None for each in cells[cell]) for name, cell in MEASURED.items()},
        "bits": map(int, cells["bits"]),
        "moe": (each == "yes" for each in cells["moe"]),
        "plan": map(plan_from_cell, cells["plan"]),
    }
    columns["shares"] = _rows_of(Shares, columns)
    columns["features"] = _rows_of(Features, columns)
    return tuple(_rows_of(Residual, columns))


def _rows_of(kind: Any, columns: Mapping[str, Iterable[Any]]) -> Iterable[Any]:
    """Named tuples of columns that are called as their fields."""
    return map(kind, *(columns[name] for name in kind._fields))


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


def _cells(row: object) -> Mapping[str, Any]:
    if not isinstance(row, Mapping):
        raise ValueError(f"it is {shown(row)}; it must be a mapping of cells")  # noqa: TRY004  # reported as all others
    missing = [name for name in CELLS if name not in row]
    if missing:
        raise ValueError(f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing")
    return row


def _from_cells(row: Mapping[str, Any], generation: str) -> Residual:
    shares = Shares(**{name: _number(row, f"{name}_share", least=0, most=1) for name in Shares._fields})
    features = Features(
        accelerator=_text(row, "accelerator"),
        generation=_choice(row, "generation", GENERATIONS if generation == "default" else (generation,)),
        bits=int(_choice(row, "bits", BITS)),
        moe=_choice(row, "moe", ("yes", "no")) == "yes",
        parameters=_number(row, "parameters", most=1e16),
        accelerators=_whole(row, "accelerators", most=1e7),
        sequence_length=_whole(row, "sequence_length", most=1e12),
        global_batch_size=_whole(row, "global_batch_size", most=1e9),
        plan=plan_from_cell(_plan_text(row)),
        shares=shares,
        trained=_choice(row, "trained", TRAINED) if "trained" in row else ALL,
        recurrent=_number(row, "recurrent", least=0, most=1) if "recurrent" in row else 0.0,
    )
    return Residual(
        id=_text(row, "id"),
        family=_text(row, "family"),
        features=features,
        time=_ratio(row, "log_time_ratio"),
        memory=_ratio(row, "log_memory_ratio"),
        setting=str(row["setting"] or ""),
        measured_step_time=_time(row, "measured_step_time_s"),
        predicted_step_time=_time(row, "predicted_step_time_s"),
        gap_factor=_number(row, "gap_factor", least=0, most=1e3),
        tier=_choice(row, "tier", TIERS) if "tier" in row else DESCRIBED,
    )


def _text(row: Mapping[str, Any], name: str) -> str:
    value = row[name]
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise ValueError(f"{name} is {shown(value)}; it must be text")  # noqa: TRY004  # reported as all others
    return str(value)


def _plan_text(row: Mapping[str, Any]) -> str:
    if not isinstance(row["plan"], str):
        raise ValueError(f"plan is {shown(row['plan'])}; it must be fields of a plan, such as tp=4 pp=8")  # noqa: TRY004  # reported as all others
    return row["plan"]


def _choice(row: Mapping[str, Any], name: str, choices: Sequence[str]) -> str:
    value = row[name]
    if isinstance(value, bool) or str(value) not in choices:
        *others, last = (f"'{choice}'" for choice in choices)
        wanted = f"{', '.join(others)} or {last}" if others else f"{last}, as the profile"
        raise ValueError(f"{name} is {shown(value)}; it must be {wanted}")
    return str(value)


def _number(row: Mapping[str, Any], name: str, *, least: float = 1.0, most: float) -> float:
    number = _read(row, name, wanted := f"a number from {least:,.0f} to {most:,.0f}")
    if not least <= number <= most:
        raise ValueError(f"{name} is {shown(row[name])}; it must be {wanted}")
    return number


def _whole(row: Mapping[str, Any], name: str, *, most: float) -> float:
    number = _number(row, name, most=most)
    if number % 1:
        raise ValueError(f"{name} is {shown(row[name])}; it must be a whole number")
    return number


def _ratio(row: Mapping[str, Any], name: str) -> float | None:
    if row[name] in ("", None):
        return None
    limit = f"a number from -{LARGEST_ERROR} to {LARGEST_ERROR} (a thousand times too small or too large), or empty"
    number = _read(row, name, limit)
    if not abs(number) <= LARGEST_ERROR:
        raise ValueError(f"{name} is {shown(row[name])}; it must be {limit}")
    return number


def _time(row: Mapping[str, Any], name: str) -> float | None:
    return None if row[name] in ("", None) else _number(row, name, least=0, most=1e9)


def _read(row: Mapping[str, Any], name: str, wanted: str) -> float:
    value = row[name]
    try:
        if not isinstance(value, bool):
            return float(value)
    except (TypeError, ValueError, OverflowError):
        pass
    raise ValueError(f"{name} is {shown(value)}; it must be {wanted}")

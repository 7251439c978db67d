"""The answers of ``calibrate``: errors before and after, constants that moved, what was left out or timed."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

import numpy as np

from shardplan.answers.document import AnswerDocument, Block, Bullets, Column, CommandLine, Line, Part, RowTable
from shardplan.answers.profiles import number
from shardplan.answers.validation import (
    MEANING,
    error_parts,
    not_understood_parts,
    problem_parts,
    read_as_parts,
    taken_parts,
)
from shardplan.base.fields import dataclass
from shardplan.base.records import plain
from shardplan.calibrate.defaults import Refit, with_fitted
from shardplan.calibrate.errors import Errors, errors_of
from shardplan.calibrate.microbench import Kept, Measurements, Outcome, measurements_path
from shardplan.calibrate.user import FitComparison, UserFit
from shardplan.inputs.profile import Constant, constants_of, generations
from shardplan.reports.texts.answer import percent

MOST_CHANGES: Final = 15
MOST_SKIPPED: Final = 5
STILL_OFF: Final = 0.25
"""Median error behind a fit above which something is likely to be wrong with the runs."""
FAR: Final = 3.0
"""Moves of a constant, in units of its uncertainty, that are worth a doubt."""
NO_CHANGE: Final = "None moved: the shipped constants agree with the runs."
TITLES: Final = {"step_time": "Step time", "peak_memory": "Peak memory"}


@dataclass(frozen=True, kw_only=True)
class RefitChange:
    """A shipped value and what it would become."""

    label: str
    unit: str
    before: float
    after: float
    sd: float


def _number_column(key: str, title: str, text: Callable[[Any], str] = number, *, rank: int = 0) -> Column:
    return Column(key, title, attrgetter(key), text, rank=rank)


def _two_digits(sd: float) -> str:
    return number(float(f"{sd:.2g}"))


def _values(values: Sequence[float]) -> str:
    return " / ".join(dict.fromkeys(number(value) for value in values[:2]))


def _short(label: str) -> str:
    """Of keys that move together the first two."""
    name, bracket, keys = label.partition("[")
    parts = keys.rstrip("]").split("+")
    return label if len(parts) < 3 else f"{name}{bracket}{'+'.join(parts[:2])}+...]"


UNIT: Final = Column("unit", "unit", attrgetter("unit"), is_text=True, rank=2)
MOVED: Final = (
    Column("name", "constant", attrgetter("label"), _short, is_text=True),
    _number_column("before", "before", _values),
    _number_column("after", "after", _values),
    _number_column("sd_after", "sd", _two_digits, rank=1),
    UNIT,
)
"""Columns of constants that a fit moved."""
REFITTED: Final = (
    Column("label", "constant", attrgetter("label"), is_text=True),
    _number_column("before", "shipped"),
    _number_column("after", "fitted"),
    _number_column("sd", "sd", _two_digits, rank=1),
    UNIT,
)
"""Columns of shipped values that a fit would change."""


def calibration_document(found: UserFit, profile: str | None) -> AnswerDocument:
    """Errors before and after, constants that moved, what was left out. ``profile``: where it is, if anywhere."""
    if found.num_configurations == 1:
        apart = Line("one configuration: nothing can be left out", tone="doubt")
    else:
        apart = Line("each left out: by a fit that has not seen it; bands count these errors", tone="quiet")
    fitted = f"Fitted to {_runs(len(found.fitted))} of {found.accelerator} ({found.generation})"
    unused = f"{_runs(len(found.skipped))}, each problem once"
    return AnswerDocument(
        name="calibration",
        verdict=[Line(fitted, tone="strong"), MEANING, apart],
        parts=[
            *(part for quantity, title in TITLES.items() for part in error_parts(title, _rows(found, quantity))),
            *_verdict(found),
            _changed(found),
            *read_as_parts(found.read_as),
            *taken_parts(found.taken),
            *not_understood_parts(found.not_understood),
            *problem_parts("Not used", unused, found.skipped),
            *([] if profile is None else [_next_steps(found, profile)]),
        ],
        record=lambda: _calibration_record(found, profile),
    )


def _calibration_record(found: UserFit, profile: str | None) -> dict[str, Any]:
    """Entries of the record of ``calibrate RUNS.csv --json``."""
    return {
        "profile": profile,
        "accelerator": found.accelerator,
        "generation": found.generation,
        "fitted": {"runs": list(found.fitted), **_comparison(found.on_fitted)},
        "held_out": {"runs": list(found.held_out), **_comparison(found.on_held_out)},
        "num_configurations": found.num_configurations,
        "left_out": {
            "runs": [run.id for run in found.left_out],
            **{quantity: plain(left_out_errors(found, quantity)) for quantity in TITLES},
        },
        "skipped": [{"id": one.run.id, "reason": one.said} for one in found.skipped],
        "constants": plain(found.changes),
        "outliers": [{"id": name, "predicted_over_measured": ratio} for name, ratio in found.outliers],
        "not_fitting": [{"id": name, "needed_over_usable": share} for name, share in found.not_fitting],
        "read_as": list(found.read_as),
        "taken_as": dict(found.taken),
        "not_understood": dict(found.not_understood),
    }


def _comparison(compared: FitComparison) -> dict[str, Any]:
    pairs = {quantity: getattr(compared, quantity) for quantity in TITLES}
    return {name: {"before": plain(before), "after": plain(after)} for name, (before, after) in pairs.items()}


def left_out_errors(found: UserFit, quantity: str) -> Errors:
    """Errors of ``step_time`` or ``peak_memory`` of the runs that are predicted by a fit that has not seen them."""
    ratios = [run.time if quantity == "step_time" else run.memory for run in found.left_out]
    return errors_of([np.nan if ratio is None else ratio for ratio in ratios])


def _rows(found: UserFit, quantity: str) -> list[tuple[str, Errors]]:
    """Errors of the runs fitted, held out and left out."""
    (a, b), (c, d) = getattr(found.on_fitted, quantity), getattr(found.on_held_out, quantity)
    names = "fitted, before", "fitted, after", "held out, before", "held out, after", "each left out"
    return list(zip(names, (a, b, c, d, left_out_errors(found, quantity)), strict=True))


def _runs(number_of: int) -> str:
    return f"{number_of:,} run" + "s" * (number_of != 1)


def _verdict(found: UserFit) -> list[Part]:
    """Whether the fit helps where it was not made."""
    before, after = found.on_held_out.step_time
    if before.median is None or after.median is None or after.median <= before.median:
        return []
    text = "The runs held out are predicted no better: their shipped constants serve as well."
    return [Part("", [Line(text, tone="doubt")])]


def _changed(found: UserFit) -> Part:
    """Constants that moved, and what speaks against them."""
    if not found.changes:
        return Part("Constants", [Line(NO_CHANGE), *_doubts(found)])
    shown, more = found.changes[:MOST_CHANGES], len(found.changes) - MOST_CHANGES
    rest = [Line(f"and {more} more that moved less")] if more > 0 else []
    return Part(
        "Constants", [RowTable(shown, MOVED), *rest, *_doubts(found)], "that moved most; sd: relative uncertainty"
    )


def _doubts(found: UserFit) -> Iterable[Line]:
    """What a fit should not have to do where the runs are what they say."""
    after = found.on_fitted.step_time[1].median
    far = [_short(change.label) for change in found.changes if change.move > FAR]
    texts = []
    if after is not None and after > STILL_OFF:
        off = f"Even the fitted constants are off by {percent(after)} in the median"
        texts.append(f"{off}: check units and fields of the runs.")
    if far:
        names = ", ".join(far[:MOST_SKIPPED])
        texts.append(f"Moved over {FAR:g} times as far as they were uncertain: {names}. Check the runs.")
    for said, named in (
        ("Predicted not to fit in memory, although they ran", [(name, f"{x:.2f}x") for name, x in found.not_fitting]),
        ("Predicted less than half or more than twice", [(name, f"{x:.3g}x") for name, x in found.outliers]),
    ):
        if named:
            shown = ", ".join(f"{name[:60]} ({factor})" for name, factor in named[:MOST_SKIPPED])
            more = f" and {len(named) - MOST_SKIPPED} more" if len(named) > MOST_SKIPPED else ""
            texts.append(f"{said}: {shown}{more}.")
    return (Line(text, tone="doubt") for text in texts)


def _next_steps(found: UserFit, profile: str) -> Part:
    """Where the profile is, what it serves, and what may be done better."""
    if found.held_out:
        better = "To use every run, fit again with --holdout 0."
    elif found.num_configurations == 1:
        better = "How well the profile does on others is not known: measure another configuration."
    else:
        better = "No run was held out: the errors of runs left out in turn show how well the profile does on others."
    named = shlex.quote(profile if "/" in profile else "./" + profile)
    return Part(
        "Next steps",
        [
            Line(f"Saved in {profile}; every question takes it with --profile {shlex.quote(profile)}."),
            CommandLine(f"shardplan profiles {named}"),
            Line(better),
        ],
    )


MEASURED: Final = (
    Column("", "constant", lambda row: row[0] if row[1] is None else f"{row[0]}[{row[1]}]", is_text=True),
    Column("", "value", lambda row: _of(row[2].value, row[1]), number),
    Column("", "sd", lambda row: _of(row[2].sd, row[1]), _two_digits, rank=1),
    Column("", "unit", lambda row: row[2].unit, is_text=True, rank=1),
)
"""Columns of constants with a key of their table (None: a number)."""


def microbench_document(measured: Measurements, outcome: Outcome, profile: str) -> AnswerDocument:
    """What was timed, what follows from it, and what does not. ``profile``: its file."""
    device = measured.accelerator or "not in the catalogue: rates relative to a peak are left out"
    skipped = f", {len(measured.skipped)} skipped" if measured.skipped else ""
    keys = [
        (name, key, constant)
        for name, constant in outcome.constants.items()
        for key in (constant.value if isinstance(constant.value, dict) else [None])
    ]
    raw = measurements_path(profile)
    steps: list[Block] = [
        Line(f"Saved in {profile}, every timing in {raw}."),
        Line(f"Every question takes it with --profile {shlex.quote(profile)}."),
    ]
    if measured.device.kind == "cpu":
        steps.append(Line("These are constants of a processor: they hold for clusters of it, not of accelerators."))
    parts = [
        *([Part("Constants", [RowTable(keys, MEASURED)], "measured; sd: relative uncertainty")] if keys else ()),
        *([_kept(outcome.kept)] if outcome.kept else ()),
        *([Part("Next steps", steps)] if keys else ()),
    ]
    return AnswerDocument(
        name="microbenchmark",
        verdict=[
            Line(f"Timed on {measured.device.name} ({device})", tone="strong"),
            Line(f"{len(measured.samples)} cases with {measured.software}{skipped}", tone="quiet"),
            *(Line(f"{warning[0].upper()}{warning[1:]}.", tone="doubt") for warning in outcome.warnings),
        ],
        parts=parts,
        record=lambda: {
            "profile": profile,
            "measurements": str(raw),
            "device": plain(measured.device),
            "accelerator": measured.accelerator,
            "software": measured.software,
            "is_complete": measured.is_complete,
            "num_samples": len(measured.samples),
            "num_skipped": len(measured.skipped),
            "constants": [
                {"name": name, **{key: getattr(constant, key) for key in ("value", "unit", "source", "sd")}}
                for name, constant in outcome.constants.items()
            ],
            "kept": plain(outcome.kept),
            "warnings": list(outcome.warnings),
        },
    )


def _of(value: float | Mapping[str, float] | None, key: str | None) -> float | None:
    """The value of one key of a table, or the number itself."""
    return value.get(key or "") if isinstance(value, Mapping) else value


def _kept(kept: Sequence[Kept]) -> Part:
    """What stays as it was, by reason."""
    blocks: list[Block] = []
    for reason in dict.fromkeys(one.reason for one in kept):
        values = [f"{one.label} {number(one.value)} {one.unit}" for one in kept if one.reason == reason]
        blocks += [Line(f"{reason[0].upper()}{reason[1:]}:"), Bullets(values, "quiet")]
    return Part("Kept", blocks, "values of the base profile, not measured")


def refit_document(found: Refit, changes: Sequence[RefitChange], *, is_written: bool) -> AnswerDocument:
    """Errors in-sample and left out, and what would change."""
    errors = refit_errors(found)
    pairs = {title: zip(("in-sample", "team left out"), errors[name], strict=True) for name, title in TITLES.items()}
    about = "that changed" if is_written else "that would change (--write changes them)"
    runs = f"{len(found.cases):,} published runs, each of {len(found.fit.folds) - 1} teams left out once"
    return AnswerDocument(
        name="refit",
        verdict=[Line(runs, tone="strong")],
        parts=[
            *(part for title, rows in pairs.items() for part in error_parts(title, list(rows))),
            Part("Constants", [RowTable(changes, REFITTED)], about)
            if changes
            else Part("Constants", [Line("None would change.")]),
        ],
        record=lambda: {
            "num_runs": len(found.cases),
            "teams": [team for team in found.fit.folds if team is not None],
            "objectives": list(found.fit.objectives),
            **{name: {"in_sample": plain(one), "left_out": plain(other)} for name, (one, other) in errors.items()},
            "constants": plain(changes),
            "is_written": is_written,
        },
    )


def refit_errors(found: Refit) -> dict[str, tuple[Errors, Errors]]:
    """Errors of step time and of peak memory: in-sample, and each run by constants that never saw its team."""
    return {
        "step_time": (errors_of(found.time[:, 0]), errors_of(found.left_out(found.time))),
        "peak_memory": (errors_of(found.memory[:, 0]), errors_of(found.left_out(found.memory))),
    }


def refit_changes(found: Refit) -> tuple[RefitChange, ...]:
    """Shipped values that the fit would change, as they are rounded in files."""
    return tuple(change for generation in ("default", *generations()) for change in _changes(found, generation))


def _changes(found: Refit, generation: str) -> list[RefitChange]:
    shipped, fitted = constants_of(generation), with_fitted(found.fit, generation)
    place = "" if generation == "default" else f"{generation}."
    spreads = {
        (free.name, key): float(found.fit.sd[column])
        for column, free in enumerate(found.fit.frees)
        if free.generation == generation
        for key in (free.keys or (None,))
    }
    changes = []
    for (name, key), sd in spreads.items():
        before, after = (_value(constants[name], key) for constants in (shipped, fitted))
        if before != after:
            label = f"{place}{name}" if key is None else f"{place}{name}[{key}]"
            changes.append(RefitChange(label=label, unit=shipped[name].unit, before=before, after=after, sd=sd))
    return changes


def _value(constant: Constant, key: str | None) -> float:
    value: Any = constant.value
    return float(value if key is None else value[key])

"""The answers of ``calibrate``."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from shardplan.answers.profiles import number
from shardplan.calibration.defaults import Refit
from shardplan.calibration.errors import Errors
from shardplan.calibration.microbench import Kept, Measurements, Outcome, measurements_path
from shardplan.calibration.user import Change, FitComparison, UserFit
from shardplan.cli.layout import Column, Page
from shardplan.cli.show.validation import error_columns, show_not_understood, show_problems, show_read_as, show_taken
from shardplan.inputs.profile import Constant
from shardplan.reports.calibration import RefitChange, left_out_errors, refit_errors
from shardplan.reports.texts.answer import percent

MOST_CHANGES = 15
MOST_SKIPPED = 5
STILL_OFF = 0.25
"""Median error behind a fit above which something is likely to be wrong with the runs."""
FAR = 3.0
"""Moves of a constant, in units of its uncertainty, that are worth a doubt."""


def show_calibration(page: Page, found: UserFit, out: str | None) -> None:
    """Errors before and after, constants that moved, what was left out. ``out``: where the profile is, if anywhere."""
    _heading(page, found)
    for title, quantity in (("Step time", "step_time"), ("Peak memory", "peak_memory")):
        rows = _rows(found, quantity)
        if rows:
            page.heading(title)
            _errors(page, rows)
    _verdict(page, found)
    _changed(page, found.changes)
    _doubts(page, found)
    show_read_as(page, found.read_as)
    show_taken(page, found.taken)
    show_not_understood(page, found.not_understood)
    show_problems(page, "Not used", f"{_runs(len(found.skipped))}, each problem once", found.skipped)
    if out is not None:
        _go_on(page, found, out)


def _heading(page: Page, found: UserFit) -> None:
    """What was fitted, and what the errors are."""
    runs = _runs(len(found.fitted))
    page.line(f"Fitted to {runs} of {found.accelerator} ({found.generation})", style="bold", indent=0)
    page.line("Error 10 %: 1.1 times too large or too small. Bias above zero: too large.", style="dim", indent=0)
    if found.num_configurations == 1:
        page.line("one configuration: nothing can be left out", style="yellow", indent=0)
    else:
        page.line("each left out: by a fit that has not seen it; bands count these errors", style="dim", indent=0)


def _rows(found: UserFit, quantity: str) -> list[tuple[str, Errors]]:
    """Errors of the runs fitted, held out and left out; none where nothing was measured."""
    rows = _compared(found.on_fitted, "fitted", quantity) + _compared(found.on_held_out, "held out", quantity)
    left_out = left_out_errors(found, "time" if quantity == "step_time" else "memory")
    return [*rows, ("each left out", left_out)] if left_out.n else rows


def _go_on(page: Page, found: UserFit, out: str) -> None:
    """Where the profile is, what it serves, and what may be done better."""
    page.heading("Next steps")
    page.line(f"Saved in {out}:")
    page.verbatim(f"shardplan plan MODEL ... --profile {shlex.quote(out)}")
    page.verbatim(f"shardplan profiles {shlex.quote(out if '/' in out else './' + out)}")
    if found.held_out:
        page.line("To use every run, fit again with --holdout 0.")
    elif found.num_configurations == 1:
        page.line("How well the profile does on others is not known: measure another configuration.")
    else:
        page.line("No run was held out: the errors of runs left out in turn show how well the profile does on others.")


def _runs(number_of: int) -> str:
    return f"{number_of:,} run" + "s" * (number_of != 1)


def _compared(compared: FitComparison, name: str, quantity: str) -> list[tuple[str, Errors]]:
    before, after = getattr(compared, quantity)
    return [(f"{name}, before", before), (f"{name}, after", after)] if before.n else []


def _errors(page: Page, rows: Sequence[tuple[str, Errors]]) -> None:
    names = Column(title="", cells=[name for name, _ in rows], is_text=True)
    page.table([names, *error_columns([errors for _, errors in rows])])


def _verdict(page: Page, found: UserFit) -> None:
    """Whether the fit helps where it was not made."""
    before, after = found.on_held_out.step_time
    if before.median is None or after.median is None:
        return
    if after.median > before.median:
        page.console.print()
        page.line("The runs held out are predicted no better: their shipped constants serve as well.", style="yellow")


def _doubts(page: Page, found: UserFit) -> None:
    """What a fit should not have to do where the runs are what they say."""
    after = found.on_fitted.step_time[1].median
    far = [_short(change.label) for change in found.changes if change.move > FAR]
    if after is not None and after > STILL_OFF:
        text = (
            f"Even the fitted constants are off by {percent(after)} in the median: check units and fields of the runs."
        )
        page.line(text, style="yellow")
    if far:
        names = ", ".join(far[:MOST_SKIPPED])
        page.line(f"Moved over {FAR:g} times as far as they were uncertain: {names}. Check the runs.", style="yellow")
    if found.not_fitting:
        named = [f"{name[:60]} ({share:.2f}x)" for name, share in found.not_fitting[:MOST_SKIPPED]]
        more = f" and {len(found.not_fitting) - MOST_SKIPPED} more" if len(found.not_fitting) > MOST_SKIPPED else ""
        page.line(f"Predicted not to fit in memory, although they ran: {', '.join(named)}{more}.", style="yellow")
    if found.outliers:
        named = [f"{name[:60]} ({factor:.3g}x)" for name, factor in found.outliers[:MOST_SKIPPED]]
        more = f" and {len(found.outliers) - MOST_SKIPPED} more" if len(found.outliers) > MOST_SKIPPED else ""
        page.line(f"Predicted less than half or more than twice: {', '.join(named)}{more}.", style="yellow")


def _changed(page: Page, changes: Sequence[Change]) -> None:
    if not changes:
        page.heading("Constants")
        page.line("None moved: the shipped constants agree with the runs.")
        return
    page.heading("Constants", "that moved most; sd: relative uncertainty")
    shown = changes[:MOST_CHANGES]
    page.table(
        [
            Column(title="constant", cells=[_short(change.label) for change in shown], is_text=True),
            Column(title="before", cells=[_values(change.before) for change in shown]),
            Column(title="after", cells=[_values(change.after) for change in shown]),
            Column(title="sd", cells=[number(float(f"{change.sd_after:.2g}")) for change in shown], rank=1),
            Column(title="unit", cells=[change.unit for change in shown], is_text=True, rank=2),
        ]
    )
    if len(changes) > len(shown):
        page.line(f"and {len(changes) - len(shown)} more that moved less")


def _short(label: str) -> str:
    """Of keys that move together the first two."""
    name, bracket, keys = label.partition("[")
    parts = keys.rstrip("]").split("+")
    return label if len(parts) < 3 else f"{name}{bracket}{'+'.join(parts[:2])}+...]"


def _values(values: Sequence[float]) -> str:
    return " / ".join(dict.fromkeys(number(value) for value in values[:2]))


def show_microbench(page: Page, measured: Measurements, outcome: Outcome, out: str) -> None:
    """What was timed, what follows from it, and what does not."""
    device = measured.accelerator or "not in the catalogue: rates relative to a peak are left out"
    page.line(f"Timed on {measured.device.name} ({device})", style="bold", indent=0)
    skipped = f", {len(measured.skipped)} skipped" if measured.skipped else ""
    page.line(f"{len(measured.samples)} cases with {measured.software}{skipped}", style="dim", indent=0)
    for warning in outcome.warnings:
        page.line(f"{warning[0].upper()}{warning[1:]}.", style="yellow", indent=0)
    if outcome.constants:
        _measured(page, outcome.constants)
    _kept(page, outcome.kept)
    if not outcome.constants:
        return
    page.heading("Next steps")
    page.line(f"Saved in {out}, every timing in {measurements_path(out)}:")
    page.verbatim(f"shardplan plan MODEL ... --profile {shlex.quote(out)}")
    if measured.device.kind == "cpu":
        page.line("These are constants of a processor: they hold for clusters of it, not of accelerators.")


def _measured(page: Page, constants: Mapping[str, Constant]) -> None:
    rows = [
        (name if key is None else f"{name}[{key}]", value, _of(constant.sd, key), constant.unit)
        for name, constant in constants.items()
        for key, value in (constant.value.items() if isinstance(constant.value, dict) else [(None, constant.value)])
    ]
    page.heading("Constants", "measured; sd: relative uncertainty")
    page.table(
        [
            Column(title="constant", cells=[name for name, _, _, _ in rows], is_text=True),
            Column(title="value", cells=[number(float(value)) for _, value, _, _ in rows]),
            Column(title="sd", cells=[number(sd) for _, _, sd, _ in rows], rank=1),
            Column(title="unit", cells=[unit for _, _, _, unit in rows], is_text=True, rank=1),
        ]
    )


def _of(sd: float | Mapping[str, float] | None, key: str | None) -> float | None:
    """The uncertainty of one value."""
    found = sd.get(key or "") if isinstance(sd, Mapping) else sd
    return None if found is None else float(f"{found:.2g}")


def _kept(page: Page, kept: Sequence[Kept]) -> None:
    """What stays as it was, by reason."""
    if not kept:
        return
    page.heading("Kept", "values of the base profile, not measured")
    for reason in dict.fromkeys(one.reason for one in kept):
        page.line(f"{reason[0].upper()}{reason[1:]}:")
        values = [f"{one.label} {number(one.value)} {one.unit}" for one in kept if one.reason == reason]
        page.bullets(values, style="dim")


def show_refit(page: Page, found: Refit, changes: Sequence[RefitChange], *, is_written: bool) -> None:
    """Errors in-sample and left out, and what would change."""
    families = len(found.fit.folds) - 1
    page.line(f"{len(found.cases):,} published runs, each of {families} families left out once", style="bold", indent=0)
    for title, (in_sample, left_out) in zip(("Step time", "Peak memory"), refit_errors(found).values(), strict=True):
        page.heading(title)
        _errors(page, [("in-sample", in_sample), ("family left out", left_out)])
    if not changes:
        page.heading("Constants")
        page.line("None would change.")
        return
    page.heading("Constants", "that changed" if is_written else "that would change (--write changes them)")
    page.table(
        [
            Column(title="constant", cells=[change.label for change in changes], is_text=True),
            Column(title="shipped", cells=[number(change.before) for change in changes]),
            Column(title="fitted", cells=[number(change.after) for change in changes]),
            Column(title="sd", cells=[number(float(f"{change.sd:.2g}")) for change in changes], rank=1),
            Column(title="unit", cells=[change.unit for change in changes], is_text=True, rank=2),
        ]
    )

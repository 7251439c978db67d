"""The answer of ``validate``: errors by group, worst rows, skipped rows, order within sweeps, coverage of bands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.text import Text

from shardplan.calibration.errors import Errors, Verdicts
from shardplan.calibration.predict import MOST_OVER, Prediction, SkippedRun, not_understood, taken_as
from shardplan.calibration.runs.cells import TIERS
from shardplan.calibration.usable import problems_of
from shardplan.calibration.validate import Validation
from shardplan.cli.layout import Column, Page
from shardplan.reports.texts.answer import percent
from shardplan.reports.validation import ErrorGroup, Seen, Worst, groups_of, shared_reasons, worst_of
from shardplan.units import format_bytes, format_time

PUBLISHED = "the published runs"
"""What the runs that ship with the product are called."""
MOST_RULES = 8
MOST_NAMES = 3
LONGEST_NAME = 60
MOST_NOT_FITTING = 5
LONGEST_TEXT = 120
MOST_LINES = 2
"""Lines that a reason takes on the terminal; the JSON has all of it."""


def show_validation(
    page: Page,
    found: Validation,
    by: str,
    seen: Seen,
    *,
    named: str,
    profile: str | None,
    generation: str | None,
    stated: str,
) -> None:
    """All of it. ``seen``: what the constants have seen. ``generation``: accelerators to which the profile applies.

    ``stated``: errors by constants that never saw the runs, as README.md states them.
    """
    _verdict(page, found, named, profile)
    if found.slip is not None:
        page.line(f"{found.slip[:1].upper()}{found.slip[1:]}.", indent=0, style="bold yellow")
    if stated:
        page.line(f"On runs whose family the fit never saw, as README.md says: {stated}.", indent=0)
    if profile is not None:
        _applies(page, found, generation)
    for text in _seen(seen):
        page.line(text, style="dim", indent=0)
    if found.predictions:
        groups = groups_of(found, by)
        _errors(page, "Step time", by, [(group.name, group.step_time) for group in groups])
        _errors(page, "Peak memory", by, [(group.name, group.peak_memory) for group in _with_memory(groups)])
        _fits(page, by, [*found.fits_by(by).items(), ("all", found.fits)])
        _worst(page, worst_of(found.counted), shared_reasons(found.counted))
        title, about = "Predicted not to fit", "tensors of the fullest accelerator against what they can fill"
        _wrong_verdicts(page, found.not_fitting, title, about, "fits: false")
        about = "though they ran out of memory; needed against usable memory"
        _wrong_verdicts(page, found.false_fits, "Predicted to fit", about, "result: oom and fits: true")
        _order(page, found)
    show_read_as(page, found.read_as)
    show_taken(page, taken_as(one.asked for one in found.predictions))
    show_not_understood(page, not_understood(one.asked for one in found.predictions))
    show_problems(page, "Skipped", "rows that cannot be predicted, each problem once", found.skipped)


def _verdict(page: Page, found: Validation, named: str, profile: str | None) -> None:
    total = len(found.predictions) + len(found.skipped)
    constants = f" with the constants of {profile}" if profile else ""
    rows = "1 row" if total == 1 else f"{total:,} rows"
    text = f"{rows} of {named}{constants}: {len(found.predictions):,} predicted, {len(found.skipped):,} skipped"
    page.line(text, style="bold", indent=0)
    page.line("Error 10 %: 1.1 times too large or too small. Bias above zero: too large.", style="dim", indent=0)
    if found.not_fitting:
        count = len(found.not_fitting)
        is_said = "1 row is predicted not to fit in memory, although it ran."
        are_said = f"{count:,} rows are predicted not to fit in memory, although they ran."
        page.line(is_said if count == 1 else are_said, indent=0)
    if found.impossible:
        lines = ", ".join(f"{one.run.line:,}" for one in found.impossible[:MOST_NOT_FITTING])
        more = f" and {len(found.impossible) - MOST_NOT_FITTING:,} more" * (len(found.impossible) > MOST_NOT_FITTING)
        text = f"Cannot have run as written, and left out of the errors (over {MOST_OVER:g} times the memory): "
        page.line(f"{text}line{'s' * (len(found.impossible) > 1)} {lines}{more}.", style="yellow", indent=0)


def _applies(page: Page, found: Validation, generation: str | None) -> None:
    """How many runs the constants of a profile are those of."""
    parts = [one.asked.question.cluster.accelerator.generation for one in found.predictions]
    count = sum(part == generation for part in parts)
    text = f"They are constants of {generation}, which apply to {count:,} of the {len(parts):,} runs."
    page.line(text, style="" if count else "yellow", indent=0)


def _seen(seen: Seen) -> list[str]:
    """What the constants were fitted to, and how many of the runs are among it."""
    said = [] if seen.fitted_to is None else [_of_profile(seen, seen.fitted_to)]
    if seen.num_published:
        which = "The constants" if seen.fitted_to is None else "The shipped constants that it keeps"
        among = "these runs" if seen.num_published == seen.num_runs else f"{seen.num_published:,} of these runs"
        said.append(f"{which} were fitted to {among}; docs/accuracy.md counts with each family left out.")
    return said


def _of_profile(seen: Seen, fitted_to: tuple[str, ...]) -> str:
    """What a profile that is not shipped was fitted to."""
    if not fitted_to and not seen.is_named:
        return "The profile was fitted to no runs."
    said = f"The profile was fitted to {' and '.join(fitted_to) or 'runs that moved none of its constants'}"
    if not seen.is_named:
        return f"{said}; it does not say which. Of those that it has seen errors and bands are not those of new runs."
    if not seen.num_own:
        return f"{said}; none of these runs is among what it was made from."
    count = "these runs" if seen.num_own == seen.num_runs else f"{seen.num_own:,} of these {seen.num_runs:,} runs"
    return f"{said}, and made from {count}, any held out included: their errors and bands are not those of new runs."


def _fits(page: Page, by: str, rows: list[tuple[str, Verdicts]]) -> None:
    """Verdicts on groups with a run out of memory or a wrong verdict, and on all; nothing where all is right."""
    shown = [(name, one) for name, one in rows[:-1] if one.out_of_memory or one.right != 1]
    if not shown:
        return
    found = [one for _, one in (*shown, rows[-1])]
    page.heading("Fits", 'the verdict "fits" against how runs ended; false "no": it ran')
    page.table(
        [
            Column(title=by, cells=[name for name, _ in (*shown, rows[-1])], is_text=True),
            Column(title="n", cells=[f"{one.n:,}" for one in found]),
            Column(title="out of memory", cells=[f"{one.out_of_memory:,}" for one in found]),
            Column(title="right", cells=[_share(one.right) for one in found]),
            Column(title='false "fits"', cells=[f"{one.false_fits:,}" for one in found]),
            Column(title="by over 3 %", cells=[f"{one.false_fits_beyond_3_percent:,}" for one in found], rank=2),
            Column(title="by over 10 %", cells=[f"{one.false_fits_beyond_10_percent:,}" for one in found], rank=1),
            Column(title='false "no"', cells=[f"{one.false_misfits:,}" for one in found]),
        ],
        styles=[""] * len(shown) + ["bold"],
    )


def _with_memory(groups: tuple[ErrorGroup, ...]) -> list[ErrorGroup]:
    return [group for group in groups if group.peak_memory.n]


def _errors(page: Page, title: str, by: str, rows: list[tuple[str, Errors]]) -> None:
    if not rows or not rows[-1][1].n:
        return
    shown = [(name, errors) for name, errors in rows if errors.n]
    page.heading(title)
    columns = [Column(title=by, cells=[name for name, _ in shown], is_text=True)]
    page.table([*columns, *error_columns([errors for _, errors in shown])], styles=[""] * (len(shown) - 1) + ["bold"])


def error_columns(rows: list[Errors]) -> list[Column]:
    """Number of rows, median, 90th percentile and bias."""
    return [
        Column(title="n", cells=[f"{errors.n:,}" for errors in rows]),
        Column(title="median", cells=[_share(errors.median) for errors in rows]),
        Column(title="90th pct", cells=[_share(errors.p90) for errors in rows]),
        Column(title="bias", cells=["-" if e.bias is None else f"{100 * e.bias:+.1f} %" for e in rows]),
        Column(title="over 10 % too small", cells=[_share(errors.too_small) for errors in rows], rank=1),
    ]


def _share(value: float | None) -> str:
    return "-" if value is None else percent(value)


def _worst(page: Page, rows: tuple[Worst, ...], shared: Sequence[str]) -> None:
    page.heading("Furthest off", "predicted against measured, and what is not stated or not understood")
    if shared:
        page.bullets([f"of all rows: {'; '.join(shared)}"], style="dim", most_lines=MOST_LINES)
    factors = [_factor(row.factor) for row in rows]
    for row, factor in zip(rows, factors, strict=True):
        named = f"{_named(row.prediction)}: {_against(row)}"
        page.hanging(Text(factor.rjust(max(6, *map(len, factors)))), Text(named), gap=1)
        page.bullets([row.reason], style="dim", most_lines=MOST_LINES)


def _wrong_verdicts(page: Page, runs: tuple[Prediction, ...], title: str, about: str, keys: str) -> None:
    """Those that are furthest off, and how many more there are, which ``keys`` mark in the JSON."""
    if not runs:
        return
    page.heading(title, about)
    for one in runs[:MOST_NOT_FITTING]:
        share = f"{one.needed_memory_bytes / one.usable_memory_bytes:.2f}x".rjust(6)
        page.hanging(Text(share), Text(f"{_named(one)}: {_need(one)}"), gap=1)
    if len(runs) > MOST_NOT_FITTING:
        page.line(f"and {len(runs) - MOST_NOT_FITTING:,} more ({keys} in --json)", style="dim")


def _need(one: Prediction) -> str:
    if not one.fits and one.needed_memory_bytes <= one.usable_memory_bytes:
        return "what is offloaded exceeds the main memory of its node"
    return f"{format_bytes(one.needed_memory_bytes)} of {format_bytes(one.usable_memory_bytes)}"


def _named(one: Prediction) -> str:
    name = one.run.id
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 3]}..."


def _factor(ratio: float) -> str:
    """With two digits at least, and no decimals where they tell nothing."""
    if ratio < 0.1:
        return f"{ratio:.2g}x"
    return f"{ratio:.2f}x" if ratio < 100 else f"{ratio:,.0f}x"


def _against(row: Worst) -> str:
    one, run = row.prediction, row.prediction.run
    if row.quantity == "memory":
        return f"memory {format_bytes(one.peak_memory_bytes)} against {format_bytes(run.peak_memory_bytes or 0.0)}"
    return f"{format_time(one.step_time)} against {format_time(run.step_time or 0.0)}"


def _by_tier(found: Validation) -> str:
    """Coverage of each tier, where there are several: bands are made for runs that are described in full."""
    shares = {tier: found.coverage(tier) for tier in TIERS.values()}
    texts = [f"{percent(share)} of tier {tier}" for tier, share in shares.items() if share is not None]
    return f" of runs that are described in full (tier A): {', '.join(texts)}" if len(texts) > 1 else ""


def _order(page: Page, found: Validation) -> None:
    coverage = found.coverage()
    if coverage is not None:
        page.heading("Bands")
        text = f"{percent(coverage)} of the measured step times lie inside their band, which is made for 80 %"
        page.line(f"{text}{_by_tier(found)}.")
    ranking = found.ranking()
    if not ranking["sweeps"]:
        return
    page.heading("Order within sweeps", "three or more configurations of one model on one cluster")
    parts = [f"{ranking['sweeps']} sweep{'s' * (ranking['sweeps'] != 1)}"]
    parts.append(f"the pick is {percent(ranking['mean_regret'] or 0.0)} slower than the best on average")
    if ranking["pairs_in_order"] is not None:
        parts.append(f"{percent(ranking['pairs_in_order'])} of {ranking['pairs']:,} clearly different pairs in order")
    parts.append(f"median rank correlation {ranking['median_spearman']:.2f}")
    page.line("; ".join(parts) + ".")


def show_not_understood(page: Page, texts: Mapping[str, int]) -> None:
    """Options, values and columns that changed nothing: a misspelt one is among them."""
    _counted(page, "Not understood", "what the runs state and the estimate does not know", texts)


def show_taken(page: Page, texts: Mapping[str, int]) -> None:
    """Names and words that are read as others."""
    _counted(page, "Taken as", "names and words of the runs that shardplan knows under others", texts)


def show_read_as(page: Page, texts: Sequence[str]) -> None:
    """Columns of the file under other names, once for all rows."""
    if texts:
        page.heading("Read as", "columns of the file")
        page.bullets([", ".join(text.removeprefix("column ").replace(" is read as ", " as ") for text in texts)])


def _counted(page: Page, title: str, about: str, texts: Mapping[str, int]) -> None:
    if not texts:
        return
    page.heading(title, about)
    shown = [f"{text[:LONGEST_TEXT]} ({count:,} row{'s' * (count != 1)})" for text, count in texts.items()]
    more = [f"and {len(shown) - MOST_RULES} more"] if len(shown) > MOST_RULES else []
    page.bullets([*shown[:MOST_RULES], *more], most_lines=MOST_LINES)


def show_problems(page: Page, title: str, about: str, skipped: Sequence[SkippedRun]) -> None:
    """What is wrong with rows that are left out: each problem once, with the lines that have it."""
    problems = problems_of(skipped)
    if not problems:
        return
    page.heading(title, about)
    for each in problems[:MOST_RULES]:
        page.hanging(Text(f"{len(each.lines):,}".rjust(4)), Text(f"{each.where}: {each.text}"), gap=1)
    hidden = problems[MOST_RULES:]
    if hidden:
        count = sum(len(each.lines) for each in hidden)
        page.line(f"and {count:,} more that break {len(hidden):,} other rules; --json has all of them")

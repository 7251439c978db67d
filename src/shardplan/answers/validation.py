"""The answer of ``validate``: errors by group, rows furthest off, order within sweeps, bands, skipped rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any, Final

from shardplan.answers.document import AnswerDocument, Block, Bullets, Column, Item, Line, Part, RowTable, Tone
from shardplan.base.fields import dataclass
from shardplan.base.units import format_bytes, format_time
from shardplan.calibrate.errors import Errors, Inside, Verdicts
from shardplan.calibrate.predict import MOST_OVER, Prediction, SkippedRun, not_understood, taken_as
from shardplan.calibrate.runs.cells import TIERS
from shardplan.calibrate.runs.rows import is_only_compared
from shardplan.calibrate.usable import problems_of
from shardplan.calibrate.validate import Validation
from shardplan.inputs.profile import Profile, load_profile
from shardplan.inputs.readers.residuals import read_residuals
from shardplan.reports.accuracy.record import StatedAccuracy
from shardplan.reports.texts.answer import percent, signed_percent

PUBLISHED: Final = "the published runs"
"""What the runs that ship with the product are called."""
MEANING: Final = Line("Error 10 %: 1.1 times too large or too small. Bias above zero: too large.", tone="quiet")
MOST_WORST: Final = 8
FEWEST_SHARED: Final = 2
"""Rows of which something is common."""
MOST_RULES: Final = 8
LONGEST_NAME: Final = 60
MOST_NOT_FITTING: Final = 5
LONGEST_TEXT: Final = 120
MOST_LINES: Final = 2
"""Lines that a reason takes on the terminal; the JSON has all of it."""


def _of_rows(key: str, title: str, text: Callable[[Any], str] = "{:,}".format, rank: int = 0) -> Column:
    """A column of rows that are a name with errors or verdicts."""
    return Column(key, title, lambda row: getattr(row[1], key), text, rank=rank)


ERRORS: Final = (
    _of_rows("n", "n"),
    _of_rows("median", "median", percent),
    _of_rows("p90", "90th pct", percent),
    _of_rows("bias", "bias", signed_percent),
    _of_rows("too_small", "over 10 % too small", percent, rank=1),
)
"""Columns of errors by the name of a group."""
VERDICTS: Final = (
    _of_rows("n", "n"),
    _of_rows("out_of_memory", "out of memory"),
    _of_rows("right", "right", percent),
    _of_rows("false_fits", 'false "fits"'),
    _of_rows("false_fits_beyond_3_percent", "by over 3 %", rank=2),
    _of_rows("false_fits_beyond_10_percent", "by over 10 %", rank=1),
    _of_rows("false_misfits", 'false "no"'),
)
"""The same of verdicts."""
Named = tuple[str, Errors] | tuple[str, Verdicts]
NamedInside = tuple[str, Inside]


@dataclass(frozen=True, kw_only=True)
class Worst:
    """A row that is far off, and what may be the reason."""

    prediction: Prediction
    quantity: str
    """``step time`` or ``memory``."""
    factor: float
    """Predicted over measured."""
    reason: str


@dataclass(frozen=True, kw_only=True)
class Seen:
    """How many of the runs validated the constants in use have seen: their errors are not those of new runs."""

    num_runs: int
    """All that are predicted."""
    num_published: int
    """Of these the published ones, to which the shipped constants were fitted."""
    fitted_to: tuple[str, ...] | None
    """What the profile was fitted to, in its own words; None: the constants are those that are shipped."""
    num_own: int = 0
    """Of the runs validated those that the profile was made from, the ones held out included."""
    is_named: bool = False
    """Whether the profile names the runs that it was made from."""


def seen_of(validation: Validation, profile: Profile | None) -> Seen:
    """By the names of the runs; ``profile``: the constants given, if any."""
    names = [one.run.id for one in validation.predictions]
    published = {run.id for run in read_residuals() if not is_only_compared(run.family)}
    shipped = Seen(num_runs=len(names), num_published=sum(name in published for name in names), fitted_to=None)
    if profile is None:
        return shipped
    own = {run.id for run in profile.left_out_errors}
    base = load_profile(profile.generation)
    if not own and profile.constants == base.constants:
        return shipped
    said, shipped_say = (
        {one.fitted_on for one in each.constants.values() if one.fitted_on} for each in (profile, base)
    )
    num_own = sum(name in own for name in names)
    return replace(shipped, fitted_to=tuple(sorted(said - shipped_say)), num_own=num_own, is_named=bool(own))


def worst_of(predictions: Sequence[Prediction]) -> tuple[Worst, ...]:
    """The rows that are furthest off, the worst first."""
    shared = shared_reasons(predictions)
    found = [
        Worst(prediction=one, quantity=quantity, factor=math.exp(ratio), reason=_reason(one, shared))
        for one in predictions
        for quantity, ratio in (("step time", one.log_time_ratio), ("memory", one.log_memory_ratio))
        if ratio is not None
    ]
    return tuple(sorted(found, key=lambda row: -abs(math.log(row.factor)))[:MOST_WORST])


def shared_reasons(predictions: Sequence[Prediction]) -> tuple[str, ...]:
    """What is assumed or ignored in every one of several rows, in the order of the first."""
    if len(predictions) < FEWEST_SHARED:
        return ()
    first, *others = [(*one.asked.assumed, *one.asked.ignored) for one in predictions]
    common = set(first).intersection(*others)
    return tuple(text for text in first if text in common)


def _reason(one: Prediction, shared: Sequence[str]) -> str:
    """What was not stated, or stated and not understood, ``shared`` left out: the first things to look at."""
    assumed, ignored = (
        [text for text in texts if text not in shared] for texts in (one.asked.assumed, one.asked.ignored)
    )
    parts = []
    if not one.fits:
        parts.append("is predicted not to fit")
    if one.run.tier == "B":
        parts.append("tier B: a field that matters is missing")
    if assumed:
        parts.append(f"assumed: {'; '.join(assumed)}")
    if ignored:
        parts.append(f"ignored: {'; '.join(ignored)}")
    return "; ".join(parts) or ("nothing else is missing" if shared else "everything is stated")


def validation_document(
    found: Validation,
    by: str,
    *,
    named: str = PUBLISHED,
    profile: str | None = None,
    constants: Profile | None = None,
    generation: str | None = None,
    stated: StatedAccuracy | None = None,
) -> AnswerDocument:
    """The whole answer. ``by``: one of ``GROUPINGS``. ``named``: what the runs are called.

    ``profile``, ``constants``, ``generation``: name and values of the constants given, and accelerators to which they
    apply. ``stated``: errors by constants that never saw the runs, as README.md states them.
    """
    left_out = {} if stated is None else {"left_out": stated.to_record()}
    asked = [one.asked for one in found.predictions]
    return AnswerDocument(
        name="validation",
        verdict=[
            *_verdict(found, named, profile),
            *([Line(f"{found.slip[:1].upper()}{found.slip[1:]}.", tone="warning")] if found.slip is not None else ()),
            *(
                [Line(f"On runs whose team the fit never saw, as README.md says: {stated.text}.")]
                if stated is not None
                else ()
            ),
            *([] if profile is None else [_applies(found, generation)]),
            *(Line(text, tone="quiet") for text in _seen(seen_of(found, constants))),
        ],
        parts=[
            *(_predicted_parts(found, by) if found.predictions else ()),
            *read_as_parts(found.read_as),
            *taken_parts(taken_as(asked)),
            *not_understood_parts(not_understood(asked)),
            *problem_parts("Skipped", "rows that cannot be predicted, each problem once", found.skipped),
        ],
        record=lambda: {**found.to_record(), **left_out},
        is_yes=bool(found.predictions),
    )


def _predicted_parts(found: Validation, by: str) -> Iterable[Part]:
    """Errors, verdicts, rows furthest off, bands, order."""
    times, memories, fits = found.step_time_by(by), found.peak_memory_by(by), found.fits_by(by)
    yield from error_parts("Step time", [*times.items(), ("all", found.step_time)], by)
    yield from error_parts("Peak memory", [*memories.items(), ("all", found.peak_memory)], by)
    judged = [(name, one) for name, one in fits.items() if one.out_of_memory or one.right != 1]
    if judged:
        table = grouped_table([*judged, ("all", found.fits)], VERDICTS, by)
        yield Part("Fits", [table], 'the verdict "fits" against how runs ended; false "no": it ran')
    yield _worst(found.counted)
    about = "tensors of the fullest accelerator against what they can fill"
    yield from _wrong_verdicts(found.not_fitting, "Predicted not to fit", about, "fits: false")
    about = "though they ran out of memory; needed against usable memory"
    yield from _wrong_verdicts(found.false_fits, "Predicted to fit", about, "result: oom and fits: true")
    yield from _order(found, by)


def error_parts(title: str, rows: Sequence[tuple[str, Errors]], by: str | None = None) -> list[Part]:
    """Errors by name, of those that have some; nothing where none has. ``by``: of what they are, all rows last."""
    shown = [(name, errors) for name, errors in rows if errors.n]
    return [Part(title, [grouped_table(shown, ERRORS, by)])] if shown else []


def grouped_table(rows: Sequence[Named], columns: Sequence[Column], by: str | None) -> RowTable:
    """Errors or verdicts by name. ``by``: of what they are, all rows last."""

    def tone(row: Named) -> Tone:
        return "strong" if by is not None and row is rows[-1] else ""

    return RowTable(rows, [Column("", by or "", itemgetter(0), is_text=True), *columns], tone)


def _verdict(found: Validation, named: str, profile: str | None) -> Iterable[Line]:
    total, count = len(found.predictions) + len(found.skipped), len(found.not_fitting)
    constants = f" with the constants of {profile}" if profile else ""
    rows = "1 row" if total == 1 else f"{total:,} rows"
    text = f"{rows} of {named}{constants}: {len(found.predictions):,} predicted, {len(found.skipped):,} skipped"
    yield Line(text, tone="strong")
    yield MEANING
    if count == 1:
        yield Line("1 row is predicted not to fit in memory, although it ran.")
    elif count:
        yield Line(f"{count:,} rows are predicted not to fit in memory, although they ran.")
    if found.impossible:
        lines = ", ".join(f"{one.run.line:,}" for one in found.impossible[:MOST_NOT_FITTING])
        more = f" and {len(found.impossible) - MOST_NOT_FITTING:,} more" * (len(found.impossible) > MOST_NOT_FITTING)
        text = f"Cannot have run as written, and left out of the errors (over {MOST_OVER:g} times the memory): "
        yield Line(f"{text}line{'s' * (len(found.impossible) > 1)} {lines}{more}.", tone="doubt")


def _applies(found: Validation, generation: str | None) -> Line:
    """How many runs the constants of a profile are those of."""
    parts = [one.asked.question.cluster.accelerator.generation for one in found.predictions]
    count = sum(part == generation for part in parts)
    text = f"They are constants of {generation}, which apply to {count:,} of the {len(parts):,} runs."
    return Line(text, tone="" if count else "doubt")


def _seen(seen: Seen) -> list[str]:
    """What the constants were fitted to, and how many of the runs are among it."""
    said = [] if seen.fitted_to is None else [_of_profile(seen, seen.fitted_to)]
    if seen.num_published:
        which = "The constants" if seen.fitted_to is None else "The shipped constants that it keeps"
        among = "these runs" if seen.num_published == seen.num_runs else f"{seen.num_published:,} of these runs"
        said.append(f"{which} were fitted to {among}; docs/accuracy.md counts with each team left out.")
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


def _worst(predictions: Sequence[Prediction]) -> Part:
    """Rows that are furthest off, with what may be the reason."""
    shared, rows = shared_reasons(predictions), worst_of(predictions)
    factors = [_factor(row.factor) for row in rows]
    width = max(6, *map(len, factors), 0)
    blocks: list[Block] = []
    if shared:
        blocks.append(Bullets([f"of all rows: {'; '.join(shared)}"], "quiet", MOST_LINES))
    for row, factor in zip(rows, factors, strict=True):
        blocks.append(Item(factor.rjust(width), f"{_named(row.prediction)}: {_against(row)}"))
        blocks.append(Bullets([row.reason], "quiet", MOST_LINES))
    return Part("Furthest off", blocks, "predicted against measured, and what is not stated or not understood")


def _wrong_verdicts(runs: Sequence[Prediction], title: str, about: str, keys: str) -> Iterable[Part]:
    """Those that are furthest off, and how many more there are, which ``keys`` mark in the JSON."""
    blocks: list[Block] = [
        Item(f"{one.needed_memory_bytes / one.usable_memory_bytes:.2f}x".rjust(6), f"{_named(one)}: {_need(one)}")
        for one in runs[:MOST_NOT_FITTING]
    ]
    if len(runs) > MOST_NOT_FITTING:
        blocks.append(Line(f"and {len(runs) - MOST_NOT_FITTING:,} more ({keys} in --json)", tone="quiet"))
    if blocks:
        yield Part(title, blocks, about)


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


def _inside(rows: Mapping[str, Inside], by: str) -> RowTable:
    """Coverage by name, all runs last."""
    named = [(name, one) for name, one in rows.items() if name != "all"]
    shown: Sequence[NamedInside] = [*named, ("all", rows["all"])]
    columns = (
        Column("", by, lambda row: row[0], is_text=True),
        Column("", "n", lambda row: row[1].n),
        Column("", "inside", lambda row: row[1].share, percent),
        Column("", "from", lambda row: row[1].low, percent),
        Column("", "to", lambda row: row[1].high, percent),
    )
    return RowTable(shown, columns, lambda row: "strong" if row is shown[-1] else "")


def _order(found: Validation, by: str) -> Iterable[Part]:
    """How often bands hold, and the order within sweeps."""
    coverage, ranking = found.coverage(), found.ranking()
    if coverage is not None:
        said = f"{percent(coverage)} of the measured step times lie inside their band; it should be 80 %"
        about = (
            "step times inside their 80 % band, with the 95 % interval of that share; rows not predicted are outside"
        )
        yield Part("Bands", [_inside(found.coverage_by(by), by), Line(f"{said}{_by_tier(found)}.")], about)
    if not ranking["sweeps"]:
        return
    parts = [f"{ranking['sweeps']} sweep{'s' * (ranking['sweeps'] != 1)}"]
    parts.append(f"the pick is {percent(ranking['mean_regret'] or 0.0)} slower than the best on average")
    if ranking["pairs_in_order"] is not None:
        parts.append(f"{percent(ranking['pairs_in_order'])} of {ranking['pairs']:,} clearly different pairs in order")
    parts.append(f"median rank correlation {ranking['median_spearman']:.2f}")
    about = "three or more configurations of one model on one cluster"
    yield Part("Order within sweeps", [Line("; ".join(parts) + ".")], about)


def not_understood_parts(texts: Mapping[str, int]) -> list[Part]:
    """Options, values and columns that changed nothing: a misspelt one is among them."""
    return _counted("Not understood", "what the runs state and the estimate cannot use", texts)


def taken_parts(texts: Mapping[str, int]) -> list[Part]:
    """Names and words that are read as others."""
    return _counted("Taken as", "names and words of the runs that shardplan knows under others", texts)


def read_as_parts(texts: Sequence[str]) -> list[Part]:
    """Columns of the file under other names, once for all rows."""
    said = ", ".join(text.removeprefix("column ").replace(" is read as ", " as ") for text in texts)
    return [Part("Read as", [Bullets([said])], "columns of the file")] if texts else []


def _counted(title: str, about: str, texts: Mapping[str, int]) -> list[Part]:
    shown = [f"{text[:LONGEST_TEXT]} ({count:,} row{'s' * (count != 1)})" for text, count in texts.items()]
    more = [f"and {len(shown) - MOST_RULES} more"] if len(shown) > MOST_RULES else []
    return [Part(title, [Bullets([*shown[:MOST_RULES], *more], most_lines=MOST_LINES)], about)] if texts else []


def problem_parts(title: str, about: str, skipped: Sequence[SkippedRun]) -> list[Part]:
    """What is wrong with rows that are left out: each problem once, with the lines that have it."""
    problems = problems_of(skipped)
    blocks: list[Block] = [
        Item(f"{len(each.lines):,}".rjust(4), f"{each.where}: {each.text}") for each in problems[:MOST_RULES]
    ]
    if hidden := problems[MOST_RULES:]:
        count = sum(len(each.lines) for each in hidden)
        text = f"and {count:,} more that break {len(hidden):,} other rules; --json has all of them"
        blocks.append(Line(text))
    return [Part(title, blocks, about)] if problems else []

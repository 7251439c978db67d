"""What is aimed at and where predictions fall short: targets, bands, known causes, worst runs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shardplan.answers.accuracy.tables import (
    as_errors,
    as_factor,
    as_gigabytes,
    as_percent,
    column,
    of_side,
    table_parts,
    words,
)
from shardplan.answers.document import Column, Line, Part
from shardplan.calibrate.predict import Prediction
from shardplan.calibrate.runs.rows import compared_only
from shardplan.calibrate.validate import TIME
from shardplan.estimation.band import UNDESCRIBED, band_of
from shardplan.reports.accuracy.bands import ACCEPTABLE, LARGE_TEAM, SMALL_TEAM, Bands, Held
from shardplan.reports.accuracy.causes import cause_of
from shardplan.reports.accuracy.record import Accuracy, Sides, believed_memory
from shardplan.reports.accuracy.shortfalls import causes, unmet, worst
from shardplan.reports.accuracy.targets import Reached, reached, share_targets, targets

LONGEST_NOTE: Final = 100
SIDE_NAMES: Final = {"in_sample": "in-sample", "left_out": "left out"}
SEE: Final = {
    "time": "Known causes; Worst runs",
    "memory": "Known causes of memory errors; Worst peak memories",
    "regret": "Sweeps; Pairs in the wrong order",
    "order": "Sweeps; Pairs in the wrong order",
    "fits": "Fits",
    "false_fits": "Fits",
}
"""Parts that say why, and what to state."""
LOW, HIGH = (as_percent(share, 0) for share in ACCEPTABLE)
DRAWN: Final = {
    "unknown": "bias and spread of a team not known",
    "spread_known": "spread known, bias not",
    "independent": "if runs of a team shared nothing",
}
"""Bands of the simulation, as words."""


def target_parts(accuracy: Accuracy) -> Iterator[Part]:
    """Errors, shares and floors that are not reached; nothing where no team was left out."""
    if accuracy.left_out is None:
        return
    sides = accuracy.sides
    yield from table_parts(
        "Targets and what is reached",
        [Sides(each.label, *(reached(each, side, checked) for side, checked in sides.items())) for each in targets()],
        (
            words("", attrgetter("name")),
            column("in-sample: target", lambda row: _target(row.in_sample)),
            column("reached", lambda row: _reached(row.in_sample)),
            column("left out: target", lambda row: _target(row.left_out)),
            column("reached", lambda row: _reached(row.left_out)),
        ),
        "Median / 90th percentile of the error in per cent, tiers A and A-. Targets: floor, then aim in brackets; "
        "'no' marks a floor that is not reached. Peak memory leaves out internevo, whose rows contradict themselves. "
        "Rows without a family's name leave out families with measurements that the constants are not fitted to: "
        f"{', '.join(compared_only())}.",
    )
    yield from table_parts(
        "Shares",
        share_targets(sides),
        (
            words("", attrgetter("label")),
            column("floor", lambda row: as_percent(row.wanted[0])),
            column("aim", lambda row: as_percent(row.wanted[1])),
            column(
                "in-sample",
                lambda row: as_percent(row.reached["in_sample"]) + " no" * (row.meets_floor is False),
            ),
            column("left out", lambda row: as_percent(row.reached["left_out"])),
        ),
        "Targets are those of the in-sample figures; left out there is none.",
        is_under=True,
    )
    columns = (
        words("floor", attrgetter("label")),
        words("side", lambda row: SIDE_NAMES[row.side]),
        words("where it is missed", lambda row: "; ".join(row.where)),
        words("see below", lambda row: SEE[row.quantity]),
    )
    title = "Floors that are not reached"
    yield from table_parts(
        title,
        unmet(accuracy),
        columns,
        "Families above the floor with their median / 90th percentile and runs, or sweeps with their pairs in the "
        "wrong order; most first. The last column names the section with known causes and what to state.",
        is_under=True,
    ) or [Part(title, [Line("None.")], is_under=True)]


def _target(found: Reached) -> str:
    """Floor and aim."""
    texts = [f"{100 * median:g} / {100 * p90:g}" for median, p90 in filter(None, (found.floor, found.aim))]
    return texts[0] + (f" ({texts[1]})" if len(texts) > 1 else "") if texts else ""


def _reached(found: Reached) -> str:
    """What is reached, marked where it is above the floor; with more digits, so that a near miss reads as one."""
    median, p90 = found.errors.median, found.errors.p90
    if found.meets_floor in (None, True) or median is None or p90 is None:
        return as_errors(found.errors)
    return f"{100 * median:.2f} / {100 * p90:.2f} no"


def _verdict(found: Held) -> str:
    """Whether a large team's share is acceptable; nothing for others."""
    if found.is_acceptable is None:
        return ""
    return "yes" if found.is_acceptable else f"no, {'wide' if found.coverage.inside > ACCEPTABLE[1] else 'narrow'}"


BANDS: Final = (
    words("", attrgetter("label")),
    column("runs", attrgetter("coverage.n")),
    column("inside", lambda found: as_percent(found.coverage.inside, 0)),
    column(f"{LOW} to {HIGH}", _verdict),
    column("measured below", lambda found: as_percent(found.coverage.below, 0)),
    column("measured above", lambda found: as_percent(found.coverage.above, 0)),
    column("median width", lambda found: f"x {found.coverage.width:.2f}"),
)
"""Columns of coverage."""
FIRST_SIGHT: Final = (
    words("", attrgetter("label")),
    column("runs", attrgetter("first.n")),
    column("first sight, median / p90, %", lambda row: as_errors(row.first)),
    column("left out now, median / p90, %", lambda row: as_errors(row.now)),
    column("in their band at first sight", lambda row: as_percent(row.inside, 0)),
)
"""Columns of runs that were predicted before they were looked at."""


def band_parts(accuracy: Accuracy) -> Iterator[Part]:
    """Left out by team, or, without left-out errors, one sentence."""
    if not accuracy.residuals:
        share = accuracy.fresh.coverage()
        text = f"{as_percent(share, 0)} of step times lie in their 10-90 band."
        yield from [] if share is None else [Part("Bands", [Line(text)])]
        return
    bands = Bands(residuals=accuracy.residuals)
    yield from table_parts(
        "Bands",
        [*bands.held()],
        BANDS,
        "The 10-90 band of every run, made of the errors of all other teams and held against the run "
        f"under constants that never saw its team: 80 % should lie inside, and {LOW} to {HIGH} of a team of at least "
        f"{LARGE_TEAM} runs. 'No' marks one outside that: wide where too many of its runs lie inside, narrow where "
        "too few. Bands of runs that are not described in full are wider, as their errors are "
        f"(tier A-: x {UNDESCRIBED['A-']}, B: x {UNDESCRIBED['B']} of the logarithm). Composed steps: vtrain-single, "
        "put together from times of layers. New generation: bands made as if no run of that generation of accelerators "
        "had been measured (step time, without composed steps).",
    )
    yield from _attainable(bands)
    yield from table_parts(
        "At first sight",
        bands.first_sight(),
        FIRST_SIGHT,
        "Left-out errors are a little too good, because formulas were corrected with these runs known. These errors "
        "are those of the first prediction of each run, by constants and formulas that had never seen it. Bands use "
        "them if they are on record. Tiers A and A- first; the band is the one that all other teams give today.",
        is_under=True,
    )
    lists = [
        f"{name}: " + ", ".join(f"{one.team} {one.inside} / {one.n}" for one in teams)
        for name, teams in bands.small_teams().items()
    ]
    text = (
        "Runs of one team share machines, software and habits, and so much of their error: a small team "
        "lies inside or outside as a whole, and its share says little. Known causes says why some are outside. "
        f"Fewer than {SMALL_TEAM} runs, inside / all: {'; '.join(lists)}."
    )
    yield Part("Small teams", [Line(text)], is_under=True)


def _attainable(bands: Bands) -> Iterator[Part]:
    """Large teams between shares, next to how many a perfect band would put there."""
    rows = bands.attainable()
    if not rows:
        return
    spread, sizes = bands.spread

    def in_draws(name: str) -> Column:
        return column(DRAWN[name], lambda row: _in_draws(row.drawn[name]))

    yield from table_parts(
        "How many teams can lie in between",
        rows,
        (
            words("share inside", lambda one: " to ".join(as_percent(share, 0) for share in one.shares)),
            column("reached", attrgetter("reached")),
            *map(in_draws, DRAWN),
        ),
        "Runs of a team share a bias that nobody knows beforehand, and some teams spread more than others: "
        "a band that covers 80 % of all runs covers nearly all of many teams and few of some. The table counts how "
        f"many of the {len(sizes)} teams of at least {LARGE_TEAM} runs have a share between two limits, and how "
        "many would with perfectly calibrated bands. These are simulated with the spreads of these teams "
        f"(their medians {spread.between:.2f} of the unit of bands, their runs {spread.within:.2f}, by a factor "
        f"of {math.exp(spread.of_within):.2f} more or less from team to team); mean, and 10 to 90 % of the "
        "draws. Runs of your own show the bias (`shardplan calibrate`).",
        is_under=True,
    )


def _in_draws(counts: NDArray[np.int_]) -> str:
    """Mean, and where eight of ten draws lie."""
    low, high = np.quantile(counts, (0.1, 0.9))
    return f"{counts.mean():.1f} ({low:.0f} to {high:.0f})"


CAUSES: Final = (
    words("cause", lambda row: row.name.cause if row.name else "the rest"),
    column("runs", attrgetter("in_sample.n")),
    column("in-sample, median / p90, %", of_side(as_errors, "in_sample")),
    column("left out, median / p90, %", of_side(as_errors, "left_out")),
    words("what to state", lambda row: row.name.state if row.name else ""),
)
"""Columns of known causes."""
RUN: Final = (words("run", attrgetter("name.run.id")), words("tier", attrgetter("name.run.tier")))
NUM_WORST: Final = 15
NUM_WORST_MEMORY: Final = 12
LEAST_WORST_MEMORY: Final = 0.05
"""Error of a memory from which it is among the worst."""


def shortfall_parts(accuracy: Accuracy) -> Iterator[Part]:
    """Known causes, worst runs, runs predicted not to fit."""
    yield from table_parts(
        "Known causes, and what to state",
        causes(accuracy),
        CAUSES,
        "Runs whose step times are off for a reason that is known, and the input that would have shown it. "
        "The rest: runs of tiers A and A- with no such reason.",
    )
    yield from table_parts(
        "Known causes of memory errors",
        causes(accuracy, "peak_memory"),
        CAUSES,
        "The same for peak memory, all tiers. Runs without a known cause are grouped by what they share.",
        is_under=True,
    )
    rows = worst(accuracy, TIME, most=NUM_WORST)
    yield from table_parts(
        "Worst runs",
        rows,
        (*RUN, *_factors(rows), words("notes", as_note)),
        "Largest errors of step times, few of any one family, with the start of the run's notes; `shardplan validate "
        "--run NAME` shows a run in full.",
    )
    rows = worst(accuracy, believed_memory, most=NUM_WORST_MEMORY, least=LEAST_WORST_MEMORY)
    yield from table_parts(
        "Worst peak memories",
        rows,
        (
            *RUN,
            words("meter", lambda row: row.name.run.memory_kind or "unstated"),
            *_factors(rows),
            words("cause, or notes", _cause_or_note),
        ),
        "Errors of more than 5 %, few of any one family, with what is known of the cause.",
        is_under=True,
    )
    yield from _not_fitting(accuracy.fresh.not_fitting)


def _factors(rows: Sequence[Sides[float]]) -> list[Column]:
    """Predicted over measured, on the sides that there are."""
    left_out = [column("left out", of_side(as_factor, "left_out"))] if any(row.left_out for row in rows) else []
    return [column("predicted / measured", of_side(as_factor, "in_sample")), *left_out]


def as_note(row: Sides[float]) -> str:
    """What the notes say, and for rows that are not described in full what was assumed."""
    run, asked = row.name.run, row.name.asked
    parts = [run.notes] if run.notes else []
    if (run.tier == "B" or row.left_out is None) and asked.assumed:
        parts.append("assumed: " + "; ".join(asked.assumed))
    if row.left_out is None and asked.ignored:
        parts.append("ignored: " + "; ".join(asked.ignored))
    text = ". ".join(parts)
    return text if len(text) <= LONGEST_NOTE else text[:LONGEST_NOTE].rsplit(" ", 1)[0] + " ..."


def _cause_or_note(row: Sides[float]) -> str:
    known = cause_of(row.name.run.id, "peak_memory")
    return known.cause if known else f"not known. {as_note(row)}".strip()


def _not_fitting(runs: Sequence[Prediction]) -> Iterator[Part]:
    """Runs that ran although they are predicted not to fit, and what to state in such cases."""
    yield from table_parts(
        "Runs predicted not to fit",
        runs,
        (
            words("run", attrgetter("run.id")),
            words("tier", attrgetter("run.tier")),
            column("needed", lambda one: as_gigabytes(one.needed_memory_bytes)),
            column("lower end", lambda one: as_gigabytes(lower_end(one))),
            column("usable", lambda one: as_gigabytes(one.usable_memory_bytes)),
            column("needed / usable", lambda one: f"{one.needed_memory_bytes / one.usable_memory_bytes:.2f}"),
            words("cause", why_not_fitting),
        ),
        "They ran. Needed: predicted tensors of the fullest accelerator, in GB of 10^9 bytes; lower end: of its "
        "band, below which a tenth of comparable runs lie; usable: the device's memory less context and fragmentation. "
        "If the lower end fits, the error is of ordinary size.",
    )
    counts = Counter(known for one in runs if (known := cause_of(one.run.id, "fits")))
    yield from table_parts(
        "What to state where a plan is predicted not to fit",
        list(counts.items()),
        (
            words("cause", lambda each: each[0].cause),
            column("runs", lambda each: each[1]),
            words("what to state", lambda each: each[0].state),
        ),
        is_under=True,
    )


def lower_end(one: Prediction) -> float:
    """Of the band of what a run needs. [bytes]"""
    return one.needed_memory_bytes * band_of(one.asked.question, "memory").low


def why_not_fitting(one: Prediction) -> str:
    """The known cause; main memory or an ordinary error where there is none, or next to it."""
    known, is_on_host = cause_of(one.run.id, "fits"), one.needed_memory_bytes <= one.usable_memory_bytes
    where = ["what moves to the host exceeds its share of main memory"] if is_on_host else []
    if known or where:
        return "; ".join([*([known.cause] if known else []), *where])
    return "not known; the lower end fits" if lower_end(one) <= one.usable_memory_bytes else "not known"

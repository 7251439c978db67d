"""What is aimed at and where predictions fall short, as text: targets, bands, known causes, worst runs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, Final

from shardplan.calibrate.runs.rows import compared_only
from shardplan.estimation.band import UNDESCRIBED
from shardplan.reports.accuracy.record import ACCEPTABLE, LARGE_TEAM, SMALL_TEAM
from shardplan.reports.breakdown import Section

Record = Mapping[str, Any]
LONGEST_NOTE = 220


def as_percent(value: float | None, digits: int = 1) -> str:
    """A share in per cent; nothing where it is not known."""
    return "" if value is None else f"{100 * value:.{digits}f} %"


def as_errors(errors: Mapping[str, Any] | None) -> str:
    """Median and 90th percentile, in per cent."""
    if errors is None or not errors["n"]:
        return ""
    return f"{100 * errors['median']:.1f} / {100 * errors['p90']:.1f}"


def as_bias(errors: Mapping[str, Any] | None) -> str:
    """Median of predicted over measured, less one, in per cent."""
    return "" if errors is None or not errors["n"] else f"{100 * errors['bias']:+.1f}"


def as_factor(ratio: float) -> str:
    """Predicted over measured."""
    return f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.2g}"


def as_gigabytes(value: float) -> str:
    """In GB of 10^9 bytes, without the unit."""
    return f"{value / 1e9:.1f}"


def error_columns(rows: Sequence[Record], first: str) -> list[tuple[str, Callable[[Any], str]]]:
    """Columns of rows of errors; without those of left-out errors where nothing is left out."""
    has_left_out = any(row["left_out"] is not None for row in rows)
    own = f"{'in-sample' if has_left_out else 'error'}, median / p90, %"
    columns: list[tuple[str, Callable[[Any], str]]]
    columns = [(first, itemgetter("name")), ("runs", lambda row: str(row["in_sample"]["n"]))]
    sides = [(own, "in_sample"), *([("left out, median / p90, %", "left_out")] if has_left_out else [])]
    for title, side in sides:
        columns += [(title, partial(of_side, as_errors, side)), ("bias, %", partial(of_side, as_bias, side))]
    return columns


def of_side(text: Callable[[Any], str], side: str, row: Record) -> str:
    """A cell of what is in-sample or left out; empty where there is none."""
    return "" if row[side] is None else text(row[side])


def as_note(row: Record) -> str:
    """What the notes say, and for rows that are not described in full what was assumed."""
    parts = [row["notes"]] if row["notes"] else []
    if (row["tier"] == "B" or row["left_out"] is None) and row["assumed"]:
        parts.append("assumed: " + "; ".join(row["assumed"]))
    if row["left_out"] is None and row["ignored"]:
        parts.append("ignored: " + "; ".join(row["ignored"]))
    text = ". ".join(parts)
    return text if len(text) <= LONGEST_NOTE else text[:LONGEST_NOTE].rsplit(" ", 1)[0] + " ..."


SIDE_NAMES: Final = {"in_sample": "in-sample", "left_out": "left out"}
SEE = {
    "time": "Known causes; Worst runs",
    "memory": "Known causes of memory errors; Worst peak memories",
    "regret": "Sweeps; Pairs in the wrong order",
    "order": "Sweeps; Pairs in the wrong order",
    "fits": "Fits",
    "false_fits": "Fits",
}
"""Sections that say why, and what to state."""
QUANTITIES = {"time": "step time", "memory": "peak memory"}
LOW, HIGH = (as_percent(share, 0) for share in ACCEPTABLE)
DRAWN = {
    "unknown": "bias and spread of a team not known",
    "spread_known": "spread known, bias not",
    "independent": "if runs of a team shared nothing",
}
"""Bands of the simulation, as words."""


def _verdict(found: Record) -> str:
    """Whether a large team's share is acceptable; nothing for others."""
    is_acceptable = found.get("is_acceptable")
    if is_acceptable is None:
        return ""
    return "yes" if is_acceptable else f"no, {'wide' if found['inside'] > ACCEPTABLE[1] else 'narrow'}"


BAND_COLUMNS: Final = (
    ("", itemgetter("label")),
    ("runs", lambda found: str(found["n"])),
    ("inside", lambda found: as_percent(found["inside"], 0)),
    (f"{LOW} to {HIGH}", _verdict),
    ("measured below", lambda found: as_percent(found["below"], 0)),
    ("measured above", lambda found: as_percent(found["above"], 0)),
    ("median width", lambda found: f"x {found['width']:.2f}"),
)
"""Columns of coverage."""
FIRST_COLUMNS: Final = (
    ("", itemgetter("label")),
    ("runs", lambda row: str(row["n"])),
    ("first sight, median / p90, %", lambda row: as_errors(row["first"])),
    ("left out now, median / p90, %", lambda row: as_errors(row["now"])),
    ("in their band at first sight", lambda row: as_percent(row["inside"], 0)),
)
"""Columns of runs that were predicted before they were looked at."""


def target_sections(record: Record) -> Iterator[Section]:
    """Errors, shares and floors that are not reached; nothing where no team was left out."""
    found = record["targets"]
    if found is None:
        return
    yield Section.of(
        "Targets and what is reached",
        found["errors"],
        (
            ("", itemgetter("label")),
            ("in-sample: target", lambda row: _target(row["in_sample"])),
            ("reached", lambda row: _reached(row["in_sample"])),
            ("left out: target", lambda row: _target(row["left_out"])),
            ("reached", lambda row: _reached(row["left_out"])),
        ),
        text="Median / 90th percentile of the error in per cent, tiers A and A-. Targets: floor, then aim in brackets; "
        "'no' marks a floor that is not reached. Peak memory leaves out internevo, whose rows contradict themselves. "
        "Rows without a family's name leave out families with measurements that the constants are not fitted to: "
        f"{', '.join(compared_only())}.",
    )
    yield Section.of(
        "Shares",
        found["shares"],
        (
            ("", itemgetter("label")),
            ("floor", lambda row: as_percent(row["floor"])),
            ("aim", lambda row: as_percent(row["aim"])),
            ("in-sample", lambda row: as_percent(row["in_sample"]) + (" no" if row["meets_floor"] is False else "")),
            ("left out", lambda row: as_percent(row["left_out"])),
        ),
        level=3,
        text="Targets are those of the in-sample figures; left out there is none.",
    )
    columns = (
        ("floor", itemgetter("label")),
        ("side", lambda row: SIDE_NAMES[row["side"]]),
        ("where it is missed", lambda row: "; ".join(row["where"])),
        ("see below", lambda row: SEE[row["quantity"]]),
    )
    title = "Floors that are not reached"
    if found["unmet"]:
        yield Section.of(
            title,
            found["unmet"],
            columns,
            level=3,
            text="Where they are missed: families above the floor with their median / 90th percentile and runs, or "
            "sweeps with their pairs in the wrong order; the most of them first. The sections named tell the causes "
            "that are known and what to state.",
        )
    else:
        yield Section(title=title, level=3, text="None.")


def _target(errors: Mapping[str, Any]) -> str:
    """Floor and aim."""
    parts = [errors[name] for name in ("floor", "aim") if errors[name]]
    texts = [f"{100 * median:g} / {100 * p90:g}" for median, p90 in parts]
    return texts[0] + (f" ({texts[1]})" if len(texts) > 1 else "") if texts else ""


def _reached(errors: Mapping[str, Any]) -> str:
    """What is reached, marked where it is above the floor; with more digits, so that a near miss reads as one."""
    if errors["meets_floor"] in (None, True) or not errors["n"]:
        return as_errors(errors)
    return f"{100 * errors['median']:.2f} / {100 * errors['p90']:.2f} no"


def band_sections(record: Record) -> Iterator[Section]:
    """Left out by team, or, without left-out errors, one sentence."""
    coverage = record["coverage"]
    if "time" not in coverage:
        share = coverage["in_sample"]
        text = "" if share is None else f"{as_percent(share, 0)} of step times lie in their 10-90 band."
        yield Section(title="Bands", text=text)
        return
    yield Section.of(
        "Bands",
        _covered(coverage),
        BAND_COLUMNS,
        text="The 10-90 band of every run, made of the errors of all other teams and held against the run "
        f"under constants that never saw its team: 80 % should lie inside, and {LOW} to {HIGH} of a team of at least "
        f"{LARGE_TEAM} runs. 'No' marks one outside that: wide where too many of its runs lie inside, narrow where "
        "too few. Bands of runs that are not described in full are wider, as their errors are "
        f"(tier A-: x {UNDESCRIBED['A-']}, B: x {UNDESCRIBED['B']} of the logarithm). Composed steps: vtrain-single, "
        "put together from times of layers. New generation: bands made as if no run of that generation of accelerators "
        "had been measured (step time, without composed steps).",
    )
    if coverage["attainable"]:
        yield _attainable(coverage["attainable"])
    if coverage["first_sight"]:
        yield _at_first_sight(coverage["first_sight"])
    yield Section(title="Small teams", level=3, text=_small_teams(coverage))


def _at_first_sight(rows: Sequence[Record]) -> Section:
    """Errors and bands of runs when they were first predicted, next to what is left out now."""
    return Section.of(
        "At first sight",
        rows,
        FIRST_COLUMNS,
        level=3,
        text="Errors left out now are a little too good: formulas and facts about software were mended with these runs "
        "in view. These runs were predicted once before anything was, by constants and formulas that had never met "
        "them. Bands are made of such errors where they are on record. Tiers A and A- first; the band is the one that "
        "all other teams make today.",
    )


def _attainable(found: Record) -> Section:
    """Large teams between shares, next to how many a perfect band would put there."""
    spread = found["spread"]
    return Section.of(
        "How many teams can lie in between",
        found["within"],
        (
            ("share inside", lambda one: f"{as_percent(one['shares'][0], 0)} to {as_percent(one['shares'][1], 0)}"),
            ("reached", lambda one: str(one["reached"])),
            *((title, partial(_drawn, name)) for name, title in DRAWN.items()),
        ),
        level=3,
        text="Runs of a team share a bias that nobody knows beforehand, and some teams spread more than others: "
        "a band that covers 80 % of all runs covers nearly all of many teams and few of some. How many of the "
        f"{found['num_teams']} teams of at least {LARGE_TEAM} runs have a share between two limits, and how "
        "many would with bands that are calibrated perfectly. These are simulated with the spreads of these teams "
        f"(their medians {spread['between']:.2f} of the unit of bands, their runs {spread['within']:.2f}, by a factor "
        f"of {math.exp(spread['of_within']):.2f} more or less from team to team); mean, and 10 to 90 % of the "
        "draws. Runs of one's own tell the bias (`shardplan calibrate`).",
    )


def _drawn(name: str, one: Record) -> str:
    return f"{one[name]['mean']:.1f} ({one[name]['p10']:.0f} to {one[name]['p90']:.0f})"


def _covered(coverage: Record) -> list[Record]:
    """Shares with the runs that they are of."""
    found = [
        (label, one)
        for quantity, name in QUANTITIES.items()
        for label, one in [
            (f"{name}, all", coverage[quantity]["all"]),
            *([(f"{name}, without composed steps", coverage[quantity]["end_to_end"])] if quantity == "time" else []),
            *((f"{name}, {team}", one) for team, one in coverage[quantity]["team"].items()),
            (f"{name}, teams of fewer than {SMALL_TEAM} runs", coverage[quantity]["small"]),
        ]
    ]
    found += [(f"new generation, {name}", one) for name, one in coverage["generation"].items()]
    return [{"label": label, **one} for label, one in found if one is not None]


def _small_teams(coverage: Record) -> str:
    """Runs inside of each, and why a share of few runs says little."""
    lists = [
        f"{name}: " + ", ".join(f"{one['team']} {one['inside']} / {one['n']}" for one in rows)
        for quantity, name in QUANTITIES.items()
        if (rows := coverage[quantity]["small_teams"])
    ]
    return (
        "Runs of one team share machines, software and habits, and so much of their error: a small team "
        "lies inside or outside as a whole, and its share says little. Why some are outside, as far as it is known, "
        f"stands under Known causes. Fewer than {SMALL_TEAM} runs, inside / all: {'; '.join(lists)}."
    )


CAUSES: Final = (
    ("cause", lambda row: row["cause"] or "the rest"),
    ("runs", lambda row: str(row["in_sample"]["n"])),
    ("in-sample, median / p90, %", lambda row: as_errors(row["in_sample"])),
    ("left out, median / p90, %", lambda row: as_errors(row["left_out"])),
    ("what to state", lambda row: row["state"] or ""),
)
"""Columns of known causes."""


def shortfall_sections(record: Record) -> Iterator[Section]:
    """Known causes, worst runs, runs predicted not to fit."""
    yield Section.of(
        "Known causes, and what to state",
        record["causes"],
        CAUSES,
        text="Runs whose step times are off for a reason that is known, and the input that would have shown it. "
        "The rest: runs of tiers A and A- with no such reason.",
    )
    yield Section.of(
        "Known causes of memory errors",
        record["memory_causes"],
        CAUSES,
        level=3,
        text="The same of the peak memory, all tiers. Where a cause is not known, the runs are named "
        "together for what they share.",
    )
    (run, tier), predicted, left_out = (
        (("run", itemgetter("id")), ("tier", itemgetter("tier"))),
        *(
            (title, partial(_factor, side))
            for title, side in (("predicted / measured", "in_sample"), ("left out", "left_out"))
        ),
    )
    rows = record["worst"]
    yield Section.of(
        "Worst runs",
        rows,
        (run, tier, predicted, *([left_out] if _has_left_out(rows) else []), ("notes", as_note)),
        text="Largest errors of step times, few of any one family, with what the run's notes say and what is not "
        "stated.",
    )
    rows = record["worst_memory"]
    yield Section.of(
        "Worst peak memories",
        rows,
        (
            run,
            tier,
            ("meter", itemgetter("meter")),
            predicted,
            *([left_out] if _has_left_out(rows) else []),
            ("cause, or notes", lambda row: row["cause"] or f"not known. {as_note(row)}".strip()),
        ),
        level=3,
        text="Errors of more than 5 %, few of any one family, with what is known of the cause.",
    )
    yield from _not_fitting(record["not_fitting"])


def _has_left_out(rows: Sequence[Record]) -> bool:
    return any(row["left_out"] is not None for row in rows)


def _factor(side: str, row: Record) -> str:
    return as_factor(row[side]) if row[side] else ""


def _not_fitting(rows: Sequence[Record]) -> Iterator[Section]:
    """Runs that ran although they are predicted not to fit, and what to state in such cases."""
    yield Section.of(
        "Runs predicted not to fit",
        rows,
        (
            ("run", itemgetter("id")),
            ("tier", itemgetter("tier")),
            ("needed", lambda row: as_gigabytes(row["needed_memory_bytes"])),
            ("lower end", lambda row: as_gigabytes(row["needed_memory_p10_bytes"])),
            ("usable", lambda row: as_gigabytes(row["usable_memory_bytes"])),
            ("needed / usable", lambda row: f"{row['needed_memory_bytes'] / row['usable_memory_bytes']:.2f}"),
            ("cause", _why),
        ),
        text="They ran. Needed: tensors of the fullest accelerator as predicted, in GB of 10^9 bytes; lower end: of "
        "the band of that, below which a tenth of comparable runs lie; usable: the device's memory less context and "
        "fragmentation. Where the lower end fits, the error is of ordinary size, and decides because the run fills its "
        "memory.",
    )
    counts = Counter((row["cause"], row["state"]) for row in rows if row["cause"])
    yield Section.of(
        "What to state where a plan is predicted not to fit",
        list(counts.items()),
        (
            ("cause", lambda each: each[0][0]),
            ("runs", lambda each: str(each[1])),
            ("what to state", lambda each: each[0][1]),
        ),
        level=3,
    )


def _why(row: Record) -> str:
    """The known cause; main memory or an ordinary error where there is none, or next to it."""
    if row["is_on_host"]:
        where = "what moves to the host exceeds its share of main memory"
        return f"{row['cause']}; {where}" if row["cause"] else where
    if row["cause"]:
        return str(row["cause"])
    is_close = row["needed_memory_p10_bytes"] <= row["usable_memory_bytes"]
    return "not known; the lower end fits" if is_close else "not known"

"""Coverage of the bands as text and tables."""

from __future__ import annotations

import math
from collections.abc import Iterator

from shardplan.estimation.band import UNDESCRIBED
from shardplan.reports.accuracy.coverage import ACCEPTABLE, LARGE_FAMILY, SMALL_FAMILY
from shardplan.reports.accuracy.words import Record, as_percent
from shardplan.reports.sections import Section

QUANTITIES = {"time": "step time", "memory": "peak memory"}
LOW, HIGH = (as_percent(share, 0) for share in ACCEPTABLE)


def band_sections(record: Record) -> Iterator[Section]:
    """Left out by family, or, without left-out errors, one sentence."""
    coverage = record["coverage"]
    if "time" not in coverage:
        share = coverage["in_sample"]
        text = "" if share is None else f"{as_percent(share, 0)} of step times lie in their 10-90 band."
        yield Section(title="Bands", text=text)
        return
    yield Section(
        title="Bands",
        text="The 10-90 band of every run, made of the left-out errors of all other families and held against the run "
        f"under constants that never saw it: 80 % should lie inside, and {LOW} to {HIGH} of a family of at least "
        f"{LARGE_FAMILY} runs. 'No' marks one outside that: wide where too many of its runs lie inside, narrow where "
        "too few. Bands of runs that are not described in full are wider, as their errors are "
        f"(tier A-: x {UNDESCRIBED['A-']}, B: x {UNDESCRIBED['B']} of the logarithm). Composed steps: vtrain-single, "
        "put together from times of layers. New generation: bands made as if no run of that generation of accelerators "
        "had been measured (step time, without composed steps).",
        columns=["", "runs", "inside", f"{LOW} to {HIGH}", "measured below", "measured above", "median width"],
        rows=[*_rows(coverage), *_new_generations(coverage)],
    )
    if coverage["attainable"]:
        yield _attainable(coverage["attainable"])
    yield Section(title="Small families", level=3, text=_small_families(coverage))


DRAWN = {
    "unknown": "bias and spread of a family not known",
    "spread_known": "spread known, bias not",
    "independent": "if runs of a family shared nothing",
}
"""Bands of the simulation, as words."""


def _attainable(found: Record) -> Section:
    """Large families between shares, next to how many a perfect band would put there."""
    spread = found["spread"]
    return Section(
        title="How many families can lie in between",
        level=3,
        text="Runs of a family share a bias that nobody knows beforehand, and some families spread more than others: "
        "a band that covers 80 % of all runs covers nearly all of many families and few of some. How many of the "
        f"{found['num_families']} families of at least {LARGE_FAMILY} runs have a share between two limits, and how "
        "many would with bands that are calibrated perfectly. These are simulated with the spreads of these families "
        f"(their medians {spread['between']:.2f} of the unit of bands, their runs {spread['within']:.2f}, by a factor "
        f"of {math.exp(spread['of_within']):.2f} more or less from family to family); mean, and 10 to 90 % of the "
        "draws. Runs of one's own tell the bias (`shardplan calibrate`).",
        columns=["share inside", "reached", *DRAWN.values()],
        rows=[
            [
                f"{as_percent(one['shares'][0], 0)} to {as_percent(one['shares'][1], 0)}",
                str(one["reached"]),
                *(f"{one[name]['mean']:.1f} ({one[name]['p10']:.0f} to {one[name]['p90']:.0f})" for name in DRAWN),
            ]
            for one in found["within"]
        ],
    )


def _rows(coverage: Record) -> list[list[str]]:
    found = [
        (label, one)
        for quantity, name in QUANTITIES.items()
        for label, one in [
            (f"{name}, all", coverage[quantity]["all"]),
            *([(f"{name}, without composed steps", coverage[quantity]["end_to_end"])] if quantity == "time" else []),
            *((f"{name}, {family}", one) for family, one in coverage[quantity]["family"].items()),
            (f"{name}, families of fewer than {SMALL_FAMILY} runs", coverage[quantity]["small"]),
        ]
    ]
    return [_covered(label, one) for label, one in found if one is not None]


def _new_generations(coverage: Record) -> list[list[str]]:
    return [_covered(f"new generation, {name}", one) for name, one in coverage["generation"].items()]


def _covered(label: str, found: Record) -> list[str]:
    below, above = (as_percent(found[key], 0) for key in ("below", "above"))
    inside = as_percent(found["inside"], 0)
    return [label, str(found["n"]), inside, _verdict(found), below, above, f"x {found['width']:.2f}"]


def _verdict(found: Record) -> str:
    """Whether a large family's share is acceptable; nothing for others."""
    is_acceptable = found.get("is_acceptable")
    if is_acceptable is None:
        return ""
    return "yes" if is_acceptable else f"no, {'wide' if found['inside'] > ACCEPTABLE[1] else 'narrow'}"


def _small_families(coverage: Record) -> str:
    """Runs inside of each, and why a share of few runs says little."""
    lists = [
        f"{name}: " + ", ".join(f"{one['family']} {one['inside']} / {one['n']}" for one in rows)
        for quantity, name in QUANTITIES.items()
        if (rows := coverage[quantity]["small_families"])
    ]
    return (
        "Runs of one family share one team, one release and one machine, and so most of their error: a small family "
        "lies inside or outside as a whole, and its share says little. Why some are outside, as far as it is known, "
        f"stands under Known causes. Fewer than {SMALL_FAMILY} runs, inside / all: {'; '.join(lists)}."
    )

"""The accuracy record as sections of text and tables, and as one file of HTML that loads nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from operator import itemgetter
from typing import Any, Final

from shardplan.reports.accuracy.figures import accuracy_figures, drawn
from shardplan.reports.accuracy.page_targets import (
    Record,
    as_gigabytes,
    as_percent,
    band_sections,
    error_columns,
    of_side,
    shortfall_sections,
    target_sections,
)
from shardplan.reports.breakdown import Section, html_of

GROUP_TITLES = {
    "family": "By family",
    "accelerator": "By accelerator",
    "framework": "By framework",
    "precision": "By number format",
    "kind": "By kind of model",
    "tier": "By tier",
}
ERROR = (
    "The error of a prediction is exp|ln(predicted / measured)| - 1: twice too slow and twice too fast are both 100 %."
)


def accuracy_sections(record: Record) -> list[Section]:
    """All sections of a record, in order; those for which it has nothing are left out."""
    makers = (
        _summary,
        target_sections,
        _step_times,
        _memory,
        _fits,
        _order,
        band_sections,
        _claims,
        shortfall_sections,
        _skipped,
    )
    return [section for make in makers for section in make(record) if section.text or section.rows]


def accuracy_html(record: Record) -> str:
    """The record as one HTML file with its figures inside."""
    figures = {name: drawn(figure, "auto") for name, figure in accuracy_figures(record).items()}
    return html_of(accuracy_sections(record), figures, "Predicted against measured")


def _summary(record: Record) -> Iterator[Section]:
    counts = record["counts"]
    left_out = record["targets"] is not None
    yield Section(
        title="What is compared",
        text=f"{counts['rows']:,} measured runs: {counts['predicted']:,} are predicted, {counts['skipped']:,} "
        f"cannot be. Of those that are, {_ran(counts['predicted'], counts['out_of_memory'])}, "
        f"{_are(counts['predicted_not_to_fit'])} predicted not to fit in memory"
        + (" (listed below). " if record["not_fitting"] else ". ")
        + (f"Constants: {record['profile']}. " if record["profile"] else "")
        + ERROR
        + (_LEFT_OUT if left_out else ""),
    )


def _ran(predicted: int, out_of_memory: int) -> str:
    if not out_of_memory:
        return "all ran"
    return f"{predicted - out_of_memory:,} ran and {out_of_memory:,} ran out of memory. Of those that ran"


def _are(number: int) -> str:
    return f"{number:,} {'is' if number == 1 else 'are'}"


_LEFT_OUT = (
    " In-sample: constants fitted to all of these runs but those that are only compared (families named below). Left "
    "out: the run's whole team (all that one group published) was kept from the fit; this is what to expect for a "
    "stack and a machine of one's own. Both are the same for what is only compared. Tier A: every field that "
    "matters is stated; A-: one minor field is inferred; B: one that matters is missing. Runs of tier B weigh little "
    "in the fit; how little was chosen by the left-out errors, which are slightly too good for it."
)


def _step_times(record: Record) -> Iterator[Section]:
    if not record["step_time"]["family"]:
        return
    yield Section(title="Step time", text="Dashed: 20 % on either side of equality.", figure="time")
    for group, title in GROUP_TITLES.items():
        rows = record["step_time"][group]
        yield Section.of(title, rows, error_columns(rows, ""), level=3)
    yield Section.of(
        "Error against scale",
        record["scale"],
        error_columns(record["scale"], "accelerators"),
        level=3,
        figure="scale",
        text="Bias: median of predicted over measured, less one; above zero, predictions are too slow.",
    )


def _memory(record: Record) -> Iterator[Section]:
    if not record["peak_memory"]["family"]:
        return
    yield Section(
        title="Peak memory",
        text="Counted as the run's meter counts: tensors in use, the allocator's reservation, or the whole process. "
        "The tables leave out internevo.",
        figure="memory",
    )
    for rows, title in (
        *((record["peak_memory"][group], GROUP_TITLES[group]) for group in ("family", "accelerator", "tier")),
        (record["meter"], "By meter"),
    ):
        yield Section.of(f"Memory {title[0].lower()}{title[1:]}", rows, error_columns(rows, ""), level=3)


def _claims(record: Record) -> Iterator[Section]:
    yield Section.of(
        "Other tools",
        record["claims"] or (),
        (
            *((title, itemgetter(title)) for title in ("tool", "runs")),
            ("result", itemgetter("says")),
            ("measured by", itemgetter("source")),
            ("shardplan in-sample", lambda row: _ours(row["in_sample"])),
            ("shardplan left out", lambda row: _ours(row["left_out"])),
        ),
        text="What their authors published or what their code gave, and shardplan on the same runs where they are in "
        "the data. Mean error here is the mean of |predicted / measured - 1|, as theirs. Shardplan's constants, unlike "
        "theirs, were fitted to published runs; those of the left-out column did not see the team in question.",
    )


def _ours(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return "not comparable"
    if found["n"] == 1:
        return f"{100 * abs(found['mean_bias']):.1f} % too {'slow' if found['mean_bias'] > 0 else 'fast'}"
    text = f"mean error {as_percent(found['mean_error'])}"
    if found["spearman"] is not None:
        text += f", rank correlation {found['spearman']:.2f}, regret {as_percent(found['regret'])}"
    return text


def _skipped(record: Record) -> Iterator[Section]:
    columns = (("run", itemgetter("id")), ("reason", itemgetter("reason")))
    yield Section.of("Runs without a prediction", record["skipped"], columns)


VERDICTS: Final[tuple[tuple[str, Callable[[Any], str]], ...]] = (
    ("right", lambda found: as_percent(found["right"])),
    ('false "fits"', lambda found: str(found["false_fits"])),
    ("beyond 3 %", lambda found: str(found["false_fits_beyond_3_percent"])),
    ("beyond 10 %", lambda found: str(found["false_fits_beyond_10_percent"])),
    ('false "does not fit"', lambda found: str(found["false_misfits"])),
)
"""Columns of verdicts."""


def _fits(record: Record) -> Iterator[Section]:
    """The table by family, and the runs that are furthest off; nothing where no run says how it ended but by a time."""
    rows = record["fits"]
    if not rows[-1]["in_sample"]["n"]:
        return
    sides = {"in_sample": "", **({"left_out": "left out: "} if rows[-1]["left_out"] is not None else {})}
    yield Section.of(
        "Fits",
        rows,
        (
            ("", itemgetter("name")),
            ("runs", lambda row: str(row["in_sample"]["n"])),
            ("out of memory", lambda row: str(row["in_sample"]["out_of_memory"])),
            *(
                (f"{said * (title == 'right')}{title}", partial(of_side, cell, side))
                for side, said in sides.items()
                for title, cell in VERDICTS
            ),
        ),
        text='The verdict "fits" against how runs ended. False "fits": the run ran out of memory; beyond 3 % and 10 %: '
        "and is predicted to leave more than that of the usable memory free. "
        'False "does not fit": the run ran. Families without a run that ran out of memory and without a wrong verdict '
        "are in the last row alone.",
    )
    yield Section.of(
        "Runs out of memory that are predicted to fit",
        record["false_fits"],
        (
            ("run", itemgetter("id")),
            ("tier", itemgetter("tier")),
            ("needed", lambda row: as_gigabytes(row["needed_memory_bytes"])),
            ("usable", lambda row: as_gigabytes(row["usable_memory_bytes"])),
            ("needed / usable", lambda row: f"{row['needed_memory_bytes'] / row['usable_memory_bytes']:.2f}"),
            ("cause", lambda row: row["cause"] or "not known"),
        ),
        level=3,
        text="Those predicted to leave more than 3 % of the usable memory free. Needed and usable in GB of 10^9 bytes.",
    )


SWEEPS: Final[tuple[tuple[str, Callable[[Any], str]], ...]] = (
    ("family, model", lambda one: f"{one['family']}, {one['model'].rsplit('/', 1)[-1].removesuffix('.json')}"),
    ("accelerators", lambda one: f"{one['num_accelerators']:,} {one['accelerator']}"),
    ("configurations", lambda one: str(len(one["runs"]))),
    ("slowest / fastest", lambda one: f"{one['spread']:.2f}"),
    ("regret", lambda one: as_percent(one["regret"])),
    ("pairs in order", lambda one: as_percent(one["pairs_in_order"], 0)),
)
"""Columns of sweeps."""
RANKING: Final[tuple[tuple[str, Callable[[Any], str]], ...]] = (
    ("", itemgetter("label")),
    ("sweeps", lambda order: str(order["sweeps"])),
    ("mean regret", lambda order: as_percent(order["mean_regret"])),
    ("pairs", lambda order: str(order["pairs"])),
    ("in order", lambda order: as_percent(order["pairs_in_order"])),
    ("median rank correlation", lambda order: f"{order['median_spearman']:.2f}"),
)
"""Columns of the order within all sweeps."""
RUNS: Final = {"described": "tiers A and A-", "all": "all tiers"}


def _order(record: Record) -> Iterator[Section]:
    """Sweeps, regret, and pairs in the wrong order with their causes; nothing where there is no sweep."""
    summaries, sweeps = record["ranking"]["summary"], record["ranking"]["sweeps"]
    names = {"in_sample": "these runs" if len(summaries) == 1 else "in-sample", "left_out": "left out"}
    rows = [
        {"label": f"{names[side]}, {RUNS[which]}", **order}
        for side, summary in summaries.items()
        for which, order in summary.items()
        if order["sweeps"]
    ]
    if not rows:
        return
    sd = record["difference_sd"]
    yield Section.of(
        "Order of configurations",
        rows,
        RANKING,
        text="Sweeps are at least three configurations of one model on the same accelerators. Regret: how much "
        "slower the configuration that is predicted to be the fastest was than the fastest. Pairs: those whose "
        "measured times differ by more than 5 %."
        + (
            ""
            if sd is None
            else " Configurations of one setting share much of their error: that of the ratio of two has a standard "
            f"deviation of {100 * sd:.0f} %."
        ),
    )
    found = sweeps.get("left_out", sweeps["in_sample"])
    yield Section.of(
        "Sweeps", sorted(found, key=lambda one: (-one["regret"], one["family"], one["model"])), SWEEPS, level=3
    )
    yield Section.of(
        "Pairs in the wrong order",
        record["order_causes"],
        (
            ("cause", lambda row: row["cause"] or "not known"),
            ("pairs, tiers A and A-", lambda row: str(row["described"])),
            ("all tiers", lambda row: str(row["pairs"])),
            ("differs most", lambda row: _pair(row["largest"])),
            ("what to state", lambda row: row["state"] or ""),
        ),
        level=3,
        text=f"By cause{', left out' if 'left_out' in summaries else ''}, with the pair of each that differs most: how "
        "much slower the first was measured than the second, and how it was predicted. A pair counts once, with the "
        "first cause that applies.",
    )


def _pair(pair: Record) -> str:
    ratios = f"x {pair['measured']:.2f} measured, x {pair['predicted']:.2f} predicted"
    return f"{pair['slower']} against {pair['faster']}: {ratios}"

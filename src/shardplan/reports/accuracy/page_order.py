"""Order of configurations as text and tables: sweeps, regret, and pairs in the wrong order with their causes."""

from __future__ import annotations

from collections.abc import Iterator

from shardplan.reports.accuracy.words import Record, as_percent
from shardplan.reports.sections import Section

SWEEP_COLUMNS = ["family, model", "accelerators", "configurations", "slowest / fastest", "regret", "pairs in order"]
RUNS = {"described": "tiers A and A-", "all": "all tiers"}


def order_sections(record: Record) -> Iterator[Section]:
    """All of it; nothing where there is no sweep."""
    rows = _summary(record)
    if not rows:
        return
    yield Section(
        title="Order of configurations",
        text="Sweeps are at least three configurations of one model on the same accelerators. Regret: how much "
        "slower the configuration that is predicted to be the fastest was than the fastest. Pairs: those whose "
        "measured times differ by more than 5 %." + _relative(record),
        columns=["", "sweeps", "mean regret", "pairs", "in order", "median rank correlation"],
        rows=rows,
    )
    yield Section(title="Sweeps", level=3, columns=SWEEP_COLUMNS, rows=_sweeps(record))
    yield _misordered(record)


def _summary(record: Record) -> list[list[str]]:
    summaries = record["ranking"]["summary"]
    names = {"in_sample": "these runs" if len(summaries) == 1 else "in-sample", "left_out": "left out"}
    return [
        [
            f"{names[side]}, {RUNS[which]}", str(order["sweeps"]), as_percent(order["mean_regret"]),
            str(order["pairs"]), as_percent(order["pairs_in_order"]), f"{order['median_spearman']:.2f}",
        ]
        for side, summary in summaries.items()
        for which, order in summary.items()
        if order["sweeps"]
    ]  # fmt: skip


def _relative(record: Record) -> str:
    sd = record["difference_sd"]
    if sd is None:
        return ""
    return (
        " Configurations of one setting share much of their error: that of the ratio of two has a standard deviation "
        f"of {100 * sd:.0f} %."
    )


def _sweeps(record: Record) -> list[list[str]]:
    sweeps = record["ranking"]["sweeps"]
    found = sweeps.get("left_out", sweeps["in_sample"])
    return [
        [
            f"{one['family']}, {one['model'].rsplit('/', 1)[-1].removesuffix('.json')}",
            f"{one['num_accelerators']:,} {one['accelerator']}",
            str(len(one["runs"])),
            f"{one['spread']:.2f}",
            as_percent(one["regret"]),
            as_percent(one["pairs_in_order"], 0),
        ]
        for one in sorted(found, key=lambda one: (-one["regret"], one["family"], one["model"]))
    ]


def _misordered(record: Record) -> Section:
    rows = record["order_causes"]
    side = ", left out" if "left_out" in record["ranking"]["summary"] else ""
    return Section(
        title="Pairs in the wrong order",
        level=3,
        text=f"By cause{side}, with the pair of each that differs most: how much slower the first was measured than "
        "the second, and how it was predicted. A pair counts once, with the first cause that applies."
        if rows
        else "",
        columns=["cause", "pairs, tiers A and A-", "all tiers", "differs most", "what to state"],
        rows=[
            [row["cause"] or "not known", str(row["described"]), str(row["pairs"]), _pair(row), row["state"] or ""]
            for row in rows
        ],
    )


def _pair(row: Record) -> str:
    pair = row["largest"]
    ratios = f"x {pair['measured']:.2f} measured, x {pair['predicted']:.2f} predicted"
    return f"{pair['slower']} against {pair['faster']}: {ratios}"

"""The accuracy record as sections of text and tables, and as one file of HTML that loads nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from shardplan.reports.accuracy.figures import accuracy_figures
from shardplan.reports.accuracy.page_bands import band_sections
from shardplan.reports.accuracy.page_fits import fits_sections
from shardplan.reports.accuracy.page_order import order_sections
from shardplan.reports.accuracy.page_shortfalls import shortfall_sections
from shardplan.reports.accuracy.page_targets import target_sections
from shardplan.reports.accuracy.words import Record, as_percent, error_table
from shardplan.reports.sections import Section, html_of
from shardplan.reports.svg import drawn

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
    found = [
        *_summary(record), *target_sections(record), *_step_times(record), *_memory(record), *fits_sections(record),
        *order_sections(record),
        *band_sections(record), *_claims(record), *shortfall_sections(record), *_skipped(record),
    ]  # fmt: skip
    return [section for section in found if section.text or section.rows]


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
    "out: the run's whole family (one team, one line of software) was kept from the fit; this is what to expect for a "
    "stack and a machine of one's own. Both are the same for what is only compared. Tier A: every field that "
    "matters is stated; A-: one minor field is inferred; B: one that matters is missing. Runs of tier B weigh little "
    "in the fit; how little was chosen by the left-out errors, which are slightly too good for it."
)


def _step_times(record: Record) -> Iterator[Section]:
    if not record["step_time"]["family"]:
        return
    yield Section(title="Step time", text="Dashed: 20 % on either side of equality.", figure="time")
    for group, title in GROUP_TITLES.items():
        columns, rows = error_table(record["step_time"][group], "")
        yield Section(title=title, level=3, columns=columns, rows=rows)
    columns, rows = error_table(record["scale"], "accelerators")
    yield Section(
        title="Error against scale", level=3, figure="scale", columns=columns, rows=rows,
        text="Bias: median of predicted over measured, less one; above zero, predictions are too slow.",
    )  # fmt: skip


def _memory(record: Record) -> Iterator[Section]:
    if not record["peak_memory"]["family"]:
        return
    yield Section(
        title="Peak memory",
        text="Counted as the run's meter counts: tensors in use, the allocator's reservation, or the whole process. "
        "The tables leave out internevo.",
        figure="memory",
    )
    for rows_of, title in (
        *((record["peak_memory"][group], GROUP_TITLES[group]) for group in ("family", "accelerator", "tier")),
        (record["meter"], "By meter"),
    ):
        columns, rows = error_table(rows_of, "")
        yield Section(title=f"Memory {title[0].lower()}{title[1:]}", level=3, columns=columns, rows=rows)


def _claims(record: Record) -> Iterator[Section]:
    if record["claims"] is None:
        return
    yield Section(
        title="Other tools",
        text="What their authors published or what their code gave, and shardplan on the same runs where they are in "
        "the data. Mean error here is the mean of |predicted / measured - 1|, as theirs. Shardplan's constants, unlike "
        "theirs, were fitted to published runs; those of the left-out column did not see the family in question.",
        columns=["tool", "runs", "result", "measured by", "shardplan in-sample", "shardplan left out"],
        rows=[
            [row["tool"], row["runs"], row["says"], row["source"], _ours(row["in_sample"]), _ours(row["left_out"])]
            for row in record["claims"]
        ],
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
    yield Section(
        title="Runs without a prediction",
        columns=["run", "reason"],
        rows=[[row["id"], row["reason"]] for row in record["skipped"]],
    )

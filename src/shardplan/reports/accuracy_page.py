"""The accuracy record in words and tables: a page of the documentation, or one file of HTML that loads nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shardplan.reports.accuracy_figures import accuracy_figures
from shardplan.reports.sections import Section, html_of, markdown_of
from shardplan.reports.svg import drawn

__all__ = ["accuracy_html", "accuracy_markdown", "accuracy_sections"]

Record = Mapping[str, Any]
GROUP_TITLES = {
    "family": "By family",
    "accelerator": "By accelerator",
    "framework": "By framework",
    "precision": "By number format",
    "kind": "By kind of model",
    "tier": "By tier",
}
SIDES = ("in_sample", "left_out")
LONGEST_NOTE = 220
ERROR = (
    "The error of a prediction is exp|ln(predicted / measured)| - 1: twice too slow and twice too fast are both 100 %."
)


def accuracy_sections(record: Record) -> list[Section]:
    """All sections of a record, in order; those for which it has nothing are left out."""
    found = [
        *_summary(record), *_targets(record), *_step_times(record), *_memory(record), *_ranking(record),
        *_coverage(record), *_claims(record), *_causes(record), *_worst(record), *_skipped(record),
    ]  # fmt: skip
    return [section for section in found if section.text or section.rows]


def accuracy_markdown(record: Record, figures: Mapping[str, str], heading: str) -> str:
    """The page as Markdown beneath its heading. ``figures``: Markdown of every figure by name."""
    return heading.rstrip() + "\n" + markdown_of(accuracy_sections(record), figures)


def accuracy_html(record: Record, title: str = "Predicted against measured") -> str:
    """The same as one HTML file with its figures inside."""
    figures = {name: drawn(figure, "auto") for name, figure in accuracy_figures(record).items()}
    return html_of(accuracy_sections(record), figures, title)


def _percent(value: float | None, digits: int = 1) -> str:
    return "" if value is None else f"{100 * value:.{digits}f} %"


def _errors(errors: Mapping[str, Any] | None) -> str:
    """Median and 90th percentile, in per cent."""
    if errors is None or not errors["n"]:
        return ""
    return f"{100 * errors['median']:.1f} / {100 * errors['p90']:.1f}"


def _bias(errors: Mapping[str, Any] | None) -> str:
    return "" if errors is None or not errors["n"] else f"{100 * errors['bias']:+.1f}"


def _table(rows: Sequence[Record], first: str) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of errors; without the left-out columns where nothing is left out."""
    has_left_out = any(row["left_out"] is not None for row in rows)
    columns = [first, "runs", f"{'in-sample' if has_left_out else 'error'}, median / p90, %", "bias, %"]
    columns += ["left out, median / p90, %", "bias, %"] if has_left_out else []
    return columns, [
        [row["name"], str(row["in_sample"]["n"]), _errors(row["in_sample"]), _bias(row["in_sample"])]
        + ([_errors(row["left_out"]), _bias(row["left_out"])] if has_left_out else [])
        for row in rows
    ]


def _summary(record: Record) -> Iterator[Section]:
    counts = record["counts"]
    left_out = record["targets"] is not None
    yield Section(
        title="What is compared",
        text=f"{counts['rows']:,} measured runs: {counts['predicted']:,} are predicted, {counts['skipped']:,} "
        f"cannot be. All of them ran; {_are(counts['predicted_not_to_fit'])} predicted not to fit in memory. "
        + (f"Constants: {record['profile']}. " if record["profile"] else "")
        + ERROR
        + (_LEFT_OUT if left_out else ""),
    )


def _are(number: int) -> str:
    return f"{number:,} {'is' if number == 1 else 'are'}"


_LEFT_OUT = (
    " In-sample: constants fitted to all of these runs. Left out: the run's whole family (one team, one line of "
    "software) was kept from the fit; this is what to expect for a stack and a machine of one's own. Tier A: every "
    "field that matters is stated; A-: one minor field is inferred; B: one that matters is missing."
)


def _targets(record: Record) -> Iterator[Section]:
    found = record["targets"]
    if found is None:
        return
    rows = [
        [
            row["label"],
            _side(row["in_sample"]),
            _reached(row["in_sample"]),
            _side(row["left_out"]),
            _reached(row["left_out"]),
        ]
        for row in found["errors"]
    ]
    yield Section(
        title="Targets and what is reached",
        text="Median / 90th percentile of the error in per cent, tiers A and A-. Targets: floor, then aim in brackets; "
        "'no' marks a floor that is not reached. Peak memory leaves out internevo, whose rows contradict themselves.",
        columns=["", "in-sample: target", "reached", "left out: target", "reached"],
        rows=rows,
    )
    yield Section(
        title="Shares",
        level=3,
        columns=["", "floor", "aim", "in-sample", "left out"],
        rows=[
            [row["label"], _percent(row["floor"]), _percent(row["aim"]), *(_share(row, side) for side in SIDES)]
            for row in found["shares"]
        ],
    )


def _side(errors: Mapping[str, Any]) -> str:
    """Floor and aim."""
    parts = [errors[name] for name in ("floor", "aim") if errors[name]]
    texts = [f"{100 * median:g} / {100 * p90:g}" for median, p90 in parts]
    return texts[0] + (f" ({texts[1]})" if len(texts) > 1 else "") if texts else ""


def _share(row: Record, side: str) -> str:
    """A share, marked where it is on the wrong side of the floor."""
    share, floor = row[side], row["floor"]
    if share is None:
        return ""
    met = share >= floor if row.get("more_is_better") else share <= floor
    return _percent(share) + ("" if met else " no")


def _reached(errors: Mapping[str, Any]) -> str:
    """What is reached, marked where it is above the floor; with more digits, so that a near miss reads as one."""
    if errors["meets_floor"] in (None, True) or not errors["n"]:
        return _errors(errors)
    return f"{100 * errors['median']:.2f} / {100 * errors['p90']:.2f} no"


def _step_times(record: Record) -> Iterator[Section]:
    if not record["step_time"]["family"]:
        return
    yield Section(title="Step time", text="Dashed: 20 % on either side of equality.", figure="time")
    for group, title in GROUP_TITLES.items():
        columns, rows = _table(record["step_time"][group], "")
        yield Section(title=title, level=3, columns=columns, rows=rows)
    columns, rows = _table(record["scale"], "accelerators")
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
        columns, rows = _table(rows_of, "")
        yield Section(title=f"Memory {title[0].lower()}{title[1:]}", level=3, columns=columns, rows=rows)


def _ranking(record: Record) -> Iterator[Section]:
    alone = len(record["ranking"]["summary"]) == 1
    names = {"in_sample": "these runs" if alone else "in-sample", "left_out": "left out"}
    runs = {"described": "tiers A and A-", "all": "all tiers"}
    rows = [
        [
            f"{names[side]}, {runs[which]}", str(order["sweeps"]), _percent(order["mean_regret"]),
            str(order["pairs"]), _percent(order["pairs_in_order"]), f"{order['median_spearman']:.2f}",
        ]
        for side, summary in record["ranking"]["summary"].items()
        for which, order in summary.items()
        if order["sweeps"]
    ]  # fmt: skip
    if rows:
        yield Section(
            title="Order of configurations",
            text="Sweeps are at least three configurations of one model on the same accelerators. Regret: how much "
            "slower the configuration that is predicted to be the fastest was than the fastest. Pairs: those whose "
            "measured times differ by more than 5 %." + _relative(record),
            columns=["", "sweeps", "mean regret", "pairs", "in order", "median rank correlation"],
            rows=rows,
        )
        yield Section(title="Sweeps", level=3, columns=_SWEEP_COLUMNS, rows=_sweeps(record))


def _relative(record: Record) -> str:
    sd = record["difference_sd"]
    if sd is None:
        return ""
    return (
        " Configurations of one setting share much of their error: that of the ratio of two has a standard deviation "
        f"of {100 * sd:.0f} %."
    )


_SWEEP_COLUMNS = ["family, model", "accelerators", "configurations", "slowest / fastest", "regret", "pairs in order"]


def _sweeps(record: Record) -> list[list[str]]:
    sweeps = record["ranking"]["sweeps"]
    found = sweeps.get("left_out", sweeps["in_sample"])
    return [
        [
            f"{one['family']}, {one['model'].rsplit('/', 1)[-1].removesuffix('.json')}",
            f"{one['num_accelerators']:,} {one['accelerator']}",
            str(len(one["runs"])),
            f"{one['spread']:.2f}",
            _percent(one["regret"]),
            _percent(one["pairs_in_order"], 0),
        ]
        for one in sorted(found, key=lambda one: (-one["regret"], one["family"], one["model"]))
    ]


def _coverage(record: Record) -> Iterator[Section]:
    coverage = record["coverage"]
    if "time" not in coverage:
        share = coverage["in_sample"]
        yield Section(
            title="Bands",
            text="" if share is None else f"{_percent(share, 0)} of step times lie in their 10-90 band.",
        )
        return
    rows = [
        _covered(label, found)
        for quantity, name in (("time", "step time"), ("memory", "peak memory"))
        for label, found in [
            (f"{name}, all", coverage[quantity]["all"]),
            *([(f"{name}, without composed steps", coverage[quantity]["end_to_end"])] if quantity == "time" else []),
            *((f"{name}, {family}", found) for family, found in coverage[quantity]["family"].items()),
        ]
        if found is not None
    ]
    rows += [_covered(f"new generation, {name}", found) for name, found in coverage["generation"].items()]
    yield Section(
        title="Bands",
        text="The 10-90 band of every run, made of the left-out errors of all other families and held against the run "
        "under constants that never saw it: 80 % should lie inside. Families of at least 8 runs; those of one family "
        "share most of their error, so that a small family is inside or outside as a whole. Composed steps: "
        "vtrain-single, put together from times of layers. New generation: bands made as if no run of that generation "
        "of accelerators had been measured (step time, without composed steps).",
        columns=["", "runs", "inside", "measured below", "measured above", "median width"],
        rows=rows,
    )


def _covered(label: str, found: Record) -> list[str]:
    shares = (_percent(found[key], 0) for key in ("inside", "below", "above"))
    return [label, str(found["n"]), *shares, f"x {found['width']:.2f}"]


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
    text = f"mean error {_percent(found['mean_error'])}"
    if found["spearman"] is not None:
        text += f", rank correlation {found['spearman']:.2f}, regret {_percent(found['regret'])}"
    return text


def _causes(record: Record) -> Iterator[Section]:
    rows = record["causes"]
    yield Section(
        title="Known causes, and what to state",
        text=(
            "Runs whose step times are off for a reason that is known, and the input that would have told. "
            "The rest: runs of tiers A and A- with no such reason."
            if rows
            else ""
        ),
        columns=["cause", "runs", "in-sample, median / p90, %", "left out, median / p90, %", "what to state"],
        rows=[
            [
                row["cause"] or "the rest",
                str(row["in_sample"]["n"]),
                _errors(row["in_sample"]),
                _errors(row["left_out"]),
                row["state"] or "",
            ]
            for row in rows
        ],
    )


def _worst(record: Record) -> Iterator[Section]:
    has_left_out = any(row["left_out"] is not None for row in record["worst"])
    yield Section(
        title="Worst runs",
        text="Largest errors, few of any one family, with what the run's notes say and what is not stated."
        if record["worst"]
        else "",
        columns=["run", "tier", "predicted / measured", *(["left out"] if has_left_out else []), "notes"],
        rows=[
            [row["id"], row["tier"], _factor(row["in_sample"])]
            + ([_factor(row["left_out"]) if row["left_out"] else ""] if has_left_out else [])
            + [_note(row)]
            for row in record["worst"]
        ],
    )


def _factor(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.2g}"


def _note(row: Record) -> str:
    """What the notes say, and for rows that are not described in full what was assumed."""
    parts = [row["notes"]] if row["notes"] else []
    if (row["tier"] == "B" or row["left_out"] is None) and row["assumed"]:
        parts.append("assumed: " + "; ".join(row["assumed"]))
    if row["left_out"] is None and row["ignored"]:
        parts.append("ignored: " + "; ".join(row["ignored"]))
    text = ". ".join(parts)
    return text if len(text) <= LONGEST_NOTE else text[:LONGEST_NOTE].rsplit(" ", 1)[0] + " ..."


def _skipped(record: Record) -> Iterator[Section]:
    yield Section(
        title="Runs without a prediction",
        columns=["run", "reason"],
        rows=[[row["id"], row["reason"]] for row in record["skipped"]],
    )

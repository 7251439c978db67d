"""How right predictions are, part by part: ``docs/accuracy.md``, and the page that ``validate --html`` writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from typing import Any, Final

from shardplan.answers.accuracy.shortfalls import band_parts, shortfall_parts, target_parts
from shardplan.answers.accuracy.tables import (
    as_gigabytes,
    as_percent,
    column,
    error_columns,
    of_side,
    table_parts,
    words,
)
from shardplan.answers.document import Line, Part, VectorFigure
from shardplan.calibrate.errors import CLOSE, GROUPINGS, Misordered
from shardplan.calibrate.validate import TIME
from shardplan.estimation.ties import difference_sd
from shardplan.reports.accuracy.causes import cause_of
from shardplan.reports.accuracy.figures import accuracy_figures, drawn
from shardplan.reports.accuracy.record import Accuracy, believed_memory, described
from shardplan.reports.accuracy.shortfalls import causes_of_order
from shardplan.reports.accuracy.targets import Ours, claims, ours

GROUP_TITLES: Final = {
    "family": "By family",
    "accelerator": "By accelerator",
    "framework": "By framework",
    "precision": "By number format",
    "kind": "By kind of model",
    "tier": "By tier",
}
ERROR: Final = (
    "The error of a prediction is exp|ln(predicted / measured)| - 1: twice too slow and twice too fast are both 100 %."
)
LEFT_OUT: Final = (
    " In-sample: constants fitted to all of these runs but those that are only compared (families named below). Left "
    "out: the run's whole team (all that one group published) was kept from the fit; this is what to expect for a "
    "stack and a machine of one's own. Both are the same for what is only compared. Tier A: every field that "
    "matters is stated; A-: one minor field is inferred; B: one that matters is missing. Runs of tier B weigh little "
    "in the fit; how little was chosen by the left-out errors, which are slightly too good for it."
)


def accuracy_parts(accuracy: Accuracy) -> list[Part]:
    """All parts, in order; those for which there is nothing are left out."""
    makers = (
        _summary,
        target_parts,
        _step_times,
        _memory,
        _fits,
        _order,
        band_parts,
        _claims,
        shortfall_parts,
        _skipped,
    )
    return [part for make in makers for part in make(accuracy)]


def _summary(accuracy: Accuracy) -> Iterator[Part]:
    fresh = accuracy.fresh
    predicted, skipped, not_fitting = map(len, (fresh.predictions, fresh.skipped, fresh.not_fitting))
    ended = fresh.fits.out_of_memory
    ran = f"{predicted - ended:,} ran and {ended:,} ran out of memory. Of those that ran" if ended else "all ran"
    text = (
        f"{predicted + skipped:,} measured runs: {predicted:,} are predicted, {skipped:,} cannot be. Of those that "
        f"are, {ran}, {not_fitting:,} {'is' if not_fitting == 1 else 'are'} predicted not to fit in memory"
        + (" (listed below). " if not_fitting else ". ")
        + (f"Constants: {accuracy.profile}. " if accuracy.profile else "")
        + ERROR
        + (LEFT_OUT if accuracy.left_out else "")
    )
    yield Part("What is compared", [Line(text)])


def _drawing(accuracy: Accuracy, name: str) -> VectorFigure:
    figure = accuracy_figures(accuracy)[name]
    return VectorFigure(name, figure.title, lambda theme: drawn(figure, theme))


def _step_times(accuracy: Accuracy) -> Iterator[Part]:
    if not accuracy.errors_by(GROUPINGS["family"], TIME):
        return
    guides = Line("Dashed: 20 % on either side of equality.")
    yield Part("Step time", [guides, _drawing(accuracy, "time")])
    for group, title in GROUP_TITLES.items():
        rows = accuracy.errors_by(GROUPINGS[group], TIME)
        yield from table_parts(title, rows, error_columns(rows), is_under=True)
    rows = accuracy.errors_by_scale(TIME)
    yield from table_parts(
        "Error against scale",
        rows,
        error_columns(rows, "accelerators"),
        "Bias: median of predicted over measured, less one; above zero, predictions are too slow.",
        drawing=_drawing(accuracy, "scale"),
        is_under=True,
    )


def _memory(accuracy: Accuracy) -> Iterator[Part]:
    if not accuracy.errors_by(GROUPINGS["family"], believed_memory):
        return
    text = (
        "Counted as the run's meter counts: tensors in use, the allocator's reservation, or the whole process. The "
        "tables leave out internevo."
    )
    yield Part("Peak memory", [Line(text), _drawing(accuracy, "memory")])
    names = {GROUP_TITLES[group]: GROUPINGS[group] for group in ("family", "accelerator", "tier")}
    for title, name_of in {**names, "By meter": lambda one: one.run.memory_kind}.items():
        rows = accuracy.errors_by(name_of, believed_memory)
        yield from table_parts(f"Memory {title[0].lower()}{title[1:]}", rows, error_columns(rows), is_under=True)


def _claims(accuracy: Accuracy) -> Iterator[Part]:
    yield from table_parts(
        "Other tools",
        claims() if accuracy.left_out else (),
        (
            words("tool", attrgetter("tool")),
            words("runs", attrgetter("runs")),
            words("result", attrgetter("says")),
            words("measured by", attrgetter("source")),
            words("shardplan in-sample", lambda claim: _ours(ours(accuracy.fresh, claim))),
            words("shardplan left out", lambda claim: _ours(ours(accuracy.left_out, claim))),
        ),
        "What their authors published or what their code gave, and shardplan on the same runs where they are in "
        "the data. Mean error here is the mean of |predicted / measured - 1|, as theirs. Shardplan's constants, unlike "
        "theirs, were fitted to published runs; those of the left-out column did not see the team in question.",
    )


def _ours(found: Ours | None) -> str:
    if found is None:
        return "not comparable"
    if found.n == 1:
        return f"{100 * abs(found.mean_bias):.1f} % too {'slow' if found.mean_bias > 0 else 'fast'}"
    text = f"mean error {as_percent(found.mean_error)}"
    if found.spearman is not None:
        text += f", rank correlation {found.spearman:.2f}, regret {as_percent(found.regret)}"
    return text


def _skipped(accuracy: Accuracy) -> Iterator[Part]:
    columns = (words("run", attrgetter("run.id")), words("reason", attrgetter("reason")))
    yield from table_parts("Runs without a prediction", accuracy.fresh.skipped, columns)


VERDICTS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "right": lambda found: as_percent(found.right),
    'false "fits"': attrgetter("false_fits"),
    "beyond 3 %": attrgetter("false_fits_beyond_3_percent"),
    "beyond 10 %": attrgetter("false_fits_beyond_10_percent"),
    'false "does not fit"': attrgetter("false_misfits"),
}
"""Columns of verdicts."""


def _fits(accuracy: Accuracy) -> Iterator[Part]:
    """The table by family, and the runs that are furthest off; nothing where no run says how it ended but by a time."""
    rows = accuracy.fits_by_family()
    if not rows[-1].in_sample.n:
        return
    sides = {"in_sample": "", **({"left_out": "left out: "} if accuracy.left_out else {})}
    yield from table_parts(
        "Fits",
        rows,
        (
            words("", attrgetter("name")),
            column("runs", attrgetter("in_sample.n")),
            column("out of memory", attrgetter("in_sample.out_of_memory")),
            *(
                column(f"{said * (title == 'right')}{title}", of_side(cell, side))
                for side, said in sides.items()
                for title, cell in VERDICTS.items()
            ),
        ),
        'The verdict "fits" against how runs ended. False "fits": the run ran out of memory; beyond 3 % and 10 %: '
        "and is predicted to leave more than that of the usable memory free. "
        'False "does not fit": the run ran. Families without a run that ran out of memory and without a wrong verdict '
        "are in the last row alone.",
    )
    yield from table_parts(
        "Runs out of memory that are predicted to fit",
        [one for one in accuracy.fresh.false_fits if one.free_share > CLOSE],
        (
            words("run", attrgetter("run.id")),
            words("tier", attrgetter("run.tier")),
            column("needed", lambda one: as_gigabytes(one.needed_memory_bytes)),
            column("usable", lambda one: as_gigabytes(one.usable_memory_bytes)),
            column("needed / usable", lambda one: f"{one.needed_memory_bytes / one.usable_memory_bytes:.2f}"),
            words("cause", lambda one: known.cause if (known := cause_of(one.run.id, "false_fits")) else "not known"),
        ),
        "Those predicted to leave more than 3 % of the usable memory free. Needed and usable in GB of 10^9 bytes.",
        is_under=True,
    )


SWEEPS: Final = (
    words("family, model", lambda one: f"{one.family}, {one.model.rsplit('/', 1)[-1].removesuffix('.json')}"),
    words("accelerators", lambda one: f"{one.num_accelerators:,} {one.accelerator}"),
    column("configurations", lambda one: len(one.runs)),
    column("slowest / fastest", lambda one: f"{one.spread:.2f}"),
    column("regret", lambda one: as_percent(one.regret)),
    column("pairs in order", lambda one: as_percent(one.pairs_in_order, 0)),
)
"""Columns of sweeps."""
NUM_SWEEPS: Final = 20
"""Sweeps that are listed; ``--json`` has all."""
RANKING: Final = (
    words("", lambda row: row[0]),
    column("sweeps", lambda row: row[1]["sweeps"]),
    column("mean regret", lambda row: as_percent(row[1]["mean_regret"])),
    column("pairs", lambda row: row[1]["pairs"]),
    column("in order", lambda row: as_percent(row[1]["pairs_in_order"])),
    column("median rank correlation", lambda row: f"{row[1]['median_spearman']:.2f}"),
)
"""Columns of the order within all sweeps."""


def _order(accuracy: Accuracy) -> Iterator[Part]:
    """Sweeps, regret, and pairs in the wrong order with their causes; nothing where there is no sweep."""
    sides, checked = accuracy.sides, accuracy.left_out or accuracy.fresh
    names = {"in_sample": "these runs" if len(sides) == 1 else "in-sample", "left_out": "left out"}
    rows: list[tuple[str, dict[str, Any]]] = [
        (f"{names[side]}, {label}", found)
        for side, one in sides.items()
        for label, found in (("all tiers", one.ranking()), ("tiers A and A-", described(one).ranking()))
        if found["sweeps"]
    ]
    sd = difference_sd(accuracy.residuals) if accuracy.residuals else None
    shared = "" if sd is None else (
        " Configurations of one setting share much of their error: that of the ratio of two has a standard deviation "
        f"of {100 * sd:.0f} %."
    )  # fmt: skip
    yield from table_parts(
        "Order of configurations",
        rows,
        RANKING,
        "Sweeps are at least three configurations of one model on the same accelerators. Regret: how much "
        "slower the configuration that is predicted to be the fastest was than the fastest. Pairs: those whose "
        f"measured times differ by more than 5 %.{shared}",
    )
    if not rows:
        return
    sweeps = sorted(checked.sweeps, key=lambda one: (-one.regret, one.family, one.model))
    note = f"The {NUM_SWEEPS} with the largest regret." if len(sweeps) > NUM_SWEEPS else ""
    yield from table_parts("Sweeps", sweeps[:NUM_SWEEPS], SWEEPS, note, is_under=True)
    yield from table_parts(
        "Pairs in the wrong order",
        causes_of_order(checked),
        (
            words("cause", lambda row: row.cause.cause if row.cause else "not known"),
            column("pairs, tiers A and A-", attrgetter("described")),
            column("all tiers", attrgetter("pairs")),
            words("differs most", lambda row: _pair(row.largest)),
            words("what to state", lambda row: row.cause.state if row.cause else ""),
        ),
        f"By cause{', left out' if accuracy.left_out else ''}, with the pair of each that differs most: how "
        "much slower the first was measured than the second, and how it was predicted. A pair counts once, with the "
        "first cause that applies.",
        is_under=True,
    )


def _pair(pair: Misordered) -> str:
    ratios = f"x {pair.measured:.2f} measured, x {pair.predicted:.2f} predicted"
    return f"{pair.slower} against {pair.faster}: {ratios}"

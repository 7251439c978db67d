r"""Statistics of predictions against measurements: errors and bias, verdicts "fits", and order within sweeps.

The error of a prediction is :math:`e = \exp|\ln(p / m)| - 1`: twice too slow and twice too fast are both 100 %.
Verdicts are held against how runs ended, one that ended out of memory by its verdict alone; the predicted need is that
of the tensors on the fullest accelerator, of the memory that they can fill.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Final, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shardplan.base.fields import dataclass
from shardplan.base.files import DATA
from shardplan.calibrate.predict import Prediction
from shardplan.calibrate.runs.rows import MeasuredRun

Row = TypeVar("Row")

SMALLEST_SWEEP: Final = 3
CLEAR_DIFFERENCE: Final = 0.05
"""Pairs of configurations whose measured times differ by less are not asked for their order."""
NEEDS: Final = DATA / "profiles" / "needs.csv"
"""ln(needed / usable memory) of every shipped run by constants that never saw its team."""
NEEDS_HEAD: Final = ("id", "log_need")
CLOSE, FAR = 0.03, 0.10
"""Shares of the usable memory by which a false "fits" is distinguished."""


@dataclass(frozen=True, kw_only=True)
class Errors:
    """Errors of a set of predictions. All but ``n`` are shares; None where there is no prediction."""

    n: int
    """Predictions that can be compared."""
    median: float | None
    """Median of the error."""
    p90: float | None
    """90th percentile of the error."""
    bias: float | None
    r""":math:`\exp(\mathrm{median} \ln(p/m)) - 1`: above zero, predictions are too slow (or too large)."""
    too_small: float | None
    """Share of predictions more than 10 % below the measurement."""


def errors_of(log_ratios: ArrayLike) -> Errors:
    """Statistics of ln(predicted / measured); NaN: nothing measured."""
    ratios = np.asarray(log_ratios, dtype=np.float64).ravel()
    ratios = ratios[~np.isnan(ratios)]
    if not ratios.size:
        return Errors(n=0, median=None, p90=None, bias=None, too_small=None)
    size = np.expm1(np.abs(ratios))
    return Errors(
        n=int(ratios.size),
        median=float(np.median(size)),
        p90=float(np.percentile(size, 90)),
        bias=float(np.expm1(np.median(ratios))),
        too_small=float(np.mean(ratios < np.log(0.9))),
    )


GROUPINGS: Final[Mapping[str, Callable[[Prediction], str]]] = {
    "family": lambda prediction: prediction.run.family,
    "tier": lambda prediction: prediction.run.tier,
    "accelerator": lambda prediction: prediction.run.accelerator,
    "framework": lambda prediction: prediction.run.framework.lower(),
    "precision": lambda prediction: prediction.asked.question.job.precision,
    "kind": lambda prediction: "moe" if prediction.asked.question.model.is_moe else "dense",
}
"""What errors can be distinguished by."""
UNSTATED: Final = "unstated"


def grouped(rows: Iterable[Row], name_of: Callable[[Row], str]) -> dict[str, list[Row]]:
    """Rows by a name, ``unstated`` where that is empty, in the order in which names appear."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(name_of(row) or UNSTATED, []).append(row)
    return groups


def errors_by(
    predictions: Iterable[Prediction], name_of: Callable[[Prediction], str], value: Callable[[Prediction], float | None]
) -> dict[str, Errors]:
    """Errors of ``value`` (a log ratio) by a name, in the order of the names."""
    groups = grouped(predictions, name_of)
    return {name: errors_of_each(groups[name], value) for name in sorted(groups)}


def errors_of_each(rows: Iterable[Row], value: Callable[[Row], float | None]) -> Errors:
    """Errors of ``value``, a log ratio; None: nothing measured."""
    return errors_of([np.nan if (ratio := value(row)) is None else ratio for row in rows])


@dataclass(frozen=True, kw_only=True)
class Verdicts:
    """Verdicts on a set of runs."""

    n: int
    """Runs: those that ran, and those that ran out of memory."""
    out_of_memory: int
    """Of these the latter."""
    right: float | None
    """Share of the verdicts that are right; None where there are no runs."""
    false_fits: int
    """Runs that ran out of memory and are predicted to fit."""
    false_fits_beyond_3_percent: int
    """Of these, those predicted to leave more than 3 % of the usable memory free."""
    false_fits_beyond_10_percent: int
    """Of these, those predicted to leave more than 10 % of it free."""
    false_misfits: int
    """Runs that ran and are predicted not to fit."""


def verdicts_of(predictions: Sequence[Prediction]) -> Verdicts:
    """Verdicts on these runs."""
    ended = [one for one in predictions if not one.run.ran]
    false_fits = [one.free_share for one in ended if one.fits]
    false_misfits = sum(one.run.ran and not one.fits for one in predictions)
    wrong = len(false_fits) + false_misfits
    return Verdicts(
        n=len(predictions),
        out_of_memory=len(ended),
        right=1 - wrong / len(predictions) if predictions else None,
        false_fits=len(false_fits),
        false_fits_beyond_3_percent=int(np.sum(np.asarray(false_fits) > CLOSE)),
        false_fits_beyond_10_percent=int(np.sum(np.asarray(false_fits) > FAR)),
        false_misfits=false_misfits,
    )


Z95: Final = 1.96
"""Standard deviations on either side of which 95 % of a normal distribution lie."""


@dataclass(frozen=True, kw_only=True)
class Inside:
    """How many of some measurements lie inside their band, as a share with its uncertainty."""

    n: int
    """Measurements; those of rows that cannot be predicted are misses."""
    share: float
    """Of them inside."""
    low: float
    """Of the 95 % interval of the share, were the runs independent (Wilson's)."""
    high: float


def inside_of(hits: Sequence[bool]) -> Inside | None:
    r"""Share of ``hits`` with Wilson's interval; None where there are none.

    .. math:: \frac{p + z^2 / 2n \pm z \sqrt{p (1 - p) / n + z^2 / 4 n^2}}{1 + z^2 / n}
    """
    n = len(hits)
    if not n:
        return None
    share, spread = sum(hits) / n, Z95**2 / n
    half = Z95 * np.sqrt(share * (1 - share) / n + spread / (4 * n))
    low, high = ((share + spread / 2 + sign * half) / (1 + spread) for sign in (-1, 1))
    return Inside(n=n, share=share, low=max(float(low), 0.0), high=min(float(high), 1.0))


@cache
def read_needs() -> Mapping[str, float]:
    """The shipped left-out needs by run; none where there is no such file."""
    if not NEEDS.exists():
        return {}
    with NEEDS.open(encoding="utf-8", newline="") as file:
        return {row["id"]: float(row["log_need"]) for row in csv.DictReader(file)}


@dataclass(frozen=True, kw_only=True)
class Misordered:
    """Two configurations that differ clearly and are predicted in the wrong order."""

    slower: str
    """Run of the one that was measured to be slower."""
    faster: str
    """Run of the other, which is predicted to be no faster."""
    measured: float
    """Measured time per token of the slower over that of the faster."""
    predicted: float
    """The same as predicted."""


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Configurations of one model on one cluster, in the order that is predicted and in the one that was measured."""

    family: str
    model: str
    accelerator: str
    num_accelerators: int
    sequence_length: int
    precision: str
    runs: tuple[str, ...]
    """One run of each configuration, fastest first."""
    spread: float
    """Slowest over fastest measured time per token."""
    spearman: float
    """Rank correlation of predicted and measured time per token."""
    regret: float
    """How much slower the configuration that is predicted to be the fastest was than the fastest."""
    num_pairs: int
    """Pairs that differ by more than 5 %."""
    pairs_in_order: float | None
    """Share of them that is predicted in the right order; None where there is none."""
    misordered: tuple[Misordered, ...]
    """The others, those first that differ most; at most ``MOST_MISORDERED``."""


def sweeps_of(predictions: Iterable[Prediction]) -> tuple[Sweep, ...]:
    """Every sweep of at least three configurations.

    Runs of one family with the same model, accelerators, sequence and precision are one sweep; repeats of the same
    configuration (in several releases, say) are one, by the geometric mean of their times.
    """
    groups: dict[tuple[object, ...], list[Prediction]] = {}
    for one in predictions:
        run, question = one.run, one.asked.question
        if run.step_time is not None:
            hardware = run.accelerator, run.num_accelerators, question.cluster.innermost.size
            setting = (run.family, run.model, *hardware, run.sequence_length, question.job.precision)
            groups.setdefault(setting, []).append(one)
    found = [_sweep(group) for group in groups.values()]
    return tuple(sweep for sweep in found if sweep is not None)


def _sweep(group: list[Prediction]) -> Sweep | None:
    repeats: dict[object, list[Prediction]] = {}
    for prediction in group:
        question = prediction.asked.question
        repeats.setdefault((prediction.asked.plan, question.job, question.cluster.name), []).append(prediction)
    if len(repeats) < SMALLEST_SWEEP:
        return None
    measured = np.array([_per_token(same, lambda one: one.run.step_time or np.nan) for same in repeats.values()])
    predicted = np.array([_per_token(same, lambda one: one.step_time) for same in repeats.values()])
    names = [same[0].run.id for same in repeats.values()]
    run: MeasuredRun = group[0].run
    num_pairs, num_wrong, wrong = _clear_pairs(measured, predicted)
    return Sweep(
        family=run.family,
        model=run.model,
        accelerator=run.accelerator,
        num_accelerators=run.num_accelerators,
        sequence_length=run.sequence_length,
        precision=group[0].asked.question.job.precision,
        runs=tuple(names[index] for index in np.argsort(measured, kind="stable")),
        spread=float(measured.max() / measured.min()),
        spearman=spearman(predicted, measured),
        regret=float(measured[int(np.argmin(predicted))] / measured.min() - 1),
        num_pairs=num_pairs,
        pairs_in_order=1 - num_wrong / num_pairs if num_pairs else None,
        misordered=tuple(
            Misordered(
                slower=names[slower],
                faster=names[faster],
                measured=float(measured[slower] / measured[faster]),
                predicted=float(predicted[slower] / predicted[faster]),
            )
            for slower, faster in wrong
        ),
    )


def _per_token(same: list[Prediction], time: Callable[[Prediction], float]) -> float:
    """Geometric mean of the time per token. [s]"""
    return float(np.exp(np.mean([np.log(time(one) / one.asked.question.job.tokens_per_step) for one in same])))


MOST_MISORDERED: Final = 1000
"""Pairs in the wrong order that a sweep lists; it counts all."""
PAIRS: Final = 2**20
"""Pairs that are compared at once."""


def _clear_pairs(
    measured: NDArray[np.float64], predicted: NDArray[np.float64]
) -> tuple[int, int, list[tuple[int, int]]]:
    """Pairs of configurations that differ by more than ``CLEAR_DIFFERENCE``, compared in blocks of slower ones.

    Their number, how many are predicted in the wrong order, and the slower and the faster of those that differ most.
    """
    number, num_wrong = 0, 0
    wrong, ratios = np.empty((0, 2), dtype=np.intp), np.empty(0)
    rows = max(PAIRS // len(measured), 1)
    for start in range(0, len(measured), rows):
        block = slice(start, start + rows)
        ratio = measured[block, None] / measured[None, :]
        clear = ratio > 1 + CLEAR_DIFFERENCE
        found = clear & ~(predicted[block, None] > predicted[None, :])
        number, num_wrong = number + int(clear.sum()), num_wrong + int(found.sum())
        wrong = np.concatenate([wrong, np.argwhere(found) + np.asarray([start, 0])])
        ratios = np.concatenate([ratios, ratio[found]])
        most = np.argsort(-ratios, kind="stable")[:MOST_MISORDERED]
        wrong, ratios = wrong[most], ratios[most]
    return number, num_wrong, [(slower, faster) for slower, faster in wrong.tolist()]


def spearman(first: ArrayLike, second: ArrayLike) -> float:
    """Rank correlation, equal values sharing their mean rank; zero where one side is constant."""
    sides = []
    for values in (first, second):
        _, place, counts = np.unique(np.asarray(values, float), return_inverse=True, return_counts=True)
        ranks = (np.cumsum(counts) - counts + (counts - 1) / 2)[place]
        sides.append(ranks - ranks.mean())
    a, b = sides
    scale = float(np.sqrt(np.sum(a**2) * np.sum(b**2)))
    return float(np.sum(a * b) / scale) if scale else 0.0

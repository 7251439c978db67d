r"""Statistics of predictions against measurements: errors, bias, coverage of bands, and order within sweeps.

The error of a prediction is :math:`e = \exp|\ln(p / m)| - 1`: twice too slow and twice too fast are both 100 %.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shardplan.calibration.predict import Prediction
from shardplan.calibration.runs.rows import MeasuredRun
from shardplan.fields import dataclass

SMALLEST_SWEEP: Final = 3
CLEAR_DIFFERENCE: Final = 0.05
"""Pairs of configurations whose measured times differ by less are not asked for their order."""


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


def _kind(prediction: Prediction) -> str:
    return "moe" if prediction.asked.question.model.is_moe else "dense"


GROUPINGS: Final[Mapping[str, Callable[[Prediction], str]]] = {
    "family": lambda prediction: prediction.run.family,
    "tier": lambda prediction: prediction.run.tier,
    "accelerator": lambda prediction: prediction.run.accelerator,
    "framework": lambda prediction: prediction.run.framework.lower(),
    "precision": lambda prediction: prediction.asked.question.job.precision,
    "kind": _kind,
}
"""What errors can be distinguished by."""


def errors_by(
    predictions: Sequence[Prediction], group: str, value: Callable[[Prediction], float | None]
) -> dict[str, Errors]:
    """Errors of ``value`` (a log ratio) by the names of one of ``GROUPINGS``; ``unstated`` where it is empty."""
    name_of = GROUPINGS[group]
    ratios: dict[str, list[float]] = {}
    for prediction in predictions:
        ratio = value(prediction)
        ratios.setdefault(name_of(prediction) or "unstated", []).append(np.nan if ratio is None else ratio)
    return {name: errors_of(ratios[name]) for name in sorted(ratios)}


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
    for prediction in predictions:
        if prediction.run.step_time is not None:
            groups.setdefault(_setting(prediction), []).append(prediction)
    found = [_sweep(group) for group in groups.values()]
    return tuple(sweep for sweep in found if sweep is not None)


def _setting(prediction: Prediction) -> tuple[object, ...]:
    run, question = prediction.run, prediction.asked.question
    fast_domain = question.cluster.innermost.size
    return (
        run.family, run.model, run.accelerator, run.num_accelerators, fast_domain, run.sequence_length,
        question.job.precision,
    )  # fmt: skip


def _sweep(group: list[Prediction]) -> Sweep | None:
    repeats: dict[object, list[Prediction]] = {}
    for prediction in group:
        question = prediction.asked.question
        repeats.setdefault((prediction.asked.plan, question.job, question.cluster.name), []).append(prediction)
    if len(repeats) < SMALLEST_SWEEP:
        return None
    measured = np.array([_per_token(same, _measured) for same in repeats.values()])
    predicted = np.array([_per_token(same, lambda one: one.step_time) for same in repeats.values()])
    names = [same[0].run.id for same in repeats.values()]
    run: MeasuredRun = group[0].run
    pairs = _clear_pairs(measured, predicted)
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
        num_pairs=pairs.number,
        pairs_in_order=1 - pairs.num_wrong / pairs.number if pairs.number else None,
        misordered=tuple(_misordered(names, predicted, measured, *pair) for pair in pairs.wrong),
    )


def _measured(prediction: Prediction) -> float:
    assert prediction.run.step_time is not None
    return prediction.run.step_time


def _per_token(same: list[Prediction], time: Callable[[Prediction], float]) -> float:
    """Geometric mean of the time per token. [s]"""
    return float(np.exp(np.mean([np.log(time(one) / one.asked.question.job.tokens_per_step) for one in same])))


MOST_MISORDERED: Final = 1000
"""Pairs in the wrong order that a sweep lists; it counts all."""
PAIRS: Final = 2**20
"""Pairs that are compared at once."""


class _Pairs(NamedTuple):
    """Pairs of configurations that differ by more than ``CLEAR_DIFFERENCE``."""

    number: int
    num_wrong: int
    """Those that are predicted in the wrong order."""
    wrong: list[tuple[int, int]]
    """The slower and the faster of those of them that differ most, at most ``MOST_MISORDERED``."""


def _clear_pairs(measured: NDArray[np.float64], predicted: NDArray[np.float64]) -> _Pairs:
    """Pairs of every two, compared in blocks of slower ones."""
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
    return _Pairs(number, num_wrong, [(slower, faster) for slower, faster in wrong.tolist()])


def _misordered(
    names: Sequence[str], predicted: NDArray[np.float64], measured: NDArray[np.float64], slower: int, faster: int
) -> Misordered:
    return Misordered(
        slower=names[slower],
        faster=names[faster],
        measured=float(measured[slower] / measured[faster]),
        predicted=float(predicted[slower] / predicted[faster]),
    )


def spearman(first: ArrayLike, second: ArrayLike) -> float:
    """Rank correlation, equal values sharing their mean rank; zero where one side is constant."""
    a, b = (_ranks(np.asarray(values, dtype=np.float64)) for values in (first, second))
    scale = float(np.sqrt(np.sum((a - a.mean()) ** 2) * np.sum((b - b.mean()) ** 2)))
    return float(np.sum((a - a.mean()) * (b - b.mean())) / scale) if scale else 0.0


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - counts + (counts - 1) / 2)[place]

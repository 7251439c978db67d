r"""Fits the constants of generation and transfer to measured RL steps, and counts errors with each family left out.

``python -m shardplan.rl.fit`` prints the constants and writes ``data/measured_runs/rl_left_out.csv``. Nothing else of
an RL step is fitted. The fit minimises, over logarithms :math:`\theta` of constants with priors :math:`\theta_0`,

.. math:: \sum_i w_i \rho(\ln p_i / m_i) + \sum_j (\theta_j - \theta_{0j})^2 / s^2

for steps, and for what rows state of generation and transfer; a family weighs as at most :data:`MOST_OF_FAMILY` rows.
Constants of a left-out family are those of one more step on the others from the fit to all.
"""

from __future__ import annotations

import csv
import math
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardplan.ask.names import cluster_of, model_of
from shardplan.base.errors import ShardplanError
from shardplan.base.files import DATA
from shardplan.rl.engine import Engine, Replica, constant, generation_data, rates_of, trying
from shardplan.rl.measured import Priced, price_all, repriced, shipped_steps
from shardplan.rl.transfer import seconds

Array = NDArray[np.float64]
LEFT_OUT: Final = DATA / "measured_runs" / "rl_left_out.csv"
TRANSFERS: Final = DATA / "measured_runs" / "rl_transfers.csv"
PRIORS: Final[Mapping[str, float]] = generation_data()["assumed"]
"""What was assumed of each constant before the fit."""
PRIOR_SD: Final = 0.3
"""Standard deviation of the logarithm of a constant around what was assumed."""
ROW_SD: Final = 0.15
FAR: Final = 2.0
"""Standard deviations beyond which a row pulls no more than one there."""
MOST_OF_FAMILY: Final = 8.0
STEPS: Final = 3
CAPPED: Final = {"decode_bandwidth": 0.98, "expert_bandwidth": 0.98}
"""What a share of the memory's rate can be at most."""


class Transfer(NamedTuple):
    """A measured transfer of weights."""

    id: str
    family: str
    method: str
    received: float
    """By one accelerator. [bytes]"""
    num: int
    """Accelerators of a replica."""
    tensors: int
    memory_rate: float
    quantised: bool
    measured: float
    """[s]"""

    @property
    def error(self) -> float:
        """ln(predicted / measured)."""
        found = seconds(self.method, self.received, self.num, self.tensors, self.memory_rate, quantised=self.quantised)
        return math.log(found / self.measured)


class FittedRates(NamedTuple):
    """The constants, and errors with each family left out."""

    values: dict[str, float]
    left_out: dict[str, float]
    """ln(predicted / measured) of every step by its id."""
    transfers: dict[str, float]
    """The same of transfers."""


@cache
def measured_transfers() -> tuple[Transfer, ...]:
    """Transfers whose accelerator, size and method are known, those in doubt left out."""
    with TRANSFERS.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["tier"] == "A" and row["weights_bytes"]]
    return tuple(found for found in map(_transfer, rows) if found is not None)


def _transfer(row: Mapping[str, str]) -> Transfer | None:
    cluster, quantised, tensors = cluster_of(row["cluster"]), row["precision"] == "fp8", 0
    num = int(row["replica_accelerators"] or 1)
    if quantised:
        try:
            model = model_of(row["model"].lower())
        except ShardplanError:
            return None
        tensors = Engine(model=model, cluster=cluster, replica=Replica()).num_tensors
    whole = float(row["weights_bytes"]) / (2 if quantised else 1)
    return Transfer(
        id=row["id"],
        family=row["family"],
        method=row["method"],
        received=whole / num,
        num=num,
        tensors=tensors,
        memory_rate=cluster.accelerator.memory_bandwidth,
        quantised=quantised,
        measured=math.sqrt(float(row["seconds_low_s"]) * float(row["seconds_high_s"])),
    )


def fit() -> FittedRates:
    """The constants from all rows, and the errors of each family by constants from the others."""
    priced = [each for each in price_all(shipped_steps())[0] if each.step.tier != "B"]
    names, start = tuple(PRIORS), np.log(list(PRIORS.values()))
    families = [*(each.step.family for each in priced for _ in range(3)), *(row.family for row in measured_transfers())]
    theta = start.copy()
    for _ in range(STEPS):
        errors, slopes = _linearised(priced, names, theta)
        theta = _step((errors, slopes), theta, start, _weights(families, errors, None), names)
    errors, slopes = _linearised(priced, names, theta)
    left_out: dict[str, float] = {}
    transfers: dict[str, float] = {}
    for family in dict.fromkeys(families):
        other = _step((errors, slopes), theta, start, _weights(families, errors, family), names)
        found = _errors(priced, _values(names, other))
        left_out |= {each.step.id: float(found[3 * at]) for at, each in enumerate(priced) if each.step.family == family}
        rows = zip(measured_transfers(), found[3 * len(priced) :], strict=True)
        transfers |= {row.id: float(error) for row, error in rows if row.family == family}
    return FittedRates(_values(names, theta), left_out, transfers)


def _values(names: Sequence[str], theta: Array) -> dict[str, float]:
    return {name: float(np.exp(value)) for name, value in zip(names, theta, strict=True)}


def _errors(priced: Sequence[Priced], values: Mapping[str, float]) -> Array:
    """Of step, generation and transfer of every row, then of transfers; NaN: not measured."""
    with trying(values):
        found: list[float | None] = []
        for each in priced:
            again = repriced(each)
            found += [again.error, again.error_of("generation"), again.error_of("transfer")]
        found += [row.error for row in measured_transfers()]
    return np.asarray([np.nan if error is None else error for error in found])


def _linearised(priced: Sequence[Priced], names: Sequence[str], theta: Array) -> tuple[Array, Array]:
    """Errors, and their slopes by the logarithm of every constant."""
    at, columns, width = _errors(priced, _values(names, theta)), [], 0.05
    for place in range(len(names)):
        moved = theta.copy()
        moved[place] += width
        columns.append((_errors(priced, _values(names, moved)) - at) / width)
    return at, np.asarray(columns).T


def _weights(families: Sequence[str], errors: Array, without: str | None) -> Array:
    """Of rows: none of a family left out; less of those far off, and of those of large families."""
    counts = Counter(family for family, error in zip(families, errors, strict=True) if not np.isnan(error))
    each = np.asarray([min(1.0, MOST_OF_FAMILY / max(counts[family], 1)) for family in families])
    kept = np.asarray([family != without for family in families])
    far = np.abs(np.nan_to_num(errors)) / ROW_SD
    return np.where(np.isnan(errors) | ~kept, 0.0, each * np.minimum(1.0, FAR / np.maximum(far, 1e-9)) / ROW_SD**2)


def _step(at: tuple[Array, Array], theta: Array, start: Array, weights: Array, names: Sequence[str]) -> Array:
    """One step of least squares."""
    errors, slopes = map(np.nan_to_num, at)
    prior = np.eye(len(theta)) / PRIOR_SD**2
    normal = slopes.T @ (weights[:, None] * slopes) + prior
    pull = slopes.T @ (weights * errors) + prior @ (theta - start)
    found = theta - np.clip(np.linalg.solve(normal, pull), -0.7, 0.7)
    most = np.log([CAPPED.get(name, np.inf) for name in names])
    return np.minimum(found, most)


def main() -> int:
    """Prints the constants and writes left-out errors."""
    found = fit()
    for name, value in found.values.items():
        method, dot, rate = name.partition(".")
        shipped = rates_of(method)[rate] if dot else constant(name)
        print(f"{name:26} assumed {PRIORS[name]:<12.4g} shipped {shipped:<12.4g} fitted {value:.4g}")  # noqa: T201
    with LEFT_OUT.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["id", "log_error"])
        writer.writerows((name, f"{error:.4f}") for name, error in (found.left_out | found.transfers).items())
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""How much six runs of a new cluster teach: every team's published runs as if nobody had seen them.

python benchmarks/six_runs.py [--runs 6] [--draws 20]    writes benchmarks/records/six_runs.json

Constants that were fitted without a team stand for the shipped ones, one of its accelerators for a cluster of one's
own. A few of the configurations that it ran there, drawn at random, are fitted as ``shardplan calibrate`` does; the
other runs tell how much was learnt, and how many lie in their band before and after.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from shardplan.base.fields import dataclass
from shardplan.calibrate.defaults import Refit, refit, residuals_of, shipped_moves
from shardplan.calibrate.errors import Errors, errors_of
from shardplan.calibrate.fit import Fit, Free, Vector, evidence_of, fit, profiles_at
from shardplan.calibrate.left_out import configurations_of, residual_of
from shardplan.calibrate.predict import PosedRun, log_ratios
from shardplan.calibrate.runs.rows import team_of
from shardplan.calibrate.user import user_constants
from shardplan.estimation.band import KnownErrors, band_among, described
from shardplan.estimation.band import errors_of as errors_of_runs
from shardplan.estimation.gaps import Gap
from shardplan.inputs.cluster import Accelerator
from shardplan.inputs.profile import load_profile
from shardplan.inputs.readers.residuals import Residual

RECORD = Path(__file__).parent / "records" / "six_runs.json"
PARTS = ("median", "p90", "bias")
SMALLEST = 10
"""Runs of a team on one accelerator from which there are enough others to judge by."""


@dataclass(frozen=True, kw_only=True)
class FewRuns:
    """Errors of a team's other runs, and how they lie in their bands, before and after some of them were seen."""

    team: str
    accelerator: str
    num_runs: int
    before: Errors
    after: Errors
    bands: tuple[Banded, Banded]
    """Before and after."""


@dataclass(frozen=True, kw_only=True)
class Banded:
    """Runs against bands."""

    inside: float
    """Share of the runs inside."""
    width: float
    """Median of the logarithm of the upper over the lower end."""


class Known(NamedTuple):
    """What a run's bands are made of, whichever runs are drawn."""

    run: Residual
    doubts: tuple[Gap, ...]
    before: list[float]
    """Ends of its band without runs of its team."""


class Draw(NamedTuple):
    """The runs that a draw leaves, before and after the fit to those drawn: a column each."""

    errors: Vector
    """Logarithm of predicted over measured."""
    bands: Vector
    """Logarithms of the lower and the upper ends: runs x (before, after) x ends."""


def learnt_from(found: Refit, *, num_runs: int = 6, draws: int = 20) -> tuple[FewRuns, ...]:
    """Every team with enough timed runs on one accelerator; ``draws``: how often its runs are drawn anew."""
    teams: dict[str, dict[str, list[PosedRun]]] = defaultdict(lambda: defaultdict(list))
    published = residuals_of(found)
    for case in found.cases:
        run = case.asked.run
        if run.step_time is not None and run.tier != "B":
            teams[team_of(run.family)][case.asked.question.cluster.accelerator.name].append(case)
    largest = {name: max(parts.values(), key=len) for name, parts in sorted(teams.items())}
    asked = [(name, cases) for name, cases in largest.items() if len(cases) >= SMALLEST]
    learnt = []
    for name, cases in asked:
        frees = constants_without(found.fit, name, cases[0].asked.question.cluster.accelerator)
        others = errors_of_runs([run for run in published if run.team != name], "time")
        known = [_known(case, others) for case in cases]
        drawn = [_drawn(frees, cases, known, others, num_runs=num_runs, seed=seed) for seed in range(draws)]
        learnt.append(_learnt(name, cases, drawn))
    return tuple(learnt)


def _learnt(team: str, cases: Sequence[PosedRun], drawn: Sequence[Draw]) -> FewRuns:
    errors, ends = (np.concatenate(each) for each in zip(*drawn, strict=True))
    before, after = errors.T
    return FewRuns(
        team=team,
        accelerator=cases[0].asked.question.cluster.accelerator.name,
        num_runs=len(cases),
        before=errors_of(before),
        after=errors_of(after),
        bands=(_banded(before, ends[:, 0]), _banded(after, ends[:, 1])),
    )


def _banded(errors: Vector, ends: Vector) -> Banded:
    low, high = ends.T
    inside = (low <= -errors) & (-errors <= high)
    return Banded(inside=float(np.mean(inside)), width=float(np.median(high - low)))


def constants_without(found: Fit, team: str, part: Accelerator) -> tuple[Free, ...]:
    """What a user's fit may move, around constants that were fitted without a team."""
    fold = found.folds.index(team) if team in found.folds else 0  # a team that no fit sees
    values = {
        (free.generation, free.name, key): float(value)
        for column, free in enumerate(found.frees)
        for key, value in zip(free.keys or ("",), free.at(float(found.theta[fold, column])), strict=True)
    }
    return tuple(
        replace(
            free,
            priors=tuple(
                values.get((free.generation, free.name, key), prior)
                for key, prior in zip(free.keys or ("",), free.priors, strict=True)
            ),
        )
        for free in user_constants(part)
    )


def _known(case: PosedRun, others: KnownErrors) -> Known:
    run = _as_residual(case)
    doubts = described(run)
    return Known(run, doubts, _ends(run, doubts, others, ()))


def _drawn(
    frees: Sequence[Free],
    cases: Sequence[PosedRun],
    known: Sequence[Known],
    others: KnownErrors,
    *,
    num_runs: int,
    seed: int,
) -> Draw:
    """The runs that a draw leaves; ``known``: of all cases, ``others``: errors of the other teams' runs."""
    configurations = configurations_of(cases)
    names = sorted(set(configurations))
    drawn = {*random.Random(seed).sample(names, min(num_runs, len(names) - 1))}  # noqa: S311 - a draw that can be repeated
    chosen = [place for place, name in enumerate(configurations) if name in drawn]
    rest = [place for place, name in enumerate(configurations) if name not in drawn]
    seen = [cases[place] for place in chosen]
    folds = [case.asked.run.id for case in seen]
    fitted = fit(frees, evidence_of(seen, frees, folds, by_family=False), (None, *folds))
    moves = np.stack([np.zeros(len(frees)), fitted.theta[0]])
    errors = log_ratios([cases[place] for place in rest], profiles_at(frees, moves))[0]
    own = _own_errors(fitted, seen, [known[place].run for place in chosen])
    ends = [(known[place].before, _ends(known[place].run, known[place].doubts, others, own)) for place in rest]
    return Draw(errors, np.asarray(ends))


def _own_errors(fitted: Fit, seen: Sequence[PosedRun], runs: Sequence[Residual]) -> list[Residual]:
    """Every run that was drawn, by constants fitted to the others."""
    places = [fitted.folds.index(run.id) for run in runs]
    times = log_ratios(seen, profiles_at(fitted.frees, fitted.theta))[0][np.arange(len(seen)), places]
    timed = zip(runs, times.tolist(), strict=True)
    return [run._replace(family=f"own:{run.id}", team="", time=time) for run, time in timed]


def _as_residual(case: PosedRun) -> Residual:
    """The run without an error."""
    generation = case.asked.question.cluster.accelerator.generation
    found = residual_of(case, 0.0, math.nan, case.shares({generation: load_profile(generation)}), 0.0)
    return found._replace(first_time=None)


def _ends(run: Residual, doubts: Sequence[Gap], others: KnownErrors, own: Sequence[Residual]) -> list[float]:
    """Logarithms of the ends of a run's band."""
    band = band_among(run.features, run.features.accelerator, others, own=own, doubts=doubts)
    return [math.log(band.low), math.log(band.high)]


def row(found: FewRuns) -> dict[str, object]:
    """One team as a record; errors in shares."""
    errors = {"before": found.before, "after": found.after}
    return {
        "team": found.team,
        "accelerator": found.accelerator,
        "num_runs": found.num_runs,
        **{f"{name}_{part}": round(float(getattr(each, part)), 4) for name, each in errors.items() for part in PARTS},
        **{
            f"{name}_{part}": round(getattr(band, part), 4)
            for name, band in zip(errors, found.bands, strict=True)
            for part in ("inside", "width")
        },
    }


def report(record: dict[str, Any]) -> str:
    """The record as a Markdown table."""
    lines = [
        "| team | accelerator | runs | before: median / 90th pct (bias) | after | in the band before | after | width |",
        "|---|---|--:|--:|--:|--:|--:|--:|",
        *(
            f"| {each['team']} | `{each['accelerator']}` | {each['num_runs']} | {_errors(each, 'before')} "
            f"| {_errors(each, 'after')} | {each['before_inside']:.0%} | {each['after_inside']:.0%} "
            f"| x {each['after_width'] / each['before_width']:.2f} |"
            for each in record["teams"]
        ),
    ]
    return "\n".join(lines)


def _errors(each: dict[str, Any], name: str) -> str:
    median, p90, bias = (100 * float(each[f"{name}_{part}"]) for part in PARTS)
    return f"{median:.1f} / {p90:.1f} % ({bias:+.1f} %)"


def main() -> None:
    """The shipped fits without each team, then fits to some runs of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=6)
    parser.add_argument("--draws", type=int, default=20)
    given = parser.parse_args()
    fits = np.stack([*shipped_moves().values()])
    found = learnt_from(refit(start=fits, iterations=0), num_runs=given.runs, draws=given.draws)
    record = {"runs": given.runs, "draws": given.draws, "teams": [row(each) for each in found]}
    RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

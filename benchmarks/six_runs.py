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
from shardplan.calibrate.left_out import configurations_of, residual_of, with_gap_factors
from shardplan.calibrate.predict import PosedRun, log_ratios
from shardplan.calibrate.runs.rows import team_of
from shardplan.calibrate.user import user_constants
from shardplan.estimation.band import KnownErrors, band_among, described
from shardplan.estimation.band import errors_of as errors_of_runs
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


class Draw(NamedTuple):
    """Some of a team's runs, and what a fit to them says."""

    rest: list[int]
    """Places of the other runs."""
    moves: Vector
    """Of the constants."""
    own: tuple[Residual, ...]
    """The runs that were drawn, each with its error by constants fitted to the other configurations."""


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
        learnt.append(_learnt(name, cases, frees, others, num_runs=num_runs, draws=draws))
    return tuple(learnt)


def _learnt(
    team: str, cases: Sequence[PosedRun], frees: Sequence[Free], others: KnownErrors, *, num_runs: int, draws: int
) -> FewRuns:
    """``others``: errors of the other teams' runs. All that the draws leave is priced at once."""
    runs = [*map(_as_residual, cases)]
    drawn = [_draw(frees, cases, runs, others, num_runs=num_runs, seed=seed) for seed in range(draws)]
    moves = np.stack([np.zeros(len(frees)), *(draw.moves for draw in drawn)])
    errors = log_ratios(cases, profiles_at(frees, moves))[0]
    ends = np.asarray([_ends(run, others, ()) for run in runs])
    places = [place for draw in drawn for place in draw.rest]
    after = np.concatenate([errors[draw.rest, number] for number, draw in enumerate(drawn, 1)])
    ends_after = np.asarray([_ends(runs[place], others, draw.own) for draw in drawn for place in draw.rest])
    return FewRuns(
        team=team,
        accelerator=cases[0].asked.question.cluster.accelerator.name,
        num_runs=len(cases),
        before=errors_of(errors[places, 0]),
        after=errors_of(after),
        bands=(_banded(errors[places, 0], ends[places]), _banded(after, ends_after)),
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


def _draw(
    frees: Sequence[Free],
    cases: Sequence[PosedRun],
    runs: Sequence[Residual],
    others: KnownErrors,
    *,
    num_runs: int,
    seed: int,
) -> Draw:
    """The fit to some configurations; as in a profile, what a run has in common with those seen sizes its error."""
    configurations = configurations_of(cases)
    names = sorted(set(configurations))
    drawn = random.Random(seed).sample(names, min(num_runs, len(names) - 1))  # noqa: S311 - a draw that can be repeated
    chosen = [place for place, name in enumerate(configurations) if name in drawn]
    seen, groups = [cases[place] for place in chosen], [configurations[place] for place in chosen]
    fitted = fit(frees, evidence_of(seen, frees, groups, by_family=False), (None, *drawn))
    times = [fitted.residuals[row, fitted.folds.index(name)] for row, name in enumerate(groups)]
    named = zip((runs[place] for place in chosen), times, strict=True)
    own = [run._replace(family=f"own:{run.id}", team="", time=float(time)) for run, time in named]
    rest = [place for place, name in enumerate(configurations) if name not in drawn]
    return Draw(rest, fitted.theta[0], with_gap_factors(own, groups, others.runs))


def _as_residual(case: PosedRun) -> Residual:
    """The run without an error."""
    generation = case.asked.question.cluster.accelerator.generation
    found = residual_of(case, 0.0, math.nan, case.shares({generation: load_profile(generation)}), 0.0)
    return found._replace(first_time=None)


def _ends(run: Residual, others: KnownErrors, own: Sequence[Residual]) -> list[float]:
    """Logarithms of the ends of a run's band."""
    band = band_among(run.features, run.features.accelerator, others, own=own, doubts=described(run))
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

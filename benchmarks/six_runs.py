"""How much six runs of a new cluster teach: every family of published runs as if nobody had seen it.

python benchmarks/six_runs.py [--runs 6] [--draws 5]    writes benchmarks/records/six_runs.json

Constants that were fitted without a family stand for the shipped ones, the family's accelerator for a cluster of one's
own. A few of its configurations, drawn at random, are fitted as ``shardplan calibrate`` fits them; its other runs tell
how much was learnt.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from shardplan.base.fields import dataclass
from shardplan.calibrate.constants import Free, Vector, profiles_at
from shardplan.calibrate.defaults import Refit, refit
from shardplan.calibrate.errors import Errors, errors_of
from shardplan.calibrate.fit import Fit, evidence_of, fit
from shardplan.calibrate.left_out import configurations_of
from shardplan.calibrate.predict import PosedRun, log_ratios
from shardplan.calibrate.user import user_constants
from shardplan.inputs.cluster import Accelerator

RECORD = Path(__file__).parent / "records" / "six_runs.json"
PARTS = ("median", "p90", "bias")
SMALLEST = 10
"""Runs of a family on one accelerator from which there are enough others to judge by."""


@dataclass(frozen=True, kw_only=True)
class FewRuns:
    """Errors of a family's other runs, before and after some of it was seen."""

    family: str
    accelerator: str
    num_runs: int
    before: Errors
    after: Errors


def learnt_from(found: Refit, *, num_runs: int = 6, draws: int = 5) -> tuple[FewRuns, ...]:
    """Every family with enough timed runs on one accelerator; ``draws``: how often its runs are drawn anew."""
    families: dict[str, dict[str, list[PosedRun]]] = defaultdict(lambda: defaultdict(list))
    for case in found.cases:
        run = case.asked.run
        if run.step_time is not None and run.tier != "B":
            families[run.family][case.asked.question.cluster.accelerator.name].append(case)
    largest = {name: max(parts.values(), key=len) for name, parts in sorted(families.items())}
    asked = [(name, cases) for name, cases in largest.items() if len(cases) >= SMALLEST]
    return tuple(_learnt(found.fit, name, cases, num_runs, draws) for name, cases in asked)


def _learnt(found: Fit, family: str, cases: Sequence[PosedRun], num_runs: int, draws: int) -> FewRuns:
    part = cases[0].asked.question.cluster.accelerator
    frees = constants_without(found, family, part)
    pairs = [_drawn(frees, cases, num_runs, seed) for seed in range(draws)]
    before, after = (np.concatenate(each) for each in zip(*pairs, strict=True))
    return FewRuns(
        family=family,
        accelerator=part.name,
        num_runs=len(cases),
        before=errors_of(before),
        after=errors_of(after),
    )


def constants_without(found: Fit, family: str, part: Accelerator) -> tuple[Free, ...]:
    """What a user's fit may move, around constants that were fitted without a family."""
    fold = found.folds.index(family) if family in found.folds else 0  # a family that no fit sees
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


def _drawn(frees: Sequence[Free], cases: Sequence[PosedRun], num_runs: int, seed: int) -> tuple[Vector, Vector]:
    """Logarithmic errors of the runs that a draw leaves, before and after the fit to those drawn."""
    configurations = configurations_of(cases)
    names = sorted(set(configurations))
    drawn = {*random.Random(seed).sample(names, min(num_runs, len(names) - 1))}  # noqa: S311 - a draw that can be repeated
    seen = [case for case, name in zip(cases, configurations, strict=True) if name in drawn]
    rest = [case for case, name in zip(cases, configurations, strict=True) if name not in drawn]
    fitted = fit(frees, evidence_of(seen, frees, by_family=False))
    moves = np.stack([np.zeros(len(frees)), fitted.theta[0]])
    before, after = log_ratios(rest, profiles_at(frees, moves))[0].T
    return before, after


def row(found: FewRuns) -> dict[str, object]:
    """One family as a record; errors in shares."""
    errors = {"before": found.before, "after": found.after}
    return {
        "family": found.family,
        "accelerator": found.accelerator,
        "num_runs": found.num_runs,
        **{f"{name}_{part}": round(float(getattr(each, part)), 4) for name, each in errors.items() for part in PARTS},
    }


def report(record: dict[str, Any]) -> str:
    """The record as a Markdown table."""
    lines = [
        "| family | accelerator | runs | before: median / 90th pct (bias) | after |",
        "|---|---|--:|--:|--:|",
        *(
            f"| {each['family']} | `{each['accelerator']}` | {each['num_runs']} | {_errors(each, 'before')} "
            f"| {_errors(each, 'after')} |"
            for each in record["families"]
        ),
    ]
    return "\n".join(lines)


def _errors(each: dict[str, Any], name: str) -> str:
    median, p90, bias = (100 * float(each[f"{name}_{part}"]) for part in PARTS)
    return f"{median:.1f} / {p90:.1f} % ({bias:+.1f} %)"


def main() -> None:
    """Fits without each family, then to some runs of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=6)
    parser.add_argument("--draws", type=int, default=5)
    given = parser.parse_args()
    found = learnt_from(refit(), num_runs=given.runs, draws=given.draws)
    record = {"runs": given.runs, "draws": given.draws, "families": [row(each) for each in found]}
    RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""What is aimed at and what is reached, in-sample and with the run's team left out; next to what other tools reach."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np

from shardplan.base.files import DATA, shipped_document
from shardplan.calibrate.errors import GROUPINGS, Errors, errors_of, sweeps_of, verdicts_of
from shardplan.calibrate.predict import Prediction
from shardplan.calibrate.runs.rows import is_fitted
from shardplan.calibrate.validate import Validation
from shardplan.inputs.readers.residuals import CONTRADICTORY_MEMORY

Pair = tuple[float, float]
FILE: Final = DATA / "measured_runs" / "targets.yaml"


def is_described(one: Prediction) -> bool:
    """Whether a run is described well enough, and its family one that the shipped constants are fitted to in full."""
    return one.run.tier != "B" and is_fitted(one.run)


def is_trusted(one: Prediction) -> bool:
    """Whether its peak memory is evidence, and its family one that the shipped constants are fitted to in full."""
    return one.run.family not in CONTRADICTORY_MEMORY and is_fitted(one.run)


def ratio_of(one: Prediction, quantity: str) -> float:
    """ln(predicted / measured) of ``time`` or ``memory``; NaN: not measured."""
    ratio = one.log_time_ratio if quantity == "time" else one.log_memory_ratio
    return math.nan if ratio is None else ratio


class Target(NamedTuple):
    """Median and 90th percentile of the error over some runs: the least that is asked, and what is wanted."""

    label: str
    chosen: Callable[[Prediction], bool]
    quantity: str
    floors: Mapping[str, Pair]
    """By side: ``in_sample`` or ``left_out``."""
    aims: Mapping[str, Pair]


@cache
def targets() -> tuple[Target, ...]:
    """The shipped list, ``data/measured_runs/targets.yaml``."""
    return tuple(map(_target, shipped_document(FILE)["errors"]))


def _target(row: Mapping[str, Any]) -> Target:
    quantity = row.get("quantity", "time")
    is_evidence = is_trusted if quantity == "memory" else is_described

    def chosen(one: Prediction) -> bool:
        run = one.run
        if "families" in row:
            return run.tier != "B" and run.family in row["families"]
        wanted = {"of": run.family, "kind": GROUPINGS["kind"](one), "tier": run.tier}
        is_wanted = all(row.get(name, value) == value for name, value in wanted.items())
        return is_evidence(one) and is_wanted and run.family != row.get("without")

    floors, aims = ({side: tuple(pair) for side, pair in row.get(name, {}).items()} for name in ("floors", "aims"))
    return Target(row["label"], chosen, quantity, floors, aims)


class Reached(NamedTuple):
    """Errors over the runs of a target, and what is asked of them."""

    errors: Errors
    floor: Pair | None
    aim: Pair | None

    @property
    def meets_floor(self) -> bool | None:
        """Whether both figures are below the floor; None where there is none."""
        if self.floor is None:
            return None
        median, p90 = self.errors.median, self.errors.p90
        return median is not None and p90 is not None and median <= self.floor[0] and p90 <= self.floor[1]


def reached(target: Target, side: str, checked: Validation) -> Reached:
    """What is reached of a target. ``side``: ``in_sample`` or ``left_out``."""
    errors = errors_of([ratio_of(one, target.quantity) for one in checked.predictions if target.chosen(one)])
    return Reached(errors, target.floors.get(side), target.aims.get(side))


class ShareTarget(NamedTuple):
    """A share that should be small, or large: what is asked in-sample, and what is reached."""

    label: str
    quantity: str
    wanted: Pair
    """Floor and aim."""
    reached: Mapping[str, float | None]
    """By side."""
    more_is_better: bool = False

    @property
    def meets_floor(self) -> bool | None:
        """Whether it does in-sample; None where there is no share."""
        share, floor = self.reached["in_sample"], self.wanted[0]
        return None if share is None else (share >= floor if self.more_is_better else share <= floor)


def share_targets(sides: Mapping[str, Validation]) -> list[ShareTarget]:
    """Shares, for which there are floors in-sample only; of order, that of runs that are described."""
    too_small = {
        name: errors_of([ratio_of(one, "memory") for one in checked.predictions if is_trusted(one)]).too_small
        for name, checked in sides.items()
    }
    orders = {
        name: sweeps_of([one for one in checked.predictions if is_described(one)]) for name, checked in sides.items()
    }
    found = {name: replace(checked, sweeps=orders[name]).ranking() for name, checked in sides.items()}
    regret, order = ({name: one[key] for name, one in found.items()} for key in ("mean_regret", "pairs_in_order"))
    shares = {"memory": too_small, "regret": regret, "order": order, **_verdicts(sides)}
    known = shipped_document(FILE)["shares"]
    return [ShareTarget(quantity=name, reached=share, **known[name]) for name, share in shares.items()]


def _verdicts(sides: Mapping[str, Validation]) -> dict[str, dict[str, float | None]]:
    """Verdicts "fits" of families with runs that ran out of memory; nothing where there are none."""
    found = {name: verdicts_of(_with_both_ends(checked)) for name, checked in sides.items()}
    if not found["in_sample"].out_of_memory:
        return {}
    far = {
        name: one.false_fits_beyond_10_percent / one.out_of_memory if one.out_of_memory else None
        for name, one in found.items()
    }
    return {"fits": {name: one.right for name, one in found.items()}, "false_fits": far}


def _with_both_ends(checked: Validation) -> list[Prediction]:
    families = {one.run.family for one in checked.predictions if not one.run.ran}
    return [one for one in checked.predictions if one.run.family in families]


class Claim(NamedTuple):
    """What a source says of a tool."""

    tool: str
    runs: str
    says: str
    source: str
    ours: str | None = None
    """Pattern of our runs that are those of the claim, or drawn from them; None: they are not in our data."""


def claims() -> list[Claim]:
    """Of the same file."""
    return [Claim(**row) for row in shipped_document(FILE)["claims"]]


class Ours(NamedTuple):
    """Our errors on the runs of a claim, as theirs are counted."""

    n: int
    mean_error: float
    mean_bias: float
    spearman: float | None
    regret: float | None


def ours(checked: Validation | None, claim: Claim) -> Ours | None:
    """Ours on the same runs; None where they are not in the data."""
    if checked is None or claim.ours is None:
        return None
    timed = (one for one in checked.predictions if one.log_time_ratio is not None)
    chosen = [one for one in timed if fnmatchcase(one.run.id, claim.ours)]
    if not chosen:
        return None
    ratios = [math.exp(one.log_time_ratio or 0.0) for one in chosen]
    sweeps = sweeps_of(chosen) if len(chosen) > 8 else ()
    return Ours(
        n=len(chosen),
        mean_error=float(np.mean([abs(ratio - 1) for ratio in ratios])),
        mean_bias=float(np.mean([ratio - 1 for ratio in ratios])),
        spearman=float(np.mean([sweep.spearman for sweep in sweeps])) if sweeps else None,
        regret=float(np.mean([sweep.regret for sweep in sweeps])) if sweeps else None,
    )

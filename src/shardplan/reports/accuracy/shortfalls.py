"""Where predictions fall short: known causes, runs furthest off, floors that are missed.

A known cause tells how many runs it is of, how far off they are, and what a user should state instead.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from shardplan.calibrate.errors import FAR, Errors, Misordered, Sweep, errors_of, errors_of_each, grouped, sweeps_of
from shardplan.calibrate.predict import Prediction
from shardplan.calibrate.validate import Validation
from shardplan.inputs.readers.causes import Cause, Subject, known_causes
from shardplan.reports.accuracy.causes import cause_of
from shardplan.reports.accuracy.record import Accuracy, Ratio, Sides, described
from shardplan.reports.accuracy.targets import (
    Target,
    is_described,
    is_trusted,
    ratio_of,
    reached,
    share_targets,
    targets,
)

LEAST_OF_A_FAMILY = 2
MOST_NAMED = 5
"""Families or sweeps named as where a floor is missed."""


RATIOS: Final[Mapping[Subject, Ratio]] = {
    "step_time": lambda one: one.log_time_ratio,
    "peak_memory": lambda one: one.log_memory_ratio,
}


def causes(accuracy: Accuracy, subject: Subject = "step_time") -> list[Sides[Errors]]:
    """A row for every cause, and one for the runs without any: of step times, those of tiers A and A-.

    Empty where no run has a known cause.
    """

    def row(known: Cause | None) -> Sides[Errors]:
        def errors(checked: Validation) -> Errors:
            chosen = (one for one in checked.predictions if _belongs(one, known, subject))
            return errors_of_each(chosen, RATIOS[subject])

        return accuracy.each(known, errors)

    found = [each for each in map(row, known_causes(subject)) if each.in_sample.n]
    rest = row(None)
    found.sort(key=lambda each: -each.in_sample.n)
    return [*found, *([rest] if rest.in_sample.n else [])] if found else []


def _belongs(one: Prediction, known: Cause | None, subject: Subject) -> bool:
    is_wanted = known is not None or subject != "step_time" or one.run.tier != "B"
    return is_wanted and cause_of(one.run.id, subject) == known


class OrderCause(NamedTuple):
    """Pairs of configurations in the wrong order."""

    cause: Cause | None
    pairs: int
    described: int
    """Pairs among the sweeps of the runs that are described."""
    largest: Misordered


def causes_of_order(checked: Validation) -> list[OrderCause]:
    """By cause, those of no known cause last.

    Counted among the sweeps of all runs, and (as the target asks) among those of the runs that are described.
    """
    everywhere, chosen = (_by_cause(sweeps) for sweeps in (checked.sweeps, described(checked).sweeps))
    rows = [
        OrderCause(
            cause=known,
            pairs=len(everywhere.get(known, ())),
            described=len(chosen.get(known, ())),
            largest=max((everywhere.get(known) or chosen[known]), key=lambda pair: pair.measured),
        )
        for known in everywhere.keys() | chosen.keys()
    ]
    return sorted(rows, key=lambda row: (row.cause is None, -row.described, -row.pairs, row.cause and row.cause.cause))


def _by_cause(sweeps: Sequence[Sweep]) -> dict[Cause | None, list[Misordered]]:
    found: dict[Cause | None, list[Misordered]] = {}
    for pair in (pair for sweep in sweeps for pair in sweep.misordered):
        found.setdefault(cause_of(pair.slower, "order", pair.faster), []).append(pair)
    return found


def worst(accuracy: Accuracy, ratio: Ratio, *, most: int, least: float = 0.0) -> list[Sides[float]]:
    """Runs of the largest error (left out, where that is known) above ``least``, few of any one family.

    Each is the run as it is predicted, and predicted over measured on both sides.
    """
    known = [(one, without) for one, without in accuracy.pairs if ratio(one) is not None]
    known.sort(key=lambda pair: -abs(ratio(pair[1] or pair[0]) or 0.0))
    of_a_family = max(LEAST_OF_A_FAMILY, most // max(len({one.run.family for one, _ in known}), 1))
    taken: Counter[str] = Counter()
    rows: list[Sides[float]] = []
    for one, without in known:
        if math.expm1(abs(ratio(without or one) or 0.0)) < least:
            break
        taken[one.run.family] += 1
        if taken[one.run.family] <= of_a_family and len(rows) < most:
            sides = [None if each is None else math.exp(ratio(each) or 0.0) for each in (one, without)]
            rows.append(Sides(one, sides[0] or 0.0, sides[1]))
    return rows


class Missed(NamedTuple):
    """A floor that is not met."""

    label: str
    side: str
    quantity: str
    where: list[str]
    """Families or sweeps that miss it."""


def unmet(accuracy: Accuracy) -> list[Missed]:
    """Floors that are not met: of errors on either side, of shares in-sample."""
    sides = accuracy.sides
    rows = [
        Missed(target.label, side, target.quantity, _families(target, checked, side))
        for target in targets()
        for side, checked in sides.items()
        if (found := reached(target, side, checked)).meets_floor is False and found.errors.n
    ]
    missed = [row for row in share_targets(sides) if row.meets_floor is False]
    return rows + [Missed(row.label, "in_sample", row.quantity, _where(accuracy.fresh, row.quantity)) for row in missed]


def _families(target: Target, checked: Validation, side: str) -> list[str]:
    """Families whose own median or 90th percentile is above the floor, those of most runs first."""
    groups = grouped((one for one in checked.predictions if target.chosen(one)), lambda one: one.run.family)
    floor = target.floors[side]
    found = {family: errors_of([ratio_of(one, target.quantity) for one in group]) for family, group in groups.items()}
    above = [
        (family, errors)
        for family, errors in found.items()
        if (errors.median or 0.0) > floor[0] or (errors.p90 or 0.0) > floor[1]
    ]
    above.sort(key=lambda pair: -pair[1].n)
    return [
        f"{family} {100 * (errors.median or 0):.1f} / {100 * (errors.p90 or 0):.1f} ({errors.n})"
        for family, errors in above[:MOST_NAMED]
    ]


def _where(fresh: Validation, quantity: str) -> list[str]:
    """Families with memories that are predicted too small or wrong verdicts, or sweeps that are not in order."""
    if quantity not in MISSES:
        return _sweeps(sweeps_of([one for one in fresh.predictions if is_described(one)]), quantity)
    families = Counter(one.run.family for one in fresh.predictions if MISSES[quantity](one))
    return [f"{family} ({number})" for family, number in families.most_common()]


MISSES: Final[Mapping[str, Callable[[Prediction], bool]]] = {
    "memory": lambda one: is_trusted(one) and ratio_of(one, "memory") < math.log(0.9),
    "fits": lambda one: one.fits != one.run.ran,
    "false_fits": lambda one: one.fits and not one.run.ran and one.free_share > FAR,
}
"""Runs that a share counts."""


def _sweeps(sweeps: Sequence[Sweep], quantity: str) -> list[str]:
    if quantity == "regret":
        slow = sorted((one for one in sweeps if one.regret), key=lambda one: -one.regret)
        return [f"{_name(one)} {100 * one.regret:.1f} %" for one in slow[:MOST_NAMED]]
    wrong = sorted((one for one in sweeps if one.misordered), key=lambda one: -len(one.misordered))
    return [f"{_name(one)} {len(one.misordered)} of {one.num_pairs}" for one in wrong[:MOST_NAMED]]


def _name(sweep: Sweep) -> str:
    model = sweep.model.rsplit("/", 1)[-1].removesuffix(".json")
    return f"{model} on {sweep.num_accelerators:,} {sweep.accelerator}"

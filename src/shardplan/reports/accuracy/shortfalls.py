"""Where predictions fall short: known causes, runs furthest off, those predicted not to fit, floors that are missed.

A known cause tells how many runs it is of, how far off they are, and what a user should state instead.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from shardplan.calibrate.errors import FAR, Misordered, Sweep, errors_of, errors_of_each, grouped, sweeps_of
from shardplan.calibrate.predict import Prediction
from shardplan.calibrate.validate import Validation
from shardplan.estimation.band import band_of
from shardplan.reports.accuracy.causes import Cause, Subject, cause_of, known_causes
from shardplan.reports.accuracy.targets import TARGETS, Target, is_described, is_trusted, ratio_of

LEAST_OF_A_FAMILY = 2
MOST_NAMED = 5
"""Families or sweeps named as where a floor is missed."""


def causes(fresh: Validation, left_out: Validation | None, subject: Subject = "step_time") -> list[dict[str, Any]]:
    """A row for every cause, and one for the runs without any: of step times, those of tiers A and A-.

    Empty where no run has a known cause.
    """
    rows = [_row(one, fresh, left_out, subject) for one in known_causes(subject)]
    found = sorted((row for row in rows if row["in_sample"]["n"]), key=lambda row: -row["in_sample"]["n"])
    rest = _row(None, fresh, left_out, subject)
    return [*found, *([rest] if rest["in_sample"]["n"] else [])] if found else []


def _row(known: Cause | None, fresh: Validation, left_out: Validation | None, subject: Subject) -> dict[str, Any]:
    named = {"cause": known and known.cause, "state": known and known.state}
    return named | {
        "in_sample": _errors(fresh, known, subject),
        "left_out": None if left_out is None else _errors(left_out, known, subject),
    }


RATIOS: dict[Subject, Callable[[Prediction], float | None]] = {
    "step_time": lambda one: one.log_time_ratio,
    "peak_memory": lambda one: one.log_memory_ratio,
}


def _errors(checked: Validation, known: Cause | None, subject: Subject) -> dict[str, Any]:
    return asdict(
        errors_of_each((one for one in checked.predictions if _belongs(one, known, subject)), RATIOS[subject])
    )


def _belongs(one: Prediction, known: Cause | None, subject: Subject) -> bool:
    is_wanted = known is not None or subject != "step_time" or one.run.tier != "B"
    return is_wanted and cause_of(one.run.id, subject) == known


def causes_of_order(checked: Validation) -> list[dict[str, Any]]:
    """Pairs of configurations in the wrong order, by cause, those of no known cause last.

    Counted among the sweeps of all runs, and (as the target asks) among those of the runs that are described.
    """
    described = sweeps_of([one for one in checked.predictions if one.run.tier != "B"])
    everywhere, chosen = (_by_cause(sweeps) for sweeps in (checked.sweeps, described))
    rows = [
        {
            "cause": known and known.cause,
            "state": known and known.state,
            "pairs": len(everywhere.get(known, ())),
            "described": len(chosen.get(known, ())),
            "largest": asdict(max((everywhere.get(known) or chosen[known]), key=lambda pair: pair.measured)),
        }
        for known in everywhere.keys() | chosen.keys()
    ]
    return sorted(rows, key=lambda row: (row["cause"] is None, -row["described"], -row["pairs"], row["cause"]))


def _by_cause(sweeps: Sequence[Sweep]) -> dict[Cause | None, list[Misordered]]:
    found: dict[Cause | None, list[Misordered]] = {}
    for pair in (pair for sweep in sweeps for pair in sweep.misordered):
        found.setdefault(cause_of(pair.slower, "order", pair.faster), []).append(pair)
    return found


def worst(
    fresh: Validation,
    left_out: Validation | None,
    ratio: Callable[[Prediction], float | None],
    *,
    most: int,
    least: float = 0.0,
    subject: Subject = "step_time",
) -> list[dict[str, Any]]:
    """Runs of the largest error (left out, where that is known) above ``least``, few of any one family."""
    unseen = {one.run.id: one for one in left_out.predictions} if left_out else {}
    known = [(one, unseen.get(one.run.id)) for one in fresh.predictions if ratio(one) is not None]
    known.sort(key=lambda pair: -abs(ratio(pair[1] or pair[0]) or 0.0))
    of_a_family = max(LEAST_OF_A_FAMILY, most // max(len({one.run.family for one, _ in known}), 1))
    taken: Counter[str] = Counter()
    rows: list[dict[str, Any]] = []
    for one, without in known:
        if math.expm1(abs(ratio(without or one) or 0.0)) < least:
            break
        taken[one.run.family] += 1
        if taken[one.run.family] <= of_a_family and len(rows) < most:
            rows.append(_worst_row(one, without, ratio, subject))
    return rows


def _worst_row(
    one: Prediction,
    left_out: Prediction | None,
    ratio: Callable[[Prediction], float | None],
    subject: Subject,
) -> dict[str, Any]:
    known = cause_of(one.run.id, subject)
    return {
        "id": one.run.id,
        "family": one.run.family,
        "tier": one.run.tier,
        "meter": one.run.memory_kind or "unstated",
        "in_sample": math.exp(ratio(one) or 0.0),
        "left_out": None if left_out is None else math.exp(ratio(left_out) or 0.0),
        "cause": known and known.cause,
        "notes": one.run.notes,
        "assumed": list(one.asked.assumed),
        "ignored": list(one.asked.ignored),
    }


def not_fitting(fresh: Validation) -> list[dict[str, Any]]:
    """Runs that are predicted not to fit, although they ran, those that lack most first."""
    return [_not_fitting_row(one) for one in fresh.not_fitting]


def _not_fitting_row(one: Prediction) -> dict[str, Any]:
    known = cause_of(one.run.id, "fits")
    low = one.needed_memory_bytes * band_of(one.asked.question, "memory").low
    return {
        "id": one.run.id,
        "tier": one.run.tier,
        "needed_memory_bytes": one.needed_memory_bytes,
        "needed_memory_p10_bytes": low,
        "usable_memory_bytes": one.usable_memory_bytes,
        "is_on_host": one.needed_memory_bytes <= one.usable_memory_bytes,
        "cause": known and known.cause,
        "state": known and known.state,
    }


def unmet(fresh: Validation, left_out: Validation, found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Floors that are not met, each with the families or sweeps that miss it. ``found``: the record of targets."""
    sides = {"in_sample": fresh, "left_out": left_out}
    rows = [
        {"label": target.label, "side": side, "quantity": target.quantity, "where": _families(target, checked, side)}
        for target, row in zip(TARGETS, found["errors"], strict=True)
        for side, checked in sides.items()
        if row[side]["meets_floor"] is False and row[side]["n"]
    ]
    missed = [row for row in found["shares"] if row["meets_floor"] is False]
    return rows + [
        {"label": row["label"], "side": "in_sample", "quantity": row["quantity"], "where": _where(fresh, row)}
        for row in missed
    ]


def _families(target: Target, checked: Validation, side: str) -> list[str]:
    """Families whose own median or 90th percentile is above the floor, those of most runs first."""
    groups = grouped((one for one in checked.predictions if target.chosen(one)), lambda one: one.run.family)
    ratios = {
        family: [ratio for one in group if not math.isnan(ratio := ratio_of(one, target.quantity))]
        for family, group in groups.items()
    }
    floor = target.floors[side]
    found = {family: errors_of(some) for family, some in ratios.items() if some}
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


def _where(fresh: Validation, row: Mapping[str, Any]) -> list[str]:
    """Families with memories that are predicted too small or wrong verdicts, or sweeps that are not in order."""
    if row["quantity"] not in MISSES:
        return _sweeps(sweeps_of([one for one in fresh.predictions if is_described(one)]), row["quantity"])
    families = Counter(one.run.family for one in fresh.predictions if MISSES[row["quantity"]](one))
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

"""How right predictions are: the record from which the accuracy page and the report of ``validate`` are made.

*In-sample*: constants fitted to all published runs. *Left out*: constants that never saw the run's team, the figure
that counts for a run of one's own. Everything is plain values; shares, seconds and bytes. How often bands hold is part
of it: for all runs, for teams large and small, for generations never measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from shardplan.base.fields import dataclass
from shardplan.base.records import plain
from shardplan.calibrate.coverage import (
    Coverage,
    Covered,
    Spread,
    attainable,
    coverage_by,
    coverage_of,
    covered_runs,
    spread_of,
)
from shardplan.calibrate.errors import CLOSE, GROUPINGS, Errors, Verdicts, errors_by, errors_of_each, sweeps_of
from shardplan.calibrate.errors import errors_of as errors_of_ratios
from shardplan.calibrate.predict import Prediction
from shardplan.calibrate.validate import Validation
from shardplan.estimation.band import errors_of
from shardplan.estimation.ties import difference_sd
from shardplan.inputs.readers.residuals import CONTRADICTORY_MEMORY, Residual, read_residuals
from shardplan.reports.accuracy.causes import cause_of
from shardplan.reports.accuracy.shortfalls import causes, causes_of_order, not_fitting, unmet, worst
from shardplan.reports.accuracy.targets import TARGETS, claims, ratio_of, targets

COMPOSED: Final = ("vtrain-single",)
"""Families whose step times were put together from times of layers rather than measured as steps."""
ACCEPTABLE: Final = (0.70, 0.90)
"""Share of a large team's runs that should lie in their band."""
ASKED: Final = (0.75, 0.85)
"""Share that would be best."""
BEARABLE: Final = (0.60, 0.95)
"""Share that nine of ten large teams should have at least."""
LARGE_TEAM: Final = 15
"""Runs from which a team is held against that."""
SMALL_TEAM: Final = 8
"""Runs below which the teams are listed together."""


def coverage_record(residuals: Sequence[Residual]) -> dict[str, Any]:
    """Coverage of step times and of peak memories, and of step times on a generation that no run covers."""
    result: dict[str, Any] = {quantity: _of_quantity(residuals, quantity) for quantity in ("time", "memory")}
    new = [run for run in covered_runs(residuals, unmeasured=True) if run.family not in COMPOSED]
    generations = coverage_by(new, "generation", smallest=SMALL_TEAM)
    return result | {
        "generation": plain(generations),
        "attainable": _attainable(residuals, result["time"]["team"]),
        "first_sight": _first_sight(residuals),
    }


def _first_sight(residuals: Sequence[Residual]) -> list[dict[str, Any]]:
    """Runs whose error at first sight is on record: by family, those that are described well, and all of them."""
    first = [run for run in residuals if run.first_time is not None and run.time is not None]
    ratios = {run.id: run.error("time") for run in residuals if run.has("time")}
    inside = {run.id: run.is_inside for run in covered_runs(residuals, ratios=ratios)}
    groups = {
        "tiers A and A-": [run for run in first if run.tier != "B"],
        "all tiers": first,
        **{name: [run for run in first if run.family == name] for name in sorted({run.family for run in first})},
    }
    return [_at_first_sight(label, runs, inside) for label, runs in groups.items() if runs]


def _at_first_sight(label: str, runs: Sequence[Residual], inside: Mapping[str, bool]) -> dict[str, Any]:
    first, now = ([getattr(run, name) for run in runs] for name in ("first_time", "time"))
    return {
        "label": label,
        "n": len(runs),
        "first": asdict(errors_of_ratios(first)),
        "now": asdict(errors_of_ratios(now)),
        "inside": float(np.mean([inside[run.id] for run in runs])),
    }


def _attainable(residuals: Sequence[Residual], teams: Mapping[str, Any]) -> dict[str, Any]:
    """How many large teams lie between shares, and how many would with bands that are perfectly calibrated."""
    known = errors_of(residuals, "time")
    reached = np.asarray([[one["inside"] for one in teams.values() if one["n"] >= LARGE_TEAM]])
    if not reached.size:
        return {}
    spread, sizes = spread_of(known, LARGE_TEAM)
    alone = Spread(between=0.0, within=1.0, of_within=0.0)
    drawn = {
        "unknown": attainable(spread, sizes),
        "spread_known": attainable(spread, sizes, is_spread_known=True),
        "independent": attainable(alone, sizes),
    }
    return {
        "num_teams": len(sizes),
        "spread": plain(spread),
        "within": [
            {"shares": shares, "reached": int(_within(reached, shares)[0])}
            | {name: _counted(_within(inside, shares)) for name, inside in drawn.items()}
            for shares in (ASKED, ACCEPTABLE, BEARABLE)
        ],
    }


def _within(inside: NDArray[np.float64], shares: tuple[float, float]) -> NDArray[np.int_]:
    """Families of every set whose share lies between ``shares``."""
    return np.asarray(((inside >= shares[0]) & (inside <= shares[1])).sum(axis=1))


def _counted(counts: NDArray[np.int_]) -> dict[str, float]:
    low, high = np.quantile(counts, (0.1, 0.9))
    return {"mean": float(counts.mean()), "p10": float(low), "p90": float(high)}


def _of_quantity(residuals: Sequence[Residual], quantity: str) -> dict[str, Any]:
    runs = covered_runs(residuals, quantity)
    teams = coverage_by(runs, "team", smallest=1)
    small = {name for name, one in teams.items() if one.n < SMALL_TEAM}
    return {
        "all": _judged(coverage_of(runs)),
        "end_to_end": _judged(coverage_of(run for run in runs if run.family not in COMPOSED)),
        "team": {name: _judged(one) for name, one in teams.items() if name not in small},
        "small": plain(coverage_of(run for run in runs if run.team in small)),
        "small_teams": [_small(name, runs) for name in sorted(small)],
    }


def _judged(coverage: Coverage | None) -> dict[str, Any] | None:
    """Its shares, and whether they are acceptable; None for that of few runs."""
    if coverage is None:
        return None
    low, high = ACCEPTABLE
    is_acceptable = low <= coverage.inside <= high if coverage.n >= LARGE_TEAM else None
    return {**plain(coverage), "is_acceptable": is_acceptable}


def _small(team: str, runs: Sequence[Covered]) -> dict[str, Any]:
    inside = [run.is_inside for run in runs if run.team == team]
    return {"team": team, "n": len(inside), "inside": sum(inside)}


SCALES = (1, 8, 64, 512, 4096)
"""Lower ends of the classes of world size."""
NUM_WORST = 25
NUM_WORST_MEMORY = 18
LEAST_WORST_MEMORY = 0.05
"""Error of a memory from which it is among the worst."""


def left_out_validation(
    fresh: Validation, residuals: Sequence[Residual], needs: Mapping[str, float] | None = None
) -> Validation:
    """The same runs as predicted by constants that never saw their team.

    Runs without a residual are not in it, but for those that ran out of memory. ``needs``: ln(needed / usable memory)
    by run; of runs that are not in it what the constants that saw all say.
    """
    known, needs = {residual.id: residual for residual in residuals}, needs or {}
    moved = tuple(
        _with_need(_moved(one, known.get(one.run.id)), needs.get(one.run.id))
        for one in fresh.predictions
        if one.run.id in known or not one.run.ran
    )
    return Validation(predictions=moved, skipped=(), sweeps=sweeps_of(moved))


def _moved(one: Prediction, residual: Residual | None) -> Prediction:
    time, memory = one.run.step_time, one.run.peak_memory_bytes
    if residual is None:
        return one
    return replace(
        one,
        step_time=one.step_time if time is None or residual.time is None else time * math.exp(residual.time),
        peak_memory_bytes=(
            one.peak_memory_bytes if memory is None or residual.memory is None else memory * math.exp(residual.memory)
        ),
    )


def _with_need(one: Prediction, log_need: float | None) -> Prediction:
    """The verdict at another need; that of the host's memory stays."""
    if log_need is None:
        return one
    needed = one.usable_memory_bytes * math.exp(log_need)
    is_on_host = not one.fits and one.needed_memory_bytes <= one.usable_memory_bytes
    return replace(one, needed_memory_bytes=needed, fits=needed <= one.usable_memory_bytes and not is_on_host)


def accuracy_record(
    fresh: Validation,
    residuals: Sequence[Residual] = (),
    profile: str | None = None,
    needs: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """The record of a validation. ``residuals``: left-out errors; what needs them is None where there are none.

    ``needs``: left-out needs of memory, by run. ``profile``: what the constants are called where they are not those
    that are shipped.
    """
    left_out = left_out_validation(fresh, residuals, needs) if residuals else None
    return {
        "profile": profile,
        "counts": fresh.to_record()["counts"],
        "targets": _targets(fresh, left_out) if left_out else None,
        "step_time": {group: _table(fresh, left_out, name_of, _time) for group, name_of in GROUPINGS.items()},
        "scale": _table(fresh, left_out, _scale, _time),
        "peak_memory": {
            group: _table(fresh, left_out, GROUPINGS[group], _memory) for group in ("family", "accelerator", "tier")
        },
        "meter": _table(fresh, left_out, lambda one: one.run.memory_kind or "unstated", _memory),
        "ranking": _ranking(fresh, left_out),
        "coverage": coverage_record(residuals) if residuals else {"in_sample": fresh.coverage()},
        "difference_sd": difference_sd(residuals) if residuals else None,
        "causes": causes(fresh, left_out),
        "memory_causes": causes(fresh, left_out, "peak_memory"),
        "order_causes": causes_of_order(left_out or fresh),
        "worst": worst(fresh, left_out, _time, most=NUM_WORST),
        "worst_memory": worst(
            fresh, left_out, _memory, most=NUM_WORST_MEMORY, least=LEAST_WORST_MEMORY, subject="peak_memory"
        ),
        "skipped": [{"id": one.run.id, "family": one.run.family, "reason": one.reason} for one in fresh.skipped],
        "fits": fits_record(fresh, left_out),
        "false_fits": false_fits(fresh),
        "not_fitting": not_fitting(fresh),
        "claims": claims(fresh, left_out) if left_out else None,
        "points": _points(fresh, left_out),
    }


def _targets(fresh: Validation, left_out: Validation) -> dict[str, Any]:
    found = targets(fresh, left_out)
    return found | {"unmet": unmet(fresh, left_out, found)}


def _time(one: Prediction) -> float | None:
    return one.log_time_ratio


def _memory(one: Prediction) -> float | None:
    return None if one.run.family in CONTRADICTORY_MEMORY else one.log_memory_ratio


def _scale(one: Prediction) -> str:
    index = int(np.searchsorted(SCALES, one.run.num_accelerators, side="right"))
    return f"{SCALES[index - 1]:,} to {SCALES[index] - 1:,}" if index < len(SCALES) else f"{SCALES[-1]:,} and more"


def _table(
    fresh: Validation,
    left_out: Validation | None,
    name_of: Callable[[Prediction], str],
    ratio: Callable[[Prediction], float | None],
) -> list[dict[str, Any]]:
    """A row for every name with a measurement, in-sample and left out, largest first (scales: smallest first)."""
    seen = errors_by(fresh.predictions, name_of, ratio)
    unseen = errors_by(left_out.predictions, name_of, ratio) if left_out else {}
    rows = [_sides(name, errors, unseen.get(name)) for name, errors in seen.items() if errors.n]
    if name_of is _scale:
        return sorted(rows, key=lambda row: int(row["name"].split(" ")[0].replace(",", "")))
    return sorted(rows, key=lambda row: (-row["in_sample"]["n"], row["name"]))


def _sides(name: str, in_sample: Errors | Verdicts, left_out: Errors | Verdicts | None) -> dict[str, Any]:
    """A row of what is reached in-sample and left out."""
    return {"name": name, "in_sample": asdict(in_sample), "left_out": None if left_out is None else asdict(left_out)}


def fits_record(fresh: Validation, left_out: Validation | None) -> list[dict[str, Any]]:
    """A row for every family with a run that ran out of memory or a wrong verdict, most runs first, and one for all."""
    unseen = left_out.fits_by("family") if left_out else {}
    found = {name: one for name, one in fresh.fits_by("family").items() if one.out_of_memory or one.right != 1}
    rows = [_sides(name, one, unseen.get(name)) for name, one in found.items()]
    everything = _sides("all", fresh.fits, left_out.fits if left_out else None)
    return [*sorted(rows, key=lambda row: -row["in_sample"]["n"]), everything]


def false_fits(fresh: Validation) -> list[dict[str, Any]]:
    """Runs that ran out of memory, predicted to leave more than 3 % of it free, those first that leave most."""
    return [
        {
            "id": one.run.id,
            "tier": one.run.tier,
            "needed_memory_bytes": one.needed_memory_bytes,
            "usable_memory_bytes": one.usable_memory_bytes,
            "cause": known.cause if (known := cause_of(one.run.id, "false_fits")) else None,
        }
        for one in fresh.false_fits
        if one.free_share > CLOSE
    ]


def _ranking(fresh: Validation, left_out: Validation | None) -> dict[str, Any]:
    sides = {"in_sample": fresh} | ({"left_out": left_out} if left_out else {})
    return {
        "summary": {name: _by_tier(checked) for name, checked in sides.items()},
        "sweeps": {name: [asdict(sweep) for sweep in checked.sweeps] for name, checked in sides.items()},
    }


def _by_tier(checked: Validation) -> dict[str, Any]:
    """Order within sweeps: all, and those of runs that are described in full."""
    described = sweeps_of([one for one in checked.predictions if one.run.tier != "B"])
    return {"all": checked.ranking(), "described": replace(checked, sweeps=described).ranking()}


def _points(fresh: Validation, left_out: Validation | None) -> list[dict[str, Any]]:
    """What the figures draw."""
    unseen = {one.run.id: one for one in left_out.predictions} if left_out else {}
    return [_point(one, unseen.get(one.run.id)) for one in fresh.predictions]


def _point(one: Prediction, left_out: Prediction | None) -> dict[str, Any]:
    return {
        "id": one.run.id,
        "family": one.run.family,
        "kind": GROUPINGS["kind"](one),
        "num_accelerators": one.run.num_accelerators,
        "measured_step_time_s": one.run.step_time,
        "predicted_step_time_s": one.step_time,
        "left_out_step_time_s": None if left_out is None else left_out.step_time,
        "measured_peak_memory_bytes": one.run.peak_memory_bytes,
        "predicted_peak_memory_bytes": one.peak_memory_bytes,
        "left_out_peak_memory_bytes": None if left_out is None else left_out.peak_memory_bytes,
    }


@dataclass(frozen=True, kw_only=True)
class StatedAccuracy:
    """Errors on published runs by constants that never saw their team."""

    step_time: Errors
    """Of runs of tiers A and A-, of the families that constants are fitted to."""
    peak_memory: Errors
    """Of runs of all tiers of these families, without memory that contradicts itself."""

    @property
    def text(self) -> str:
        """The figures and the runs behind them."""
        time, memory = self.step_time, self.peak_memory
        return (
            f"a median error of {_percent(time.median, 1)} in step time (nine in ten within {_percent(time.p90, 0)}; "
            f"{time.n:,} runs of tiers A and A-) and of {_percent(memory.median, 1)} in peak memory "
            f"(nine in ten within {_percent(memory.p90, 0)}; {memory.n:,} runs of all tiers)"
        )

    def to_record(self) -> dict[str, Any]:
        """As plain values."""
        return {"step_time": asdict(self.step_time), "peak_memory": asdict(self.peak_memory)}


def stated_accuracy(published: Validation) -> StatedAccuracy:
    """Of the published runs under the shipped constants."""
    left_out = left_out_validation(published, read_residuals())
    by_label = {target.label: target for target in TARGETS}
    time, memory = (
        errors_of_each(filter(target.chosen, left_out.predictions), partial(ratio_of, quantity=target.quantity))
        for target in (by_label["step time, all"], by_label["peak memory, all tiers"])
    )
    return StatedAccuracy(step_time=time, peak_memory=memory)


def _percent(share: float | None, decimals: int) -> str:
    return "-" if share is None else f"{100 * share:.{decimals}f} %"

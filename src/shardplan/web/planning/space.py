"""A picture of the space: step time and memory of a sample of its plans, and of the best."""

from __future__ import annotations

from typing import Any, Final

from shardplan.estimation.estimate import Estimate
from shardplan.fields import dataclass
from shardplan.inputs.plan import Plan
from shardplan.reports.texts.plan import short_recompute
from shardplan.web.planning.answered import PageAnswer
from shardplan.web.state import plan_code

POINTS: Final = 2000
"""Plans that are drawn: a page stays smooth with them, however many millions the space has."""
DIMENSIONS: Final = ("tp", "pp", "cp", "ep", "vp", "micro_batch_size", "sharding", "recompute")
"""What the points can be coloured by."""
IN_TABLE: Final = 24


@dataclass(frozen=True, kw_only=True)
class Point:
    """A plan of the picture."""

    plan: Plan
    step_time: float
    peak_memory_bytes: float
    fits: bool


def points_of(found: PageAnswer) -> list[Point]:
    """A sample of all plans, and the listed ones."""
    sample = found.result.sample(POINTS)
    drawn = [] if sample is None else [
        Point(
            plan=sample.plan(index),
            step_time=float(sample.step_time[index]),
            peak_memory_bytes=float(sample.peak_memory_bytes[index]),
            fits=bool(sample.fits[index]),
        )
        for index in range(len(sample))
    ]  # fmt: skip
    listed = [_point(each) for each in found.result.estimates]
    return [*{each.plan: each for each in (*drawn, *listed)}.values()]


def _point(estimate: Estimate) -> Point:
    return Point(
        plan=estimate.plan,
        step_time=estimate.step_time,
        peak_memory_bytes=estimate.peak_memory_bytes,
        fits=estimate.feasible,
    )


def space_record(found: PageAnswer, points: list[Point]) -> dict[str, Any]:
    """Columns for the browser, which draws them."""
    varied = [name for name in DIMENSIONS if len({_value(each.plan, name) for each in points}) > 1]
    best = found.best
    return {
        "time": [round(each.step_time, 4) for each in points],
        "memory": [round(each.peak_memory_bytes / 1e9, 3) for each in points],
        "fits": [int(each.fits) for each in points],
        "codes": [plan_code(each.plan) for each in points],
        "dimensions": {name: [_value(each.plan, name) for each in points] for name in varied},
        "usable": None if best is None else best.usable_memory_bytes / 1e9,
        "best": None if best is None else [best.step_time, best.peak_memory_bytes / 1e9, plan_code(best.plan)],
    }


def _value(plan: Plan, name: str) -> int | str:
    value: int | str = short_recompute(plan).partition("/")[0] if name == "recompute" else getattr(plan, name)
    return value

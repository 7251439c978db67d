"""How far predictions of RL steps are from measured ones: errors by part and group, order, bands, nearest rows.

The band of a step comes from errors of published steps by constants that never saw their family. A family
weighs the more, the more its rows are like the plan; where no row has its kind of accelerator, its placement, its
framework or its kind of training, the band is wider. All published steps that are described in full are of one
framework and of one team: what the two share of the error no left-out family shows.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from operator import eq
from typing import Final, NamedTuple

import numpy as np

from shardplan.ask.names import cluster_of, model_of
from shardplan.base.fields import dataclass
from shardplan.base.words import joined
from shardplan.calibrate.errors import CLEAR_DIFFERENCE, Errors, Inside, errors_of, grouped, inside_of
from shardplan.estimation.question import Question
from shardplan.rl.measured import PARTS, SHIPPED_STEPS, MeasuredRlStep, Priced, Unpriced, price_all, shipped_steps
from shardplan.rl.search import RlPlan

LEFT_OUT: Final = SHIPPED_STEPS.with_name("rl_left_out.csv")
GROUPS: Final[Mapping[str, Callable[[Priced], str]]] = {
    "family": lambda priced: priced.step.family,
    "tier": lambda priced: priced.step.tier,
    "accelerator": lambda priced: priced.task.question.cluster.accelerator.name,
    "framework": lambda priced: priced.step.software,
    "precision": lambda priced: priced.task.question.job.precision,
    "kind": lambda priced: "moe" if priced.task.question.model.is_moe else "dense",
}
"""What errors can be distinguished by."""
OUTER: Final = 0.1
"""Share of errors on either side of a band."""
UNSEEN: Final = 0.25
"""Error of two rows, one on each side, that count in every band as half a family: families are few. Bands of the other
families hold 85 % of the published steps with 0.25 and 0.3, and 92 % with 0.4."""
WIDER: Final = 1.3
"""A band is that much wider for each respect in which no measured row is like the plan. Judgement, as for kinds of
model that were not measured (``estimation.gaps``)."""
NUM_NEAREST: Final = 3


class SeenSteps(NamedTuple):
    """A published step with the error by constants that never saw its family."""

    step: MeasuredRlStep
    error: float
    """ln(predicted / measured)."""
    generation: str
    """Of its accelerators."""
    is_moe: bool

    @property
    def text(self) -> str:
        """Model, accelerators, placement, and how far off it is."""
        step, off = self.step, math.expm1(self.error)
        one_pool = step.placement in ("colocated", "partial")
        counts = f"{step.num_train}" if one_pool else f"{step.num_train} + {step.num_rollout}"
        return (
            f"{step.id}: {step.model} on {counts} ({step.cluster}), {step.placement}: {step.step_time_s:g} s; "
            f"predicted {100 * abs(off):.0f} % too {'long' if off > 0 else 'short'}"
        )


class Asked(NamedTuple):
    """What a step has in common with measured ones, or not."""

    placement: str
    generation: str
    """Of its accelerators."""
    is_moe: bool
    software: str
    """The framework; empty where none is named, which may be any."""
    trains_all: bool = True

    @classmethod
    def of(cls, question: Question, placement: str, software: str) -> Asked:
        """Of a trainer's question."""
        generation = question.cluster.accelerator.generation
        return cls(placement, generation, question.model.is_moe, software, question.job.trains_all)

    def lacking(self, rows: Sequence[SeenSteps]) -> list[str]:
        """What none of the rows has; all of them train all weights."""
        known = (
            (f"{self.generation} accelerators", any(row.generation == self.generation for row in rows)),
            (f"placement {self.placement}", any(row.step.placement == self.placement for row in rows)),
            (self.software or "another framework", any(row.step.software == self.software for row in rows)),
            ("frozen weights", self.trains_all),
        )
        return [text for text, is_known in known if not is_known]


class RlBand(NamedTuple):
    """Where a step time is in eight of ten cases."""

    low: float
    """Factor of the predicted time."""
    high: float
    text: str
    """Of what it was made."""


@cache
def left_out_errors() -> Mapping[str, float]:
    """ln(predicted / measured) by row, of ``shardplan.rl.fit``."""
    with LEFT_OUT.open(newline="") as file:
        return {row["id"]: float(row["log_error"]) for row in csv.DictReader(file)}


@cache
def seen_steps() -> tuple[SeenSteps, ...]:
    """The published steps that are described in full."""
    errors = left_out_errors()
    return tuple(
        SeenSteps(step, errors[step.id], _generation(step.cluster), _is_moe(step.model))
        for step in shipped_steps()
        if step.id in errors
    )


@cache
def _generation(cluster: str) -> str:
    return cluster_of(cluster).accelerator.generation


@cache
def _is_moe(model: str) -> bool:
    return model_of(model).is_moe


def band_of(plan: RlPlan) -> RlBand:
    """The band of a plan's step with its framework."""
    software = plan.trained.packing.framework.name
    return _band(seen_steps(), Asked.of(plan.trained.priced.question, plan.placement, software))


def _band(rows: Sequence[SeenSteps], asked: Asked) -> RlBand:
    families = grouped(rows, lambda row: row.step.family)
    errors, weights = [-UNSEEN, UNSEEN], [0.25, 0.25]
    for family in families.values():
        for row in family:
            same = (row.generation, row.step.placement, row.is_moe)
            alike = sum(map(eq, same, (asked.generation, asked.placement, asked.is_moe)))
            errors.append(row.error)
            weights.append(2.0**alike / 4 / len(family))
    order = np.argsort(errors)
    values, shares = np.asarray(errors)[order], np.asarray(weights)[order]
    middles = (np.cumsum(shares) - shares / 2) / shares.sum()
    low, high = np.interp([OUTER, 1 - OUTER], middles, values)
    missing = asked.lacking(rows)
    wider = WIDER ** len(missing)
    used = joined(sorted({row.step.software for row in rows}))
    text = f"errors of {len(rows)} measured steps of {len(families)} families ({used}), each left out of the fit"
    if missing:
        text += f"; wider, as none has {joined(missing)}"
    return RlBand(math.exp(-wider * high), math.exp(-wider * low), text)


def nearest(plan: RlPlan) -> tuple[SeenSteps, ...]:
    """The published steps that are most like a plan."""
    question = plan.trained.priced.question

    def distance(row: SeenSteps) -> float:
        total = (row.step.num_train or 1) + (row.step.num_rollout or 1)
        counts = abs(math.log2(total / (plan.num_train + plan.num_rollout)))
        alike = (
            3.0 * (row.step.model == question.model.name)
            + 2.0 * (row.generation == question.cluster.accelerator.generation)
            + 2.0 * (row.step.placement == plan.placement)
            + 1.0 * (row.is_moe == question.model.is_moe)
        )
        return counts / 2 - alike

    return tuple(sorted(seen_steps(), key=distance)[:NUM_NEAREST])


class Ordered(NamedTuple):
    """Pairs of steps of one family that differ by more than 5 %."""

    pairs: int
    right: int

    @property
    def share(self) -> float | None:
        """Of pairs in order."""
        return self.right / self.pairs if self.pairs else None


def in_order(rows: Iterable[tuple[str, float, float]]) -> Ordered:
    """Of rows as family, measured time and log error."""
    pairs = right = 0
    for family in grouped(rows, lambda row: row[0]).values():
        for at, (_, slow, error) in enumerate(family):
            for _, fast, other in family[:at]:
                apart = math.log(slow / fast)
                if abs(apart) > math.log1p(CLEAR_DIFFERENCE):
                    pairs, right = pairs + 1, right + ((apart + error - other) * apart > 0)
    return Ordered(pairs, right)


@dataclass(frozen=True, kw_only=True)
class RlValidation:
    """Measured steps and their predictions."""

    priced: tuple[Priced, ...]
    unpriced: tuple[Unpriced, ...]

    @property
    def full(self) -> tuple[Priced, ...]:
        """Rows that are described in full, tiers A and A-, or of no tier."""
        return tuple(each for each in self.priced if each.step.tier != "B")

    def step_by(self, group: str) -> dict[str, Errors]:
        """Errors of the step by a group."""
        groups = grouped(self.priced, GROUPS[group])
        return {name: errors_of([each.error for each in groups[name]]) for name in sorted(groups)}

    def parts(self) -> dict[str, Errors]:
        """Errors of the whole step, of tiers A and A-, and of each part over all rows that state it."""
        found = {"whole step": errors_of([each.error for each in self.full])}
        for part in PARTS:
            errors = [each.error_of(part) for each in self.priced]
            found[part] = errors_of([error for error in errors if error is not None])
        return found

    @property
    def order(self) -> Ordered:
        """Pairs of one family."""
        return in_order((each.step.family, each.step.step_time_s, each.error) for each in self.full)

    @property
    def coverage(self) -> Inside | None:
        """Of bands, those of published steps made without their family."""
        return inside_of([_is_inside(each) for each in self.full])

    def inside_by(self, group: str) -> dict[str, Inside | None]:
        """The same by a group."""
        groups = grouped(self.full, GROUPS[group])
        return {name: inside_of([_is_inside(each) for each in groups[name]]) for name in sorted(groups)}


def _is_inside(priced: Priced) -> bool:
    step, plan, published = priced.step, priced.plan, left_out_errors()
    rows = [row for row in seen_steps() if step.id not in published or row.step.family != step.family]
    band = _band(rows, Asked.of(priced.task.question, step.placement, step.software))
    predicted = step.step_time_s * math.exp(published[step.id]) if step.id in published else plan.step_time
    return predicted * band.low <= step.step_time_s <= predicted * band.high


class LeftOut(NamedTuple):
    """Errors of published steps, each by constants that never saw its family."""

    by_family: dict[str, Errors]
    all: Errors
    order: Ordered


def left_out() -> LeftOut:
    """What the shipped file of left-out errors says."""
    groups = grouped(seen_steps(), lambda row: row.step.family)
    return LeftOut(
        {name: errors_of([row.error for row in rows]) for name, rows in groups.items()},
        errors_of([row.error for row in seen_steps()]),
        in_order((row.step.family, row.step.step_time_s, row.error) for row in seen_steps()),
    )


def validate_rl(steps: Iterable[MeasuredRlStep]) -> RlValidation:
    """Predictions of measured steps."""
    priced, unpriced = price_all(steps)
    return RlValidation(priced=tuple(priced), unpriced=tuple(unpriced))

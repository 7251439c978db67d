"""A sample of the plans of a space, those that do not fit among them: time and memory of each, for a picture of it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from shardplan.estimation.question import Question
from shardplan.fields import dataclass
from shardplan.inputs.plan import Plan
from shardplan.planner.evaluation import Table
from shardplan.planner.listed import Listed, outcomes
from shardplan.planner.pricing.tables import Tables

TRIES = 6
"""Positions that are drawn for each plan that is wanted: many are not valid together."""


@dataclass(frozen=True, kw_only=True)
class PlanSample:
    """Valid plans drawn at random, each as likely as another of its family's points, and numbers of each."""

    parts: tuple[tuple[Tables, Listed], ...]
    step_time: NDArray[np.float64]
    """[s]"""
    peak_memory_bytes: NDArray[np.float64]
    fits: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.step_time)

    @cached_property
    def ends(self) -> NDArray[np.intp]:
        """Where every family's plans end."""
        return np.cumsum([len(plans) for _, plans in self.parts])

    def plan(self, index: int) -> Plan:
        """The plan at ``index``."""
        number = int(np.searchsorted(self.ends, index, side="right"))
        tables, plans = self.parts[number]
        return plans.plan(tables, index - (int(self.ends[number - 1]) if number else 0))


def sample_of(question: Question, tables: Sequence[Table], most: int, seed: int = 0) -> PlanSample:
    """About ``most`` plans of ``tables``, the same ones for the same seed."""
    random = np.random.default_rng(seed)
    sizes = [table.family.num_plans() for table in tables]
    shares = [most * size / max(sum(sizes), 1) for size in sizes]
    drawn = [(table.tables, _drawn(table, share, random)) for table, share in zip(tables, shares, strict=True)]
    parts = [(held, plans) for held, plans in drawn if len(plans)]
    found = [outcomes(question, held, plans) for held, plans in parts]
    return PlanSample(
        parts=tuple(parts),
        step_time=_joined([np.broadcast_to(each.step_time, each.fits.shape) for each in found]),
        peak_memory_bytes=_joined([np.broadcast_to(each.peak_memory_bytes, each.fits.shape) for each in found]),
        fits=_joined([each.fits.astype(float) for each in found]).astype(bool),
    )


def _joined(columns: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    return np.concatenate(columns) if columns else np.empty(0)


def _drawn(table: Table, most: float, random: np.random.Generator) -> Listed:
    """About ``most`` valid plans of a table, none twice."""
    family, number = table.family, int(np.ceil(most))
    counts, first = family.num_chunks(), family.first_layouts()
    tries = TRIES * number
    points = random.integers(family.num_points, size=tries)
    shardings = random.integers(len(family.shardings), size=tries)
    slots = random.integers(len(family.policies), size=tries)
    chunks = (random.random(tries) * counts[points]).astype(np.intp)
    layouts = first[points] + chunks
    valid = family.shards[shardings, points] & family.recomputes[slots, points] & (counts[points] > 0)
    if family.together is not None:
        valid &= family.together[slots, np.where(valid, layouts, 0)]
    rows = np.stack([shardings, slots, layouts, points])[:, valid]
    different = rows[:, np.sort(np.unique(rows, axis=1, return_index=True)[1])][:, :number]
    return Listed(shardings=different[0], slots=different[1], layouts=different[2], points=different[3])

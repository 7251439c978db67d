"""The closed form of a schedule for the same times as the simulation, to set the two next to each other."""

from __future__ import annotations

from typing import Final

import numpy as np

from shardplan.schedules.base import ChunkTimes, Passes, Pipeline, RankPasses, Schedule
from shardplan.schedules.registry import closed_form

LARGEST_LOOP: Final = 1_000_000
"""Ranks x chunks of all ranks up to which the longest way through uneven chunks is sought: 50 MB."""
NAMES: Final = ("forward", "input_gradient", "weight_gradient")


def closed_form_step_time(schedule: Schedule, at: Pipeline, times: ChunkTimes) -> float | None:
    r""":math:`\max_r \left(M t_r + idle_r\right)`, transfers left out; None where there is no closed form. [s]

    Schedules that only the simulation runs have none, nor have loops of very many ranks and chunks. With the time t of
    one micro-batch on a rank and the rank's idle time by ``PipelineSchedule.idle_time``.
    """
    formula = closed_form(schedule)
    if formula is None or (at.vp > 1 and at.pp * at.pp * at.vp > LARGEST_LOOP):
        return None
    copies = schedule.parameter_copies
    held = np.array(schedule.placement(int(at.pp), int(at.vp)))[: int(at.pp) // copies]  # copies mirror these ranks

    def of_ranks(seconds: np.ndarray[tuple[int], np.dtype[np.float64]]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return np.asarray(seconds[held].sum(axis=1) / copies)

    parts = [of_ranks(seconds) for seconds in (times.forward, times.input_gradient, times.weight_gradient)]
    own, everyone, behind = (
        Passes(**dict(zip(NAMES, values, strict=True)))
        for values in (parts, [copies * part.sum() for part in parts], [part.sum() - part.cumsum() for part in parts])
    )
    placed = RankPasses.of(own, np.arange(len(held))[::-1], behind)
    work = (times.forward + times.input_gradient + times.weight_gradient)[held].T
    idle = formula.idle_time(at, placed, everyone, formula.pace(work))
    return float(np.max(at.num_microbatches * own.total + idle))

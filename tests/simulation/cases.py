"""Steps that tests simulate."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardplan.physics.schedules.base import ChunkTimes, Passes, Pipeline, Schedule
from shardplan.physics.schedules.registry import load_any_schedule
from shardplan.simulation.step import Disturbance, SimulatedStep, simulate


def pipeline(pp: int, num_microbatches: int, vp: int = 1, group_size: int | None = None) -> Pipeline:
    return Pipeline(pp=pp, vp=vp, num_microbatches=num_microbatches, group_size=group_size or pp)


def even(own: Passes, at: Pipeline, transfer: float = 0.0, limit: int | None = None) -> ChunkTimes:
    """Equal stages: every chunk takes 1/v of ``own``."""
    one, vp = np.ones(int(at.pp * at.vp)), at.vp
    return ChunkTimes(
        forward=one * own.forward / vp,
        input_gradient=one * own.input_gradient / vp,
        weight_gradient=one * own.weight_gradient / vp,
        transfer=one * transfer,
        max_in_flight=limit,
    )


def passes(forward: float = 1.0, input_gradient: float = 1.0, weight_gradient: float = 1.0) -> Passes:
    return Passes(forward=forward, input_gradient=input_gradient, weight_gradient=weight_gradient)


def step(name: str | Schedule, at: Pipeline, times: ChunkTimes, **disturbance: Any) -> SimulatedStep:
    schedule = load_any_schedule(name) if isinstance(name, str) else name
    return simulate(schedule, at, times, Disturbance(**disturbance))

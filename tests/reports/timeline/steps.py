"""Steps that tests of pictures draw."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree as ET

import numpy as np

from shardplan.estimation.parts.layer_operators import LayerOperator
from shardplan.physics.schedules.base import ChunkTimes, Pipeline
from shardplan.physics.schedules.registry import load_any_schedule
from shardplan.simulation.plan import timeline_of_times
from shardplan.simulation.step import simulate
from shardplan.simulation.timeline import AlivePart, MemoryTrace, StepTimeline

HOSTILE = '</script><b onclick="x">&'


def step_of(
    name: str = "1f1b", *, pp: int = 4, vp: int = 1, num_microbatches: int = 8, transfer: float = 0.0
) -> StepTimeline:
    """Chunks of 1 s forward and 2 s backward, which runs half of it again."""
    chunk = np.ones(pp * vp)
    schedule = load_any_schedule(name)
    times = ChunkTimes(
        forward=chunk,
        input_gradient=chunk,
        weight_gradient=chunk,
        transfer=transfer * chunk,
        recomputed=0.5 * chunk,
    )
    at = Pipeline(pp=pp, vp=vp, num_microbatches=num_microbatches, group_size=pp)
    return timeline_of_times(schedule, simulate(schedule, at, times), times)


def with_memory(timeline: StepTimeline) -> StepTimeline:
    """The same with a memory that rises by 1 GB a second for 3 s on every rank, from 5 GB, and an operator."""
    trace = MemoryTrace(
        times=np.array([0.0, 1.0, 2.0, 3.0, timeline.step_time]),
        allocated=np.array([5e9, 6e9, 7e9, 8e9, 8e9]),
        baseline={"weights": 5e9},
        at_peak=(
            AlivePart(name="weights", num_bytes=5e9),
            AlivePart(name=HOSTILE, num_bytes=3e9, microbatches=(0, 1, 2)),
        ),
        by_part={"weights": np.full(5, 5e9), "activations": np.array([0.0, 1e9, 2e9, 3e9, 3e9])},
    )
    layer = (LayerOperator(name=HOSTILE, direction="forward", time=2e-3, exposed_time=1e-3, bound="memory"),)
    return replace(timeline, memory=(trace,) * timeline.num_ranks, layer=layer)


def parsed(svg: str) -> ET.Element:
    """The root element of a picture."""
    return ET.fromstring(svg)  # noqa: S314  # our own

"""A measured step and what a plan predicts for it, as one answer."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from shardplan.errors import InputError
from shardplan.fields import dataclass
from shardplan.schedules.base import ChunkTimes
from shardplan.simulation.measured.comparison import PassComparison, compare_passes
from shardplan.simulation.measured.layout import Layout
from shardplan.simulation.measured.passes import MeasuredStep
from shardplan.simulation.measured.profile import ProfiledStep
from shardplan.simulation.measured.reading import Measurement, read_measurement
from shardplan.simulation.measured.terms import TermComparison, compare_terms
from shardplan.simulation.plan import SimulatedPlan
from shardplan.simulation.show import timeline_of
from shardplan.simulation.stage_times import with_gradients_split
from shardplan.simulation.timeline import NO_CHUNK, Events, StepTimeline
from shardplan.units import format_time

SPLIT_AS_PREDICTED = "The backward pass was measured in one piece; --stages-out splits it as the prediction does."


@dataclass(frozen=True, kw_only=True)
class MeasuredAnswer:
    """What files say of a step, next to the prediction of a plan."""

    measurement: Measurement
    predicted: SimulatedPlan | None
    """None where no plan is given."""

    @cached_property
    def passes(self) -> PassComparison | None:
        """None where there is no plan, or nothing marks the passes."""
        if self.predicted is None or self.measurement.passes is None:
            return None
        memory = [trace.peak_bytes for trace in self._predicted_timeline.memory]
        return compare_passes(self.measurement.passes, self.predicted, memory)

    @cached_property
    def profile(self) -> ProfiledStep | None:
        """The rank that computes longest, with which the slowest stage of the prediction compares."""
        return max(self.measurement.profiles, key=lambda one: one.computation_time, default=None)

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What was taken for granted, what is not used, and what does not fit together."""
        passes, found = self.measurement.passes, list(self.measurement.notes)
        found += [] if passes is None else passes.notes
        size = None if self.profile is None else self.profile.world_size
        if self.predicted is not None and size is not None:
            wanted = self.predicted.priced.question.num_accelerators
            other = f"The trace is of a run on {size} accelerators, the plan is for {wanted}."
            found += [] if wanted == size else [other]
        return tuple(found)

    @property
    def breakdown(self) -> dict[str, float]:
        """Terms of the predicted step, which sum to it; empty where no plan is given. [s]"""
        return {} if self.predicted is None else self.predicted.priced.breakdown

    def terms(self, profile: ProfiledStep) -> tuple[TermComparison, ...]:
        """Terms of one rank, measured and predicted."""
        return compare_terms(profile, self.breakdown)

    @cached_property
    def stage_times(self) -> ChunkTimes:
        """Measured times of the stages, for ``simulate --stages``. Raises InputError where there are none."""
        times = self._passes(
            rule="times of stages are those of measured passes", hint="give files that have the passes of every rank"
        ).stage_times
        if self.predicted is None or np.any(times.weight_gradient):
            return times
        return with_gradients_split(times, self.predicted.priced.chunk_times)

    @cached_property
    def timeline(self) -> StepTimeline:
        """The measured step, next to the predicted one where there is a plan. Raises InputError without passes."""
        measured = self._passes(
            rule="a measured step is drawn where its passes are known",
            hint="open the trace of the profiler itself in ui.perfetto.dev",
        ).timeline
        return measured if self.predicted is None else next_to(measured, self._predicted_timeline)

    def _passes(self, *, rule: str, hint: str) -> MeasuredStep:
        """The measured passes. Raises InputError without."""
        if self.measurement.passes is None:
            raise InputError(f"the {self.measurement.source} marks no passes of micro-batches", rule=rule, hint=hint)
        return self.measurement.passes

    @cached_property
    def _predicted_timeline(self) -> StepTimeline:
        assert self.predicted is not None
        return timeline_of(self.predicted)


def measured_answer(paths: Sequence[Path], *, step: str | None, predicted: SimulatedPlan | None) -> MeasuredAnswer:
    """The step in the files at ``paths`` next to ``predicted``. Raises InputError."""
    layout = None if predicted is None else Layout.of_plan(predicted)
    answer = MeasuredAnswer(measurement=read_measurement(paths, step=step, layout=layout), predicted=predicted)
    _ = answer.passes  # refuses another plan
    return answer


def next_to(measured: StepTimeline, predicted: StepTimeline) -> StepTimeline:
    """Both steps as one, rank by rank, from the first pass on: 0 measured, 0 predicted, 1 measured ...

    Without memory, which of a measured step is known at its peak only.
    """
    first = float(predicted.events.start[predicted.events.chunk != NO_CHUNK].min())
    columns = [
        {
            **{name: getattr(one.events, name) for name in _COLUMNS},
            "rank": 2 * one.events.rank + number,
            "start": one.events.start + later,
        }
        for number, (one, later) in enumerate(((measured, first), (predicted, 0.0)))
    ]
    both = Events(**{name: np.concatenate([each[name] for each in columns]) for name in columns[0]})
    return StepTimeline(
        title=f"{measured.title}, {_time(measured)}; predicted {_time(predicted)}",
        rank_names=tuple(f"{rank} {what}" for rank in range(measured.num_ranks) for what in STEPS),
        events=both.at(np.lexsort((both.start, both.lane, both.rank))),
        step_time=max(measured.step_time, predicted.step_time),
        pipeline_time=max(measured.pipeline_time, predicted.pipeline_time),
        slowest=2 * predicted.slowest + 1,
    )


def _time(step: StepTimeline) -> str:
    return format_time(step.pipeline_time)


STEPS = ("measured", "predicted")
_COLUMNS = ("rank", "lane", "kind", "chunk", "microbatch", "start", "duration", "critical")

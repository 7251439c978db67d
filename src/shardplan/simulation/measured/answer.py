"""A measured step from files, and what a plan predicts for it, as one answer.

The files are pipeline dumps, traces of a profiler, or tables of passes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Final, TypeVar

import numpy as np

from shardplan.base.errors import InputError, shown
from shardplan.base.fields import dataclass
from shardplan.base.files import FileKind, printable, read_pieces
from shardplan.base.units import format_time
from shardplan.physics.schedules.base import ChunkTimes
from shardplan.simulation.measured import profile as primus
from shardplan.simulation.measured import ranks as table
from shardplan.simulation.measured import trace_file
from shardplan.simulation.measured.comparison import PassComparison, TermComparison, compare_passes, compare_terms
from shardplan.simulation.measured.passes import MeasuredStep, measured_step
from shardplan.simulation.measured.profile import ProfiledStep, passes_of, profiled_step, steps_of
from shardplan.simulation.measured.ranks import Layout, MeasuredRank, wrong
from shardplan.simulation.measured.trace_file import Trace, read_trace
from shardplan.simulation.plan import SimulatedPlan, timeline_of, with_gradients_split
from shardplan.simulation.timeline import NO_CHUNK, Events, StepTimeline

T = TypeVar("T")

RULE: Final = (
    "a measured step is given as pipeline dumps of Primus (pp_rank_N.json), traces of the PyTorch profiler, "
    "or a CSV of passes"
)
SMALL: Final = FileKind("the measurement", 256 * 1024 * 1024, RULE)
"""Largest size of dumps and tables, which are read whole. [bytes]"""
ANY: Final = FileKind("the measurement", trace_file.FILE.most_bytes, RULE)
MOST_FILES: Final = 65_536
ITERATIONS: Final = re.compile(r'\s*\{\s*"\d+"\s*:')
ORDER: Final = re.compile(r"\s*[,\s]*\(?\d+[FIWB]\d+")
"""Start of an order of passes as PyTorch writes it."""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What the files say of one step."""

    source: str
    step: str
    num_steps: int
    """Number of steps in the files."""
    passes: MeasuredStep | None
    """None if a trace marks no passes."""
    profiles: tuple[ProfiledStep, ...]
    """Kernels of every rank; empty if the files have none."""
    notes: tuple[str, ...] = ()
    """What was left out, and why."""


def read_measurement(paths: Sequence[Path], *, step: str | None = None, layout: Layout | None = None) -> Measurement:
    """The step called ``step``, or the last complete one. ``layout`` is that of the measured plan.

    Raises InputError if files cannot be read, do not belong together, or lack the step.
    """
    files = [path for path in dict.fromkeys(paths) if path.name != primus.CONFIG_NAME]
    if not 0 < len(files) <= MOST_FILES:
        raise wrong(f"{len(files)} files are given", "give the files of one measured step")
    kinds = {path: _kind(path) for path in files}
    if len(set(kinds.values())) > 1:
        other = next(path for path in files if kinds[path] != kinds[files[0]])
        raise InputError(
            f"{printable(files[0].name)} is a {kinds[files[0]]}, and {printable(other.name)} is a {kinds[other]}",
            rule="all files of a measured step are of one kind",
            hint="give files of one kind",
        )
    source = kinds[files[0]]
    if source == trace_file.SOURCE:
        return _measurement_of_traces(files, step, layout)
    found = _ranks_in_tables(files) if source == table.SOURCE else _ranks_in_dumps(files)
    if source == primus.SOURCE and layout is None:
        layout = primus.layout_of(files[0].parent)
    chosen = _chosen_step(found, step)
    return Measurement(
        source=source,
        step=chosen,
        num_steps=len(found),
        passes=measured_step(found[chosen], source=source, step=chosen, layout=layout),
        profiles=(),
    )


def _kind(path: Path) -> str:
    """The kind of a file, by its first characters. Raises InputError."""
    head = next(read_pieces(path, ANY), "")
    name = printable(path.name)
    if not head.strip():
        raise InputError(f"{name} is empty", rule=RULE, hint="measure the step again")
    if head.lstrip().startswith("{"):
        is_dump = primus.NAME.fullmatch(path.name) or ITERATIONS.match(head)
        return primus.SOURCE if is_dump else trace_file.SOURCE
    first = head.lstrip().partition("\n")[0]
    if table.is_table(head):
        return table.SOURCE
    if ORDER.match(first):
        raise InputError(
            f"{name} is an order of passes without times",
            rule=RULE,
            hint=f"simulate it: shardplan simulate PLAN.json --schedule {name}",
        )
    raise InputError(f"{name} begins with {shown(first[:40])}", rule=RULE, hint=RULE)


def _ranks_in_tables(files: Sequence[Path]) -> dict[str, list[MeasuredRank]]:
    """The ranks of every step in the tables."""
    steps: dict[str, list[MeasuredRank]] = {}
    for path in files:
        for step, ranks in table.ranks_of(_text(path), printable(path.name)).items():
            steps.setdefault(step, []).extend(ranks)
    return steps


def _ranks_in_dumps(files: Sequence[Path]) -> dict[str, list[MeasuredRank]]:
    """The ranks of every iteration that is in all dumps."""
    dumps = [primus.ranks_of(path, _text(path)) for path in files]
    common = set.intersection(*(set(dump) for dump in dumps))
    if not common:
        raise wrong("the dumps have no iteration in common", "give the dumps of one run")
    return {step: [dump[step] for dump in dumps] for step in sorted(common, key=int)}


def _text(path: Path) -> str:
    return "".join(read_pieces(path, SMALL))


def _chosen_step(steps: Mapping[str, T], step: str | None, complete: Sequence[str] | None = None) -> str:
    """``step``, or the last complete step. Raises InputError."""
    if step is None:
        return (complete or list(steps))[-1]
    if step not in steps:
        names = list(steps)
        known = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
        raise InputError(
            f"the files have no step {shown(step)}", rule="the step is in the files", hint=f"give --step one of {known}"
        )
    return step


def _measurement_of_traces(files: Sequence[Path], step: str | None, layout: Layout | None) -> Measurement:
    traces = [read_trace(path, number) for number, path in enumerate(files)]
    traces.sort(key=lambda trace: trace.rank)
    for one, other in pairwise(traces):
        if one.rank == other.rank:
            twice = f"rank {one.rank} is there twice: {one.label} and {other.label}"
            raise wrong(twice, "give one trace for every rank")
    every = [steps_of(trace) for trace in traces]
    common = {name: span for name, span in every[0].items() if all(name in steps for steps in every)}
    if not common:
        raise wrong("the traces have no step in common", "give the traces of one run")
    chosen = _chosen_step(common, step, [name for name in common if not any(steps[name][2] for steps in every)])
    passes, notes = _passes(traces, chosen, layout)
    return Measurement(
        source=trace_file.SOURCE,
        step=chosen,
        num_steps=len(common),
        passes=passes,
        profiles=tuple(profiled_step(trace, chosen) for trace in traces),
        notes=notes,
    )


def _passes(traces: Sequence[Trace], step: str, layout: Layout | None) -> tuple[MeasuredStep | None, tuple[str, ...]]:
    """The passes of all ranks, if every trace marks them; otherwise why they are not used.

    Pipeline ranks are the traces in the order of their ranks.
    """
    found = [passes_of(trace, step, rank) for rank, trace in enumerate(traces)]
    ranks = [one for one in found if one is not None]
    num_ranks = 1 if layout is None else int(layout.at.pp)
    if len(ranks) < len(traces):
        return None, ()
    if len(traces) != num_ranks and (layout is not None or not all(one.is_numbered for one in ranks)):
        return None, (f"Passes are not compared: there are {len(traces)} traces for {num_ranks} pipeline ranks.",)
    begins = [steps_of(trace)[step][0] for trace in traces]
    later = [
        (trace.base_ns - traces[0].base_ns) * 1e-9 + (begin - begins[0])
        for trace, begin in zip(traces, begins, strict=True)
    ]
    on_time = [replace(one, start=one.start + by, end=one.end + by) for one, by in zip(ranks, later, strict=True)]
    try:
        return measured_step(on_time, source=trace_file.SOURCE, step=step, layout=layout), ()
    except InputError as error:
        return None, (f"Passes are not compared: {error.message}.",)


SPLIT_AS_PREDICTED = "The backward pass was measured in one piece; --stages-out splits it as the prediction does."


@dataclass(frozen=True, kw_only=True)
class MeasuredAnswer:
    """A measured step next to the prediction of a plan."""

    measurement: Measurement
    predicted: SimulatedPlan | None
    """None without a plan."""

    @cached_property
    def passes(self) -> PassComparison | None:
        """None without a plan, or if nothing marks the passes."""
        if self.predicted is None or self.measurement.passes is None:
            return None
        memory = [trace.peak_bytes for trace in self._predicted_timeline.memory]
        return compare_passes(self.measurement.passes, self.predicted, memory)

    @cached_property
    def profile(self) -> ProfiledStep | None:
        """The rank that computes longest; it is compared with the slowest stage of the prediction."""
        return max(self.measurement.profiles, key=lambda one: one.computation_time, default=None)

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Assumptions, what was left out, and contradictions between files and plan."""
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
        """Terms of the predicted step, which add up to it; empty without a plan. [s]"""
        return {} if self.predicted is None else self.predicted.priced.breakdown

    def terms(self, profile: ProfiledStep) -> tuple[TermComparison, ...]:
        """Terms of one rank, measured and predicted."""
        return compare_terms(profile, self.breakdown)

    @cached_property
    def stage_times(self) -> ChunkTimes:
        """Measured times of the stages, for ``simulate --stages``. Raises InputError if there are none."""
        times = self._passes(
            rule="times of stages are those of measured passes", hint="give files that have the passes of every rank"
        ).stage_times
        if self.predicted is None or np.any(times.weight_gradient):
            return times
        return with_gradients_split(times, self.predicted.priced.chunk_times)

    @cached_property
    def timeline(self) -> StepTimeline:
        """The measured step, next to the predicted one if there is a plan. Raises InputError without passes."""
        measured = self._passes(
            rule="a measured step is drawn where its passes are known",
            hint="open the trace of the profiler itself in ui.perfetto.dev",
        ).timeline
        return measured if self.predicted is None else next_to(measured, self._predicted_timeline)

    def _passes(self, *, rule: str, hint: str) -> MeasuredStep:
        """The measured passes. Raises InputError if there are none."""
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
    _ = answer.passes  # raises if the files are of another plan
    return answer


def next_to(measured: StepTimeline, predicted: StepTimeline) -> StepTimeline:
    """Both steps in one timeline, rank by rank, from the first pass on: 0 measured, 0 predicted, 1 measured ...

    It has no memory, since only the peak of a measured step is known.
    """
    first = float(predicted.events.start[predicted.events.chunk != NO_CHUNK].min())
    own, other = measured.events, predicted.events
    steps = (
        replace(own, rank=2 * own.rank, start=own.start + first),
        replace(other, rank=2 * other.rank + 1),
    )
    both = Events(**{each.name: np.concatenate([getattr(one, each.name) for one in steps]) for each in fields(Events)})
    times = [format_time(each.pipeline_time) for each in (measured, predicted)]
    return StepTimeline(
        title=f"{measured.title}, {times[0]}; predicted {times[1]}",
        rank_names=tuple(f"{rank} {what}" for rank in range(measured.num_ranks) for what in ("measured", "predicted")),
        events=both.at(np.lexsort((both.start, both.lane, both.rank))),
        step_time=max(measured.step_time, predicted.step_time),
        pipeline_time=max(measured.pipeline_time, predicted.pipeline_time),
        slowest=2 * predicted.slowest + 1,
    )

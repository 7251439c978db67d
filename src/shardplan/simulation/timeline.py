"""A simulated step as it is shown: what every rank does at every moment, and what its memory holds.

The events are columns, one element for each, so that a step with a million of them stays cheap. Files, pages and
pictures all read this record.
"""

from __future__ import annotations

from dataclasses import field, fields
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shardplan.base.errors import InputError
from shardplan.base.fields import dataclass, in_files
from shardplan.estimation.parts.layer_operators import LayerOperator
from shardplan.estimation.parts.terms import AFTER_PASSES
from shardplan.simulation.case import Seconds
from shardplan.simulation.pieces import Ints

EVENT_KINDS: Final = (
    "forward",
    "recomputation",
    "input gradient",
    "weight gradient",
    "backward",
    "send forward",
    "send backward",
    "parameter gathering",
    "exchange of sharded states",
    "gradient reduction",
    *(term.event for term in AFTER_PASSES),
    "hidden parameter gathering",
    "hidden gradient reduction",
)
"""What an event is, by number. ``backward`` is both gradients in one piece. Of the exchanges of states, the others are
what no computation hides."""
PIPELINE_KINDS: Final = tuple(range(5))
"""Work on micro-batches."""
FORWARD, RECOMPUTATION, INPUT_GRADIENT, WEIGHT_GRADIENT, BACKWARD = PIPELINE_KINDS
SEND_FORWARD, SEND_BACKWARD, GATHERING, SHARDED, REDUCTION = range(5, 10)
KIND_OF_TERM: Final = {term.key: EVENT_KINDS.index(term.event) for term in AFTER_PASSES}
"""What comes after the last pass, by term of the step."""
OPTIMIZER: Final = KIND_OF_TERM["optimizer"]
HIDDEN_GATHERING, HIDDEN_REDUCTION = range(len(EVENT_KINDS) - 2, len(EVENT_KINDS))
LEAST_DRAWN: Final = 1e-4
"""Share of the longest operator below which pages leave one out: smooth formulas leave nanoseconds of waiting."""
MEANWHILE: Final = (SEND_FORWARD, SEND_BACKWARD, SHARDED, HIDDEN_GATHERING, HIDDEN_REDUCTION)
"""What travels while passes run."""

LANES: Final = ("compute", "pipeline transfers", "data-parallel exchanges")
"""Resources of a rank, by number."""
COMPUTE, TRANSFERS, EXCHANGES = range(len(LANES))

NO_CHUNK: Final = -1
BUBBLE: Final = "bubble"
"""What the split of a step calls the time in which a rank waits."""
ON_THE_WAY: Final = "waiting for transfers"
"""What the split of the critical path calls the rest of it."""


@dataclass(frozen=True, kw_only=True)
class Events:
    """The events of a step, sorted by rank, lane and start."""

    rank: Ints
    lane: Ints
    """Position in ``LANES``."""
    kind: Ints
    """Position in ``EVENT_KINDS``."""
    chunk: Ints
    """Which of the rank's chunks, or -1 where it belongs to none."""
    microbatch: Ints
    """From 0, or -1 where it belongs to none."""
    start: Seconds
    """From the start of the step. [s]"""
    duration: Seconds
    """[s]"""
    critical: NDArray[np.bool_]
    """Whether it is on the critical path: a chain of events without a gap that ends with the step."""

    @property
    def end(self) -> Seconds:
        """Of every event. [s]"""
        return self.start + self.duration

    def __len__(self) -> int:
        return len(self.rank)

    def of_rank(self, rank: int) -> Events:
        """Those of one rank."""
        first, last = np.searchsorted(self.rank, (rank, rank + 1))
        return self.at(slice(int(first), int(last)))

    def at(self, index: slice | NDArray[np.bool_] | Ints) -> Events:
        """Those at the positions of ``index``."""
        return Events(**{each.name: getattr(self, each.name)[index] for each in fields(self)})


@dataclass(frozen=True, kw_only=True)
class AlivePart:
    """A part of what a rank holds at its peak."""

    name: str
    num_bytes: float = field(metadata=in_files("bytes"))
    """All of it. [bytes]"""
    microbatches: tuple[int, ...] = ()
    """Micro-batches whose activations these are, each as large; empty for what belongs to none."""


@dataclass(frozen=True, kw_only=True)
class MemoryTrace:
    """Memory of one rank over a step."""

    times: Seconds
    """When the allocated memory changes, ascending, from the first event to the end of the step. [s]"""
    allocated: NDArray[np.float64]
    """Memory from each of these times to the next one; at the last, when the step ends. [bytes]"""
    baseline: dict[str, float]
    """What is there all the time, by part: weights, gradients, optimizer states, buffers, framework. [bytes]"""
    at_peak: tuple[AlivePart, ...]
    """What is there when most is allocated; sums to the peak."""
    by_part: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    """The allocated memory at the same times by part of the memory of a stage, as estimates name them. [bytes]"""

    @property
    def baseline_bytes(self) -> float:
        """What is there all the time. [bytes]"""
        return sum(self.baseline.values())

    @cached_property
    def peak_bytes(self) -> float:
        """Most memory at any time. [bytes]"""
        return float(self.allocated.max())

    @cached_property
    def peak_time(self) -> float:
        """When that is so for the first time. [s]"""
        return float(self.times[int(np.argmax(self.allocated))])


@dataclass(frozen=True, kw_only=True)
class StepTimeline:
    """One simulated step of all ranks of a pipeline."""

    title: str
    rank_names: tuple[str, ...]
    events: Events
    step_time: float
    """[s]"""
    pipeline_time: float
    """The longest time from the first piece of a rank to its last. [s]"""
    slowest: int
    """The rank whose events span the step time."""
    memory: tuple[MemoryTrace, ...] = ()
    """Of every rank; empty where no plan says how many bytes there are."""
    layer: tuple[LayerOperator, ...] = ()
    """Operators of the most frequent kind of layer, in order; empty where there is no plan."""
    subject: str = ""
    """The model, the accelerators and the plan; empty where there is no plan."""
    usable_memory_bytes: float | None = None
    """What tensors can fill of an accelerator's memory; None where there is no plan. [bytes]"""

    def __post_init__(self) -> None:
        """Refuses memory of some ranks: pages and pictures show that of all or none."""
        if self.memory and len(self.memory) != self.num_ranks:
            raise InputError(
                f"a timeline of {self.num_ranks} ranks has the memory of {len(self.memory)}",
                rule="a timeline has the memory of every rank, or of none",
                hint="give one MemoryTrace for each rank, or leave memory empty",
            )

    @property
    def drawn_layer(self) -> tuple[LayerOperator, ...]:
        """Operators of the layer that are long enough to be seen."""
        longest = max((one.time for one in self.layer), default=0.0)
        return tuple(one for one in self.layer if one.time >= LEAST_DRAWN * longest)

    @property
    def num_ranks(self) -> int:
        """Ranks of the pipeline."""
        return len(self.rank_names)

    @cached_property
    def bubble_rates(self) -> Seconds:
        """Share of the step in which every rank waits while the pipeline runs."""
        work = np.isin(self.events.kind, PIPELINE_KINDS)
        busy = np.bincount(self.events.rank[work], self.events.duration[work], minlength=self.num_ranks)
        return np.maximum(self.pipeline_time - busy, 0.0) / (self.step_time or 1.0)

    @property
    def busiest(self) -> int:
        """The rank that waits least: the slowest stage."""
        return int(np.argmin(self.bubble_rates))

    def split(self, rank: int) -> dict[str, float]:
        """Seconds of a rank by kind of event, and its bubble; they sum to the step time.

        What travels while a pass runs takes no time of its own: the pass takes longer for what it waits for.
        """
        spent = _split(self.events.of_rank(rank), BUBBLE, self.step_time)
        bubble = min(float(self.bubble_rates[rank]) * self.step_time, spent[BUBBLE])
        rest = spent[BUBBLE] - bubble
        return spent | {BUBBLE: bubble} | ({FOR_THE_LAST: rest} if rest > SAME * self.step_time else {})

    @cached_property
    def critical_split(self) -> dict[str, float]:
        """Seconds of the critical path by kind of event; in the rest of it, a rank waits for what is on its way."""
        events = self.events.at(self.events.critical)
        return _split(events, ON_THE_WAY, float(events.end.max() - events.start.min()) if len(events) else 0.0)


def stage_names(number: int) -> tuple[str, ...]:
    """What pictures and tables call the ranks of a pipeline: the stages of the plan that they run, from 0."""
    return tuple(f"stage {stage}" for stage in range(number))


FOR_THE_LAST: Final = "waiting for the last stage"
"""Time in which a rank that has ended waits for the one that ends the step."""
SAME: Final = 1e-9
"""Share of a step below which nothing is left."""


def _split(events: Events, rest: str, whole: float) -> dict[str, float]:
    """Seconds of events by kind, and the ``rest`` of the ``whole`` time."""
    own = events.at(~np.isin(events.kind, MEANWHILE))
    seconds = np.bincount(own.kind, own.duration, minlength=len(EVENT_KINDS)).tolist()
    spent = {name: time for name, time in zip(EVENT_KINDS, seconds, strict=True) if time}
    return spent | {rest: max(whole - sum(spent.values()), 0.0)}

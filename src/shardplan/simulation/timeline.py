"""A simulated step in the form that is shown: what every rank does at every moment, and what is in its memory.

The events are columns with one element for each, so that a step with a million of them stays cheap. Files, pages and
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
"""Kinds of events, by number. ``backward`` is both gradients in one piece. Exchanges of states that are not ``hidden``
are the exposed part.
"""
PIPELINE_KINDS: Final = tuple(range(5))
"""Kinds of events that are work on micro-batches."""
FORWARD, RECOMPUTATION, INPUT_GRADIENT, WEIGHT_GRADIENT, BACKWARD = PIPELINE_KINDS
SEND_FORWARD, SEND_BACKWARD, GATHERING, SHARDED, REDUCTION = range(5, 10)
KIND_OF_TERM: Final = {term.key: EVENT_KINDS.index(term.event) for term in AFTER_PASSES}
"""Kind of event after the last pass, by term of the step."""
OPTIMIZER: Final = KIND_OF_TERM["optimizer"]
HIDDEN_GATHERING, HIDDEN_REDUCTION = range(len(EVENT_KINDS) - 2, len(EVENT_KINDS))
LEAST_DRAWN: Final = 1e-4
"""Operators shorter than this share of the longest are not drawn: smooth formulas leave nanoseconds of waiting."""
MEANWHILE: Final = (SEND_FORWARD, SEND_BACKWARD, SHARDED, HIDDEN_GATHERING, HIDDEN_REDUCTION)
"""Traffic while passes run."""

LANES: Final = ("compute", "pipeline transfers", "data-parallel exchanges")
"""Resources of a rank, by number."""
COMPUTE, TRANSFERS, EXCHANGES = range(len(LANES))

NO_CHUNK: Final = -1
BUBBLE: Final = "bubble"
"""Name of the waiting time of a rank in the split of a step."""
ON_THE_WAY: Final = "waiting for transfers"
"""Name of the rest of the critical path in its split."""


@dataclass(frozen=True, kw_only=True)
class Events:
    """The events of a step, sorted by rank, lane and start."""

    rank: Ints
    lane: Ints
    """Position in ``LANES``."""
    kind: Ints
    """Position in ``EVENT_KINDS``."""
    chunk: Ints
    """Chunk within the rank, or -1 if it belongs to none."""
    microbatch: Ints
    """Number from 0, or -1 if it belongs to none."""
    start: Seconds
    """Time since the start of the step. [s]"""
    duration: Seconds
    """Duration. [s]"""
    critical: NDArray[np.bool_]
    """Whether it is on the critical path: a chain of events without a gap that ends with the step."""

    @property
    def end(self) -> Seconds:
        """End of every event. [s]"""
        return self.start + self.duration

    def __len__(self) -> int:
        return len(self.rank)

    def of_rank(self, rank: int) -> Events:
        """The events of one rank."""
        first, last = np.searchsorted(self.rank, (rank, rank + 1))
        return self.at(slice(int(first), int(last)))

    def at(self, index: slice | NDArray[np.bool_] | Ints) -> Events:
        """The events at the positions in ``index``."""
        return Events(**{each.name: getattr(self, each.name)[index] for each in fields(self)})


@dataclass(frozen=True, kw_only=True)
class AlivePart:
    """One item in a rank's memory at its peak."""

    name: str
    num_bytes: float = field(metadata=in_files("bytes"))
    """Its total size. [bytes]"""
    microbatches: tuple[int, ...] = ()
    """Micro-batches whose activations these are, all of the same size; empty if it belongs to none."""


@dataclass(frozen=True, kw_only=True)
class MemoryTrace:
    """Memory of one rank over a step."""

    times: Seconds
    """Times at which the allocated memory changes, ascending, from the first event to the end of the step. [s]"""
    allocated: NDArray[np.float64]
    """Memory from each of these times to the next one; at the last, when the step ends. [bytes]"""
    baseline: dict[str, float]
    """Memory that is there all the time: weights, gradients, optimizer states, buffers, framework. [bytes]"""
    at_peak: tuple[AlivePart, ...]
    """What is in memory at the peak; adds up to it."""
    by_part: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    """The allocated memory at the same times by part of the memory of a stage, named as in estimates. [bytes]"""

    @property
    def baseline_bytes(self) -> float:
        """Memory that is there all the time. [bytes]"""
        return sum(self.baseline.values())

    @cached_property
    def peak_bytes(self) -> float:
        """Most memory at any time. [bytes]"""
        return float(self.allocated.max())

    @cached_property
    def peak_time(self) -> float:
        """First time at which the peak is reached. [s]"""
        return float(self.times[int(np.argmax(self.allocated))])


@dataclass(frozen=True, kw_only=True)
class StepTimeline:
    """One simulated step of all ranks of a pipeline."""

    title: str
    rank_names: tuple[str, ...]
    events: Events
    step_time: float
    """Time of the whole step. [s]"""
    pipeline_time: float
    """The longest time from the first piece of a rank to its last. [s]"""
    slowest: int
    """The rank whose events span the step time."""
    memory: tuple[MemoryTrace, ...] = ()
    """Memory of every rank; empty without a plan, which gives the sizes."""
    layer: tuple[LayerOperator, ...] = ()
    """Operators of the most frequent kind of layer, in order; empty without a plan."""
    subject: str = ""
    """The model, the accelerators and the plan; empty without a plan."""
    usable_memory_bytes: float | None = None
    """Memory of an accelerator that tensors can use; None without a plan. [bytes]"""

    def __post_init__(self) -> None:
        """Refuses the memory of only some ranks: pages and pictures show that of all or none."""
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
        """Seconds of a rank by kind of event, and its bubble; they add up to the step time.

        Traffic while a pass runs takes no time of its own: the pass takes longer for what it waits for.
        """
        spent = _split(self.events.of_rank(rank), BUBBLE, self.step_time)
        bubble = min(float(self.bubble_rates[rank]) * self.step_time, spent[BUBBLE])
        rest = spent[BUBBLE] - bubble
        return spent | {BUBBLE: bubble} | ({FOR_THE_LAST: rest} if rest > SAME * self.step_time else {})

    @cached_property
    def critical_split(self) -> dict[str, float]:
        """Seconds of the critical path by kind of event; in the rest of it, a rank waits for a transfer."""
        events = self.events.at(self.events.critical)
        return _split(events, ON_THE_WAY, float(events.end.max() - events.start.min()) if len(events) else 0.0)


def stage_names(number: int) -> tuple[str, ...]:
    """Names of the pipeline's ranks in pictures and tables: the stages of the plan that they run, from 0."""
    return tuple(f"stage {stage}" for stage in range(number))


FOR_THE_LAST: Final = "waiting for the last stage"
"""Name of the time in which a finished rank waits for the last one."""
SAME: Final = 1e-9
"""Share of a step below which a rest counts as nothing."""


def _split(events: Events, rest: str, whole: float) -> dict[str, float]:
    """Seconds of events by kind, and the ``rest`` of the ``whole`` time."""
    own = events.at(~np.isin(events.kind, MEANWHILE))
    seconds = np.bincount(own.kind, own.duration, minlength=len(EVENT_KINDS)).tolist()
    spent = {name: time for name, time in zip(EVENT_KINDS, seconds, strict=True) if time}
    return spent | {rest: max(whole - sum(spent.values()), 0.0)}

"""What every pipeline schedule answers: its rule, its passes in order, its idle time and what it keeps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Final, Literal, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from shardplan.base.arrays import Flags, Numbers, is_zero, plus
from shardplan.base.fields import dataclass
from shardplan.physics.schedules.longest_ways import Counts, Work, pace_of

SUITS: Final = "the schedule suits the pipeline"
"""Rule of validity of a schedule that names no rule of its own."""


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """A pipeline and the micro-batches that pass through it in one step: numbers, or arrays over plans."""

    pp: Numbers
    """Ranks p."""
    vp: Numbers
    """Model chunks of each rank v."""
    num_microbatches: Numbers
    """Micro-batches M."""
    group_size: Numbers
    """Micro-batches g that one chunk runs before the next takes over."""


@dataclass(frozen=True, kw_only=True)
class Passes:
    """Seconds of one micro-batch through something: a whole rank with all its chunks, or the sum over all ranks."""

    forward: Numbers
    """F."""
    input_gradient: Numbers
    """B: the part of the backward pass that the previous stage waits for."""
    weight_gradient: Numbers
    """W: the part that only the optimizer waits for."""

    @property
    def backward(self) -> Numbers:
        """Both gradients. [s]"""
        return plus(self.input_gradient, self.weight_gradient)

    @property
    def total(self) -> Numbers:
        """Forward and backward pass. [s]"""
        return plus(self.forward, self.backward)

    def lengthened(self, time: Numbers) -> Passes:
        """With ``time`` more, which forward pass and input gradient share where they are apart."""
        if is_zero(self.input_gradient):
            return Passes(
                forward=self.forward + time,
                input_gradient=self.input_gradient,
                weight_gradient=self.weight_gradient,
            )
        half = time / 2
        return Passes(
            forward=self.forward + half,
            input_gradient=self.input_gradient + half,
            weight_gradient=self.weight_gradient,
        )

    @property
    def parts(self) -> tuple[Numbers, Numbers, Numbers]:
        """F, B and W. [s]"""
        return self.forward, self.input_gradient, self.weight_gradient

    def __truediv__(self, number: Numbers) -> Passes:
        return Passes(
            forward=self.forward / number,
            input_gradient=self.input_gradient / number,
            weight_gradient=self.weight_gradient / number,
        )

    def __sub__(self, other: Passes) -> Passes:
        return Passes(
            forward=self.forward - other.forward,
            input_gradient=self.input_gradient - other.input_gradient,
            weight_gradient=self.weight_gradient - other.weight_gradient,
        )


NO_PASSES: Final = Passes(forward=0.0, input_gradient=0.0, weight_gradient=0.0)


@dataclass(frozen=True, kw_only=True)
class RankPasses(Passes):
    """Seconds of one micro-batch through a rank whose place in the pipeline is known."""

    num_behind: Numbers
    """Ranks behind it."""
    behind: Passes
    """One micro-batch through all of these."""

    @classmethod
    def of(cls, own: Passes, num_behind: Numbers, behind: Passes) -> RankPasses:
        """A rank whose passes take ``own``."""
        forward, input_gradient, weight_gradient = own.parts
        return cls(
            forward=forward,
            input_gradient=input_gradient,
            weight_gradient=weight_gradient,
            num_behind=num_behind,
            behind=behind,
        )


Kind = Literal["F", "B", "W", "BW"]
"""Forward, gradient of the input, gradient of the weights, or both gradients in one piece."""


class Pass(NamedTuple):
    """One piece of work of a rank."""

    kind: Kind
    chunk: int
    """Which of the rank's chunks, from 0."""
    microbatch: int
    joined: bool = False
    """Whether it runs together with the rank's next pass, as one block whose results are there at its end."""


class Place(NamedTuple):
    """Where a stage of the model is: a chunk of a rank."""

    rank: int
    chunk: int


Orders = Sequence[Sequence[Pass]]
"""The passes of every rank in the order in which it runs them."""


@dataclass(frozen=True, kw_only=True)
class ChunkTimes:
    """Seconds of one micro-batch in each model chunk, in the order of the model, and what may be kept."""

    forward: NDArray[np.float64]
    input_gradient: NDArray[np.float64]
    weight_gradient: NDArray[np.float64]
    transfer: NDArray[np.float64]
    """From a chunk to the next one, and back; between chunks of one rank nothing is sent."""
    max_in_flight: int | None = None
    """Chunk passes whose activations a rank may keep; the schedule's own limit where it is None."""
    recomputed: NDArray[np.float64] | None = None
    """The part of the input gradient's time in which the forward pass runs again; not known where it is None."""
    sending: NDArray[np.float64] | None = None
    """The end of a forward pass and of an input gradient in which the rank does nothing but send."""
    exchanging: NDArray[np.float64] | None = None
    """The part of a forward pass and of an input gradient in which the rank waits for sharded weights or gradients."""


class Schedule(ABC):
    """An order of the passes of every rank: a fixed one, or one that is searched for given times."""

    name: ClassVar[str]
    """As a plan names it."""
    title: ClassVar[str]
    source: ClassVar[str]
    """The paper that defines it."""
    splits_backward: ClassVar[bool] = False
    """Whether gradients of inputs and of weights are separate passes."""
    parameter_copies: ClassVar[int] = 1
    """Copies of the model that the ranks of one pipeline hold together."""
    ends_meet: ClassVar[bool] = False
    """Whether one rank holds the first and the last stage of the model, and so a table that both read once."""
    least_vp: ClassVar[int] = 1
    """Fewest chunks per rank."""
    most_vp: ClassVar[int | None] = 1
    """Most chunks per rank; any number where None."""
    least_pp: ClassVar[int] = 1
    """Fewest ranks."""
    rule: ClassVar[str] = SUITS
    """Name of the rule of validity that ``can_run`` decides."""
    priced_as: ClassVar[str | None] = None
    """Schedule by whose layout and closed form estimates price this one, where it has none of its own."""
    needs: ClassVar[str] = "other counts"
    """Which counts keep the rule, where it asks for more than enough of them."""
    reads_place: ClassVar[bool] = False
    """Whether the closed form asks how many ranks are behind a rank, and how long these take."""
    closed_form_holds: ClassVar[bool] = True
    """Whether the closed form of ``priced_as`` is near what this schedule takes."""

    def takes_chunks(self, vp: Numbers) -> Flags:
        """Whether the schedule runs with ``vp`` chunks per rank."""
        enough = np.greater_equal(vp, self.least_vp)
        return enough if self.most_vp is None else enough & np.less_equal(vp, self.most_vp)

    def least_microbatches(self, pp: Numbers) -> Numbers:  # noqa: ARG002  # most schedules run with any number
        """Fewest micro-batches with which the schedule is what it is."""
        return 1

    def holds(self, at: Pipeline) -> Flags:
        """The schedule's rule of validity, beyond the number of chunks."""
        enough = np.greater_equal(at.num_microbatches, self.least_microbatches(at.pp))
        return np.greater_equal(at.pp, self.least_pp) & enough

    def can_run(self, at: Pipeline) -> Flags:
        """Whether the pipeline has the chunks that the schedule takes and keeps its rule."""
        return np.logical_and(self.takes_chunks(at.vp), self.holds(at))

    def message(self, at: Pipeline) -> str:
        """The values that break the rule, for one plan."""
        if not self.takes_chunks(at.vp):
            return f"schedule {self.name} with vp {at.vp}"
        return f"schedule {self.name} with pp {at.pp}, vp {at.vp} and {at.num_microbatches} micro-batches per replica"

    def hint(self, at: Pipeline, sequences: int) -> str:
        """The knob to turn, for one plan; ``sequences``: of one micro-batch in all replicas together."""
        if not self.takes_chunks(at.vp):
            return self.hint_of_chunks()
        if at.pp < self.least_pp:
            return f"schedule {self.name} needs pp of {self.least_pp} or more: raise pp, or leave the schedule out"
        least = self.least_microbatches(at.pp)
        return (
            f"schedule {self.name} needs {least} micro-batches per replica or more: "
            f"set the global batch size to {least * sequences} or more, or lower pp"
        )

    def hint_of_chunks(self) -> str:
        """The knob to turn where the schedule does not take ``vp`` chunks."""
        if self.most_vp == 1:
            return "set vp to 1, or the schedule to interleaved"
        wanted = f"{self.least_vp}" if self.most_vp == self.least_vp else f"{self.least_vp} or more"
        return f"set vp to {wanted}: schedule {self.name} needs {wanted} model chunks on each rank"

    def flags(self, at: Pipeline, sequences: int) -> list[str]:
        """The same as flags with which an estimate writes a plan that the schedule can run; the batch where it must."""
        near = self.nearest(at)
        degrees = [(name, getattr(near, name)) for name in ("pp", "vp") if getattr(near, name) != getattr(at, name)]
        found = [word for name, degree in degrees for word in (f"--{name}", str(degree))]
        if near.num_microbatches * at.pp == at.num_microbatches * near.pp:
            return found  # the same batch among fewer or more replicas
        of_replicas = max(int(sequences * at.pp // near.pp), 1)
        return [*found, "--global-batch-size", str(int(near.num_microbatches) * of_replicas)]

    def nearest(self, at: Pipeline) -> Pipeline:
        """A pipeline near one that the schedule cannot run, which it can: of the same global batch where that will do.

        More ranks in a pipeline are fewer replicas, so that each has more micro-batches.
        """
        vp = at.vp if self.takes_chunks(at.vp) else self.least_vp
        pp = self.nearest_ranks(int(at.pp))
        group_size = pp if at.group_size == at.pp else max(int(at.group_size), pp)
        whole, rest = divmod(int(at.num_microbatches) * pp, int(at.pp))
        near = Pipeline(pp=pp, vp=vp, num_microbatches=max(whole, 1), group_size=group_size)
        if not rest and self.can_run(near):
            return near
        return replace(near, num_microbatches=self.nearest_microbatches(near))

    def nearest_ranks(self, pp: int) -> int:
        """As many ranks or a few more, with which the schedule runs."""
        return max(pp, self.least_pp)

    def nearest_microbatches(self, at: Pipeline) -> int:
        """Micro-batches with which the schedule runs on ranks and chunks that it takes."""
        return max(int(at.num_microbatches), int(self.least_microbatches(at.pp)))

    @abstractmethod
    def order(self, at: Pipeline, times: ChunkTimes) -> Orders:
        """The passes of every rank in the order in which it runs them, for one pipeline.

        Raises ``InputError`` where ``times`` allow less in flight than the schedule needs.
        """

    def rank_name(self, rank: int) -> str:
        """What errors call a rank."""
        return f"rank {rank}"

    def path(self, pp: int, vp: int, num_microbatches: int, microbatch: int) -> tuple[Place, ...]:  # noqa: ARG002
        """Where the forward passes of ``microbatch`` run, in order; its backward passes go the way back.

        In a loop over the ranks, unless the schedule says otherwise: stage s is chunk s // p of rank s mod p. All
        micro-batches take one path where the ranks hold one copy of the model.
        """
        return tuple(Place(stage % pp, stage // pp) for stage in range(pp * vp))

    def placement(self, pp: int, vp: int) -> tuple[tuple[int, ...], ...]:
        """For every rank, the places of its chunks in model order: those of rank r are r, p + r ... in a loop."""
        held: list[dict[int, int]] = [{} for _ in range(pp)]
        for microbatch in (0, 1):  # with two directions, one micro-batch takes either
            for position, place in enumerate(self.path(pp, vp, 2, microbatch)):
                held[place.rank][place.chunk] = position
        return tuple(tuple(chunks[chunk] for chunk in sorted(chunks)) for chunks in held)


class Folded(Schedule):
    """Two chunks on every rank, in the shape of a V: stage s on rank s, and from the last rank back to the first."""

    splits_backward = True
    least_pp = 2
    ends_meet = True
    least_vp = 2
    most_vp = 2

    def path(self, pp: int, vp: int, num_microbatches: int, microbatch: int) -> tuple[Place, ...]:  # noqa: ARG002
        """Down the ranks and back up."""
        return (*(Place(rank, 0) for rank in range(pp)), *(Place(rank, 1) for rank in reversed(range(pp))))


class PipelineSchedule(Schedule):
    """A schedule with a fixed order and closed forms for its bubble and its memory, so that plans can name it."""

    def order(self, at: Pipeline, times: ChunkTimes) -> Orders:  # noqa: ARG002  # the order is fixed
        """``events``, whatever the times."""
        return self.events(int(at.pp), int(at.vp), int(at.num_microbatches), int(at.group_size))

    @abstractmethod
    def idle_time(self, at: Pipeline, own: Passes, everyone: Passes, pace: Numbers = 1.0) -> Numbers:
        """Seconds of one step in which a rank waits, from its first pass to its last.

        ``own``: one micro-batch through this rank, with its place (``RankPasses``) where that is known and the schedule
        ``reads_place``; ``everyone``: through all ranks; ``pace``: by how much uneven chunks make a micro-batch slower
        than on the slowest rank (``pace``). Exact for equal stages and free transfers.
        """

    def longest_ways(self, works: Sequence[Work]) -> list[Counts]:  # noqa: ARG002  # ranks of one chunk
        """How often a micro-batch counts every chunk on the longest way through each of several pipelines.

        ``works``: time of every chunk, chunks per rank x ranks, in any unit. Empty where the closed form asks for none.
        """
        return []

    def pace(self, work: Work) -> float:
        """By how much uneven chunks make a micro-batch slower than on the slowest rank: 1 for equal chunks."""
        ways = [] if work.min() == work.max() else self.longest_ways([work])
        return pace_of(work, ways[0]) if ways else 1.0

    def least_bubble(self, at: Pipeline) -> Numbers:  # noqa: ARG002  # nothing is known of most schedules
        """Passes of a mean stage that the slowest rank is idle for at least, however unequal the stages."""
        return 0.0

    @abstractmethod
    def microbatches_in_flight(self, at: Pipeline, rank: Numbers) -> Numbers:
        """Micro-batches whose activations ``rank`` keeps at its peak, in units of its whole stage."""

    def ends_in_flight(self, at: Pipeline) -> Numbers | None:  # noqa: ARG002
        """Of these on the last rank, the ones that have passed the model's last chunk; None: as many."""
        return None

    @abstractmethod
    def events(self, pp: int, vp: int, num_microbatches: int, group_size: int) -> tuple[tuple[Pass, ...], ...]:
        """The passes of every rank in the order in which it runs them."""


def numbered(order: str) -> tuple[Pass, ...]:
    """The passes of one rank, each with the next micro-batch of its kind and chunk.

    ``F1``: forward pass of chunk 1; ``B1``: input gradient; ``BW1``: both gradients; ``W1``: the oldest weight gradient
    of chunk 1 that waits; ``W``: the oldest of either chunk; ``+`` joins passes to one block.
    """
    passes: list[Pass] = []
    counts: Counter[tuple[str, int]] = Counter()
    waiting: list[tuple[int, int]] = []
    for block in order.split():
        *first, last = block.split("+")
        passes += [_next(token, counts, waiting)._replace(joined=True) for token in first]
        passes.append(_next(last, counts, waiting))
    return tuple(passes)


def _next(token: str, counts: Counter[tuple[str, int]], waiting: list[tuple[int, int]]) -> Pass:
    kind = cast("Kind", token.rstrip("01"))
    if kind == "W":
        oldest = next(one for one in waiting if token in {"W", f"W{one[0]}"})
        waiting.remove(oldest)
        return Pass(kind, *oldest)
    chunk = int(token[-1])
    microbatch = counts[kind[0], chunk]
    counts[kind[0], chunk] += 1
    if kind == "B":
        waiting.append((chunk, microbatch))
    return Pass(kind, chunk, microbatch)

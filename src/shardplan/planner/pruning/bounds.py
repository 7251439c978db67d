r"""What plans take and need at least, found before their states, their memory and most of their pipeline are priced.

Three bounds of a step. Of all plans of a point, the micro-batches on a mean stage, with the bubble b that every
pipeline of such stages has at least,

.. math:: \frac{M + b}{p} \sum_r t_r

of those of a kind of sharding, what they exchange in every micro-batch, as if all work ran at the same time,

.. math:: \frac{M}{p} \sum_r s_r

and of a pipeline, the micro-batches on its slowest stage with its bubble (``pricing.pairs.least_times``), which is
closer and takes longer. All leave out what states exchange once a step, and the update, which only add to it. A search
may leave out plans whose bound is above the slowest step of use to it.

And one of the memory, told by the first stage of a pipeline and by a mean one, whatever its chunks. The first stage
holds no less than the emptiest first stage of its depth, and keeps no fewer micro-batches than with one chunk; the
fullest stage has no less than the mean of all p has of states and of one micro-batch,

.. math:: \max\left(s_1 + a_1,\; \frac{s + a}{p},\; u_1\right)

bytes with states s, activations a and all there is in the update u. Found for any number of chunks, kinds of stage and
compositions at once, it tells the plans that can fit from most others.

What states add to a step at least, before any stage of a pipeline is priced, has two parts. Sharded states are
exchanged in every micro-batch; of T seconds in all p stages together, F seconds of computation hide no more than the
share w of them, so that on a mean stage

.. math:: \frac{M}{p} \max(T - w F,\; c\,T)

comes on top of its M micro-batches. Once a step the first stage reduces its gradients, gathers its parameters and
updates them. It holds no less than the emptiest first stage of its depth, and has no more to hide an exchange behind
than the fullest. With v chunks per rank, :math:`2 \le v \le V`, that run g micro-batches each in turn, there shows of
an exchange of t seconds

.. math:: \max\left(\frac{t - w f}{V},\; t - g\,w f,\; c\,t\right)

at least (``costs.overlap.exposed_with_chunks``), with f seconds of computation in one pass.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardplan.base.arrays import Numbers, different, gather, is_zero
from shardplan.estimation.charge import held_in_update, least_beside_activations, least_peak_of
from shardplan.estimation.layout import whole_model
from shardplan.estimation.load import StageStates, StageWork
from shardplan.estimation.parts.pipelines import bubble_of_equal
from shardplan.estimation.pricing import parameters_of_parts
from shardplan.estimation.question import Question
from shardplan.estimation.stage_memory import activation_memory, waiting_bytes
from shardplan.estimation.step import straggler_factor, whole_step
from shardplan.estimation.times import once_window, sharding_window
from shardplan.inputs.plan import Offload, Plan
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.physics.costs.host import exposed
from shardplan.physics.memory import model_states, update_bytes
from shardplan.physics.schedules.pipeline import least_bubble
from shardplan.physics.workload.copies import LEAST_IN_PANELS
from shardplan.planner.pricing.tables import Tables

ROUNDING = 1e-9
"""Share by which a bound may exceed the time that it bounds: sums in another order."""


def bound_and_promise(tables: Tables) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The first bound of all points, and about what their fastest plans take: it with the bubble of equal stages. [s]

    The latter is no bound where stages are unequal and micro-batches few. It decides which plans are looked at first.
    """
    points, slots = np.arange(tables.family.num_points), np.arange(len(tables.family.policies))
    numbers, least = tables.numbers.with_most_chunks(points, slots), tables.least_passes_at(points, slots)
    passes = numbers.num_microbatches
    bubble = (passes + bubble_of_equal(numbers)) / (passes + least_bubble(numbers))
    found = (whole_step(tables.question, each) for each in (least, least * bubble))
    bound, promise = (np.broadcast_to(each, (*np.shape(each)[:-2], len(slots), len(points))) for each in found)
    return bound, promise


def least_by_software(tables: Tables, *, tp: float, ep: float) -> NDArray[np.float64]:
    """A bound of all points of a whole family under other software, which leaves these shares of exchanges. [s]"""
    shape = len(tables.family.policies), tables.family.num_points
    return np.broadcast_to(whole_step(tables.question, tables.least_computing(tp, ep)), shape)


def least_shares(whole: Tables, part: Tables) -> dict[str, float]:
    r"""Shares of the exchanges of a whole family that show at least where a part runs by other software.

    Of exchanges of tensor parallelism that overlap with products :math:`f + (1 - f) c` (``exposed_with_products``), of
    experts' exchanges that overlap with another micro-batch c; none of these where the part sends less. Copies around
    the former are left in no smaller share than ``LEAST_IN_PANELS``.
    """
    profile, own, others = part.question.profile, whole.family.switches, part.family.switches
    hidden, panel = float(np.min(profile.hidden_slowdown)), float(np.min(profile.tp_fill))
    same_tp, same_ep = (own.get(name) == others.get(name) for name in ("overlap_tp", "overlap_ep"))
    sends_less = own.get("moe_dispatcher") == "alltoall" != others.get("moe_dispatcher")
    shown = panel + (1 - panel) * hidden
    if part.question.job.software.tp_overlaps == "one_product":
        shown = min(shown, LEAST_IN_PANELS)
    return {
        "tp": 1.0 if same_tp else shown,
        "ep": 0.0 if sends_less else 1.0 if same_ep else hidden,
    }


def least_of_exchanges(tables: Tables) -> NDArray[np.float64]:
    """The second bound, by kind of sharding and point: what hides exchanges is work, which takes no less time. [s]"""
    family = tables.family
    time = gather(tables.sharding_time, tables.layout_keys[1])
    passes = tables.numbers.num_microbatches / family.points["pp"]
    return np.broadcast_to(whole_step(tables.question, passes * time), (len(family.shardings), family.num_points))


def least_bytes(question: Question, offload: Offload) -> float:
    r"""What the fullest accelerator holds at least of weights, gradients and optimizer states, s bytes in all.

    .. math:: s / N + b

    with b bytes of the framework. Someone holds each of them, the fullest accelerator no less than the mean. What is
    gathered or kept comes on top. Gradients count where there is room for them all the time
    (``Software.frees_gradients``), or where the update needs more than the states; what it needs counts as one of them.
    """
    job, numbers = question.job, PlanNumbers.of(Plan(offload=offload), 1, question.job)
    parts, whole = parameters_of_parts(question, numbers), whole_model(question.model)
    states = parts.map(lambda held: model_states(held, job, numbers))
    update = float(parts.total(whole, lambda held: update_bytes(held, job, numbers)))
    kept = 1.0 if update or not job.software.frees_gradients else 0.0
    held = float(states.total(whole, lambda each: each.weights + each.optimizer + kept * each.gradients))
    return (update + held) / question.num_accelerators + float(question.framework_bytes)


Index = NDArray[np.intp]


def first_stages(tables: Tables) -> list[Index]:
    """For every depth the compositions of first stages."""
    layouts = tables.layouts
    return [different(each) for each in np.split(layouts.composition[:, 0], layouts.first[1:])]


class FirstStages:
    """The emptiest first stages of every depth, with what their states cost."""

    def __init__(self, tables: Tables) -> None:
        self._tables, self._key = tables, tables.layout_keys[1]
        self._held = [_emptiest(tables, each) for each in first_stages(tables)]
        depth = tables.family.points["depth"]
        keys = [different(self._key[depth == number]) for number in range(len(tables.family.depths))]
        pairs = [*zip(self._held, keys, strict=True)]
        rows = np.concatenate([np.tile(own, len(held)) for held, own in pairs])
        self._order = np.argsort(rows, kind="stable")
        self._starts = np.flatnonzero(np.diff(rows[self._order], prepend=-1))
        self.charge = tables.charge(np.concatenate([np.repeat(held, len(own)) for held, own in pairs]), rows)

    def least(self, values: Numbers) -> NDArray[np.float64]:
        """The least of values of these stages, by sharding and point; systems side by side in front."""
        array = np.asarray(values, dtype=np.float64)
        shape = *array.shape[:-2], len(self._tables.family.shardings), len(self._order)
        whole = np.broadcast_to(array, shape).take(self._order, axis=-1)
        found: NDArray[np.float64] = np.minimum.reduceat(whole, self._starts, axis=-1).take(self._key, axis=-1)
        return found

    @property
    def least_states(self) -> NDArray[np.float64]:
        """What plans need at least, whatever activations they keep, by sharding and point. [bytes]"""
        return self.least(least_peak_of(self._tables.question, self.charge))

    def least_memory(self) -> NDArray[np.float64]:
        """What plans need at least, by slot of recomputation and point; infinite where none is valid. [bytes]"""
        question, family = self._tables.question, self._tables.family
        states = self._of_valid(self.least(least_beside_activations(question, self.charge)))
        least = [states + self._least_kept(), self._of_mean_stage()]
        if not is_zero(self.charge.update_bytes):
            least.append(self._of_valid(self.least(held_in_update(question, self.charge)))[None])
        return np.where(family.recomputes, np.maximum.reduce(np.broadcast_arrays(*least)), np.inf)

    def _of_valid(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The least of all kinds of sharding that are valid, by point."""
        return np.where(self._tables.family.shards, values, np.inf).min(axis=0)

    def _of_mean_stage(self) -> NDArray[np.float64]:
        """States and activations of one micro-batch, all stages having the same, by slot and point. [bytes]"""
        tables, job = self._tables, self._tables.question.job
        (stage, work), points = tables.whole, self._tables.layout_keys[0]
        numbers = tables.numbers.under_every_sharding(tables.numbers.of(points, None), points)
        states = model_states(StageStates.of(stage, tables.states).sum, job, numbers)
        held = states.weights + states.optimizer + (0.0 if job.software.frees_gradients else states.gradients)
        shape = len(tables.family.shardings), len(points)
        held = self._of_valid(np.broadcast_to(held, shape)[:, self._key])
        if self._keeps_activations:
            held = held + gather(waiting_bytes(tables.question, work, 1.0, 1.0), tables.block_of_point)
        found: NDArray[np.float64] = held / tables.family.points["pp"] + float(tables.question.framework_bytes)
        return found

    @property
    def _keeps_activations(self) -> bool:
        """Whether activations count: not where they wait in host memory, nor under schedules that a plan names.

        Then fewer layers or chunks may keep more.
        """
        switches = self._tables.family.switches
        return switches.get("offload") != "activations" and switches.get("schedule") is None

    def _least_kept(self) -> NDArray[np.float64]:
        """Activations of the first stage at least, by slot and point. [bytes]"""
        tables = self._tables
        if not self._keeps_activations:
            return np.zeros(tables.family.recomputes.shape)
        widest = max(map(len, self._held))
        firsts = np.stack([np.resize(each, widest) for each in self._held], axis=-1)
        slots, points = map(np.arange, tables.family.recomputes.shape)
        numbers = replace(tables.numbers.at(points, slots), vp=1.0)
        every = (tables.layouts.composed(first[tables.family.points["depth"]]) for first in firsts)
        blocks = tables.blocks.map(lambda part: part.memory)
        works = ((stage, StageWork.of(stage, blocks.at(tables.block_of_point, stage))) for stage in every)
        kept = [activation_memory(tables.question, numbers, tables.around, *each).total for each in works]
        return np.minimum.reduce([np.broadcast_to(each, tables.family.recomputes.shape) for each in kept])


def _emptiest(tables: Tables, compositions: Index) -> Index:
    """Those of some compositions that hold no less of everything than another one are left out."""
    held = tables.layouts.compositions[:, compositions]
    less = (held[:, :, None] <= held[:, None, :]).all(axis=0) & (held[:, :, None] < held[:, None, :]).any(axis=0)
    return compositions[~less.any(axis=0)]


Seconds = NDArray[np.float64]


class LeastOfStates(NamedTuple):
    """What states cost a step at least, by sharding and point; systems side by side in front. [s]

    Infinite where a kind of sharding is not valid, or where states alone take too much memory.
    """

    sharded: Seconds
    """Exchanges in every micro-batch, on a mean stage."""
    single: Seconds
    """What comes once a step, with one chunk per rank."""
    several: Seconds
    """The same with several."""

    def at(self, points: Index) -> LeastOfStates:
        """At some of the points."""
        return LeastOfStates(*(each[..., points] for each in self))

    @property
    def least(self) -> Seconds:
        """Whatever the chunks per rank."""
        return self.sharded + np.minimum(self.single, self.several)


def least_of_states(tables: Tables, most_bytes: float, first: FirstStages | None = None) -> LeastOfStates:
    """That of all plans of a family that need no more than ``most_bytes``; ``first``: its first stages, if known."""
    first = first or FirstStages(tables)
    question, profile = tables.question, tables.question.profile
    numbers = tables.numbers.with_most_chunks(np.arange(tables.family.num_points), np.arange(1))
    work, block = tables.whole[1].sum, tables.block_of_point
    free = _row(work.free_forward, block) + _row(work.free_backward, block) + _row(work.free_recomputed, block)
    window = sharding_window(question, numbers) * free
    time = np.asarray(gather(tables.sharding_time, tables.layout_keys[1]))
    sharded = np.asarray(numbers.num_microbatches / numbers.pp * exposed(time, window[..., None, :], profile))
    charge = first.charge
    update, *exchanges = (first.least(each) for each in (charge.update_time, charge.gather_time, charge.reduce_time))
    windows = [once_window(question, numbers) * each[..., None, :] for each in _free_of_first_stages(tables)]
    group = np.minimum(numbers.microbatch_group_size, numbers.num_microbatches)
    may_fit = tables.family.shards & (first.least_states <= most_bytes * (1 + ROUNDING))
    single = several = np.where(may_fit, update, np.inf)
    for time, own in zip(exchanges, windows, strict=True):
        single = single + exposed(time, own, profile)
        longest = np.maximum((time - own) / numbers.vp, time - group * own)
        several = several + np.maximum(longest, profile.hidden_slowdown * time)
    factor, shape = straggler_factor(question), np.broadcast_shapes(sharded.shape, single.shape)
    return LeastOfStates(*(np.broadcast_to(factor * each, shape) for each in (sharded, single, several)))


def _free_of_first_stages(tables: Tables) -> tuple[Seconds, Seconds]:
    """Computation of the fullest first stage of every depth that can hide exchanges, forward and backward. [s]"""
    most = np.stack([tables.layouts.compositions[:, each].max(axis=1) for each in first_stages(tables)], axis=-1)
    counts, block = most[:, tables.family.points["depth"]], tables.block_of_point
    parts = [*tables.blocks.layers, tables.blocks.embedding, tables.blocks.head, tables.blocks.mtp]
    forward = [_row(part.free_forward, block) for part in parts]
    backward = [_row(part.free_backward, block) + _row(part.free_recomputed, block) for part in parts]
    total = [sum(count * each for count, each in zip(counts, of, strict=True)) for of in (forward, backward)]
    return np.asarray(total[0]), np.asarray(total[1])


def _row(values: Numbers, index: Index) -> Seconds:
    """Values at some positions of the last axis, the largest of all slots of recomputation before it."""
    array = np.asarray(values, dtype=np.float64)
    array = array.max(axis=-2) if array.ndim > 1 else array
    return array[..., index] if array.ndim else array

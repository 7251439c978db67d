r"""What states add to a step at least, found before any stage of a pipeline is priced.

Two parts. Sharded states are exchanged in every micro-batch; of T seconds in all p stages together, F seconds of
computation hide no more than the share w of them, so that on a mean stage

.. math:: \frac{M}{p} \max(T - w F,\; c\,T)

comes on top of its M micro-batches. Once a step the first stage reduces its gradients, gathers its parameters and
updates them. It holds no less than the emptiest first stage of its depth, and has no more to hide an exchange behind
than the fullest. With v chunks per rank, :math:`2 \le v \le V`, that run g micro-batches each in turn, there shows of
an exchange of t seconds

.. math:: \max\left(\frac{t - w f}{V},\; t - g\,w f,\; c\,t\right)

at least (``costs.overlap.exposed_with_chunks``), with f seconds of computation in one pass.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardplan.base.arrays import Numbers, gather
from shardplan.estimation.step import straggler_factor
from shardplan.estimation.times import once_window, sharding_window
from shardplan.inputs.profile import Profile
from shardplan.physics.costs.host import exposed
from shardplan.planner.pricing.tables import Tables
from shardplan.planner.pruning.bounds import ROUNDING, FirstStages, first_stages

Index = NDArray[np.intp]
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
    window = sharding_window(question, numbers) * _free_of_all(tables)
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
        several = several + _with_several(time, own, numbers.vp, group, profile)
    factor, shape = straggler_factor(question), np.broadcast_shapes(sharded.shape, single.shape)
    return LeastOfStates(*(np.broadcast_to(factor * each, shape) for each in (sharded, single, several)))


def _free_of_all(tables: Tables) -> Seconds:
    """Computation of all stages together in one micro-batch that can hide exchanges, at most. [s]"""
    work, block = tables.whole[1].sum, tables.block_of_point
    return _row(work.free_forward, block) + _row(work.free_backward, block) + _row(work.free_recomputed, block)


def _with_several(time: Seconds, window: Seconds, most: Numbers, group: Numbers, profile: Profile) -> Seconds:
    """What shows of an exchange at least, with two chunks per rank or more, up to ``most``."""
    longest = np.maximum((time - window) / most, time - group * window)
    return np.maximum(longest, profile.hidden_slowdown * time)


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

r"""What states add to a step at least, and the memory that they take, found before any stage of a pipeline is priced.

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

from shardplan.arrays import Numbers, different, gather
from shardplan.costs.overlap import exposed
from shardplan.estimation.step import least_peak_of, straggler_factor
from shardplan.estimation.times import once_window, sharding_window
from shardplan.inputs.profile import Profile
from shardplan.planner.pricing.tables import Tables
from shardplan.planner.pruning.bounds import ROUNDING

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


def least_of_states(tables: Tables, most_bytes: float) -> LeastOfStates:
    """That of all plans of a family that need no more than ``most_bytes``."""
    question, profile = tables.question, tables.question.profile
    numbers = tables.numbers.with_most_chunks(np.arange(tables.family.num_points), np.arange(1))
    window = sharding_window(question, numbers) * _free_of_all(tables)
    time = np.asarray(gather(tables.sharding_time, tables.layout_keys[1]))
    sharded = np.asarray(numbers.num_microbatches / numbers.pp * exposed(time, window[..., None, :], profile))
    held, update, *exchanges = _of_first_stages(tables)
    windows = [once_window(question, numbers) * each[..., None, :] for each in _free_of_first_stages(tables)]
    group = np.minimum(numbers.microbatch_group_size, numbers.num_microbatches)
    may_fit = tables.family.shards & (held <= most_bytes * (1 + ROUNDING))
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


def _firsts(tables: Tables) -> list[Index]:
    """For every depth the compositions of first stages."""
    layouts = tables.layouts
    of_depths = np.split(layouts.composition[:, 0], layouts.first[1:])
    return [different(each) for each in of_depths]


def _emptiest(tables: Tables, compositions: Index) -> Index:
    """Those of some compositions that hold no less of everything than another one are left out."""
    held = tables.layouts.compositions[:, compositions]
    less = (held[:, :, None] <= held[:, None, :]).all(axis=0) & (held[:, :, None] < held[:, None, :]).any(axis=0)
    return compositions[~less.any(axis=0)]


def _of_first_stages(tables: Tables) -> list[Seconds]:
    """Bytes, update, gathering and reduction of the emptiest first stage of every depth, by sharding and point."""
    key = tables.layout_keys[1]
    keys = [different(key[tables.family.points["depth"] == depth]) for depth in range(len(tables.family.depths))]
    firsts = [_emptiest(tables, each) for each in _firsts(tables)]
    compositions = np.concatenate([np.repeat(held, len(own)) for held, own in zip(firsts, keys, strict=True)])
    rows = np.concatenate([np.tile(own, len(held)) for held, own in zip(firsts, keys, strict=True)])
    charge, order = tables.charge(compositions, rows), np.argsort(rows, kind="stable")
    starts = np.flatnonzero(np.diff(rows[order], prepend=-1))

    def least(values: Numbers) -> Seconds:
        array = np.asarray(values, dtype=np.float64)
        whole = np.broadcast_to(array, (*array.shape[:-2], len(tables.family.shardings), len(rows)))
        return np.minimum.reduceat(whole[..., order], starts, axis=-1)[..., key]

    held = least_peak_of(tables.question, charge)
    return [least(each) for each in (held, charge.update_time, charge.gather_time, charge.reduce_time)]


def _free_of_first_stages(tables: Tables) -> tuple[Seconds, Seconds]:
    """Computation of the fullest first stage of every depth that can hide exchanges, forward and backward. [s]"""
    most = np.stack([tables.layouts.compositions[:, each].max(axis=1) for each in _firsts(tables)], axis=-1)
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

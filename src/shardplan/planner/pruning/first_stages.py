r"""What plans need at least, told by the first stage of their pipeline whatever its chunks.

It holds no less than the emptiest first stage of its depth, and keeps no fewer micro-batches than with one chunk,

.. math:: \max(b + a,\; u)

bytes with its states b when activations a are there, and all there is in the update u. Kept for any number of chunks,
kinds of stage and compositions at once, it tells the plans that can fit from most others.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from shardplan.arrays import Numbers, different, is_zero
from shardplan.estimation.load import StageWork
from shardplan.estimation.stage_memory import activation_memory
from shardplan.estimation.step import held_in_update, least_beside_activations, least_peak_of
from shardplan.planner.pricing.tables import Tables

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
        self._rows = np.concatenate([np.tile(own, len(held)) for held, own in pairs])
        self.charge = tables.charge(np.concatenate([np.repeat(held, len(own)) for held, own in pairs]), self._rows)

    def least(self, values: Numbers) -> NDArray[np.float64]:
        """The least of values of these stages, by sharding and point; systems side by side in front."""
        order = np.argsort(self._rows, kind="stable")
        starts = np.flatnonzero(np.diff(self._rows[order], prepend=-1))
        array = np.asarray(values, dtype=np.float64)
        shape = *array.shape[:-2], len(self._tables.family.shardings), len(self._rows)
        whole = np.broadcast_to(array, shape)[..., order]
        return np.minimum.reduceat(whole, starts, axis=-1)[..., self._key]

    @property
    def least_states(self) -> NDArray[np.float64]:
        """What plans need at least, whatever activations they keep, by sharding and point. [bytes]"""
        return self.least(least_peak_of(self._tables.question, self.charge))

    def least_memory(self) -> NDArray[np.float64]:
        """What plans need at least, by slot of recomputation and point; infinite where none is valid. [bytes]"""
        question, shards = self._tables.question, self._tables.family.shards
        busy = np.where(shards, self.least(least_beside_activations(question, self.charge)), np.inf)
        kept = self._least_kept()
        if is_zero(self.charge.update_bytes):
            return busy.min(axis=0) + kept
        update = self.least(held_in_update(question, self.charge))
        return np.minimum.reduce([np.maximum(each + kept, own) for each, own in zip(busy, update, strict=True)])

    def _least_kept(self) -> NDArray[np.float64]:
        """Activations at least, by slot and point. [bytes]

        None where they wait in host memory, or where the schedule is another one: then fewer layers or chunks may keep
        more.
        """
        tables, switches = self._tables, self._tables.family.switches
        if switches.get("offload") == "activations" or switches.get("schedule") is not None:
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

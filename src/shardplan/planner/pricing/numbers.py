"""Points of a family in numbers, as the formulas read them: one column for each field that differs among them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardplan.arrays import one_number
from shardplan.estimation.question import Question
from shardplan.fields import dataclass, replace
from shardplan.inputs.plan import OP_SAC, RECOMPUTE_MODULES, recompute_modules
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.inputs.sharding import sharding_fields
from shardplan.planner.family import Family
from shardplan.planner.space import GRID


@dataclass(frozen=True, kw_only=True)
class PointNumbers:
    """Listed points of a family as numbers."""

    question: Question
    family: Family

    @cached_property
    def dp(self) -> NDArray[np.float64]:
        """Data-parallel degree of every point."""
        points = self.family.points
        return np.asarray(self.question.num_accelerators // (points["tp"] * points["cp"] * points["pp"]), dtype=float)

    @cached_property
    def num_microbatches(self) -> NDArray[np.float64]:
        """Micro-batches of a replica at every point."""
        return self.question.job.global_batch_size // (self.dp * self.family.points["micro_batch_size"])

    @cached_property
    def _columns(self) -> dict[str, NDArray[np.float64]]:
        """Fields of all points that the search combines freely."""
        return {name: self.family.points[name].astype(np.float64) for name in GRID}

    def by_placement(self, points: NDArray[np.intp]) -> Iterator[tuple[PlanNumbers, NDArray[np.intp]]]:
        """Listed points (sorted by placement) in numbers, those of each placement apart."""
        placements = self.family.points["placement"][points]
        for number, placement in enumerate(self.family.placements):
            part = points[placements == number]
            if len(part):
                yield replace(self.of(part, None), placement=placement), part

    def of(self, points: NDArray[np.intp], slots: NDArray[np.intp] | None) -> PlanNumbers:
        """Listed points in numbers; recomputation by slot, on an axis of its own."""
        columns = {name: values.take(points) for name, values in self._columns.items()}
        fields: dict[str, Any] = dict(columns)
        fields["dp"] = self.dp[points]
        fields["edp"] = self.question.num_accelerators // (columns["pp"] * columns["ep"] * columns["etp"])
        fields["num_microbatches"] = self.num_microbatches[points]
        fields["microbatch_group_size"] = self._one.microbatch_group_size if self._has_group else columns["pp"]
        if slots is not None:
            fields |= self._recompute_fields(points, slots)
        return replace(self._one, **fields)

    @cached_property
    def _one(self) -> PlanNumbers:
        """Any plan of the family in numbers, for the switches, which are the same in all."""
        plan = self.family.plan(0, 0, self.family.vps[int(self.family.points["depth"][0])][0], 0)
        plan = replace(plan, recompute="none", recompute_num_layers=None)
        return PlanNumbers.of(plan, self.question.num_accelerators, self.question.job)

    @property
    def _has_group(self) -> bool:
        return self.family.switches.get("microbatch_group_size") is not None

    def _recompute_fields(self, points: NDArray[np.intp], slots: NDArray[np.intp]) -> dict[str, Any]:
        policies = [self.family.policies[slot] for slot in slots]
        modules = [recompute_modules(policy) for policy in policies]
        return {
            "recompute": {
                name: np.asarray([name in listed for listed in modules])[:, None]
                for name in (*RECOMPUTE_MODULES, OP_SAC)
            },
            "recompute_full": np.asarray([policy == "full" for policy in policies])[:, None],
            "recompute_num_layers": self._num_layers[self._depths_of(points)][:, slots].T,
        }

    def _depths_of(self, points: NDArray[np.intp]) -> NDArray[np.intp]:
        """Depth of every point; of one where all have the same."""
        depths = self.family.points["depth"][points]
        return depths[:1] if depths.min() == depths.max() else depths

    @cached_property
    def _num_layers(self) -> NDArray[np.float64]:
        """Layers to which recomputation applies, by depth and slot."""
        return np.asarray([[np.inf if n is None else n for n in layers] for layers in self.family.layers])

    def with_most_chunks(self, points: NDArray[np.intp], slots: NDArray[np.intp]) -> PlanNumbers:
        """Plans of these points in numbers, with the largest number of chunks per rank that each may have."""
        most = np.asarray([max(vps) for vps in self.family.vps])[self.family.points["depth"][points]]
        chunks = np.where(self.family.interleaves[points], most, 1).astype(np.float64)
        return replace(self.at(points, slots), vp=one_number(chunks))

    def at(self, points: NDArray[np.intp], slots: NDArray[np.intp]) -> PlanNumbers:
        """Plans of these points in numbers, their chunks per rank left open; what all have in common is one number."""
        numbers = self.of(points, slots)
        columns: dict[str, Any] = {
            name: one_number(getattr(numbers, name)) for name in (*GRID, "dp", "edp", "num_microbatches")
        }
        group = numbers.microbatch_group_size if self._has_group else columns["pp"]
        layers = one_number(numbers.recompute_num_layers)
        return replace(numbers, **columns, microbatch_group_size=group, recompute_num_layers=layers)

    def with_chunks(self, numbers: PlanNumbers, chunks: NDArray[np.float64]) -> PlanNumbers:
        """The same plans with these chunks per rank."""
        vp = one_number(chunks)
        if self.family.switches.get("overlap_pp") is not None:
            return replace(numbers, vp=vp)
        several = np.greater(vp, 1)
        is_one = several.all() == several.any()
        return replace(numbers, vp=vp, overlap_pp=bool(several.any()) if is_one else several)

    def under_every_sharding(self, numbers: PlanNumbers, points: NDArray[np.intp]) -> PlanNumbers:
        """The same under every kind of sharding, on an axis of its own."""
        kinds = np.asarray([kind for kind, _ in self.family.shardings])[:, None]
        return self.sharded(numbers, kinds, self.family.sharding_degrees[:, points])

    def sharded(self, numbers: PlanNumbers, kinds: NDArray[np.str_], degrees: NDArray[np.int64]) -> PlanNumbers:
        """The same with these kinds of sharding over this number of ranks (0: all)."""
        software = self.question.job.software
        found = sharding_fields(kinds, degrees, software, replicas=numbers.replicas, pp=numbers.pp)
        return replace(numbers, **found)

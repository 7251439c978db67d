"""A measured step: every pass of every rank with its time on one clock, and the term that each kernel belongs to.

A kernel's term follows from its name and from the group of ranks in which it communicates.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from shardplan.base.fields import dataclass
from shardplan.estimation.parts.terms import keys_of
from shardplan.physics.schedules.base import ChunkTimes, Pipeline
from shardplan.physics.schedules.order_file import OrderFile, StagePass
from shardplan.simulation.case import Seconds
from shardplan.simulation.events import KIND_OF_PIECE
from shardplan.simulation.measured.ranks import (
    MOST_PASSES,
    Layout,
    MeasuredRank,
    clock_shifts,
    with_split_gradients,
    wrong,
)
from shardplan.simulation.pieces import BACKWARD, FORWARD, INPUT_GRADIENT, KINDS, NOTHING, WEIGHT_GRADIENT, Pieces
from shardplan.simulation.timeline import COMPUTE, Events, StepTimeline, stage_names

OUT_OF_ORDER: Final = "No shift of the clocks makes every pass start after what it needs. The times are as given."


class MeasuredOrder(OrderFile):
    """The order in which the ranks ran their passes."""

    name = "measured"
    title = "Measured order"

    def __init__(self, rows: Sequence[Sequence[StagePass]], label: str, names: tuple[str, ...]) -> None:
        self.names = names
        super().__init__(rows, label)

    def rank_name(self, rank: int) -> str:
        """Name of a rank with its file."""
        return self.names[rank]


@dataclass(frozen=True, kw_only=True)
class MeasuredStep:
    """Passes of one step, in the order in which each rank started them."""

    source: str
    """What the files are."""
    step: str
    """Number of the step in the files."""
    schedule: MeasuredOrder
    at: Pipeline
    pieces: Pieces
    start: Seconds
    """Start of every pass, counted from the first of all. [s]"""
    end: Seconds
    total_times: tuple[float, ...] | None
    """Time of the whole pipeline call on every rank, if the files have it. [s]"""
    memory_bytes: tuple[float, ...] | None
    """Peak memory of every rank, if the files have it. [bytes]"""
    notes: tuple[str, ...] = ()
    """Assumptions."""

    @property
    def num_ranks(self) -> int:
        """Ranks of the pipeline."""
        return int(self.at.pp)

    @property
    def duration(self) -> Seconds:
        """Duration of every pass. [s]"""
        return self.end - self.start

    @cached_property
    def pipeline_time(self) -> float:
        """The longest time from the first pass of a rank to the end of its last. [s]"""
        first = self.start[self.pieces.bounds[:-1]]
        return float(np.max(np.maximum.reduceat(self.end, self.pieces.bounds[:-1]) - first))

    @cached_property
    def timeline(self) -> StepTimeline:
        """The step in the form that pictures and trace files show."""
        num = len(self.start)
        return StepTimeline(
            title=f"Measured step {self.step}, {self.num_ranks} stages, {int(self.at.num_microbatches)} micro-batches",
            rank_names=stage_names(self.num_ranks),
            events=Events(
                rank=self.pieces.rank,
                lane=np.full(num, COMPUTE),
                kind=KIND_OF_PIECE[self.pieces.kind],
                chunk=self.pieces.chunk,
                microbatch=self.pieces.microbatch,
                start=self.start,
                duration=self.duration,
                critical=np.zeros(num, dtype=bool),
            ),
            step_time=self.pipeline_time,
            pipeline_time=self.pipeline_time,
            slowest=int(np.argmax(self.busy_times)),
        )

    @cached_property
    def busy_times(self) -> Seconds:
        """Time of every rank in which one of its passes runs. [s]"""
        bounds = self.pieces.bounds
        return np.array([covered(self.start[a:b], self.end[a:b]) for a, b in pairwise(bounds)])

    @cached_property
    def stage_times(self) -> ChunkTimes:
        """Median time of the passes of every chunk, and transfer times that do not depend on clocks.

        A median, since a pass in which a rank waits for another would lengthen a mean. A transfer is half of the
        shortest round trip: the least gap of the forward passes plus that of the backward passes, in which a shift of
        one clock cancels. If a rank never waits for its input, the gap is longer than the transfer, so no transfer is
        larger than the median of all.
        """
        pieces, num = self.pieces, int(self.at.pp) * int(self.at.vp)

        def of(*kinds: int) -> Seconds:
            mine = np.isin(pieces.kind, kinds)
            position, took = pieces.position[mine], self.duration[mine]
            own = (took[position == one] for one in range(num))
            return np.array([np.median(each) if len(each) else 0.0 for each in own])

        return ChunkTimes(
            forward=of(FORWARD),
            input_gradient=of(INPUT_GRADIENT, BACKWARD),
            weight_gradient=of(WEIGHT_GRADIENT),
            transfer=self._transfers(num),
        )

    def _transfers(self, num: int) -> Seconds:
        pieces = self.pieces
        (waits,) = np.nonzero((pieces.after != NOTHING) & (pieces.edge != NOTHING))
        gaps = np.full((2, num), np.inf)
        way = (pieces.kind[waits] != FORWARD).astype(np.int64)
        np.minimum.at(gaps, (way, pieces.edge[waits]), self.start[waits] - self.end[pieces.after[waits]])
        both = np.maximum(gaps.sum(axis=0) / 2, 0.0)
        known = np.isfinite(both)
        usual = float(np.median(both[known])) if known.any() else 0.0
        return np.where(known, np.minimum(both, usual), 0.0)


def measured_step(ranks: Sequence[MeasuredRank], *, source: str, step: str, layout: Layout | None) -> MeasuredStep:
    """The step of ``ranks``. ``layout`` is that of the plan or of the files; None if files number every pass.

    Raises ``InputError`` if passes are missing, run twice, or do not match the layout.
    """
    ordered = _checked_ranks(ranks)
    notes: list[str] = []
    if not all(one.is_numbered for one in ordered):
        if layout is None:
            raise wrong(
                f"{ordered[0].label} does not say which chunk and micro-batch its passes are of",
                "give the plan that was measured with --against, or keep config.json next to the files",
            )
        layout.check(len(ordered), int(layout.at.vp), int(layout.at.num_microbatches))
        ordered = layout.numbered(ordered)
        notes.append(
            f"Passes are numbered in the order of schedule {layout.schedule.name}, since the files do not number them."
        )
    vp, num_microbatches = (
        1 + max(int(getattr(one, name).max()) for one in ordered) for name in ("chunk", "microbatch")
    )
    if layout is None:  # the usual layout for these numbers of chunks and micro-batches
        layout = Layout.usual(len(ordered), vp, num_microbatches, "the files")
    else:
        layout.check(len(ordered), vp, num_microbatches)
    return _assembled_step(ordered, layout, source=source, step=step, notes=notes)


def _checked_ranks(ranks: Sequence[MeasuredRank]) -> list[MeasuredRank]:
    """The ranks in order. Raises ``InputError`` if a rank is missing, repeated, or has no passes."""
    ordered = sorted((one.checked() for one in ranks), key=lambda one: one.rank)
    for number, one in enumerate(ordered):
        if number and one.rank == ordered[number - 1].rank:
            raise wrong(
                f"rank {one.rank} is there twice: {ordered[number - 1].label} and {one.label}",
                "give one file for every pipeline rank",
            )
        if one.rank != number:
            raise wrong(f"rank {number} is missing", "give the files of all pipeline ranks, numbered from 0")
        if not len(one.kind):
            raise wrong(f"{one.label} has no passes")
    if sum(len(one.kind) for one in ordered) > MOST_PASSES:
        raise wrong(f"the step has more than {MOST_PASSES:,} passes", "give a step with fewer micro-batches")
    return ordered


def _assembled_step(
    ranks: Sequence[MeasuredRank], layout: Layout, *, source: str, step: str, notes: list[str]
) -> MeasuredStep:
    ranks = [_sorted(one) for one in ranks]
    columns = [np.stack([one.kind, one.chunk, one.microbatch], axis=1).tolist() for one in ranks]
    rows = [
        [
            StagePass(stage=stages[chunk], kind=KINDS[kind], microbatch=number, joined=False)
            for kind, chunk, number in own
        ]
        for own, stages in zip(columns, layout.stages(), strict=True)
    ]
    schedule = MeasuredOrder(rows, "the measured step", tuple(one.label for one in ranks))
    pieces = Pieces.of(schedule, layout.at, schedule.orders)
    start, end, clock_notes = _on_one_clock(ranks, pieces)
    totals, memory = [one.total_time for one in ranks], [one.memory_bytes for one in ranks]
    return MeasuredStep(
        source=source,
        step=step,
        schedule=schedule,
        at=layout.at,
        pieces=pieces,
        start=start,
        end=end,
        total_times=tuple(each for each in totals if each is not None) if None not in totals else None,
        memory_bytes=tuple(each for each in memory if each is not None) if None not in memory else None,
        notes=(*notes, *clock_notes),
    )


def _sorted(one: MeasuredRank) -> MeasuredRank:
    """The passes in the order of their starts, with gradients split if the rank has weight gradients."""
    by_time = np.lexsort((one.end, one.start))
    columns = {name: getattr(one, name)[by_time] for name in ("kind", "chunk", "microbatch", "start", "end")}
    kind = with_split_gradients(columns["kind"], columns["chunk"], columns["microbatch"])
    return replace(one, **{**columns, "kind": kind})


def _on_one_clock(ranks: Sequence[MeasuredRank], pieces: Pieces) -> tuple[Seconds, Seconds, list[str]]:
    """Start and end of every pass from the first one of all, and notes on the clocks."""
    start, end = np.concatenate([one.start for one in ranks]), np.concatenate([one.end for one in ranks])
    shifts = clock_shifts(pieces, start, end)
    notes = [OUT_OF_ORDER] if shifts is None else []
    if shifts is not None and shifts.any():
        notes.append(
            f"The clocks of {int(np.count_nonzero(shifts))} ranks were shifted, by {1e3 * float(shifts.max()):.3g} ms "
            "at most, so that no pass starts before what it needs."
        )
    moved = np.zeros(len(ranks)) if shifts is None else shifts
    start, end = start + moved[pieces.rank], end + moved[pieces.rank]
    return start - start.min(), end - start.min(), notes


def covered(start: Seconds, end: Seconds) -> float:
    """Seconds during which at least one of the intervals runs."""
    by_time = np.argsort(start, kind="stable")
    first, last = start[by_time], np.maximum.accumulate(end[by_time])
    before: NDArray[np.float64] = np.concatenate(([-np.inf], last[:-1]))
    return float(np.maximum(last - np.maximum(first, before), 0.0).sum())


MATMUL: Final = "matmul"
ATTENTION: Final = "attention"
MEMORY_BOUND: Final = "memory_bound"
OPTIMIZER: Final = "optimizer"
OFFLOAD: Final = "offload"
COMMUNICATION: Final = "communication"
"""Communication in a group of ranks that the trace does not name."""
IDLE: Final = "idle"
DIMENSIONS: Final = keys_of("communication")
COMPUTATION: Final = (MATMUL, ATTENTION, MEMORY_BOUND, OPTIMIZER)
"""Kernels that hide others: if several run at once, the time counts for the first in this order."""
CLASSES: Final = (*COMPUTATION, OFFLOAD, *DIMENSIONS, COMMUNICATION)
"""All kinds of work of an accelerator; a moment with several counts for the first of them."""

NAMES: Final = (
    (MEMORY_BOUND, re.compile(r"^triton_(?:poi|per|red)_")),
    (COMMUNICATION, re.compile(r"nccl|rccl|nvshmem|deep_ep|symm_mem|two_shot_all_reduce|one_shot_all_reduce")),
    (ATTENTION, re.compile(r"flash|fmha|sdpa|attn|attention|cudnn::fusion|_dkdv|dq_dk_dv|mha_(?:fwd|bwd)")),
    (OPTIMIZER, re.compile(r"adam|multi_tensor_apply|multi_tensor_l2norm|lpnorm_cleanup|lamb_|muon|fused_?sgd")),
    (
        MATMUL,
        re.compile(r"gemm|gemv|nvjet|cutlass|cublas|splitk|xmma|cijk_|matmul|\bmm_|_mm_|tensorop|wgmma|grouped_mm"),
    ),
)
"""Parts of kernel names in lower case, tried in this order; kernels that match none are memory-bound. Pointwise passes
and reductions of Inductor (triton_poi, per and red) are named after what they are fused with, so they come first.
cuBLAS and cuBLASLt (gemm, nvjet, xmma, splitK), CUTLASS, rocBLAS and hipBLASLt (Cijk), FlashAttention, cuDNN and
PyTorch's memory-efficient attention (fmha, sdpa), NCCL and RCCL (nccl), NVSHMEM and DeepEP.
"""

GROUPS: Final = (
    ("pp_communication", re.compile(r"pipeline|(?:^|_)pp(?:_|$)")),
    ("ep_communication", re.compile(r"expert_model|(?:^|_)ep(?:_|$)")),
    ("dp_communication", re.compile(r"data_parallel|(?:^|_)(?:dp|fsdp|efsdp)(?:_|$)|dp_shard|dp_replicate")),
    ("cp_communication", re.compile(r"context_parallel|(?:^|_)cp(?:_|$)")),
    ("tp_communication", re.compile(r"tensor|(?:^|_)e?tp(?:_|$)")),
)
"""Parts of the description of a process group, in lower case: Megatron's (TENSOR_MODEL_PARALLEL_GROUP) and the names of
a device mesh (mesh_dp_shard_cp).
"""
SENDS: Final = re.compile(r"sendrecv|ncclsend|ncclrecv|(?:^|_)(?:send|recv)(?:$|_)")
COLLECTIVES: Final = (
    ("all-reduce", re.compile(r"all_?reduce")),
    ("all-gather", re.compile(r"all_?gather")),
    ("reduce-scatter", re.compile(r"reduce_?scatter")),
    ("all-to-all", re.compile(r"all_?to_?all|dispatch|combine")),
    ("broadcast", re.compile(r"broadcast")),
    ("reduce", re.compile(r"reduce")),
    ("send and receive", SENDS),
)
HOST_COPIES: Final = re.compile(r"htod|dtoh|host")


@lru_cache(maxsize=65_536)
def kind_of_kernel(name: str, category: str) -> str:
    """The class of a kernel, copy or fill of memory; all communication is ``communication``."""
    lower = name.lower()
    if category == "gpu_memcpy":
        return OFFLOAD if HOST_COPIES.search(lower) else MEMORY_BOUND
    if category == "gpu_memset":
        return MEMORY_BOUND
    return next((kind for kind, pattern in NAMES if pattern.search(lower)), MEMORY_BOUND)


def group_of(name: str, details: Mapping[str, Any]) -> tuple[str, str]:
    """Dimension and collective of a communication kernel, from its name and the details in the trace."""
    collective = f"{details.get('Collective name', '')} {name}".lower()
    kind = next((kind for kind, pattern in COLLECTIVES if pattern.search(collective)), "other")
    group = str(details.get("Process Group Description", "")).lower()
    dimension = next((dimension for dimension, pattern in GROUPS if pattern.search(group)), COMMUNICATION)
    if dimension == COMMUNICATION and SENDS.search(str(details.get("Collective name", "")).lower()):
        dimension = "pp_communication"
    return dimension, kind

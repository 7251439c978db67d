"""The best configurations of a strategy: all candidates are priced, those that fit are ranked; and their records."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from shardplan.base.errors import InputError
from shardplan.base.fields import dataclass
from shardplan.methods.subramanian2024.candidates import Candidates, candidates_of
from shardplan.methods.subramanian2024.inputs import FAITHFUL, Corrections, System
from shardplan.methods.subramanian2024.iteration import (
    STATISTICS,
    Configuration,
    Memory,
    PaperSetting,
    gradient_time,
    iteration_time,
    layer_cost,
    memory_of,
    pass_time,
    price,
    stage_link_shares,
)
from shardplan.methods.subramanian2024.operators import (
    Operator,
    PaperCollective,
    VectorPass,
    collective_time,
    transfer_times,
)
from shardplan.methods.subramanian2024.strategies import Split, Strategy


def check_configuration(setting: PaperSetting, configuration: Configuration) -> None:
    """Refuses degrees that do not divide their dimension. Raises ``InputError``."""
    model, strategy, c = setting.model, setting.strategy, configuration
    system, global_batch_size = setting.system, setting.global_batch_size
    inside = {"tp1": c.nv_tp1, "tp2": c.nv_tp2, "dp": c.nv_dp, "pp": c.nv_pp}
    tokens, sharing = c.mbs * model.l, int(strategy.sequence_divisor(c.tp1, c.tp2))
    rules = {
        "tp1 divides heads and embedding": model.h % c.tp1 == 0 and model.e % c.tp1 == 0,
        "tp2 is at most the sequence length": c.tp2 <= model.l,
        "tp2 divides the embedding under SUMMA": not strategy.has_blocks or model.e % c.tp2 == 0,
        "nb is at most the embedding": c.nb <= model.e,
        "pp divides the layers": model.depth % c.pp == 0,
        "dp divides the global batch": global_batch_size % c.dp == 0,
        "mbs divides the batch of a replica": global_batch_size // c.dp % c.mbs == 0,
        "ranks that share a sequence divide the tokens of a micro-batch": tokens % sharing == 0,
        "members inside a scale-up domain divide their degree": not any(getattr(c, n) % inside[n] for n in inside),
        "members inside a scale-up domain are at most nvs": math.prod(inside.values()) <= system.nvlink_size,
    }
    for rule, holds in rules.items():
        if not holds:
            raise InputError(
                f"{strategy.name} on {model.name}, batch {global_batch_size:,}, nvs {system.nvlink_size}: "
                f"{words(c)} breaks a rule",
                rule=rule,
                hint="correct the degree that the rule names",
            )


def words(c: Configuration) -> str:
    """Degrees and places as text."""
    return (
        f"dp {c.dp} (nv {c.nv_dp}), tp {c.tp1} x {c.tp2} (nv {c.nv_tp1} x {c.nv_tp2}), pp {c.pp} (nv {c.nv_pp}), "
        f"mbs {c.mbs}, nb {c.nb}"
    )


DEGREES: Final = ("dp", "tp", "tp1", "tp2", "pp", "mbs", "nb")
PLACES: Final = ("nv_tp", "nv_tp1", "nv_tp2", "nv_dp", "nv_pp")
"""Columns of a configuration; None for those that a strategy does not have."""


def configuration_records(setting: PaperSetting, configurations: Sequence[Configuration]) -> list[dict[str, Any]]:
    """Degrees, throughput [samples/s], memory and all statistics of every configuration."""
    if not configurations:
        return []
    priced = price(setting, configurations)
    columns = {"throughput": priced.throughput, "memory_GB": priced.memory.total / 1e9, **priced.statistics()}
    rows = {name: np.broadcast_to(column, len(configurations)).tolist() for name, column in columns.items()}
    return [
        {
            **{name: rows[name][number] for name in ("throughput", "memory_GB")},
            **degrees_record(setting.strategy, configuration),
            **{name: rows[name][number] for name in STATISTICS},
        }
        for number, configuration in enumerate(configurations)
    ]


def degrees_record(strategy: Strategy, configuration: Configuration) -> dict[str, int | None]:
    """Degrees and placement in the columns of the published results."""
    c = configuration
    lacking = {"nv_tp"} if strategy.has_second_degree else {"tp1", "tp2", "nv_tp1", "nv_tp2"}
    lacking |= set() if strategy.has_blocks else {"nb"}
    known = {**vars(c), "tp": c.tp, "nv_tp": c.nv_tp1}
    return {name: None if name in lacking else known[name] for name in (*DEGREES, *PLACES)}


def operator_records(setting: PaperSetting, configuration: Configuration) -> list[dict[str, Any]]:
    """Every operator of a layer: work, traffic, collectives, times of both directions, weights and saved tensors."""
    c, system, corrected = configuration, setting.system, setting.corrected
    split = Split(m1=c.tp1, m2=c.tp2, b=float(c.mbs), blocks=c.nb, t1=c.nv_tp1, t2=c.nv_tp2)
    return [
        {
            "operator": operator.name,
            "engine": operator.engine,
            "weight_bytes": float(operator.weight_bytes),
            "kept_bytes": float(operator.kept_bytes),
            "forward": _pass_record(operator, operator.forward, system, corrected),
            "backward": _pass_record(operator, operator.backward, system, corrected),
        }
        for operator in setting.strategy.operators(setting.model, system, split, corrected)
    ]


def _pass_record(operator: Operator, work: VectorPass, system: System, corrected: Corrections) -> Mapping[str, Any]:
    time = pass_time(operator, work, system, corrected)
    blocks = 1 if operator.blocks is None else operator.blocks
    return {
        "flops": float(work.flops),
        "memory_bytes": float(work.traffic),
        "compute_s": float(time.compute),
        "exposed_memory_s": float(time.memory),
        "communication_s": float(time.communication),
        "time_s": float(time.total),
        "collectives": [
            {
                "kind": call.kind,
                "group": call.group,
                "size": int(call.size),
                "inside_domain": int(call.inside),
                "volume_bytes": float(call.volume),
                "rounds": int(blocks),
                "round_s": float(collective_time(call, system, corrected, blocks=blocks)),
            }
            for call in work.calls
            if int(call.size) > 1
        ],
    }


Floats = NDArray[np.float64]

PIECE = 1 << 15
"""Candidates that are processed together: their arrays stay in the cache."""


@dataclass(frozen=True, kw_only=True)
class SizeResult:
    """Result of the search for one number of accelerators."""

    num_gpus: int
    num_candidates: int
    num_fitting: int
    """Candidates whose memory fits."""
    best: tuple[Configuration, ...]
    """Those with the highest throughput, best first; empty if none fits."""
    throughputs: tuple[float, ...]
    """Samples per second of each."""
    smallest: Configuration | None
    """The candidate with least memory; None if there is no candidate."""
    smallest_memory_bytes: float
    """Its memory (infinite if there is none)."""


@dataclass(frozen=True, kw_only=True)
class CandidatePrices:
    """Time of every candidate and memory of every point."""

    space: Candidates
    time: Floats
    """Time of every candidate. [s]"""
    memory: Memory
    """Memory of every point."""

    def results(self, capacity: float, top: int) -> list[SizeResult]:
        """For every size the ``top`` fastest that fit into ``capacity`` [bytes]."""
        total = np.asarray(self.memory.total)
        fits = total <= capacity
        return [self._result(number, total, fits, top) for number in range(len(self.space.sizes))]

    def _result(self, number: int, total: Floats, fits: NDArray[np.bool_], top: int) -> SizeResult:
        space = self.space
        of_points, of_candidates = (
            slice(int(ends[number]), int(ends[number + 1])) for ends in (space.point_bounds, space.bounds)
        )
        counts = space.points["num_places"][of_points]
        is_candidate = fits[of_points]
        num_fitting = int(counts[is_candidate].sum())
        time = self.time[of_candidates]
        if num_fitting < len(time):
            time = np.where(np.repeat(is_candidate, counts), time, np.inf)
        chosen = _smallest(time, min(top, num_fitting))
        smallest, memory = self._least_memory(of_points, total)
        return SizeResult(
            num_gpus=space.sizes[number],
            num_candidates=len(time),
            num_fitting=num_fitting,
            best=tuple(space.configuration(of_candidates.start + int(i)) for i in chosen),
            throughputs=tuple(float(space.global_batch_size / time[i]) for i in chosen),
            smallest=smallest,
            smallest_memory_bytes=memory,
        )

    def _least_memory(self, rows: slice, total: Floats) -> tuple[Configuration | None, float]:
        """The fastest place of the point with least memory."""
        space = self.space
        counts = space.points["num_places"][rows]
        if not counts.any():
            return None, float("inf")
        point = rows.start + int(np.argmin(np.where(counts > 0, total[rows], np.inf)))
        start = int(space.points["num_places"][:point].sum())
        stop = start + int(space.points["num_places"][point])
        return space.configuration(start + int(np.argmin(self.time[start:stop]))), float(total[point])


def search(setting: PaperSetting, sizes: Sequence[int], *, top: int = 10) -> list[SizeResult]:
    """The ``top`` fastest configurations that fit, for each of ``sizes`` accelerators."""
    system, batch = setting.system, setting.global_batch_size
    space = candidates_of(
        setting.strategy, setting.model, sizes=sizes, nvlink_size=system.nvlink_size, global_batch_size=batch
    )
    return price_candidates(space, system, setting.corrected).results(system.hbm_capacity, top)


def price_candidates(space: Candidates, system: System, corrected: Corrections = FAITHFUL) -> CandidatePrices:
    """Time and memory of all candidates, ignoring the memory limit of ``system``.

    A layer is priced once for every distinct division, a transfer for every point, data parallelism for every place.
    """
    grid, points, places, strategy = space.grid, space.points, space.places, space.strategy
    split = Split(m1=grid.m1, m2=grid.m2, b=grid.b, blocks=grid.blocks, t1=grid.t1, t2=grid.t2)
    layer = layer_cost(space.model, system, strategy, split, corrected)
    num_layers = space.model.depth // points["pp"]
    num_microbatches = space.global_batch_size // points["dp"] // points["mbs"]
    memory = memory_of(
        weight_bytes=grid.by_shape(layer.weight_bytes)[grid.shape_of_point],
        kept_bytes=grid.by_shape(layer.kept_bytes)[grid.shape_of_point],
        num_layers=num_layers,
        num_microbatches=num_microbatches,
        pp=points["pp"],
        state_shards=points["dp"] * strategy.gradient_shards(points["tp2"]),
    )
    weight_bytes = grid.by_shape(layer.weight_bytes)[grid.shape_of_place]
    size, inside = (places[dp] * strategy.gradient_shards(places[tp]) for dp, tp in (("dp", "tp2"), ("t_dp", "t2")))
    gradients = collective_time(PaperCollective("reduce_scatter", weight_bytes, size, inside, "dp"), system, corrected)
    slow_time, fast_time = transfer_times(grid.by_shape(layer.boundary_bytes)[grid.shape_of_point], system)
    by_point = np.stack([slow_time, fast_time, num_microbatches, num_layers, points["pp"]]).astype(np.float64)
    by_place = np.stack([*stage_link_shares(places["pp"], places["t_pp"], corrected), gradients])
    by_cell = np.stack([grid.by_cell(layer.forward.total), grid.by_cell(layer.backward.total)])
    return CandidatePrices(space=space, time=_times(space, by_cell, by_point, by_place), memory=memory)


def _times(space: Candidates, by_cell: Floats, by_point: Floats, by_place: Floats) -> Floats:
    """Time of an iteration of every candidate, gathered from the tables of its parts. [s]"""
    time = np.empty(space.num_candidates)
    for start in range(0, len(time), PIECE):
        piece = slice(start, start + PIECE)
        point, place, cell = space.point[piece], space.place[piece], space.grid.cell[piece]
        forward, backward = (table[cell] for table in by_cell)
        slow_time, fast_time, num_microbatches, num_layers, pp = (table[point] for table in by_point)
        slow, fast, one = (table[place] for table in by_place)
        layer_times = {"forward": forward, "backward": backward, "num_layers": num_layers}
        time[piece] = iteration_time(
            **layer_times,
            transfer=slow * slow_time + fast * fast_time,
            gradients=gradient_time(one=one, **layer_times),
            num_microbatches=num_microbatches,
            pp=pp,
        )
    return time


def _smallest(values: Floats, count: int) -> NDArray[np.intp]:
    """Indices of the ``count`` smallest values, ascending; of equal ones the first."""
    if count <= 0:
        return np.empty(0, dtype=np.intp)
    limit = np.partition(values, count - 1)[count - 1]
    found = np.flatnonzero(values <= limit)
    chosen: NDArray[np.intp] = found[np.argsort(values[found], kind="stable")[:count]]
    return chosen

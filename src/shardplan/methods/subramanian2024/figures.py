"""The figures of the study as records: what each plots, one row a point, the unit as part of the key."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from shardplan.base.errors import UnknownNameError
from shardplan.base.fields import dataclass
from shardplan.base.files import DATA
from shardplan.methods.subramanian2024.candidates import candidates_of, places_of
from shardplan.methods.subramanian2024.inputs import (
    FAITHFUL,
    GLOBAL_BATCH_SIZE,
    Corrections,
    System,
    load_model,
    load_system,
)
from shardplan.methods.subramanian2024.iteration import Configuration
from shardplan.methods.subramanian2024.operators import CollectiveKind, PaperCollective, collective_time
from shardplan.methods.subramanian2024.search import configuration_records, price_candidates
from shardplan.methods.subramanian2024.strategies import strategy_of
from shardplan.methods.subramanian2024.study import SECONDS_PER_DAY, Study, StudyEntry, setting_of, study

Row = dict[str, Any]
Columns = dict[str, NDArray[np.float64]]

SHARES: Final = ("comp_frac", "tp_comm_frac", "bubble_frac", "dp_comm_frac", "mem_frac", "pp_comm_frac")
"""Parts of an iteration in the order in which the paper stacks them."""
PARTS: Final = ("t_comp", "t_tp_comm", "t_bubble", "t_dp_comm", "t_mem", "t_pp_comm")
MEMORY: Final = ("wts_mem", "wts_grad_mem", "wts_optimizer_states_mem", "acts_mem")
GUIDES: Final = (4, 12)
"""Lines of perfect scaling, by how many times faster they are than the first A100 that can hold the model."""
REFERENCE: Final = ("A100", 4)

CONTOUR_SIZE: Final = 8192
"""Accelerators of the two contours: 1D, gpt3_1T, network of B200 in domains of eight."""
CAPACITIES: Final = tuple(np.linspace(80e9, 1000e9, 32).tolist())
BANDWIDTHS: Final = tuple(np.linspace(500e9, 16000e9, 28).tolist())
FLOP_RATES: Final = tuple(np.linspace(312e12, 3750e12, 22).tolist())
MEMORIES: Final = tuple(np.linspace(80e9, 384e9, 10).tolist())
GENERATIONS: Final = ("A100", "H200", "B200", "B200-next")


@dataclass(frozen=True, kw_only=True)
class Figure:
    """What a figure plots."""

    name: str
    title: str
    rows: tuple[Row, ...]
    """One for every point, bar or cell."""


def figure(name: str, results: Study | None = None, *, corrected: Corrections = FAITHFUL) -> Figure:
    """The figure called ``name`` (F1 to F8); ``results`` of the study, if available. Raises for other names."""
    if name.upper() not in FIGURES:
        raise UnknownNameError("figure", f"{name:.40}", FIGURES, hint=f"one of {', '.join(FIGURES)}")
    title, rows = FIGURES[name.upper()]
    return Figure(name=name.upper(), title=title, rows=tuple(rows(results, corrected)))


def training_days(results: Study | None, corrected: Corrections) -> Iterator[Row]:
    """F1: days to train on every number of accelerators, and lines of perfect scaling."""
    results = results or study(corrected=corrected)
    for entry in results.entries:
        for result in entry.best:
            yield {**_label(entry), "num_gpus": result.num_gpus, "days": entry.days(result)}
    for entry in _references(results):
        first = entry.best[0]
        for factor in GUIDES:
            for result in entry.results:
                if result.num_gpus >= first.num_gpus:
                    days = (entry.days(first) or 0.0) * first.num_gpus / result.num_gpus / factor
                    guide = {"system": f"{factor}x {entry.system}, perfect scaling", "nvs": None}
                    yield {**_label(entry), **guide, "num_gpus": result.num_gpus, "days": days}


def throughput_per_gpu(results: Study | None, corrected: Corrections) -> Iterator[Row]:
    """F2: throughput per accelerator over that of the first size at which the reference system can hold the model."""
    results = results or study(corrected=corrected)
    firsts = {(entry.model, entry.strategy): entry.best[0] for entry in _references(results)}
    for entry in results.entries:
        first = firsts.get((entry.model, entry.strategy))
        for result in entry.best:
            each = result.throughputs[0] / result.num_gpus
            relative = None if first is None else each / (first.throughputs[0] / first.num_gpus)
            size = {**_label(entry), "num_gpus": result.num_gpus}
            yield {**size, "samples_per_s_per_gpu": each, "relative": relative}


def best_configurations(results: Study | None, corrected: Corrections) -> Iterator[Row]:
    """F3: the best configuration of every size, its memory, and where its time goes."""
    results = results or study(corrected=corrected)
    for entry in results.entries:
        for record in entry.best_records:
            yield {
                **_label(entry),
                "num_gpus": record["n_gpus"],
                "num_microbatches": entry.global_batch_size // record["dp"] // record["mbs"],
                **{name: record[name] for name in ("tp", "tp1", "tp2", "dp", "pp")},
                "memory_gb": record["memory_GB"],
                "time_s": record["t"],
                **{name: record[name] for name in SHARES},
            }


def time_ratios(results: Study | None, corrected: Corrections) -> Iterator[Row]:
    """F4: time with one strategy over time with another, where both fit."""
    results = results or study(corrected=corrected)
    for entry in results.entries:
        for other in results.entries:
            pair = (entry.strategy, other.strategy)
            same = (entry.model, entry.system, entry.nvs) == (other.model, other.system, other.nvs)
            if same and pair in (("1d", "2d"), ("1d", "2d-seqp"), ("2d-seqp", "2d")):
                times = {result.num_gpus: 1 / result.throughputs[0] for result in other.best}
                for result in entry.best:
                    if result.num_gpus in times:
                        ratio = 1 / result.throughputs[0] / times[result.num_gpus]
                        label = {**_label(entry), "over": other.strategy}
                        yield {**label, "num_gpus": result.num_gpus, "ratio": ratio}


HAND_PICKED: Final = {
    ("gpt3_1T", "1d"): tuple((8, 1, 2**power, 1, 1) for power in range(8)),
    ("gpt3_1T", "2d"): (
        *((m1, m2, 1, 8, 8) for m1, m2 in ((32, 1), (8, 4), (4, 8), (1, 32))),
        *((m1, m2, 128, 1, 8) for m1, m2 in ((8, 1), (4, 2), (2, 4), (1, 8))),
    ),
    ("gpt3_1T", "2d-seqp"): (
        *((m1, m2, 1, 8, 1) for m1, m2 in ((32, 1), (8, 4), (4, 8), (1, 32))),
        *((m1, m2, 128, 1, 1) for m1, m2 in ((8, 1), (4, 2), (2, 4), (1, 8))),
    ),
    ("vit_era5", "2d-seqp"): tuple((m1, 16 // m1, pp, 1, 1) for pp in (2, 16) for m1 in (16, 8, 4, 2, 1)),
}
"""(tp1, tp2, pp, micro-batch size, blocks) of the configurations A, B, C ... of F5, at 16,384 accelerators.

Some are not candidates of the search (too few blocks, too short a sequence): the paper compares them all the same.
"""


def hand_picked(results: Study | None, corrected: Corrections) -> Iterator[Row]:
    """F5: configurations picked by hand, each in its best place, the memory limit ignored."""
    del results
    system, num_gpus = load_system("B200", 8), 16384
    for (model, strategy), picked in HAND_PICKED.items():
        setting = setting_of(strategy, model, system, system.nvlink_size, corrected=corrected)
        for letter, (tp1, tp2, pp, mbs, nb) in zip("ABCDEFGHIJ", picked, strict=False):
            dp = num_gpus // (tp1 * tp2 * pp)
            chosen = Configuration(dp=dp, tp1=tp1, tp2=tp2, pp=pp, mbs=mbs, nb=nb)
            records = configuration_records(setting, places_of(chosen, system.nvlink_size))
            record = min(records, key=lambda each: float(each["t"]))  # in the place that makes it fastest
            yield {
                "model": model,
                "strategy": strategy,
                "system": system.name,
                "nvs": system.nvlink_size,
                "num_gpus": num_gpus,
                "configuration": letter,
                **{name: record[name] for name in ("tp", "tp1", "tp2", "pp", "dp", "mbs", "nb")},
                "time_s": record["t"],
                **{f"{name}_s": record[name] for name in PARTS},
                "memory_gb": record["memory_GB"],
                **{f"{name}_gb": record[name] for name in MEMORY},
            }


def capacity_and_bandwidth(results: Study | None, corrected: Corrections) -> Iterator[Row]:
    """F6: days to train over capacity and bandwidth of the device memory."""
    del results
    base = load_system("B200", 8)
    systems = [replace(base, hbm_bandwidth=bandwidth) for bandwidth in BANDWIDTHS]
    for system, days in zip(systems, _contour(systems, CAPACITIES, corrected), strict=True):
        for capacity, value in zip(CAPACITIES, days, strict=True):
            yield _cell(replace(system, hbm_capacity=capacity), value, name=None)
    point = _contour([base], (base.hbm_capacity,), corrected)[0][0]
    yield _cell(base, point, name=base.name)


def flops_and_capacity(results: Study | None, corrected: Corrections) -> Iterator[Row]:
    """F7: days to train over the matrix rate and the memory capacity.

    Bandwidth and vector rate grow with the capacity, from one generation of the paper's systems to the next.
    """
    del results
    base, generations = load_system("B200", 8), [load_system(name, 8) for name in GENERATIONS]
    capacities = [each.hbm_capacity for each in generations]
    for capacity in MEMORIES:
        bandwidth, vector_rate = (
            float(np.interp(capacity, capacities, [getattr(each, name) for each in generations]))
            for name in ("hbm_bandwidth", "vector_flops")
        )
        memory = replace(base, hbm_capacity=capacity, hbm_bandwidth=bandwidth, vector_flops=vector_rate)
        systems = [replace(memory, matrix_flops=rate) for rate in FLOP_RATES]
        for system, days in zip(systems, _contour(systems, (capacity,), corrected), strict=True):
            yield _cell(system, days[0], name=None)
    for generation in generations:
        own = ("matrix_flops", "vector_flops", "hbm_bandwidth", "hbm_capacity")
        system = replace(base, **{name: getattr(generation, name) for name in own})
        yield _cell(system, _contour([system], (system.hbm_capacity,), corrected)[0][0], name=generation.name)


def _contour(systems: list[System], capacities: tuple[float, ...], corrected: Corrections) -> list[list[float | None]]:
    """Days to train with the best configuration that fits into each capacity; a list for every system."""
    model = load_model("gpt3_1T")
    space = candidates_of(
        strategy_of("1d"), model, sizes=[CONTOUR_SIZE], nvlink_size=8, global_batch_size=GLOBAL_BATCH_SIZE
    )
    scale = (model.num_samples or 0.0) / GLOBAL_BATCH_SIZE / SECONDS_PER_DAY
    found: list[list[float | None]] = []
    for system in systems:
        prices = price_candidates(space, system, corrected)
        memory = np.asarray(prices.memory.total)[space.point]
        fitting = [prices.time[memory <= capacity] for capacity in capacities]
        found.append([float(times.min()) * scale if len(times) else None for times in fitting])
    return found


def _cell(system: System, days: float | None, *, name: str | None) -> Row:
    """A cell of a contour, or the point of a system if it has a name."""
    return {
        "system": name,
        "matrix_tflop_per_s": system.matrix_flops / 1e12,
        "vector_tflop_per_s": system.vector_flops / 1e12,
        "hbm_gb": system.hbm_capacity / 1e9,
        "hbm_gb_per_s": system.hbm_bandwidth / 1e9,
        "days": days,
    }


KINDS: Final[tuple[CollectiveKind, ...]] = ("all_gather", "reduce_scatter", "all_reduce")
SYSTEM: Final = ("A100", 4)
"""The system measured in the paper: four accelerators of a node on fast links, an adapter each."""
MIB: Final = 2.0**20
SIZE_CLASSES: Final = {
    "up to 1 MiB": (0.0, MIB),
    "2 to 128 MiB": (2 * MIB, 128 * MIB),
    "from 256 MiB": (256 * MIB, 1e15),
}
"""Least and most bytes of each. [bytes]"""
_DATA: Final = DATA / "published" / "collectives-perlmutter.csv"


def measured_collectives(results: Study | None = None, corrected: Corrections = FAITHFUL) -> Iterator[Row]:
    """F8: time of collectives by the network model next to measurements on Perlmutter; a row for every measurement."""
    del results
    system = load_system(*SYSTEM)
    for kind, of_kind in _measured().items():
        nodes, inside, sizes = of_kind["num_nodes"], of_kind["gpus_per_node"], of_kind["size_bytes"]
        call = PaperCollective(kind=kind, volume=sizes, size=nodes * inside, inside=inside, group="all")
        model, measured = np.asarray(collective_time(call, system, corrected)), of_kind["time_us"] * 1e-6
        for each in zip(nodes, inside, sizes, measured, model, strict=True):
            num_nodes, gpus_per_node, size = map(int, each[:3])
            yield {
                "collective": kind,
                "num_nodes": num_nodes,
                "gpus_per_node": gpus_per_node,
                "num_gpus": num_nodes * gpus_per_node,
                "size_bytes": size,
                "measured_s": float(each[3]),
                "model_s": float(each[4]),
                "model_over_measured": float(each[4] / each[3]),
            }


def model_over_measured(rows: Sequence[Row]) -> Iterator[Row]:
    """Median of modelled over measured time by collective, accelerators of a node, one node or several, and size."""
    for kind in KINDS:
        for gpus_per_node in (1, 2, 4):
            for is_one_node in (True, False):
                for size_class, (least, most) in SIZE_CLASSES.items():
                    ratios = [
                        row["model_over_measured"]
                        for row in rows
                        if (row["collective"], row["gpus_per_node"]) == (kind, gpus_per_node)
                        and (row["num_nodes"] == 1) == is_one_node
                        and least <= row["size_bytes"] <= most
                    ]
                    if ratios:
                        yield {
                            "collective": kind,
                            "gpus_per_node": gpus_per_node,
                            "nodes": "one" if is_one_node else "several",
                            "size": size_class,
                            "num_measurements": len(ratios),
                            "median": float(np.median(ratios)),
                            "least": min(ratios),
                            "most": max(ratios),
                        }


@cache
def _measured() -> dict[CollectiveKind, Columns]:
    """Columns of the measurements of every collective."""
    lines = [line for line in _DATA.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    rows = list(csv.DictReader(lines))
    names = ("num_nodes", "gpus_per_node", "size_bytes", "time_us")
    return {
        kind: {name: np.array([float(row[name]) for row in rows if row["collective"] == kind]) for name in names}
        for kind in KINDS
    }


def _label(entry: StudyEntry) -> Row:
    return {"model": entry.model, "strategy": entry.strategy, "system": entry.system, "nvs": entry.nvs}


def _references(results: Study) -> Iterator[StudyEntry]:
    """Entries of the reference system that hold their model at some size."""
    return (entry for entry in results.entries if (entry.system, entry.nvs) == REFERENCE and entry.best)


FIGURES: Final[dict[str, tuple[str, Callable[[Study | None, Corrections], Iterator[Row]]]]] = {
    "F1": ("Training days against accelerators", training_days),
    "F2": ("Throughput per accelerator against accelerators", throughput_per_gpu),
    "F3": ("Best configuration, memory and shares of the time", best_configurations),
    "F4": ("Time ratio between strategies", time_ratios),
    "F5": ("Configurations picked by hand, memory limit ignored", hand_picked),
    "F6": ("Training days over memory capacity and bandwidth", capacity_and_bandwidth),
    "F7": ("Training days over matrix rate and memory capacity", flops_and_capacity),
    "F8": ("Time of collectives, model and measurement", measured_collectives),
}
"""Title and rows of every figure."""

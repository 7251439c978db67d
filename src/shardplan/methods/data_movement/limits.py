"""Limits of training: the best utilisation of a run that must end in time, against its compute.

It is built on the notebook's layer, and adds a second network tier, a pipeline, latencies and a growing training run
(:class:`Assumptions`); ``NOT_IN_THE_CURVE`` lists what is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import field, replace
from typing import Any, Final

import numpy as np

from shardplan.base.fields import dataclass, in_files
from shardplan.methods.data_movement.layer import Device, LayerTime
from shardplan.methods.data_movement.training_step import (
    Assumptions,
    Run,
    block_times,
    configurations,
    gradient_time,
    price_blocks,
    step_time,
)

LEVELS: Final = (0.9, 0.5, 0.1, 0.0)
"""Shares of the device's base utilisation for which cliffs are located; 0 stands for any run that ends in time."""
SCANNED: Final = (20.0, 45.0, 0.25)
"""Decades of training compute that are scanned, and the step."""
PRECISION: Final = 1e-3
"""Precision of a cliff, in decades."""


@dataclass(frozen=True, kw_only=True)
class LimitPoint:
    """The best configuration of one training run; zeros if none ends in time."""

    run: Run
    utilisation: float = 0.0
    """FLOP of the training over time, devices and peak."""
    num_devices: int = 0
    training_time: float = field(default=0.0, metadata=in_files("training_time_s"))
    """Of the whole run. [s]"""
    tp_in: int = 0
    tp_out: int = 0
    dp: int = 0
    pp: int = 0
    num_microbatches: int = 0
    bound: str = "none"
    """What sets the time of a step: a block's ``flop``, ``hbm`` or ``network``, or the ``latency`` of all blocks."""


@dataclass(frozen=True, kw_only=True)
class Cliff:
    """Training compute at which utilisation falls off."""

    level: float
    """Share of the device's base utilisation."""
    training_flop: float | None
    """Largest training compute that keeps it; None if no run does, infinite if all scanned runs do."""


def limits_curve(
    device: Device, training_flop: Iterable[float], assumptions: Assumptions | None = None
) -> list[LimitPoint]:
    """The best configuration at every training compute. [FLOP]"""
    taken = assumptions or Assumptions()
    return [best_configuration(device, float(flop), taken) for flop in training_flop]


def best_configuration(device: Device, training_flop: float, assumptions: Assumptions) -> LimitPoint:
    """The configuration of highest utilisation that ends in time, of all in the declared space."""
    run = assumptions.run(training_flop)
    space = configurations(run)
    if not space.possible.any():
        return LimitPoint(run=run)
    blocks = price_blocks(device, assumptions, run, space.tokens)
    step, waits = step_time(run, space, blocks, gradient_time(device, assumptions, run, space))
    work = 6 * run.num_parameters * run.batch_tokens * assumptions.bytewidth
    utilisation = work / (device.flops_8bit * space.num_devices * step)
    in_time = space.possible & (run.num_steps * step <= assumptions.training_time_s)
    utilisation = np.where(in_time, utilisation, 0.0)
    at = tuple(int(index) for index in np.unravel_index(np.argmax(utilisation), utilisation.shape))
    if not utilisation[at]:
        return LimitPoint(run=run)
    placed = blocks.placement.at(at[:2])
    up, down = block_times(device, assumptions, run, space.tokens[at[1]], placed)
    both = LayerTime(flop=up.flop + down.flop, memory=up.memory + down.memory, network=up.network + down.network)
    return LimitPoint(
        run=run,
        utilisation=float(utilisation[at]),
        num_devices=int(space.num_devices[at]),
        training_time=float(run.num_steps * step[at]),
        tp_in=int(placed.tp_in),
        tp_out=int(placed.tp_out),
        dp=int(space.dp[at[1:]]),
        pp=int(space.pp[at[2]]),
        num_microbatches=int(space.num_microbatches[at[2]]),
        bound="latency" if waits[at] else both.bound,
    )


def cliffs(
    device: Device, assumptions: Assumptions | None = None, *, levels: tuple[float, ...] = LEVELS
) -> tuple[Cliff, ...]:
    """Largest training compute at each level of utilisation."""
    taken = assumptions or Assumptions()

    def utilisation(decade: float) -> float:
        return best_configuration(device, 10.0**decade, taken).utilisation

    scanned: dict[float, float] = {}
    for decade in np.arange(*SCANNED).tolist():
        scanned[decade] = utilisation(decade)
        if not scanned[decade]:
            break
    least = [max(level * device.base_utilisation, 1e-12) for level in levels]
    return tuple(
        Cliff(level=level, training_flop=_last_at(value, scanned, utilisation))
        for level, value in zip(levels, least, strict=True)
    )


def _last_at(least: float, scanned: dict[float, float], utilisation: Callable[[float], float]) -> float | None:
    """Largest compute with at least that utilisation: between two scanned points, by bisection."""
    decades = list(scanned)
    kept = [index for index, decade in enumerate(decades) if scanned[decade] >= least]
    if not kept:
        return None
    if kept[-1] == len(decades) - 1:
        return math.inf
    low, high = decades[kept[-1]], decades[kept[-1] + 1]
    while high - low > PRECISION:
        middle = (low + high) / 2
        low, high = (middle, high) if utilisation(middle) >= least else (low, middle)
    return float(10.0**low)


@dataclass(frozen=True, kw_only=True)
class PaperClaim:
    """A statement of arXiv 2411.01137 about runs of three months."""

    text: str
    abstract_flop: float
    """Training compute in the abstract. [FLOP]"""
    article_flop: float
    """The same in its authors' article. [FLOP]"""
    level: float
    """Level of the cliff that we compare with it."""


ONE_NETWORK: Final = 1e12
"""A fast domain that no run outgrows."""

CLAIMS: Final = (
    PaperClaim(
        text="data movement begins to lower utilisation significantly", abstract_flop=1e28, article_flop=2e28, level=0.9
    ),
    PaperClaim(text="infeasible even at low utilisation (latency)", abstract_flop=1e31, article_flop=2e31, level=0.0),
)

NOT_IN_THE_CURVE: Final = (
    "memory capacity",
    "network tiers beyond the first around a scale-up domain",
    "attention, pointwise passes and stage transfers",
    "sparsity (mixture of experts)",
    "gradient reduction behind computation",
)
"""What the curve leaves out; the paper's own baseline may have some of it."""


@dataclass(frozen=True, kw_only=True)
class Variant:
    """The curve with one thing changed."""

    name: str
    changed: str
    """Which of batch, shape, link, memory, latency, time."""
    device: Device
    assumptions: Assumptions


def variants(device: Device, assumptions: Assumptions) -> tuple[Variant, ...]:
    """The baseline and the changes that move its cliff."""
    deepseek = 0.2920 * assumptions.batch_flop**0.3271  # DeepSeek-AI, arXiv 2401.02954, equation 2
    link = {"network_bandwidth": 10 * device.network_bandwidth}
    outer = {"outer_bandwidth": 10 * assumptions.outer_bandwidth}
    memory = {"memory_bandwidth": 10 * device.memory_bandwidth}
    changes: tuple[tuple[str, str, dict[str, Any], dict[str, float]], ...] = (
        ("baseline", "nothing", {}, {}),
        ("one batch size for all runs", "batch", {}, {"batch_exponent": 0.0}),
        ("batch as compute to the 0.24 (Kaplan et al.)", "batch", {}, {"batch_exponent": 0.24}),
        ("batch of DeepSeek LLM", "batch", {}, {"batch_tokens": deepseek, "batch_exponent": 0.3271}),
        ("batch 10 times as large", "batch", {}, {"batch_tokens": 10 * assumptions.batch_tokens}),
        ("4 times as fat for its depth", "shape", {}, {"aspect_ratio": 4 * assumptions.aspect_ratio}),
        ("depth as the sixth root of parameters", "shape", {}, {"depth_exponent": 1 / 6}),
        ("both networks 10 times as fast", "links", link, outer),
        ("outer network 10 times as fast", "links", {}, outer),
        ("scale-up domains of 64", "links", {}, {"fast_domain": 64.0}),
        ("the fast link joins all (the notebook)", "links", {}, {"fast_domain": ONE_NETWORK}),
        ("memory 10 times as fast", "memory", memory, {}),
        ("networks and memory 10 times as fast", "links, memory", link | memory, outer),
        ("no latency", "latency", {}, dict.fromkeys(("link_latency_s", "outer_latency_s", "kernel_latency_s"), 0.0)),
        ("a year", "time", {}, {"training_time_s": 4 * assumptions.training_time_s}),
    )
    return tuple(
        Variant(
            name=name,
            changed=what,
            device=replace(device, **on_device),
            assumptions=assumptions.model_copy(update=taken),
        )
        for name, what, on_device, taken in changes
    )

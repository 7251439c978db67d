"""What the paper claims of the limits, and how they move: with batch size, shape, links, memory and latency."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from shardplan.fields import dataclass
from shardplan.published.data_movement.layer import Device
from shardplan.published.data_movement.scaling import Assumptions


@dataclass(frozen=True, kw_only=True)
class PaperClaim:
    """A statement of arXiv 2411.01137 about runs of three months."""

    text: str
    abstract_flop: float
    """Training compute in the abstract. [FLOP]"""
    article_flop: float
    """The same in its authors' article. [FLOP]"""
    level: float
    """Level of the cliff that we set next to it."""


ONE_NETWORK: Final = 1e12
"""Fast domain that no run outgrows."""

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
    """The curve with something changed."""

    name: str
    changed: str
    """Which of batch, shape, link, memory, latency, time."""
    device: Device
    assumptions: Assumptions


def variants(device: Device, assumptions: Assumptions) -> tuple[Variant, ...]:
    """The baseline and what moves its cliff."""
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
        Variant(name=name, changed=what, device=replace(device, **on_device), assumptions=replace(assumptions, **taken))
        for name, what, on_device, taken in changes
    )

"""A question of ours in the method's terms: a plain transformer on two networks."""

from __future__ import annotations

import math

import numpy as np

from shardplan.base.fields import dataclass
from shardplan.base.units import format_rate, format_time
from shardplan.inputs.cluster import Cluster, NetworkTier
from shardplan.inputs.job import Job
from shardplan.inputs.layers import MLP, Attention, MixtureOfExperts
from shardplan.inputs.model import ModelConfig
from shardplan.methods.base import MethodAnswer, MethodError, MethodRow
from shardplan.methods.mapping import ASK_ANOTHER, as_refusal, spanned_tiers
from shardplan.methods.subramanian2024.inputs import FLAWS, System, Transformer
from shardplan.methods.subramanian2024.iteration import Configuration, PaperSetting, price
from shardplan.methods.subramanian2024.search import search
from shardplan.methods.subramanian2024.strategies import STRATEGIES, Strategy
from shardplan.physics.costs.network import domain_size

LINK_EFFICIENCY = 0.7
VARIANTS = 20
"""Configurations kept for each row: many differ only in placement or blocks."""
PARTS = {
    "time_s": "time",
    "compute_s": "compute",
    "exposed_memory_s": "memory_time",
    "tp_communication_s": "tp_communication",
    "pp_communication_s": "pp_communication",
    "dp_communication_s": "dp_communication",
    "bubble_s": "bubble",
}
"""Parts of an iteration by the names of their fields."""


@dataclass(frozen=True, kw_only=True)
class _Mapping:
    """The question in the method's terms."""

    transformer: Transformer
    system: System
    mapped: tuple[str, ...]
    ignored: tuple[str, ...]


def plan(
    name: str, model: ModelConfig, cluster: Cluster, num_accelerators: int, job: Job, *, top: int = 10
) -> MethodAnswer:
    """The best configurations of all three strategies. Raises ``MethodError`` if the method cannot answer."""
    with as_refusal():
        question = _mapping(model, cluster, num_accelerators, job)
        found = [
            row for strategy in STRATEGIES.values() for row in _rows(strategy, question, num_accelerators, job, top)
        ]
    if not found:
        raise MethodError(
            f"no configuration of {model.name} divides {num_accelerators:,} accelerators and a batch of "
            f"{job.global_batch_size:,}",
            rule="degrees divide the accelerators, the layers, the batch and the scale-up domain",
            hint="choose a number of accelerators and a batch with more common divisors",
        )
    fitting = sorted((row for row in found if row.fits), key=lambda row: row.step_time or 0.0)
    rows = tuple(fitting[:top] or [min(found, key=lambda row: row.memory_bytes or 0.0)])
    return MethodAnswer(method=name, rows=rows, mapped=question.mapped, ignored=question.ignored, notes=_notes(rows))


def _rows(strategy: Strategy, question: _Mapping, num_accelerators: int, job: Job, top: int) -> list[MethodRow]:
    """The best rows of one strategy with different degrees, or the one with least memory if none fits."""
    setting = PaperSetting(
        model=question.transformer, system=question.system, strategy=strategy, global_batch_size=job.global_batch_size
    )
    (result,) = search(setting, [num_accelerators], top=top * VARIANTS)
    fits = bool(result.best)
    different: dict[tuple[tuple[str, int], ...], Configuration] = {}
    for configuration in result.best or ((result.smallest,) if result.smallest else ()):
        different.setdefault(tuple(_degrees(strategy, configuration).items()), configuration)
    chosen = list(different.values())[:top]
    if not chosen:
        return []
    priced = price(setting, chosen)
    parts = {name: np.broadcast_to(getattr(priced, field), len(chosen)) for name, field in PARTS.items()}
    memory = np.broadcast_to(priced.memory.total, len(chosen))
    return [
        MethodRow(
            degrees=_degrees(strategy, configuration),
            step_time=float(parts["time_s"][number]),
            memory_bytes=float(memory[number]),
            fits=fits,
            parts={name: float(values[number]) for name, values in parts.items() if name != "time_s"}
            | _placement(strategy, configuration),
        )
        for number, configuration in enumerate(chosen)
    ]


def _degrees(strategy: Strategy, c: Configuration) -> dict[str, int]:
    """Degrees by our names: the second one is cp, or rows of the grid of SUMMA, which are part of tp."""
    degrees = {"dp": c.dp, "tp": c.tp1, "pp": c.pp, "micro_batch_size": c.mbs}
    if strategy.has_blocks:
        return {**degrees, "tp": c.tp, "tp_rows": c.tp2}
    return {**degrees, "cp": c.tp2} if strategy.has_second_degree else degrees


def _placement(strategy: Strategy, c: Configuration) -> dict[str, float]:
    """Ranks of each degree inside a scale-up domain, and the rounds of SUMMA."""
    inside = {"dp_in_domain": c.nv_dp, "tp_in_domain": c.nv_tp1, "pp_in_domain": c.nv_pp}
    if strategy.has_blocks:
        inside |= {"tp_in_domain": c.nv_tp1 * c.nv_tp2, "tp_rows_in_domain": c.nv_tp2, "num_blocks": c.nb}
    elif strategy.has_second_degree:
        inside |= {"cp_in_domain": c.nv_tp2}
    return {name: float(count) for name, count in inside.items()}


def _notes(rows: tuple[MethodRow, ...]) -> tuple[str, ...]:
    """Known errors of the method that affect these rows."""
    touched = ["Q12"]
    if any(row.degrees["pp"] > 1 for row in rows):
        touched += ["Q1", "Q16"]
    if any("tp_rows" in row.degrees for row in rows):
        touched += ["Q2", "Q5"]
    if any("tp_rows" not in row.degrees and row.degrees["tp"] > 1 for row in rows):
        touched.append("Q11")
    return tuple(f"{name}: {FLAWS[name]}" for name in touched)


def _mapping(model: ModelConfig, cluster: Cluster, num_accelerators: int, job: Job) -> _Mapping:
    attention, _ = _layer_of(model)
    size = {"l": job.sequence_length, "e": model.hidden_size, "depth": model.num_hidden_layers}
    transformer = Transformer(name=model.name, h=attention.num_heads, **size)
    system = _system(cluster, num_accelerators, job)
    ignored = (*_ignored_of_model(model, transformer), *_ignored_of_job(cluster, num_accelerators, job))
    mapped = _mapped(transformer, system, cluster, job)
    return _Mapping(transformer=transformer, system=system, mapped=mapped, ignored=ignored)


def _layer_of(model: ModelConfig) -> tuple[Attention, MLP]:
    """The attention and the MLP of all layers. Raises ``MethodError`` if layers differ."""
    parts: list[tuple[Attention, MLP]] = []
    for mixer, mlp in ((layer.mixer, layer.mlp) for layer in model.layer_kinds):
        if not isinstance(mixer, Attention):
            kind = "layers without attention" if mixer is None else f"{type(mixer).__name__} layers"
            raise _refusal(model, kind)
        if not isinstance(mlp, MLP):
            kind = "mixtures of experts" if isinstance(mlp, MixtureOfExperts) else "layers without an MLP"
            raise _refusal(model, kind)
        parts.append((mixer, mlp))
    if len({attention.num_heads for attention, _ in parts}) > 1:
        raise _refusal(model, "layers with different numbers of heads")
    return parts[0]


def _refusal(model: ModelConfig, kind: str) -> MethodError:
    return MethodError(
        f"{model.name} has {kind}; the method knows equal layers of attention and an MLP",
        rule="every layer is attention and a dense MLP",
        hint=ASK_ANOTHER,
    )


def _system(cluster: Cluster, num_accelerators: int, job: Job) -> System:
    """Accelerator and tiers in the method's terms. Raises ``MethodError``."""
    accelerator = cluster.accelerator
    if job.precision not in ("bf16", "fp16"):
        raise MethodError(
            f"the job computes in {job.precision}; the method counts 16-bit numbers only",
            rule="the number format is bf16 or fp16",
            hint="--precision bf16",
        )
    if accelerator.vector_flops is None:
        raise MethodError(
            f"the vector rate of {accelerator.name} is not known",
            rule="the method needs matrix and vector rates",
            hint="give vector_flops in an accelerator file of your own",
        )
    fast, slow = cluster.innermost, _slow_tier(cluster, num_accelerators)
    return System(
        name=cluster.name,
        matrix_flops=accelerator.peak(job.recipe.matmul),
        vector_flops=accelerator.vector_flops,
        hbm_bandwidth=accelerator.memory_bandwidth,
        hbm_capacity=accelerator.memory_bytes,
        nvlink_bandwidth=fast.bandwidth,
        ib_bandwidth=slow.bandwidth,
        nvlink_latency=fast.latency,
        ib_latency=slow.latency,
        nvlink_efficiency=LINK_EFFICIENCY,
        ib_efficiency=LINK_EFFICIENCY,
        nvlink_size=math.gcd(domain_size(fast, num_accelerators), num_accelerators),  # or fewer, to divide the job
    )


def _slow_tier(cluster: Cluster, num_accelerators: int) -> NetworkTier:
    """The slowest tier outside the innermost domain, or that domain if it holds the job."""
    used = spanned_tiers(cluster, num_accelerators)
    return min(used[1:] or used, key=lambda tier: tier.bandwidth)


def _mapped(transformer: Transformer, system: System, cluster: Cluster, job: Job) -> tuple[str, ...]:
    t, s = transformer, system
    return (
        f"{t.depth} equal layers: sequence {t.l:,}, embedding {t.e:,}, {t.h} heads of {t.q}, MLP of 4 x {t.e:,}",
        f"matrix rate {format_rate(s.matrix_flops, 'FLOP')} ({job.precision}), 80 % achieved",
        f"vector rate {format_rate(s.vector_flops, 'FLOP')} (fp32; the paper takes the 16-bit rate), 80 % achieved",
        f"scale-up domain: {s.nvlink_size} accelerators of the {cluster.innermost.name}",
        f"inside it {format_rate(s.nvlink_bandwidth)}, {format_time(s.nvlink_latency)}, {LINK_EFFICIENCY:.0%} achieved",
        f"beyond it {format_rate(s.ib_bandwidth)}, {format_time(s.ib_latency)}, {LINK_EFFICIENCY:.0%} achieved",
        "1D, context-parallel (cp) and SUMMA (tp_rows) forms of tensor parallelism, in every placement",
        "all of the device memory may be filled",
    )


def _ignored_of_model(model: ModelConfig, transformer: Transformer) -> tuple[str, ...]:
    """What the method ignores of the model."""
    attention, mlp = _layer_of(model)
    kinds = [layer.mixer for layer in model.layer_kinds if isinstance(layer.mixer, Attention)]
    conditions = {
        "vocabulary, embeddings and output head": True,
        f"causal mask: every query meets all {transformer.l:,} keys": attention.causal,
        f"grouped keys and values: {attention.num_heads} heads of each": attention.num_kv_heads < attention.num_heads,
        f"head size {attention.head_dim}": attention.head_dim != transformer.q,
        "sliding windows and chunks of attention": any(kind.window or kind.chunk for kind in kinds),
        f"MLP of width {mlp.intermediate_size:,}": mlp.intermediate_size != transformer.f,
        "the gate of the MLP": mlp.gated,
        "multi-token prediction": model.num_mtp_layers > 0,
    }
    return tuple(text for text, holds in conditions.items() if holds)


def _ignored_of_job(cluster: Cluster, num_accelerators: int, job: Job) -> tuple[str, ...]:
    """What the method ignores of cluster and job, and what it counts without being asked."""
    beyond, slow = spanned_tiers(cluster, num_accelerators)[1:], _slow_tier(cluster, num_accelerators)
    others = ", ".join(tier.name for tier in beyond if tier is not slow)
    has_other_states = job.optimizer != "adam" or job.moment_dtype != "fp32"
    conditions = {
        f"network tiers faster than the {slow.name}: {others}": bool(others),
        f"topology of the {cluster.innermost.name} ({cluster.innermost.topology})": cluster.innermost.topology
        != "switch",
        "that attention is not fused": job.attention != "flash",
        "that there is no dropout: its passes and masks are counted": not job.dropout,
        f"optimizer {job.optimizer} with {job.moment_dtype} moments: 12 bytes a parameter": has_other_states,
        f"{job.grad_dtype} gradients: two bytes each": job.grad_dtype == "fp32",
        "recomputation, sharding beyond ZeRO-1, interleaved schedules": True,
    }
    return tuple(text for text, holds in conditions.items() if holds)

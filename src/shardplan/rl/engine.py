r"""One decode iteration of an inference engine, counted in bytes and operations, and the passes over prompts.

An iteration makes one token (with speculation a few) of every running sequence. It reads all weights of a replica, of a
mixture the experts that its tokens visit, and the cache of every sequence. Products of few rows wait for memory, those
of many compute. Tensor-parallel ranks add their outputs twice a layer. The host takes its time beside that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache, cached_property
from typing import Any, Final, NamedTuple, cast

import numpy as np

from shardplan.base.arrays import Numbers, share
from shardplan.base.fields import dataclass, replace
from shardplan.base.files import DATA, Document, shipped_document
from shardplan.estimation.layout import whole_model
from shardplan.estimation.pricing import head_block, parameters_of_parts
from shardplan.estimation.question import Question
from shardplan.inputs.cluster import Cluster
from shardplan.inputs.compressed import CompressedAttention
from shardplan.inputs.job import Job, Precision
from shardplan.inputs.layers import Attention, LatentAttention, Layer, Mixer, MixtureOfExperts
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.inputs.recurrent import SelectiveScan, StateSpace
from shardplan.physics.costs.collectives import collective_time, groups_of
from shardplan.physics.costs.roofline import operator_times
from shardplan.physics.workload.communication import Shard
from shardplan.physics.workload.layer import layer_block
from shardplan.physics.workload.ops import AttentionCore, Block, Matmul
from shardplan.rl.lengths import Array

WEIGHT_BYTES: Final[Mapping[str, float]] = {"bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "mxfp8": 1 + 1 / 32}
"""Of a weight of a linear layer, by number format."""
GRID: Final[Array] = np.unique(np.round(np.geomspace(1, 65536, 65)))
"""Batches at which iterations are priced; others lie between them."""
PREFILL_TOKENS: Final = 8192
"""Tokens of prompts that a pass takes at once."""


@cache
def generation_data() -> Document:
    """``data/generation.yaml``: engines, methods of transfer, and values with their sources."""
    return shipped_document(DATA / "generation.yaml")


def constant(name: str) -> float:
    """A value of ``data/generation.yaml`` in SI units, or of ``trying``."""
    return _TRIED[name] if name in _TRIED else _shipped(name)


@cache
def _shipped(name: str) -> float:
    return float(generation_data()["values"][name]["value"])


_TRIED: Final[dict[str, float]] = {}


@contextmanager
def trying(values: Mapping[str, float]) -> Iterator[None]:
    """Other values in place of the shipped ones, by the name of a value or METHOD.RATE of a transfer, for a fit."""
    _TRIED.update(values)
    try:
        yield
    finally:
        for name in values:
            _TRIED.pop(name, None)


def rates_of(method: str) -> dict[str, float]:
    """What a method of transfer takes, by name; the known methods are keys of ``data/generation.yaml``."""
    known = cast("dict[str, Any]", generation_data()["transfers"][method])
    return {name: _TRIED.get(f"{method}.{name}", float(value)) for name, value in known.items() if name != "title"}


def num_tensors(model: ModelConfig) -> int:
    """Weights of matrices, those of every expert apart, as frameworks hand them to an engine one by one."""
    number = 2
    for kind, count in zip(model.layer_kinds, whole_model(model).counts, strict=True):
        experts = kind.mlp.num_experts if isinstance(kind.mlp, MixtureOfExperts) else 0
        number += int(count) * (8 + 3 * experts)
    return number


@dataclass(frozen=True, kw_only=True)
class Replica:
    """How one copy of the model lies on accelerators that generate."""

    tp: int = 1
    pp: int = 1
    ep: int = 1
    """Ranks that share whole experts, 1 or ``tp``; 1: every rank has a slice of each expert."""

    @property
    def num_accelerators(self) -> int:
        """Accelerators of one replica."""
        return self.tp * self.pp

    def __str__(self) -> str:
        degrees = {"tp": self.tp, "pp": self.pp, "ep": self.ep}
        return ", ".join(f"{name} {degree}" for name, degree in degrees.items() if degree > 1 or name == "tp")


class Adapters(NamedTuple):
    """Low-rank adapters that an engine runs next to weights of its own, which stay as they are."""

    bytes: float
    """All of them, on every accelerator of a replica."""
    num_tensors: int


class CacheEntry(NamedTuple):
    """What a layer keeps of a sequence on one accelerator, and reads for each of its tokens."""

    bytes: float = 0.0
    """Of each token that it keeps."""
    flops: float = 0.0
    """For each token that a query meets. [FLOP]"""
    window: float = np.inf
    """Tokens that it keeps at most."""
    state: float = 0.0
    """Of a sequence, whatever its length; read and written. [bytes]"""

    def tokens(self, context: Numbers) -> Numbers:
        """Tokens kept of a sequence of this length."""
        return np.minimum(context, self.window)


def cache_entry(mixer: Mixer, tp: int, element: float) -> CacheEntry:
    """Cache of a mixer: keys and values of the heads of a rank; the latent of MLA on every rank; a state."""
    match mixer:
        case Attention():
            heads, kv_heads = share(mixer.num_heads, tp), share(mixer.num_kv_heads, tp)
            kept = (1 if mixer.tied_kv else 2) * float(kv_heads) * mixer.head_dim
            return CacheEntry(kept * element, 4.0 * float(heads) * mixer.head_dim, mixer.window or np.inf)
        case LatentAttention():
            latent = mixer.kv_lora_rank + mixer.qk_rope_head_dim
            flops = 2.0 * float(share(mixer.num_heads, tp)) * (latent + mixer.kv_lora_rank)
            return CacheEntry(latent * element, flops)
        case CompressedAttention():
            rate = mixer.compress_rate or np.inf
            flops = 4.0 * float(share(mixer.num_heads, tp)) * mixer.head_dim
            return CacheEntry(
                mixer.head_dim * element / rate, flops / rate, state=mixer.window * mixer.head_dim * element
            )
        case StateSpace() | SelectiveScan():
            channels = getattr(mixer, "inner_size", 0) or getattr(mixer, "intermediate_size", 0)
            return CacheEntry(state=4.0 * channels * mixer.state_size / tp)
        case _:
            heads, width = getattr(mixer, "num_heads", 1), getattr(mixer, "head_dim", 128)
            return CacheEntry(state=4.0 * heads * width * width / tp)


@dataclass(frozen=True, kw_only=True)
class Engine:
    """A replica of a model on a cluster, as an inference engine runs it."""

    model: ModelConfig
    cluster: Cluster
    replica: Replica
    precision: str = "bf16"
    """Number format of the linear layers' weights."""
    cache_precision: str = "bf16"
    """Number format of the cache."""
    drafts: int = 0
    """Tokens of a sequence that multi-token prediction drafts in an iteration, and the model checks."""
    adapters: Adapters | None = None
    """What is trained, where that is not the weights."""

    @cached_property
    def question(self) -> Question:
        """Its tensor-parallel ranks as accelerators that compute one token of a sequence."""
        return self._asked(1)

    def _asked(self, length: int) -> Question:
        precision = cast("Precision", self.precision)
        job = Job(sequence_length=length, global_batch_size=1, precision=precision, routing="balanced")
        return Question(model=self.model, cluster=self.cluster, num_accelerators=self.replica.tp, job=job)

    def _numbers(self, rows: Numbers) -> PlanNumbers:
        """The replica in numbers, with this many sequences at once."""
        replica = self.replica
        plan = Plan(tp=replica.tp, etp=replica.tp // replica.ep, ep=replica.ep, sequence_parallel=False)
        return replace(PlanNumbers.of(plan, replica.tp, self.question.job), micro_batch_size=rows)

    @cached_property
    def weights(self) -> float:
        """Weights on one accelerator. [bytes]"""
        parts = parameters_of_parts(self.question, self._numbers(1))
        held = parts.total(whole_model(self.model), lambda part: part.dense + part.experts)
        return float(held) * WEIGHT_BYTES[self.precision] / self.replica.pp

    @cached_property
    def caches(self) -> tuple[tuple[float, CacheEntry], ...]:
        """What every kind of mixer keeps, with the number of its layers on one accelerator."""
        counts, element = whole_model(self.model).counts, WEIGHT_BYTES[self.cache_precision]
        return tuple(
            (float(count) / self.replica.pp, cache_entry(mixer, self.replica.tp, element))
            for kind, count in zip(self.model.layer_kinds, counts, strict=True)
            for mixer in kind.mixers
        )

    def cache_of(self, context: Numbers) -> Numbers:
        """Cache of a sequence of ``context`` tokens on one accelerator. [bytes]"""
        return sum((n * (entry.bytes * entry.tokens(context) + entry.state) for n, entry in self.caches), start=0.0)

    def iteration_time(self, sequences: Numbers, context: Numbers) -> Numbers:
        r"""One decode iteration of a replica with these sequences, of ``context`` tokens each on average. [s]

        .. math:: p\,t_0 + b\,t_b + \sum_{layers} \left[\sum_{products}
            \max\left(\frac{bytes}{e B}, \frac{flops}{R}\right) + \frac{cache}{e B} + t_{tp}\right] + t_{head}

        The p stages of a pipeline work on parts of the batch in turn, so that each sequence waits for all of them, and
        the host begins an iteration of each part.
        """
        batch = np.asarray(sequences, dtype=float)
        return np.interp(batch, GRID, self._without_cache) + self.cache_time(batch, context)

    @cached_property
    def _without_cache(self) -> Array:
        """Iterations of every batch of the grid but for attention to the cache. [s]"""
        rows = np.maximum(GRID / self.replica.pp, 1.0)
        device = np.asarray(self._device_time(rows * (1 + self.drafts)))
        drafted = self.drafts * device / self.model.num_hidden_layers  # each by a block of one layer
        waits = constant("iteration_time") + (constant("spanning_time") if self.spans_nodes else 0.0)
        return device + drafted + self.replica.pp * waits + constant("sequence_time") * GRID

    @property
    def spans_nodes(self) -> bool:
        """Whether a replica needs several hosts, whose programs agree on every iteration over the network."""
        return self.replica.num_accelerators > self.cluster.accelerators_per_node

    @cached_property
    def num_tensors(self) -> int:
        """Weights of the model."""
        return num_tensors(self.model)

    def _device_time(self, rows: Numbers) -> Numbers:
        """Products, memory-bound passes and exchanges of all layers and the head, for one pass over this many rows."""
        numbers = self._numbers(rows)
        shard = Shard.of(self.model.hidden_size, self.question.job, numbers)
        groups = groups_of(numbers, self.question.network)
        exchange = self._exchange(groups, rows)
        total: Numbers = self._block_time(head_block(self.model, shard), rows, None)
        for kind, count in zip(self.model.layer_kinds, whole_model(self.model).counts, strict=True):
            exchanges = (kind.mixer is not None) + (kind.mlp is not None)
            total = total + count * (self._block_time(layer_block(kind, shard), rows, kind) + exchanges * exchange)
        return total

    def _exchange(self, groups: Mapping[str, Any], rows: Numbers) -> Numbers:
        """All-reduce of the outputs of a block. [s]"""
        if self.replica.tp == 1:
            return 0.0
        size = np.asarray(rows) * self.model.residual_size * 2.0
        time = collective_time("all_reduce", size, groups["tp"], self.question.network)
        return np.maximum(time, constant("exchange_time"))

    def _block_time(self, block: Block, rows: Numbers, layer: Layer | None) -> Numbers:
        """Products and memory-bound passes, attention to the cache left out."""
        return sum(self._operator_times(block, rows, layer), start=0.0)

    def _operator_times(self, block: Block, rows: Numbers, layer: Layer | None) -> Iterator[Numbers]:
        for operator in block.operators:
            if isinstance(operator, Matmul):
                yield self._product_time(operator, rows, layer)
            elif not isinstance(operator, AttentionCore) and operator.name != "loss":
                yield operator.forward_bytes / self.question.machine.memory_rate + constant("kernel_time")

    def _product_time(self, product: Matmul, rows: Numbers, layer: Layer | None) -> Numbers:
        """Weights are read once, of experts those that some token visits; one kernel runs all experts."""
        machine, recipe = self.question.machine, self.question.job.recipe
        each, read = product.m, product.count
        if product.grouped and layer is not None and isinstance(layer.mlp, MixtureOfExperts):
            moe = layer.mlp
            each = np.asarray(rows) * moe.top_k / moe.num_experts
            read = product.count * (1 - (1 - 1 / moe.num_experts) ** (np.asarray(rows) * moe.top_k))
        number_format = recipe.matmul if product.low_precision else recipe.dense_math
        element = WEIGHT_BYTES[number_format]
        moved = read * product.k * product.n * element
        moved = moved + product.count * each * (product.k + product.n) * recipe.activation_bytes
        flops = 2.0 * product.count * each * product.k * product.n
        rate = machine.memory_rate * constant("expert_bandwidth" if product.grouped else "decode_bandwidth")
        return np.maximum(moved / rate, flops / machine.matmul_rate(number_format)) + constant("kernel_time")

    def cache_time(self, sequences: Numbers, context: Numbers) -> Numbers:
        """Attention to the cache of all layers. [s]"""
        rows = np.maximum(np.asarray(sequences, dtype=float) / self.replica.pp, 1.0)
        machine = self.question.machine
        rate = machine.memory_rate * constant("decode_bandwidth")
        peak = machine.matmul_rate(self.question.job.recipe.dense_math) * constant("decode_attention")
        total: Numbers = 0.0
        for count, entry in self.caches:
            met = rows * entry.tokens(context)
            moved = met * entry.bytes + 2 * rows * entry.state
            time = np.maximum(moved / rate, met * (1 + self.drafts) * entry.flops / peak)
            total = total + count * self.replica.pp * (time + 2 * constant("kernel_time"))
        return total

    def prompt_time(self, prompts: float, tokens: int) -> float:
        """Passes over this many prompts, several at once. [s]"""
        if not prompts or not tokens:
            return 0.0
        at_once = max(1.0, min(PREFILL_TOKENS / tokens, prompts))
        if tokens not in self._passes:
            grid = GRID[: np.searchsorted(GRID, max(PREFILL_TOKENS / tokens, 1.0)) + 1]
            self._passes[tokens] = grid, self._pass_times(grid, tokens)
        return float(np.interp(at_once, *self._passes[tokens])) * prompts / at_once / self.replica.pp

    @cached_property
    def _passes(self) -> dict[int, tuple[Array, Array]]:
        """Prompts of a pass and its time, by their tokens; others lie between them. [s]"""
        return {}

    def _pass_times(self, at_once: Array, tokens: int) -> Array:
        """Passes over these numbers of prompts. [s]"""
        asked = self._asked(tokens)
        numbers = replace(self._numbers(at_once), num_microbatches=1)
        shard = Shard.of(self.model.hidden_size, asked.job, numbers)
        exchange = self._exchange(groups_of(numbers, asked.network), at_once * tokens)
        total: Numbers = np.zeros(len(at_once))
        for kind, count in zip(self.model.layer_kinds, whole_model(self.model).counts, strict=True):
            block = layer_block(kind, shard)
            each = sum((operator_times(op, asked.machine).forward for op in block.operators), start=np.zeros(1))
            exchanges = (kind.mixer is not None) + (kind.mlp is not None)
            total = total + float(count) * (each + exchanges * exchange)
        return np.asarray(total)

"""One rank's share of a micro-batch, and the collectives that surround the blocks of a layer, by parallel dimension.

An exchange with experts may send a token once to each domain in which copies of it arrive.
"""

from __future__ import annotations

import math
from functools import cache
from itertools import combinations

import numpy as np

from shardplan.base.arrays import Flags, Numbers
from shardplan.base.fields import dataclass, replace
from shardplan.inputs.job import Job
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.physics.workload.ops import Collective, CollectiveKind, Copies, Dimension, Matmul, Operator


@dataclass(frozen=True, kw_only=True)
class Shard:
    """One rank's share under a plan (or under each plan of a batch)."""

    numbers: PlanNumbers
    job: Job
    hidden_size: int
    tokens: Numbers
    """Tokens inside attention and MLP: the micro-batch over context-parallel ranks (and rows of a tensor grid)."""
    split_tokens: Numbers
    """Tokens of the passes between them: over tensor-parallel ranks too under sequence parallelism."""
    columns: Numbers
    """Ranks that share heads and intermediate width."""
    element: float
    """Bytes of an activation element."""
    linear_input: float
    """Bytes of a kept linear input element."""

    @classmethod
    def of(cls, hidden_size: int, job: Job, numbers: PlanNumbers) -> Shard:
        """Shares of ``job``'s micro-batch under ``numbers``."""
        tokens = numbers.micro_batch_size * job.sequence_length / numbers.sequence_shards
        splits = np.logical_or(numbers.sequence_parallel, numbers.tp_kind == "summa")
        return cls(
            numbers=numbers,
            job=job,
            hidden_size=hidden_size,
            tokens=tokens,
            split_tokens=tokens / np.where(splits, numbers.tp_columns, 1),
            columns=numbers.tp_columns,
            element=job.recipe.activation_bytes,
            linear_input=(
                job.recipe.linear_input_bytes if job.software.quantised_copies else job.recipe.activation_bytes
            ),
        )

    @property
    def eager_ring(self) -> bool:
        """Whether attention runs by PyTorch's operations for the keys of one rank after another."""
        return self.job.software.ring_kernels == "eager" and self.numbers.cp_comm != "a2a"

    @property
    def rings(self) -> bool:
        """Whether one kernel sees the keys of one rank alone."""
        return self.numbers.cp_comm == "p2p" or self.eager_ring

    @property
    def gathered_input(self) -> float:
        """Bytes of an element that tensor-parallel ranks gather for a linear layer."""
        by_tensor = self.job.precision == "fp8" and not self.job.scales_rows
        return self.job.recipe.linear_input_bytes if by_tensor else self.linear_input

    @property
    def gate_input(self) -> float:
        """Bytes of a kept element of the input of an activation function."""
        return 1.0 if self.job.software.gate_input_format == "fp8" else self.element

    @property
    def summa(self) -> bool:
        """Whether matrices are split along both dimensions."""
        return self.numbers.tp_kind == "summa"


def tensor_exchange(
    shard: Shard,
    name: str,
    modules: tuple[str, ...],
    width: Numbers,
    *,
    quantised_inputs: bool = True,
    quantised_gradients: bool = True,
) -> tuple[Collective, ...]:
    """Around a column-parallel and a row-parallel product (Korthikanti et al., arXiv 2205.05198, section 4.2).

    With sequence parallelism: all-gather before, reduce-scatter after, the reverse in the backward pass, and one more
    all-gather there where the gathered input is not kept. Without: one all-reduce each way, both of them in one.
    Asynchronous linear layers overlap that gathering with the product for the input's gradient, and its reduction with
    the product for the weight's. ``width``: channels gathered before (the hidden size, or the latent one of MLA).
    ``quantised``: whether inputs and output gradients are those of linear layers, which are gathered in the recipe's
    low precision (Transformer Engine; torchao's ``Float8ColwiseParallel``), but not to be scaled by row (torchtitan,
    ``apply_tp``). Sums are scattered in 16 bits. ``tp_overlaps`` of the software says which ones overlap pipelines.
    """
    if shard.summa:
        return ()
    whole = shard.tokens * shard.hidden_size * shard.element
    low = np.where(shard.numbers.sequence_parallel, shard.gathered_input / shard.element, 1.0)
    reduced = shard.tokens * width * shard.element
    gathered = reduced * (low if quantised_inputs else 1.0)
    returned = whole * (low if quantised_gradients else 1.0)
    beside = shard.job.software.async_tp_backward
    again = np.where(shard.numbers.sequence_parallel, 0.0 if shard.job.software.gathered_inputs else 1.0, 0.0)
    late = beside & ~np.asarray(shard.numbers.sequence_parallel)  # one all-reduce of the input's gradient
    sums = shard.job.software.tp_overlaps == "all"
    gathers = sums or not (quantised_inputs and shard.job.scales_rows)
    gather = Collective(
        name=f"{name}_gather", modules=modules, kind="all_gather", dimension="tp", bytes=gathered, pipelined=gathers
    )
    scatter = replace(gather, name=f"{name}_scatter", kind="reduce_scatter", bytes=whole, pipelined=True)
    return (
        gather,
        scatter,
        _back(gather, f"{name}_scatter_back", returned, asynchronous=late),
        replace(_back(scatter, f"{name}_gather_back", reduced, asynchronous=beside), pipelined=sums),
        replace(_back(gather, f"{name}_gather_again", gathered, asynchronous=beside), count=again),
    )


def _back(item: Collective, name: str, size: Numbers, *, asynchronous: Flags) -> Collective:
    """The same kind of exchange in the backward pass."""
    return replace(item, name=name, bytes=size, direction="backward", asynchronous=asynchronous)


ROW_PARALLEL = ("proj", "mlp_fc2")
"""Products of which a rank's inner dimension is a column's share of the whole."""


def summa_exchange(shard: Shard, operators: tuple[Operator, ...]) -> tuple[Collective, ...]:
    """Broadcasts of two-dimensional tensor parallelism (van de Geijn and Watts 1997).

    Every product moves both its factors. Forward: input blocks along the row, weight blocks along the column. Backward:
    both again, and both gradients reduced.
    """
    if not shard.summa:
        return ()
    collectives: tuple[Collective, ...] = ()
    for operator in operators:
        if isinstance(operator, Matmul) and operator.weight:
            whole = shard.columns if operator.name in ROW_PARALLEL else 1
            inputs = operator.m * operator.k * whole * operator.count * shard.element
            weights = operator.k * operator.n * operator.count * shard.element
            name, modules = operator.name, operator.modules
            collectives += (
                Collective(name=f"{name}_x", modules=modules, kind="broadcast", dimension="tp", bytes=inputs),
                Collective(name=f"{name}_w", modules=modules, kind="broadcast", dimension="tp_rows", bytes=weights),
                _backward(f"{name}_x_back", modules, "broadcast", "tp", inputs, count=2.0),
                _backward(f"{name}_w_back", modules, "broadcast", "tp_rows", weights, count=2.0),
            )
    return collectives


def context_exchange(shard: Shard, query: Numbers, keys_values: Numbers, output: Numbers) -> tuple[Collective, ...]:
    """Exchange of keys and values among ranks that share a sequence; widths are channels per token of this rank.

    ``p2p``: ring attention, every rank's keys and values visit all others, and their gradients follow in the backward
    pass. ``allgather``: gathered forward; gathered and reduce-scattered backward. ``a2a``: all-to-all of queries, keys,
    values and output, heads against sequence, both ways (DeepSpeed-Ulysses, arXiv 2309.14509). Eager rings
    (``ring_kernels``) exchange keys and values of every query head, and their gradients in fp32, once more to come
    home; a gather starts before the first kernel, and hides as the transfers of a ring do.
    """
    modules = ("core_attn",)
    ranks = shard.numbers.cp
    sent = query + output if shard.eager_ring else keys_values
    local = shard.tokens * sent * shard.element
    rows = _gathering(modules, "tp_rows", local * shard.numbers.tp_rows) if shard.summa else ()
    if shard.rings:
        ring = Collective(name="ring", modules=modules, kind="p2p", dimension="cp", bytes=local, count=ranks - 1)
        if shard.eager_ring:
            again = replace(ring, name="ring_again", direction="backward")
            home = replace(again, name="ring_back", bytes=shard.tokens * sent * FP32_BYTES, count=ranks)
            return (ring, again, home, *rows)
        return (ring, _backward("ring_back", modules, "p2p", "cp", 2.0 * local, count=ranks - 1), *rows)
    if shard.numbers.cp_comm == "allgather":
        return (*_gathering(modules, "cp", local * ranks), *rows)
    moved = shard.tokens * (query + keys_values + output) * shard.element
    return (*heads_exchange(modules, moved), *rows)


FP32_BYTES = 4.0


def heads_exchange(modules: tuple[str, ...], moved: Numbers) -> tuple[Collective, ...]:
    """All-to-all of ``moved`` bytes over context-parallel ranks, heads against sequence, both ways."""
    there = Collective(name="heads", modules=modules, kind="all_to_all", dimension="cp", bytes=moved)
    return (there, replace(there, name="heads_back", direction="backward"))


FP8_DISPATCH_BYTES = 1 + 4 / 128
"""Bytes of an element in 8 bits with an fp32 scale for every 128 channels (arXiv 2412.19437, section 3.3.2)."""


def expert_exchange(
    shard: Shard, modules: tuple[str, ...], assignments: Numbers, width: Numbers, *, copies: Copies
) -> tuple[Collective, ...]:
    """Dispatch of tokens to experts and back: all-to-all over ``ep``, then gathering over ``etp``.

    ``assignments``: token copies that this rank sends (tokens times experts per token); ``width``: channels of each;
    ``copies``: of a token, of which only one crosses a slow tier to each domain. Tokens travel to the experts in
    ``moe_dispatch_format`` of the software, and so do gradients of the outputs in the backward pass; what comes back is
    summed and keeps the format of activations (DeepSeek-V3, arXiv 2412.19437, section 3.3.3).
    """
    there = assignments * width * _dispatched_bytes(shard)
    back = assignments * width * shard.element
    etp = shard.numbers.etp
    dispatch = Collective(
        name="dispatch", modules=modules, kind="all_to_all", dimension="ep", bytes=there, copies=copies
    )
    combine = replace(dispatch, name="combine", bytes=back)
    return (
        dispatch,
        combine,
        replace(dispatch, name="combine_back", direction="backward"),
        replace(combine, name="dispatch_back", direction="backward"),
        Collective(name="expert_gather", modules=modules, kind="all_gather", dimension="etp", bytes=there * etp),
        Collective(name="expert_scatter", modules=modules, kind="reduce_scatter", dimension="etp", bytes=back * etp),
        _backward("expert_scatter_back", modules, "all_gather", "etp", there * etp),
        _backward("expert_gather_back", modules, "reduce_scatter", "etp", back * etp),
    )


def _dispatched_bytes(shard: Shard) -> float:
    """Of an element on its way to the experts."""
    return FP8_DISPATCH_BYTES if shard.job.software.moe_dispatch_format == "fp8" else shard.element


def _gathering(modules: tuple[str, ...], dimension: Dimension, whole: Numbers) -> tuple[Collective, ...]:
    return (
        Collective(name="keys_values", modules=modules, kind="all_gather", dimension=dimension, bytes=whole),
        _backward("keys_values_again", modules, "all_gather", dimension, whole),
        _backward("keys_values_back", modules, "reduce_scatter", dimension, whole),
    )


def _backward(
    name: str,
    modules: tuple[str, ...],
    kind: CollectiveKind,
    dimension: Dimension,
    size: Numbers,
    *,
    count: Numbers = 1,
    asynchronous: Flags = False,
) -> Collective:
    return Collective(
        name=name, modules=modules, kind=kind, dimension=dimension, bytes=size, direction="backward", count=count,
        asynchronous=asynchronous,
    )  # fmt: skip


def sent_once(copies: Copies, num_domains: Numbers) -> Numbers:
    """Different domains among those of a token's copies, as a share of the copies."""
    return domains_reached(copies, num_domains) / copies.count


def domains_reached(copies: Copies, num_domains: Numbers) -> Numbers:
    r"""Domains that a token's k copies reach on average, of D that hold equal runs of the experts.

    .. math:: D - \sum_d E_S \left(1 - \tfrac{1}{t} \sum_{g \in S} a_{dg}\right)^k

    S are the t groups that the token may visit, of G, and :math:`a_{dg}` is the part of group g that domain d holds.
    Without groups that is :math:`D (1 - (1 - 1/D)^k)`; with a group in each domain :math:`t (1 - (1 - 1/t)^k)`, so that
    DeepSeek-V3 reaches 3.6 nodes of 8, never more than 4 (arXiv 2412.19437, section 2.1.2); with groups of several
    domains each, what D t / G domains without groups give.

    Assumptions: experts lie on the ranks in their order; all sets of t groups are as likely, and so are the experts in
    them, one by one (a token may then choose one twice: up to 4 % too few domains). A number of domains that is not
    whole lies between its neighbours.
    """
    if copies.num_groups == 1:
        return num_domains * (1 - (1 - 1 / np.asarray(num_domains)) ** copies.count)
    whole = np.asarray(num_domains).astype(np.int64)
    reached = np.zeros(whole.max() + 2)
    for number in np.flatnonzero(np.bincount(whole.ravel())).tolist():  # few among many plans
        reached[number : number + 2] = _reached(copies, number), _reached(copies, number + 1)
    return reached[whole] + (num_domains - whole) * (reached[whole + 1] - reached[whole])


@cache
def _reached(copies: Copies, num_domains: int) -> float:
    """Of a whole number of domains: their chances of a copy, which repeat where domains and groups begin together."""
    alike = math.gcd(num_domains, copies.num_groups)
    return alike * sum(1 - _missed(copies, _held(copies, num_domains, d)) for d in range(num_domains // alike))


def _held(copies: Copies, num_domains: int, domain: int) -> list[float]:
    """Parts of the groups that a domain holds experts of."""
    first, last = domain * copies.num_groups, (domain + 1) * copies.num_groups  # in parts of a group
    groups = range(first // num_domains, -(-last // num_domains))
    return [(min(last, (g + 1) * num_domains) - max(first, g * num_domains)) / num_domains for g in groups]


def _missed(copies: Copies, held: list[float]) -> float:
    """Chance that a domain of these parts of groups gets no copy of a token: over what it may visit of them."""
    t, k = copies.groups_reached, copies.count
    whole, parts = held.count(1.0), [part for part in held if part < 1]
    sets = math.comb(copies.num_groups, t)
    missed = 0.0
    for some in (chosen for n in range(len(parts) + 1) for chosen in combinations(parts, n)):
        for j in range(min(whole, t - len(some)) + 1):
            ways = math.comb(whole, j) * math.comb(copies.num_groups - len(held), t - j - len(some))
            missed += ways / sets * (1 - (j + sum(some)) / t) ** k
    return missed

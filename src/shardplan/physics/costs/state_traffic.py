"""Communication of parameters and gradients among ranks that hold the same weights, and the optimizer step.

The optimizer runs on the accelerator or on the host.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from shardplan.base.arrays import Numbers, any_holds, is_zero, where
from shardplan.base.fields import dataclass, replace
from shardplan.inputs.job import Job
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.physics.costs.collectives import Group, add_tiers, collective_bytes, collective_time
from shardplan.physics.costs.network import Network
from shardplan.physics.costs.roofline import Machine
from shardplan.physics.workload.layer import Parameters
from shardplan.physics.workload.ops import CollectiveKind

LEAST_BUCKET, BUCKET_PER_RANK = 40e6, 1e6
"""Parameters that are reduced or gathered together once per step: at least the one, and the other for every replica, so
that latencies do not grow with the replicas (Megatron Core, distributed_data_parallel.py). Fully sharded weights and
gradients travel layer by layer."""


@dataclass(frozen=True, kw_only=True)
class _Exchange:
    """A collective over parameters, gradients or their shards."""

    kind: CollectiveKind
    size: Numbers
    """[bytes]"""
    group: Group
    calls: Numbers
    """Collectives in which they travel."""
    per_step: Numbers
    """How often it runs once per step."""
    per_microbatch: Numbers
    """How often it runs in every micro-batch."""


@dataclass(frozen=True, kw_only=True)
class StateTraffic:
    """What a part's parameters and gradients cost the network."""

    reduce_time: Numbers
    """Gradients reduced once per step. [s]"""
    gather_time: Numbers
    """Updated parameters gathered once per step. [s]"""
    microbatch_time: Numbers
    """Weights gathered and gradients reduced in every micro-batch. [s]"""
    copied_bytes: Numbers
    """Weights that every micro-batch copies out of the buffers that they were gathered in."""
    network: Network
    exchanges: tuple[_Exchange, ...]

    @property
    def step_bytes(self) -> tuple[Numbers, ...]:
        """Bytes sent per tier once per step."""
        return self._sent([exchange.per_step for exchange in self.exchanges])

    @property
    def microbatch_bytes(self) -> tuple[Numbers, ...]:
        """Bytes sent per tier in every micro-batch."""
        return self._sent([exchange.per_microbatch for exchange in self.exchanges])

    def beside(self, other: StateTraffic) -> StateTraffic:
        """The traffic of both."""
        return replace(
            self,
            reduce_time=self.reduce_time + other.reduce_time,
            gather_time=self.gather_time + other.gather_time,
            microbatch_time=self.microbatch_time + other.microbatch_time,
            copied_bytes=self.copied_bytes + other.copied_bytes,
            exchanges=self.exchanges + other.exchanges,
        )

    def _sent(self, times: list[Numbers]) -> tuple[Numbers, ...]:
        sent: tuple[Numbers, ...] = (0.0,) * len(self.network.tiers)
        for count, exchange in zip(times, self.exchanges, strict=True):
            if any_holds(count):
                sent = add_tiers(sent, collective_bytes(exchange.kind, count * exchange.size, exchange.group))
        return sent


def state_traffic(
    held: Parameters, job: Job, numbers: PlanNumbers, network: Network, groups: dict[str, Group]
) -> StateTraffic:
    """Traffic of ``held`` under each sharding (ZeRO, arXiv 1910.02054, section 7; hsdp: FSDP, arXiv 2304.11277).

    ddp: gradients all-reduced. zero1: reduce-scattered, updated weights gathered. zero2: reduce-scattered in every
    micro-batch. zero3: weights gathered for the forward and again for the backward pass of every micro-batch. hsdp: as
    zero3 within the shard group; shards are all-reduced across groups, once per step or in every micro-batch
    (``reduces_replicas`` of the software). hpz: as zero3, but the backward pass gathers within a node (ZeRO++, arXiv
    2306.10209, section 3.2). Where the software keeps gathered weights or whole gradients through a step, these travel
    once per step. ``reduces_whole``: zero1 all-reduces gradients as ddp does.
    """
    trained, frozen = held.trained, held.as_kept(job).frozen
    flat = where(numbers.shards_weights, held.flat, 0.0) if any_holds(held.flat) else 0.0
    dense = _traffic((trained.dense, frozen.dense), job, numbers, network, groups, flat=flat)
    own = {name.removeprefix("expert_"): group for name, group in groups.items() if name.startswith("expert_")}
    experts = _traffic((trained.experts, frozen.experts), job, numbers, network, own)
    return StateTraffic(
        reduce_time=dense.reduce_time + experts.reduce_time,
        gather_time=dense.gather_time + experts.gather_time,
        microbatch_time=dense.microbatch_time + experts.microbatch_time,
        copied_bytes=dense.copied_bytes + experts.copied_bytes,
        network=network,
        exchanges=dense.exchanges + experts.exchanges,
    )


def with_tied_table(traffic: StateTraffic, table: Numbers, job: Job, ends: Group, network: Network) -> StateTraffic:
    """``traffic`` of the head, and an all-reduce of the gradients of a table that first and last stage both hold.

    It is the head's where the two are tied, or that of multi-token prediction (:func:`.layer.reads_table_last`).
    It runs once per step between ``ends``, the first and the last stage (Megatron-LM, finalize_model_grads; DeepSpeed,
    reduce_tied_grads).
    """
    both = _Exchange(
        kind="all_reduce",
        size=table * job.reduced_gradient_bytes,
        group=ends,
        calls=1.0,
        per_step=1.0,
        per_microbatch=0.0,
    )
    time = traffic.reduce_time + _time(both, network)
    return replace(traffic, reduce_time=time, exchanges=(*traffic.exchanges, both))


def _traffic(
    held: tuple[Numbers, Numbers],
    job: Job,
    numbers: PlanNumbers,
    network: Network,
    groups: dict[str, Group],
    *,
    flat: Numbers = 0.0,
) -> StateTraffic:
    """Traffic of parameters that are trained and of others that are frozen; ``flat``: of these, some with gradients."""
    trained, frozen = held
    if not any_holds(trained) and not any_holds(frozen):
        return StateTraffic(
            reduce_time=0.0, gather_time=0.0, microbatch_time=0.0, copied_bytes=0.0, network=network, exchanges=()
        )
    reductions = [(each, _time(each, network)) for each in _reductions(trained + flat, job, numbers, groups)]
    gathers = [(each, _time(each, network)) for each in _gathers(trained, job, numbers, groups)]
    if any_holds(frozen):  # weights that never change are gathered only where they are shards between steps
        kept = replace(numbers, shards_optimizer=numbers.shards_weights)
        gathers += [(each, _time(each, network)) for each in _gathers(frozen, job, kept, groups)]
    both = (*reductions, *gathers)
    return StateTraffic(
        reduce_time=_sum((each.per_step, time) for each, time in reductions),
        gather_time=_sum((each.per_step, time) for each, time in gathers),
        microbatch_time=_sum((each.per_microbatch, time) for each, time in both),
        copied_bytes=_copied((each for each, _ in gathers), job),
        network=network,
        exchanges=tuple(each for each, _ in both),
    )


def _reductions(parameters: Numbers, job: Job, numbers: PlanNumbers, groups: dict[str, Group]) -> Iterator[_Exchange]:
    """Sums of gradients: within the ranks that share states, across them, and on to ranks that need them whole."""
    gradients, shard = parameters * job.reduced_gradient_bytes, groups["shard"]
    often = np.where(numbers.shards_gradients, 1.0, 0.0)
    across = often if job.software.reduces_replicas == "microbatch" else 0.0
    # A sum that every rank gets whole: gathered behind the reduce-scatter, as the two make an all-reduce.
    whole = 1.0 - (often if job.software.reduces_whole else np.where(numbers.shards_optimizer, 1.0, 0.0))
    buckets = _buckets(parameters, groups)
    calls = np.where(often > 0, _one(parameters), buckets)
    yield _Exchange(
        kind="reduce_scatter", size=gradients, group=shard, calls=calls, per_step=1 - often, per_microbatch=often
    )
    yield _Exchange(
        kind="all_reduce", size=gradients / shard.size, group=groups["replica"], calls=calls, per_step=1 - across,
        per_microbatch=across,
    )  # fmt: skip
    if any_holds(whole):
        yield _Exchange(
            kind="all_gather", size=gradients, group=shard, calls=buckets, per_step=whole, per_microbatch=0.0
        )


def _gathers(parameters: Numbers, job: Job, numbers: PlanNumbers, groups: dict[str, Group]) -> Iterator[_Exchange]:
    """Weights gathered: once per step or in every micro-batch, for its backward pass maybe from a second copy."""
    often = np.asarray(numbers.weight_gathers)
    near = _from_second_copy(numbers)
    whole = _Exchange(
        kind="all_gather",
        size=parameters * job.gathered_weight_bytes,
        group=groups["shard"],
        calls=np.where(often > 0, _one(parameters), _buckets(parameters, groups)),
        per_step=np.where(numbers.shards_optimizer & (often == 0), 1.0, 0.0),
        per_microbatch=often - near,
    )
    yield whole
    if any_holds(near):
        yield replace(whole, group=groups["second"], per_step=0.0, per_microbatch=near)


def _copied(gathers: Iterable[_Exchange], job: Job) -> Numbers:
    """Weights that FSDP2 copies out of the buffer in which ranks stand one after another. [bytes]

    ``foreach_all_gather_copy_out`` of PyTorch, torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py.
    """
    if job.software.sharded_accumulation != "parameters":
        return 0.0
    return _sum((each.per_microbatch * np.greater(each.group.size, 1), each.size) for each in gathers)


def _from_second_copy(numbers: PlanNumbers) -> Numbers:
    """Gathers of a micro-batch that reach for the second copy: that of the backward pass, where there is one."""
    if numbers.second_degree is None:
        return 0.0
    return np.where(numbers.frees_weights & np.less(numbers.second_degree, numbers.sharding_degree), 1.0, 0.0)


def _buckets(parameters: Numbers, groups: dict[str, Group]) -> Numbers:
    """Collectives in which parameters travel once per step."""
    ranks = np.asarray(groups["shard"].size * groups["replica"].size)
    return parameters / np.maximum(LEAST_BUCKET, BUCKET_PER_RANK * ranks)


def _one(parameters: Numbers) -> Numbers:
    """One collective; none of a part without parameters."""
    return np.where(np.asarray(parameters) > 0, 1.0, 0.0)


def _sum(terms: Iterable[tuple[Numbers, Numbers]]) -> Numbers:
    """The sum of times as often as they are spent."""
    return sum((count * time for count, time in terms if not is_zero(count)), start=0.0)


def _time(exchange: _Exchange, network: Network) -> Numbers:
    return collective_time(exchange.kind, exchange.size, exchange.group, network, calls=exchange.calls)


def host_rate(machine: Machine) -> Numbers:
    """Achieved bandwidth of the link to the host (none known: the slowest in the catalogue, PCIe 4 x8). [bytes/s]"""
    return (machine.accelerator.host_link_bandwidth or 16e9) * machine.profile.host_link_efficiency


def update_time(local_parameters: Numbers, job: Job, numbers: PlanNumbers, machine: Machine) -> Numbers:
    r"""Time to update this rank's parameters, on the accelerator or on the host. [s]

    On the accelerator its memory traffic; on the host its own plus both transfers (ZeRO-Offload, arXiv 2101.06840).
    Traffic on the accelerator scales with the bytes of state relative to Adam in mixed precision (12 per parameter).
    """
    profile = machine.profile
    traffic = profile.optimizer_bytes_per_parameter * (job.optimizer_bytes + job.grad_bytes) / 16.0
    on_device = local_parameters * traffic * profile.optimizer_pass_factor / machine.memory_rate
    transfers = local_parameters * (job.grad_bytes + job.recipe.weight_bytes) / host_rate(machine)
    on_host = local_parameters * 2.0 * (job.optimizer_bytes + job.grad_bytes) / profile.host_memory_bandwidth
    return where(numbers.offload_optimizer, on_host + transfers, on_device)


def orthogonalising_time(
    dense: Numbers, experts: Numbers, largest: Numbers, numbers: PlanNumbers, machine: Machine
) -> Numbers:
    """Time of Muon's products on this rank: its share of all matrices, and no less than the largest one. [s]

    ``dense``, ``experts``, ``largest``: FLOP before ranks share them. The products run at the rate of large ones in the
    wider format of the recipe, on the accelerator also where states live on the host.
    """
    shared = dense / numbers.sharding_degree + experts / numbers.expert_sharding_degree
    flops = where(numbers.shards_optimizer, np.maximum(shared, largest), dense + experts)
    return flops / machine.matmul_rate(machine.recipe.dense_math)

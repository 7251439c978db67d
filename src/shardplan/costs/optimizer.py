"""Time of the optimizer step, on the accelerator or on the host."""

from __future__ import annotations

import numpy as np

from shardplan.arrays import Numbers, where
from shardplan.costs.roofline import Machine
from shardplan.inputs.job import Job
from shardplan.inputs.plan_numbers import PlanNumbers


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

from __future__ import annotations

from typing import Any

import pytest
from tests.examples import accelerator, ideal_profile

from shardplan.costs.optimizer import host_rate, orthogonalising_time, update_time
from shardplan.costs.roofline import Machine
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import PlanNumbers

PARAMETERS = 1e9


def time(*, offload: Any = "none", link: float | None = 64e9, **job_fields: Any) -> float:
    job = Job(sequence_length=1, global_batch_size=1, **job_fields)
    profile = ideal_profile(optimizer_bytes_per_parameter=42, host_memory_bandwidth=40e9)
    machine = Machine(accelerator=accelerator(host_link_bandwidth=link), profile=profile, recipe=job.recipe)
    return float(update_time(PARAMETERS, job, PlanNumbers.of(Plan(offload=offload), 1, job), machine))


def test_adam_on_the_device_takes_its_memory_traffic() -> None:
    assert time() == pytest.approx(42e9 / 3350e9)


def test_fewer_states_move_fewer_bytes() -> None:
    assert time(optimizer="sgd") == pytest.approx(time() * 12 / 16)
    assert time(grad_dtype="bf16") == pytest.approx(time() * 14 / 16)


def test_on_the_host_gradients_come_and_weights_go_back() -> None:
    """ZeRO-Offload (arXiv 2101.06840, section 4): gradients down and updated 16-bit weights up."""
    update = 2 * 16 * PARAMETERS / 40e9
    assert time(offload="optimizer") == pytest.approx(update + (4 + 2) * PARAMETERS / 64e9)


def test_an_unknown_link_is_taken_as_slow() -> None:
    assert time(offload="optimizer", link=None) > time(offload="optimizer")


def test_host_rate_is_what_the_link_achieves() -> None:
    job = Job(sequence_length=1, global_batch_size=1)
    profile = ideal_profile(host_link_efficiency=0.5)
    assert host_rate(Machine(accelerator=accelerator(), profile=profile, recipe=job.recipe)) == 32e9


def test_an_update_by_hand() -> None:
    """On the device two passes of 42 bytes for 16 of gradients and states, at half of its bandwidth.

    On the host these read and written, and both transfers over a link of 64 GB/s that reaches three quarters; one that
    is not known has 16.
    """
    job = Job(sequence_length=1, global_batch_size=1, precision="fp32")
    profile = ideal_profile(
        optimizer_bytes_per_parameter=42, optimizer_pass_factor=2.0, memory_efficiency=0.5, host_memory_bandwidth=40e9,
        host_link_efficiency=0.75,
    )  # fmt: skip
    for link, rate in (64e9, 48e9), (None, 12e9):
        machine = Machine(accelerator=accelerator(host_link_bandwidth=link), profile=profile, recipe=job.recipe)
        state = job.optimizer_bytes + job.grad_bytes
        device, host = (
            float(update_time(PARAMETERS, job, PlanNumbers.of(Plan(offload=where), 1, job), machine))
            for where in ("none", "optimizer")
        )
        assert device == pytest.approx(PARAMETERS * 42 * state / 16 * 2 / (0.5 * 3350e9))
        assert host == pytest.approx(PARAMETERS * (2 * state / 40e9 + (4 + job.recipe.weight_bytes) / rate))


@pytest.mark.parametrize(
    ("plan", "largest", "flops"),
    [
        ({"sharding": "ddp"}, 5.0, 640 + 320),
        ({"sharding": "zero1"}, 5.0, 640 / 64 + 320 / 16),
        ({"sharding": "zero1"}, 50.0, 50),
        ({"sharding": "zero1", "sharding_degree": 8}, 50.0, 640 / 8 + 320 / 2),
    ],
)
def test_ranks_share_the_matrices_of_muon(plan: dict[str, Any], largest: float, flops: float) -> None:
    """Of 64 ranks, four to a layer's experts: dense matrices over 64 or 8, experts over a quarter of these."""
    job = Job(sequence_length=1, global_batch_size=64, precision="fp8", optimizer="muon")
    profile = ideal_profile(matmul_efficiency={"fp32": 0.3, "bf16": 0.5, "fp8": 0.4})
    machine = Machine(accelerator=accelerator(), profile=profile, recipe=job.recipe)
    numbers = PlanNumbers.of(Plan(ep=4, **plan), 64, job)
    found = orthogonalising_time(640e12, 320e12, largest * 1e12, numbers, machine)
    assert float(found) == pytest.approx(flops / 500)

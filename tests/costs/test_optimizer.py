from __future__ import annotations

from typing import Any

import pytest
from tests.examples import accelerator, ideal_profile

from shardplan.costs.optimizer import host_rate, update_time
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

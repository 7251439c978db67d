"""What shows of a communication beside work, and what the optimizer takes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import accelerator, ideal_profile

from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.physics.costs.host import (
    all_windows,
    exposed,
    exposed_with_chunks,
    exposed_with_products,
    exposed_with_ring,
    pipelined_products,
)
from shardplan.physics.costs.roofline import Machine
from shardplan.physics.costs.state_traffic import host_rate, orthogonalising_time, update_time

times = st.floats(0, 1e3)
shares = st.floats(0, 1)


@given(times, times, shares)
def test_what_runs_beside_a_window_shows_the_excess_or_its_slowdown(
    time: float, window: float, slowdown: float
) -> None:
    shown = exposed(time, window, ideal_profile(hidden_slowdown=slowdown))
    assert shown == max(time - window, slowdown * time)


@given(times, times, st.integers(1, 16), st.integers(1, 64), shares)
def test_interleaving_never_shows_more(time: float, window: float, chunks: int, group: int, slowdown: float) -> None:
    profile = ideal_profile(hidden_slowdown=slowdown)
    own = window / chunks
    shown = exposed_with_chunks(time, own, lambda: all_windows(own, chunks, group), chunks, profile)
    assert 0 <= shown <= exposed(time, own, profile) * (1 + 1e-9) + 1e-300
    assert exposed_with_chunks(time, window, lambda: all_windows(window, 1, group), 1, profile) == exposed(
        time, window, profile
    )


@given(times, times, st.sampled_from((1, 4, 8, 16)))
def test_pipelined_products_show_the_first_panel_and_the_excess(time: float, products: float, panels: int) -> None:
    shown = pipelined_products(time, products, ideal_profile(summa_panels=panels))
    assert time / panels <= shown <= time * (1 + 1e-12)
    assert shown + products >= time * (1 - 1e-12)


@given(times, times, shares, shares, shares)
def test_products_hide_no_more_than_they_last(
    time: float, products: float, window: float, fill: float, slowdown: float
) -> None:
    profile = ideal_profile(tp_fill=fill, tp_window=window, hidden_slowdown=slowdown)
    shown = exposed_with_products(time, products, profile)
    assert max(time - products, 0) * (1 - 1e-12) <= shown <= time * (1 + 1e-12)
    assert shown >= fill * time * (1 - 1e-12)


def test_one_of_four_panels_shows_beside_long_products() -> None:
    """An exchange of 4 s in four panels beside 100 s of products: the first panel. Beside 2 s: all but these."""
    profile = ideal_profile(tp_fill=0.25, tp_window=1.0)
    assert exposed_with_products(4.0, 100.0, profile) == 1.0
    assert exposed_with_products(4.0, 2.0, profile) == 2.0
    assert exposed_with_products(4.0, 2.0, ideal_profile(tp_fill=0.25, tp_window=0.5)) == 3.0


@given(times, times, st.integers(1, 64), shares, shares)
def test_every_step_of_a_ring_hides_its_own_transfer(
    time: float, attention: float, ranks: int, window: float, slowdown: float
) -> None:
    """By summing over the steps: n - 1 of n kernels have a transfer beside them."""
    profile = ideal_profile(cp_window=window, hidden_slowdown=slowdown)
    time = time if ranks > 1 else 0.0
    steps = [
        max(time / (ranks - 1) - window * attention / ranks, slowdown * time / (ranks - 1)) for _ in range(ranks - 1)
    ]
    assert exposed_with_ring(time, attention, ranks, profile) == pytest.approx(sum(steps), rel=1e-9, abs=1e-9)


def test_gradients_of_every_chunk_but_the_last_travel_behind_a_group_of_passes() -> None:
    """Three chunks of passes of 2 s, four in turn: 8 s behind each of the first two, 2 s behind the last."""
    assert all_windows(2.0, 3, 4) == 8 + 8 + 2
    assert all_windows(2.0, 1, 4) == 2
    assert exposed_with_chunks(30.0, 2.0, lambda: 18.0, 3, ideal_profile()) == 30 - 18
    assert exposed_with_chunks(15.0, 2.0, lambda: 18.0, 3, ideal_profile()) == 15 / 3 - 2


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

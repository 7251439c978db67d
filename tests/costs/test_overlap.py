from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import ideal_profile

from shardplan.costs.overlap import (
    all_windows,
    exposed,
    exposed_with_chunks,
    exposed_with_products,
    exposed_with_ring,
    pipelined_products,
)

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
